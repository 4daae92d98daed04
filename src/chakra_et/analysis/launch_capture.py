"""Graph launches, and runs of plain launches that could become one.

Shape letters: L launches, R runs, T waits of the host.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.launch_calls import device_work, launches_graph, runtime_calls
from chakra_et.analysis.view import RankView
from chakra_et.ir import NodeType
from chakra_et.ir.arrays import sorted_unique

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
# Fewer launches in a row are hardly worth a graph; and so many names in a row tell a place in a step.
_SHORTEST = 8
_BASE = np.uint64(0x9E3779B97F4A7C15)


def find_graphs(view: RankView, table: pl.DataFrame) -> pl.DataFrame:
    """Return the graph launches of the chosen stretches, columns of `GRAPHS` but the rank.

    Args:
        view: The rank.
        table: As `launched_activities` returns it.
    """
    duration = pl.col("end_ns") - pl.col("start_ns")
    graphs = table.filter("graph").group_by("call_row", maintain_order=True).agg(
        pl.col("window", "call", "call_start_ns", "call_ns", "device", "stream").first(),
        activities=pl.len().cast(pl.Int64),
        kernels=(pl.col("category") != "memory").sum().cast(pl.Int64),
        delay_ns=pl.col("start_ns").min() - pl.col("call_start_ns").first(),
        device_ns=duration.sum(),
        span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
    )  # fmt: skip
    graphs = pl.concat([graphs, _empty_graphs(view, graphs)], how="diagonal")
    graphs = graphs.filter(pl.col("window").is_not_null()).sort("call_start_ns")
    return graphs.with_columns(iteration=view.iterations.gather(graphs["window"])).select(list(GRAPHS)[1:])


def _empty_graphs(view: RankView, graphs: pl.DataFrame) -> pl.DataFrame:
    """Return graph launches of which the profile has no activity; the stretch is that in which they are called."""
    calls = runtime_calls(view).filter(
        launches_graph(pl.col("call")) & ~pl.col("call_row").is_in(graphs["call_row"].implode())
    )
    rows = calls["call_row"].to_numpy()
    start = view.start_ns[rows]
    window = np.full(len(rows), -1, np.int64)
    for place, one in enumerate(view.windows):
        window[(start >= one.begin_ns) & (start < one.end_ns)] = place
    return pl.DataFrame(
        {
            "window": pl.Series(window, dtype=pl.Int64).set(pl.Series(window < 0), None),
            "call": calls["call"],
            "call_start_ns": start,
            "call_ns": view.duration_ns[rows],
            "activities": np.zeros(len(rows), np.int64),
            "kernels": np.zeros(len(rows), np.int64),
        }
    )


def find_capture(view: RankView, table: pl.DataFrame, late_ns: Int) -> pl.DataFrame:
    """Return runs of launches that each of the chosen stretches repeats and that the device waits for.

    Args:
        view: The rank.
        table: As `launched_activities` returns it, [A].
        late_ns: int64 [A]: device idleness before each activity that its host is to blame for, ns.

    Returns:
        Columns of `CAPTURE` but the rank.
    """
    late = pl.Series("late_ns", late_ns)
    lines = table.with_columns(late).filter(pl.col("call_row").is_not_null() & pl.col("window").is_not_null())
    lines = lines.sort("lane", "call_start_ns", "start_ns")
    if not lines.height:
        return pl.DataFrame(schema={name: CAPTURE[name] for name in list(CAPTURE)[1:]})
    fits = _fits(view, lines)
    run: Int = np.cumsum(_breaks(view, lines, fits), dtype=np.int64)
    code = lines["name"].rank("dense").to_numpy().astype(np.uint64) * _BASE
    code ^= code >> np.uint64(29)
    repeated = _repeated(code, run, lines["window"].to_numpy(), len(view.windows)) & fits
    fresh = np.ones(len(run), np.bool_)
    fresh[1:] = (run[1:] != run[:-1]) | ~repeated[:-1]
    return _candidates(view, lines, code, np.cumsum(fresh & repeated) - 1, repeated)


def _fits(view: RankView, lines: pl.DataFrame) -> Bool:
    """Return which launches a graph can hold: one activity each, none a copy that the host takes part in by waiting."""
    to_host = view.nodes["type"].gather(lines["row"]) == int(NodeType.MEM_STORE_NODE)
    fits = (pl.col("shares") == 1) & ~pl.col("graph") & (pl.col("copy_ns") == 0) & ~pl.lit(to_host)
    found: Bool = lines.select(fits.fill_null(False)).to_series().to_numpy()
    return found


def _breaks(view: RankView, lines: pl.DataFrame, fits: Bool) -> Bool:
    """Return where a run begins: after a wait of the launching threads or a launch that doesn't fit, bool [L]."""
    lane, window = lines["lane"].to_numpy(), lines["window"].to_numpy()
    found = np.ones(len(lane), np.bool_)
    found[1:] = (lane[1:] != lane[:-1]) | (window[1:] != window[:-1]) | ~fits[1:] | ~fits[:-1]
    rows = _waits(view, lines["call_row"].to_numpy())
    if len(rows):
        thread = view.trace.integers("tid")[rows]
        tids, number = np.unique(thread, return_inverse=True)
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


