"""The dependency graph of a trace as CSR arrays.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et.ir.arrays import list_values, sorted_unique
from chakra_et.ir.trace import Trace

__all__ = ["DEPENDENCY_COLUMNS", "EdgeList", "Graph", "build_graph"]

Int = npt.NDArray[np.int64]
DEPENDENCY_COLUMNS: tuple[str, ...] = ("ctrl_deps", "data_deps", "sync_deps")


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Predecessor lists over node positions (row numbers, not ids).

    Attributes:
        indptr: int64 [N + 1].
        preds: int64 [E], unique and ascending in each list; no dangling and no self edges.
        dangling: int64 [K, 2]: (position, id that no node has).
        self_edges: int64 [S]: positions of nodes that depended on themselves.
    """

    indptr: Int
    preds: Int
    dangling: Int
    self_edges: Int

    @property
    def node_count(self) -> int:
        """Number of nodes, N."""
        return len(self.indptr) - 1


@dataclass(frozen=True, slots=True, eq=False)
class EdgeList:
    """Edges of one dependency column: `node` and `dep` are positions; `dep` is -1 where `dep_id` is dangling.

    Attributes:
        node: int64 [E], position of the dependent node.
        dep: int64 [E], position of its predecessor, or -1.
        dep_id: uint64 [E], the id as written.
    """

    node: Int
    dep: Int
    dep_id: npt.NDArray[np.uint64]


def edge_list(trace: Trace, column: str) -> EdgeList:
    """Return the edges of one dependency column, as positions."""
    offsets, values = list_values(trace.column(column))
    ids = trace.nodes["id"].to_numpy()
    wanted: npt.NDArray[np.uint64] = values.astype(np.uint64, copy=False)
    node = np.repeat(np.arange(len(ids), dtype=np.int64), np.diff(offsets))
    return EdgeList(node, positions(ids, wanted), wanted)


def positions(ids: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> Int:
    """Return where each id of `wanted` [M] stands in `ids` [N] (the first of duplicates), -1 if nowhere."""
    if len(ids) == 0:
        return np.full(len(wanted), -1, np.int64)
    if ids[0] == 0 and ids[-1] == len(ids) - 1 and np.array_equal(ids, np.arange(len(ids), dtype=np.uint64)):
        found = wanted.astype(np.int64)
        return np.where(wanted < np.uint64(len(ids)), found, -1)
    order = np.argsort(ids, kind="stable")
    slot = np.searchsorted(ids, wanted, sorter=order)
    slot = np.minimum(slot, len(ids) - 1)
    found = order[slot]
    return np.where(ids[found] == wanted, found, -1).astype(np.int64)


def build_graph(trace: Trace, columns: Sequence[str] = DEPENDENCY_COLUMNS) -> Graph:
    """Build the graph of the union of some dependency columns.

    Args:
        trace: The trace.
        columns: Dependency columns to take together.
    """
    count = len(trace)
    lists = [edge_list(trace, column) for column in columns]
    node = np.concatenate([edges.node for edges in lists]) if lists else np.empty(0, np.int64)
    dep = np.concatenate([edges.dep for edges in lists]) if lists else np.empty(0, np.int64)
    dep_id = np.concatenate([edges.dep_id for edges in lists]) if lists else np.empty(0, np.uint64)
    lost = dep < 0
    loops = dep == node
    keep = ~(lost | loops)
    keys = sorted_unique(node[keep] * max(count, 1) + dep[keep])
    rows = keys // max(count, 1)
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=indptr[1:])
    dangling = np.stack([node[lost], dep_id[lost].astype(np.int64)], axis=1)
    return Graph(indptr, keys - rows * max(count, 1), dangling, np.unique(node[loops]))
