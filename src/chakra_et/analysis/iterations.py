"""The iterations of a job: where they come from, and how long each takes on each rank.

Shape letters: W windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from chakra_et.analysis.charts import KIND_COLORS, layout, time_unit
from chakra_et.analysis.markers import COUNTS
from chakra_et.analysis.options import Options, check_fixed
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView
from chakra_et.units import format_ns, format_number_of, format_share

__all__ = ["Iterations", "combine", "iterations", "measure"]

_KEYS = ("rank", "iteration")
# More lines would hide one another.
_MOST_LINES = 8
_MARKS = ("kind", *COUNTS)


@dataclass(frozen=True, slots=True, eq=False)
class Iterations(Result):
    """The iterations.

    Columns of `table`, a row a rank and iteration, in time order: ``rank``, ``iteration`` (the number in the marker,
    else counted from 0; null: the whole profile), ``label``, ``source`` (what marks it; ``repeats`` if it was found in
    what repeats; empty for the whole profile), ``chosen`` (the other analyses look at it by default), ``kind``
    (training, prefill, decode, mixed, unknown), ``begin_ns`` and ``span_ns`` (its stretch of time on the device, since
    the rank's first: from its first activity to the next one's first), ``host_span_ns`` (its range on the host; null
    without a marker), ``activities`` (that start in it), and where markers tell: ``context_requests``,
    ``context_tokens``, ``generation_requests``, ``generation_tokens``, ``kv_tokens``.
    """

    def plot(self) -> Plot:
        """Return the length of each iteration, a line a rank; of many, the slowest, the median and the fastest."""
        table = self.table.with_columns(pl.format("rank {}", "rank").alias("line"))
        if table["rank"].n_unique() > _MOST_LINES:
            span = pl.col("span_ns")
            each = table.group_by("iteration", maintain_order=True).agg(
                **{"slowest rank": span.max(), "median rank": span.median().cast(pl.Int64), "fastest rank": span.min()}
            )
            table = each.unpivot(index="iteration", variable_name="line", value_name="span_ns")
        size, unit = time_unit(float(table["span_ns"].max() or 0))  # type: ignore[arg-type]
        data = [
            {
                "type": "scatter", "mode": "lines+markers", "name": name,
                "x": [str(number) if number is not None else "whole" for number in own["iteration"]],
                "y": [value / size for value in own["span_ns"]],
                "line": {"color": KIND_COLORS[place % len(KIND_COLORS)], "width": 1.5},
                "hovertemplate": f"{name}, iteration %{{x}}: %{{y:.4g}} {unit}<extra></extra>",
            }
            for place, ((name,), own) in enumerate(table.group_by("line", maintain_order=True))
        ]  # fmt: skip
        shape = layout(x="iteration", y=f"time, {unit}")
        shape["xaxis"] |= {"type": "category"}
        shape["yaxis"] |= {"rangemode": "tozero"}
        return Plot(tuple(data), shape)


def iterations(source: Source, *, options: Options | None = None) -> Iterations:
    """List the iterations of each rank: all of them, whatever the options choose.

    Args:
        source: Traces, or where they are.
        options: What counts as chosen.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, start_ns=3, duration_ns=5, is_cpu_op=False, stream=7)
        >>> iterations(builder.build()).table.select("iteration", "label", "span_ns").rows()
        [(None, 'whole profile', 5)]
    """
    return run_one(measure, combine, source, options)


def measure(view: RankView) -> pl.DataFrame:
    """Return the iterations of one rank."""
    windows = view.all_windows
    starts = view.activities["start_ns"].to_numpy()
    begins, ends = (np.searchsorted(starts, [getattr(w, name) for w in windows]) for name in ("begin_ns", "end_ns"))
    chosen = set(view.windows)
    first = windows[0].begin_ns if windows else 0
    rows = [
        {
            "rank": view.rank,
            "iteration": window.iteration,
            "label": window.label,
            "source": view.steps.source if window.iteration is not None else "",
            "chosen": window in chosen,
            "begin_ns": window.begin_ns - first,
            "span_ns": window.end_ns - window.begin_ns,
            "host_span_ns": None if window.host_end_ns is None else window.host_end_ns - (window.host_begin_ns or 0),
            "activities": int(end - begin),
        }
        for window, begin, end in zip(windows, begins, ends, strict=True)
    ]
    schema = {
        "rank": pl.Int64, "iteration": pl.Int64, "label": pl.String, "source": pl.String, "chosen": pl.Boolean,
        "begin_ns": pl.Int64, "span_ns": pl.Int64, "host_span_ns": pl.Int64, "activities": pl.Int64,
    }  # fmt: skip
    marks = view.steps.table.select("iteration", *_MARKS).unique("iteration", keep="first", maintain_order=True)
    return pl.DataFrame(rows, schema=schema).join(marks, on="iteration", how="left", maintain_order="left")


def combine(parts: Mapping[int, pl.DataFrame], job: Job) -> Iterations:
    """Put the ranks together."""
    check_fixed(job.options, _KEYS)
    table = pl.concat([parts[rank] for rank in job.ranks])
    columns = [name for name in table.columns if name not in _MARKS]
    table = table.select(*columns[:5], "kind", *columns[5:], *COUNTS)
    return Iterations("iterations", job.options.as_dict(), table, job.coverage, job.notes, _findings(table))


def _findings(table: pl.DataFrame) -> tuple[Finding, ...]:
    """Say how long a step takes, and whether one stands out among its rank's."""
    steps = table.filter(pl.col("chosen") & pl.col("iteration").is_not_null())
    if not steps.height:
        return ()
    spans = steps["span_ns"]
    mean, low, high = int(spans.mean() or 0), int(spans.min() or 0), int(spans.max() or 0)  # type: ignore[arg-type]
    numbers = steps["iteration"].n_unique()
    text = f"a step takes {format_ns(mean)}"
    if steps.height > 1:
        count = format_number_of(numbers, "iteration") if numbers > 1 else format_number_of(steps.height, "rank")
        text += f" on average over {count} ({format_ns(low)} to {format_ns(high)})"
    said = [Finding(text, about="step")]
    # Ranks have different work: one that takes longer than others is the breakdown's and the skew's to explain.
    median = pl.col("span_ns").median().over("rank")
    worst = steps.with_columns(median=median, more=pl.col("span_ns") - median).sort("more").row(-1, named=True)
    if numbers > 2 and worst["median"] and worst["more"] > 0.2 * worst["median"]:
        share = format_share(worst["more"], worst["median"])
        said.append(
            Finding(
                f"iteration {worst['iteration']} of rank {worst['rank']} takes {share} longer than its median one",
                int(worst["more"]) // numbers,
            )
        )
    return tuple(said)
