"""Heat maps of a sweep: step time, and what bounds it.

Shape letters: X values along x, Y values along y, F maps beside one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from chakra_et.reports._page import Choice, Figure
from chakra_et.reports._sweep_axes import Axis, Plan, Row, unit_of_times
from chakra_et.reports._sweep_style import FAILED, MARGINS, WIDTH, View, category, colors_of, key_of_color, layout_of

__all__ = ["maps"]

_GAP_X, _GAP_Y = 40, 78
_CELL_Y = 27
_HIGHEST_MAP = 540
_LABEL_Y = 15  # pixels that a label needs
_TEXT_CELL = 36  # pixels that a number in a cell needs
_WIDEST_CELL = 110
_CHARACTER = 7
_FAST_TO_SLOW = "YlGnBu"
_FRAME = "#d62728"
# Where the slowest point takes more than this many times as long as the fastest, colors follow the logarithm.
_LOGARITHMIC = 4
_LEAST_TICKS = 4

Cells = list[list[Row | None]]  # [Y, X]


def maps(rows: Sequence[Row], plan: Plan, across: Axis, up: Axis, base: Row) -> tuple[Figure, ...]:
    """Return heat maps.

    Args:
        rows: The points.
        plan: Which key goes where.
        across: Key along x.
        up: Key along y.
        base: The base.
    """
    done = [row for row in rows if row["finish_ns"] is not None]
    choices = tuple(Choice(axis.title, tuple(map(axis.label, axis.values))) for axis in plan.chosen)
    fastest = min(done, key=lambda row: row["finish_ns"], default=None)
    colors = colors_of(sorted({row["bound_by"] for row in done if row["bound_by"]}))
    scale = _Scale([row["finish_ns"] for row in done])
    times, bounds = {}, {}
    for values in product(*(axis.values for axis in plan.chosen)):
        chosen = list(zip(plan.chosen, values, strict=True))
        here = [row for row in rows if all(row[axis.column] == value for axis, value in chosen)]
        grid = _Grid(across, up, plan.beside, here)
        marked = [(row, dash) for row, dash in ((fastest, "solid"), (base, "dot")) if row is not None]
        frames = [(row, dash) for row, dash in marked if all(row.get(axis.column) == value for axis, value in chosen)]
        labels = tuple(axis.label(value) for axis, value in chosen)
        times[labels] = _time_view(grid, scale, frames)
        bounds[labels] = _bounds_view(grid, colors)
    height = _Grid(across, up, plan.beside, rows).height
    marks = "Solid frame: the fastest of all points. Dotted frame: the base, where it is one of the points."
    failed = " Gray: can't be simulated." if len(done) < len(rows) else ""
    share = "The resource with the largest share of the critical path, and that share."
    return (
        Figure("time", f"Step time, {scale.unit}", marks + failed, choices, times, height),
        Figure("bounds", "What bounds it", share, choices, bounds, height),
    )


class _Scale:
    """Times to colors."""

    def __init__(self, times_ns: Sequence[int]) -> None:
        self.unit, self._factor = unit_of_times(max(times_ns, default=0))
        self._low = min(times_ns, default=1) / self._factor
        self._high = max(times_ns, default=1) / self._factor
        self._logs = self._low > 0 and self._high / self._low > _LOGARITHMIC

    def time(self, row: Row | None) -> float | None:
        """Return a point's time in the unit."""
        return None if row is None or row["finish_ns"] is None else row["finish_ns"] / self._factor

    def place(self, value: float | None) -> float | None:
        """Return where a time stands on the scale."""
        return value if value is None or not self._logs else math.log10(value)

    def as_trace(self, *, shown: bool) -> View:
        """Return the parts of a trace that say which color a time has."""
        low, high = self.place(self._low), self.place(self._high)
        ticks = self._ticks()
        bar = {
            "title": {"text": self.unit},
            "tickvals": [self.place(tick) for tick in ticks],
            "ticktext": [f"{tick:g}" for tick in ticks],
            "thickness": 14,
            "x": 1.02,
            "outlinewidth": 0,
            # Of one length whatever the maps' height, so that its numbers have room.
            "lenmode": "pixels",
            "len": 130,
            "y": 1,
            "yanchor": "top",
        }
        colors = {"colorscale": _FAST_TO_SLOW, "reversescale": True, "showscale": shown, "colorbar": bar}
        return {"zmin": low, "zmax": high if high != low else (high or 0) + 1, **colors}

    def _ticks(self) -> list[float]:
        """Return a few round numbers."""
        low, high = self._low, self._high
        if self._logs:
            decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            ticks: list[float] = []
            for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
                found = (step * 10.0**decade for decade in decades for step in steps)
                ticks = [round(tick, 12) for tick in found if low <= tick <= high]
                if len(ticks) >= _LEAST_TICKS:
                    break
            return ticks
        if high == low:
            return [high]
        step = 10.0 ** math.floor(math.log10(high - low))
        step *= next(factor for factor in (0.2, 0.5, 1, 2) if (high - low) / (step * factor) <= 6)
        return [round(step * count, 12) for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


class _Grid:
    """Places of maps and cells."""

    def __init__(self, across: Axis, up: Axis, beside: Axis | None, rows: Sequence[Row]) -> None:
        self.across, self.up, self.beside = across, up, beside
        self.maps: tuple[Any, ...] = beside.values if beside is not None else (None,)
        inner = WIDTH - MARGINS["l"] - MARGINS["r"]
        wanted = len(across.values) * _TEXT_CELL
        self.columns = min(len(self.maps), max(1, (inner + _GAP_X) // (wanted + _GAP_X)))
        lines = -(-len(self.maps) // self.columns)
        space = (inner - (self.columns - 1) * _GAP_X) / self.columns
        self.map_width = min(space, len(across.values) * _WIDEST_CELL)
        self.map_height = max(min(len(up.values) * _CELL_Y, _HIGHEST_MAP), 2 * _CELL_Y)
        self.height = round(MARGINS["t"] + MARGINS["b"] + lines * self.map_height + (lines - 1) * _GAP_Y)
        self.cell = self.map_width / len(across.values), self.map_height / len(up.values)
        self.roomy = self.cell[0] >= _TEXT_CELL and self.cell[1] >= _LABEL_Y
        self._cells = {self._key(row): row for row in rows}

    def _key(self, row: Row) -> tuple[Any, Any, Any]:
        part = row.get(self.beside.column) if self.beside is not None else None
        return part, row.get(self.across.column), row.get(self.up.column)

    def each(self) -> Iterator[tuple[int, str, Cells]]:
        """Yield number, suffix of its axes' names, and cells of each map."""
        for number, part in enumerate(self.maps):
            cells = [[self._cells.get((part, x, y)) for x in self.across.values] for y in self.up.values]
            yield number, self._suffix(number), cells

    def _suffix(self, number: int) -> str:
        return str(number + 1) if number else ""

    def axes(self) -> View:
        """Return the layout's axes, and the maps' titles."""
        inner_x = WIDTH - MARGINS["l"] - MARGINS["r"]
        inner_y = self.height - MARGINS["t"] - MARGINS["b"]
        labels = [self.across.label(value) for value in self.across.values]
        needed = (max(map(len, labels)) + 1) * _CHARACTER
        # Where labels have no room, numbers are left out, and words are turned.
        flat = needed <= self.cell[0] or self.across.numeric
        every = math.ceil((needed if flat else 2 * _CHARACTER) / self.cell[0])
        every_y = math.ceil(_LABEL_Y / self.cell[1])
        layout: View = {"annotations": []}
        for number, part in enumerate(self.maps):
            line, column = divmod(number, self.columns)
            left = column * (self.map_width + _GAP_X) / inner_x
            top = 1 - line * (self.map_height + _GAP_Y) / inner_y
            right, bottom = min(left + self.map_width / inner_x, 1.0), max(top - self.map_height / inner_y, 0.0)
            suffix = self._suffix(number)
            title = {"text": self.across.title, "standoff": 6}
            angle = {"tickangle": 0 if flat else -40}
            layout[f"xaxis{suffix}"] = {
                **category(labels, (left, right), f"y{suffix}", every=every),
                "title": title,
                **angle,
            }
            ups = category(list(map(self.up.label, self.up.values)), (bottom, top), f"x{suffix}", every=every_y)
            layout[f"yaxis{suffix}"] = {**ups, "title": {"text": self.up.title if column == 0 else "", "standoff": 8}}
            if self.beside is not None:
                layout["annotations"].append(_heading(self.beside.named(part), left, top))
        return layout

    def frame(self, row: Row, dash: str) -> list[View]:
        """Return a frame around the cell that a row's values are at, if there is one."""
        part, x, y = self._key(row)
        if part not in self.maps or x not in self.across.values or y not in self.up.values:
            return []
        suffix = self._suffix(self.maps.index(part))
        column, line = self.across.values.index(x), self.up.values.index(y)
        corners = {"x0": column - 0.48, "x1": column + 0.48, "y0": line - 0.46, "y1": line + 0.46}
        drawn = {"color": _FRAME, "width": 2.5, "dash": dash}
        return [{"type": "rect", "xref": f"x{suffix}", "yref": f"y{suffix}", **corners, "line": drawn}]


def _heading(text: str, left: float, top: float) -> View:
    place = {"xref": "paper", "yref": "paper", "x": left, "y": top, "xanchor": "left", "yanchor": "bottom", "yshift": 3}
    return {"text": f"<b>{text}</b>", "showarrow": False, "font": {"size": 12}, **place}


def _map(grid: _Grid, suffix: str, cells: Cells, z: list[list[float | None]], **more: Any) -> View:
    return {
        "type": "heatmap",
        "x": list(range(len(grid.across.values))),
        "y": list(range(len(grid.up.values))),
        "z": z,
        "customdata": [[row["point"] if row is not None else -1 for row in line] for line in cells],
        "hovertemplate": "%{customdata}<extra></extra>",
        "xaxis": f"x{suffix}",
        "yaxis": f"y{suffix}",
        "xgap": int(grid.roomy),
        "ygap": int(grid.roomy),
        "hoverongaps": False,
        "showscale": False,
        **more,
    }


def _texts(grid: _Grid, texts: list[list[str]]) -> View:
    """Return the part of a map that writes into its cells, where they have room."""
    return {"text": texts, "texttemplate": "%{text}", "textfont": {"size": 10}} if grid.roomy else {}


def _failed(grid: _Grid, suffix: str, cells: Cells) -> list[View]:
    """Return a gray map of the points that can't be simulated, if there are any."""
    z = [[0.0 if row is not None and row["error"] else None for row in line] for line in cells]
    if all(value is None for line in z for value in line):
        return []
    return [_map(grid, suffix, cells, z, colorscale=[[0, FAILED], [1, FAILED]], zmin=0, zmax=1)]


def _short(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:#.3g}".removesuffix(".") if value < 1000 else f"{value:.0f}"


def _time_view(grid: _Grid, scale: _Scale, frames: Sequence[tuple[Row, str]]) -> View:
    data = []
    for number, suffix, cells in grid.each():
        times = [[scale.time(row) for row in line] for line in cells]
        z = [[scale.place(time) for time in line] for line in times]
        texts = [["" if time is None else _short(time) for time in line] for line in times]
        colors = scale.as_trace(shown=number == 0)
        data += [_map(grid, suffix, cells, z, **colors, **_texts(grid, texts)), *_failed(grid, suffix, cells)]
    shapes = [frame for row, dash in frames for frame in grid.frame(row, dash)]
    return {"data": data, "layout": layout_of(grid.height, **grid.axes(), shapes=shapes)}


def _bounds_view(grid: _Grid, colors: dict[str, str]) -> View:
    names, count = list(colors), max(len(colors), 1)
    steps = [[(place + side) / count, color] for place, color in enumerate(colors.values()) for side in (0, 1)]
    data = []
    for _, suffix, cells in grid.each():
        known = [[row if row is not None and row["bound_by"] else None for row in line] for line in cells]
        z = [[None if row is None else float(names.index(row["bound_by"])) for row in line] for line in known]
        texts = [["" if row is None else f"{row['bound_share']:.0%}" for row in line] for line in known]
        ends = {"zmin": -0.5, "zmax": count - 0.5, "colorscale": steps or "Greys"}
        data += [_map(grid, suffix, cells, z, **ends, **_texts(grid, texts)), *_failed(grid, suffix, cells)]
    data += [key_of_color(name, color) for name, color in colors.items()]
    legend = {"x": 1.01, "y": 1, "yanchor": "top", "itemclick": False, "itemdoubleclick": False}
    return {"data": data, "layout": layout_of(grid.height, **grid.axes(), showlegend=True, legend=legend)}
