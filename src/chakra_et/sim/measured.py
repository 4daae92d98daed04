"""How communications went when they were recorded: who waited for whom, and how long each transfer took.

Of a collective in which all need one another, everybody waits for the last; what its recorded duration holds after that
is the transfer. A send may be over before its receive begins, and what comes from a root doesn't wait for the others:
where the recording shows that some communications of a type do so, those of that type that don't show the contrary are
taken to do so.

Shape letters: N nodes, M meetings, P participants, R ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import CommType, NodeType
from chakra_et.ir.graph import positions
from chakra_et.sim.meetings import Meetings
from chakra_et.sim.workload import Workload

__all__ = ["Exchange", "measure", "plain_exchange", "recorded_offsets", "window_ends", "window_starts"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_FROM_ROOT = [int(kind) for kind in (CommType.BROADCAST, CommType.SCATTER)]
_TO_ROOT = [int(kind) for kind in (CommType.REDUCE, CommType.GATHER)]
# Recorded times are this exact at best.
_EXACT_NS = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """How participants meet.

    Attributes:
        name: Tells one from other ones for the same meetings.
        arrival: int64 [P]: the node whose start is the participant's arrival, which the meeting waits for; -1 where
            nobody waits for it.
        waits: bool [P]: False for one that waits for nobody, and ends when its own time has passed.
        own_ns: int64 [P]: its time after the meeting (after its own start if it doesn't wait).
        transfer_ns: int64 [M]: time from the last arrival to the end, averaged over those that waited; -1 if unknown.
    """

    name: str
    arrival: Int
    waits: Bool
    own_ns: Int
    transfer_ns: Int


def plain_exchange(workload: Workload, meetings: Meetings, *, sends_wait: bool) -> Exchange:
    """Return that everybody waits for everybody, but senders for receivers only if told so.

    Args:
        workload: The workload.
        meetings: Who meets.
        sends_wait: False where a send's data leaves whether or not the receiver has come.
    """
    arrival = meetings.nodes.copy()
    if not sends_wait:
        arrival[workload.integers("type")[meetings.nodes] == NodeType.COMM_RECV_NODE] = -1
    count = len(meetings.nodes)
    return Exchange(
        f"sends wait {sends_wait}",
        arrival,
        np.ones(count, np.bool_),
        np.zeros(count, np.int64),
        np.full(meetings.table.height, -1, np.int64),
    )


def recorded_offsets(workload: Workload, meetings: Meetings) -> Int:
    """Return what matching has added to each rank's clock, from its split of durations, int64 [R]; else 0.

    The start of a communication and its `wait_ns` give the last arrival on its rank's clock: the same moment for all.
    """
    offsets = np.zeros(len(workload.ranks), np.int64)
    timed = workload.present("wait_ns") & workload.present("start_ns")
    nodes, rooms = meetings.nodes, meetings.rooms
    wait, duration = workload.integers("wait_ns", 0)[nodes], workload.integers("duration_ns", 0)[nodes]
    start = workload.integers("start_ns", 0)[nodes]
    sent = workload.flags("is_cpu_op")[nodes] & (workload.integers("type")[nodes] != NodeType.COMM_COLL_NODE)
    _, ready = _ready(workload, nodes, start, offsets, sent)
    # Where all of it was a wait, the last arrival may have come later still.
    told = timed[nodes] & (wait < duration)
    # Who didn't wait was the last, if somebody waited.
    stamp = np.where(wait > 0, start + wait, ready)
    some = np.bincount(rooms, wait > 0, len(meetings.seats) - 1) > 0
    told &= some[rooms] | ~sent
    table = pl.DataFrame({"room": rooms[told], "owner": workload.owners[nodes[told]], "stamp": stamp[told]})
    known = np.zeros(len(offsets), np.bool_)
    for first in range(len(offsets)):
        if known[first] or table.is_empty():
            continue
        known[first] = True
        while True:
            shift = pl.DataFrame({"owner": np.flatnonzero(known), "shift": offsets[known]})
            there = table.join(shift, on="owner").group_by("room").agg(moment=(pl.col("stamp") + pl.col("shift")).min())
            fresh = table.join(shift, on="owner", how="anti").join(there, on="room")
            if fresh.is_empty():
                break
            found = fresh.group_by("owner").agg(shift=(pl.col("moment") - pl.col("stamp")).median().cast(pl.Int64))
            offsets[found["owner"].to_numpy()] = found["shift"].to_numpy()
            known[found["owner"].to_numpy()] = True
    return offsets


def window_starts(workload: Workload, offsets: Int) -> Int:
    """Return when each rank's first node started, on one clock that begins with the first of all, int64 [R].

    Args:
        workload: The workload.
        offsets: int64 [R]: added to each rank's clock.
    """
    timed = workload.present("start_ns") & (workload.integers("type") != NodeType.METADATA_NODE)
    start = np.where(timed, workload.integers("start_ns", 0), np.iinfo(np.int64).max)
    first = np.minimum.reduceat(start, workload.offsets[:-1])
    known = first < np.iinfo(np.int64).max
    if not known.any():
        return np.zeros(len(first), np.int64)
    begin = np.where(known, first + offsets, 0)
    return np.where(known, begin - begin[known].min(), 0)


def window_ends(workload: Workload, offsets: Int) -> Int:
    """Return when each rank's last node ended, on the clock of `window_starts`, int64 [R]; -1 where nothing tells.

    Args:
        workload: The workload.
        offsets: int64 [R]: added to each rank's clock.
    """
    timed = workload.present("start_ns") & (workload.integers("type") != NodeType.METADATA_NODE)
    start, none = workload.integers("start_ns", 0), np.iinfo(np.int64).max
    end = np.where(timed, start + np.maximum(workload.integers("duration_ns", 0), 0), -none)
    first = np.minimum.reduceat(np.where(timed, start, none), workload.offsets[:-1])
    last = np.maximum.reduceat(end, workload.offsets[:-1])
    known = last > -none
    origin = (first + offsets)[known].min() if known.any() else 0
    return np.where(known, last + offsets - origin, -1)


def measure(workload: Workload, meetings: Meetings, offsets: Int) -> Exchange:
    """Split the recorded durations of communications into waits and transfers.

    Args:
        workload: The workload.
        meetings: Who meets.
        offsets: int64 [R]: added to each rank's clock.
    """
    facts = _Facts(workload, meetings, offsets)
    led, free = facts.led(), facts.free()
    arrival = np.where(led[facts.rooms] & ~facts.leads, -1, facts.ready_node)
    come = np.full(len(meetings.seats) - 1, np.iinfo(np.int64).min)
    np.maximum.at(come, facts.rooms, np.where(arrival >= 0, facts.ready, np.iinfo(np.int64).min))
    own = np.clip(facts.end - np.maximum(come[facts.rooms], facts.start), 0, None)
    own = np.where(facts.timed, own, _untimed(workload, meetings, facts))
    own = np.where(free, facts.duration, own)
    total = np.bincount(facts.rooms, np.where(free, 0, own), len(come))
    count = np.bincount(facts.rooms, ~free, len(come))
    transfer = np.where(count > 0, np.rint(total / np.maximum(count, 1)), -1).astype(np.int64)
    return Exchange("recorded", arrival, ~free, own.astype(np.int64), transfer)


def _untimed(workload: Workload, meetings: Meetings, facts: _Facts) -> Int:
    """Return transfers where starts are missing: as split before, else the shortest duration of the meeting."""
    shortest = np.full(len(meetings.seats) - 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, facts.rooms, facts.duration)
    split = workload.integers("transfer_ns")[meetings.nodes]
    return np.where(split >= 0, split, shortest[facts.rooms])


class _Facts:
    """What is recorded of the participants, each [P], times on one clock.

    Attributes:
        rooms: Its meeting.
        kind: `comm_type`; -1 for sends and receives.
        sends: True for sends.
        leads: True for a sender, and for the root of what comes from a root.
        start, end, duration: Recorded times.
        ready: When it could give data to others.
        ready_node: The node that starts then.
        timed: Whether all participants of its meeting have recorded starts.
        early: Whether it left before the last one had come.
        late: Whether another came after it, and it left after that one had come.
    """

    def __init__(self, workload: Workload, meetings: Meetings, offsets: Int) -> None:
        nodes, table = meetings.nodes, meetings.table
        self.rooms = meetings.rooms
        owner = workload.owners[nodes]
        self.duration = np.maximum(workload.integers("duration_ns", 0)[nodes], 0)
        self.start = workload.integers("start_ns", 0)[nodes] + offsets[owner]
        self.end = self.start + self.duration
        self.host = workload.flags("is_cpu_op")[nodes]
        self.kind = table["comm_type"].fill_null(-1).to_numpy()[self.rooms]
        kinds = workload.integers("type")[nodes]
        self.sends = kinds == NodeType.COMM_SEND_NODE
        root = table["root"].fill_null(-1).to_numpy()[self.rooms]
        self.is_root = root == workload.ranks[owner]
        self.rooted = root >= 0
        self.leads = self.sends | (self.is_root & np.isin(self.kind, _FROM_ROOT))
        self.ready_node, self.ready = _ready(workload, nodes, self.start, offsets, self.host & (self.kind < 0))
        rooms = len(meetings.seats) - 1
        lost = np.zeros(rooms, np.bool_)
        lost[self.rooms[~workload.present("start_ns")[nodes]]] = True
        self.timed = ~lost[self.rooms]
        last = np.full(rooms, np.iinfo(np.int64).min)
        np.maximum.at(last, self.rooms, self.ready)
        last = last[self.rooms]
        self.early = self.timed & (self.end < last - _EXACT_NS)
        self.late = self.timed & (self.start < last) & (self.end >= last)

    def _shown(self, who: Bool) -> Bool:
        """Return the participants `who` that needn't wait: of types in which some didn't, those that don't show it."""
        kind = np.where(self.kind < 0, len(CommType), self.kind) * 2 + self.host
        some = np.zeros(2 * len(CommType) + 2, np.bool_)
        some[kind[who & self.early]] = True
        shown: Bool = who & some[kind] & ~self.late
        return shown

    def free(self) -> Bool:
        """Return who waits for nobody, bool [P]: of senders, roots that give, and others that only give to a root."""
        gives = self.rooted & ~self.is_root & np.isin(self.kind, _TO_ROOT)
        return self._shown(self.sends | (self.leads & self.rooted) | gives)

    def led(self) -> Bool:
        """Return the meetings in which all wait for one participant only, bool [M]."""
        rooms = int(self.rooms.max(initial=-1)) + 1
        led = np.zeros(rooms, np.bool_)
        led[self.rooms[self.free() & self.leads]] = True
        takes = self.rooted & ~self.is_root & np.isin(self.kind, _FROM_ROOT)
        led[self.rooms[self._shown(takes)]] = True
        return led


def _ready(workload: Workload, nodes: Int, start: Int, offsets: Int, ours: Bool) -> tuple[Int, Int]:
    """Return the node whose start makes each participant ready, and when: itself, but for host sends the call.

    c10d opens their range only after it has handed the data over: a receive may be over by then.

    Args:
        workload: The workload.
        nodes: int64 [P].
        start: int64 [P], on one clock.
        offsets: int64 [R].
        ours: bool [P]: sends and receives of the host.
    """
    node, ready = nodes.copy(), start.copy()
    parent = workload.integers("parent")[nodes]
    timed = workload.present("start_ns")
    recorded = workload.integers("start_ns", 0)
    owner = workload.owners[nodes]
    for rank in np.unique(owner[ours & (parent >= 0)]).tolist():
        rows = np.flatnonzero(ours & (parent >= 0) & (owner == rank))
        ids = workload.traces.traces[rank].nodes["id"].to_numpy()
        found = positions(ids, parent[rows].astype(np.uint64)) + workload.offsets[rank]
        inside = found >= workload.offsets[rank]
        rows, found = rows[inside], found[inside]
        call = recorded[found] + offsets[rank]
        before = timed[found] & (call < start[rows])
        node[rows[before]], ready[rows[before]] = found[before], call[before]
    return node, ready
