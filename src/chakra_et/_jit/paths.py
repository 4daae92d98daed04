"""Walks over trees given as one pointer a node.

Shape letters: N nodes, P nodes of a path.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["cone", "lanes", "trail", "widen"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@njit(cache=True, nogil=True)
def trail(pointer: Int, node: int) -> Int:
    """Return the nodes from the root down to `node`, int64 [P], following `pointer` int64 [N] (-1 at a root)."""
    length = 0
    step = node
    while step >= 0 and length < len(pointer):
        length += 1
        step = pointer[step]
    path = np.empty(length, np.int64)
    step = node
    for slot in range(length - 1, -1, -1):
        path[slot] = step
        step = pointer[step]
    return path


@njit(cache=True, nogil=True)
def cone(indptr: Int, preds: Int, keep: Bool) -> Bool:
    """Return `keep` bool [N] together with everything that it depends on, directly or not."""
    out: Bool = keep.copy()
    stack = np.empty(len(keep), np.int64)
    size = 0
    for node in range(len(keep)):
        if keep[node]:
            stack[size] = node
            size += 1
    while size > 0:
        size -= 1
        node = stack[size]
        for edge in range(indptr[node], indptr[node + 1]):
            pred = preds[edge]
            if not out[pred]:
                out[pred] = True
                stack[size] = pred
                size += 1
    return out


@njit(cache=True, nogil=True)
def widen(parent: Int, order: Int, end: Int) -> Int:
    """Stretch each end int64 [N] over those of the children.

    Args:
        parent: int64 [N], position of the parent, -1 for none.
        order: int64 [N], children before parents.
        end: int64 [N].
    """
    out: Int = end.copy()
    for node in order:
        above = parent[node]
        if above >= 0 and out[node] > out[above]:
            out[above] = out[node]
    return out


@njit(cache=True, nogil=True)
def lanes(track: Int, start: Int, end: Int) -> Int:
    """Spread slices over lanes so that on each lane two slices are either apart or one inside the other.

    Args:
        track: int64 [N], ascending.
        start: int64 [N], ascending in each track; of equal ones the longest first.
        end: int64 [N].

    Returns:
        int64 [N]: lane inside the track, 0 for all where slices nest.
    """
    count = len(track)
    lane = np.zeros(count, np.int64)
    todo = np.arange(count)
    stack = np.empty(count, np.int64)
    level = 0
    while len(todo) > 0:
        left = 0
        rest = np.empty(len(todo), np.int64)
        depth = 0
        current = np.int64(-1)
        for node in todo:
            if current < 0 or track[node] != track[current]:
                depth = 0
            current = node
            while depth > 0 and stack[depth - 1] <= start[node]:
                depth -= 1
            if depth > 0 and stack[depth - 1] < end[node]:
                rest[left] = node
                left += 1
                continue
            stack[depth] = end[node]
            depth += 1
            lane[node] = level
        todo = rest[:left].copy()
        level += 1
    return lane
