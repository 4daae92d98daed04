"""Who comes late to communications: how often, by how much, why, and what it costs the others.

Shape letters: C communications of all ranks, M meetings, R ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from chakra_et.analysis.charts import HEAT, layout, time_unit
from chakra_et.analysis.meetings import clocks_of, joined, measure_communications
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.units import format_ns, format_ranks, format_share

__all__ = ["Skew", "combine", "measure", "skew"]

_KEYS = ("rank", "iteration", "pg_name", "comm_type")
_DEFAULT = ("rank",)
_CAUSES = {
    "late_compute_ns": "its compute takes longer",
    "late_host_ns": "its host is late",
    "late_before_ns": "it was late already before",
}
_THIRDS = ("last_in_begin", "last_in_middle", "last_in_end")

_MOST_COLUMNS = 600
# The share of cells that the color scale tells apart.
_DARKEST = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Skew(Result):
    """Arrivals at the communications that several ranks of the set take part in.

    Columns of `table`, a row a rank (or what `by` says: ``rank``, ``iteration``, ``pg_name``, ``comm_type``):

    * ``count``: communications that it takes part in; ``last_count``: how often it is the last to arrive (of ties,
      the lowest rank); ``last_share``; ``last_in_begin``, ``last_in_middle``, ``last_in_end``: of those, in which third
      of its iteration.
    * ``behind_mean_ns``, ``behind_max_ns``: how long after the first it arrives; ``waited_ns``: how long it waits for
      the last, added up.
    * ``cost_ns``: what its lateness costs the others: the time between the last but one and it, where it is the last,
      a union of all such stretches (messages may wait for it at once). A ceiling for what its punctuality would gain.
    * ``late_compute_ns``, ``late_host_ns``, ``late_before_ns``: where it is the last, by how much it is later than
      the others' mean arrival, and why, compared with their means since their communications before: it computed for
      longer (slow compute), did something else or nothing for longer (late host), or left its communication before
      later (slow link, or late already then). Negative: that made it earlier. They add up to ``late_ns``.

    Attributes:
        meetings: A row a communication: ``meeting``, ``iteration``, ``pg_name``, ``comm_type``, ``ranks``,
            ``first_ns`` (arrival of the first, since the first of all), ``skew_ns`` (from the first to the last
            arrival), ``first_rank``, ``last_rank``, ``cost_ns``, ``place`` (in the iteration, 0 to 1).
        arrivals: A row a rank and communication: ``meeting``, ``rank``, ``behind_ns``, ``order`` (1: the first).
        clocks: A row a rank: ``rank``, ``reference``, ``offset_ns`` (added to its clock), ``low_ns``, ``high_ns``
            (between which causality leaves it), ``meetings``.
    """

    meetings: pl.DataFrame
    arrivals: pl.DataFrame
    clocks: pl.DataFrame

    def plot(self) -> Plot:
        """Return a heat map: how far each rank is behind the first, in each communication in time order.

        White is on time, gray takes no part.
        """
        every = self.meetings.sort("first_ns")
        order = every.head(_MOST_COLUMNS).with_row_index("column")
        cells = self.arrivals.join(order.select("meeting", "column"), on="meeting")
        ranks = sorted(cells["rank"].unique().to_list())
        most, often = (float(cells["behind_ns"].quantile(share) or 0) for share in (1.0, _DARKEST))
        size, unit = time_unit(most)
        # One large value would leave the rest white.
        most, hint = (often, f"; darkest: {often / size:.3g} {unit} or more") if 0 < 2 * often < most else (most, "")
        place = {rank: row for row, rank in enumerate(ranks)}
        values: list[list[float | None]] = [[None] * order.height for _ in ranks]
        for rank, column, behind in cells.select("rank", "column", "behind_ns").iter_rows():
            values[place[rank]][column] = round(behind / size, 4)
        words = [
            f"{kind} {number} of group {group or '?'}"
            for number, (kind, group) in enumerate(order.select("comm_type", "pg_name").iter_rows())
        ]
        heat = {
            "type": "heatmap", "z": values, "y": [f"rank {rank}" for rank in ranks], "colorscale": HEAT,
            "zmin": 0, "zmax": most / size or 1,
            "customdata": [words for _ in ranks],
            "colorbar": {"title": {"text": unit}, "thickness": 12},
            "hovertemplate": f"%{{y}}, %{{customdata}}: %{{z:.4g}} {unit} behind<extra></extra>",
        }  # fmt: skip
        some = f" (the first {order.height} of {every.height:,})" if order.height < every.height else ""
        shape = layout(x=f"communications in time order{some}{hint}", plot_bgcolor="#f0f0f0")
        shape["xaxis"] |= {"showgrid": False}
        shape["yaxis"] |= {"autorange": "reversed", "type": "category"}
        return Plot((heat,), shape)


def skew(source: Source, *, options: Options | None = None) -> Skew:
    """Measure who comes late.

    Args:
        source: Traces, or where they are.
        options: Which iterations, what tells rows apart.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import TraceBuilder
        >>> skew(TraceBuilder(rank=0).build()).notes[-1]
        'no communication that two ranks of the set take part in: arrivals need several ranks, converted together'
    """
    return run_one(measure, combine, source, options)


measure = measure_communications


def combine(parts: Mapping[int, pl.DataFrame], job: Job) -> Skew:
    """Put the ranks together."""
    keys = check_keys(job.options, _KEYS, _DEFAULT)
    table = joined(parts, job).filter(pl.col("type").is_not_null())
    table = table.filter(pl.col("rank").n_unique().over("meeting") > 1)
    clocks = clocks_of(table)
    offsets = dict(clocks.select("rank", "offset_ns").iter_rows())
    arrivals = _arrivals(table.filter("chosen"), offsets)
    meetings = _meetings(arrivals)
    rows = _rows(arrivals, keys)
    parameters = job.options.as_dict() | {"by": list(keys)}
    notes = [*job.notes, *_notes(arrivals, clocks)]
    return Skew(
        "skew", parameters, rows, job.coverage, tuple(notes), _findings(arrivals, job), meetings,
        arrivals.select("meeting", "rank", "behind_ns", "order"), clocks,
    )  # fmt: skip


def _arrivals(table: pl.DataFrame, offsets: Mapping[int, int]) -> pl.DataFrame:
    """Return each rank's arrival at each meeting, in order of arrival, and why it is later than the others' mean."""
    shift = pl.col("rank").replace_strict(dict(offsets), default=0, return_dtype=pl.Int64)
    # Counted from the first, since sums of times since 1970 don't fit into 64 bits.
    origin = table.select((pl.col("ready_ns") + shift).min()).item() or 0
    table = table.with_columns(
        arrival=pl.col("ready_ns") + shift - origin,
        left=pl.col("left_ns") + shift - origin,
        kind=pl.col("kind").replace("recv", "send"),
    )
    # A rank can hold both ends of a meeting (a send to itself): its later one counts.
    table = table.sort("meeting", "arrival").unique(["meeting", "rank"], keep="last", maintain_order=True)
    table = table.sort("meeting", "arrival", "rank", descending=[False, False, True])
    latest = pl.col("arrival").max().over("meeting")
    before = pl.col("arrival").shift().over("meeting")
    table = table.with_columns(
        order=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("meeting"),
        ranks=pl.len().cast(pl.Int64).over("meeting"),
        behind_ns=pl.col("arrival") - pl.col("arrival").min().over("meeting"),
        waited_ns=latest - pl.col("arrival"),
        late_ns=_beyond_others("arrival"),
        late_compute_ns=_beyond_others("computed_ns"),
        late_before_ns=_beyond_others("left"),
        gap=pl.col("arrival") - before,
    )
    return table.with_columns(
        # Each mean is rounded: what is left is the host's, so that the parts add up.
        late_host_ns=pl.col("late_ns") - pl.col("late_compute_ns") - pl.col("late_before_ns"),
        last=pl.col("order") == pl.col("ranks"),
    ).with_columns(cost_ns=pl.when("last").then("gap").otherwise(0))


def _waited_for() -> pl.Expr:
    """Return for how long others wait for the last ranks of a group's meetings alone, as a union."""
    end = pl.col("arrival").filter("last")
    begin = end - pl.col("cost_ns").filter("last")
    ends = end.sort_by(begin)
    return (ends - pl.max_horizontal(begin.sort_by(begin), ends.cum_max().shift())).clip(0).sum()


