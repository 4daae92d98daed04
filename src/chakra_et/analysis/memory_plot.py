"""Memory in use as a picture."""

from __future__ import annotations

from typing import Any

import polars as pl

from chakra_et.analysis.charts import COLORS, KIND_COLORS, bars, layout, time_unit
from chakra_et.analysis.result import Plot

__all__ = ["plot_memory"]

_LINES = 8
_SIZES: tuple[tuple[int, str], ...] = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def plot_memory(timeline: pl.DataFrame, copies: pl.DataFrame) -> Plot:
    """Return step lines of memory in use, and what allocators held; bars of bytes by kind of copy where none is known.

    Args:
        timeline: `Memory.timeline`. The eight rank and devices with the highest peaks are drawn; the host's memory
            only where there is no other.
        copies: `Memory.copies`.
    """
    table = timeline.filter(pl.col("device") >= 0)
    table = table if table.height else timeline
    if not table.height:
        return _plot_copies(copies)
    peaks = table.group_by("rank", "device", maintain_order=True).agg(pl.col("in_use_bytes").max())
    shown = peaks.sort("in_use_bytes", descending=True, maintain_order=True).head(_LINES).sort("rank", "device")
    several = table["device"].n_unique() > 1
    size, unit = _size_unit(int(shown["in_use_bytes"].max() or 0))  # type: ignore[arg-type]
    timed = table["time_ns"].null_count() == 0
    origin = int(table["time_ns"].min()) if timed else 0  # type: ignore[arg-type]
    span = int(table["time_ns"].max()) - origin if timed else 0  # type: ignore[arg-type]
    scale, name = time_unit(span) if timed else (1.0, "")
    data: list[dict[str, Any]] = []
    for place, (rank, device, _) in enumerate(shown.iter_rows()):
        part = table.filter(pl.col("rank") == rank, pl.col("device") == device)
        x = [(time - origin) / scale for time in part["time_ns"]] if timed else list(range(part.height))
        label = f"rank {rank}" + (f", device {device}" if several else "")
        color = KIND_COLORS[place % len(KIND_COLORS)]
        data.append(_line(label, x, part["in_use_bytes"], size, unit, color, f" {name}" if timed else ""))
        if shown.height == 1 and part["reserved_bytes"].null_count() < part.height:
            held = _line("held by the allocator", x, part["reserved_bytes"], size, unit, COLORS["idle"], f" {name}")
            data.append(held | {"line": {"shape": "hv", "dash": "dot", "color": COLORS["other"]}})
        data.append(_peak(label, x, part["in_use_bytes"], size, unit, color))
    shape = layout(x=f"time, {name}" if timed else "changes, in the order of operators", y=f"memory in use, {unit}")
    shape["yaxis"] |= {"rangemode": "tozero"}
    return Plot(tuple(data), shape)


def _line(label: str, x: list[float], values: pl.Series, size: int, unit: str, color: str, time: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": label, "x": x,
        "y": [None if value is None else value / size for value in values],
        "line": {"shape": "hv", "width": 1.5, "color": color},
        "hovertemplate": f"{label}<br>%{{x:.4g}}{time}: %{{y:.4g}} {unit}<extra></extra>",
    }  # fmt: skip


def _peak(label: str, x: list[float], values: pl.Series, size: int, unit: str, color: str) -> dict[str, Any]:
    point = int(values.arg_max() or 0)
    return {
        "type": "scatter", "mode": "markers", "name": f"{label}: peak", "showlegend": False, "x": [x[point]],
        "y": [values[point] / size], "marker": {"color": color, "size": 8, "symbol": "diamond"},
        "hovertemplate": f"{label}: peak %{{y:.4g}} {unit}<extra></extra>",
    }  # fmt: skip


def _plot_copies(copies: pl.DataFrame) -> Plot:
    total = copies.group_by("kind").agg(pl.col("bytes").sum(), pl.col("copies").sum())
    total = total.sort("bytes", "kind", descending=[True, False])
    size, unit = _size_unit(int(total["bytes"].max() or 0))  # type: ignore[arg-type]
    values = [value / size for value in total["bytes"]]
    hover = f"%{{y}}: %{{x:.4g}} {unit}"
    return bars(total["kind"].to_list(), values, x=f"copied, {unit}", color=COLORS["memory"], hover=hover)


def _size_unit(largest: int) -> tuple[int, str]:
    return next(((size, name) for size, name in _SIZES if largest >= size), (1, "B"))
