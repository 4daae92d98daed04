"""Edges between nodes that aren't numbered yet.

Nodes of a rank come in four kinds, and how many there are of each is known only at the end. Until then a node is its
kind's base plus its index in its kind.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir.arrays import list_series, sorted_unique

__all__ = ["ACTIVITY", "ANNOTATION_NODE", "CTRL", "DATA", "GAP", "ITEM", "SYNC", "EdgeBuffer", "dependency_columns"]

Int = npt.NDArray[np.int64]
CTRL, DATA, SYNC = range(3)
ITEM, ACTIVITY, GAP, ANNOTATION_NODE = (np.int64(kind) << np.int64(40) for kind in range(4))


class EdgeBuffer:
    """A growing list of edges; ends that are -1 are left out."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int, Int, int, bool]] = []

    def add(self, before: npt.ArrayLike, after: npt.ArrayLike, kind: int, *, inferred: bool = False) -> None:
        """Add edges.

        Args:
            before: int64 [E], predecessors.
            after: int64 [E], nodes that wait for them.
            kind: `CTRL`, `DATA` or `SYNC`.
            inferred: True if the edges were inferred, not read.
        """
        first, second = np.asarray(before, np.int64), np.asarray(after, np.int64)
        keep = (first >= 0) & (second >= 0) & (first != second)
        if keep.any():
            self._parts.append((first[keep], second[keep], kind, inferred))

    def numbered(self, sizes: tuple[int, ...]) -> tuple[Int, Int, npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
        """Return before, after (0 .. N-1), kind and inferred of all edges.

        Args:
            sizes: How many items, activities, gaps, annotations and memory events there are; they are numbered in
                this order.
        """
        base = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        lengths = [len(part[0]) for part in self._parts]
        ends = [np.concatenate([np.empty(0, np.int64), *(part[side] for part in self._parts)]) for side in (0, 1)]
        before, after = (base[end >> 40] + (end & ((1 << 40) - 1)) for end in ends)
        return (
            before,
            after,
            np.repeat(np.array([part[2] for part in self._parts], np.int8), lengths),
            np.repeat(np.array([part[3] for part in self._parts], np.bool_), lengths),
        )


def dependency_columns(before: Int, after: Int, kind: npt.NDArray[np.int8], *, count: int) -> list[pl.Series]:
    """Turn edges between positions (= ids) into the three dependency columns, each list sorted and unique."""
    columns = []
    for number, name in ((CTRL, "ctrl_deps"), (DATA, "data_deps"), (SYNC, "sync_deps")):
        chosen = kind == number
        keys = sorted_unique(after[chosen] * count + before[chosen])
        rows = keys // max(count, 1)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
        columns.append(list_series(name, offsets, (keys - rows * count).astype(np.uint64)))
    return columns
