"""Projection of a rank's schedule onto one compute lane beside its communications.

Shape letters: N nodes, E edges, A anchors, P pieces.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["COMMUNICATION", "COMPUTE", "OTHER", "RECENT", "nearest", "project"]

Int = npt.NDArray[np.int64]
OTHER, COMPUTE, COMMUNICATION = 0, 1, 2
# Communications remembered behind each node: simulators take them one by one, so that the last ones imply the others.
RECENT = 4


@njit(cache=True, nogil=True)
def nearest(indptr: Int, preds: Int, order: Int, kind: Int, end: Int) -> tuple[Int, Int]:
    """Find the compute and communication nodes that each node waits for, directly or through other nodes.

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
        order: int64 [N], a topological order.
        kind: int64 [N]: `OTHER`, `COMPUTE` or `COMMUNICATION`.
        end: int64 [N].

    Returns:
        int64 [N]: the compute node that ends last, and int64 [N, RECENT]: the communications that end last; -1 for
        none.
    """
    count = len(kind)
    compute = np.full(count, -1, np.int64)
    recent = np.full((count, RECENT), -1, np.int64)
    for node in order:
        for edge in range(indptr[node], indptr[node + 1]):
            pred = preds[edge]
            found = pred if kind[pred] == COMPUTE else compute[pred] if kind[pred] == OTHER else -1
            if found >= 0 and (compute[node] < 0 or end[found] > end[compute[node]]):
                compute[node] = found
            if kind[pred] == COMMUNICATION:
                _remember(recent, node, pred, end)
            elif kind[pred] == OTHER:
                for slot in range(RECENT):
                    if recent[pred, slot] >= 0:
                        _remember(recent, node, recent[pred, slot], end)
    return compute, recent


@njit(cache=True, nogil=True)
def _remember(recent: Int, node: int, found: int, end: Int) -> None:
    """Put `found` among the latest-ending communications of `node`, once."""
    lowest = 0
    for slot in range(RECENT):
        held = recent[node, slot]
        if held == found:
            return
        worst = recent[node, lowest]
        if worst >= 0 and (held < 0 or end[held] < end[worst]):
            lowest = slot
    held = recent[node, lowest]
    if held < 0 or end[held] < end[found]:
        recent[node, lowest] = found


@njit(cache=True, nogil=True)
def project(anchors: Int, binding: Int, kind: Int, start: Int, end: Int) -> tuple[Int, Int, Int, Int]:
    """Cover a schedule's time with pieces of compute, one after the other.

    Compute nodes cover their time; of those that overlap, the one that started first goes first. Time in which no
    compute node runs, before an anchor, is host time as far as other nodes held the anchor up since the last
    communication; before that, the lane stalls.

    Args:
        anchors: int64 [A]: compute and communication nodes by start, and in topological order where those are equal;
            then the node that ends last, whatever it is.
        binding: int64 [N]: the predecessor that a node started right after, -1 for roots, which start at 0.
        kind: int64 [N]: `OTHER`, `COMPUTE` or `COMMUNICATION`.
        start: int64 [N].
        end: int64 [N].

    Returns:
        int64 [P] each: start, end, compute node (-1: host time), and the communication whose end let the piece begin
        (-1: the piece follows the one before, or none is known).
    """
    room = 2 * len(anchors)
    begin, until = np.empty(room, np.int64), np.empty(room, np.int64)
    source, after = np.empty(room, np.int64), np.empty(room, np.int64)
    used = 0
    cursor = 0
    for index in range(len(anchors)):
        node = anchors[index]
        final = index == len(anchors) - 1
        goal = end[node] if final else start[node]
        step = node if final else binding[node]
        time = goal
        while time > cursor and step >= 0 and kind[step] != COMMUNICATION:
            time = start[step]
            step = binding[step]
        low = max(time if step >= 0 else 0, cursor)
        if low < goal:
            stalled = step if time > cursor else -1
            if used > 0 and stalled < 0 and source[used - 1] < 0 and until[used - 1] == low:
                until[used - 1] = goal
            else:
                begin[used], until[used], source[used], after[used] = low, goal, -1, stalled
                used += 1
            cursor = goal
        low = max(cursor, start[node])
        if kind[node] == COMPUTE and not final and end[node] > low:
            begin[used], until[used], source[used], after[used] = low, end[node], node, -1
            used += 1
            cursor = end[node]
    return begin[:used].copy(), until[:used].copy(), source[:used].copy(), after[:used].copy()
