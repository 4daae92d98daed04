"""The rows of `launches`: what each activity, idle stretch and queue tells, added up.

Shape letters: A activities, W windows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.expressions import known_sum
from chakra_et.analysis.launch_calls import lanes_of
from chakra_et.analysis.launch_queue import QUEUE, measure_queue, queue_points, queue_steps
from chakra_et.analysis.view import RankView

__all__ = ["COLUMNS", "SHORT", "add_up", "facts_of", "queue_of", "short_of"]

Int = npt.NDArray[np.int64]

_P = (50, 90)
COLUMNS: tuple[str, ...] = (
    "span_ns", "activities", "unlinked", "calls", "call_ns", "call_mean_ns", "call_p50_ns", "call_p90_ns",
    "call_max_ns", "delay_mean_ns", "delay_p50_ns", "delay_p90_ns", "delay_max_ns", "after_call_min_ns",
    "after_call_mean_ns", "after_call_p50_ns", "after_call_p90_ns", "after_call_max_ns", "within_call",
    "latency_count", "latency_mean_ns", "latency_p50_ns", "latency_p90_ns", "latency_max_ns", "queue_max",
    "queue_mean", "queue_empty_ns", "queue_empty_share", "blocked_calls", "blocked_ns", "copy_wait_ns",
    "host_bound_spans", "host_bound_ns", "kernels", "short_kernels", "short_share", "short_time_ns", "short_call_ns",
    "graph_launches", "graph_activities", "graph_share", "graph_call_ns", "graph_device_ns",
)  # fmt: skip
# What is added up, and isn't known where no call is.
_OF_LINKED: tuple[str, ...] = (
    "call_ns", "blocked_calls", "blocked_ns", "copy_wait_ns", "kernels", "short_kernels", "short_time_ns",
    "short_call_ns", "graph_launches", "graph_activities", "graph_call_ns", "graph_device_ns",
)  # fmt: skip
SHORT: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "name": pl.String, "kind": pl.String, "launches": pl.Int64, "short_launches": pl.Int64,
    "time_ns": pl.Int64, "call_ns": pl.Int64, "excess_ns": pl.Int64,
}  # fmt: skip


def facts_of(view: RankView, table: pl.DataFrame, spans: pl.DataFrame | None, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return one row for each activity in a chosen stretch, for each host-bound stretch, and for each queue and window.

    Args:
        view: The rank.
        table: As `launched_activities` returns it.
        spans: Host-bound stretches; None where nothing tells what the host did.
        keys: What rows are told apart by.

    Returns:
        The keys, and what `add_up` adds up; null where a row doesn't tell it.
    """
    inner = [key for key in keys if key not in ("rank", "iteration")]
    parts = [_of_activities(table), _of_queues(view, table, inner)]
    told = pl.lit(None if spans is None else 0, pl.Int64)
    parts[0] = parts[0].with_columns(host_bound_ns=told, host_bound_spans=told)
    if spans is not None:
        names = ("window", "device", "stream", "call", "host_bound_ns")
        parts.append(spans.select(*names, host_bound_spans=pl.lit(1, pl.Int64)))
    facts = pl.concat(parts, how="diagonal")
    return facts.with_columns(rank=pl.lit(view.rank, pl.Int64), iteration=view.iterations.gather(facts["window"]))


def _of_activities(table: pl.DataFrame) -> pl.DataFrame:
    linked, leads = pl.col("call_row").is_not_null(), pl.col("leads")
    duration = pl.col("end_ns") - pl.col("start_ns")
    cost = pl.col("call_ns") - pl.col("room_ns") - pl.col("copy_ns")
    alone = (pl.col("category") != "memory") & (pl.col("shares") == 1)
    short = alone & (cost > duration)
    one = pl.lit(1, pl.Int64)
    return table.filter(pl.col("window").is_not_null()).select(
        "window", "device", "stream", "call", "call_ns", "latency_ns", "name", "kind",
        activities=one,
        unlinked=(~linked).cast(pl.Int64),
        calls=leads.cast(pl.Int64),
        delay_ns=pl.col("start_ns") - pl.col("call_start_ns"),
        after_call_ns=pl.col("start_ns") - pl.col("call_end_ns"),
        blocked_calls=(pl.col("room_ns") > 0).cast(pl.Int64),
        blocked_ns="room_ns",
        copy_wait_ns="copy_ns",
        kernels=pl.when(linked).then(alone.cast(pl.Int64)),
        short_kernels=pl.when(linked).then(short.fill_null(False).cast(pl.Int64)),
        short_time_ns=pl.when(short).then(duration),
        short_call_ns=pl.when(short).then(cost),
        graph_launches=pl.when(linked).then((pl.col("graph") & leads).cast(pl.Int64)),
        graph_activities=pl.when(linked).then(pl.col("graph").cast(pl.Int64)),
        graph_call_ns=pl.when(pl.col("graph")).then("call_ns"),
        graph_device_ns=pl.when(pl.col("graph")).then(duration),
    )  # fmt: skip


