"""The report of a job: findings, pictures and tables of all analyses in one HTML file that needs nothing beside it.

Everything was computed before; here it is only put on a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from chakra_et.analysis.analyze import Analyses
from chakra_et.analysis.charts import layout
from chakra_et.analysis.result import Result
from chakra_et.io import write_atomic
from chakra_et.reports._page import Figure, Listing, Page, Table, page_chunks
from chakra_et.reports.analysis_cells import COLUMNS, SCREEN, cells, shown_columns, word_places
from chakra_et.units import format_bytes, format_count, format_ns, format_number_of, format_ranks, format_share

__all__ = ["export_report", "make_report"]

_FINDINGS = 12
_ROWS = 25
_MOST_PIXELS = 900
# Of the critical path: contributors that could gain less aren't listed.
_LEAST_SHARE = 0.0005
# Types of communications: not the color of compute.
_SIZE_COLORS = ("#D55E00", "#56B4E9", "#CC79A7", "#8C6D31", "#E69F00", "#7A4EAB", "#999999")
# So many can be counted one by one.
_FEW = 5
# Letters of a label, and pixels of a letter.
_LONGEST_LABEL = 36
_LETTER = 7
# Drawn even if there is but one bar in it.
_ALWAYS = ("breakdown", "timeline")


@dataclass(frozen=True, slots=True)
class _Picture:
    """A picture of one analysis: what stands above it, and how high it is (a row of it, and the rest), in pixels."""

    name: str
    heading: str
    remark: str
    row: int = 0
    rest: int = 320


_PICTURES: tuple[_Picture, ...] = (
    _Picture("breakdown", "Where a step's time goes", "Each rank's mean iteration. Parts add up to the wall time: "
             "compute alone, communication that compute hides, or that nothing does, copies, idle.", 24, 70),
    _Picture("timeline", "What runs when", "One iteration, all ranks, clocks aligned. Pointing at a bar names it; "
             "drag to zoom, double-click for all of it.", 22, 70),
    _Picture("critical-path", "What bounds the step", "The critical path over all ranks: its time by class, and what "
             "a step would gain at most if a class took no time, everything scheduled anew.", 44, 70),
    _Picture("overlap", "Communication behind compute", "How much of each rank's communication runs while something "
             "computes. Exposed is not the same as blocking: that is the critical path's to say.", 20, 70),
    _Picture("comms", "Bandwidth of communications", "Bus bandwidth (NCCL's correction factors) by group, type and "
             "size, from the last arrival on.", 20, 70),
    _Picture("skew", "Who comes late", "How far each rank is behind the first to arrive, in each communication that "
             "several ranks take part in. White is on time, gray takes no part.", 22, 70),
    _Picture("kernels", "Kernels by class", "Durations on the device, added up over ranks and iterations.", 20, 70),
    _Picture("ops", "Roofline", "A point an operator and shape, as large as its time. Models count the FLOP and "
             "the least bytes; lines are the device's peaks, if a system was named.", 0, 420),
    _Picture("launches", "Launches ahead of the device", "How many launched activities wait on each stream: where none "
             "does, the device has nothing to go on with.", 0, 280),
    _Picture("memory", "Memory", "Bytes in use over time, the peak marked; bytes of copies where the trace doesn't "
             "tell what is in use.", 0, 280),
    _Picture("phases", "Phases", "Time of a step by phase.", 24, 70),
    _Picture("iterations", "Iterations", "How long each iteration takes on each rank.", 0, 240),
)  # fmt: skip

# Without a device, of the host's operators.
_HOST = {
    "kernels": _Picture("kernels", "Operators by class", "Durations on the host, added up over threads, ranks and "
                        "iterations.", 20, 70),
}  # fmt: skip

# Tables, and which rows of them.
_TABLES = (
    ("breakdown", "Breakdown of each rank's iterations"),
    ("comms", "Communications by group, type and size"),
    ("skew", "Arrivals at communications"),
    ("critical-path", "Contributors to the critical path"),
    ("kernels", "Kernels"),
    ("ops", "Operators and shapes"),
    ("launches", "Launches"),
    ("phases", "Phases of each iteration"),
)


def export_report(
    found: Analyses,
    path: str | Path,
    *,
    title: str = "Analysis",
    quality: Mapping[str, Any] | None = None,
    force: bool = False,
) -> list[Path]:
    """Write the report of a job as one HTML file.

    Args:
        found: Analyses; pictures of those that weren't asked for are left out.
        path: Where to write.
        title: Heading of the page.
        quality: The conversion's quality report as plain data, if there is one: what was guessed and dropped.
        force: True to overwrite.

    Raises:
        OutputError: The file exists, or can't be written.

    Example:
        >>> import tempfile
        >>> from chakra_et.analysis.analyze import analyze
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, start_ns=0, duration_ns=5, is_cpu_op=False, stream=7)
        >>> found = analyze(builder.build(), only=["breakdown"])
        >>> [path.name for path in export_report(found, f"{tempfile.mkdtemp()}/report.html")]
        ['report.html']
    """
    return [write_atomic(path, page_chunks(make_report(found, title, quality)), force=force)]


def make_report(found: Analyses, title: str, quality: Mapping[str, Any] | None = None) -> Page:
    """Return what the page of a job shows."""
    results = found.results
    parts: list[Figure | Table | Listing] = []
    findings = [finding.text for finding in found.findings[:_FINDINGS]]
    if findings:
        parts.append(Listing("Findings (what something costs is a ceiling)", findings, numbered=True))
    on_device = found.job.has_device
    for picture in _PICTURES:
        figure = _figure(picture, results.get(picture.name), on_device=on_device)
        parts += [figure] if figure else []
    parts += _sizes(results)
    parts += [
        table for name, heading in _TABLES if (result := results.get(name)) and (table := _table(heading, result))
    ]
    parts += _conversion(quality)
    notes = dict.fromkeys(note for result in results.values() for note in result.notes)
    return Page(title, _lines(found), tuple(parts), notes=tuple(notes), facts=_facts(found))


def _facts(found: Analyses) -> tuple[tuple[str, str], ...]:
    """Return how long a step takes, and the shares that matter most."""
    facts: list[tuple[str, str]] = []
    breakdown = found.results.get("breakdown")
    if breakdown is not None and breakdown.table.height:
        table = breakdown.table
        span = int(table["span_ns"].sum())
        what = "a step" if table["iteration"].null_count() < table.height else "the whole profile"
        facts.append((format_ns(span / int(table["iterations"].sum())), what))
        facts.append((format_share(int(table["compute_ns"].sum()), span), "compute"))
        if table["communication_ns"].sum():
            facts.append((format_share(int(table["exposed_communication_ns"].sum()), span), "exposed communication"))
        facts.append((format_share(int(table["idle_ns"].sum()), span), "idle"))
    ops = found.results.get("ops")
    utilization = getattr(ops, "steps", pl.DataFrame({"mfu": []}))["mfu"].drop_nulls()
    if len(utilization):
        facts.append((format_share(float(utilization.mean() or 0), 1), "model FLOP utilization"))  # type: ignore[arg-type]
    return tuple(facts)


def _lines(found: Analyses) -> tuple[str, ...]:
    """Return how many ranks there are, which iterations are looked at, and what the numbers stand on."""
    said = [format_number_of(len(found.job.ranks), "rank")]
    breakdown, steps = found.results.get("breakdown"), found.results.get("iterations")
    if breakdown is not None and breakdown.table.height:
        chosen = breakdown.table["iteration"].drop_nulls().unique().sort().to_list()
        every = steps.table["iteration"].n_unique() if steps is not None else len(chosen)
        span = f"{chosen[0]} to {chosen[-1]}" if len(chosen) > 1 else "".join(map(str, chosen))
        some = f"{len(chosen)} of {format_number_of(every, 'iteration')} (number {span})"
        said.append(some if chosen else "the whole profile")
    covered = [
        f"{name} {format_share(value, 1)}" for name, value in found.job.coverage.as_dict().items() if value is not None
    ]
    lines = ["; ".join(said) + "."]
    if covered:
        lines.append(f"Of the device time: {', '.join(covered)} (modelled: of the computing kernels').")
    return tuple(lines)


def _figure(picture: _Picture, result: Result | None, *, on_device: bool) -> Figure | None:
    """Return the picture of a result; None if it has nothing to show."""
    if result is None or not result.table.height:
        return None
    if picture.name == "iterations" and result.table["iteration"].n_unique() < 2:
        return None
    plot = result.plot().as_dict()
    if not plot["data"] or (picture.name not in _ALWAYS and _says_nothing(plot)):
        return None
    words = picture if on_device else _HOST.get(picture.name, picture)
    return _figure_of(words.name, words.heading, words.remark, plot, words.rest + words.row * _rows(plot))


def _figure_of(name: str, heading: str, remark: str, plot: Mapping[str, Any], height: int) -> Figure:
    view = {**plot, "layout": _fixed_margins(plot)}
    return Figure(f"figure-{name}", heading, remark, (), {(): view}, min(height, _MOST_PIXELS), keys=True)


def _fixed_margins(plot: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layout with margins from the lengths of labels: plotly draws each picture twice to find them."""
    layout: dict[str, Any] = dict(plot["layout"])
    labels = layout["yaxis"].get("ticktext") or [
        str(name) for trace in plot["data"] if layout["yaxis"].get("type") == "category" for name in trace["y"]
    ]
    longest = max(map(len, labels), default=0)
    if longest <= _LONGEST_LABEL:
        layout["yaxis"] = {**layout["yaxis"], "automargin": False}
        layout["margin"] = {**layout["margin"], **({"l": 12 + _LETTER * longest} if longest else {})}
    # Words below one another may be turned where there is little room.
    if layout["xaxis"].get("type") != "category":
        layout["xaxis"] = {**layout["xaxis"], "automargin": False}
    return layout


