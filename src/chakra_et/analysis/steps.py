"""The iterations of a rank: marked by annotations, else found in what repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis import markers
from chakra_et.analysis.pattern import repeated_steps
from chakra_et.ir import Trace
from chakra_et.units import format_share

__all__ = ["Steps", "find_steps"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Iterations.

    Attributes:
        table: As in `chakra_et.analysis.markers.Steps`: ``iteration``, ``label``, ``begin_ns``, ``end_ns`` (on the
            host), in time order, and ``kind``, requests and tokens where markers tell them.
        source: What marks them; ``repeats`` if nothing does; empty where there are none.
        notes: Where they come from, if that isn't plain.
    """

    table: pl.DataFrame
    source: str
    notes: tuple[str, ...] = ()


def find_steps(trace: Trace, activities: pl.DataFrame, issued: Int) -> Steps:
    """Find the iterations of a rank.

    Args:
        trace: The trace.
        activities: Its activities by start, [A].
        issued: int64 [A]: when the host launched each, ns.
    """
    marked = markers.find_steps(trace)
    if len(marked):
        return Steps(marked.table, marked.source, marked.notes)
    takes_time = activities.height and bool((activities["end_ns"] > activities["start_ns"][0]).any())
    found = repeated_steps(activities, issued_ns=issued) if takes_time else None
    if found is None:
        return Steps(marked.table, "", ("no iterations: nothing marks them, and nothing repeats",))
    table, period = found
    note = (
        f"nothing marks iterations; {period.count} repeats of {period.length:,} activities are taken for them "
        f"({format_share(period.match, 1)} of the activities match)"
    )
    table = table.with_columns(kind=pl.lit("unknown"))
    return Steps(pl.concat([marked.table.clear(), table], how="diagonal_relaxed"), "repeats", (note,))
