"""How much of the communication hides behind compute, for each process group and type.

Exposed means that nothing computes meanwhile; whether it delays the step is the critical path's to say.

Shape letters: A activities, C communications.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from chakra_et.analysis.charts import COLORS, stacked_bars
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView
from chakra_et.units import format_ns, format_share

__all__ = ["Overlap", "combine", "measure", "overlap"]

_KEYS = ("rank", "iteration", "pg_name", "comm_type")
_DEFAULT = ("rank", "iteration")
_TIMES = ("communication_ns", "overlap_ns", "exposed_communication_ns")


@dataclass(frozen=True, slots=True, eq=False)
class Overlap(Result):
    """Communication that compute hides.

    Columns of `table`, a row for each combination of what `by` says (default: rank and iteration): the keys, ``count``
    (communications that start in it), ``communication_ns`` (time in which one of them runs: their union on each rank
    and iteration, added up over those), ``overlap_ns`` (of that, while a computing kernel runs),
    ``exposed_communication_ns`` (the rest), ``overlap_share`` (0 to 1; null without communication). Groups that run at
    once each have their own time, so rows of several groups may add up to more than the total.
    """

    def plot(self) -> Plot:
        """Return a stacked bar a row: hidden and exposed communication."""
        keys = [key for key in _KEYS if key in self.table.columns and key != "iteration"] or ["iteration"]
        table = self.table
        parts = {"overlapped": "overlap_ns", "exposed communication": "exposed_communication_ns"}
        total = table.group_by(keys, maintain_order=True).agg(
            pl.col(old).sum().alias(new) for new, old in parts.items()
        )
        name = pl.concat_str([pl.col(key).cast(pl.String).fill_null("?") for key in keys], separator=", ")
        label = ", ".join(keys)
        return stacked_bars(
            total.with_columns(name.alias(label)), label, list(parts), colors=COLORS, title="communication"
        )


def overlap(source: Source, *, options: Options | None = None) -> Overlap:
    """Measure how much of the communication hides behind compute.

    Args:
        source: Traces, or where they are.
        options: Which iterations; ``by`` takes ``rank``, ``iteration``, ``pg_name`` and ``comm_type``.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import TraceBuilder
        >>> overlap(TraceBuilder(rank=0).build()).table.height
        0
    """
    return run_one(measure, combine, source, options)


def measure(view: RankView) -> pl.DataFrame:
    """Return the rows of one rank."""
    keys = check_keys(view.options, _KEYS, _DEFAULT)
    pieces = view.communication_pieces(tuple(dict.fromkeys(("iteration", *keys))))
    found = pieces.group_by(keys, maintain_order=True).agg(
        pl.col("begins").sum().cast(pl.Int64).alias("count"), pl.col(*_TIMES[:2]).sum()
    )
    return found.select(*keys, "count", *_TIMES[:2])


def combine(parts: Mapping[int, pl.DataFrame], job: Job) -> Overlap:
    """Put the ranks together."""
    keys = check_keys(job.options, _KEYS, _DEFAULT)
    table = pl.concat([parts[rank] for rank in job.ranks])
    table = table.group_by(keys, maintain_order=True).agg(pl.col("count", *_TIMES[:2]).sum()).sort(keys)
    exposed = pl.col("communication_ns") - pl.col("overlap_ns")
    share = pl.when(pl.col("communication_ns") > 0).then(pl.col("overlap_ns") / pl.col("communication_ns"))
    table = table.with_columns(exposed.alias("exposed_communication_ns"), share.alias("overlap_share"))
    notes = job.notes if table.height else (*job.notes, "no communication in the chosen iterations")
    parameters = job.options.as_dict() | {"by": list(keys)}
    return Overlap("overlap", parameters, table, job.coverage, notes, _findings(table, job))


def _findings(table: pl.DataFrame, job: Job) -> tuple[Finding, ...]:
    total, hidden = int(table["communication_ns"].sum()), int(table["overlap_ns"].sum())
    if not total or "pg_name" in table.columns or "comm_type" in table.columns:
        return ()
    each = (total - hidden) // job.rank_steps
    share = format_share(hidden, total)
    text = f"compute hides {share} of the communication; {format_ns(each)} of a rank's {job.stretch} stay exposed"
    # The breakdown puts a price on it.
    return (Finding(text, about="exposed_communication_ns"),)
