"""What was done while a device idled, step by step, and what kernels waited for on other streams.

Shape letters: N nodes, E edges, I idle stretches, S steps, A activities.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from chakra_et._jit.causes import COMMUNICATION, LAUNCH_LATENCY, OTHER_STREAM, UNEXPLAINED

__all__ = ["idle_steps", "latest_ends"]

Int = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]


@njit(cache=True, nogil=True)
def idle_steps(
    idle: Int, first: Int, indptr: Int, preds: Int, start: Int, end: Int, cause: Kinds, lane: Int
) -> tuple[Int, Int]:
    """Name the node to which each piece of an idle stretch belongs, by the walk of `idle_causes`.

    Args:
        idle: int64 [I, 2]: from, to, ns.
        first: int64 [I]: node that ends each stretch; -1 for none.
        indptr: int64 [N + 1]: predecessor lists.
        preds: int64 [E].
        start: int64 [N], ns.
        end: int64 [N], ns.
        cause: int8 [N]: what time in a node counts as, see `idle_causes`.
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
        while node >= 0 and walked < len(start):
            walked += 1
            before, latest = -1, begin
            for edge in range(indptr[node], indptr[node + 1]):
                if before < 0 or end[preds[edge]] > latest:
                    before, latest = preds[edge], end[preds[edge]]
            # When nothing is left to explain, who resumed may still be a node of no length further back.
            if time <= begin and (lane[node] >= 0 or start[node] < begin):
                break
            if count + 2 > len(steps):
                longer = np.empty((2 * len(steps), 4), np.int64)
                longer[:count] = steps[:count]
                steps = longer
            what = cause[node]
            if what == LAUNCH_LATENCY and before >= 0 and lane[before] >= 0:
                if cause[before] == COMMUNICATION:
                    what = COMMUNICATION
                elif lane[before] != lane[node]:
                    what = OTHER_STREAM
            low = max(start[node], begin)
            if low < time:
                steps[count, 0], steps[count, 1], steps[count, 2], steps[count, 3] = one, node, what, time - low
                count += 1
                time = low
            if lane[node] < 0 and start[node] >= begin:
                for edge in range(indptr[node], indptr[node + 1]):
                    pred = preds[edge]
                    if lane[pred] >= 0 and (cause[pred] == OTHER_STREAM or cause[pred] == COMMUNICATION):
                        resumed[one] = node
            low = max(latest, begin)
            if before >= 0 and low < time:
                steps[count, 0], steps[count, 1], steps[count, 2], steps[count, 3] = one, -1, UNEXPLAINED, time - low
                count += 1
                time = low
            if resumed[one] == node and time <= begin:
                break
            node = before
        if time > begin:
            if count + 1 > len(steps):
                longer = np.empty((2 * len(steps), 4), np.int64)
                longer[:count] = steps[:count]
                steps = longer
            steps[count, 0], steps[count, 1], steps[count, 2], steps[count, 3] = one, -1, UNEXPLAINED, time - begin
            count += 1
    return steps[:count].copy(), resumed


@njit(cache=True, nogil=True)
def latest_ends(
    rows: Int, indptr: Int, preds: Int, end: Int, gap: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]
) -> Int:
    """Return when the last of the chosen nodes that each node waits for ended, straight or through gaps.

    Args:
        rows: int64 [A]: nodes to ask for.
        indptr: int64 [N + 1]: predecessor lists.
        preds: int64 [E].
        end: int64 [N], ns.
        gap: bool [N]: nodes to look through.
        chosen: bool [N]: nodes that count.

    Returns:
        int64 [A], ns; the smallest int64 where there is none.
    """
    found = np.full(len(rows), np.iinfo(np.int64).min, np.int64)
    seen = np.full(len(end), -1, np.int64)
    stack = np.empty(len(end) + 1, np.int64)
    for one in range(len(rows)):
        stack[0], size = rows[one], 1
        while size > 0:
            size -= 1
            node = stack[size]
            for edge in range(indptr[node], indptr[node + 1]):
                pred = preds[edge]
                if chosen[pred]:
                    found[one] = max(found[one], end[pred])
                elif gap[pred] and seen[pred] != one:
                    seen[pred] = one
                    stack[size] = pred
                    size += 1
    return found
