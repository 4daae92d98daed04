"""Strongly connected components, and the largest acyclic part of an edge list in a given order of trust.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["accept_acyclic", "components"]

Int = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def components(indptr: Int, preds: Int) -> Int:
    """Return the strongly connected component of each node, int64 [N] (Tarjan, with a stack of its own).

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
    """
    count = len(indptr) - 1
    index = np.full(count, -1, np.int64)
    low = np.zeros(count, np.int64)
    component = np.full(count, -1, np.int64)
    edge = indptr[:-1].copy()
    path = np.empty(count, np.int64)
    pending = np.empty(count, np.int64)
    clock = 0
    found = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        depth = 0
        waiting = 0
        path[0] = root
        index[root] = low[root] = clock
        clock += 1
        pending[0] = root
        waiting = 1
        while depth >= 0:
            node = path[depth]
            if edge[node] < indptr[node + 1]:
                pred = preds[edge[node]]
                edge[node] += 1
                if index[pred] < 0:
                    index[pred] = low[pred] = clock
                    clock += 1
                    pending[waiting] = pred
                    waiting += 1
                    depth += 1
                    path[depth] = pred
                elif component[pred] < 0:
                    low[node] = min(low[node], index[pred])
                continue
            if low[node] == index[node]:
                member = -1
                while member != node:
                    waiting -= 1
                    member = pending[waiting]
                    component[member] = found
                found += 1
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[node])
    return component


@njit(cache=True, nogil=True)
def _group(keys: Int, count: int) -> tuple[Int, Int]:
    """Return CSR lists of the edge numbers that have each key."""
    indptr = np.zeros(count + 1, np.int64)
    for key in keys:
        indptr[key + 1] += 1
    for node in range(count):
        indptr[node + 1] += indptr[node]
    fill = indptr[:-1].copy()
    edges = np.empty(len(keys), np.int64)
    for edge in range(len(keys)):
        edges[fill[keys[edge]]] = edge
        fill[keys[edge]] += 1
    return indptr, edges


@njit(cache=True, nogil=True)
def _reach(
    begin: int,
    goal: int,
    low: int,
    high: int,
    lists: tuple[Int, Int],
    ends: Int,
    taken: Int,
    place: Int,
    seen: Int,
    out: Int,
    stamp: int,
) -> int:
    """Collect into `out` what `begin` reaches over taken edges in places low .. high; -1 when that includes `goal`."""
    indptr, edges = lists
    seen[begin] = stamp
    out[0] = begin
    head = 0
    tail = 1
    while head < tail:
        node = out[head]
        head += 1
        for slot in range(indptr[node], indptr[node + 1]):
            edge = edges[slot]
            other = ends[edge]
            if taken[edge] == 0 or seen[other] == stamp or place[other] < low or place[other] > high:
                continue
            if other == goal:
                return -1
            seen[other] = stamp
            out[tail] = other
            tail += 1
    return tail


@njit(cache=True, nogil=True)
def accept_acyclic(place: Int, source: Int, target: Int) -> Int:
    """Take edges one by one, in the order given, and refuse each that would close a cycle with those already taken.

    The topological order is kept up to date as edges come in (Pearce and Kelly, "A dynamic topological sort algorithm
    for directed acyclic graphs", 2006), so that edges which agree with the initial order cost nothing.

    Args:
        place: int64 [N], the initial order: a permutation of 0 .. N-1.
        source: int64 [E], tails.
        target: int64 [E], heads; no self edges.

    Returns:
        int64 [E]: 1 for taken edges, 0 for refused ones.
    """
    count = len(place)
    place = place.copy()
    at = np.empty(count, np.int64)
    for node in range(count):
        at[place[node]] = node
    outgoing = _group(source, count)
    incoming = _group(target, count)
    taken = np.zeros(len(source), np.int64)
    seen = np.full(count, -1, np.int64)
    ahead = np.empty(count, np.int64)
    behind = np.empty(count, np.int64)
    for edge in range(len(source)):
        tail, head = source[edge], target[edge]
        low, high = place[head], place[tail]
        if low < high:
            reached = _reach(head, tail, low, high, outgoing, target, taken, place, seen, ahead, 2 * edge)
            if reached < 0:
                continue
            reaching = _reach(tail, head, low, high, incoming, source, taken, place, seen, behind, 2 * edge + 1)
            first = np.sort(place[behind[:reaching]])
            last = np.sort(place[ahead[:reached]])
            moved = at[np.concatenate((first, last))]
            slots = np.sort(np.concatenate((first, last)))
            for step in range(len(slots)):
                at[slots[step]] = moved[step]
                place[moved[step]] = slots[step]
        taken[edge] = 1
    return taken
