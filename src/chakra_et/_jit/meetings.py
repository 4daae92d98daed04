"""Scheduling of several ranks at once: nodes that meet end together after the last of them has come.

Shape letters: N nodes of all ranks, E edges, M meetings, V visited nodes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from chakra_et._jit.schedule import invert

__all__ = ["schedule_meetings"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@njit(cache=True, nogil=True)
def schedule_meetings(
    indptr: Int, preds: Int, duration: Int, earliest: Int, meeting: Int, waits: Bool
) -> tuple[Int, Int, Int]:
    """Start each node at the latest end of its predecessors; who meets others takes its time after the last came.

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
        duration: int64 [N], ns.
        earliest: int64 [N], ns: no node starts before.
        meeting: int64 [N]: number of the meeting, -1 for none; 0 .. M-1.
        waits: bool [N]: False for a node that the others of its meeting wait for, but that doesn't wait for them.

    Returns:
        start and end, int64 [N] (ns; -1 for what never starts or ends: on or behind a cycle, or a meeting with a node
        that never comes); the started nodes, int64 [V], in an order in which every node comes after all that it waits
        for.
    """
    count = len(indptr) - 1
    out, succs = invert(indptr, preds)
    rooms = 0
    for room in meeting:
        rooms = max(rooms, room + 1)
    member_ptr = np.zeros(rooms + 1, np.int64)
    for room in meeting:
        if room >= 0:
            member_ptr[room + 1] += 1
    for room in range(rooms):
        member_ptr[room + 1] += member_ptr[room]
    absent = np.diff(member_ptr)
    latest = np.zeros(rooms, np.int64)
    members = np.empty(member_ptr[rooms], np.int64)
    fill = member_ptr[:-1].copy()
    missing = np.empty(count, np.int64)
    start = earliest.copy()
    end = np.full(count, -1, np.int64)
    ready = np.empty(count, np.int64)
    tail = 0
    for node in range(count):
        if meeting[node] >= 0:
            members[fill[meeting[node]]] = node
            fill[meeting[node]] += 1
        missing[node] = indptr[node + 1] - indptr[node]
        if missing[node] == 0:
            ready[tail] = node
            tail += 1
    done = np.empty(count, np.int64)
    for head in range(count):
        if head >= tail:
            break
        node = ready[head]
        finished = 0
        room = meeting[node]
        if room >= 0:
            latest[room] = max(latest[room], start[node])
            absent[room] -= 1
            if absent[room] == 0:
                for slot in range(member_ptr[room], member_ptr[room + 1]):
                    member = members[slot]
                    if waits[member]:
                        end[member] = latest[room] + duration[member]
                        done[finished] = member
                        finished += 1
        if room < 0 or not waits[node]:
            end[node] = start[node] + duration[node]
            done[finished] = node
            finished += 1
        for slot in range(finished):
            member = done[slot]
            for edge in range(out[member], out[member + 1]):
                succ = succs[edge]
                start[succ] = max(start[succ], end[member])
                missing[succ] -= 1
                if missing[succ] == 0:
                    ready[tail] = succ
                    tail += 1
    for node in range(count):
        if missing[node] > 0:
            start[node] = -1
    return start, end, ready[:tail].copy()