def _says_nothing(plot: Mapping[str, Any]) -> bool:
    """Tell whether a picture is a single bar: it would be as long as the picture is wide, whatever it stands for."""
    return sum(len(trace["x"]) if trace.get("type") == "bar" else 2 for trace in plot["data"]) < 2


def _rows(plot: Mapping[str, Any]) -> int:
    """Return how many rows a picture has."""
    bounds = plot["layout"].get("yaxis", {}).get("range")
    if bounds is not None:
        return int(abs(bounds[1] - bounds[0]))
    rows = {str(name) for trace in plot["data"] for name in trace.get("y", ())}
    return len(rows) if len(rows) < 200 else 0


def _sizes(results: Mapping[str, Result]) -> list[Figure]:
    """Return the histogram of message sizes."""
    sizes = getattr(results.get("comms"), "sizes", None)
    if sizes is None or not sizes.drop_nulls("size_class_bytes").height:
        return []
    known = sizes.drop_nulls("size_class_bytes").sort("size_class_bytes")
    order = [format_bytes(size) for size in known["size_class_bytes"].unique().sort()]
    data = []
    for place, kind in enumerate(known["comm_type"].unique(maintain_order=True)):
        own = known.filter(pl.col("comm_type") == kind)
        data.append(
            {
                "type": "bar", "name": kind, "x": [format_bytes(size) for size in own["size_class_bytes"]],
                "y": own["count"].to_list(), "marker": {"color": _SIZE_COLORS[place % len(_SIZE_COLORS)]},
                "hovertemplate": f"{kind}, from %{{x}} on: %{{y}}<extra></extra>",
            }
        )  # fmt: skip
    shape = layout(x="size (from this power of two on)", y="communications", barmode="stack", bargap=0.1)
    if known["count"].max() <= _FEW:
        shape["yaxis"] |= {"dtick": 1}
    shape["xaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": order}
    remark = "How many communications there are of each size (of the whole vector), each once."
    plot = {"data": data, "layout": shape}
    return [] if _says_nothing(plot) else [_figure_of("sizes", "Message sizes", remark, plot, 260)]


