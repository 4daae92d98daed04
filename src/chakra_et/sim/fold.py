"""Ranks that do the same, with partners that do the same, are simulated once.

Ranks get colors: first by the content of their traces, then, again and again, by the colors of their partners, until no
color falls apart any more (color refinement). Ranks of one color then have the same times: what a rank does depends on
its own trace and on when its partners arrive, and for each rank of a color, partners of the same colors arrive there.
Of each color, one rank stands for all. Whether links allow it is checked later, where they are known
(`chakra_et.sim.flow_table`): all ranks of a color must load their own links alike.

Shape letters: R ranks, G groups, H pairs of a rank and a group, P pairs of a rank and a peer, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir import TraceSet
from chakra_et.ir.arrays import list_values
from chakra_et.ir.graph import DEPENDENCY_COLUMNS
from chakra_et.sim.communicators import COLLECTIVE, Communicators, Peers, communication_rows, peers_of
from chakra_et.sim.workload import Tables

__all__ = ["Fold", "Places", "fold_ranks", "hash_contents", "index_of", "no_fold"]

Int = npt.NDArray[np.int64]
Hash = npt.NDArray[np.uint64]
Places = Callable[[Int, Int], Int]

_COLUMNS = ("id", "name", "type", "start_ns", "duration_ns", "is_cpu_op", "gap_kind", "tid", "stream", "comm_type",
            "comm_size", "comm_dtype", "pg_name", "comm_seq", "comm_tag", "in_split_sizes", "unknown_comm", "wait_ns",
            "transfer_ns", "num_ops", "tensor_size", "copy_kind")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Which ranks are alike.

    Attributes:
        ranks: int64 [R]: global rank of each trace.
        classes: int64 [R]: class of each rank.
        leaders: int64 [K]: the rank that stands for each class, as index into the trace set's ranks.
        kinds: int64 [G]: groups of one kind have members of the same classes.
        pairs: Global ranks ``src`` and ``dst`` of messages, and the kind ``pair`` of each such pair. Of two pairs of
            one kind, senders and receivers are alike.
    """

    ranks: Int
    classes: Int
    leaders: Int
    kinds: Int
    pairs: pl.DataFrame

    @property
    def counts(self) -> Int:
        """Number of ranks of each class, int64 [K]."""
        return np.bincount(self.classes, minlength=len(self.leaders)).astype(np.int64)

    def classes_of(self, ranks: Int) -> Int:
        """Return the class of each global rank, int64."""
        return self.classes[index_of(self.ranks, ranks)]


def no_fold(traces: TraceSet, groups: Communicators, peers: Peers) -> Fold:
    """Return that each rank stands for itself."""
    ranks = np.array(traces.ranks, np.int64)
    every = np.arange(len(ranks), dtype=np.int64)
    here = ranks[peers.rank]
    pairs = pl.DataFrame({"src": np.append(here, peers.peer), "dst": np.append(peers.peer, here)})
    pairs = pairs.unique(maintain_order=True).with_columns(pair=pl.int_range(pl.len(), dtype=pl.Int64))
    return Fold(ranks, every, every, np.arange(len(groups.names), dtype=np.int64), pairs)


