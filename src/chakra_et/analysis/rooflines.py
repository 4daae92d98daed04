"""How long calls would take at a device's peaks: the longer of their arithmetic and of their bytes.

Shape letters: K calls.
"""

from __future__ import annotations

import polars as pl

from chakra_et.errors import InputError
from chakra_et.specs import Device

__all__ = ["peaks_of", "with_times_at_peaks"]


def peaks_of(dtypes: pl.Series, device: Device | None) -> pl.DataFrame:
    """Return the device's peak for each distinct element type: `dtype` and `peak`, FLOP/s, null where it has none."""
    distinct = dtypes.unique().to_list()
    peaks = [None if device is None else _peak(device, dtype) for dtype in distinct]
    return pl.DataFrame({"dtype": distinct, "peak": peaks}, schema={"dtype": pl.String, "peak": pl.Float64})


def _peak(device: Device, dtype: str | None) -> float | None:
    try:
        return device.peak(dtype or "any")
    except InputError:
        return None


def with_times_at_peaks(calls: pl.DataFrame, device: Device | None) -> pl.DataFrame:
    """Add how long calls take at the peaks, each at that of its own element type.

    Args:
        calls: [K]: `duration_ns`, `dtype`, `flop_count`, `read_bytes`, `write_bytes` (null counts nothing),
            `modelled`, `elsewhere` (its bytes go over another link than that to the device's memory).
        device: Whose peaks; None where that isn't known.

    Returns:
        The calls with `roofline_ns` (int64: their duration, 0 where the time at the peaks can't be told), `best_ns`
        (float64: the time at the peaks, 0 there) and `compute_bound_ns` (float64: of that, where arithmetic takes
        longer than the bytes).
    """
    calls = calls.join(
        peaks_of(calls["dtype"], device), on="dtype", how="left", nulls_equal=True, maintain_order="left"
    )
    moved = (pl.col("read_bytes").fill_null(0) + pl.col("write_bytes").fill_null(0)) * 1e9
    arithmetic = pl.when(pl.col("flop_count") > 0).then(pl.col("flop_count") * 1e9 / pl.col("peak")).otherwise(0.0)
    moving = moved / pl.lit(None if device is None else device.memory_bytes_per_s, pl.Float64)
    known = pl.col("modelled") & ~pl.col("elsewhere") & arithmetic.is_not_null() & moving.is_not_null()
    known &= pl.col("duration_ns") > 0
    best = pl.when(known).then(pl.max_horizontal(arithmetic, moving)).otherwise(0.0)
    return calls.with_columns(
        roofline_ns=pl.when(known).then("duration_ns").otherwise(0),
        best_ns=best,
        compute_bound_ns=pl.when(arithmetic >= moving).then(best).otherwise(0.0),
    ).drop("peak")