def _table(heading: str, result: Result) -> Table | None:
    columns = SCREEN if result.name == "breakdown" and result.table.height > _ROWS else COLUMNS[result.name]
    table = result.table
    if "gain_share" in table.columns:
        table = table.filter(pl.max_horizontal("path_share", "gain_share") >= _LEAST_SHARE)
    shown = table.select(shown_columns(table, columns))
    if not shown.height or not shown.width:
        return None
    headings, rows = cells(shown.head(_ROWS))
    more = f" (the first {_ROWS} of {table.height:,} rows)" if table.height > _ROWS else ""
    return Table(heading + more, headings, rows, word_places(shown))


def _conversion(quality: Mapping[str, Any] | None) -> list[Table | Listing]:
    """Return what the conversion guessed and dropped."""
    if not quality or not quality.get("ranks"):
        return []
    columns = ("rank", "activities", "linked", "of linkable", "communications", "unnamed", "largest start error",
               "unexplained")  # fmt: skip
    rows = [
        [
            str(rank["rank"]),
            format_count(rank["device_activities"]),
            format_count(rank["linked"]),
            format_count(rank["linkable"]),
            format_count(rank["communications"]),
            format_count(rank["unknown_communications"]),
            format_ns(rank["start_error_ns"].get("max")),
            format_ns(rank["gap_ns"].get("unexplained", 0)),
        ]
        for rank in quality["ranks"]
    ]
    said = _said(quality["ranks"], "dropped", "Left out") + _said(quality["ranks"], "warnings", "Guessed or repaired")
    parts: list[Table | Listing] = [Table("How the traces were made", columns, rows[:_ROWS])]
    said += [str(finding) for finding in quality.get("matching", {}).get("findings", [])][:_ROWS]
    return [*parts, Listing("What the conversion guessed or dropped", said)] if said else parts


def _said(ranks: Sequence[Mapping[str, Any]], key: str, word: str) -> list[str]:
    """Return each sentence once, with the ranks that it is true of."""
    who: dict[str, list[int]] = {}
    for rank in ranks:
        for text in rank.get(key, ()):
            who.setdefault(str(text), []).append(rank["rank"])
    names = {text: "all ranks" if 1 < len(found) == len(ranks) else format_ranks(found) for text, found in who.items()}
    return [f"{word} ({names[text]}): {text}" for text in who]
