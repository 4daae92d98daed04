"""Memory in use as a picture.

Shape letters: P points of a timeline, E stretches of an envelope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.charts import COLORS, KIND_COLORS, bars, layout, time_unit
from chakra_et.analysis.result import Plot

__all__ = ["plot_memory"]

Int = npt.NDArray[np.int64]
_LINES = 8
_STRETCHES = 200
_SIZES: tuple[tuple[int, str], ...] = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


@dataclass(frozen=True, slots=True)
class _Axes:
    """Units: ns from `origin` on in one of `time` (empty: positions), bytes in one of `size`."""

    origin: int
    scale: float
    time: str
    size: int
    unit: str


def plot_memory(timeline: pl.DataFrame, copies: pl.DataFrame) -> Plot:
    """Return step lines of memory in use; bars of bytes by kind of copy where none is known.

    One rank and device is drawn as it is, with what its allocator held. Of several, the eight with the highest peaks
    are, each by the most that it had in use in each 200th of the time; of these, all but the highest and the lowest
    wait in the legend. The host's memory is only drawn where there is no other.

    Args:
        timeline: `Memory.timeline`.
        copies: `Memory.copies`.
    """
    table = timeline.filter(pl.col("device") >= 0)
    table = table if table.height else timeline
    if not table.height:
        return _plot_copies(copies)
    if table["time_ns"].null_count():
        table = table.with_columns(time_ns=pl.int_range(pl.len()).over("rank", "device").cast(pl.Int64))
    peaks = table.group_by("rank", "device", maintain_order=True).agg(pl.col("in_use_bytes").max())
    shown = peaks.sort("in_use_bytes", descending=True, maintain_order=True).head(_LINES).sort("rank", "device")
    axes = _axes(table, timed=timeline["time_ns"].null_count() == 0)
    several = table["device"].n_unique() > 1
    data: list[dict[str, Any]] = []
    for place, (rank, device, _) in enumerate(shown.iter_rows()):
        part = table.filter(pl.col("rank") == rank, pl.col("device") == device)
        label = f"rank {rank}, device {device}" if several else f"rank {rank}"
        lines = _lines(part, label, axes, KIND_COLORS[place % len(KIND_COLORS)], alone=shown.height == 1)
        visible = place in (shown["in_use_bytes"].arg_max(), shown["in_use_bytes"].arg_min())
        data += [line | {"visible": True if visible else "legendonly"} for line in lines]
    along = f"time, {axes.time}" if axes.time else "changes, in the order of operators"
    some = "" if shown.height == 1 else f" (the most in use in each 1/{_STRETCHES} of it)"
    shape = layout(x=f"{along}{some}", y=f"in use, {axes.unit}")
    shape["yaxis"] |= {"rangemode": "tozero"}
    return Plot(tuple(data), shape)


def _axes(table: pl.DataFrame, *, timed: bool) -> _Axes:
    time, most = table["time_ns"].to_numpy(), int(table["in_use_bytes"].to_numpy().max())
    size, unit = _size_unit(most)
    if not timed:
        return _Axes(0, 1.0, "", size, unit)
    scale, name = time_unit(float(time.max() - time.min()))
    return _Axes(int(time.min()), scale, name, size, unit)


def _lines(part: pl.DataFrame, label: str, axes: _Axes, color: str, *, alone: bool) -> list[dict[str, Any]]:
    """Return the lines of one rank and device, and a mark at its peak."""
    time, in_use = part["time_ns"].to_numpy(), part["in_use_bytes"].to_numpy()
    top = int(np.argmax(in_use))
    peak = _line(f"{label}: peak", time[top : top + 1], in_use[top : top + 1], axes, color)
    peak |= {
        "mode": "markers",
        "showlegend": False,
        "legendgroup": label,
        "marker": {"color": color, "size": 8, "symbol": "diamond"},
    }
    held = part.drop_nulls("reserved_bytes")
    x, y = (time, in_use) if alone else _envelope(time, in_use)
    lines = [_line(label, x, y, axes, color) | {"legendgroup": label}]
    if alone and held.height:
        found = _line(
            "held by the allocator", held["time_ns"].to_numpy(), held["reserved_bytes"].to_numpy(), axes, color
        )
        lines.append(found | {"line": {"shape": "hv", "dash": "dot", "color": COLORS["other"]}})
    return [*lines, peak]


def _line(label: str, time: Int, values: Int, axes: _Axes, color: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": label,
        "x": ((time - axes.origin) / axes.scale).tolist(), "y": (values / axes.size).tolist(),
        "line": {"shape": "hv", "width": 1.5, "color": color},
        "hovertemplate": f"{label}<br>%{{x:.4g}} {axes.time}: %{{y:.4g}} {axes.unit}<extra></extra>",
    }  # fmt: skip


def _envelope(time: Int, values: Int) -> tuple[Int, Int]:
    """Return the beginnings of equal stretches of time, int64 [E], and the highest value in each.

    Args:
        time: int64 [P], ascending.
        values: int64 [P]: the value from then on.
    """
    edges = np.linspace(time[0], time[-1], _STRETCHES + 1).astype(np.int64)
    edges[0] = time[0]
    low = np.maximum(np.searchsorted(time, edges, side="right") - 1, 0)
    high = np.maximum(np.append(np.searchsorted(time, edges[1:], side="left"), len(time)), low + 1)
    # Every second slice is a stretch's; the last one ends at the end.
    slices = np.stack((low, high), axis=1).ravel()[:-1]
    return edges, np.maximum.reduceat(np.append(values, values.min()), slices)[::2]


def _plot_copies(copies: pl.DataFrame) -> Plot:
    total = copies.group_by("kind").agg(pl.col("bytes").sum()).sort("bytes", "kind", descending=[True, False])
    size, unit = _size_unit(max(total["bytes"].to_list(), default=0))
    values = [value / size for value in total["bytes"]]
    hover = f"%{{y}}: %{{x:.4g}} {unit}"
    return bars(total["kind"].to_list(), values, x=f"copied, {unit}", color=COLORS["memory"], hover=hover)


def _size_unit(largest: int) -> tuple[int, str]:
    return next(((size, name) for size, name in _SIZES if largest >= size), (1, "B"))
