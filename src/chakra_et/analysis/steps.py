"""The iterations of a rank: marked by annotations, else found in what repeats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.markers import STEP_SCHEMA, Steps, marked_steps
from chakra_et.analysis.pattern import repeated_steps
from chakra_et.ir import Trace
from chakra_et.units import format_share

__all__ = ["find_steps"]

Int = npt.NDArray[np.int64]


def find_steps(trace: Trace, activities: pl.DataFrame, issued: Int) -> Steps:
    """Find the iterations of a rank.

    Args:
        trace: The trace.
        activities: Its activities by start, [A].
        issued: int64 [A]: when the host launched each, ns.
    """
    marked = marked_steps(trace)
    if len(marked):
        return marked
    takes_time = activities.height and bool((activities["end_ns"] > activities["start_ns"][0]).any())
    found = repeated_steps(activities, issued_ns=issued) if takes_time else None
    if found is None:
        return replace(marked, notes=("no iterations: nothing marks them, and nothing repeats",))
    table, period = found
    note = (
        f"nothing marks iterations; {period.count} repeats of {period.length:,} activities are taken for them "
        f"({format_share(period.match, 1)} of the activities match)"
    )
    empty = pl.DataFrame(schema=STEP_SCHEMA)
    return Steps(pl.concat([empty, table.with_columns(kind=pl.lit("unknown"))], how="diagonal"), "repeats", (note,))
