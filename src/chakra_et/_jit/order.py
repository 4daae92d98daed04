"""The order in which a graph's nodes may run, lowest number first.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
from numba import njit

from chakra_et._jit.schedule import invert

__all__ = ["issue_order"]

Int = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def issue_order(indptr: Int, preds: Int) -> Int:
    """Return the place of each node, int64 [N], when of all that may run the lowest number goes next.

    Where every node has a higher number than its predecessors, that is its number. Nodes on or behind a cycle come
    last.

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
    """
    count = len(indptr) - 1
    place = np.arange(count)
    ascends = True
    for node in range(count):
        for edge in range(indptr[node], indptr[node + 1]):
            ascends &= preds[edge] < node
    if ascends:
        return place
    out, succs = invert(indptr, preds)
    missing = np.diff(indptr)
    ready = [np.int64(0) for _ in range(0)]
    for node in range(count):
        if missing[node] == 0:
            heappush(ready, np.int64(node))
    turn = 0
    place[:] = count
    while len(ready) > 0:
        node = heappop(ready)
        place[node] = turn
        turn += 1
        for edge in range(out[node], out[node + 1]):
            missing[succs[edge]] -= 1
            if missing[succs[edge]] == 0:
                heappush(ready, succs[edge])
    return place
