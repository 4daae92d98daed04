"""Scheduling the graphs of several ranks as one, again and again with other durations.

A communication that waits for others is two nodes: its start, and its end, which depends on its start and on the node
of the meeting; that one depends on the starts of all whom the meeting waits for.

Shape letters: N nodes of the ranks, K kept ones, E edges, S starts of their own, M meetings, F fixed moments,
T = N + S + M + F nodes in all, P nodes of a path.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["cut_graph", "end_times", "join_graphs", "topological_order", "walk_back"]

Int = npt.NDArray[np.int64]
Word = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]


@njit(cache=True, nogil=True)
def cut_graph(indptr: Int, preds: Int, slot: Word, count: int) -> tuple[Word, Word]:
    """Keep some nodes of a graph; those that lose all their predecessors, or have none, hang on a new node 0.

    Args:
        indptr: int64 [N + 1], predecessor lists.
        preds: int64 [E].
        slot: int32 [N]: new number of each node, ascending from 1; -1 for nodes that go.
        count: Number of kept nodes, K.

    Returns:
        int32 [K + 2] and int32 [.]: predecessor lists of the new graph.
    """
    out = np.zeros(count + 2, np.int32)
    kept = np.empty(len(preds) + count, np.int32)
    size = 0
    for node in range(len(slot)):
        if slot[node] < 0:
            continue
        before = size
        for edge in range(indptr[node], indptr[node + 1]):
            if slot[preds[edge]] >= 0:
                kept[size] = slot[preds[edge]]
                size += 1
        if size == before:
            kept[size] = 0
            size += 1
        out[slot[node] + 1] = size
    return out, kept[:size].copy()


@njit(cache=True, nogil=True)
def join_graphs(
    indptr: Word, preds: Word, begin: Word, meeting: Word, seats: Word, arrivals: Word, fixed: Word
) -> tuple[Word, Word]:
    """Put meetings into the graph of all ranks.

    Args:
        indptr: int32 [N + 1], predecessor lists of all ranks.
        preds: int32 [E].
        begin: int32 [N]: number of a node's start, 0 .. S-1, ascending, where that is a node of its own; else -1.
        meeting: int32 [N]: the meeting that a node waits for; -1 for none.
        seats: int32 [M + 1]: where the arrivals of each meeting begin.
        arrivals: int32: nodes whose starts are the arrivals; all have a start of their own.
        fixed: int32 [F]: the meeting that waits for a fixed moment.

    Returns:
        int32 [T + 1] and int32 [.]: predecessor lists; of the ranks' nodes, their starts, meetings, fixed moments.
    """
    count, rooms = len(begin), len(seats) - 1
    starts = 0
    for node in range(count):
        starts += begin[node] >= 0
    total = count + starts + rooms + len(fixed)
    out = np.zeros(total + 1, np.int32)
    joined = np.empty(len(preds) + 2 * starts + len(arrivals) + len(fixed), np.int32)
    size = 0
    for node in range(count):
        if begin[node] < 0:
            for edge in range(indptr[node], indptr[node + 1]):
                joined[size] = preds[edge]
                size += 1
        else:
            joined[size] = count + begin[node]
            size += 1
            if meeting[node] >= 0:
                joined[size] = count + starts + meeting[node]
                size += 1
        out[node + 1] = size
    for node in range(count):
        if begin[node] >= 0:
            for edge in range(indptr[node], indptr[node + 1]):
                joined[size] = preds[edge]
                size += 1
            out[count + begin[node] + 1] = size
    moment = 0
    for room in range(rooms):
        for seat in range(seats[room], seats[room + 1]):
            joined[size] = count + begin[arrivals[seat]]
            size += 1
        while moment < len(fixed) and fixed[moment] == room:
            joined[size] = count + starts + rooms + moment
            size += 1
            moment += 1
        out[count + starts + room + 1] = size
    for node in range(total - len(fixed), total):
        out[node + 1] = size
    return out, joined[:size].copy()


@njit(cache=True, nogil=True)
def topological_order(indptr: Word, preds: Word) -> tuple[Word, int]:
    """Order a graph so that predecessors come first; an edge that closes a cycle is cut.

    Nodes that stand near one another stay so: a rank is followed up to where it waits for another one.

    Args:
        indptr: int32 [T + 1], predecessor lists.
        preds: int32 [E]; cut edges become -1.

    Returns:
        int32 [T], and how many edges were cut.
    """
    count = len(indptr) - 1
    order = np.empty(count, np.int32)
    state = np.zeros(count, np.uint8)  # 0: not seen, 1: begun, 2: done
    stack = np.empty(count, np.int32)
    cursor = np.empty(count, np.int32)
    done = 0
    cut = 0
    for root in range(count):
        if state[root] != 0:
            continue
        depth = 0
        stack[0], cursor[0], state[root] = root, indptr[root], 1
        while depth >= 0:
            node = stack[depth]
            edge = cursor[depth]
            if edge == indptr[node + 1]:
                state[node] = 2
                order[done] = node
                done += 1
                depth -= 1
                continue
            cursor[depth] = edge + 1
            pred = preds[edge]
            if pred < 0:
                continue
            if state[pred] == 0:
                depth += 1
                stack[depth], cursor[depth], state[pred] = pred, indptr[pred], 1
            elif state[pred] == 1:
                preds[edge] = -1
                cut += 1
    return order, cut


@njit(cache=True, nogil=True)
def end_times(order: Word, indptr: Word, preds: Word, duration: Int, nothing: Bool, end: Int) -> None:
    """Let every node begin when the last of its predecessors ends, the first ones at 0.

    Args:
        order: int32 [T], predecessors first.
        indptr: int32 [T + 1], predecessor lists.
        preds: int32 [E]; -1 for none.
        duration: int64 [T], ns.
        nothing: bool [T]: nodes that take no time now.
        end: int64 [T]: written, ns.
    """
    for node in order:
        time = np.int64(0)
        for edge in range(indptr[node], indptr[node + 1]):
            pred = preds[edge]
            if pred >= 0 and end[pred] > time:
                time = end[pred]
        if not nothing[node]:
            time += duration[node]
        end[node] = time


@njit(cache=True, nogil=True)
def walk_back(node: int, indptr: Word, preds: Word, end: Int) -> Word:
    """Follow from a node the predecessor that ended last (of equal ones the lowest) to the beginning.

    Args:
        node: Where to begin.
        indptr: int32 [T + 1], predecessor lists.
        preds: int32 [E]; -1 for none.
        end: int64 [T], ns.

    Returns:
        int32 [P]: the nodes, the first one first.
    """
    path = np.empty(1024, np.int32)
    size = 0
    while node >= 0:
        if size == len(path):
            longer = np.empty(2 * size, np.int32)
            longer[:size] = path
            path = longer
        path[size] = node
        size += 1
        before = -1
        for edge in range(indptr[node], indptr[node + 1]):
            pred = preds[edge]
            if pred < 0:
                continue
            if before < 0 or end[pred] > end[before] or (end[pred] == end[before] and pred < before):
                before = pred
        node = before
    return path[:size][::-1].copy()
