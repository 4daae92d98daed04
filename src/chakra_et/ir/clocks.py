"""Estimate clock offsets between ranks from causality.

Nobody leaves a communication before those have come whose data it needs: in an all-reduce everybody, in a broadcast the
root, in a receive the sender; a send may be over before its receive begins. If b needs a, ``ready_a + o_a <= end_b +
o_b``. Each meeting bounds the difference of two offsets; where zero is within all bounds, the clocks are taken as one
(ranks of one server share theirs).

Shape letters: R ranks, C communication nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.clock_bounds import NO_BOUND_NS, clock_bounds
from chakra_et.ir.enums import NodeType
from chakra_et.ir.exchange import FROM_ROOT, TO_ROOT

__all__ = ["estimate_offsets", "offset_bounds"]

Int = npt.NDArray[np.int64]


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
    ranks = table["rank"].unique().sort().to_numpy()
    told = _told(table)
    place = np.searchsorted(ranks, told["rank"].to_numpy())
    end = told["end"].to_numpy()
    meeting = told["meeting"].to_numpy()
    seats = np.append(np.flatnonzero(np.diff(meeting, prepend=-1)), len(meeting)).astype(np.int64)
    low, high, count = clock_bounds(
        seats, place, told["ready"].to_numpy(), end, told["gives"].to_numpy(), told["takes"].to_numpy(), len(ranks)
    )
    found: list[tuple[int, int | None, int, int | None, int | None, int]] = [
        (int(rank), None, 0, None, None, 0) for rank in ranks
    ]
    for near, one in _nearest(count):
        below, above = int(low[near, one]), int(high[near, one])
        difference = 0
        if not below <= 0 <= above:
            middle = _middle(told.filter(pl.col("rank").is_in(ranks[[near, one]])), ranks[near], ranks[one])
            difference = min(max(middle, below), above) if below <= above else middle
        base = found[near][2]
        least, most = (None if abs(bound) == NO_BOUND_NS else base + bound for bound in (below, above))
        found[one] = (int(ranks[one]), int(ranks[near]), base + difference, least, most, int(count[near, one]))
    return pl.DataFrame(found, schema=_SCHEMA, orient="row")


def _told(table: pl.DataFrame) -> pl.DataFrame:
    """Return the timed communications, those of one meeting together, and whether others need them or they others."""
    sent = pl.col("type") != int(NodeType.COMM_COLL_NODE)
    is_root = (pl.col("rank") == pl.col("comm_root")).fill_null(False)
    from_root, to_root = (pl.col("comm_type").is_in(kinds).fill_null(False) for kinds in (FROM_ROOT, TO_ROOT))
    return (
        table.filter(pl.col("start_ns").is_not_null())
        .select(
            "rank",
            pl.col("meeting").cast(pl.Int64),
            ready=pl.col("ready_ns"),
            end=pl.col("start_ns") + pl.col("duration_ns"),
            gives=pl.when(sent).then(pl.col("type") == int(NodeType.COMM_SEND_NODE)).otherwise(~from_root | is_root),
            takes=pl.when(sent).then(pl.col("type") == int(NodeType.COMM_RECV_NODE)).otherwise(~to_root | is_root),
        )
        .drop_nulls("end")
        .sort("meeting", maintain_order=True)
    )


def _nearest(count: Int) -> Iterator[tuple[int, int]]:
    """Say with which known rank to compare each rank, in an order in which that one is known; some with nobody.

    Args:
        count: int64 [R, R]: how many communications tell something about two ranks.
    """
    # The rank that met a known one most often comes next; it is compared with the one that it met most.
    most, near = np.zeros(len(count), np.int64), np.zeros(len(count), np.int64)
    left = np.ones(len(count), np.bool_)
    turn = np.zeros(len(count), np.int64)
    latest = 0
    for number in range(1, len(count)):
        left[latest] = False
        better = left & (count[latest] > most)
        most[better], near[better] = count[latest][better], latest
        turn[latest] = number
        if not (left & (most > 0)).any():
            return
        best = np.flatnonzero(left & (most == most[left].max()))
        latest = int(best[np.argmin(turn[near[best]])])
        yield int(near[latest]), latest


def _middle(told: pl.DataFrame, near: int, rank: int) -> int:
    """Return the median difference of two ranks' ends, ns."""
    one, two = (told.filter(pl.col("rank") == number) for number in (near, rank))
    pairs = one.join(two, on="meeting", suffix="_b")
    known = (pl.col("gives") & pl.col("takes_b")) | (pl.col("gives_b") & pl.col("takes"))
    return int(pairs.filter(known).select((pl.col("end") - pl.col("end_b")).median()).item())