def _of_queues(view: RankView, table: pl.DataFrame, inner: list[str]) -> pl.DataFrame:
    """Return each window's length, and what it sees of the queue of each combination of keys."""
    windows = pl.DataFrame(
        {"window": np.arange(len(view.windows)), "span_ns": view.window_bounds[1] - view.window_bounds[0]},
        schema={"window": pl.Int64, "span_ns": pl.Int64},
    )
    known = table.filter(pl.col("call_row").is_not_null())
    if not known.height:
        none = pl.lit(None, pl.Int64)
        windows = windows.with_columns(queue_area=none, queue_max=none, queue_empty_ns=none)
        return windows.clear() if inner or not table.height else windows
    lane = lanes_of(known, inner)
    names = known.select(lane, *inner).unique("lane") if inner else pl.DataFrame({"lane": [0]})
    found = measure_queue(_steps(known, lane), names.height, *view.window_bounds).join(names, on="lane").drop("lane")
    return found.join(windows, on="window")


def queue_of(view: RankView, table: pl.DataFrame) -> pl.DataFrame:
    """Return the queue of each stream in the chosen stretches, columns of `QUEUE`.

    Args:
        view: The rank.
        table: As `launched_activities` returns it.
    """
    known = table.filter(pl.col("call_row").is_not_null())
    names = known.select("lane", "device", "stream").unique("lane")
    found = _steps(known, known["lane"])
    begins, ends = view.window_bounds
    if len(found[1]) and len(begins) and view.windows[0].iteration is None:
        # What was launched before the first activity started is the profile's too.
        begins, ends = np.minimum(begins, found[1].min()), np.maximum(ends, found[1].max() + 1)
    points = queue_points(found, int(table["lane"].n_unique()), begins, ends).join(
        names, on="lane", maintain_order="left"
    )
    return points.with_columns(
        rank=pl.lit(view.rank, pl.Int64), iteration=view.iterations.gather(points["window"])
    ).select(list(QUEUE))


def _steps(known: pl.DataFrame, lane: pl.Series) -> tuple[Int, Int, Int]:
    return queue_steps(known["call_start_ns"].to_numpy(), known["start_ns"].to_numpy(), lane.to_numpy())


def short_of(facts: pl.DataFrame) -> pl.DataFrame:
    """Return kernels that took less time than their calls, by name, columns of `SHORT`.

    Args:
        facts: As `facts_of` returns them.
    """
    found = facts.filter(pl.col("kernels") > 0).group_by("rank", "name", "kind").agg(
        launches=pl.len().cast(pl.Int64),
        short_launches=pl.col("short_kernels").sum(),
        time_ns=pl.col("short_time_ns").sum(),
        call_ns=pl.col("short_call_ns").sum(),
        excess_ns=pl.col("short_call_ns").sum() - pl.col("short_time_ns").sum(),
    )  # fmt: skip
    found = found.filter(pl.col("short_launches") > 0).sort("excess_ns", "name", descending=[True, False])
    return found.select(list(SHORT))


def add_up(facts: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return the rows: the keys and `COLUMNS`."""
    linked = pl.col("unlinked").sum() < pl.col("activities").sum()
    sums = ("activities", "unlinked", "calls")
    found = facts.group_by(keys).agg(
        *(pl.col(name).sum().cast(pl.Int64) for name in sums),
        *_spread("call"),
        *_spread("delay"),
        pl.col("after_call_ns").min().alias("after_call_min_ns"),
        *_spread("after_call"),
        pl.when(linked).then((pl.col("after_call_ns") < 0).sum().cast(pl.Int64)).alias("within_call"),
        pl.when(linked).then(pl.col("latency_ns").count().cast(pl.Int64)).alias("latency_count"),
        *_spread("latency"),
        *(known_sum(name) for name in ("span_ns", "queue_area", "queue_empty_ns")),
        pl.col("queue_max").max(),
        *(known_sum(name) for name in ("host_bound_spans", "host_bound_ns")),
        *(known_sum(name, linked) for name in _OF_LINKED),
        queue_span_ns=pl.col("span_ns").filter(pl.col("queue_area").is_not_null()).sum(),
    )  # fmt: skip
    found = found.filter((pl.col("activities") > 0) | pl.col("span_ns").is_not_null())
    # A queue that holds none of a row's activities tells nothing of them.
    lost = (pl.col("activities") > 0) & (pl.col("unlinked") == pl.col("activities"))
    found = found.with_columns(
        pl.when(~lost).then(pl.col(name)).alias(name) for name in ("queue_area", "queue_max", "queue_empty_ns")
    )
    wide = pl.col("queue_span_ns")
    return found.with_columns(
        queue_mean=pl.when(wide > 0).then(pl.col("queue_area") / wide),
        queue_empty_share=pl.when(wide > 0).then(pl.col("queue_empty_ns") / wide),
        short_share=pl.when(pl.col("kernels") > 0).then(pl.col("short_kernels") / pl.col("kernels")),
        graph_share=pl.when(pl.col("activities") > 0).then(pl.col("graph_activities") / pl.col("activities")),
    ).select(*keys, *COLUMNS).sort(keys)  # fmt: skip


def _spread(name: str) -> list[pl.Expr]:
    """Return the mean, percentiles and largest of a time in whole ns; null without any."""
    column = pl.col(f"{name}_ns")
    found = [column.quantile(part / 100, "nearest").cast(pl.Int64).alias(f"{name}_p{part}_ns") for part in _P]
    return [*found, column.mean().round().cast(pl.Int64).alias(f"{name}_mean_ns"), column.max().alias(f"{name}_max_ns")]
