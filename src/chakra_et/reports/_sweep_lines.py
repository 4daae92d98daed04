"""Lines and bars of a sweep: the step time over one key, or of each point, and where it goes."""

from __future__ import annotations

from collections.abc import Sequence

from chakra_et.reports._page import Figure
from chakra_et.reports._sweep_axes import Axis, Row, unit_of_times
from chakra_et.reports._sweep_style import (
    FAILED,
    MARGINS,
    View,
    category,
    colors_of,
    key_of_color,
    layout_of,
    points_of,
)

__all__ = ["MOST_BARS", "bars", "lines"]

MOST_BARS = 40

_HEIGHT = 400
_BAR = 24
_LEAST_HEIGHT = 140  # pixels that a legend needs
_RIGHT = 190
_MOST_TICKS = 12
_LEGEND = {"x": 1.01, "y": 1}
_GRID = "#ddd"
# Where the largest value is this many times the smallest, the axis is logarithmic.
_LOGARITHMIC = 8


def lines(rows: Sequence[Row], axis: Axis, base: Row) -> tuple[Figure, ...]:
    """Return the step time over one key, and what the critical paths' time goes to.

    Args:
        rows: The points.
        axis: The key.
        base: The base.
    """
    done = sorted(_done(rows), key=lambda row: axis.values.index(row[axis.column]))
    unit, factor = unit_of_times(max(row["finish_ns"] for row in done))
    x = [float(row[axis.column]) for row in done]
    colors = colors_of(sorted({row["bound_by"] for row in done if row["bound_by"]}))
    markers = {"size": 10, "color": [colors.get(row["bound_by"], FAILED) for row in done]}
    line: View = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "y": [row["finish_ns"] / factor for row in done],
        "line": {"color": "#888"},
        "marker": markers,
        "showlegend": False,
        **points_of(done),
    }
    data = [line, *(key_of_color(f"bound by {name}", color) for name, color in colors.items())]
    kind = "log" if min(x) > 0 and max(x) / min(x) >= _LOGARITHMIC else "linear"
    ticks = {"tickvals": x, "ticktext": [axis.label(row[axis.column]) for row in done]} if len(x) <= _MOST_TICKS else {}
    across = {"title": {"text": axis.title}, "type": kind, "gridcolor": _GRID, **ticks}
    up = {"title": {"text": f"step time, {unit}"}, "rangemode": "tozero", "gridcolor": _GRID}
    shapes = _base_line(base, factor, along="x")
    layout = layout_of(_HEIGHT, right=_RIGHT, xaxis=across, yaxis=up, legend=_LEGEND, shapes=shapes)
    view: dict[tuple[str, ...], View] = {(): {"data": data, "layout": layout}}
    remark = "Dotted: the base." if shapes else ""
    time = Figure("time", f"Step time over {axis.key}", remark, (), view, _HEIGHT)
    return time, _shares(done, axis, unit, factor)


def _done(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["finish_ns"] is not None]


def _base_line(base: Row, factor: float, *, along: str) -> list[View]:
    if base["finish_ns"] is None:
        return []
    across, at = along, "y" if along == "x" else "x"
    value = base["finish_ns"] / factor
    ends = {f"{across}ref": "paper", f"{across}0": 0, f"{across}1": 1, f"{at}ref": at, f"{at}0": value, f"{at}1": value}
    return [{"type": "line", **ends, "line": {"color": "#d62728", "width": 1.5, "dash": "dot"}}]


def _shares(rows: Sequence[Row], axis: Axis, unit: str, factor: float) -> Figure:
    """Return upright bars of what the critical paths' time goes to."""
    data = [{**bar, "x": list(range(len(rows))), "y": values} for bar, values in _parts(rows, factor)]
    across = {**category([axis.label(row[axis.column]) for row in rows], (0, 1), "y"), "title": {"text": axis.title}}
    up = {"title": {"text": f"critical path, {unit}"}, "gridcolor": _GRID}
    layout = layout_of(_HEIGHT, right=_RIGHT, barmode="stack", xaxis=across, yaxis=up, legend=_LEGEND)
    view: dict[tuple[str, ...], View] = {(): {"data": data, "layout": layout}}
    remark = "The critical path is the chain of nodes that the last rank to end waited for."
    return Figure("bounds", "Where the time goes", remark, (), view, _HEIGHT)


def _parts(rows: Sequence[Row], factor: float) -> list[tuple[View, list[float]]]:
    """Return a trace, and its values, for each resource on the critical paths, the largest first."""
    columns = [name for name in rows[0] if name.startswith("critical_")]
    total = {column: sum(row[column] for row in rows) for column in columns}
    names = {column: column.removeprefix("critical_").removesuffix("_ns") for column in columns if total[column]}
    colors = colors_of(names.values())
    return [
        (
            {"type": "bar", "name": names[one], "marker": {"color": colors[names[one]]}, **points_of(rows)},
            [row[one] / factor for row in rows],
        )
        for one in sorted(names, key=lambda column: -total[column])
    ]


def bars(rows: Sequence[Row], base: Row, named: Sequence[str]) -> tuple[Figure, ...]:
    """Return a bar for each point, the fastest on top, in parts by what the critical path's time goes to.

    Args:
        rows: The points.
        base: The base.
        named: What each point is called, by its number.
    """
    done = sorted(_done(rows), key=lambda row: row["finish_ns"])
    shown = done[:MOST_BARS]
    unit, factor = unit_of_times(max(row["finish_ns"] for row in shown))
    places = list(range(len(shown)))
    data = [{**bar, "orientation": "h", "y": places, "x": values} for bar, values in _parts(shown, factor)]
    height = MARGINS["t"] + MARGINS["b"] + max(_BAR * len(shown), _LEAST_HEIGHT)
    up = category([named[row["point"]] for row in shown], (0, 1), "x")
    up = {**up, "range": [len(shown) - 0.5, -0.5], "automargin": True}
    title = {"text": f"step time, {unit}", "standoff": 8}
    across = {"title": title, "gridcolor": _GRID, "rangemode": "tozero"}
    shapes = _base_line(base, factor, along="y")
    more = {"barmode": "stack", "xaxis": across, "yaxis": up, "legend": _LEGEND, "shapes": shapes}
    view: dict[tuple[str, ...], View] = {(): {"data": data, "layout": layout_of(height, right=_RIGHT, **more)}}
    fewer = f"The {MOST_BARS} fastest of {len(done)} points. " if len(done) > MOST_BARS else ""
    remark = f"{fewer}In parts: what the critical path's time goes to.{' Dotted: the base.' if shapes else ''}"
    return (Figure("time", "Step time of each point", remark, (), view, height),)
