"""How communications of a workload went when they were recorded, by the rules of `chakra_et.ir.exchange`.

Shape letters: N nodes, M meetings, P participants, R ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import NodeType
from chakra_et.ir.exchange import NEVER, Participants, split
from chakra_et.ir.graph import positions
from chakra_et.sim.meetings import Meetings
from chakra_et.sim.workload import Workload

__all__ = ["Exchange", "measure", "plain_exchange", "recorded_offsets", "window_ends", "window_starts"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


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
    rooms, count = meetings.rooms, len(meetings.seats) - 1
    who, ready_node = _participants(workload, meetings, offsets)
    roles = split(who, np.full(count, NEVER, np.int64))
    total = np.bincount(rooms, np.where(roles.waits, roles.own_ns, 0), count)
    waiting = np.bincount(rooms, roles.waits, count)
    transfer = np.where(waiting > 0, np.rint(total / np.maximum(waiting, 1)), -1).astype(np.int64)
    return Exchange("recorded", np.where(roles.arrives, ready_node, -1), roles.waits, roles.own_ns, transfer)


def _participants(workload: Workload, meetings: Meetings, offsets: Int) -> tuple[Participants, Int]:
    """Return what is recorded of the participants, and the node that makes each ready, int64 [P]."""
    nodes, rooms, table = meetings.nodes, meetings.rooms, meetings.table
    owner = workload.owners[nodes]
    start = workload.integers("start_ns", 0)[nodes] + offsets[owner]
    kind = table["comm_type"].fill_null(-1).to_numpy()[rooms]
    host = workload.flags("is_cpu_op")[nodes]
    root = table["root"].fill_null(-1).to_numpy()[rooms]
    ready_node, ready = _ready(workload, nodes, start, offsets, host & (kind < 0))
    who = Participants(
        room=rooms,
        kind=kind,
        sends=workload.integers("type")[nodes] == NodeType.COMM_SEND_NODE,
        host=host,
        rooted=root >= 0,
        is_root=root == workload.ranks[owner],
        start_ns=start,
        end_ns=start + np.maximum(workload.integers("duration_ns", 0)[nodes], 0),
        ready_ns=ready,
        timed=workload.present("start_ns")[nodes],
        told_ns=workload.integers("transfer_ns")[nodes],
    )
    return who, ready_node


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
