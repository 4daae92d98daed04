"""Time and work by operator and shapes: the FLOP/s and byte/s that are reached, and how near that is to the peaks.

Shape letters: A activities, K calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from chakra_et.analysis.charts import kind_color, layout
from chakra_et.analysis.expressions import known_sum
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.rooflines import peaks_of, with_times_at_peaks
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView
from chakra_et.specs import Device
from chakra_et.units import format_ns, format_number_of, format_share

__all__ = ["Ops", "combine", "measure", "ops"]

_KEYS = ("rank", "iteration", "op", "shapes", "types", "module", "kind")
_DEFAULT = ("op", "shapes", "types", "kind")
_WORK = ("flop_count", "read_bytes", "write_bytes")
_TIMES = ("roofline_ns", "best_ns", "compute_bound_ns")
_MOST = 400
_LEAST_SHARE = 1e-5
# One FLOP in so many may be of a type without a peak, such as int64, before there is no utilization.
_FEW = 100
# Such copies go over another link than that to the device's memory.
_ELSEWHERE = "^Memcpy (HtoD|DtoH|PtoP|HtoH)"
# Classes of the kernels that do an operator's arithmetic; what it launches beside them serves them.
_PRODUCTS = ("gemm", "convolution", "attention")
# Kernels of these classes that only prepare or finish, mostly in fp32, whatever the product is in. Mangled names hold
# such words as names of types.
_SERVING = (
    "(?i)split_?k_?reduce|reduce_?split_?k|"
    "^([^_<(]|_[^z<(])[^<(]*(reduce|offsets|combine|preprocess|convert|im2col|im2d2col|col2im|trans(form|pose)|metadata)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Ops(Result):
    """Time and work by operator and input shapes.

    Columns of `table`, a row for each combination of what `by` says (``op``: the operator that launched, ``shapes``
    and ``types`` of its inputs as JSON lists, ``kind``: class of the kernel that does its product, else of
    its longest; also ``module``: path of the
    modules it ran in, else the innermost annotation, ``rank``, ``iteration``), the longest first: the keys, then

    * ``count``: calls, ``kernels``: activities that they launched; ``total_ns``: their durations, added up;
      ``share`` of all rows' total; ``mean_ns``, ``p50_ns``, ``p90_ns`` of a call.
    * ``flop_count``, ``read_bytes``, ``write_bytes``: of all calls, by the model that ``model`` names; null without
      one. Bytes are the least that must move (inputs once, outputs once). ``exact``: False where the model had to
      assume something that wasn't recorded; then it is mostly a lower bound.
    * ``flop_per_s``, ``bytes_per_s``: by the device time of those calls; ``flop_per_byte``.
    * ``dtype``: element type of the arithmetic, as the name of the kernel that does the product tells it, else the
      inputs; of several in a row, that of most time.
    * with a system: ``bound`` (compute or memory: which takes longer at the peaks), ``peak_share``: time at the
      peaks, of each call at that of its own element type, by time taken (1: as fast as the roofline allows; more
      where a cache held the inputs). Null where less than half of the time has a model and a peak; copies that leave
      the device have none.

    Attributes:
        steps: Model FLOP a rank and iteration: ``rank``, ``iteration``, ``span_ns``, ``flop_count``,
            ``flop_per_s``, ``exact_flop_count`` (of exact models alone), ``mfu`` (model FLOP utilization: time that
            these FLOP take at the device's peaks by the step's; null without a system).
        device: Name of the device whose peaks are meant; None without a system.
        ridges: Peaks: ``dtype``, ``flop_per_s``, ``memory_bytes_per_s``.
    """

    steps: pl.DataFrame
    device: str | None
    ridges: pl.DataFrame

    def plot(self) -> Plot:
        """Return the roofline: FLOP/s over FLOP/byte, a point a row with an exact model, as large as its time."""
        table = self.table.filter("exact", pl.col("flop_per_s") > 0, pl.col("flop_per_byte") > 0).head(_MOST)
        table = table.filter(pl.col("share") > _LEAST_SHARE)
        data: list[dict[str, Any]] = []
        for kind in table["kind"].unique(maintain_order=True) if "kind" in table.columns else [None]:
            own = table.filter(pl.col("kind") == kind) if kind is not None else table
            label = own["op"] if "op" in own.columns else pl.Series([""] * own.height)
            shapes = own["shapes"].fill_null("").str.slice(0, 80) if "shapes" in own.columns else label
            largest = max(float(table["total_ns"].max() or 1), 1.0)  # type: ignore[arg-type]
            data.append(
                {
                    "type": "scatter", "mode": "markers", "name": str(kind or "operators"),
                    "x": own["flop_per_byte"].to_list(), "y": [value / 1e12 for value in own["flop_per_s"]],
                    "customdata": [
                        [name, shape, share * 100]
                        for name, shape, share in zip(label, shapes, own["share"].fill_null(0), strict=True)
                    ],
                    "marker": {
                        "color": kind_color(str(kind)), "opacity": 0.75, "line": {"width": 0.5},
                        "size": [5 + 25 * (value / largest) ** 0.5 for value in own["total_ns"]],
                    },
                    "hovertemplate": "%{customdata[0]} %{customdata[1]}<br>%{x:.3g} FLOP/byte, %{y:.4g} TFLOP/s, "
                    "%{customdata[2]:.2f} % of the time<extra></extra>",
                }
            )  # fmt: skip
        data += self._roofs(table)
        shape = layout(x="FLOP per byte", y="TFLOP/s")
        shape["xaxis"] |= {"type": "log"}
        shape["yaxis"] |= {"type": "log", "exponentformat": "power", "dtick": 1}
        shape["xaxis"] |= {"exponentformat": "power", "dtick": 1}
        return Plot(tuple(data), shape)

    def _roofs(self, table: pl.DataFrame) -> list[dict[str, Any]]:
        """Return the lines that the device's peaks draw, for the element types that occur."""
        if not table.height or not self.ridges.height:
            return []
        low, high = float(table["flop_per_byte"].min() or 1) / 2, float(table["flop_per_byte"].max() or 1) * 2  # type: ignore[arg-type]
        used = set(table["dtype"].drop_nulls().to_list())
        lines: list[dict[str, Any]] = []
        for dtype, peak, memory in self.ridges.iter_rows():
            if memory is None or (dtype not in used and dtype != "any"):
                continue
            ridge = peak / memory
            xs = sorted({low, min(max(ridge, low), high), high})
            ys = [min(peak, x * memory) / 1e12 for x in xs]
            lines.append(
                {"type": "scatter", "mode": "lines", "name": f"roofline {dtype}", "x": xs, "y": ys,
                 "line": {"color": "#555", "width": 1, "dash": "dot"}, "hoverinfo": "name"}
            )  # fmt: skip
        return lines


