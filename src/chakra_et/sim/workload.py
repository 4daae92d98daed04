"""`Workload`: the nodes of all ranks as flat arrays, which is what engines run on.

Shape letters: R ranks, N nodes of all ranks (rank after rank), E edges, T node tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir import Graph, Trace, TraceSet, build_graph
from chakra_et.ir.arrays import list_values, sorted_unique
from chakra_et.ir.columns import SCHEMA, empty_nodes
from chakra_et.ir.graph import DEPENDENCY_COLUMNS

__all__ = ["Tables", "Workload", "make_tables", "make_workload"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The node tables of a trace set as one; ranks that share one (the same object) have it once.

    Attributes:
        traces: [T]: a trace with each table.
        use: int64 [R]: the table of each rank.
        offsets: int64 [T + 1]: rows of `frame` where each table begins.
        frame: All rows, with the columns that any table has.
    """

    traces: tuple[Trace, ...]
    use: Int
    offsets: Int
    frame: pl.DataFrame

    @property
    def owners(self) -> Int:
        """The table of each row, int64."""
        return np.repeat(np.arange(len(self.traces), dtype=np.int64), np.diff(self.offsets))

    def column(self, name: str) -> pl.Series:
        """Return a column, all null where no table has it."""
        if name in self.frame.columns:
            return self.frame[name]
        nulls: pl.Series = pl.Series(name, [None], dtype=SCHEMA[name]).new_from_index(0, self.frame.height)
        return nulls


def make_tables(traces: TraceSet) -> Tables:
    """Put the node tables of a trace set together.

    Example:
        >>> from chakra_et.ir import TraceBuilder, TraceSet
        >>> trace = TraceBuilder(rank=0).build()
        >>> make_tables(TraceSet((trace,))).use.tolist()
        [0]
    """
    first: dict[int, int] = {}
    distinct: list[Trace] = []
    use = []
    for trace in traces:
        number = first.setdefault(id(trace.nodes), len(distinct))
        if number == len(distinct):
            distinct.append(trace)
        use.append(number)
    offsets = np.zeros(len(distinct) + 1, np.int64)
    np.cumsum([len(trace) for trace in distinct], out=offsets[1:])
    frames = [trace.nodes for trace in distinct]
    frame = pl.concat(frames, how="diagonal") if frames else empty_nodes()
    return Tables(tuple(distinct), np.array(use, np.int64), offsets, frame.rechunk())


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The nodes of all ranks; a node's position counts over all of them.

    Ranks that share one node table (the same object) are read once, so that a job of equal ranks costs one rank's time.

    Attributes:
        traces: The trace set.
        tables: Its node tables.
        ranks: int64 [R]: global rank of each trace.
        offsets: int64 [R + 1]: positions where each rank's nodes begin.
        rows: int64 [N]: row of each node in the tables; None where that is its position.
        indptr: int64 [N + 1]: predecessor lists.
        preds: int64 [E]: positions of predecessors, of the same rank; unique in each list.
    """

    traces: TraceSet
    tables: Tables
    ranks: Int
    offsets: Int
    rows: Int | None
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
        return self._spread(self.tables.column(name).cast(pl.Int64).fill_null(fill).to_numpy())

    def flags(self, name: str) -> Bool:
        """Return a boolean column of all ranks, bool [N], nulls as false."""
        return self._spread(self.tables.column(name).fill_null(False).to_numpy())

    def present(self, name: str) -> Bool:
        """Return where a column has a value, bool [N]."""
        return self._spread(self.tables.column(name).is_not_null().to_numpy())

    def series(self, name: str) -> pl.Series:
        """Return a column of all ranks, [N]."""
        column = self.tables.column(name)
        return column if self.rows is None else column.gather(self.rows)

    def place(self, position: int) -> tuple[int, int, str]:
        """Return rank, node id and node name of a position, for messages."""
        index = int(np.searchsorted(self.offsets, position, side="right")) - 1
        row = position - int(self.offsets[index])
        nodes = self.traces.traces[index].nodes
        return int(self.ranks[index]), int(nodes["id"][row]), str(nodes["name"][row] or "")

    def _spread(self, values: npt.NDArray[T]) -> npt.NDArray[T]:
        # Never a view of a column, which is read-only.
        return np.array(values) if self.rows is None else values[self.rows]


def make_workload(traces: TraceSet, *, strict: bool = True) -> Workload:
    """Flatten a trace set.

    Args:
        traces: The traces.
        strict: False to allow traces without nodes, and to leave out dependencies on nodes that aren't there.

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
    ranks, tables = np.array(traces.ranks, np.int64), make_tables(traces)
    sizes = np.diff(tables.offsets)
    if strict and (sizes == 0).any():
        rank = int(ranks[np.argmax(sizes[tables.use] == 0)])
        raise SimulationError(
            f"rank {rank}: expected nodes, got a trace without any; leave the rank out, or mirror one"
        )
    lengths, preds, starts = _edges(tables, ranks, strict)
    use = tables.use
    offsets = np.zeros(len(use) + 1, np.int64)
    np.cumsum(sizes[use], out=offsets[1:])
    indptr = np.zeros(offsets[-1] + 1, np.int64)
    if len(use) == len(sizes):
        np.cumsum(lengths, out=indptr[1:])
        return Workload(traces, tables, ranks, offsets, None, indptr, preds)
    rows = _ranges(tables.offsets[use], sizes[use])
    np.cumsum(lengths[rows], out=indptr[1:])
    count = np.diff(starts)[use]
    shift = np.repeat(offsets[:-1] - tables.offsets[use], count)
    return Workload(traces, tables, ranks, offsets, rows, indptr, preds[_ranges(starts[use], count)] + shift)


