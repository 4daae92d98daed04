"""The runtime calls that launched a rank's activities: what each took, and what it waited for.

Shape letters: A activities, C calls, N nodes, S later segments of calls.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.latest import latest_ends
from chakra_et.analysis.launch_queue import length_at_call
from chakra_et.analysis.view import RankView

__all__ = ["device_work", "lanes_of", "launched_activities", "launches_graph", "runtime_calls"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# What graph launches' names begin with: suffixes tell versions and kinds of default streams.
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
# CUDA's queue holds 1,024 commands; records and waits of events take some that no activity shows.
_LONG_QUEUE = 896
# A call is far longer than usual if it takes so many times what is usual, and some more.
_TIMES, _MARGIN_NS = 3, 10_000
_NEVER = np.iinfo(np.int64).min


def device_work(view: RankView) -> Bool:
    """Return which nodes are the device's activities, bool [N]."""
    found = np.zeros(len(view.trace), np.bool_)
    found[view.activities["row"].to_numpy()] = True
    return found


def launches_graph(name: pl.Expr) -> pl.Expr:
    """Return which names are those of graph launches."""
    return pl.any_horizontal(name.str.starts_with(word) for word in _GRAPH_LAUNCHES)


def runtime_calls(view: RankView) -> pl.DataFrame:
    """Return the calls of the runtime and driver: ``call_row`` (their first nodes) and ``call`` (their names)."""
    rows = pl.Series("call_row", [], dtype=pl.Int64)
    if "correlation" in view.nodes.columns:
        known = view.nodes["correlation"].is_not_null() & view.nodes["is_cpu_op"].fill_null(False)
        rows = known.arg_true().cast(pl.Int64).alias("call_row")
    return pl.DataFrame([rows, view.nodes["name"].gather(rows).alias("call")])


def lanes_of(table: pl.DataFrame, keys: list[str]) -> pl.Series:
    """Return numbers 0, 1, ... of the rows' combinations of keys, int64; all 0 without keys."""
    if not keys:
        return pl.repeat(0, table.height, dtype=pl.Int64, eager=True)
    return table.select(lane=pl.struct(keys).rank("dense").cast(pl.Int64) - 1)["lane"]


def launched_activities(view: RankView) -> pl.DataFrame:
    """Return the activities with what is known of their launches, [A].

    Returns:
        The columns of `RankView.activities` and `RankView.launches`, and ``lane`` (number of the stream), ``call``
        (name of the call), ``leads`` (the activity is the first of its call: what a call took is told there alone),
        ``shares`` (activities of the call), ``graph`` (a graph launch), ``call_ns``, ``room_ns`` and ``copy_ns`` (of
        that, the call waited for older work, that is for room in the queue, or for its own copy), ``guessed`` (the
        wait for room is told by the call's length and the queue's, and not by the trace), ``latency_ns`` (from the
        call's start to the start of a kernel that had nothing to wait for; null for others).
    """
    table = view.activities.hstack(view.launches)
    table = table.with_columns(lanes_of(table, ["device", "stream"]), call=view.nodes["name"].gather(table["call_row"]))
    known = pl.col("call_row").is_not_null()
    leads = pl.col("call_row").is_first_distinct() & known
    table = table.with_columns(
        leads=leads,
        shares=pl.when(known).then(pl.len().over("call_row").cast(pl.Int64)),
        graph=launches_graph(pl.col("call")).fill_null(False),
        call_ns=pl.when(leads).then(pl.col("call_end_ns") - pl.col("call_start_ns")),
    )
    room, copy = _told_waits(view, table["call_row"].fill_null(-1).to_numpy())
    table = table.with_columns(room_ns=pl.Series(room), copy_ns=pl.Series(copy))
    latency = (table["start_ns"] - table["call_start_ns"]).set(pl.Series(~_unhindered(view, table)), None)
    return _guess_waits(view, table).with_columns(latency_ns=latency)


