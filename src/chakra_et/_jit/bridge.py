"""Removing nodes from a graph without losing who waits for whom, or the time that went by in between.

Shape letters: N nodes, E edges, B bridged edges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["bridge", "fill_gaps", "inherit"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@njit(cache=True, nogil=True)
def bridge(indptr: Int, preds: Int, order: Int, keep: Bool, limit: int) -> tuple[Int, Int, Bool]:
    """Find what stands in for each removed node: its nearest kept ancestors.

    A removed node with more than `limit` of them becomes a junction: it stays, stripped of its duration, so that the
    number of edges (and the time this takes) is linear in the graph's size, whatever its shape.

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
        order: int64 [N], a topological order.
        keep: bool [N].
        limit: Most stand-ins of one removed node.

    Returns:
        int64 [N + 1] and int64 [B]: the stand-ins of each removed node (for a junction: its predecessors); bool [N]:
        the junctions.
    """
    count = len(indptr) - 1
    begin = np.zeros(count, np.int64)
    size = np.zeros(count, np.int64)
    pool = np.empty(max(16, count), np.int64)
    used = 0
    junction = np.zeros(count, np.bool_)
    seen = np.full(count, -1, np.int64)
    for node in order:
        if keep[node]:
            continue
        begin[node] = used
        for edge in range(indptr[node], indptr[node + 1]):
            pred = preds[edge]
            direct = keep[pred] or junction[pred]
            first = 0 if direct else begin[pred]
            last = 1 if direct else begin[pred] + size[pred]
            for slot in range(first, last):
                found = pred if direct else pool[slot]
                if seen[found] == node:
                    continue
                seen[found] = node
                if used == len(pool):
                    grown = np.empty(2 * used, np.int64)
                    grown[:used] = pool
                    pool = grown
                pool[used] = found
                used += 1
        size[node] = used - begin[node]
        junction[node] = size[node] > limit
    out = np.zeros(count + 1, np.int64)
    for node in range(count):
        out[node + 1] = out[node] + size[node]
    values = np.empty(used, np.int64)
    for node in range(count):
        for step in range(size[node]):
            values[out[node] + step] = pool[begin[node] + step]
    return out, values, junction


@njit(cache=True, nogil=True)
def fill_gaps(
    own: tuple[Int, Int], bridged: tuple[Int, Int], order: Int, duration: Int, target: Int, cut: Bool
) -> tuple[Int, Int]:
    """Schedule a graph, delaying the nodes that lost predecessors to the times at which they started.

    Args:
        own: int64 [N + 1] and int64 [E]: predecessors that were kept.
        bridged: int64 [N + 1] and int64 [B]: stand-ins of those that were not.
        order: int64 [V], a topological order of the nodes to schedule.
        duration: int64 [N], ns.
        target: int64 [N], ns: when a node started, relative to the window's start.
        cut: bool [N]: nodes that lost predecessors.

    Returns:
        int64 [N]: start of each node, ns; int64 [N]: length of the gap between the stand-ins' latest end and the
        start, 0 where none is needed.
    """
    count = len(duration)
    start = np.zeros(count, np.int64)
    gap = np.zeros(count, np.int64)
    for node in order:
        base = 0
        for edge in range(own[0][node], own[0][node + 1]):
            pred = own[1][edge]
            base = max(base, start[pred] + duration[pred])
        anchor = 0
        for edge in range(bridged[0][node], bridged[0][node + 1]):
            pred = bridged[1][edge]
            anchor = max(anchor, start[pred] + duration[pred])
        base = max(base, anchor)
        if cut[node] and target[node] > base:
            gap[node] = target[node] - anchor
            base = target[node]
        start[node] = base
    return start, gap


@njit(cache=True, nogil=True)
def inherit(indptr: Int, preds: Int, order: Int, value: Int, own: Bool) -> Int:
    """Hand values down: a node without one of its own gets the largest of its predecessors.

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
        order: int64 [N], a topological order.
        value: int64 [N]; where not `own`, used only by nodes without predecessors.
        own: bool [N].

    Returns:
        int64 [N].
    """
    out: Int = value.copy()
    for node in order:
        if own[node] or indptr[node] == indptr[node + 1]:
            continue
        best = out[preds[indptr[node]]]
        for edge in range(indptr[node] + 1, indptr[node + 1]):
            best = max(best, out[preds[edge]])
        out[node] = best
    return out
