"""Estimate clock offsets between ranks from causality.

Nobody leaves a collective before the last has come, and a receive does not end before its send began: for ranks a and
b that met, ``start_a + o_a <= end_b + o_b``. Each meeting bounds the difference of two offsets; where zero is within
all bounds, the clocks are taken as one (ranks of one server share theirs).

Shape letters: R ranks, C communication nodes.
"""

from __future__ import annotations

import polars as pl

__all__ = ["estimate_offsets"]


def estimate_offsets(table: pl.DataFrame) -> dict[int, int]:
    """Estimate what to add to each rank's clock.

    Args:
        table: Communications of all ranks, [C]: ``rank``, ``meeting`` (equal for those that are one communication),
            ``start_ns``, ``duration_ns``.

    Returns:
        Offset of each rank, ns; 0 for the lowest rank, and for ranks that met nobody.
    """
    timed = table.filter(pl.col("start_ns").is_not_null()).select(
        "rank", "meeting", start="start_ns", end=pl.col("start_ns") + pl.col("duration_ns")
    )
    ranks = sorted(table["rank"].unique().to_list())
    offsets = dict.fromkeys(ranks, 0)
    bounds = _bounds(timed)
    known = [ranks[0]]
    left = set(ranks[1:])
    while left:
        # Take the rank that met the known ones most often; compare it with the one of them it met most.
        best = max(
            ((bounds[a, b][3], a, b) for a in known for b in left if (a, b) in bounds),
            default=None,
            key=lambda found: found[0],
        )
        if best is None:
            break
        _, near, rank = best
        low, high, middle, _ = bounds[near, rank]
        difference = 0 if low <= 0 <= high else min(max(middle, low), high) if low <= high else middle
        offsets[rank] = offsets[near] + difference
        known.append(rank)
        left.discard(rank)
    return offsets


def _bounds(timed: pl.DataFrame) -> dict[tuple[int, int], tuple[int, int, int, int]]:
    """Return for each pair (a, b): bounds of o_b - o_a, median difference of ends, number of meetings."""
    pairs = timed.join(timed, on="meeting", suffix="_b").filter(pl.col("rank") != pl.col("rank_b"))
    found = pairs.group_by("rank", "rank_b").agg(
        low=(pl.col("start") - pl.col("end_b")).max(),
        high=(pl.col("end") - pl.col("start_b")).min(),
        middle=(pl.col("end") - pl.col("end_b")).median().cast(pl.Int64),
        count=pl.len(),
    )
    return {(a, b): (low, high, middle, count) for a, b, low, high, middle, count in found.iter_rows()}
