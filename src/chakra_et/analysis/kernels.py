"""Time by kernel: how often, how long, launched by which operator.

Shape letters: A activities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from chakra_et.analysis.charts import bars, kind_color, time_unit
from chakra_et.analysis.names import short_name
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView
from chakra_et.units import format_name, format_ns, format_number_of, format_share

__all__ = ["Kernels", "combine", "kernels", "measure"]

_KEYS = ("rank", "iteration", "device", "stream", "category", "kind", "name", "op")
_DEFAULT = ("name", "kind", "category")


@dataclass(frozen=True, slots=True, eq=False)
class Kernels(Result):
    """Time by kernel (on a rank without a device: by operator of the host).

    Columns of `table`, a row for each combination of what `by` says (``name``, ``kind``: the kernel's class,
    ``category``: compute, communication or memory; also ``op``: the launching operator, ``device``, ``stream``,
    ``rank``, ``iteration``), the longest first: the keys, ``count``, ``total_ns`` (durations added up over ranks and
    iterations; kernels that run at once count each), ``share`` (of all rows' total), ``mean_ns``, ``min_ns``,
    ``p50_ns``, ``p90_ns``, ``p99_ns``, ``max_ns``, ``ops`` (the launching operators, the most frequent first, three at
    most).
    Durations are those of the activities that start in the chosen iterations.

    Attributes:
        kinds: The same by class: ``category``, ``kind``, ``count``, ``total_ns``, ``share``.
    """

    kinds: pl.DataFrame

    def plot(self) -> Plot:
        """Return a bar a class of kernels."""
        table = self.kinds
        size, unit = time_unit(float(table["total_ns"].max() or 0))  # type: ignore[arg-type]
        values = [value / size for value in table["total_ns"]]
        kinds = table["kind"].to_list()
        colors = [kind_color(kind) for kind in kinds]
        return bars(kinds, values, x=f"time, added up, {unit}", color=colors, hover=f"%{{y}}: %{{x:.4g}} {unit}")


def kernels(source: Source, *, options: Options | None = None) -> Kernels:
    """Measure the time of each kernel.

    Args:
        source: Traces, or where they are.
        options: Which iterations, what tells rows apart.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("sgemm", NodeType.COMP_NODE, start_ns=0, duration_ns=5, is_cpu_op=False, stream=7)
        >>> kernels(builder.build()).table.select("name", "kind", "total_ns").rows()
        [('sgemm', 'gemm', 5)]
    """
    return run_one(measure, combine, source, options)


def measure(view: RankView) -> pl.DataFrame:
    """Return the durations of each kernel of one rank, as lists."""
    keys = check_keys(view.options, _KEYS, _DEFAULT)
    table = pl.concat([view.activities, view.calls.select("op")], how="horizontal")
    table = table.filter(pl.col("window").is_not_null())
    table = table.with_columns(
        rank=pl.lit(view.rank, pl.Int64),
        iteration=view.iterations.gather(table["window"]),
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    line = list(dict.fromkeys((*keys, "category", "kind", "op")))
    return table.group_by(line, maintain_order=True).agg("duration_ns")


def combine(parts: Mapping[int, pl.DataFrame], job: Job) -> Kernels:
    """Put the ranks together."""
    keys = check_keys(job.options, _KEYS, _DEFAULT)
    table = pl.concat([parts[rank] for rank in job.ranks])
    times = pl.col("duration_ns").explode(empty_as_null=False)
    whole = sum(int(part.select(pl.col("duration_ns").list.sum().sum()).item() or 0) for part in parts.values())
    share = pl.col("total_ns") / whole if whole else pl.lit(None, pl.Float64)
    count = pl.col("duration_ns").list.len()
    quantiles = {f"p{part}_ns": times.quantile(part / 100, "nearest").cast(pl.Int64) for part in (50, 90, 99)}
    rows = table.group_by(keys).agg(
        count=count.sum().cast(pl.Int64),
        total_ns=times.sum(),
        mean_ns=times.mean(),
        min_ns=times.min(),
        max_ns=times.max(),
        **quantiles,
    )
    if "op" not in keys:
        named = table.group_by(*keys, "op").agg(calls=count.sum()).filter(pl.col("op").is_not_null())
        named = named.sort("calls", "op", descending=[True, False]) if named.height else named
        ops = named.group_by(keys, maintain_order=True).agg(pl.col("op").head(3).str.join(", ").alias("ops"))
        rows = rows.join(ops, on=keys, how="left", nulls_equal=True)
    else:
        rows = rows.with_columns(ops="op")
    rows = rows.with_columns(share=share).sort("total_ns", *keys, descending=[True, *(False for _ in keys)])
    columns = ("count", "total_ns", "share", "mean_ns", "min_ns", *quantiles, "max_ns", "ops")
    rows = rows.select(*keys, *columns)
    kinds = (
        table.group_by("category", "kind")
        .agg(count=count.sum().cast(pl.Int64), total_ns=times.sum())
        .with_columns(share=share)
        .sort("total_ns", "kind", descending=[True, False])
    )
    parameters = job.options.as_dict() | {"by": list(keys)}
    notes = job.notes if rows.height else (*job.notes, "no activity in the chosen iterations")
    return Kernels("kernels", parameters, rows, job.coverage, notes, _findings(rows, kinds, job), kinds)


def _findings(rows: pl.DataFrame, kinds: pl.DataFrame, job: Job) -> tuple[Finding, ...]:
    steps = job.rank_steps
    whose = "device" if job.has_device else "host's"
    said = []
    top = rows.filter(pl.col("category") == "compute").head(1) if "category" in rows.columns else rows.head(0)
    if "name" in top.columns:
        for name, count, total, share in top.select("name", "count", "total_ns", "share").iter_rows():
            if share is not None and share >= 0.1:
                each = total // steps
                calls = format_number_of(count // steps, "call") if count >= steps else "less than one call"
                text = (
                    f"{format_name(short_name(name))} takes {format_share(share, 1)} of the {whose} time, "
                    f"{format_ns(each)} of a rank's {job.stretch} in {calls}"
                )
                said.append(Finding(text, each, f"{'kernel' if job.has_device else 'op'} {name}"))
    unknown = float(kinds.filter(pl.col("kind") == "other")["share"].sum())
    if unknown >= 0.05 and job.has_device:
        share = format_share(unknown, 1)
        said.append(
            Finding(f"{share} of the device time is in kernels of no known class: a file of classes can name them")
        )
    return tuple(said)