def ops(source: Source, *, options: Options | None = None) -> Ops:
    """Measure time and work of operators.

    Args:
        source: Traces, or where they are.
        options: Which iterations, the system for peaks, what tells rows apart.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import TraceBuilder
        >>> ops(TraceBuilder(rank=0).build()).table.height
        0
    """
    return run_one(measure, combine, source, options)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank: its calls, grouped, and the work of its iterations."""

    table: pl.DataFrame
    steps: pl.DataFrame


def measure(view: RankView) -> Part:
    """Return the calls of one rank: durations as lists, work as sums."""
    keys = check_keys(view.options, _KEYS, _DEFAULT)
    table = pl.concat([view.activities, view.calls], how="horizontal").filter(pl.col("window").is_not_null())
    table = table.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    calls = with_times_at_peaks(_calls(view, table), view.options.system.device if view.options.system else None)
    line = list(dict.fromkeys((*keys, "dtype", "work_model", "work_is_exact", "modelled")))
    sums = (pl.col("kernels", *_WORK, *_TIMES).sum(), pl.col("duration_ns").sum().alias("line_ns"))
    return Part(calls.group_by(line, maintain_order=True).agg("duration_ns", *sums), _steps(view, calls))


def _calls(view: RankView, table: pl.DataFrame) -> pl.DataFrame:
    """Return the calls behind activities, [K]: time, class, element type and work of each."""
    names = table["name"]
    # An activity without a known operator stands for itself.
    table = table.with_columns(
        own=pl.coalesce("op_row", -1 - pl.col("row")),
        kernel_dtype=view.options.kernel_classes.dtype_names(names).cast(pl.String),
        elsewhere=names.str.contains(_ELSEWHERE),
        product=pl.col("kind").is_in(_PRODUCTS),
        serving=names.str.contains(_SERVING),
    ).with_columns(product_dtype=pl.when(pl.col("product") & ~pl.col("serving")).then("kernel_dtype"))
    # The kernel that tells most of its call comes first: of those that do products, else of all, the longest.
    table = table.sort("product", "serving", "duration_ns", descending=[True, False, True], maintain_order=True)
    calls = table.group_by("own", "window", maintain_order=True).agg(
        pl.col("kind", "elsewhere", "op", "shapes", "types", "module", "call_row", *_WORK).first(),
        pl.col("work_dtype", "work_model", "work_is_exact").first(),
        pl.col("kernel_dtype").first(),
        pl.col("product_dtype").drop_nulls().first(),
        pl.len().cast(pl.Int64).alias("kernels"),
        pl.col("duration_ns").sum(),
    )
    # Operators below one call with arguments share its work; it counts once, at the one that tells most.
    call = pl.coalesce("call_row", "own")
    again = pl.int_range(pl.len()).over(call, "window") > 0
    product = pl.col("product_dtype").drop_nulls().first().over(call, "window")
    modelled = pl.col("work_model").is_not_null()
    return calls.with_columns(
        *(pl.when(~again).then(name).alias(name) for name in _WORK),
        modelled=modelled,
        # What isn't a product computes in its operator's type; its kernel's name may name others.
        dtype=pl.coalesce(product, "work_dtype", pl.when(~modelled).then("kernel_dtype")),
        op=pl.col("op").fill_null("(no operator)"),
        rank=pl.lit(view.rank, pl.Int64),
        iteration=view.iterations.gather(calls["window"]),
    )


def _steps(view: RankView, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the work of each iteration by element type, and whether it is exact."""
    spans = pl.DataFrame(
        {
            "window": pl.Series(range(len(view.windows)), dtype=pl.Int64),
            "iteration": view.iterations,
            "span_ns": pl.Series([window.end_ns - window.begin_ns for window in view.windows], dtype=pl.Int64),
        }
    )
    exact = pl.col("work_is_exact").alias("exact")
    found = calls.filter(pl.col("flop_count") > 0).group_by("window", "dtype", exact).agg(pl.col("flop_count").sum())
    joined = spans.join(found, on="window", how="left", maintain_order="left")
    return joined.select(
        pl.lit(view.rank, pl.Int64).alias("rank"), "iteration", "span_ns", "dtype", "exact", "flop_count"
    )


