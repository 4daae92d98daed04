"""`Workload`: the nodes of all ranks as flat arrays, which is what engines run on.

Shape letters: R ranks, N nodes of all ranks (rank after rank), E edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir import Trace, TraceSet, build_graph
from chakra_et.ir.columns import SCHEMA

__all__ = ["Workload", "make_workload"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The nodes of all ranks; a node's position counts over all of them.

    Ranks that share one node table (the same object) are read once, so that a job of equal ranks costs one rank's time.

    Attributes:
        traces: The trace set.
        ranks: int64 [R]: global rank of each trace.
        offsets: int64 [R + 1]: positions where each rank's nodes begin.
        indptr: int64 [N + 1]: predecessor lists.
        preds: int64 [E]: positions of predecessors, of the same rank; unique in each list.
    """

    traces: TraceSet
    ranks: Int
    offsets: Int
    indptr: Int
    preds: Int

    @property
    def node_count(self) -> int:
        """Number of nodes of all ranks, N."""
        return int(self.offsets[-1])

    @property
    def owners(self) -> Int:
        """Index of each node's rank in `ranks`, int64 [N]."""
        return np.repeat(np.arange(len(self.ranks), dtype=np.int64), np.diff(self.offsets))

    def integers(self, name: str, fill: int = -1) -> Int:
        """Return an integer column of all ranks, int64 [N], nulls as `fill`."""
        return _joined([trace.integers(name, fill) for trace in self._distinct], self._use)

    def flags(self, name: str) -> Bool:
        """Return a boolean column of all ranks, bool [N], nulls as false."""
        return _joined([trace.column(name).fill_null(False).to_numpy() for trace in self._distinct], self._use)

    def present(self, name: str) -> Bool:
        """Return where a column has a value, bool [N]."""
        return _joined([trace.column(name).is_not_null().to_numpy() for trace in self._distinct], self._use)

    def series(self, name: str) -> pl.Series:
        """Return a column of all ranks, [N]."""
        parts = [trace.column(name) for trace in self.traces]
        return pl.concat(parts) if parts else pl.Series(name, [], dtype=SCHEMA[name])

    def place(self, position: int) -> tuple[int, int, str]:
        """Return rank, node id and node name of a position, for messages."""
        index = int(np.searchsorted(self.offsets, position, side="right")) - 1
        row = position - int(self.offsets[index])
        nodes = self.traces.traces[index].nodes
        return int(self.ranks[index]), int(nodes["id"][row]), str(nodes["name"][row] or "")

    @property
    def _use(self) -> list[int]:
        """Which of the distinct node tables each rank has."""
        first: dict[int, int] = {}
        return [first.setdefault(id(trace.nodes), len(first)) for trace in self.traces]

    @property
    def _distinct(self) -> list[Trace]:
        return list({id(trace.nodes): trace for trace in self.traces}.values())


def _joined(parts: list[npt.NDArray[T]], use: list[int]) -> npt.NDArray[T]:
    return np.concatenate([parts[index] for index in use])


def make_workload(traces: TraceSet) -> Workload:
    """Flatten a trace set.

    Raises:
        SimulationError: No trace, a trace without nodes, or a dependency on a node that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder, TraceSet
        >>> builder = TraceBuilder(rank=0)
        >>> first = builder.add("a", NodeType.COMP_NODE, duration_ns=5)
        >>> second = builder.add("b", NodeType.COMP_NODE, duration_ns=2, ctrl_deps=[first])
        >>> make_workload(TraceSet((builder.build(),))).preds.tolist()
        [0]
    """
    if not len(traces):
        raise SimulationError("expected the trace of at least one rank, got none")
    offsets = np.zeros(len(traces) + 1, np.int64)
    np.cumsum([len(trace) for trace in traces], out=offsets[1:])
    known: dict[int, tuple[Int, Int]] = {}
    lengths, preds = [], []
    for rank, trace, offset in zip(traces.ranks, traces, offsets, strict=False):
        found = known.get(id(trace.nodes))
        if found is None:
            found = known[id(trace.nodes)] = _edges(rank, trace)
        lengths.append(found[0])
        preds.append(found[1] + offset)
    indptr = np.zeros(offsets[-1] + 1, np.int64)
    np.cumsum(np.concatenate(lengths), out=indptr[1:])
    return Workload(traces, np.array(traces.ranks, np.int64), offsets, indptr, np.concatenate(preds))


def _edges(rank: int, trace: Trace) -> tuple[Int, Int]:
    """Return the number of predecessors of each node, and the predecessors."""
    if not len(trace):
        raise SimulationError(
            f"rank {rank}: expected nodes, got a trace without any; leave the rank out, or mirror one"
        )
    graph = build_graph(trace)
    if len(graph.dangling):
        position, missing = graph.dangling[0]
        node, name = trace.nodes["id"][int(position)], trace.nodes["name"][int(position)]
        raise SimulationError(
            f"rank {rank}: node {node} ('{name}'): expected its dependency {missing} in the trace, got no such node; "
            "repair the trace first (chakra repair)"
        )
    if len(graph.self_edges):
        position = int(graph.self_edges[0])
        node, name = trace.nodes["id"][position], trace.nodes["name"][position]
        raise SimulationError(f"rank {rank}: node {node} ('{name}'): expected other nodes as dependencies, got itself")
    return np.diff(graph.indptr), graph.preds
