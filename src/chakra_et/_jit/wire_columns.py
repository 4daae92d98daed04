"""The columns of a trace as rows of a few arrays: what the reader fills and the writer takes.

Shape letters: N nodes, I integer rows, S string rows, B bytes, M ids, A attribute names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from chakra_et._jit.wire import Bytes, Int, hot, inner

__all__ = [
    "BLOB",
    "CTRL",
    "DATA",
    "DURATION_FIELD",
    "FIRST_STRING",
    "ID",
    "INPUTS",
    "MAX_MICROS",
    "NAME",
    "OUTPUTS",
    "START_FIELD",
    "SYNC",
    "TENSOR",
    "TYPE",
    "Sink",
    "edges_are_union",
    "sorted_union",
    "to_micros",
]

# Rows of the integer, string and id arrays; attribute columns follow.
ID, TYPE = 0, 1
NAME, INPUTS, OUTPUTS, BLOB, FIRST_STRING = np.int64(0), np.int64(1), np.int64(4), 7, 8
CTRL, DATA, SYNC, TENSOR = 0, 1, 2, 3

START_FIELD, DURATION_FIELD = np.int64(6), np.int64(7)

MAX_MICROS = np.uint64((2**63 - 1) // 1000)


class Sink(NamedTuple):
    """Where the columns go, or come from.

    Attributes:
        ints: int64 [I, N].
        valid: uint8 [I, N].
        text: uint8 [B], strings row after row.
        text_base: int64 [S + 1], where each row starts in `text`.
        text_offsets: int64 [S, N + 1], relative to the row's base.
        text_valid: uint8 [S, N].
        text_cursor: int64 [S], bytes so far.
        text_next: int64 [S], the first node whose offset isn't set (its own is in `text_cursor`).
        ids: uint64 [M], dependency ids row after row.
        id_base: int64 [5].
        id_offsets: int64 [4, N + 1].
        id_cursor: int64 [4], ids so far.
        used: int64 [A + 3]: 1 if any node has the attribute; then inputs, outputs, blob.
    """

    ints: Int
    valid: Bytes
    text: Bytes
    text_base: Int
    text_offsets: Int
    text_valid: Bytes
    text_cursor: Int
    text_next: Int
    ids: npt.NDArray[np.uint64]
    id_base: Int
    id_offsets: Int
    id_cursor: Int
    used: Int


@hot
def to_micros(value_ns: int) -> int:
    """Round nanoseconds to microseconds, half up; 0 for what the unsigned field can't hold."""
    if value_ns <= 0:
        return 0
    micros = value_ns // 1000
    return micros + 1 if value_ns - micros * 1000 >= 500 else micros


@inner
def sorted_union(source: Sink, node: int, scratch: npt.NDArray[np.uint64]) -> int:
    """Write the ascending union of a node's CTRL, SYNC and TENSOR ids to `scratch`; return its length."""
    count = 0
    for row in (CTRL, SYNC, TENSOR):
        base = source.id_base[row]
        for at in range(base + source.id_offsets[row, node], base + source.id_offsets[row, node + 1]):
            scratch[count] = source.ids[at]
            count += 1
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:  # Shell's sort: most lists hold two or three ids, a few hold thousands
        for end in range(gap, count):
            value = scratch[end]
            at = end
            while at >= gap and scratch[at - gap] > value:
                scratch[at] = scratch[at - gap]
                at -= gap
            scratch[at] = value
        gap //= 3
    kept = min(count, 1)
    for at in range(1, count):
        if scratch[at] != scratch[kept - 1]:
            scratch[kept] = scratch[at]
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def edges_are_union(sink: Sink, scratch: npt.NDArray[np.uint64]) -> bool:
    """Return True if every node's DATA list is the ascending union of its CTRL, SYNC and TENSOR lists.

    Args:
        sink: Filled columns.
        scratch: As long as the longest three lists of a node together.
    """
    for node in range(sink.id_offsets.shape[1] - 1):
        first = sink.id_base[DATA] + sink.id_offsets[DATA, node]
        size = sink.id_offsets[DATA, node + 1] - sink.id_offsets[DATA, node]
        if sorted_union(sink, node, scratch) != size:
            return False
        for step in range(size):
            if scratch[step] != sink.ids[first + step]:
                return False
    return True
