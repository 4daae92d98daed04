"""What runs when: the activities of one iteration on all ranks, on one clock.

Shape letters: A activities, R ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from chakra_et.analysis.charts import COLORS, layout, time_unit
from chakra_et.analysis.meetings import clocks_of, joined, measure_communications
from chakra_et.analysis.options import Options
from chakra_et.analysis.result import Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView
from chakra_et.units import format_ns

__all__ = ["Timeline", "combine", "measure", "timeline"]

# A browser draws this many bars at once without delay.
_MOST_BARS = 12_000
_NAME = 90
_HEIGHT = 0.4
# Labels of lanes that can be read beside one another.
_MOST_LABELS = 40
# A long bar can be pointed at in this many places of the picture's width.
_PLACES = 40


@dataclass(frozen=True, slots=True, eq=False)
class Timeline(Result):
    """The activities of the middle one of the chosen iterations.

    Columns of `table`, a row an activity, by rank, lane and start: ``rank``, ``iteration``, ``device``, ``stream``
    (thread, on a rank without a device), ``begin_ns`` and ``end_ns`` (since the first rank's begin of the iteration,
    clocks aligned as in the skew analysis), ``category``, ``kind``, ``name``.

    Attributes:
        host_ranks: Ranks without a device.
    """

    host_ranks: tuple[int, ...]

    def plot(self) -> Plot:
        """Return a bar an activity, a line a rank and stream; if there are too many, short ones become one bar."""
        bars, merged_ns = _merged(self.table)
        lanes = bars.select("rank", "device", "stream").unique(maintain_order=True).with_row_index("lane")
        bars = bars.join(lanes, on=["rank", "device", "stream"], maintain_order="left")
        end = float(bars["end_ns"].max() or 1)  # type: ignore[arg-type]
        size, unit = time_unit(end)
        data = [
            _bars(bars.filter(pl.col("category") == category), str(category), size, unit, max(end / _PLACES, 1.0))
            for category in bars["category"].unique(maintain_order=True)
        ]
        places, names = _labels(lanes, self.host_ranks)
        hint = f"; neighbors closer than {format_ns(merged_ns)} are one bar" if merged_ns else ""
        shape = layout(x=f"time, {unit}{hint}", dragmode="zoom", hovermode="closest")
        shape["yaxis"] |= {
            "tickvals": places, "ticktext": names, "range": [lanes.height - 0.4, -0.6], "fixedrange": True,
            "showgrid": False,
        }  # fmt: skip
        shape["xaxis"] |= {"range": [0, end / size]}
        return Plot(tuple(data), shape)


def timeline(source: Source, *, options: Options | None = None) -> Timeline:
    """List the activities of one iteration on all ranks.

    Args:
        source: Traces, or where they are.
        options: Which iterations; the middle one of them is taken.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, start_ns=7, duration_ns=5, is_cpu_op=False, stream=7)
        >>> timeline(builder.build()).table.select("begin_ns", "end_ns", "name").rows()
        [(0, 5, 'gemm')]
    """
    return run_one(measure, combine, source, options)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank: its activities in the middle iteration, where that begins, and what tells its clock."""

    table: pl.DataFrame
    begin_ns: int | None
    communications: pl.DataFrame


def measure(view: RankView) -> Part:
    """Return the activities of one rank."""
    windows = view.windows
    middle = len(windows) // 2
    table = view.activities.filter(pl.col("window") == middle)
    iteration = windows[middle].iteration if windows else None
    table = table.select(
        rank=pl.lit(view.rank, pl.Int64),
        iteration=pl.lit(iteration, pl.Int64),
        device="device",
        stream="stream",
        begin_ns="start_ns",
        end_ns="end_ns",
        category="category",
        kind="kind",
        name=pl.col("name").str.slice(0, _NAME),
    )
    begin = windows[middle].begin_ns if windows else None
    return Part(table.sort("device", "stream", "begin_ns"), begin, measure_communications(view))


