"""What several analyses add up alike."""

from __future__ import annotations

import polars as pl

__all__ = ["known_sum", "union_ns"]


def known_sum(name: str, known: pl.Expr | None = None) -> pl.Expr:
    """Return the sum of a column, null instead of 0 where nothing is known.

    Args:
        name: Column of integers.
        known: Whether anything is known; None: any of its values is.

    Example:
        >>> pl.DataFrame({"a": [1, None], "b": [None, None]}, schema=dict.fromkeys("ab", pl.Int64)).select(
        ...     known_sum("a"), known_sum("b")
        ... ).row(0)
        (1, None)
    """
    known = pl.col(name).is_not_null().any() if known is None else known
    return pl.when(known).then(pl.col(name).sum()).alias(name)


def union_ns() -> pl.Expr:
    """Return how long any of a group's intervals `start_ns` to `end_ns` runs; the rows stand by start.

    Example:
        >>> pl.DataFrame({"start_ns": [0, 2, 10], "end_ns": [5, 7, 12]}).select(union_ns()).item()
        9
    """
    before = pl.col("end_ns").cum_max().shift()
    return (pl.col("end_ns") - pl.max_horizontal("start_ns", before)).clip(0).sum()