def _ranges(begin: Int, count: Int) -> Int:
    """Return begin, begin + 1, ... of each range, one range after the other."""
    first = np.cumsum(count) - count
    found: Int = np.arange(count.sum(), dtype=np.int64) + np.repeat(begin - first, count)
    return found


def _edges(tables: Tables, ranks: Int, strict: bool) -> tuple[Int, Int, Int]:
    """Return the number of predecessors of each row, the predecessors as rows, and where those of each table begin."""
    found = _plain_edges(tables)
    if found is not None:
        return found
    graphs = [build_graph(trace) for trace in tables.traces]
    for number, graph in enumerate(graphs if strict else ()):
        _check(graph, tables.traces[number], int(ranks[np.argmax(tables.use == number)]))
    starts = np.zeros(len(graphs) + 1, np.int64)
    np.cumsum([len(graph.preds) for graph in graphs], out=starts[1:])
    preds = [graph.preds + begin for graph, begin in zip(graphs, tables.offsets.tolist(), strict=False)]
    return np.concatenate([np.diff(graph.indptr) for graph in graphs]), np.concatenate(preds), starts


def _plain_edges(tables: Tables) -> tuple[Int, Int, Int] | None:
    """Return the same where ids count from 0 in each table and no edge dangles, all tables at once; else None."""
    owners, count = tables.owners, tables.frame.height
    first = tables.offsets[owners]
    if not np.array_equal(tables.frame["id"].to_numpy(), np.arange(count) - first):
        return None
    keys = []
    for name in DEPENDENCY_COLUMNS:
        offsets, values = list_values(tables.column(name))
        node = np.repeat(np.arange(count, dtype=np.int64), np.diff(offsets))
        pred = values.astype(np.int64) + first[node]
        if (values >= np.diff(tables.offsets)[owners[node]].astype(np.uint64)).any() or (pred == node).any():
            return None
        keys.append(node * count + pred)
    edges = sorted_unique(np.concatenate(keys))
    node = edges // count
    starts = np.searchsorted(node, tables.offsets).astype(np.int64)
    return np.bincount(node, minlength=count).astype(np.int64), edges - node * count, starts


def _check(graph: Graph, trace: Trace, rank: int) -> None:
    """Refuse edges that lead nowhere, or back to their own node."""
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
