"""What each row of a trace is to a replay: an operator and its range, who called it, which iteration it is in.

Shape letters: N nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import NodeType, Trace
from chakra_et.ir.call_stack import parent_rows
from chakra_et.ir.communications import is_communication
from chakra_et.ir.cut import iterations
from chakra_et.ir.graph import positions

__all__ = ["HostRows", "Window", "host_rows", "windows_of"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_STEP = re.compile(r"^ProfilerStep#(\d+)$")


@dataclass(frozen=True, slots=True, eq=False)
class HostRows:
    """The host's calls of one trace.

    Attributes:
        parent: int64 [N]: position of the caller, -1 for none.
        is_call: bool [N]: the row begins a call on the host: it is no later segment, gap or annotation, and not part of
            what a communication does on its own thread.
        start: int64 [N], ns.
        end: int64 [N], ns: when the call returned, with all that it called on its thread.
        device_ns: int64 [N]: time of the kernels that the call, or what it called, launched.
        own_device_ns: int64 [N]: time of the kernels that it launched itself.
        tid: int64 [N]: thread, -1 if unknown.
        has_times: False if the trace was recorded without times.
    """

    parent: Int
    is_call: Bool
    start: Int
    end: Int
    device_ns: Int
    own_device_ns: Int
    tid: Int
    has_times: bool


@dataclass(frozen=True, slots=True)
class Window:
    """One recorded iteration.

    Attributes:
        number: Its number in the marker; None: the trace has no markers, and this is all of it.
        begin_ns: Recorded start; 0 without times.
        end_ns: Recorded end; 0 without times.
        rows: Positions of its first row, and behind its last.
    """

    number: int | None
    begin_ns: int
    end_ns: int
    rows: tuple[int, int]


def host_rows(trace: Trace) -> HostRows:
    """Find the host's calls of a trace."""
    nodes = trace.nodes
    parent = _parents(trace)
    gap = trace.column("gap_kind").is_not_null().to_numpy()
    host = nodes["is_cpu_op"].fill_null(True).to_numpy() & ~gap
    note = (nodes["type"] == int(NodeType.METADATA_NODE)).to_numpy()
    later = trace.integers("segment", fill=0) > 0
    start = trace.integers("start_ns", fill=0)
    duration = np.maximum(trace.integers("duration_ns", fill=0), 0)
    tid = trace.integers("tid")
    activity = ~nodes["is_cpu_op"].fill_null(True).to_numpy() & ~gap & ~note
    end, device, own = _ends(parent, start, duration, tid, host, activity)
    has_times = bool(nodes["start_ns"].is_not_null().any() and duration.any())
    workers = _workers(nodes, parent, tid, host)
    return HostRows(parent, host & ~note & ~later & ~np.isin(tid, workers), start, end, device, own, tid, has_times)


def windows_of(trace: Trace, rows: HostRows) -> tuple[Window, ...]:
    """Return the iterations of a trace in recorded order; one that is all of it, where nothing marks them."""
    count = len(trace)
    marked = iterations(trace) if rows.has_times else {}
    if marked:
        found = []
        for number, (begin, end) in sorted(marked.items(), key=lambda item: item[1]):
            inside = np.flatnonzero(rows.is_call & (rows.start >= begin) & (rows.start < end))
            span = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
            found.append(Window(number, begin, end, span))
        return tuple(found)
    markers = trace.nodes.with_row_index("row").filter(
        (pl.col("type") == int(NodeType.METADATA_NODE)) & pl.col("name").str.starts_with("ProfilerStep#")
    )
    places = [(int(m.group(1)), row) for row, name in markers.select("row", "name").rows() if (m := _STEP.match(name))]
    if not places:
        called = np.flatnonzero(rows.is_call) if rows.has_times else ()
        begin, end = (int(rows.start[called].min()), int(rows.end[called].max())) if len(called) else (0, 0)
        return (Window(None, begin, end, (0, count)),)
    ends = [row for _, row in places[1:]] + [count]
    return tuple(Window(number, 0, 0, (row, end)) for (number, row), end in zip(places, ends, strict=True))


def _parents(trace: Trace) -> Int:
    """Return the callers; files that others wrote name them in their control dependencies."""
    if "parent" in trace.nodes.columns or trace.metadata.typed_edges:
        return parent_rows(trace)
    first = trace.nodes["ctrl_deps"].list.first().cast(pl.Int64).fill_null(-1).to_numpy()
    found = positions(trace.nodes["id"].to_numpy(), np.maximum(first, 0).astype(np.uint64))
    return np.where(first >= 0, found, -1)


def _workers(nodes: pl.DataFrame, parent: Int, tid: Int, host: Bool) -> Int:
    """Return the threads that communications of the host run on: what else runs there is part of them."""
    communicates = host & nodes.select(is_communication()).to_series().to_numpy()
    rows = np.flatnonzero(communicates & (parent >= 0))
    return np.unique(tid[rows][tid[rows] != tid[parent[rows]]])


def _ends(parent: Int, start: Int, duration: Int, tid: Int, host: Bool, activity: Bool) -> tuple[Int, Int, Int]:
    """Sum up from the leaves: callees stand behind their callers."""
    ends, device = (start + duration).tolist(), [0] * len(parent)
    own = np.zeros(len(parent), np.int64)
    above, threads, on_host, busy, took = (a.tolist() for a in (parent, tid, host, activity, duration))
    for row in range(len(above) - 1, -1, -1):
        caller = above[row]
        if not 0 <= caller < row:
            continue
        if busy[row]:
            device[caller] += took[row]
            own[caller] += took[row]
        elif on_host[row]:
            device[caller] += device[row]
            if threads[row] == threads[caller] and ends[row] > ends[caller]:
                ends[caller] = ends[row]
    return np.array(ends, np.int64), np.array(device, np.int64), own