def _beyond_others(name: str) -> pl.Expr:
    """Return a value minus the mean of the meeting's others, ns."""
    value = pl.col(name)
    others = (value.sum().over("meeting") - value) / (pl.len().over("meeting") - 1)
    return value - others.round().cast(pl.Int64)


def _meetings(arrivals: pl.DataFrame) -> pl.DataFrame:
    return (
        arrivals.group_by("meeting", maintain_order=True)
        .agg(
            pl.col("iteration", "pg_name").first(),
            pl.col("kind").first().alias("comm_type"),
            pl.col("ranks").first(),
            first_ns=pl.col("arrival").first(),
            skew_ns=pl.col("behind_ns").last(),
            first_rank=pl.col("rank").first(),
            last_rank=pl.col("rank").last(),
            cost_ns=pl.col("cost_ns").last(),
            place=pl.col("place").last(),
        )
        .sort("first_ns", "meeting")
    )


def _rows(arrivals: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    names = {"comm_type": "kind"}
    last = pl.col("last")
    third = (pl.col("place") * 3).floor().clip(0, 2)
    found = arrivals.group_by([pl.col(names.get(key, key)).alias(key) for key in keys]).agg(
        pl.len().cast(pl.Int64).alias("count"),
        last_count=last.sum().cast(pl.Int64),
        **{name: (last & (third == number)).sum().cast(pl.Int64) for number, name in enumerate(_THIRDS)},
        behind_mean_ns=pl.col("behind_ns").mean(),
        behind_max_ns=pl.col("behind_ns").max(),
        waited_ns=pl.col("waited_ns").sum(),
        cost_ns=_waited_for(),
        late_ns=pl.col("late_ns").filter("last").sum(),
        **{name: pl.col(name).filter("last").sum() for name in _CAUSES},
    )
    found = found.with_columns(last_share=pl.col("last_count") / pl.col("count"))
    columns = (
        "count", "last_count", "last_share", *_THIRDS, "behind_mean_ns", "behind_max_ns", "waited_ns", "cost_ns",
        "late_ns", *_CAUSES,
    )  # fmt: skip
    return found.select(*keys, *columns).sort(keys)


def _notes(arrivals: pl.DataFrame, clocks: pl.DataFrame) -> list[str]:
    if not arrivals.height:
        return [
            "no communication that two ranks of the set take part in: arrivals need several ranks, converted together"
        ]
    notes = []
    moved = clocks.filter(pl.col("offset_ns") != 0)
    if moved.height:
        most = int(moved["offset_ns"].abs().max() or 0)  # type: ignore[arg-type]
        notes.append(f"{format_ranks(moved['rank'])}: clocks were shifted by up to {format_ns(most)}, from causality")
    loose = clocks.filter((pl.col("high_ns") - pl.col("low_ns")) > 0)
    if loose.height:
        width = int((loose["high_ns"] - loose["low_ns"]).max() or 0)
        notes.append(f"causality leaves clock offsets open by up to {format_ns(width)}: arrivals are as sure as that")
    apart = clocks.filter(pl.col("low_ns") > pl.col("high_ns"))
    if apart.height:
        notes.append(f"{format_ranks(apart['rank'])}: clocks contradict causality: they drift, or are inexact")
    return notes


def _findings(arrivals: pl.DataFrame, job: Job) -> tuple[Finding, ...]:
    """Say who is last how often in which communications, and why."""
    rows = (
        arrivals.group_by("rank", "pg_name", "kind")
        .agg(
            pl.len().alias("count"),
            pl.col("last").sum().alias("last_count"),
            cost_ns=_waited_for(),
            late=pl.col("late_ns").filter("last").sum(),
            **{name: pl.col(name).filter("last").sum() for name in _CAUSES},
        )
        .filter((pl.col("last_count") * 4 >= pl.col("count")) & (pl.col("last_count") > 1) & (pl.col("cost_ns") > 0))
        .sort("cost_ns", "rank", descending=[True, False])
    )
    said = []
    for row in rows.head(3).iter_rows(named=True):
        cause = max(_CAUSES, key=lambda name: row[name])
        why = (
            f"; mostly {_CAUSES[cause]} ({format_share(min(row[cause], row['late']), row['late'])})"
            if row[cause] * 2 > row["late"] > 0
            else ""
        )
        share = format_share(row["last_count"], row["count"])
        group = f" of group {row['pg_name']}" if row["pg_name"] is not None else ""
        cost = row["cost_ns"] // job.steps
        said.append(
            Finding(
                f"rank {row['rank']} arrives last in {share} of {row['kind']}{group}; "
                f"costs the others {format_ns(cost)} {job.per_stretch} at most{why}",
                cost,
                contributor=f"rank {row['rank']}",
            )
        )
    return tuple(said)