def combine(parts: Mapping[int, Part], job: Job) -> Timeline:
    """Put the ranks on one clock."""
    told = joined({rank: parts[rank].communications for rank in job.ranks}, job)
    clocks = dict(clocks_of(told.filter(pl.col("type").is_not_null())).select("rank", "offset_ns").iter_rows())
    begins = [begin + clocks.get(rank, 0) for rank in job.ranks if (begin := parts[rank].begin_ns) is not None]
    origin = min(begins, default=0)
    moved = [
        parts[rank].table.with_columns(pl.col("begin_ns", "end_ns") + (clocks.get(rank, 0) - origin))
        for rank in job.ranks
    ]
    notes = [*job.notes]
    if not begins:
        notes.append("nothing that takes time")
    hosts = tuple(rank for rank in job.ranks if not job.facts[rank].has_device)
    return Timeline("timeline", job.options.as_dict(), pl.concat(moved), job.coverage, tuple(notes), (), hosts)


def _merged(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Join neighbors of one lane and category until there are few enough bars; return the gap that is bridged, ns."""
    lane = ["rank", "device", "stream"]
    table = table.with_columns(count=pl.lit(1, pl.Int64))
    span = int(table["end_ns"].max() or 0)  # type: ignore[arg-type]
    gap_ns = 0
    bars = table
    while bars.height > _MOST_BARS:
        gap_ns = max(2 * gap_ns, span // 20_000, 1)
        before = pl.col("end_ns").cum_max().shift().over([*lane, "category"])
        fresh = ((pl.col("begin_ns") - before) > gap_ns).fill_null(True)
        run = fresh.cast(pl.Int64).cum_sum().over([*lane, "category"])
        longest = (pl.col("end_ns") - pl.col("begin_ns")).arg_max()
        bars = (
            table.with_columns(run=run)
            .group_by([*lane, "category", "run"], maintain_order=True)
            .agg(
                pl.col("begin_ns").min(),
                pl.col("end_ns").max(),
                pl.col("name", "kind").get(longest),
                pl.col("count").sum(),
            )
        )
    return bars, gap_ns


def _labels(lanes: pl.DataFrame, host_ranks: Sequence[int]) -> tuple[list[int], list[str]]:
    """Return which lanes have labels, and the labels: each lane, or each rank, or some ranks if there are too many."""
    several = lanes["rank"].n_unique() < lanes.height
    devices = lanes.select(pl.struct("rank", "device").n_unique()).item() > lanes["rank"].n_unique()
    if lanes.height <= _MOST_LABELS:
        names, before = [], None
        for rank, device, stream in lanes.select("rank", "device", "stream").iter_rows():
            words = [f"rank {rank}"] if rank != before else []
            words += [f"device {device}"] if device and devices else []
            words += [f"{'thread' if rank in host_ranks else 'stream'} {stream}"] if several else []
            names.append(", ".join(words))
            before = rank
        return list(range(lanes.height)), names
    first = lanes.group_by("rank", maintain_order=True).agg(pl.col("lane").first())
    first = first.gather_every(1 + (first.height - 1) // _MOST_LABELS)
    return first["lane"].to_list(), [f"rank {rank}" for rank in first["rank"]]


def _bars(bars: pl.DataFrame, category: str, size: float, unit: str, apart: float) -> dict[str, Any]:
    """Return all bars of a category as one shape, which is drawn at once; each of its points has its bar's text.

    Args:
        bars: Bars with their lanes.
        category: Which of them.
        size: Unit of time, ns.
        unit: Its name.
        apart: Distance of points along a bar at most, ns.
    """
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    columns = ("lane", "begin_ns", "end_ns", "name", "kind", "count")
    for lane, begin, end, name, kind, count in bars.select(columns).iter_rows():
        parts = int((end - begin) / apart) + 1
        top = [begin + (end - begin) * part / parts for part in range(parts + 1)]
        xs += [round(time / size, 6) for time in (begin, *top, end)]
        ys += [lane + _HEIGHT, *[lane - _HEIGHT] * len(top), lane + _HEIGHT]
        xs.append(None)
        ys.append(None)
        more = f"<br>and {count - 1:,} more" if count > 1 else ""
        texts += [f"{name}<br>{kind}, {format_ns(end - begin)}{more}"] * (len(top) + 3)
    color = COLORS.get(category, COLORS["other"])
    return {
        "type": "scatter", "mode": "none", "name": category, "x": xs, "y": ys, "text": texts, "fill": "toself",
        "fillcolor": color, "hoveron": "points",
        "hovertemplate": f"%{{text}}<br>at %{{x:.6g}} {unit}<extra></extra>",
    }  # fmt: skip
