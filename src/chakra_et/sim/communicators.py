"""Whom each rank communicates with: process groups by name, and peers of sends and receives, as arrays.

Shape letters: R ranks, G groups (one name may stand for several groups of disjoint ranks), H pairs of a rank and a name
that its communications use, P pairs of a rank and a peer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import SimulationError, Waiting
from chakra_et.ir import NodeType, ProcessGroup, Trace, TraceSet
from chakra_et.sim.workload import Tables, make_tables

__all__ = [
    "COLLECTIVE",
    "RECV",
    "SEND",
    "Communicators",
    "Peers",
    "communication_rows",
    "find_communicators",
    "find_peers",
    "peers_of",
]

Int = npt.NDArray[np.int64]

COLLECTIVE = int(NodeType.COMM_COLL_NODE)
SEND = int(NodeType.COMM_SEND_NODE)
RECV = int(NodeType.COMM_RECV_NODE)


@dataclass(frozen=True, slots=True, eq=False)
class Communicators:
    """The process groups that collectives use.

    Attributes:
        names: [G]: `pg_name`; empty for the group of all ranks that collectives without a name mean.
        descriptions: [G]: what the framework calls them.
        seats: int64 [G + 1]: where each group's members begin.
        members: int64: global ranks in group order, group after group.
        offsets: int64 [R + 1]: where each rank's pairs begin.
        used: [H]: names that each rank uses, in alphabetic order.
        groups: int64 [H]: the group that is meant.
        strict: True if collectives of recorded traces whose group isn't known are left out.
    """

    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    seats: Int
    members: Int
    offsets: Int
    used: tuple[str, ...]
    groups: Int
    strict: bool = True

    def ranks_of(self, group: int) -> tuple[int, ...]:
        """Return the members of a group, in group order."""
        return tuple(self.members[self.seats[group] : self.seats[group + 1]].tolist())


def communication_rows(tables: Tables) -> pl.DataFrame:
    """Return the rows of communications, with ``table`` and ``row`` (in its table).

    Beside communications on the device, those on the host are the calls that started them.
    """
    frame = tables.frame.with_columns(
        tables.column(name) for name in ("gap_kind", "pg_name", "comm_src", "comm_dst", "is_cpu_op")
    ).with_columns(table=pl.Series(tables.owners), row=np.arange(tables.frame.height) - tables.offsets[tables.owners])
    kinds = pl.col("type").is_in([COLLECTIVE, SEND, RECV]) & pl.col("gap_kind").is_null()
    device = ~pl.col("is_cpu_op").fill_null(False)
    found = frame.filter(kinds)
    return found.filter(device | ~device.any().over("table"))


def find_communicators(traces: TraceSet, tables: Tables | None = None, *, strict: bool = True) -> Communicators:
    """Find the groups of all collectives.

    A group without ranks is the whole job if it is as large. A collective without a name means the whole job, but in a
    collected trace it is left out (nobody knows whom it meets).

    Args:
        traces: The traces.
        tables: Their node tables, where they have been put together.
        strict: False to guess what isn't known: the group of a name is the ranks that use it, that of no name all
            ranks of the set.

    Raises:
        SimulationError: A group is unknown, or a rank uses a group that it isn't a member of.

    Example:
        >>> from chakra_et.ir import TraceBuilder
        >>> pair = ProcessGroup("tp", (0, 1), 2)
        >>> builders = [TraceBuilder(rank=rank, process_groups=[pair]) for rank in (0, 1)]
        >>> nodes = [b.add("r", NodeType.COMM_COLL_NODE, pg_name="tp", comm_type=0, comm_size=4) for b in builders]
        >>> find_communicators(TraceSet(tuple(b.build() for b in builders))).members.tolist()
        [0, 1]
    """
    ranks = traces.ranks
    names = _used_names(tables or make_tables(traces), strict)
    index = _Index(traces, ranks, names, strict)
    interned: dict[tuple[str, tuple[int, ...]], int] = {}
    by_identity: dict[tuple[str, int], int] = {}
    found: list[ProcessGroup] = []
    groups: list[int] = []
    for rank, trace, used in zip(ranks, traces, names, strict=True):
        for name in used:
            group = index.find(rank, trace, name)
            # Hashing a large group again for each of its members would cost its size squared.
            identity = (name, id(group.ranks))
            number = by_identity.get(identity)
            if number is None:
                number = interned.setdefault((name, group.ranks), len(interned))
                by_identity[identity] = number
                if number == len(found):
                    found.append(group)
            groups.append(number)
    seats = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(group.ranks) for group in found], out=seats[1:])
    offsets = np.zeros(len(ranks) + 1, np.int64)
    np.cumsum([len(used) for used in names], out=offsets[1:])
    members = [np.array(group.ranks, np.int64) for group in found]
    return Communicators(
        tuple(name for name, _ in interned),
        tuple(group.description for group in found),
        seats,
        np.concatenate(members) if members else np.empty(0, np.int64),
        offsets,
        tuple(name for used in names for name in used),
        np.array(groups, np.int64),
        strict,
    )


def _used_names(tables: Tables, strict: bool) -> list[tuple[str, ...]]:
    """Return the names that each rank's collectives use."""
    rows = communication_rows(tables).filter(pl.col("type") == COLLECTIVE)
    collected = [number for number, trace in enumerate(tables.traces) if trace.metadata.family == "collected"]
    if strict:
        rows = rows.filter(pl.col("pg_name").is_not_null() | ~pl.col("table").is_in(collected))
    used = rows.group_by("table").agg(pl.col("pg_name").fill_null("").unique().sort())
    names = {table: tuple(found) for table, found in used.iter_rows()}
    return [names.get(table, ()) for table in tables.use.tolist()]