def _told_waits(view: RankView, call: Int) -> tuple[Int, Int]:
    """Return how long the call of each activity waited for room in the queue, and for its own copy, int64 [A] each.

    A call that waited is cut: the segment after the wait depends on the device's work that ended it.
    """
    count = len(view.trace)
    room, copy = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    later = _later_segments(view, call)
    if len(later):
        root, graph = view.parent_rows[later], view.graph
        edges = graph.indptr[later + 1] - graph.indptr[later]
        of = np.repeat(np.arange(len(later)), edges)
        first = graph.indptr[later] - (np.cumsum(edges) - edges)
        pred = graph.preds[np.arange(len(of)) + np.repeat(first, edges)]
        launcher = np.full(count, -1, np.int64)
        launcher[view.activities["row"].to_numpy()] = call
        device = device_work(view)[pred]
        waited = np.maximum(view.start_ns[later] - _end_before(view, later), 0)
        for own, found in ((False, room), (True, copy)):
            behind = np.zeros(len(later), np.bool_)
            behind[of[device & ((launcher[pred] == root[of]) == own)]] = True
            np.add.at(found, root[behind], waited[behind])
    return room[call], copy[call]


def _later_segments(view: RankView, call: Int) -> Int:
    """Return the segments of calls after their first, by call and time, int64 [S]."""
    if "segment" not in view.nodes.columns:
        return np.empty(0, np.int64)
    is_call = np.zeros(len(view.trace) + 1, np.bool_)
    is_call[call[call >= 0]] = True
    later = np.flatnonzero(view.trace.integers("segment", 0) > 0)
    later = later[is_call[view.parent_rows[later]]]
    return later[np.lexsort((view.start_ns[later], view.parent_rows[later]))]


def _end_before(view: RankView, later: Int) -> Int:
    """Return when the segment before each later one of the same call ended, int64 [S]."""
    end, root = view.start_ns + view.duration_ns, view.parent_rows[later]
    before: Int = end[root]
    same = root[1:] == root[:-1]
    before[1:] = np.where(same, end[later[:-1]], before[1:])
    return before


def _guess_waits(view: RankView, table: pl.DataFrame) -> pl.DataFrame:
    """Add waits that the trace doesn't tell, but that calls far longer than usual show.

    While the queue is long, such a call waits for room in it; one that copies from or to the host, and returns after
    the copy began, waits for the copy.
    """
    known, leads = (table["call_row"].is_not_null().to_numpy(), table["leads"].to_numpy())
    begin, end, start, took, lane = (
        table[name].fill_null(0).to_numpy() for name in ("call_start_ns", "call_end_ns", "start_ns", "call_ns", "lane")
    )
    room, copy = (table[name].to_numpy() for name in ("room_ns", "copy_ns"))
    length = np.zeros(table.height, np.int64)
    length[known] = length_at_call(begin[known], start[known], lane[known])
    usual = table.select(usual=pl.col("call_ns").median().over("call").cast(pl.Int64).fill_null(0))["usual"].to_numpy()
    untold = leads & (took > _TIMES * usual + _MARGIN_NS) & (room + copy == 0)
    kinds = view.trace.column("copy_kind").gather(table["row"])
    waits = untold & kinds.is_in(["HtoD", "DtoH", "HtoH"]).fill_null(False).to_numpy() & (start < end)
    crowded = untold & ~waits & (length >= _LONG_QUEUE)
    none = pl.Series(~leads)
    return table.with_columns(
        room_ns=pl.Series(np.where(crowded, took - usual, room)).set(none, None),
        copy_ns=pl.Series(np.where(waits, took - usual, copy)).set(none, None),
        guessed=pl.Series(crowded),
    )


def _unhindered(view: RankView, table: pl.DataFrame) -> Bool:
    """Return which activities are kernels that could start at once when their call began, bool [A]."""
    before = pl.col("end_ns").cum_max().shift().over("lane").fill_null(_NEVER)
    free = (before <= pl.col("call_start_ns")) & (pl.col("category") != "memory")
    found: Bool = table.select(free.fill_null(False)).to_series().to_numpy().copy()
    gap = view.trace.column("gap_kind")
    # Who starts behind a gap that nothing explains waited for something.
    waited = device_work(view) | (gap == "unexplained").fill_null(False).to_numpy() & (view.duration_ns > 0)
    graph = view.graph
    rows = table["row"].to_numpy()[found]
    last = latest_ends(
        rows, graph.indptr, graph.preds, view.start_ns + view.duration_ns, gap.is_not_null().to_numpy(), waited
    )
    found[found] = last <= table["call_start_ns"].to_numpy()[found]
    return found
