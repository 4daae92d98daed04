"""What a device waited for while it idled: the chain of nodes that ends where an activity begins.

Shape letters: N nodes, E edges, I idle stretches, S steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["COMMUNICATION", "HOST_BOUND", "LAUNCH_LATENCY", "OTHER_STREAM", "UNEXPLAINED", "idle_steps"]

Int = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

UNEXPLAINED, HOST_BOUND, LAUNCH_LATENCY, OTHER_STREAM, COMMUNICATION = range(5)


@njit(cache=True, nogil=True)
def _with_room(steps: Int, count: int) -> Int:
    """Return the table with room for two more steps."""
    if count + 2 <= len(steps):
        return steps
    longer = np.empty((2 * len(steps), 4), np.int64)
    longer[:count] = steps[:count]
    return longer


@njit(cache=True, nogil=True)
def _counts_as(node: int, before: int, cause: Kinds, lane: Int) -> int:
    """Return what time in a node counts as: a launch latency behind another node is a wait for it."""
    if cause[node] == LAUNCH_LATENCY and before >= 0 and lane[before] >= 0:
        if cause[before] == COMMUNICATION:
            return COMMUNICATION
        if lane[before] != lane[node]:
            return OTHER_STREAM
    return int(cause[node])


@njit(cache=True, nogil=True)
def _follows_device(node: int, indptr: Int, preds: Int, cause: Kinds, lane: Int) -> bool:
    """True if the host's node waited for work of the device."""
    for edge in range(indptr[node], indptr[node + 1]):
        pred = preds[edge]
        if lane[pred] >= 0 and (cause[pred] == OTHER_STREAM or cause[pred] == COMMUNICATION):
            return True
    return False


@njit(cache=True, nogil=True)
def idle_steps(
    idle: Int, first: Int, indptr: Int, preds: Int, start: Int, end: Int, cause: Kinds, lane: Int
) -> tuple[Int, Int]:
    """Split each idle stretch by what the activity at its end waited for.

    From that activity, the walk goes from node to the one that ended last of those that it depends on, until the
    stretch is over. Time in which nothing of the chain runs, or that the walk doesn't reach, is unexplained.

    Args:
        idle: int64 [I, 2]: from, to, ns.
        first: int64 [I]: node that ends each stretch; -1 for none.
        indptr: int64 [N + 1]: predecessor lists.
        preds: int64 [E].
        start: int64 [N], ns.
        end: int64 [N], ns.
        cause: int8 [N]: what time in a node counts as; a launch latency behind another stream's node is a wait for
            that stream, one behind a communication a wait for the communication.
        lane: int64 [N]: stream of the device's nodes, -1 for the host's.

    Returns:
        int64 [S, 4]: stretch, node (-1: nothing of the chain ran), cause, length in ns; the steps of a stretch follow
        each other, the last one first, and add up to it. int64 [I]: the host's node at the stretch's beginning with
        which it resumed when the device's work was done, -1 for none.
    """
    steps = np.empty((2 * len(idle) + 64, 4), np.int64)
    resumed = np.full(len(idle), -1, np.int64)
    count = 0
    for one in range(len(idle)):
        begin, time = idle[one, 0], idle[one, 1]
        node, walked = first[one], 0
        # When nothing is left to explain, who resumed may still be a host's node of no length further back.
        while node >= 0 and walked < len(start) and (time > begin or (lane[node] < 0 and start[node] >= begin)):
            walked += 1
            steps = _with_room(steps, count)
            before, latest = -1, begin
            for edge in range(indptr[node], indptr[node + 1]):
                if before < 0 or end[preds[edge]] > latest:
                    before, latest = preds[edge], end[preds[edge]]
            low = max(start[node], begin)
            if low < time:
                what = _counts_as(node, before, cause, lane)
                steps[count, 0], steps[count, 1], steps[count, 2], steps[count, 3] = one, node, what, time - low
                count, time = count + 1, low
            if lane[node] < 0 and start[node] >= begin and _follows_device(node, indptr, preds, cause, lane):
                resumed[one] = node
            low = max(latest, begin)
            if before >= 0 and low < time:
                steps[count, 0], steps[count, 1], steps[count, 2], steps[count, 3] = one, -1, UNEXPLAINED, time - low
                count, time = count + 1, low
            if resumed[one] == node and time <= begin:
                break
            node = before
        if time > begin:
            steps = _with_room(steps, count)
            steps[count, 0], steps[count, 1], steps[count, 2], steps[count, 3] = one, -1, UNEXPLAINED, time - begin
            count += 1
    return steps[:count].copy(), resumed