class _Index:
    """Finds the group that a rank means by a name."""

    def __init__(self, traces: TraceSet, ranks: tuple[int, ...], names: list[tuple[str, ...]], strict: bool) -> None:
        self.traces, self.strict = traces, strict
        every = tuple(range(traces.world_size)) if strict else ranks
        self.world = ProcessGroup("", every, len(every))
        self.users: dict[str, list[int]] = {}
        for rank, used in zip(ranks, names, strict=True):
            for name in used:
                self.users.setdefault(name, []).append(rank)
        self.common = _by_name(traces.process_groups)
        self.own: dict[int, dict[str, list[ProcessGroup]]] = {}
        self.by_rank: dict[tuple[str, int], dict[int, ProcessGroup]] = {}
        self.resolved: dict[tuple[str, int], ProcessGroup] = {}

    def find(self, rank: int, trace: Trace, name: str) -> ProcessGroup:
        key = id(trace.process_groups)
        own = self.own.get(key)
        if own is None:
            own = self.own[key] = _by_name(trace.process_groups)
        other = None
        for groups in (own.get(name), self.common.get(name)):
            if groups is None:
                continue
            group = self._member(name, groups, rank)
            if group is not None:
                return group
            other = other or groups[0]
        return self._resolve(rank, trace, name, other) if name else self.world

    def _member(self, name: str, groups: list[ProcessGroup], rank: int) -> ProcessGroup | None:
        """Return the first group that a rank is a member of; the members of large groups are only hashed once."""
        key = (name, id(groups[0].ranks) if len(groups) == 1 else id(groups))
        members = self.by_rank.get(key)
        if members is None:
            members = self.by_rank[key] = {}
            for group in groups:
                for member in group.ranks:
                    members.setdefault(member, group)
        return members.get(rank)

    def _resolve(self, rank: int, trace: Trace, name: str, group: ProcessGroup | None) -> ProcessGroup:
        """Find the ranks of a group that doesn't list this one."""
        users = self.users[name]
        if group is not None and not group.ranks and group.size in (self.world.size, len(users)):
            wanted = self.world.ranks if group.size == self.world.size else tuple(users)
            found = ProcessGroup(name, wanted, len(wanted), group.description)
        elif not self.strict:
            found = ProcessGroup(name, tuple(users), len(users))
        elif group is not None and group.ranks:
            raise _refusal(rank, trace, name, f"the rank among those of group '{name}', got {_few(group.ranks)}")
        else:
            raise _refusal(
                rank, trace, name, f"process group '{name}' with its ranks in the trace's process groups, got none"
            )
        # One object for all members.
        return self.resolved.setdefault((name, len(found.ranks)), found)


def _by_name(groups: Iterable[ProcessGroup]) -> dict[str, list[ProcessGroup]]:
    found: dict[str, list[ProcessGroup]] = {}
    for group in groups:
        found.setdefault(group.name, []).append(group)
    return found


def _few(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def _refusal(rank: int, trace: Trace, name: str, expected: str) -> SimulationError:
    rows = communication_rows(make_tables(TraceSet((trace,)))).filter(pl.col("pg_name") == name)
    node, label = int(rows["id"][0]), str(rows["name"][0] or "")
    waiting = Waiting(rank, node, label, name, f"the members of group '{name}'")
    return SimulationError(
        f"rank {rank}: node {node} ('{label}'): expected {expected}; add the group to the trace", [waiting]
    )


@dataclass(frozen=True, slots=True, eq=False)
class Peers:
    """Who sends to or receives from whom.

    Attributes:
        rank: int64 [P]: index of the rank.
        peer: int64 [P]: the other global rank.
        slot: int64 [P]: its number among the rank's peers, in order of appearance.
        directed: Global rank, peer, and True for a rank that sends, each once.
    """

    rank: Int
    peer: Int
    slot: Int
    directed: tuple[tuple[int, int, bool], ...]


def find_peers(traces: TraceSet, tables: Tables | None = None) -> Peers:
    """Find who sends to or receives from whom.

    Args:
        traces: The traces.
        tables: Their node tables, where they have been put together.
    """
    tables = tables or make_tables(traces)
    peers, sent = peers_of(tables)
    slots = np.bincount(peers["table"].to_numpy(), minlength=len(tables.traces)).astype(np.int64)
    begin = np.cumsum(slots) - slots
    count = slots[tables.use]
    rank = np.repeat(np.arange(len(tables.use), dtype=np.int64), count)
    slot = np.arange(len(rank), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    peer = peers["peer"].to_numpy()[np.repeat(begin[tables.use], count) + slot]
    ranks = pl.DataFrame({"rank": np.array(traces.ranks, np.int64), "table": tables.use})
    directed = ranks.join(sent, on="table", maintain_order="left").select("rank", "peer", "sends")
    return Peers(rank, peer, slot, tuple(directed.iter_rows()))


def peers_of(tables: Tables) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the peers of each table in order of appearance, ``table`` and ``peer``; and with ``sends``, each once."""
    rows = communication_rows(tables).filter(pl.col("type") != COLLECTIVE)
    sends = pl.col("type") == SEND
    pairs = rows.select("table", peer=pl.when(sends).then("comm_dst").otherwise("comm_src"), sends=sends)
    pairs = pairs.drop_nulls().unique(maintain_order=True)
    return pairs.select("table", "peer").unique(maintain_order=True), pairs
