"""Cutting a part out of a trace so that it still rebuilds to its own timeline; iterations are the usual part.

An edge to a removed node is bridged to that node's nearest kept ancestors. Where time would be lost so, the node
hangs on a gap that ends when it started: `host_idle` on host threads, `unexplained` on the device. A removed node
with many nearest kept ancestors stays as a gap of length zero, so that the slice never has more than a constant
number of edges for each of the trace's. Dangling and self edges are dropped.

Shape letters: N nodes, K kept nodes, E edges, B bridged edges.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.bridge import bridge, fill_gaps, inherit
from chakra_et._jit.paths import cone as with_causes
from chakra_et._jit.schedule import schedule
from chakra_et.errors import TraceError
from chakra_et.ir.arrays import list_series
from chakra_et.ir.call_stack import nearest, parent_rows
from chakra_et.ir.enums import NodeType
from chakra_et.ir.graph import DEPENDENCY_COLUMNS, Graph, build_graph, edge_list
from chakra_et.ir.trace import Trace

__all__ = ["Timing", "cut", "enclosing", "iterations", "select_iteration", "timing_of"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
_STAND_INS = 16
_STEP = re.compile(r"^ProfilerStep#(\d+)$")


def iterations(trace: Trace) -> dict[int, tuple[int, int]]:
    """Return the training steps that the profiler marked (`ProfilerStep#k`).

    Args:
        trace: The trace.

    Returns:
        k -> (begin, end), ns on the recorded clock, in time order.
    """
    steps = trace.nodes.select("name", "type", "start_ns").with_columns(trace.column("span_ns"))
    steps = steps.filter(
        (pl.col("type") == int(NodeType.METADATA_NODE))
        & pl.col("name").str.starts_with("ProfilerStep#")
        & pl.col("start_ns").is_not_null()
        & pl.col("span_ns").is_not_null()
    )
    found: dict[int, tuple[int, int]] = {}
    for name, _, start, span in steps.sort("start_ns").iter_rows():
        match = _STEP.match(name)
        if match:
            begin, end = found.get(int(match.group(1)), (start, start + span))
            found[int(match.group(1))] = (min(begin, start), max(end, start + span))
    return found


def select_iteration(trace: Trace, iteration: int) -> Trace:
    """Keep one training step: the host nodes that start in it, and what they launch, whenever that runs.

    Idle time after the step's last node on a thread is left out.

    Args:
        trace: The trace.
        iteration: Number k in the name `ProfilerStep#k`; if the trace has no such step, its place in time order,
            from 0.

    Raises:
        TraceError: There is no such step, or the graph has a cycle.
    """
    steps = iterations(trace)
    if iteration in steps:
        begin, end = steps[iteration]
    elif 0 <= iteration < len(steps):
        begin, end = list(steps.values())[iteration]
    else:
        known = ", ".join(f"#{number}" for number in steps) or "none (the profile has no ProfilerStep annotations)"
        raise TraceError(
            f"rank {trace.rank}: expected the number of an iteration, got {iteration}; there are: {known}; "
            "a stretch of time can be cut out instead"
        )
    timing = timing_of(trace)
    order = timing.order
    control = build_graph(trace, ("ctrl_deps",))
    real = trace.column("gap_kind").is_null().to_numpy()
    host = trace.nodes["is_cpu_op"].fill_null(False).to_numpy() & real
    issued = inherit(control.indptr, control.preds, order, timing.start, host)
    keep = (issued >= begin - timing.origin) & (issued < end - timing.origin) & ~timing.ranges
    # Idle time that only leads out of the step is none of it.
    keep &= with_causes(timing.graph.indptr, timing.graph.preds, keep & real)
    if not (keep & real).any():
        raise TraceError(
            f"rank {trace.rank}: expected nodes in iteration {iteration}, got none that starts in its range"
        )
    return cut(trace, timing, keep | enclosing(trace, timing, keep))


@dataclass(frozen=True, slots=True, eq=False)
class Timing:
    """When nodes start.

    Attributes:
        graph: The graph.
        order: int64 [N]: a topological order.
        start: int64 [N], ns, relative to `origin`: as recorded, else as rebuilt.
        duration: int64 [N], ns.
        ranges: bool [N]: annotations outside the graph.
        origin: ns on the recorded clock.
    """

    graph: Graph
    order: Int
    start: Int
    duration: Int
    ranges: Bool
    origin: int


def timing_of(trace: Trace) -> Timing:
    """Return when nodes start.

    Raises:
        TraceError: The graph has a cycle.
    """
    graph = build_graph(trace)
    duration = np.maximum(trace.integers("duration_ns", 0), 0)
    rebuilt, _, order = schedule(graph.indptr, graph.preds, duration)
    if len(order) < len(trace):
        raise TraceError(
            f"rank {trace.rank}: expected an acyclic graph, got {len(trace) - len(order)} nodes on or behind a cycle; "
            "repair the trace first"
        )
    linked = np.diff(graph.indptr) > 0
    linked[graph.preds] = True
    metadata = trace.nodes["type"].fill_null(0).to_numpy() == NodeType.METADATA_NODE
    known = trace.nodes["start_ns"].is_not_null().to_numpy()
    recorded = trace.integers("start_ns", 0)
    timed = recorded[known & ~metadata]
    origin = int(timed.min()) if len(timed) else 0
    start = np.where(known, recorded - origin, rebuilt)
    return Timing(graph, order, start, duration, metadata & ~linked, origin)


def enclosing(trace: Trace, timing: Timing, keep: Bool) -> Bool:
    """Return the annotations, bool [N], that overlap the kept nodes; those without a range stay as well."""
    if not timing.ranges.any() or not keep.any():
        return timing.ranges & False
    begin = timing.start[keep].min()
    end = (timing.start + timing.duration)[keep].max()
    known = trace.nodes["start_ns"].is_not_null().to_numpy()
    last = timing.start + trace.integers("span_ns", 0)
    overlap: Bool = timing.ranges & (~known | ((timing.start < end) & (last > begin)))
    return overlap


def cut(trace: Trace, timing: Timing, keep: Bool) -> Trace:
    """Return the trace with `keep` bool [N], bridges and gaps only."""
    graph = timing.graph
    offsets, stand_ins, junction = bridge(graph.indptr, graph.preds, timing.order, keep, _STAND_INS)
    junction = _needed(graph, keep, junction)
    alive = keep | junction
    edges = {column: _bridged_edges(trace, column, alive, keep, offsets, stand_ins) for column in DEPENDENCY_COLUMNS}
    own = _csr(len(trace), [(e.node[~e.bridged], e.dep[~e.bridged]) for e in edges.values()])
    bridged = _csr(len(trace), [(e.node[e.bridged], e.dep[e.bridged]) for e in edges.values()])
    cut = np.zeros(len(trace), np.bool_)
    for entry in edges.values():
        cut[entry.lost] = True
    cut &= keep
    timed = keep & ~timing.ranges
    first = timing.start[timed].min() if timed.any() else 0
    duration = np.where(junction, 0, timing.duration)
    start, gap = fill_gaps(own, bridged, timing.order[alive[timing.order]], duration, timing.start - first, cut)
    return _assemble(trace, _Slice(keep, junction, start, gap, int(first) + timing.origin, edges))


@dataclass(frozen=True, slots=True, eq=False)
class _Edges:
    """Edges of one column after the cut: positions int64 [E], whether they stand in for a removed one, who lost one."""

    node: Int
    dep: Int
    bridged: Bool
    lost: Int


@dataclass(frozen=True, slots=True, eq=False)
class _Slice:
    """What `cut` found: masks bool [N], start and gap int64 [N] (ns), the clock at start 0, edges by column."""

    keep: Bool
    junction: Bool
    start: Int
    gap: Int
    origin: int
    edges: dict[str, _Edges]


def _needed(graph: Graph, keep: Bool, junction: Bool) -> Bool:
    """Return the junctions that a kept node depends on through removed nodes."""
    if not junction.any():
        return junction
    needed: Bool = with_causes(graph.indptr, graph.preds, keep) & junction
    return needed


def _bridged_edges(trace: Trace, column: str, alive: Bool, keep: Bool, offsets: Int, stand_ins: Int) -> _Edges:
    edges = edge_list(trace, column)
    valid = (edges.dep >= 0) & (edges.dep != edges.node) & alive[edges.node]
    node, dep = edges.node[valid], edges.dep[valid]
    direct = keep[dep]
    lost = np.unique(node[~direct & keep[node]])
    sizes = np.where(alive[dep], 0, np.diff(offsets)[dep])
    over_node, over_dep = _expand(node, dep, sizes, offsets, stand_ins)
    hub = alive[dep] & ~direct
    count = max(len(trace), 1)
    straight = np.unique(node[direct] * count + dep[direct])
    around = np.unique(np.concatenate((over_node * count + over_dep, node[hub] * count + dep[hub])))
    keys = np.concatenate((straight, np.setdiff1d(around, straight, assume_unique=True)))
    bridged = np.arange(len(keys)) >= len(straight)
    return _Edges(keys // count, keys % count, bridged, lost)


def _expand(node: Int, dep: Int, sizes: Int, offsets: Int, stand_ins: Int) -> tuple[Int, Int]:
    """Replace each edge by `sizes` ones to the stand-ins of its `dep`."""
    total = int(sizes.sum())
    begin = np.repeat(offsets[dep] - np.concatenate(([0], np.cumsum(sizes)[:-1])) if len(dep) else dep, sizes)
    return np.repeat(node, sizes), stand_ins[begin + np.arange(total)]


def _csr(count: int, parts: list[tuple[Int, Int]]) -> tuple[Int, Int]:
    node = np.concatenate([part[0] for part in parts])
    dep = np.concatenate([part[1] for part in parts])
    keys = np.unique(node * max(count, 1) + dep)
    rows = keys // max(count, 1)
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=indptr[1:])
    return indptr, keys - rows * max(count, 1)


def _assemble(trace: Trace, part: _Slice) -> Trace:
    """Build the slice's node table: kept nodes and junctions in their order, each gap before its node."""
    ids = trace.nodes["id"].to_numpy()
    kept, junctions, delayed = (np.flatnonzero(mask) for mask in (part.keep, part.junction, part.gap > 0))
    top = int(ids.max(initial=0))
    if top + len(delayed) >= 2**64:
        raise TraceError(f"node {top}: expected room for {len(delayed)} gap ids above it, got the largest id there is")
    gap_id = np.zeros(len(trace), np.uint64)
    gap_id[delayed] = np.arange(top + 1, top + 1 + len(delayed), dtype=np.uint64)
    rows = np.concatenate((kept, junctions))
    lists = [_dependency_lists(ids, rows, delayed, gap_id, part.edges[column]) for column in DEPENDENCY_COLUMNS]
    begin = part.start + part.origin
    parts = [
        _with_kept_references(trace, part.keep)[kept],
        _gap_rows(trace, junctions, ids[junctions], begin[junctions], np.zeros(len(junctions), np.int64)),
        _gap_rows(trace, delayed, gap_id[delayed], (begin - part.gap)[delayed], part.gap[delayed]),
    ]
    nodes = pl.concat([part for part in parts if part.height or part is parts[0]], how="diagonal")
    nodes = nodes.with_columns(series.alias(name) for name, series in zip(DEPENDENCY_COLUMNS, lists, strict=True))
    place = np.concatenate((2 * rows + 1, 2 * delayed))
    return trace.with_nodes(nodes[np.argsort(place, kind="stable")])


