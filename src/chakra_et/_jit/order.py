"""The order in which a graph's nodes may run, lowest number first.

Shape letters: N nodes, E edges, Q resources.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
from numba import njit

from chakra_et._jit.schedule import invert

__all__ = ["issue_order", "ordered_by_edges"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@njit(cache=True, nogil=True)
def issue_order(indptr: Int, preds: Int) -> Int:
    """Return the place of each node, int64 [N], when of all that may run the lowest number goes next.

    Nodes on or behind a cycle come last.

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
    """
    count = len(indptr) - 1
    out, succs = invert(indptr, preds)
    missing = np.empty(count, np.int64)
    for node in range(count):
        missing[node] = indptr[node + 1] - indptr[node]
    ready = [np.int64(0) for _ in range(0)]
    for node in range(count):
        if missing[node] == 0:
            heappush(ready, np.int64(node))
    turn = 0
    place = np.full(count, count, np.int64)
    while len(ready) > 0:
        node = heappop(ready)
        place[node] = turn
        turn += 1
        for edge in range(out[node], out[node + 1]):
            missing[succs[edge]] -= 1
            if missing[succs[edge]] == 0:
                heappush(ready, succs[edge])
    return place


@njit(cache=True, nogil=True)
def ordered_by_edges(indptr: Int, preds: Int, resource: Int, count: int) -> Bool:
    """Return of which resources edges alone put the nodes in one order, so that none ever waits, bool [Q].

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
        resource: int64 [N], -1 for none. A node and its predecessors are on one resource or on none.
        count: Number of resources, Q.
    """
    ordered = np.ones(count, np.bool_)
    turns = np.zeros(count, np.int64)
    latest = np.zeros(len(indptr) - 1, np.int64)  # how many nodes of its resource stand before a node
    for node in range(len(indptr) - 1):
        before = 0
        for edge in range(indptr[node], indptr[node + 1]):
            # Edges that lead back in the trace's order are left out: at worst an order isn't seen.
            if preds[edge] < node:
                before = max(before, latest[preds[edge]])
        one = resource[node]
        if one >= 0:
            ordered[one] &= before == turns[one]
            turns[one] += 1
            before = turns[one]
        latest[node] = before
    return ordered
