"""Stretches in which a device idles because its host is late, and what the host does meanwhile.

Shape letters: I idle stretches, S steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.causes import HOST_BOUND
from chakra_et.analysis.view import RankView
from chakra_et.ir.arrays import without_negatives
from chakra_et.ir.call_stack import nearest

__all__ = ["HOST_WORK", "SPANS", "HostBound", "find_host_bound"]

Int = npt.NDArray[np.int64]

SPANS: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "iteration": pl.Int64, "begin_ns": pl.Int64, "end_ns": pl.Int64, "idle_ns": pl.Int64,
    "host_bound_ns": pl.Int64, "device": pl.Int64, "stream": pl.Int64, "name": pl.String, "call": pl.String,
    "after": pl.String, "host_name": pl.String, "host_name_ns": pl.Int64, "outside_ns": pl.Int64, "module": pl.String,
}  # fmt: skip
HOST_WORK: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "iteration": pl.Int64, "name": pl.String, "spans": pl.Int64, "time_ns": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class HostBound:
    """Idle stretches of a rank's device in which its host was late.

    Attributes:
        spans: Columns of `SPANS` but the rank, and ``window``, ``follower`` (the activity that ended it, -1 for none).
        work: Columns of `HOST_WORK` but the rank.
    """

    spans: pl.DataFrame
    work: pl.DataFrame


def find_host_bound(view: RankView, activities: pl.DataFrame) -> HostBound:
    """Return the host-bound stretches of a rank, as `breakdown` tells them.

    Args:
        view: The rank.
        activities: As `launched_activities` returns them.
    """
    idle, window, steps = view.idle.stretches, view.idle.window, view.idle.steps
    follower = idle[:, 2]
    late = steps[steps[:, 2] == HOST_BOUND]
    pieces = _pieces(view, late)
    late_ns = np.bincount(late[:, 0], late[:, 3], len(idle)).astype(np.int64)
    spans = pl.DataFrame(
        {
            "span": np.arange(len(idle)),
            "window": window,
            "begin_ns": idle[:, 0],
            "end_ns": idle[:, 1],
            "host_bound_ns": late_ns,
            "follower": follower,
        }
    ).with_columns(
        view.iterations.gather(pl.Series(window)),
        idle_ns=pl.col("end_ns") - pl.col("begin_ns"),
        after=view.nodes["name"].gather(without_negatives(view.idle.resumed)),
    )
    spans = spans.hstack(activities.select("device", "stream", "name", "call")[without_negatives(follower)])
    spans = spans.filter(pl.col("host_bound_ns") > 0).join(_most(view, pieces), on="span", how="left")
    named = pieces.join(spans.select("span", "iteration"), on="span").group_by("iteration", "name")
    work = named.agg(spans=pl.col("span").n_unique().cast(pl.Int64), time_ns=pl.col("time_ns").sum())
    work = work.sort("iteration", "time_ns", "name", descending=[False, True, False])
    return HostBound(spans.select("window", "follower", *list(SPANS)[1:]), work.select(list(HOST_WORK)[1:]))


def _pieces(view: RankView, late: Int) -> pl.DataFrame:
    """Return the host's time in each stretch by name (null outside of operators), and one ``row`` of each."""
    table = pl.DataFrame({"span": late[:, 0], "row": late[:, 1], "time_ns": late[:, 3]})
    name = view.nodes["name"].gather(table["row"])
    gap = view.trace.column("gap_kind").gather(table["row"])
    table = table.with_columns(name=name.set(gap.is_not_null(), None))
    return table.group_by("span", "name", maintain_order=True).agg(pl.col("time_ns").sum(), pl.col("row").first())


def _most(view: RankView, pieces: pl.DataFrame) -> pl.DataFrame:
    """Return what takes most of each stretch's host-bound time."""
    found = (
        pieces.filter(pl.col("name").is_not_null())
        .sort("time_ns", descending=True, maintain_order=True)
        .unique("span", keep="first", maintain_order=True)
        .rename({"name": "host_name", "time_ns": "host_name_ns"})
    )
    found = found.with_columns(module=_modules(view, found["row"])).drop("row")
    outside = pieces.group_by("span").agg(outside_ns=pl.col("time_ns").filter(pl.col("name").is_null()).sum())
    return outside.join(found, on="span", how="left")


def _modules(view: RankView, rows: pl.Series) -> pl.Series:
    """Return the module path of nodes, or of the nearest above them that have one."""
    module = view.trace.column("module")
    above = nearest(view.parent_rows, module.is_not_null().to_numpy())[rows.to_numpy()]
    found: pl.Series = module.gather(without_negatives(above))
    return found
