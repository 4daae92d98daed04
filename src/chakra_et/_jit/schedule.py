"""Topological scheduling over CSR predecessor lists.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["invert", "schedule"]

Int = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def invert(indptr: Int, preds: Int) -> tuple[Int, Int]:
    """Turn predecessor lists into successor lists, or back.

    Args:
        indptr: int64 [N + 1].
        preds: int64 [E], positions; every value in 0 .. N-1.

    Returns:
        The same two arrays of the inverted graph; each list ascends.
    """
    count = len(indptr) - 1
    out = np.zeros(count + 1, np.int64)
    for value in preds:
        out[value + 1] += 1
    for node in range(count):
        out[node + 1] += out[node]
    fill = out[:-1].copy()
    succs = np.empty(len(preds), np.int64)
    for node in range(count):
        for edge in range(indptr[node], indptr[node + 1]):
            pred = preds[edge]
            succs[fill[pred]] = node
            fill[pred] += 1
    return out, succs


@njit(cache=True, nogil=True)
def schedule(indptr: Int, preds: Int, duration: Int) -> tuple[Int, Int, Int]:
    """Start every root at 0 and every other node at the latest end of its predecessors.

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
        duration: int64 [N], ns.

    Returns:
        start int64 [N] (ns; -1 for nodes on or behind a cycle), the binding predecessor int64 [N] (-1 for roots), and
        the visited nodes in topological order, int64 [V].
    """
    count = len(indptr) - 1
    out, succs = invert(indptr, preds)
    missing = np.empty(count, np.int64)
    start = np.zeros(count, np.int64)
    binding = np.full(count, -1, np.int64)
    order = np.empty(count, np.int64)
    tail = 0
    for node in range(count):
        missing[node] = indptr[node + 1] - indptr[node]
        if missing[node] == 0:
            order[tail] = node
            tail += 1
    head = 0
    while head < tail:
        node = order[head]
        head += 1
        end = start[node] + duration[node]
        for edge in range(out[node], out[node + 1]):
            succ = succs[edge]
            if end > start[succ] or binding[succ] < 0:
                start[succ] = max(end, start[succ])
                binding[succ] = node
            missing[succ] -= 1
            if missing[succ] == 0:
                order[tail] = succ
                tail += 1
    for node in range(count):
        if missing[node] > 0:
            start[node] = -1
            binding[node] = -1
    return start, binding, order[:tail].copy()
