"""Pictures as plain plotly JSON: the few forms that analyses share, and one color for each thing.

The colors keep apart for color-blind readers (Okabe and Ito's palette), and mean the same in every picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from chakra_et.analysis.result import Plot

__all__ = ["COLORS", "HEAT", "KIND_COLORS", "bars", "kind_color", "layout", "stacked_bars", "time_unit"]

COLORS: Mapping[str, str] = {
    "compute": "#0072B2",
    "overlapped": "#009E73",
    "exposed communication": "#D55E00",
    "communication": "#D55E00",
    "memory": "#F0E442",
    "idle": "#C8C8C8",
    "idle: host bound": "#BDBDBD",
    "idle: launch latency": "#969696",
    "idle: other stream": "#CC79A7",
    "idle: communication": "#E69F00",
    "idle: unexplained": "#636363",
    "host": "#999999",
    "other": "#999999",
}
# From nothing (white) to much.
HEAT: tuple[tuple[float, str], ...] = ((0.0, "#ffffff"), (0.1, "#fde3c8"), (0.4, "#f4a261"), (1.0, "#9c2a00"))
KIND_COLORS: tuple[str, ...] = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7A4EAB", "#8C6D31", "#999999",
)  # fmt: skip
# Classes of kernels keep their colors from picture to picture; users' own have some color each.
_OF_KIND: Mapping[str, str] = {
    "communication": COLORS["communication"], "copy": COLORS["memory"], "memset": "#CFC36B", "other": COLORS["other"],
    "gemm": "#0072B2", "attention": "#7A4EAB", "convolution": "#56B4E9", "normalization": "#009E73",
    "elementwise": "#CC79A7", "reduction": "#E69F00", "embedding": "#8C6D31", "layout": "#6A8FD8",
    "optimizer": "#66A61E", "moe": "#1B9E9E", "kv_cache": "#B2477E", "quantization": "#A6CEE3", "sampling": "#FB9A99",
    "recurrent": "#33508A",
}  # fmt: skip
_MORE = ("#A6761D", "#444444", "#B3DE69", "#80796B")
# A part of a bar that is shorter in every bar (of the bar) isn't drawn: nobody could see it.
_LEAST_SHARE = 0.002
_UNITS: tuple[tuple[float, str], ...] = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def time_unit(longest_ns: float) -> tuple[float, str]:
    """Return the unit in which a time reads best, as ns and name.

    Example:
        >>> time_unit(2_500_000)
        (1000000.0, 'ms')
    """
    return next(((size, name) for size, name in _UNITS if longest_ns >= size), (1.0, "ns"))


def kind_color(kind: str) -> str:
    """Return the color of a class of kernels.

    Example:
        >>> kind_color("communication") == COLORS["communication"]
        True
    """
    return _OF_KIND.get(kind, _MORE[sum(kind.encode()) % len(_MORE)])


def layout(*, x: str = "", y: str = "", **more: Any) -> dict[str, Any]:
    """Return a plain layout with titles of the axes and anything else that plotly takes."""
    axis: dict[str, Any] = {"automargin": True, "zeroline": False, "gridcolor": "#e8e8e8"}
    return {
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "#222"},
        "plot_bgcolor": "#fff",
        "paper_bgcolor": "#fff",
        "margin": {"l": 56, "r": 12, "t": 12, "b": 44},
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "xaxis": {**axis, "title": {"text": x}},
        "yaxis": {**axis, "title": {"text": y}},
        **more,
    }


def stacked_bars(
    table: pl.DataFrame, key: str, parts: Sequence[str], *, title: str, colors: Mapping[str, str] | None = None
) -> Plot:
    """Return one horizontal bar a row, stacked from columns in ns; parts too short to see are left out.

    Args:
        table: The rows.
        key: Column that names them.
        parts: Columns to stack, ns.
        title: What the bars are.
        colors: Color of each part; the palette's in turn where it isn't there.
    """
    total = table.select(pl.sum_horizontal(parts)).to_series()
    size, unit = time_unit(float(total.max() or 0))  # type: ignore[arg-type]
    names = [f"{key} {value}" for value in table[key]]
    data = []
    for place, part in enumerate(parts):
        shares = [value / whole if whole else 0.0 for value, whole in zip(table[part], total, strict=True)]
        if max(shares, default=0.0) < _LEAST_SHARE:
            continue
        color = (colors or {}).get(part, KIND_COLORS[place % len(KIND_COLORS)])
        data.append(
            {
                "type": "bar", "orientation": "h", "name": part, "y": names,
                "x": [round(value / size, 6) for value in table[part]],
                "customdata": [round(share, 6) for share in shares], "marker": {"color": color},
                "hovertemplate": f"%{{y}}<br>{part}: %{{x:.4g}} {unit} (%{{customdata:.1%}})<extra></extra>",
            }
        )  # fmt: skip
    shape = layout(x=f"{title}, {unit}", barmode="stack", bargap=0.25, showlegend=True)
    shape["yaxis"] |= {"autorange": "reversed", "type": "category"}
    return Plot(tuple(data), shape)


def bars(
    names: Sequence[str],
    values: Sequence[float],
    *,
    x: str,
    color: str | Sequence[str] = COLORS["compute"],
    hover: str,
) -> Plot:
    """Return one horizontal bar a name, the first on top.

    Args:
        names: Names, at the left.
        values: Lengths.
        x: Title of the axis, with its unit.
        color: Color of all bars, or of each.
        hover: Plotly's template for the pointer.
    """
    bar = {
        "type": "bar", "orientation": "h", "y": list(names), "x": list(values),
        "marker": {"color": color if isinstance(color, str) else list(color)},
        "hovertemplate": f"{hover}<extra></extra>",
    }  # fmt: skip
    shape = layout(x=x, bargap=0.25)
    shape["yaxis"] |= {"autorange": "reversed", "type": "category"}
    return Plot((bar,), shape)
