"""Graph launches, and runs of plain launches that could become one.

Shape letters: L launches, R runs, T waits of the host.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.launch_calls import device_work, launches_graph
from chakra_et.analysis.view import RankView
from chakra_et.analysis.windows import locate
from chakra_et.ir import NodeType
from chakra_et.ir.arrays import sorted_unique, without_negatives

__all__ = ["CAPTURE", "GRAPHS", "find_capture", "find_graphs"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Word = npt.NDArray[np.uint64]

GRAPHS: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "iteration": pl.Int64, "call": pl.String, "call_start_ns": pl.Int64, "call_ns": pl.Int64,
    "device": pl.Int64, "stream": pl.Int64, "activities": pl.Int64, "kernels": pl.Int64, "delay_ns": pl.Int64,
    "device_ns": pl.Int64, "span_ns": pl.Int64,
}  # fmt: skip
CAPTURE: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "device": pl.Int64, "stream": pl.Int64, "launches": pl.Int64, "names": pl.Int64,
    "runs": pl.Int64, "iterations": pl.Int64, "first": pl.String, "last": pl.String, "device_ns": pl.Int64,
    "call_ns": pl.Int64, "ceiling_call_ns": pl.Int64, "ceiling_idle_ns": pl.Int64,
}  # fmt: skip
# Fewer launches in a row are hardly worth a graph.
_SHORTEST = 8
_LINE = ("row", "name", "start_ns", "end_ns", "device", "stream", "window", "lane", "call_row", "call_start_ns",
         "call_tid", "shares", "graph", "call_ns", "room_ns", "copy_ns")  # fmt: skip
_BASE = np.uint64(0x9E3779B97F4A7C15)


def find_graphs(view: RankView, table: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the graph launches of the chosen stretches, columns of `GRAPHS` but the rank.

    Args:
        view: The rank.
        table: As `launched_activities` returns it.
        calls: As `runtime_calls` returns them.
    """
    named = calls.filter(launches_graph(pl.col("call")))
    if not named.height and not table["graph"].any():
        return pl.DataFrame(schema={name: GRAPHS[name] for name in list(GRAPHS)[1:]})
    duration = pl.col("end_ns") - pl.col("start_ns")
    graphs = table.filter("graph").group_by("call_row", maintain_order=True).agg(
        pl.col("window", "call", "call_start_ns", "call_ns", "device", "stream").first(),
        activities=pl.len().cast(pl.Int64),
        kernels=(pl.col("category") != "memory").sum().cast(pl.Int64),
        delay_ns=pl.col("start_ns").min() - pl.col("call_start_ns").first(),
        device_ns=duration.sum(),
        span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
    )  # fmt: skip
    empty = named.join(graphs, on="call_row", how="anti")
    graphs = pl.concat([graphs, _empty_graphs(view, empty)], how="diagonal")
    graphs = graphs.filter(pl.col("window").is_not_null()).sort("call_start_ns")
    return graphs.with_columns(iteration=view.iterations.gather(graphs["window"])).select(list(GRAPHS)[1:])


def _empty_graphs(view: RankView, calls: pl.DataFrame) -> pl.DataFrame:
    """Return graph launches of which the profile has no activity; the stretch is that in which they are called."""
    rows = calls["call_row"].to_numpy()
    start = view.start_ns[rows]
    return pl.DataFrame(
        {
            "window": without_negatives(locate(start, *view.window_bounds)),
            "call": calls["call"],
            "call_start_ns": start,
            "call_ns": view.duration_ns[rows],
            "activities": np.zeros(len(rows), np.int64),
            "kernels": np.zeros(len(rows), np.int64),
        }
    )


