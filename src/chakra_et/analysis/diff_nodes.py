"""Comparing two trace sets of one graph node by node: a simulated, replayed or edited copy, by node ids.

Shape letters: N nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.diff_measure import Part

__all__ = ["Kinship", "Timing", "compare_nodes", "kinship", "no_nodes"]

Int = npt.NDArray[np.int64]

# Two runs of one program may number their nodes alike up to some point: copies agree nearly to the end.
_COPY = 0.95
_RELATED = 0.5
_SCHEMA = {
    "rank": pl.Int64, "id": pl.UInt64, "name": pl.String, "before_start_ns": pl.Int64, "after_start_ns": pl.Int64,
    "start_change_ns": pl.Int64, "before_duration_ns": pl.Int64, "after_duration_ns": pl.Int64,
    "duration_change_ns": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timing:
    """How far the nodes of two copies of a graph lie apart; starts count from the first node that both have.

    Attributes:
        nodes: Nodes that both sets have.
        before_only: Nodes that only the first one has.
        after_only: Nodes that only the second one has.
        equal: Nodes whose start and duration are the same, to the ns.
        start_error_p50_ns: Half of the nodes start at most so much earlier or later; ``p90``, ``p99``, ``max`` alike.
        start_error_p90_ns: See above.
        start_error_p99_ns: See above.
        start_error_max_ns: See above.
        before_makespan_ns: From the first start to the last end of those nodes.
        after_makespan_ns: The same of the second set.
    """

    nodes: int
    before_only: int
    after_only: int
    equal: int
    start_error_p50_ns: int
    start_error_p90_ns: int
    start_error_p99_ns: int
    start_error_max_ns: int
    before_makespan_ns: int
    after_makespan_ns: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Kinship:
    """How two sets' nodes relate.

    Attributes:
        before: Nodes of the first set.
        after: Nodes of the second.
        shared: Nodes that both have.
        before_among: Nodes of the first set that lie among the shared ones on their threads and streams.
        after_among: The same of the second.
    """

    before: int
    after: int
    shared: int
    before_among: int
    after_among: int

    @property
    def copies(self) -> bool:
        """True if both hold the same graph, or one of them a part of the other's."""
        return self.shared > 0 and (self._whole or self.part is not None)

    @property
    def related(self) -> bool:
        """True if enough nodes are shared for ids to mean something: half of the smaller set."""
        return self.shared > 0 and self.shared >= _RELATED * min(self.before, self.after)

    @property
    def _whole(self) -> bool:
        return self.shared >= _COPY * max(self.before, self.after)

    @property
    def part(self) -> int | None:
        """Which of the two (0 or 1) is a stretch of the other; None if neither, or if nodes are missing all over."""
        if self._whole:
            return None
        for side, (own, other, among) in enumerate(
            ((self.before, self.after, self.after_among), (self.after, self.before, self.before_among))
        ):
            if own == self.shared and own < other and self.shared >= _COPY * among:
                return side
        return None


def kinship(pairs: Sequence[tuple[Part, Part]], *, strict: bool) -> Kinship:
    """Return how many nodes are the same in both sets.

    Args:
        pairs: What was kept of each rank, before and after.
        strict: False where ids and names say it. Else thread, stream and correlation must agree, too, and both traces
            must have been made from files of the same names: then they are copies.
    """
    counts = np.zeros(5, np.int64)
    for before, after in pairs:
        rows = _shared(before, after)
        if strict:
            marks = [part.nodes["mark"].to_numpy()[own] for part, own in zip((before, after), rows, strict=True)]
            other = bool(before.sources and after.sources and before.sources != after.sources)
            same = (marks[0] == marks[1]) & (not other)
            rows = rows[0][same], rows[1][same]
        counts += (
            before.nodes.height,
            after.nodes.height,
            len(rows[0]),
            _among(before, rows[0]),
            _among(after, rows[1]),
        )
    return Kinship(*map(int, counts))


def _among(part: Part, rows: Int) -> int:
    """Return how many nodes start between the first and the last of some, each on its thread or stream."""
    some = part.nodes[rows].group_by("lane").agg(low=pl.col("start_ns").min(), high=pl.col("start_ns").max())
    every = part.nodes.select("lane", "start_ns").join(some, on="lane")
    return every.filter(pl.col("start_ns").is_between("low", "high")).height


def _shared(before: Part, after: Part) -> tuple[Int, Int]:
    """Return the rows of nodes with the same id and name, in both tables."""
    _, one, two = np.intersect1d(before.nodes["id"].to_numpy(), after.nodes["id"].to_numpy(), return_indices=True)
    known = {name: place for place, name in enumerate(before.names)}
    names = np.array([known.get(name, -1) for name in after.names], np.int64)
    same = (
        before.nodes["of_name"].to_numpy()[one] == names[after.nodes["of_name"].to_numpy()[two]]
        if len(one)
        else one > 0
    )
    return one[same], two[same]


def no_nodes() -> pl.DataFrame:
    """Return the table of nodes without rows."""
    return pl.DataFrame(schema=_SCHEMA)


def compare_nodes(pairs: Mapping[int, tuple[Part, Part]]) -> tuple[pl.DataFrame, Timing | None]:
    """Compare starts and durations of the nodes that both sets have.

    Args:
        pairs: What was kept of each rank, before and after.

    Returns:
        A row a node, the largest change of duration first, then of start; and a summary, None without common nodes.
    """
    tables, lost = [], np.zeros(2, np.int64)
    for rank, (before, after) in pairs.items():
        one, two = _shared(before, after)
        lost += (before.nodes.height - len(one), after.nodes.height - len(two))
        old, new = before.nodes[one], after.nodes[two]
        tables.append(
            pl.DataFrame(
                {
                    "id": old["id"],
                    "name": before.names.gather(old["of_name"]),
                    "before_start_ns": old["start_ns"],
                    "after_start_ns": new["start_ns"],
                    "before_duration_ns": old["duration_ns"],
                    "after_duration_ns": new["duration_ns"],
                }
            ).select(pl.lit(rank, pl.Int64).alias("rank"), pl.all())
        )
    table = pl.concat(tables)
    if not table.height:
        return no_nodes(), None
    table = table.with_columns(pl.col(name) - pl.col(name).min() for name in ("before_start_ns", "after_start_ns"))
    table = table.with_columns(
        start_change_ns=pl.col("after_start_ns") - pl.col("before_start_ns"),
        duration_change_ns=pl.col("after_duration_ns") - pl.col("before_duration_ns"),
    )
    timing = _timing(table, int(lost[0]), int(lost[1]))
    size = [pl.col(name).abs() for name in ("duration_change_ns", "start_change_ns")]
    return table.sort(*size, "rank", "id", descending=[True, True, False, False]).select(*_SCHEMA), timing


def _timing(table: pl.DataFrame, before_only: int, after_only: int) -> Timing:
    error = np.sort(np.abs(table["start_change_ns"].to_numpy()))
    ranks = [int(error[min(len(error) - 1, int(share * len(error)))]) for share in (0.5, 0.9, 0.99, 1)]
    spans = [
        int(table.select((pl.col(f"{side}_start_ns") + pl.col(f"{side}_duration_ns")).max()).item())
        for side in ("before", "after")
    ]
    still = (pl.col("start_change_ns") == 0) & (pl.col("duration_change_ns") == 0)
    equal = int(table.select(still.sum()).item())
    return Timing(table.height, before_only, after_only, equal, *ranks, *spans)
