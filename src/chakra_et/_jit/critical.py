"""The chain of nodes that the last one waited for, over all ranks.

Shape letters: N nodes, M meetings, S steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["critical_steps"]

Int = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def critical_steps(node: int, start: Int, end: Int, bound: Int, meeting: Int, came: Int, last: Int) -> Int:
    """Walk back from the end of a node to the beginning of time.

    Args:
        node: Where to begin.
        start: int64 [N], ns.
        end: int64 [N], ns.
        bound: int64 [N]: the node that a start waited for, or -2 - node; -1 for none.
        meeting: int64 [N]: of participants that wait for a meeting; -1 for other nodes.
        came: int64 [M]: when the last participant of a meeting arrived.
        last: int64 [M]: the node that made it the last.

    Returns:
        int64 [S, 3], last step first: node (-1 - node for a communication that it waited for), begin and end of the
        step, ns.
    """
    steps = np.empty((64, 3), np.int64)
    count = 0
    time = end[node]
    while True:
        if count == len(steps):
            longer = np.empty((2 * count, 3), np.int64)
            longer[:count] = steps
            steps = longer
        room = meeting[node]
        begin = start[node]
        steps[count, 0], steps[count, 2] = node, time
        if room >= 0 and came[room] >= begin:
            # The one that came last is where the others' time went.
            steps[count, 0] = -1 - node
            begin = came[room]
            node = last[room]
        steps[count, 1] = begin
        count += 1
        time = begin
        before = bound[node]
        if before == -1:
            return steps[:count].copy()
        node = before if before >= 0 else -2 - before