def _waits(view: RankView, calls: Int) -> Int:
    """Return the host's nodes that wait for the device, but launches that wait for room in the queue."""
    rows = np.flatnonzero((view.nodes["sync_deps"].list.len() > 0).to_numpy() & view.nodes["is_cpu_op"].to_numpy())
    graph = view.graph
    behind = np.zeros(len(graph.preds) + 1, np.int64)
    np.cumsum(device_work(view)[graph.preds], out=behind[1:])
    rows = rows[behind[graph.indptr[rows + 1]] > behind[graph.indptr[rows]]]
    launching = np.isin(np.where(view.trace.integers("segment", 0)[rows] > 0, view.parent_rows[rows], rows), calls)
    named = runtime_calls(view).filter(pl.col("call").str.ends_with("Synchronize"))["call_row"].to_numpy()
    return sorted_unique(np.concatenate((rows[~launching], named)))


def _repeated(code: Word, run: Int, window: Int, windows: int) -> Bool:
    """Return which launches lie in a row of names that is in every stretch, bool [L]."""
    count = len(code)
    found = np.zeros(count, np.bool_)
    if count < _SHORTEST:
        return found
    rows = np.zeros(count - _SHORTEST + 1, np.uint64)
    for place in range(_SHORTEST):
        rows = rows * _BASE + code[place : count - _SHORTEST + 1 + place]
    whole = run[_SHORTEST - 1 :] == run[: count - _SHORTEST + 1]
    first = np.flatnonzero(whole)
    pairs = pl.DataFrame({"row": rows[first], "window": window[first]})
    everywhere = pairs.select(pl.col("window").n_unique().over("row") == windows).to_series().to_numpy()
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, first[everywhere], 1)
    np.add.at(change, first[everywhere] + _SHORTEST, -1)
    found = np.cumsum(change)[:-1] > 0
    return found


def _candidates(view: RankView, lines: pl.DataFrame, code: Word, run: Int, repeated: Bool) -> pl.DataFrame:
    """Return the runs of equal names that are in every stretch, those that may gain most first."""
    place = np.arange(len(run)) - np.maximum.accumulate(np.where(np.diff(run, prepend=-2) != 0, np.arange(len(run)), 0))
    power = np.ones(len(run), np.uint64)
    power[1:] = _BASE
    power = np.cumprod(power, dtype=np.uint64)
    table = lines.with_columns(run=pl.Series(run), place=pl.Series(place), mark=pl.Series(code * power[place]))
    runs = table.filter(pl.Series(repeated)).group_by("run", maintain_order=True).agg(
        pl.col("device", "stream", "window").first(),
        pl.col("mark").sum(),
        launches=pl.len().cast(pl.Int64),
        names=pl.col("name").n_unique().cast(pl.Int64),
        first=pl.col("name").first(),
        last=pl.col("name").last(),
        device_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        call_ns=(pl.col("call_ns") - pl.col("room_ns") - pl.col("copy_ns")).sum(),
        idle_ns=pl.col("late_ns").slice(1).sum(),
    )  # fmt: skip
    windows = max(len(view.windows), 1)
    each = runs.group_by("device", "stream", "mark", "launches", maintain_order=True).agg(
        pl.col("names", "first", "last").first(),
        runs=pl.len().cast(pl.Int64),
        iterations=pl.col("window").n_unique().cast(pl.Int64),
        device_ns=pl.col("device_ns").sum() // windows,
        call_ns=pl.col("call_ns").sum() // windows,
        idle_ns=pl.col("idle_ns").sum() // windows,
    )
    saved = pl.col("call_ns") - pl.col("runs") * _one_launch(lines) // windows
    found = each.filter((pl.col("iterations") == windows) & (pl.col("idle_ns") > 0)).with_columns(
        ceiling_call_ns=saved.clip(0), ceiling_idle_ns="idle_ns"
    )
    return found.sort("ceiling_idle_ns", "ceiling_call_ns", descending=True).select(list(CAPTURE)[1:])


def _one_launch(lines: pl.DataFrame) -> int:
    """Return what a graph launch takes at least: the shortest of the profile's own, else its usual launch, ns."""
    graphs = lines.filter("graph")["call_ns"].min()
    return int(graphs if graphs is not None else lines["call_ns"].median() or 0)  # type: ignore[arg-type]
