"""What was in use when most was: blocks, the operators that made them, the iteration and the phase of the step.

Shape letters: N nodes, P points of a timeline, B blocks, W windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.memory_use import Usage
from chakra_et.analysis.phase_of import BACKWARD, FORWARD, OPTIMIZER, trains
from chakra_et.analysis.view import RankView
from chakra_et.analysis.windows import Window
from chakra_et.ir import NodeType
from chakra_et.ir.arrays import without_negatives
from chakra_et.ir.call_stack import nearest

__all__ = [
    "AT_PEAK",
    "ITERATIONS",
    "Peak",
    "blocks_at",
    "find_peak",
    "iteration_at",
    "makers_at",
    "measure_iterations",
    "phase_at",
]

Int = npt.NDArray[np.int64]
AT_PEAK: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "device": pl.Int64, "size_bytes": pl.Int64, "blocks": pl.Int64, "origin": pl.String,
    "op": pl.String, "top_op": pl.String, "module": pl.String, "node": pl.UInt64, "address": pl.Int64,
    "alloc_ns": pl.Int64, "free_ns": pl.Int64, "lifetime_ns": pl.Int64,
}  # fmt: skip
ITERATIONS: dict[str, type[pl.DataType]] = dict.fromkeys(
    ("rank", "device", "iteration", "begin_bytes", "end_bytes", "peak_bytes", "peak_ns", "allocated_bytes",
     "freed_bytes"), pl.Int64
)  # fmt: skip
_REST = {"origin": pl.String, "size_bytes": pl.Int64, "blocks": pl.Int64}
_LARGEST = 50
# A call stack that leads around in a circle ends here.
_DEEPEST = 1000
_PHASES = {FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "optimizer"}


@dataclass(frozen=True, slots=True)
class Peak:
    """Where most was in use.

    Attributes:
        point: Point of the timeline from which on it was.
        time: ns; where the usage is not timed, a position.
        size_bytes: How much.
    """

    point: int
    time: int
    size_bytes: int


def find_peak(usage: Usage, stretches: Sequence[tuple[int, int]] = ()) -> Peak:
    """Return the first moment of most memory in use.

    Args:
        usage: One device's.
        stretches: Begin and end, ns, of those to look at; all of the time without any.
    """
    if not stretches or not usage.timed:
        point = int(np.argmax(usage.in_use))
        return Peak(point, int(usage.time[point]), int(usage.in_use[point]))
    return max((_peak_within(usage, *stretch) for stretch in stretches), key=lambda peak: peak.size_bytes)


def _peak_within(usage: Usage, begin: int, end: int) -> Peak:
    low, high = _points(usage, begin, end)
    point = low + int(np.argmax(usage.in_use[low:high]))
    return Peak(point, max(int(usage.time[point]), begin), int(usage.in_use[point]))


def _points(usage: Usage, begin: int, end: int) -> tuple[int, int]:
    """Return the points that tell what was in use from `begin` on and before `end`: first, and the one after the last.

    The first is the last one at or before `begin`; before all of them, the state before counts.
    """
    low = max(int(np.searchsorted(usage.time, begin, side="right")) - 1, 0)
    return low, max(int(np.searchsorted(usage.time, end, side="left")), low + 1)


def measure_iterations(usage: Usage, windows: Sequence[Window], rank: int) -> pl.DataFrame:
    """Return how memory in use changed over each iteration of the host: rows of `ITERATIONS`."""
    rows: list[dict[str, int | None]] = []
    for window in windows:
        if not usage.timed or window.iteration is None or window.host_begin_ns is None or window.host_end_ns is None:
            continue
        begin, end = window.host_begin_ns, window.host_end_ns
        low, high = _points(usage, begin, end)
        peak = _peak_within(usage, begin, end)
        change = np.diff(usage.in_use[low:high])
        rows.append(
            {
                "rank": rank,
                "device": usage.device,
                "iteration": window.iteration,
                "begin_bytes": int(usage.in_use[low]),
                "end_bytes": int(usage.in_use[high - 1]),
                "peak_bytes": peak.size_bytes,
                "peak_ns": peak.time,
                "allocated_bytes": int(change[change > 0].sum()),
                "freed_bytes": int(-change[change < 0].sum()),
            }
        )
    return pl.DataFrame(rows, schema=ITERATIONS)


def iteration_at(windows: Sequence[Window], time: int) -> int | None:
    """Return the iteration that the host was in."""
    for window in windows:
        begin, end = window.host_begin_ns, window.host_end_ns
        if begin is not None and end is not None and begin <= time < end:
            return window.iteration
    return None


def _makers(view: RankView, usage: Usage, rows: Int) -> tuple[Int, Int]:
    """Return the innermost and the outermost operator that made each block, -1 for none; alone, an annotation counts.

    Args:
        view: The rank.
        usage: One device's.
        rows: int64 [B], nodes that changed what is in use.
    """
    parent = view.parent_rows
    if not len(parent):
        return rows, rows
    around = np.where(rows >= 0, parent[rows], -1) if usage.source == "events" else rows
    operator = np.append(nearest(parent, view.nodes["type"].fill_null(0).to_numpy() != NodeType.METADATA_NODE), -1)
    inner = outer = above = operator[around]
    for _ in range(_DEEPEST):
        above = operator[np.where(above >= 0, parent[above], -1)]
        if not (above >= 0).any():
            break
        outer = np.where(above >= 0, above, outer)
    return np.where(inner >= 0, inner, around), outer


def blocks_at(view: RankView, usage: Usage, peak: Peak) -> pl.DataFrame:
    """Return what was in use at a moment, the largest first: rows of `AT_PEAK`; their sizes add up to the peak."""
    alive = (
        usage.blocks.filter(pl.col("begin") <= peak.point, pl.col("end") > peak.point)
        .sort("size_bytes", descending=True, maintain_order=True)
        .with_columns(origin=pl.when(pl.col("row") >= 0).then(pl.lit("seen")).otherwise(pl.lit("before")))
    )
    rest = peak.size_bytes - int(alive["size_bytes"].sum())
    others = (
        alive.slice(_LARGEST).group_by("origin", maintain_order=True).agg(pl.col("size_bytes").sum(), blocks=pl.len())
    )
    more = [*others.iter_rows(), *([("unseen", rest, None)] if rest > 0 else [])]
    table = pl.concat(
        [_largest(view, usage, alive.head(_LARGEST)), pl.DataFrame(more, schema=_REST, orient="row")], how="diagonal"
    )
    return table.with_columns(
        rank=pl.lit(view.rank, pl.Int64),
        device=pl.lit(usage.device, pl.Int64),
        lifetime_ns=pl.col("free_ns") - pl.col("alloc_ns"),
    ).select(list(AT_PEAK))


def _largest(view: RankView, usage: Usage, blocks: pl.DataFrame) -> pl.DataFrame:
    """Return columns of `AT_PEAK` of some blocks."""
    rows = blocks["row"].to_numpy()
    inner, outer = _makers(view, usage, rows)
    names, modules = view.nodes["name"], view.trace.column("module")
    seen, count = rows >= 0, len(usage.time)
    made = usage.time[blocks["begin"].to_numpy()]
    last = blocks["end"].to_numpy()
    freed = usage.time[np.minimum(last, count - 1)]
    timed = np.full(len(rows), usage.timed)
    columns = {
        "size_bytes": blocks["size_bytes"],
        "blocks": np.ones(len(rows), np.int64),
        "origin": blocks["origin"],
        "op": _named(names, inner),
        "top_op": _named(names, outer),
        "module": pl.select(pl.coalesce(_named(modules, inner), _named(modules, outer))).to_series(),
        "node": _named(view.nodes["id"], inner),
        "address": blocks["address"],
        "alloc_ns": _where(made, timed & seen),
        "free_ns": _where(freed, timed & (last < count)),
    }
    return pl.DataFrame(columns, schema_overrides={name: AT_PEAK[name] for name in columns})


def _named(column: pl.Series, rows: Int) -> pl.Series:
    taken: pl.Series = column.gather(without_negatives(rows))
    return taken


def _where(values: Int, known: npt.NDArray[np.bool_]) -> list[int | None]:
    return [value if there else None for value, there in zip(values.tolist(), known.tolist(), strict=True)]


def makers_at(view: RankView, usage: Usage, peak: Peak) -> tuple[int, int]:
    """Return the innermost and the outermost operator in which the peak was reached, -1 for none."""
    inner, outer = _makers(view, usage, usage.row[peak.point : peak.point + 1])
    return int(inner[0]), int(outer[0])


def phase_at(phase: Int, row: int) -> str | None:
    """Return the phase of a training step that a node is of: ``forward``, ``backward`` or ``optimizer``.

    Args:
        phase: int64 [N], as `phases_of` returns it.
        row: Position of the node; -1 for none.

    Returns:
        None where nothing tells it, or where the trace doesn't train.
    """
    return _PHASES.get(int(phase[row])) if row >= 0 and trains(phase) else None