def fold_ranks(traces: TraceSet, groups: Communicators, peers: Peers, places: Places, initial: Hash) -> Fold:
    """Find the ranks that are alike.

    Args:
        traces: The traces; every member of every group, and every peer, has one.
        groups: Groups of the collectives.
        peers: Who sends to whom.
        places: Given ranks and, for each, a rank to look from, returns where they lie as seen from there: equal numbers
            mean equal ways through the network. Both int64 of any one length.
        initial: [R]: numbers that differ between ranks which must not be folded, see `hash_contents`.

    Raises:
        SimulationError: A peer has no trace.

    Example:
        >>> from chakra_et.ir import NodeType, ProcessGroup, TraceBuilder
        >>> from chakra_et.sim.communicators import find_communicators, find_peers
        >>> from chakra_et.sim.workload import make_tables
        >>> groups = [ProcessGroup("tp", (0, 1), 2), ProcessGroup("tp", (2, 3), 2)]
        >>> traces = []
        >>> for rank in range(4):
        ...     builder = TraceBuilder(rank=rank, process_groups=groups)
        ...     _ = builder.add("r", NodeType.COMM_COLL_NODE, pg_name="tp", comm_type=0, comm_size=4)
        ...     traces.append(builder.build())
        >>> traces = TraceSet(tuple(traces))
        >>> groups, peers = find_communicators(traces), find_peers(traces)
        >>> contents = hash_contents(traces, make_tables(traces))
        >>> fold_ranks(traces, groups, peers, lambda to, base: to - base, contents).leaders
        array([0])
    """
    ranks = np.array(traces.ranks, np.int64)
    seats = index_of(ranks, groups.members)
    other = index_of(ranks, peers.peer)
    span = _span(groups, places)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups.names))}
    names = np.array([numbers[name] for name in groups.names], np.int64)
    slot = _position(groups.offsets)
    back = _back(peers, other, len(ranks))
    way = places(peers.peer, ranks[peers.rank])
    color = _dense(initial)
    while True:
        kind = _dense(_mix(_sums(_mix(color[seats], 0), groups.seats), span, names, np.diff(groups.seats)))
        own = _sums(_mix(kind[groups.groups], slot), groups.offsets)
        met = _mix(color[other], peers.slot, back, way)
        partners = np.zeros(len(ranks), np.uint64)
        np.add.at(partners, peers.rank, met)
        refined = _dense(_mix(color, own, partners))
        if refined.max(initial=0) == color.max(initial=0):
            break
        color = refined
    leaders = np.unique(color, return_index=True)[1].astype(np.int64)
    # Classes in the order of their leaders.
    order = np.argsort(leaders, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    classes, leaders = number[color], leaders[order]
    return Fold(ranks, classes, leaders, kind, _pairs(peers, classes, other, back, ranks))


def index_of(ranks: Int, wanted: Int) -> Int:
    """Return where global ranks stand in `ranks`.

    Raises:
        SimulationError: One isn't there.
    """
    order = np.argsort(ranks, kind="stable")
    slot = np.minimum(np.searchsorted(ranks, wanted, sorter=order), max(len(ranks) - 1, 0))
    found = order[slot]
    if len(wanted) and (ranks[found] != wanted).any():
        missing = int(wanted[ranks[found] != wanted][0])
        raise SimulationError(f"expected the trace of rank {missing}, got none; add it, or mirror missing ranks")
    return found.astype(np.int64)


def _span(groups: Communicators, places: Places) -> Int:
    """Number the groups by where their members lie as seen from the first one."""
    if not len(groups.members):
        return np.zeros(len(groups.names), np.int64)
    first = np.repeat(groups.members[groups.seats[:-1]], np.diff(groups.seats))
    return _dense(_sums(_mix(places(groups.members, first), _position(groups.seats)), groups.seats))


def _back(peers: Peers, other: Int, count: int) -> Int:
    """Return for each pair the slot that the rank has among its peer's peers, -1 for none."""
    if not len(peers.rank):
        return np.empty(0, np.int64)
    own = peers.rank * count + other
    order = np.argsort(own, kind="stable")
    wanted = other * count + peers.rank
    place = np.minimum(np.searchsorted(own, wanted, sorter=order), len(own) - 1)
    found = order[place]
    return np.where(own[found] == wanted, peers.slot[found], -1)


def _pairs(peers: Peers, classes: Int, other: Int, back: Int, ranks: Int) -> pl.DataFrame:
    """Number the kinds of pairs: classes and slots of both ends."""
    mine, theirs = (classes[peers.rank], peers.slot), (classes[other], back)
    ends = np.stack([np.append(mine[0], theirs[0]), np.append(mine[1], theirs[1]),
                     np.append(theirs[0], mine[0]), np.append(theirs[1], mine[1])], axis=1)  # fmt: skip
    pair = np.unique(ends, axis=0, return_inverse=True)[1].ravel() if len(ends) else np.empty(0, np.int64)
    here = ranks[peers.rank]
    table = {"src": np.append(here, peers.peer), "dst": np.append(peers.peer, here), "pair": pair.astype(np.int64)}
    return pl.DataFrame(table).unique(["src", "dst"], maintain_order=True)


def hash_contents(traces: TraceSet, tables: Tables) -> Hash:
    """Hash what each rank does, without names of other ranks, uint64 [R].

    Only columns that a simulation reads count; peers are replaced by their order of appearance.
    """
    count = len(tables.traces)
    rows = [tables.frame.select(name for name in _COLUMNS if name in tables.frame.columns).hash_rows(seed=1).to_numpy()]
    place = np.arange(tables.frame.height) - tables.offsets[tables.owners]
    found = _sums(_mix(rows[0], place), tables.offsets)
    for name in DEPENDENCY_COLUMNS:
        offsets, values = list_values(tables.column(name))
        node = place[np.repeat(np.arange(len(place)), np.diff(offsets))]
        found = _mix(found, _sums(_mix(values.astype(np.uint64), node), offsets[tables.offsets]))
    peers, _ = peers_of(tables)
    peers = peers.with_columns(slot=pl.int_range(pl.len(), dtype=pl.Int64).over("table"))
    sent = communication_rows(tables).filter(pl.col("type") != COLLECTIVE)
    for name in ("comm_src", "comm_dst"):
        slots = sent.join(peers, left_on=["table", name], right_on=["table", "peer"], how="left", maintain_order="left")
        table, value = slots["table"].to_numpy(), _mix(slots["slot"].fill_null(-1).to_numpy(), slots["row"].to_numpy())
        total = np.zeros(count, np.uint64)
        np.add.at(total, table, value)
        found = _mix(found, total)
    family = [hash(trace.metadata.family) for trace in tables.traces]
    return _with_roots(_mix(found, np.diff(tables.offsets), np.array(family, np.int64))[tables.use], traces, tables)


def _with_roots(contents: Hash, traces: TraceSet, tables: Tables) -> Hash:
    """Tell roots from other ranks; who is whose root is told by the groups, since roots have a content of their own."""
    roots = tables.column("comm_root")
    if roots.null_count() == len(roots):
        return contents
    values = roots.fill_null(-1).to_numpy()
    for index, rank in enumerate(traces.ranks):
        own = values[tables.offsets[tables.use[index]] : tables.offsets[tables.use[index] + 1]] == rank
        if own.any():
            contents[index] = _mix(contents[index : index + 1], np.flatnonzero(own).sum() + 1)[0]
    return contents


def _mix(*parts: npt.NDArray[np.generic] | int) -> Hash:
    """Hash arrays element by element (splitmix64's finalizer)."""
    total: Hash = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            value = np.asarray(part)
            value = value.astype(np.int64).view(np.uint64) if value.dtype != np.uint64 else value
            total = (total + value + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
            total = total ^ (total >> np.uint64(29))
            total = total * np.uint64(0x94D049BB133111EB)
            total = total ^ (total >> np.uint64(32))
    return total


def _sums(values: Hash, offsets: Int) -> Hash:
    """Add up the values of each list."""
    total = np.zeros(len(values) + 1, np.uint64)
    with np.errstate(over="ignore"):
        np.cumsum(values, out=total[1:])
        return total[offsets[1:]] - total[offsets[:-1]]


def _position(offsets: Int) -> Int:
    """Return each element's place in its list."""
    return np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], np.diff(offsets))


def _dense(values: npt.NDArray[np.generic]) -> Int:
    """Number values from 0."""
    numbers: Int = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return numbers
