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
def _rooms(meeting: Int) -> tuple[Int, Int]:
    """Return CSR lists of the nodes of each meeting."""
    count = 0
    for room in meeting:
        count = max(count, room + 1)
    indptr = np.zeros(count + 1, np.int64)
    for room in meeting:
        if room >= 0:
            indptr[room + 1] += 1
    for room in range(count):
        indptr[room + 1] += indptr[room]
    fill = indptr[:-1].copy()
    members = np.empty(indptr[count], np.int64)
    for node in range(len(meeting)):
        if meeting[node] >= 0:
            members[fill[meeting[node]]] = node
            fill[meeting[node]] += 1
    return indptr, members


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
    room_ptr, members = _rooms(meeting)
    absent = np.diff(room_ptr)
    latest = np.zeros(len(absent), np.int64)
    missing = np.diff(indptr)
    start, end = earliest.copy(), np.full(count, -1, np.int64)
    ready, done = np.empty(count, np.int64), np.empty(count + 1, np.int64)
    tail = 0
    for node in range(count):
        if missing[node] == 0:
            ready[tail] = node
            tail += 1
    head = 0
    while head < tail:
        node, room = ready[head], meeting[ready[head]]
        head += 1
        finished = 0
        if room < 0 or not waits[node]:
            end[node] = start[node] + duration[node]
            done[finished] = node
            finished += 1
        if room >= 0:
            latest[room] = max(latest[room], start[node])
            absent[room] -= 1
            for slot in range(room_ptr[room], room_ptr[room + 1] if absent[room] == 0 else room_ptr[room]):
                if waits[members[slot]]:
                    end[members[slot]] = latest[room] + duration[members[slot]]
                    done[finished] = members[slot]
                    finished += 1
        for slot in range(finished):
            for edge in range(out[done[slot]], out[done[slot] + 1]):
                succ = succs[edge]
                start[succ] = max(start[succ], end[done[slot]])
                missing[succ] -= 1
                if missing[succ] == 0:
                    ready[tail] = succ
                    tail += 1
    start[missing > 0] = -1
    return start, end, ready[:tail].copy()