def find_capture(view: RankView, table: pl.DataFrame, calls: pl.DataFrame, late_ns: Int) -> pl.DataFrame:
    """Return runs of launches that each of the chosen stretches repeats and that the device waits for.

    Args:
        view: The rank.
        table: As `launched_activities` returns it, [A].
        calls: As `runtime_calls` returns them.
        late_ns: int64 [A]: device idleness before each activity that its host is to blame for, ns.

    Returns:
        Columns of `CAPTURE` but the rank.
    """
    lines = table.select(*_LINE, pl.Series("late_ns", late_ns))
    lines = lines.filter(pl.col("call_row").is_not_null() & pl.col("window").is_not_null())
    lines = lines.sort("lane", "call_start_ns", "start_ns")
    if not lines.height:
        return pl.DataFrame(schema={name: CAPTURE[name] for name in list(CAPTURE)[1:]})
    waits = _waits(view, lines["call_row"].to_numpy(), calls)
    run: Int = np.cumsum(_breaks(view, lines, waits, _fits(view, lines)), dtype=np.int64)
    code = lines["name"].cast(pl.Categorical).to_physical().to_numpy().astype(np.int64)
    start, length = _repeated(lines, code, run, len(view.windows))
    return _candidates(lines, code, start, length, max(len(view.windows), 1))


def _fits(view: RankView, lines: pl.DataFrame) -> Bool:
    """Return which launches a graph can hold, bool [L]: of one activity, and no copy that the host waits for."""
    to_host = view.nodes["type"].gather(lines["row"]) == int(NodeType.MEM_STORE_NODE)
    fits = (pl.col("shares") == 1) & ~pl.col("graph") & (pl.col("copy_ns") == 0) & ~pl.lit(to_host)
    found: Bool = lines.select(fits.fill_null(False)).to_series().to_numpy()
    return found


def _breaks(view: RankView, lines: pl.DataFrame, rows: Int, fits: Bool) -> Bool:
    """Return where a run begins: after a wait of the launching threads or a launch that doesn't fit, bool [L]."""
    lane, window = lines["lane"].to_numpy(), lines["window"].to_numpy()
    found = np.ones(len(lane), np.bool_)
    found[1:] = (lane[1:] != lane[:-1]) | (window[1:] != window[:-1]) | ~fits[1:] | ~fits[:-1]
    if len(rows):
        thread = view.trace.integers("tid")[rows]
        tids = sorted_unique(thread)
        number = np.searchsorted(tids, thread)
        time, call = view.start_ns[rows], lines["call_start_ns"].to_numpy()
        origin = min(int(time.min()), int(call.min()))
        width = max(int(time.max()), int(call.max())) - origin + 1
        waits = np.sort(number * width + (time - origin))
        own = np.searchsorted(tids, lines["call_tid"].to_numpy())
        own = np.where(np.isin(lines["call_tid"].to_numpy(), tids), own, len(tids))
        for mine in (own[1:], own[:-1]):
            key = mine * width - origin
            between = np.searchsorted(waits, key + call[1:], "right") - np.searchsorted(waits, key + call[:-1], "right")
            found[1:] |= between > 0
    return found


def _waits(view: RankView, launching: Int, calls: pl.DataFrame) -> Int:
    """Return the host's nodes that wait for the device, but launches that wait for room in the queue."""
    waits = (view.nodes["sync_deps"].list.len() > 0) & view.nodes["is_cpu_op"].fill_null(False)
    rows = waits.arg_true().to_numpy().astype(np.int64)
    graph = view.graph
    behind = np.zeros(len(graph.preds) + 1, np.int64)
    np.cumsum(device_work(view)[graph.preds], out=behind[1:])
    rows = rows[behind[graph.indptr[rows + 1]] > behind[graph.indptr[rows]]]
    launches = np.zeros(len(view.trace) + 1, np.bool_)
    launches[launching] = True
    rows = rows[~launches[np.where(view.trace.integers("segment", 0)[rows] > 0, view.parent_rows[rows], rows)]]
    named = calls.filter(pl.col("call").str.ends_with("Synchronize"))["call_row"].to_numpy()
    return sorted_unique(np.concatenate((rows, named)))


