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
from chakra_et.ir import Trace, TraceSet
from chakra_et.ir.arrays import list_values
from chakra_et.sim.communicators import Communicators, Peers, peers_of

__all__ = ["Fold", "Places", "fold_ranks", "index_of", "no_fold"]

Int = npt.NDArray[np.int64]
Hash = npt.NDArray[np.uint64]
Places = Callable[[Int, Int], Int]

_PEERS = ("comm_src", "comm_dst", "comm_root")
_LISTS = ("ctrl_deps", "data_deps", "sync_deps")


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


def fold_ranks(traces: TraceSet, groups: Communicators, peers: Peers, places: Places, initial: Int) -> Fold:
    """Find the ranks that are alike.

    Args:
        traces: The traces; every member of every group, and every peer, has one.
        groups: Groups of the collectives.
        peers: Who sends to whom.
        places: Given ranks and, for each, a rank to look from, returns where they lie as seen from there: equal numbers
            mean equal ways through the network. Both int64 of any one length.
        initial: int64 [R]: numbers that differ between ranks which must not be folded (delays, speeds).

    Raises:
        SimulationError: A peer has no trace.

    Example:
        >>> from chakra_et.ir import NodeType, ProcessGroup, TraceBuilder
        >>> from chakra_et.sim.communicators import find_communicators, find_peers
        >>> groups = [ProcessGroup("tp", (0, 1), 2), ProcessGroup("tp", (2, 3), 2)]
        >>> traces = []
        >>> for rank in range(4):
        ...     builder = TraceBuilder(rank=rank, process_groups=groups)
        ...     _ = builder.add("r", NodeType.COMM_COLL_NODE, pg_name="tp", comm_type=0, comm_size=4)
        ...     traces.append(builder.build())
        >>> traces = TraceSet(tuple(traces))
        >>> groups, peers = find_communicators(traces), find_peers(traces)
        >>> fold_ranks(traces, groups, peers, lambda to, base: to - base, np.zeros(4, np.int64)).leaders
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
    color = _dense(_mix(_contents(traces, ranks), initial))
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


def _contents(traces: TraceSet, ranks: Int) -> Hash:
    """Hash what each rank does, without names of other ranks; node tables that ranks share are hashed once."""
    known: dict[int, tuple[int, npt.NDArray[np.float64] | None]] = {}
    found = np.zeros(len(ranks), np.uint64)
    for index, trace in enumerate(traces):
        entry = known.get(id(trace.nodes))
        if entry is None:
            roots = trace.column("comm_root")
            known[id(trace.nodes)] = entry = (
                _content(trace),
                None if roots.null_count() == len(roots) else roots.cast(float).fill_null(-1.0).to_numpy(),
            )
        value, roots_of = entry
        # Which of the ranks is the root is told by the groups; that one is it, by its own color.
        extra = hash((roots_of == ranks[index]).tobytes()) if roots_of is not None else 0
        found[index] = (value ^ (extra * 0x9E3779B97F4A7C15)) & 0xFFFFFFFFFFFFFFFF
    return found


def _content(trace: Trace) -> int:
    """Hash a node table."""
    nodes = trace.nodes.select(name for name in trace.nodes.columns if name not in (*_PEERS, *_LISTS))
    peers, _ = peers_of(trace)
    slots = {peer: slot for slot, peer in enumerate(peers)}
    parts = [nodes.hash_rows(seed=1).to_numpy()]
    for name in _LISTS:
        parts += [part.astype(np.uint64) for part in list_values(trace.column(name))]
    if slots:
        for name in ("comm_src", "comm_dst"):
            column = trace.column(name).replace_strict(slots, default=-1).fill_null(-2)
            parts.append(column.to_numpy().astype(np.int64).view(np.uint64))
    total = hash((trace.metadata.family, tuple(nodes.columns)))
    for part in parts:
        mixed = _mix(part, np.arange(len(part)))
        total = hash((total, len(part), int(np.bitwise_xor.reduce(mixed, initial=0)), int(mixed.sum())))
    return total & 0xFFFFFFFFFFFFFFFF


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
