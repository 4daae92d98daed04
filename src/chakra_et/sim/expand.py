"""Simulated times back into traces: those of a rank that stands for others go to all of them.

Shape letters: N nodes, P participants, R ranks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import NodeType, Trace, TraceSet
from chakra_et.sim.fold import Fold
from chakra_et.sim.workload import Workload

__all__ = ["expand_traces"]

Int = npt.NDArray[np.int64]


def expand_traces(
    traces: TraceSet, workload: Workload, fold: Fold, start: Int, end: Int, split: tuple[Int, Int, Int]
) -> TraceSet:
    """Return all ranks' traces with simulated times.

    Annotations (METADATA nodes outside the graph) move with the nodes around them. Ranks that share a node table, and
    that are alike, share the new one.

    Args:
        traces: The traces of all ranks.
        workload: The ranks that stand for all.
        fold: Which ranks are alike.
        start: int64 [N], ns.
        end: int64 [N], ns.
        split: Positions of participants, int64 [P]; how long each waited for the last of its meeting, and how long
            its transfer took, int64 [P].
    """
    wait = np.full(workload.node_count, -1, np.int64)
    transfer = wait.copy()
    wait[split[0]], transfer[split[0]] = split[1], split[2]
    columns: list[list[pl.Series]] = []
    for index in range(len(fold.leaders)):
        rows = slice(workload.offsets[index], workload.offsets[index + 1])
        trace = workload.traces.traces[index]
        columns.append(_times(trace, start[rows], end[rows], wait[rows], transfer[rows]))
    tables: dict[tuple[int, int], pl.DataFrame] = {}
    simulated = []
    for trace, number in zip(traces, fold.classes.tolist(), strict=True):
        key = (id(trace.nodes), number)
        if key not in tables:
            tables[key] = trace.nodes.with_columns(columns[number])
        simulated.append(replace(trace, nodes=tables[key]))
    return replace(traces, traces=tuple(simulated))


def _times(trace: Trace, start: Int, end: Int, wait: Int, transfer: Int) -> list[pl.Series]:
    """Return the time columns of one rank."""
    columns = []
    begin = start.copy()
    ranges = (trace.nodes["type"] == int(NodeType.METADATA_NODE)).fill_null(False).to_numpy()
    ranges = ranges & trace.nodes["start_ns"].is_not_null().to_numpy()
    if ranges.any():
        span = trace.integers("span_ns", 0).copy()
        begin[ranges], span[ranges] = _moved(trace, start, ranges)
        if "span_ns" in trace.nodes.columns:
            columns.append(pl.Series("span_ns", span).set(trace.nodes["span_ns"].is_null(), None))
    if (wait >= 0).any() or "wait_ns" in trace.nodes.columns:
        known = pl.Series(wait >= 0)
        columns += [pl.Series("wait_ns", wait).set(~known, None), pl.Series("transfer_ns", transfer).set(~known, None)]
    return [pl.Series("start_ns", begin), pl.Series("duration_ns", end - start), *columns]


def _moved(trace: Trace, start: Int, ranges: npt.NDArray[np.bool_]) -> tuple[Int, Int]:
    """Return begin and span of annotations: both ends move with the last node that started at or before them."""
    recorded = trace.integers("start_ns", 0)
    anchors = np.flatnonzero(trace.nodes["start_ns"].is_not_null().to_numpy() & ~ranges)
    if not len(anchors):
        return start[ranges], trace.integers("span_ns", 0)[ranges]
    order = anchors[np.argsort(recorded[anchors], kind="stable")]
    before, after = recorded[order], np.maximum.accumulate(start[order])

    def move(times: Int) -> Int:
        slot = np.maximum(np.searchsorted(before, times, side="right") - 1, 0)
        return times - before[slot] + after[slot]

    begin = move(recorded[ranges])
    return begin, move(recorded[ranges] + trace.integers("span_ns", 0)[ranges]) - begin