def combine(parts: Mapping[int, Part], job: Job) -> Ops:
    """Put the ranks together."""
    keys = check_keys(job.options, _KEYS, _DEFAULT)
    table = pl.concat([parts[rank].table for rank in job.ranks])
    device = job.options.system.device if job.options.system else None
    times = pl.col("duration_ns").explode(empty_as_null=False)
    modelled = times.filter(pl.col("modelled").repeat_by(pl.col("duration_ns").list.len()).explode(empty_as_null=False))
    whole = int(table.select(pl.col("duration_ns").list.sum().sum()).item() or 0)
    arithmetic = pl.col("flop_count") > 0
    by_time = pl.when(arithmetic).then("line_ns").otherwise(-1)
    rows = table.group_by(keys, maintain_order=True).agg(
        count=pl.col("duration_ns").list.len().sum().cast(pl.Int64),
        kernels=pl.col("kernels").sum(),
        total_ns=times.sum(),
        mean_ns=times.mean(),
        p50_ns=times.quantile(0.5, "nearest").cast(pl.Int64),
        p90_ns=times.quantile(0.9, "nearest").cast(pl.Int64),
        modelled_ns=modelled.sum(),
        any_model=pl.col("modelled").any(),
        model=pl.col("work_model").drop_nulls().first(),
        dtype=pl.col("dtype").sort_by(by_time, descending=True, maintain_order=True).drop_nulls().first(),
        mixed=pl.col("dtype").filter(arithmetic).n_unique() > 1,
        exact=pl.col("work_is_exact").drop_nulls().all(),
        **{name: pl.col(name).sum() for name in (*_WORK, *_TIMES)},
    )
    known, busy = pl.col("any_model"), pl.col("modelled_ns") > 0
    moved = pl.col("read_bytes") + pl.col("write_bytes")
    rows = rows.with_columns(
        *(pl.when(known).then(name).alias(name) for name in (*_WORK, "exact")),
        share=pl.col("total_ns") / whole if whole else pl.lit(None, pl.Float64),
    ).with_columns(
        flop_per_s=pl.when(known & busy & (pl.col("flop_count") > 0)).then(
            pl.col("flop_count") * 1e9 / pl.col("modelled_ns")
        ),
        bytes_per_s=pl.when(known & busy).then(moved * 1e9 / pl.col("modelled_ns")),
        flop_per_byte=pl.when(known & (moved > 0)).then(pl.col("flop_count") / moved),
    )
    # What is told of a row should hold for most of it.
    told = (pl.col("roofline_ns") > 0) & (2 * pl.col("roofline_ns") >= pl.col("total_ns"))
    rows = rows.with_columns(
        bound=pl.when(told).then(
            pl.when(2 * pl.col("compute_bound_ns") >= pl.col("best_ns"))
            .then(pl.lit("compute")).otherwise(pl.lit("memory"))
        ),
        peak_share=pl.when(told).then(pl.col("best_ns") / pl.col("roofline_ns")),
    )  # fmt: skip
    rows = rows.sort("total_ns", *keys, descending=[True, *(False for _ in keys)])
    columns = (
        "count", "kernels", "total_ns", "share", "mean_ns", "p50_ns", "p90_ns", *_WORK, "flop_per_s", "bytes_per_s",
        "flop_per_byte", "dtype", "model", "exact", "bound", "peak_share",
    )  # fmt: skip
    steps = _with_mfu(pl.concat([parts[rank].steps for rank in job.ranks]), device)
    parameters = job.options.as_dict() | {"by": list(keys)}
    return Ops(
        "ops", parameters, rows.select(*keys, *columns), job.coverage, (*job.notes, *_notes(rows, job)),
        _findings(rows, steps, job), steps, device.name if device else None, _ridges(device),
    )  # fmt: skip


