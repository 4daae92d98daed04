"""What the device waited for while it was idle: the chain of nodes that ends where an activity begins.

Shape letters: N nodes, E edges, I idle stretches, K causes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["COMMUNICATION", "HOST_BOUND", "LAUNCH_LATENCY", "OTHER_STREAM", "UNEXPLAINED", "idle_causes"]

Int = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

UNEXPLAINED, HOST_BOUND, LAUNCH_LATENCY, OTHER_STREAM, COMMUNICATION = range(5)


@njit(cache=True, nogil=True)
def idle_causes(idle: Int, first: Int, indptr: Int, preds: Int, start: Int, end: Int, cause: Kinds, lane: Int) -> Int:
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
        int64 [I, 5], ns, by cause; each row adds up to its stretch.
    """
    found = np.zeros((len(idle), 5), np.int64)
    for one in range(len(idle)):
        begin, time = idle[one, 0], idle[one, 1]
        node, steps = first[one], 0
        while node >= 0 and time > begin and steps < len(start):
            steps += 1
            before, latest = -1, begin
            for edge in range(indptr[node], indptr[node + 1]):
                if before < 0 or end[preds[edge]] > latest:
                    before, latest = preds[edge], end[preds[edge]]
            what = cause[node]
            if what == LAUNCH_LATENCY and before >= 0 and lane[before] >= 0:
                if cause[before] == COMMUNICATION:
                    what = COMMUNICATION
                elif lane[before] != lane[node]:
                    what = OTHER_STREAM
            low = max(start[node], begin)
            if low < time:
                found[one, what] += time - low
                time = low
            low = max(latest, begin)
            if before >= 0 and low < time:
                found[one, UNEXPLAINED] += time - low
                time = low
            node = before
        found[one, UNEXPLAINED] += max(time - begin, 0)
    return found
