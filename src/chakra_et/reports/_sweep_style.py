"""What figures of sweeps share: sizes, colors, layout.

All figures are plain data, as plotly takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chakra_et.reports._sweep_axes import Row

__all__ = ["FAILED", "MARGINS", "WIDTH", "View", "category", "colors_of", "key_of_color", "layout_of", "points_of"]

View = dict[str, Any]

WIDTH = 1040
MARGINS = {"l": 72, "r": 130, "t": 34, "b": 52}
FAILED = "#b9b9b9"

_FONT = {"family": "system-ui, sans-serif", "size": 12, "color": "#222"}
_COLORS = {
    "compute": "#4c78a8",
    "memory": "#9ecae9",
    "host": "#b279a2",
    "latency": "#eeca3b",
    "scale_up": "#54a24b",
    "scale_out": "#e45756",
    "communication": "#f58518",
}
_MORE_COLORS = ("#72b7b2", "#ff9da6", "#9d755d", "#88d27a", "#d6a5c9", "#439894", "#83bcb6", "#79706e")


def colors_of(resources: Iterable[str]) -> dict[str, str]:
    """Return a color for each resource; the usual ones have the same in all figures."""
    names = list(dict.fromkeys(resources))
    more = iter(_MORE_COLORS * (1 + len(names) // len(_MORE_COLORS)))
    return {name: _COLORS.get(name) or next(more) for name in names}


def layout_of(height: int, *, right: int = MARGINS["r"], **more: Any) -> View:
    """Return a figure's layout.

    Args:
        height: Pixels.
        right: Margin on the right, pixels.
        **more: Other parts of the layout.
    """
    return {
        "width": WIDTH,
        "height": height,
        "margin": {**MARGINS, "r": right},
        "font": _FONT,
        "plot_bgcolor": "#f4f4f4",
        "paper_bgcolor": "#fff",
        "hoverlabel": {"align": "left", "bgcolor": "#fff", "font": {"color": "#222", "size": 12}},
        "hovermode": "closest",
        **more,
    }


def category(labels: Sequence[str], domain: Sequence[float], anchor: str, *, every: int = 1) -> View:
    """Return an axis with equally spaced labels at 0, 1, ...

    Args:
        labels: The labels.
        domain: Where the axis begins and ends, as parts of the figure.
        anchor: The other axis.
        every: 1 to show all labels, 2 for each second one, and so on.
    """
    return {
        "type": "linear",
        "tickvals": list(range(0, len(labels), every)),
        "ticktext": list(labels[::every]),
        "range": [-0.5, len(labels) - 0.5],
        "domain": list(domain),
        "anchor": anchor,
        "showgrid": False,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "rgba(0,0,0,0)",
    }


def key_of_color(name: str, color: str) -> View:
    """Return a trace that is only there for the legend."""
    marker = {"symbol": "square", "size": 12, "color": color}
    shown = {"name": name, "marker": marker, "showlegend": True}
    return {"type": "scatter", "mode": "markers", "x": [None], "y": [None], **shown}


def points_of(rows: Sequence[Row]) -> View:
    """Return the part of a trace that shows each point's text when the pointer is over it."""
    return {"customdata": [row["point"] for row in rows], "hovertemplate": "%{customdata}<extra></extra>"}
