"""Rebuild a trace's schedule from its edges and durations alone, and compare it with what was recorded.

Requires: nothing; nodes on or behind a cycle are left out and counted. Ensures: recorded start times don't enter the
    rebuilt schedule.

Shape letters: N nodes, P nodes of the critical path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.paths import trail
from chakra_et._jit.schedule import schedule
from chakra_et.ir import NodeType, Trace, build_graph
from chakra_et.ir.graph import DEPENDENCY_COLUMNS

__all__ = ["Reconstruction", "StartError", "apply_schedule", "reconstruct"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StartError:
    """Distances between rebuilt and recorded starts, over `nodes` nodes.

    Attributes:
        p50: Median, ns.
        p99: 99th percentile, ns.
        max: Largest, ns.
        nodes: Number of nodes compared; 0 when no node has a recorded start, and then the others are 0 too.
    """

    p50: int
    p99: int
    max: int
    nodes: int

    def as_dict(self) -> dict[str, int]:
        """Return p50, p99 and max, as in a quality report."""
        return {"p50": self.p50, "p99": self.p99, "max": self.max}


@dataclass(frozen=True, slots=True, eq=False)
class Reconstruction:
    """A schedule rebuilt from edges and durations.

    Attributes:
        start_ns: int64 [N]: rebuilt start, relative to the window's start; -1 for nodes on or behind a cycle.
        makespan_ns: Latest rebuilt end.
        window_ns: Recorded last end minus recorded first start; METADATA nodes don't count.
        start_error_ns: Error over device nodes: neither gaps nor METADATA, `is_cpu_op` false.
        start_error_all_ns: Error over all nodes but METADATA and gaps.
        gap_ns: Time in gap nodes along the critical path, by `gap_kind`.
        gap_total_ns: Time in all gap nodes, by `gap_kind`.
        critical_path: int64 [P]: positions of the nodes that bind one another, first to last.
        unscheduled: Number of nodes on or behind a cycle.
    """

    start_ns: Int
    makespan_ns: int
    window_ns: int
    start_error_ns: StartError
    start_error_all_ns: StartError
    gap_ns: dict[str, int]
    gap_total_ns: dict[str, int]
    critical_path: Int
    unscheduled: int


def reconstruct(trace: Trace, *, columns: Sequence[str] = DEPENDENCY_COLUMNS) -> Reconstruction:
    """Start every root at 0 and every other node at the latest end of its dependencies.

    Args:
        trace: The trace. Negative durations count as 0.
        columns: Dependency columns to schedule on.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder()
        >>> first = builder.add("a", NodeType.COMP_NODE, duration_ns=5)
        >>> second = builder.add("b", NodeType.COMP_NODE, duration_ns=2, ctrl_deps=[first])
        >>> reconstruct(builder.build()).makespan_ns
        7
    """
    graph = build_graph(trace, columns)
    duration = np.maximum(trace.integers("duration_ns", 0), 0)
    start, binding, order = schedule(graph.indptr, graph.preds, duration)
    end = np.where(start >= 0, start + duration, -1)
    path = trail(binding, int(np.argmax(end))) if len(order) else np.empty(0, np.int64)
    recorded, timed = _recorded(trace)
    error, known = np.abs(start - recorded), timed & (start >= 0)
    gaps = trace.column("gap_kind")
    real = known & gaps.is_null().to_numpy()
    device = real & ~trace.column("is_cpu_op").fill_null(False).to_numpy()
    last = int((recorded + duration)[timed].max()) if timed.any() else 0
    return Reconstruction(
        start_ns=start,
        makespan_ns=int(end.max(initial=0)),
        window_ns=last,
        start_error_ns=_quantiles(error[device]),
        start_error_all_ns=_quantiles(error[real]),
        gap_ns=_by_kind(gaps.gather(path), duration[path]),
        gap_total_ns=_by_kind(gaps, duration),
        critical_path=path,
        unscheduled=len(trace) - len(order),
    )


def apply_schedule(trace: Trace, reconstruction: Reconstruction) -> Trace:
    """Return the trace with rebuilt start times, on the recorded clock.

    The window's start stays where it was recorded (0 where nothing was). METADATA ranges take no part in a schedule:
    their ends move with the host nodes around them. Nodes on or behind a cycle lose their start.

    Args:
        trace: The trace that `reconstruction` was made from, or one with the same rows.
        reconstruction: The schedule.
    """
    recorded, timed = _recorded(trace)
    origin = _origin(trace, timed)
    rebuilt = reconstruction.start_ns
    start, span = rebuilt + origin, trace.integers("span_ns", 0).copy()
    ranges = _is_metadata(trace) & trace.nodes["start_ns"].is_not_null().to_numpy()
    anchors = timed & (rebuilt >= 0)
    if anchors.any():
        order = np.argsort(recorded[anchors], kind="stable")
        before = recorded[anchors][order]
        after = np.maximum.accumulate(rebuilt[anchors][order])
        begin = _moved(recorded[ranges], before, after)
        start[ranges] = begin + origin
        span[ranges] = _moved((recorded + span)[ranges], before, after) - begin
    columns = [pl.Series("start_ns", start).set(pl.Series((rebuilt < 0) & ~ranges), None)]
    if "span_ns" in trace.nodes.columns:
        columns.append(pl.Series("span_ns", span).set(trace.nodes["span_ns"].is_null(), None))
    return trace.with_columns(columns)


def _moved(times: Int, before: Int, after: Int) -> Int:
    """Carry times over with the last anchor at or before each of them."""
    slot = np.maximum(np.searchsorted(before, times, side="right") - 1, 0)
    return times - before[slot] + after[slot]


def _is_metadata(trace: Trace) -> Bool:
    return np.asarray(trace.nodes["type"].fill_null(0).to_numpy() == NodeType.METADATA_NODE)


def _origin(trace: Trace, timed: Bool) -> int:
    starts = trace.integers("start_ns", 0)[timed]
    return int(starts.min()) if len(starts) else 0


def _recorded(trace: Trace) -> tuple[Int, Bool]:
    """Return recorded starts relative to the window's start, int64 [N], and which nodes take part, bool [N]."""
    timed = trace.nodes["start_ns"].is_not_null().to_numpy() & ~_is_metadata(trace)
    return trace.integers("start_ns", 0) - _origin(trace, timed), timed


def _quantiles(error: Int) -> StartError:
    if len(error) == 0:
        return StartError(0, 0, 0, 0)
    p50, p99 = np.quantile(error, (0.5, 0.99), method="higher")
    return StartError(int(p50), int(p99), int(error.max()), len(error))


def _by_kind(kinds: pl.Series, duration: Int) -> dict[str, int]:
    table = pl.DataFrame({"kind": kinds, "ns": duration}).drop_nulls("kind").group_by("kind").agg(pl.col("ns").sum())
    return {str(kind): int(total) for kind, total in table.sort("kind").iter_rows()}
