"""A sweep as one HTML page: heat maps or lines of the step time and of what bounds it, and its ends as a table."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from chakra_et.io import write_atomic
from chakra_et.reports._page import Figure, Page, Table, page_chunks
from chakra_et.reports._sweep_axes import Row, make_plan
from chakra_et.reports._sweep_lines import bars, lines
from chakra_et.reports._sweep_maps import maps
from chakra_et.sim.sweep_keys import format_value
from chakra_et.sim.sweep_result import SweepResult
from chakra_et.units import format_ns, format_number_of

__all__ = ["export_sweep_html"]

_ENDS = 5
_MOST_ERRORS = 10


def export_sweep_html(
    result: SweepResult, path: str | Path, *, title: str = "Sweep", force: bool = False
) -> list[Path]:
    """Write a page that shows a sweep; it needs no other file and no network.

    Two keys with several values make a heat map, a third one several maps side by side, further ones are chosen on the
    page. One key makes lines; points that are no grid make bars. The pointer over a point shows its row.

    Args:
        result: The sweep.
        path: File.
        title: Heading of the page.
        force: True to overwrite.

    Raises:
        OutputError: The file exists and `force` is False, or it can't be written.

    Example:
        >>> import pathlib, tempfile
        >>> from chakra_et.ir import NodeType, TraceBuilder, TraceSet
        >>> from chakra_et.sim.sweep import sweep
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1000)
        >>> result = sweep(TraceSet((builder.build(),)), grid={"compute_scale": [1, 2]})
        >>> [path.name for path in export_sweep_html(result, pathlib.Path(tempfile.mkdtemp()) / "sweep.html")]
        ['sweep.html']
    """
    return [write_atomic(path, page_chunks(make_page(result, title)), force=force)]


def make_page(result: SweepResult, title: str) -> Page:
    """Return what the page of a sweep shows."""
    rows = result.table.to_dicts()
    plan = make_plan(result)
    named = [_named(result, row) for row in rows]
    figures: tuple[Figure, ...] = ()
    if result.failed < len(rows):
        if plan.across is not None and plan.up is not None:
            figures = maps(rows, plan, plan.across, plan.up, result.base)
        elif plan.across is not None:
            figures = lines(rows, plan.across, result.base)
        else:
            figures = bars(rows, result.base, named)
    return Page(
        title=title,
        lines=_lines(result, rows),
        parts=(*figures, *_ends(result, rows), *_errors(result, rows, named)),
        texts=tuple(_text(result, row) for row in rows),
        notes=tuple(f"{note} ({format_number_of(count, 'point')})" for note, count in result.notes.items()),
    )


def _lines(result: SweepResult, rows: Sequence[Row]) -> tuple[str, ...]:
    base = result.base
    done = [row for row in rows if row["error"] is None]
    said = [format_number_of(len(rows), "point")]
    if done:
        said.append(f"each covers all {format_number_of(done[0]['ranks'], 'rank')}")
    if result.failed:
        said.append(f"{result.failed} can't be simulated")
    if base["error"]:
        return f"{'; '.join(said)}.", f"The base can't be simulated: {base['error']}"
    bound = f", bound by {base['bound_by']} ({base['bound_share']:.0%})" if base["bound_by"] else ""
    values = ", ".join(_values(result, base))
    return f"{'; '.join(said)}.", f"Base: {format_ns(base['finish_ns'])}{bound}, with {values}."


def _values(result: SweepResult, row: Row) -> list[str]:
    """Return a point's swept values in words."""
    found = []
    for one in result.parameters:
        value = row[one.column]
        found.append(
            f"{one.key} = {format_value(value)}"
            + (f" {one.unit}" if one.unit and isinstance(value, int | float) else "")
        )
    return found


def _named(result: SweepResult, row: Row) -> str:
    """Return what a point is called: the values that differ between points."""
    values = _values(result, row)
    several = [result.table[one.column].n_unique() > 1 for one in result.parameters]
    return ", ".join(value for value, own in zip(values, several, strict=True) if own) or ", ".join(values)


def _text(result: SweepResult, row: Row) -> str:
    """Return the text over a point, in plotly's subset of HTML."""
    values = [f"<b>{html.escape(value)}</b>" for value in _values(result, row)]
    if row["error"] is not None:
        return "<br>".join([*values, *_wrapped(html.escape(row["error"]))])
    total = sum(value for name, value in row.items() if name.startswith("critical_")) or 1
    parts = sorted(
        ((value, name) for name, value in row.items() if name.startswith("critical_") and value), reverse=True
    )
    said = [f"step time: {format_ns(row['finish_ns'])}"]
    if row["speedup"] is not None:
        said[0] += f", speed-up {row['speedup']:.3g}"
    for name in ("compute", "communication", "exposed_communication"):
        mean, longest = row[f"{name}_mean_ns"], row[f"{name}_max_ns"]
        most = f" (most: {format_ns(longest)})" if longest != mean else ""
        said.append(f"{name.replace('_', ' ')}: {format_ns(mean)}{most}")
    said.append("critical path:")
    said += [
        f"  {html.escape(name.removeprefix('critical_').removesuffix('_ns'))} {value / total:.0%}"
        for value, name in parts
    ]
    said.append(f"{format_number_of(row['ranks'], 'rank')}, {format_number_of(row['notes'], 'note')}")
    return "<br>".join([*values, *said])


def _wrapped(text: str, width: int = 60) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _ends(result: SweepResult, rows: Sequence[Row]) -> list[Table]:
    """Return the table of the fastest and the slowest points."""
    done = sorted((row for row in rows if row["error"] is None), key=lambda row: row["finish_ns"])
    if not done:
        return []
    columns = [f"{one.key}, {one.unit}" if one.unit else one.key for one in result.parameters]
    columns += ["step time", "speed-up", "exposed communication", "bound by", "share"]
    cells: list[list[str]] = []
    if len(done) <= 2 * _ENDS:
        cells += [_cells(result, row) for row in done]
        heading = "All points"
    else:
        heading = "Fastest and slowest points"
        cells += [["fastest"], *(_cells(result, row) for row in done[:_ENDS])]
        cells += [["slowest"], *(_cells(result, row) for row in done[-_ENDS:])]
    if result.base["error"] is None:
        cells += [["base"], _cells(result, result.base)]
    words = [place for place, one in enumerate(result.parameters) if not one.numeric]
    return [Table(heading, columns, cells, [*words, len(columns) - 2])]


def _cells(result: SweepResult, row: Row) -> list[str]:
    return [
        *(format_value(row[one.column]) for one in result.parameters),
        format_ns(row["finish_ns"]),
        "-" if row["speedup"] is None else f"{row['speedup']:.3f}",
        format_ns(row["exposed_communication_mean_ns"]),
        row["bound_by"] or "-",
        "-" if row["bound_share"] is None else f"{row['bound_share']:.0%}",
    ]


def _errors(result: SweepResult, rows: Sequence[Row], named: Sequence[str]) -> list[Table]:
    """Return the table of why points can't be simulated."""
    causes: dict[str, list[str]] = {}
    for row, name in zip(rows, named, strict=True):
        if row["error"] is not None:
            causes.setdefault(row["error"], []).append(name)
    if not causes:
        return []
    cells = [[str(len(names)), names[0], error] for error, names in causes.items()][:_MOST_ERRORS]
    return [Table("Points that can't be simulated", ("points", "the first", "why"), cells, (1, 2))]
