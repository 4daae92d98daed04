"""Communications: how many, how large, how long, at what bandwidth, and how much of their time is waiting.

Shape letters: C communications of all ranks, M meetings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from chakra_et.analysis.charts import COLORS, bars
from chakra_et.analysis.expressions import known_sum
from chakra_et.analysis.meetings import joined, measure_communications, meetings_of, size_class
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.units import format_bytes, format_number_of, format_share

__all__ = ["Comms", "combine", "comms", "measure"]

_KEYS = ("rank", "iteration", "pg_name", "axis", "scope", "comm_type", "size_class_bytes", "comm_dtype")
_DEFAULT = ("pg_name", "axis", "comm_type", "size_class_bytes")
_SPLITS = ("in_split_sizes", "out_split_sizes")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Comms(Result):
    """The communications.

    Columns of `table`, a row for each combination of what `by` says (``pg_name``, ``axis``, ``comm_type``,
    ``size_class_bytes``: the power of two below the size; also ``rank``, ``iteration``, ``scope``, ``comm_dtype``):
    the keys, then

    * ``count``: communications, each once however many ranks take part; ``ranks``: ranks that do.
    * ``group_size``: members of the group. ``size_bytes``: bytes of the whole vectors, added up.
    * ``time_ns``, ``exposed_ns``, ``wait_ns``: of one rank, on average over the row's ranks: time in which any of its
      communications runs (their union); of that, while nothing computes; and what they wait for the last participant,
      added up (null where that can't be known).
    * ``transfer_mean_ns``, ``transfer_median_ns``: time that a communication takes from the last arrival on: the
      shortest of its participants' times.
    * ``algorithm_bytes_per_s``: bytes of the whole vector by that time, mean over the communications;
      ``bus_bytes_per_s``, ``bus_median_bytes_per_s``: times the correction factor of NCCL's tests, mean and median;
      ``bus_gib_per_s``: the mean in GiB/s. Lower bounds where ``lower_bound`` (a participant isn't in the set: the
      times may hold waits).
    * ``link_share``: bus bandwidth as a share of the link's peak that the system gives; null without a system.

    Attributes:
        sizes: The message-size histogram: ``comm_type``, ``size_class_bytes``, ``count``, ``size_bytes``.
        imbalance: All-to-alls in which some rank sends or receives unequal parts, a row a rank and group: ``rank``,
            ``pg_name``, ``count``, ``sent_bytes``, ``received_bytes`` (null where the trace doesn't tell),
            ``received_share`` of the mean over ranks (1 is even).
    """

    sizes: pl.DataFrame
    imbalance: pl.DataFrame

    def plot(self) -> Plot:
        """Return a bar a row: its mean bus bandwidth."""
        table = self.table.filter(pl.col("bus_bytes_per_s").is_not_null()).sort("time_ns", descending=True).head(24)
        keys = [key for key in ("pg_name", "axis", "comm_type", "size_class_bytes") if key in table.columns]
        names = []
        for row in table.select(keys).iter_rows(named=True):
            words = [row.get("comm_type") or "communications"]
            words += [f"of group {row['pg_name']}"] if row.get("pg_name") is not None else []
            words += [f"({row['axis']})"] if row.get("axis") is not None else []
            words += [f"{format_bytes(row['size_class_bytes'])}+"] if row.get("size_class_bytes") else []
            names.append(" ".join(words))
        values = [value / 1e9 for value in table["bus_bytes_per_s"]]
        return bars(names, values, x="bus bandwidth, GB/s", color=COLORS["communication"], hover="%{y}: %{x:.4g} GB/s")


def comms(source: Source, *, options: Options | None = None) -> Comms:
    """Measure the communications of a job.

    Args:
        source: Traces, or where they are.
        options: Which iterations, the system for shares of links, what tells rows apart.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import CommType, NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0, world_size=2)
        >>> _ = builder.add("ar", NodeType.COMM_COLL_NODE, start_ns=0, duration_ns=1000, is_cpu_op=False,
        ...     comm_type=int(CommType.ALL_REDUCE), comm_size=1000, pg_name="0")
        >>> comms(builder.build()).table.select("comm_type", "count", "algorithm_bytes_per_s").rows()
        [('all_reduce', 1, 1000000000.0)]
    """
    return run_one(measure, combine, source, options)


measure = measure_communications


def combine(parts: Mapping[int, pl.DataFrame], job: Job) -> Comms:
    """Put the ranks together."""
    keys = check_keys(job.options, _KEYS, _DEFAULT)
    table = joined(parts, job).filter("chosen")
    meetings = meetings_of(table, job)
    meetings = meetings.with_columns(size_class(meetings["size_bytes"]))
    table = table.drop("pg_name", "comm_type", "iteration").join(meetings, on="meeting", maintain_order="left")
    rows = _rows(table, meetings, keys, job)
    parameters = job.options.as_dict() | {"by": list(keys)}
    notes = (*job.notes, *_notes(table, meetings, job))
    sizes = (
        meetings.group_by("comm_type", "size_class_bytes")
        .agg(pl.len().cast(pl.Int64).alias("count"), known_sum("size_bytes"))
        .sort("comm_type", "size_class_bytes")
    )
    imbalance = _imbalance(table)
    findings = _findings(rows, imbalance, job)
    return Comms("comms", parameters, rows, job.coverage, notes, findings, sizes, imbalance)


def _rows(table: pl.DataFrame, meetings: pl.DataFrame, keys: tuple[str, ...], job: Job) -> pl.DataFrame:
    """Add up what each row stands for: times over its ranks, bandwidths over its meetings."""
    own = [key for key in keys if key != "rank"]
    line = list(dict.fromkeys(("rank", *keys)))
    # Cut so that no stretch counts twice; what computed until a moment grows with it, so that it cuts alike.
    over = [pl.col(name).cum_max().shift().over(line) for name in ("end_ns", "compute_to_end_ns")]
    each = table.sort("start_ns").with_columns(
        begin=pl.min_horizontal(pl.max_horizontal("start_ns", over[0]), "end_ns"),
        hidden_before=pl.min_horizontal(pl.max_horizontal("compute_to_start_ns", over[1]), "compute_to_end_ns"),
    )
    time = pl.col("end_ns") - pl.col("begin")
    hidden = pl.col("compute_to_end_ns") - pl.col("hidden_before")
    per_rank = each.group_by(line, maintain_order=True).agg(
        time=time.sum(),
        exposed=(time - hidden).sum(),
        wait=known_sum("wait_ns"),
    )
    times = per_rank.group_by(keys, maintain_order=True).agg(
        ranks=pl.col("rank").n_unique().cast(pl.Int64) if "rank" not in keys else pl.lit(1, pl.Int64),
        time_ns=pl.col("time").mean().round().cast(pl.Int64),
        exposed_ns=pl.col("exposed").mean().round().cast(pl.Int64),
        wait_ns=pl.col("wait").mean().round().cast(pl.Int64),
    )
    if "rank" in keys:
        seen = each.select("meeting", "rank", *own).unique(maintain_order=True)
        meetings = seen.join(meetings.drop([key for key in own if key in meetings.columns]), on="meeting")
    elif "comm_dtype" in keys:
        seen = each.select("meeting", "comm_dtype").unique("meeting", maintain_order=True)
        meetings = meetings.join(seen, on="meeting")
    rates = meetings.group_by(keys, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("group_size").max(),
        known_sum("size_bytes"),
        transfer_mean_ns=pl.col("transfer_ns").mean(),
        transfer_median_ns=pl.col("transfer_ns").median(),
        algorithm_bytes_per_s=pl.col("algorithm_bytes_per_s").mean(),
        bus_bytes_per_s=pl.col("bus_bytes_per_s").mean(),
        bus_median_bytes_per_s=pl.col("bus_bytes_per_s").median(),
        lower_bound=pl.col("lower_bound").any(),
        peak=_peak(job),
    )
    found = rates.join(times, on=keys, nulls_equal=True, maintain_order="left")
    found = found.with_columns(
        bus_gib_per_s=pl.col("bus_bytes_per_s") / _GIB, link_share=pl.col("bus_bytes_per_s") / pl.col("peak")
    )
    columns = (
        "count", "ranks", "group_size", "size_bytes", "time_ns", "exposed_ns", "wait_ns", "transfer_mean_ns",
        "transfer_median_ns", "algorithm_bytes_per_s", "bus_bytes_per_s", "bus_median_bytes_per_s", "bus_gib_per_s",
        "lower_bound", "link_share",
    )  # fmt: skip
    return found.select(*keys, *columns).sort("time_ns", *keys, descending=[True, *(False for _ in keys)])


def _peak(job: Job) -> pl.Expr:
    """Return the peak of the link that a row's communications use, bytes/s; null without a system."""
    system = job.options.system
    if system is None:
        return pl.lit(None, pl.Float64)
    near, far = (float(one.bandwidth_bytes_per_s) for one in (system.dimensions[0], system.dimensions[-1]))
    return pl.when((pl.col("scope") == "inter").any()).then(far).otherwise(near)


def _notes(table: pl.DataFrame, meetings: pl.DataFrame, job: Job) -> list[str]:
    if not table.height:
        return ["no communication in the chosen iterations"]
    notes = []
    lacking = meetings.filter("lower_bound").height
    if lacking:
        notes.append(
            f"{format_number_of(lacking, 'communication')} of {meetings.height:,} lack a participant: their times may "
            "hold waits, and bandwidths are lower bounds; convert all ranks together"
        )
    unsized = meetings.filter(pl.col("size_bytes").is_null()).height
    if unsized:
        notes.append(
            f"{format_number_of(unsized, 'communication')} of {meetings.height:,} have no known size: no bandwidth"
        )
    instant = meetings.filter(pl.col("transfer_ns").is_null()).height
    if instant:
        notes.append(f"{format_number_of(instant, 'communication')} took no time that can be measured: no bandwidth")
    if meetings["axis"].null_count() == meetings.height and meetings["pg_name"].n_unique() > 1:
        notes.append("no process group's description tells an axis of parallelism")
    if job.options.server_size is None:
        notes.append("which ranks share a server isn't known: no scope; give a system or the ranks of a server")
    return notes


def _imbalance(table: pl.DataFrame) -> pl.DataFrame:
    """Return who sends and receives how much in uneven all-to-alls."""
    schema = {"rank": pl.Int64, "pg_name": pl.String, "count": pl.Int64, "sent_bytes": pl.Int64,
              "received_bytes": pl.Int64, "received_share": pl.Float64}  # fmt: skip
    told = pl.any_horizontal(pl.col(*_SPLITS).is_not_null())
    table = table.filter((pl.col("comm_type") == "all_to_all") & told)
    splits = table.select(_SPLITS).unique()
    rows = [(*_split(sent), *_split(received)) for sent, received in splits.iter_rows()]
    names = {"sent": pl.Int64, "sent_uneven": pl.Boolean, "received": pl.Int64, "received_uneven": pl.Boolean}
    splits = splits.hstack(pl.DataFrame(rows, schema=names, orient="row"))
    table = table.join(splits, on=_SPLITS, nulls_equal=True)
    table = table.filter((pl.col("sent_uneven") | pl.col("received_uneven")).any().over("meeting"))
    # Splits count elements (rows) of a vector whose bytes are known, but on a rank that sends none.
    item = pl.when(pl.col("sent") > 0).then(pl.col("comm_size") / pl.col("sent")).max().over("meeting")
    table = table.with_columns(got=(pl.col("received") * item).round().cast(pl.Int64))
    found = (
        table.group_by("rank", "pg_name")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            sent_bytes=pl.col("comm_size").sum(),
            received_bytes=pl.when(pl.col("got").is_not_null().all()).then(pl.col("got").sum()),
        )
        .sort("pg_name", "rank")
    )
    mean = pl.col("received_bytes").mean().over("pg_name")
    return found.with_columns(
        received_share=pl.when((mean > 0) & (pl.len().over("pg_name") > 1)).then(pl.col("received_bytes") / mean)
    ).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _split(text: str | None) -> tuple[int | None, bool]:
    """Return the sum of a JSON list of numbers, None without one, and whether they differ."""
    try:
        values: Any = json.loads(text or "")
    except ValueError:
        return None, False
    if not isinstance(values, list) or not values or not all(isinstance(value, int) for value in values):
        return None, False
    return sum(values), len(set(values)) > 1


def _findings(rows: pl.DataFrame, imbalance: pl.DataFrame, job: Job) -> tuple[Finding, ...]:
    said = []
    for row in rows.head(3).iter_rows(named=True):
        waits = row["wait_ns"]
        if waits is not None and row["time_ns"] and waits * 3 >= row["time_ns"]:
            what = row.get("comm_type") or "communications"
            where = f" of group {row['pg_name']}" if row.get("pg_name") is not None else ""
            size = f" of {format_bytes(row['size_class_bytes'])} and more" if row.get("size_class_bytes") else ""
            share = format_share(waits, row["time_ns"])
            text = f"{share} of the time in {what}{where}{size} is waiting for the last rank to come"
            said.append(Finding(text, waits // job.steps, "waiting"))
    most = imbalance.drop_nulls("received_share").sort("received_share", descending=True).head(1)
    for rank, group, share in most.select("rank", "pg_name", "received_share").iter_rows():
        if share >= 1.2:
            said.append(
                Finding(f"rank {rank} receives {share:.2f} times the mean in uneven all-to-alls of group {group}")
            )
    return tuple(said)