def _repeated(lines: pl.DataFrame, code: Int, run: Int, windows: int) -> tuple[Int, Int]:
    """Return where launches begin that each stretch repeats, and how many they are, int64 [R] each.

    Those are runs of which each stretch has an equal one; of others, what the first, second, ... runs of all stretches
    have in common at their beginnings and at their ends.
    """
    starts = np.flatnonzero(np.diff(run, prepend=run[:1] - 1) != 0)
    table = pl.DataFrame(
        {"start": starts, "length": np.diff(starts, append=len(run)), "mark": _marks(code, starts, len(run))}
    ).with_columns(lines["lane", "window"][starts])
    table = table.filter(pl.col("length") >= _SHORTEST)
    everywhere = pl.col("window").n_unique() == windows
    table = table.with_columns(whole=everywhere.over("lane", "mark", "length"))
    found = table.filter("whole").select("start", "length").rows()
    rest = table.filter(~pl.col("whole")).with_columns(turn=pl.int_range(pl.len()).over("lane", "window"))
    for group in rest.filter(everywhere.over("lane", "turn")).partition_by("lane", "turn", maintain_order=True):
        found += _common_ends(code, group["start"].to_numpy(), group["length"].to_numpy())
    pieces = np.array(sorted(found), np.int64).reshape(-1, 2)
    return pieces[:, 0], pieces[:, 1]


def _common_ends(code: Int, start: Int, length: Int) -> list[tuple[int, int]]:
    """Return what runs have in common at their beginnings and ends, as start and number of launches."""
    shortest = int(length.min())
    ahead = np.arange(shortest)
    first = code[start[:, None] + ahead]
    last = code[(start + length)[:, None] - 1 - ahead]
    before, after = (int(np.append((part == part[0]).all(axis=0), False).argmin()) for part in (first, last))
    found = []
    if before >= _SHORTEST:
        found += [(int(one), before) for one in start]
    after = min(after, shortest - before)
    if after >= _SHORTEST:
        found += [(int(one) - after, after) for one in start + length]
    return found


def _marks(code: Int, starts: Int, count: int) -> Word:
    """Return a number for the codes from each start to the next in their order, uint64: equal rows have equal ones."""
    place = np.arange(count) - np.repeat(starts, np.diff(starts, append=count))
    power = np.full(count, _BASE)
    power[:1] = 1
    mixed = code.astype(np.uint64) * _BASE
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.cumprod(power, dtype=np.uint64)[place]
    found: Word = np.add.reduceat(mixed, starts)
    return found


def _candidates(lines: pl.DataFrame, code: Int, start: Int, length: Int, windows: int) -> pl.DataFrame:
    """Return the runs that begin there, equal ones as one row, those that may gain most first."""
    rows = np.repeat(start - (np.cumsum(length) - length), length) + np.arange(int(length.sum()))
    starts = np.cumsum(length) - length
    code = code[rows]
    table = lines[rows].with_columns(run=pl.Series(np.repeat(np.arange(len(length)), length)), code=pl.Series(code))
    runs = table.group_by("run", maintain_order=True).agg(
        pl.col("device", "stream", "window").first(),
        launches=pl.len().cast(pl.Int64),
        names=pl.col("code").n_unique().cast(pl.Int64),
        first=pl.col("name").first(),
        last=pl.col("name").last(),
        device_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        call_ns=(pl.col("call_ns") - pl.col("room_ns") - pl.col("copy_ns")).sum(),
        idle_ns=pl.col("late_ns").slice(1).sum(),
    )  # fmt: skip
    runs = runs.with_columns(mark=pl.Series(_marks(code, starts, len(code)) if len(code) else code.astype(np.uint64)))
    each = runs.group_by("device", "stream", "mark", "launches", maintain_order=True).agg(
        pl.col("names", "first", "last").first(),
        runs=pl.len().cast(pl.Int64),
        iterations=pl.col("window").n_unique().cast(pl.Int64),
        device_ns=pl.col("device_ns").sum() // windows,
        call_ns=pl.col("call_ns").sum() // windows,
        ceiling_idle_ns=pl.col("idle_ns").sum() // windows,
    )
    saved = pl.col("call_ns") - pl.col("runs") * _one_launch(lines) // windows
    found = each.filter(pl.col("ceiling_idle_ns") > 0).with_columns(ceiling_call_ns=saved.clip(0))
    return found.sort("ceiling_idle_ns", "ceiling_call_ns", descending=True).select(list(CAPTURE)[1:])


def _one_launch(lines: pl.DataFrame) -> int:
    """Return what a graph launch takes at least: the shortest of the profile's own, else its usual launch, ns."""
    graphs = lines.filter("graph")["call_ns"].min()
    return int(graphs if graphs is not None else lines["call_ns"].median() or 0)  # type: ignore[arg-type]
