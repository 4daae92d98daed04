"""Buffers in and out of Polars without copies: lists and strings as offsets and values.

Shape letters: N rows, M values.
"""

from __future__ import annotations

from typing import Any

import nanoarrow as na
import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = [
    "binary_series",
    "list_series",
    "list_values",
    "sorted_unique",
    "string_bytes",
    "string_series",
    "without_negatives",
]

_ARROW: dict[np.dtype[Any], Any] = {
    np.dtype(np.uint64): na.uint64,
    np.dtype(np.int64): na.int64,
}


def list_series(name: str, offsets: npt.NDArray[np.int64], values: npt.NDArray[np.generic]) -> pl.Series:
    """Build a list column from CSR buffers.

    Args:
        name: Column name.
        offsets: int64 [N + 1].
        values: uint64 or int64 [M].
    """
    kind = _ARROW[values.dtype]
    child = na.c_array_from_buffers(kind(), len(values), [None, np.ascontiguousarray(values)])
    array = na.c_array_from_buffers(
        na.large_list(kind()), len(offsets) - 1, [None, np.ascontiguousarray(offsets)], children=[child]
    )
    return pl.Series(name, array).alias(name)


def list_values(series: pl.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return a list column's CSR buffers: offsets int64 [N + 1] and values [M]; a null is an empty list."""
    lengths = series.list.len().fill_null(0).to_numpy()
    offsets = np.zeros(len(series) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, series.explode(empty_as_null=False, keep_nulls=False).to_numpy()


def _bytes_series(
    name: str,
    kind: na.Schema,
    offsets: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_] | None,
) -> pl.Series:
    bitmap = None if valid is None else np.packbits(valid, bitorder="little")
    nulls = 0 if valid is None else int(len(valid) - np.count_nonzero(valid))
    array = na.c_array_from_buffers(
        kind,
        len(offsets) - 1,
        [bitmap, np.ascontiguousarray(offsets), np.ascontiguousarray(data)],
        null_count=nulls,
    )
    return pl.Series(name, array).alias(name)


def string_series(
    name: str,
    offsets: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_] | None = None,
) -> pl.Series:
    """Build a string column from offsets int64 [N + 1] and UTF-8 bytes uint8 [M]; `valid` marks non-nulls."""
    return _bytes_series(name, na.large_string(), offsets, data, valid)


def binary_series(
    name: str,
    offsets: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_] | None = None,
) -> pl.Series:
    """Build a binary column from offsets int64 [N + 1] and bytes uint8 [M]; `valid` bool [N] marks non-nulls."""
    return _bytes_series(name, na.large_binary(), offsets, data, valid)


def string_bytes(series: pl.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return a string or binary column's offsets int64 [N + 1] and bytes uint8 [M]; a null is empty."""
    if series.dtype == pl.Binary:
        lengths = series.bin.size().fill_null(0).to_numpy()
        joined = b"".join(series.drop_nulls().to_list())
    else:
        lengths = series.str.len_bytes().fill_null(0).to_numpy()
        joined = (series.str.join("").item() if len(series) else "").encode()
    offsets = np.zeros(len(series) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, np.frombuffer(joined, np.uint8)


def sorted_unique(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the distinct values of int64 [M], ascending; numpy's own hash table is slower here."""
    if (keys[1:] > keys[:-1]).all():
        return keys
    ordered = np.sort(keys)
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def without_negatives(numbers: npt.NDArray[np.int64]) -> pl.Series:
    """Return int64 [N] as a series, null where they are negative: positions of what isn't there.

    Example:
        >>> without_negatives(np.array([3, -1])).to_list()
        [3, None]
    """
    found: pl.Series = pl.Series(numbers, dtype=pl.Int64).set(pl.Series(numbers < 0), None)
    return found