def _gap_rows(trace: Trace, rows: Rows, ids: npt.NDArray[np.uint64], start_ns: Int, duration_ns: Int) -> pl.DataFrame:
    """Return gap nodes on the threads and streams of the nodes at `rows`."""
    host = trace.nodes["is_cpu_op"].fill_null(False).to_numpy()[rows]
    places = ("is_cpu_op", "tid", "stream", "device")
    return pl.DataFrame(
        [
            pl.Series("id", ids),
            pl.Series("name", np.where(host, "host_idle", "unexplained").tolist(), pl.String),
            pl.Series("type", np.full(len(rows), int(NodeType.COMP_NODE), np.uint8)),
            pl.Series("start_ns", start_ns),
            pl.Series("duration_ns", duration_ns),
            pl.Series("gap_kind", np.where(host, "host_idle", "unexplained").tolist(), pl.String),
            *(trace.nodes[name].gather(rows) for name in places if name in trace.nodes.columns),
        ]
    )


def _dependency_lists(
    ids: npt.NDArray[np.uint64],
    rows: Rows,
    delayed: Rows,
    gap_id: npt.NDArray[np.uint64],
    edges: _Edges,
) -> pl.Series:
    """Return one column for kept rows, then gap rows: bridged edges of a delayed node move to its gap."""
    slot = np.full(len(ids), -1, np.int64)
    slot[rows] = np.arange(len(rows))
    gap_slot = np.full(len(ids), -1, np.int64)
    gap_slot[delayed] = len(rows) + np.arange(len(delayed))
    moved = edges.bridged & (gap_slot[edges.node] >= 0)
    hung = edges.lost[gap_slot[edges.lost] >= 0]
    node = np.concatenate((np.where(moved, gap_slot[edges.node], slot[edges.node]), slot[hung]))
    dep = np.concatenate((ids[edges.dep], gap_id[hung]))
    order = np.argsort(node, kind="stable")
    offsets = np.zeros(len(rows) + len(delayed) + 1, np.int64)
    np.cumsum(np.bincount(node, minlength=len(offsets) - 1), out=offsets[1:])
    return list_series("", offsets, dep[order])


def _with_kept_references(trace: Trace, keep: Bool) -> pl.DataFrame:
    """Point `parent` at the nearest kept ancestor in the call stack, and clear `fw_parent` where its node goes."""
    ids = trace.nodes["id"].to_numpy()
    columns = []
    for name in ("parent", "fw_parent"):
        if name not in trace.nodes.columns:
            continue
        above = parent_rows(trace, name)
        kept = nearest(above, keep) if name == "parent" else np.where(keep, np.arange(len(keep)), -1)
        above = np.append(kept, -1)[above]
        columns.append(pl.Series(name, ids[above].astype(np.int64)).set(pl.Series(above < 0), None))
    return trace.nodes.with_columns(columns)