def _with_mfu(steps: pl.DataFrame, device: Device | None) -> pl.DataFrame:
    peaks = peaks_of(steps["dtype"], device)
    steps = steps.join(peaks, on="dtype", how="left", nulls_equal=True, maintain_order="left")
    steps = steps.with_columns(exact_flop_count=pl.when("exact").then("flop_count"))
    found = steps.group_by("rank", "iteration", "span_ns", maintain_order=True).agg(
        known_sum("flop_count"),
        known_sum("exact_flop_count"),
        at_peak=(pl.col("exact_flop_count") * 1e9 / pl.col("peak")).sum(),
        lacking=pl.col("exact_flop_count").filter(pl.col("peak").is_null()).sum(),
    )
    span = pl.when(pl.col("span_ns") > 0).then("span_ns")
    return found.select(
        "rank", "iteration", "span_ns", "flop_count", "exact_flop_count",
        flop_per_s=pl.col("flop_count") * 1e9 / span,
        mfu=pl.when((pl.col("lacking") * _FEW <= pl.col("exact_flop_count")) & (pl.col("at_peak") > 0))
        .then(pl.col("at_peak") / span),
    )  # fmt: skip


def _ridges(device: Device | None) -> pl.DataFrame:
    rows = [] if device is None else [(name, peak, device.memory_bytes_per_s) for name, peak in device.peak_flop_per_s]
    schema = {"dtype": pl.String, "flop_per_s": pl.Float64, "memory_bytes_per_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _notes(rows: pl.DataFrame, job: Job) -> list[str]:
    notes = []
    if not rows.height:
        return ["no activity in the chosen iterations"]
    if "shapes" in rows.columns and rows["shapes"].null_count() == rows.height:
        notes.append("no operator's shapes were recorded: no FLOP and no bytes; record with record_shapes=True")
    elif job.coverage.modelled is not None and job.coverage.modelled < 0.9:
        left = format_share(1 - job.coverage.modelled, 1)
        notes.append(
            f"{left} of the computing kernels' time has no FLOP or byte model: rates and utilization are lower bounds"
        )
    inexact = rows.filter(~pl.col("exact").fill_null(True))
    if inexact.height:
        share = format_share(int(inexact["total_ns"].sum()), int(rows["total_ns"].sum()))
        notes.append(
            f"models of {share} of the time assume something that wasn't recorded (column exact): these rates may be "
            "far off; neither the roofline's picture nor utilization nor findings rest on them"
        )
    notes += _roofline_notes(rows)
    if job.options.system is None:
        notes.append("no system given: no roofline and no utilization; name the machine, such as h100-dgx")
    return notes


def _roofline_notes(rows: pl.DataFrame) -> list[str]:
    """Say what shares of the peaks mean where that isn't plain."""
    exact = pl.col("exact").fill_null(False)
    above = rows.filter(exact & (pl.col("peak_share") > 1))
    found = {
        "above the memory roofline: a cache still held what they read; their bytes are those of a cold cache":
            above.filter(bound="memory")["total_ns"],
        "above the compute roofline: their algorithm saves arithmetic (Winograd), or they computed in a smaller "
        "element type than the names of their kernels tell, or the device has higher peaks than the system says":
            above.filter(bound="compute")["total_ns"],
        "with arithmetic in several element types: each call counts at its own type's peak, and the column dtype is "
        "that of most time": rows.filter(pl.col("mixed") & pl.col("peak_share").is_not_null())["total_ns"],
        "without a share of the peak, since most of their time has no model, or no peak for its element type":
            rows.filter(pl.col("peak_share").is_null() & (pl.col("roofline_ns") > 0))["total_ns"],
    }  # fmt: skip
    whole = int(rows["total_ns"].sum())
    return [
        f"{format_number_of(len(time_ns), 'row')} ({format_share(int(time_ns.sum()), whole)} of the time) {what}"
        for what, time_ns in found.items()
        if len(time_ns)
    ]


def _findings(rows: pl.DataFrame, steps: pl.DataFrame, job: Job) -> tuple[Finding, ...]:
    said = []
    mfu = steps["mfu"].drop_nulls()
    if len(mfu) and (job.coverage.modelled or 0) >= 0.5:
        whole = (job.coverage.modelled or 0) >= 0.9 and steps["flop_count"].sum() == steps["exact_flop_count"].sum()
        least = "" if whole else "at least "
        said.append(Finding(f"model FLOP utilization {least}{format_share(float(mfu.mean() or 0), 1)} of the peaks"))  # type: ignore[arg-type]
    far = rows.filter("exact", pl.col("peak_share") < 0.5, pl.col("share") >= 0.05)
    for row in far.head(2).iter_rows(named=True):
        gain = int(row["roofline_ns"] - row["best_ns"]) // job.rank_steps
        text = (
            f"{row.get('op', 'operators')}: {format_share(row['peak_share'], 1)} of its {row['bound']} roofline; "
            f"at the roofline, a rank's {job.stretch} would spend {format_ns(gain)} less in it at most"
        )
        said.append(Finding(text, gain))
    return tuple(said)
