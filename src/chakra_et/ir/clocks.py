"""Estimate clock offsets between ranks from causality.

Nobody leaves a communication before those have come whose data it needs: in an all-reduce everybody, in a broadcast the
root, in a receive the sender; a send may be over before its receive begins. If b needs a, ``ready_a + o_a <= end_b +
o_b``. Each meeting bounds the difference of two offsets; where zero is within all bounds, the clocks are taken as one
(ranks of one server share theirs).

Shape letters: R ranks, C communication nodes.
"""

from __future__ import annotations

import polars as pl

from chakra_et.ir.enums import CommType, NodeType

__all__ = ["estimate_offsets", "offset_bounds"]

_FROM_ROOT = [int(kind) for kind in (CommType.BROADCAST, CommType.SCATTER)]
_TO_ROOT = [int(kind) for kind in (CommType.REDUCE, CommType.GATHER)]
_FAR_NS = 1 << 62


_SCHEMA = {"rank": pl.Int64, "reference": pl.Int64, "offset_ns": pl.Int64, "low_ns": pl.Int64, "high_ns": pl.Int64,
           "meetings": pl.Int64}  # fmt: skip


def estimate_offsets(table: pl.DataFrame) -> dict[int, int]:
    """Estimate what to add to each rank's clock.

    Args:
        table: Communications of all ranks, [C]: ``rank``, ``meeting`` (equal for those that are one communication),
            ``type``, ``comm_type``, ``comm_root``, ``ready_ns`` (from when on it could give data to others),
            ``start_ns``, ``duration_ns``.

    Returns:
        Offset of each rank, ns; 0 for the lowest rank, and for ranks that met nobody.
    """
    return dict(offset_bounds(table).select("rank", "offset_ns").iter_rows())


def offset_bounds(table: pl.DataFrame) -> pl.DataFrame:
    """Estimate what to add to each rank's clock, and say how sure that is.

    Args:
        table: As in `estimate_offsets`.

    Returns:
        [R] rows by rank: ``rank``, ``reference`` (the rank that it was compared with; null for the lowest rank, and for
        ranks that met nobody), ``offset_ns``, ``low_ns`` and ``high_ns`` (between which causality leaves the offset if
        that of the reference is right; null where nothing bounds it; the low one is above the high one where clocks
        drift or records are inexact), ``meetings`` (how many communications told).
    """
    timed = table.filter(pl.col("start_ns").is_not_null()).select(
        "rank",
        "meeting",
        "type",
        "comm_type",
        root="comm_root",
        ready="ready_ns",
        end=pl.col("start_ns") + pl.col("duration_ns"),
    )
    ranks = sorted(table["rank"].unique().to_list())
    found: dict[int, tuple[int, int | None, int, int | None, int | None, int]] = {
        rank: (rank, None, 0, None, None, 0) for rank in ranks
    }
    bounds = _bounds(timed)
    known = ranks[:1]
    left = set(ranks[1:])
    while left:
        # Take the rank that met the known ones most often; compare it with the one of them it met most.
        best = max(
            ((bounds[a, b][3], a, b) for a in known for b in left if (a, b) in bounds),
            default=None,
            key=lambda met: met[0],
        )
        if best is None:
            break
        _, near, rank = best
        low, high, middle, count = bounds[near, rank]
        difference = 0 if low <= 0 <= high else min(max(middle, low), high) if low <= high else middle
        base = found[near][2]
        below, above = (None if abs(bound) == _FAR_NS else base + bound for bound in (low, high))
        found[rank] = (rank, near, base + difference, below, above, count)
        known.append(rank)
        left.discard(rank)
    return pl.DataFrame(list(found.values()), schema=_SCHEMA, orient="row")


def _bounds(timed: pl.DataFrame) -> dict[tuple[int, int], tuple[int, int, int, int]]:
    """Return for each pair (a, b): bounds of o_b - o_a, median difference of ends, number of meetings."""
    pairs = timed.join(timed, on="meeting", suffix="_b").filter(pl.col("rank") != pl.col("rank_b"))
    needs, needed = _needs("rank", "type", "type_b"), _needs("rank_b", "type_b", "type")
    found = (
        pairs.with_columns(
            low=pl.when(needs).then(pl.col("ready") - pl.col("end_b")),
            high=pl.when(needed).then(pl.col("end") - pl.col("ready_b")),
        )
        .filter(pl.col("low").is_not_null() | pl.col("high").is_not_null())
        .group_by("rank", "rank_b")
        .agg(
            low=pl.col("low").max().fill_null(-_FAR_NS),
            high=pl.col("high").min().fill_null(_FAR_NS),
            middle=(pl.col("end") - pl.col("end_b")).median().cast(pl.Int64),
            count=pl.len(),
        )
    )
    return {(a, b): (low, high, middle, count) for a, b, low, high, middle, count in found.iter_rows()}


def _needs(rank: str, own: str, other: str) -> pl.Expr:
    """Return whether the other side of a pair needs this one; which root it needs is the same on both sides."""
    root = pl.col("root")
    partner = "rank_b" if rank == "rank" else "rank"
    return (
        pl.when(pl.col("type") != int(NodeType.COMM_COLL_NODE))
        .then((pl.col(own) == int(NodeType.COMM_SEND_NODE)) & (pl.col(other) == int(NodeType.COMM_RECV_NODE)))
        .when(pl.col("comm_type").is_in(_FROM_ROOT))
        .then((pl.col(rank) == root).fill_null(False))
        .when(pl.col("comm_type").is_in(_TO_ROOT))
        .then((pl.col(partner) == root).fill_null(False))
        .otherwise(True)
    )
