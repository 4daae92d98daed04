"""The picture of a comparison: the way from one step to the other, and the largest changes."""

from __future__ import annotations

from typing import Any

import polars as pl

from chakra_et.analysis.charts import layout, time_unit
from chakra_et.analysis.diff_words import label, short
from chakra_et.analysis.result import Plot

__all__ = ["plot"]

_SLOWER, _FASTER, _TOTAL = "#D55E00", "#009E73", "#999999"
_PARTS = ("compute", "exposed_communication", "memory", "idle")
_BARS = 8


def plot(steps: pl.DataFrame, table: pl.DataFrame) -> Plot:
    """Return a waterfall of the parts of the step, and below it a bar for each of the largest changes.

    Args:
        steps: See `chakra_et.analysis.diff.Diff`; ranks are averaged.
        table: See there.
    """
    mean = steps.group_by("part", maintain_order=True).agg(pl.col("before_ns", "after_ns", "change_ns").mean())
    rows = {row["part"]: row for row in mean.iter_rows(named=True)}
    step = rows["step"]
    size, unit = time_unit(max(step["before_ns"], step["after_ns"]))
    ranks = steps["rank"].n_unique() if "rank" in steps.columns else 1
    names, changes = _largest(table, ranks)
    bars, axis = _changes(names, changes)
    shape = layout(y=f"time of a step, {unit}", showlegend=False, bargap=0.25, height=640)
    shape["xaxis"] |= {"type": "category", "tickangle": 0}
    shape["yaxis"] |= {"domain": [0.58, 1.0]}
    shape["xaxis2"] = {**shape["xaxis"], "type": "linear", "anchor": "y2", "title": {"text": axis}}
    shape["yaxis2"] = {
        **shape["yaxis"],
        "domain": [0.0, 0.42],
        "anchor": "x2",
        "autorange": "reversed",
        "type": "category",
        "title": {"text": ""},
    }
    return Plot((_waterfall(rows, size, unit), bars), shape)


def _waterfall(rows: dict[str, Any], size: float, unit: str) -> dict[str, Any]:
    before, after = rows["step"]["before_ns"], rows["step"]["after_ns"]
    names, bases, lengths, colors, hover = ["before"], [0.0], [before / size], [_TOTAL], [f"{before / size:.4g} {unit}"]
    reached = before
    for part in _PARTS:
        change = rows[part]["change_ns"]
        names.append(part.replace("_", "<br>"))
        bases.append(reached / size)
        lengths.append(change / size)
        colors.append(_SLOWER if change > 0 else _FASTER)
        hover.append(f"{change / size:+.4g} {unit}")
        reached += change
    names.append("after")
    bases.append(0.0)
    lengths.append(after / size)
    colors.append(_TOTAL)
    hover.append(f"{after / size:.4g} {unit}")
    return {
        "type": "bar", "x": names, "y": lengths, "base": bases, "marker": {"color": colors}, "text": hover,
        "textposition": "outside", "cliponaxis": False, "hovertemplate": "%{x}: %{text}<extra></extra>",
    }  # fmt: skip


def _largest(table: pl.DataFrame, ranks: int) -> tuple[list[str], list[float]]:
    """Return names and changes, ns, of what changed most, each ns of work once."""
    work = table.filter(
        pl.col("what").is_in(["op", "communication"]) | (pl.col("what") == "kernel") & pl.col("op").is_null()
    )
    keys = ["what", "name", "after_name", "pg_name", "shapes", "after_shapes"]
    work = work.group_by(keys, maintain_order=True).agg(pl.col("change_ns").sum() / ranks)
    work = work.filter(pl.col("change_ns") != 0).sort(pl.col("change_ns").abs(), descending=True).head(_BARS)
    work = work.sort("change_ns", descending=True)
    names: list[str] = []
    for row in work.select(keys).iter_rows(named=True):
        name = short(label(row), 48)
        # Categories of the same name would share a bar.
        names.append(f"{name} ({names.count(name) + 1})" if name in names else name)
    return names, work["change_ns"].to_list()


def _changes(names: list[str], changes: list[float]) -> tuple[dict[str, Any], str]:
    size, unit = time_unit(max(map(abs, changes), default=0.0))
    bar = {
        "type": "bar", "orientation": "h", "xaxis": "x2", "yaxis": "y2", "y": names,
        "x": [change / size for change in changes],
        "marker": {"color": [_SLOWER if change > 0 else _FASTER for change in changes]},
        "hovertemplate": f"%{{y}}: %{{x:+.4g}} {unit} a step<extra></extra>",
    }  # fmt: skip
    return bar, f"change a step, {unit}"
