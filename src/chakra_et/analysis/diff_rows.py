"""Rows of a comparison: what belongs together on both sides, how long it takes a step, and whether that changed.

Shape letters: I items, R rows, W windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.diff_match import NOBODY, UNTOLD, Catalog, Chain, Targets
from chakra_et.analysis.diff_noise import significance

__all__ = ["AFTER", "BEFORE", "KEYS", "StepCounts", "compare", "describe", "pair_up", "rounded"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

BEFORE, AFTER = 0, 1
# What makes a row: kinds and calls of both sides, -1 where there is none.
KEYS: tuple[str, ...] = ("one_kind", "two_kind", "one_call", "two_call")


@dataclass(frozen=True, slots=True)
class StepCounts:
    """How many steps there are to average over.

    Attributes:
        ranks: For each side and window, how many ranks have that window.
        apart: True if they were run apart, so that changes may be noise; False for copies.
    """

    ranks: tuple[tuple[int, ...], tuple[int, ...]]
    apart: bool

    @staticmethod
    def of(windows: Sequence[tuple[int, int]], *, apart: bool) -> StepCounts:
        """Return the steps of ranks, given how many windows each has before and after."""
        sides = [_ranks_of([pair[side] for pair in windows]) for side in (BEFORE, AFTER)]
        return StepCounts((sides[0], sides[1]), apart)

    def significance(self, before: Float, after: Float) -> pl.Series:
        """Tell of each row whether it changed beyond noise; null where that can't be told, and of copies.

        Args:
            before: float64 [R, W]: what each step takes.
            after: float64 [R, W].
        """
        told = significance(before, after) if self.apart else [None] * len(before)
        return pl.Series("significant", told, dtype=pl.Boolean)

    def total(self, side: int) -> int:
        """Return the number of steps of a side: over its windows and ranks."""
        return sum(self.ranks[side])


def _ranks_of(windows: Sequence[int]) -> tuple[int, ...]:
    return tuple(sum(count > window for count in windows) for window in range(max(windows, default=0)))


def pair_up(
    chains: Mapping[int, tuple[Chain, Chain]], targets: Mapping[int, tuple[Targets, Targets]], catalog: Catalog
) -> pl.DataFrame:
    """Return the items of both sides with what makes their rows.

    An item without a counterpart at its place belongs to its own kind on the other side, if that has any.

    Returns:
        ``rank``, ``side``, ``window``, ``call``, `KEYS`, ``ns``.
    """
    tables = []
    for side in (BEFORE, AFTER):
        own, far = ("one", "two") if side == BEFORE else ("two", "one")
        for rank, pair in chains.items():
            chain, target = pair[side], targets[rank][side]
            tables.append(
                pl.DataFrame(
                    {
                        "window": chain.window,
                        "call": chain.call + (rank << 32),
                        f"{own}_kind": target.own,
                        f"{own}_call": catalog.call[target.own],
                        f"{far}_kind": target.kind,
                        f"{far}_call": target.call,
                        "ns": chain.duration_ns,
                    }
                ).select(
                    pl.lit(rank, pl.Int64).alias("rank"),
                    pl.lit(side, pl.Int8).alias("side"),
                    "window",
                    "call",
                    *KEYS,
                    "ns",
                )
            )
    items = pl.concat(tables)
    for side, own, far in ((BEFORE, "one", "two"), (AFTER, "two", "one")):
        items = _settle(items, side, own, far)
    return items


def _settle(items: pl.DataFrame, side: int, own: str, far: str) -> pl.DataFrame:
    """Give a counterpart to items of one side that have none."""
    mine = items["side"] == side
    table = items.filter(mine).with_row_index("place")
    kind, call = f"{far}_kind", f"{far}_call"
    # Places that were not compared follow the most frequent fate of their kind.
    fate = (
        table.filter(pl.col(kind) >= 0)
        .group_by(f"{own}_kind", kind, call).agg(times=pl.len())
        .sort("times", kind, descending=[True, False])
        .unique(f"{own}_kind", keep="first", maintain_order=True)
        .select(f"{own}_kind", fate_kind=kind, fate_call=call)
    )  # fmt: skip
    untold = pl.col(kind) == UNTOLD
    table = table.join(fate, on=f"{own}_kind", how="left", maintain_order="left").with_columns(
        pl.when(untold).then(pl.col("fate_kind").fill_null(NOBODY)).otherwise(kind).alias(kind),
        pl.when(untold).then(pl.col("fate_call").fill_null(NOBODY)).otherwise(call).alias(call),
    )
    other = items.filter(~mine)
    alike = (pl.col(kind) == NOBODY) & pl.col(f"{own}_kind").is_in(other[kind].unique().implode())
    table = table.with_columns(
        pl.when(alike).then(f"{own}_kind").otherwise(kind).alias(kind),
        pl.when(alike).then(f"{own}_call").otherwise(call).alias(call),
    )
    alike = (pl.col(call) < 0) & pl.col(f"{own}_call").is_in(other[call].unique().implode())
    table = table.with_columns(
        pl.when(alike).then(f"{own}_call").otherwise(pl.max_horizontal(call, pl.lit(NOBODY))).alias(call)
    )
    settled = table.select(items.columns)
    return pl.concat([settled, other] if side == BEFORE else [other, settled])


def compare(cells: pl.DataFrame, keys: Sequence[str], steps: StepCounts) -> pl.DataFrame:
    """Compare what each row takes of a step.

    Args:
        cells: `keys`, ``side``, ``window``, ``count``, ``ns``.
        keys: What makes a row.
        steps: What to average over.

    Returns:
        `keys`, ``before_ns``, ``after_ns``, ``change_ns``, ``ratio``, ``before_count``, ``after_count`` (a step of one
        rank, on average), ``significant``.
    """
    cells = cells.group_by(*keys, "side", "window", maintain_order=True).agg(pl.col("count", "ns").sum())
    rows = cells.select(keys).unique(maintain_order=True).with_row_index("row")
    cells = cells.join(rows, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
    times, means, counts = [], [], []
    for side in (BEFORE, AFTER):
        own = cells.filter(pl.col("side") == side)
        grid = np.zeros((rows.height, len(steps.ranks[side])))
        number = np.zeros(rows.height)
        grid[own["row"].to_numpy(), own["window"].to_numpy()] = own["ns"].to_numpy()
        np.add.at(number, own["row"].to_numpy(), own["count"].to_numpy())
        total = max(steps.total(side), 1)
        means.append(rounded(grid.sum(axis=1) / total))
        counts.append(number / total)
        times.append(grid / np.maximum(np.array(steps.ranks[side], np.float64), 1.0))
    table = rows.drop("row").with_columns(
        before_ns=pl.Series(means[BEFORE], dtype=pl.Int64),
        after_ns=pl.Series(means[AFTER], dtype=pl.Int64),
        before_count=pl.Series(counts[BEFORE]),
        after_count=pl.Series(counts[AFTER]),
        significant=steps.significance(times[BEFORE], times[AFTER]),
    )
    change = pl.col("after_ns") - pl.col("before_ns")
    ratio = pl.when(pl.col("before_ns") > 0).then(pl.col("after_ns") / pl.col("before_ns"))
    return table.select(
        *keys, "before_ns", "after_ns", change.alias("change_ns"), ratio.alias("ratio"), "before_count", "after_count",
        "significant",
    )  # fmt: skip


def rounded(values: npt.NDArray[np.float64]) -> Int:
    """Return values as integers."""
    found: Int = np.rint(values).astype(np.int64)
    return found


def describe(rows: pl.DataFrame, catalog: Catalog, what: str) -> pl.DataFrame:
    """Replace the keys of rows by words: names, shapes, how the sides were matched.

    Args:
        rows: With `KEYS`, or of them ``one_call`` and ``two_call``.
        catalog: The kinds.
        what: ``op``, ``kernel`` or ``communication``.

    Returns:
        ``what``, ``match``, ``name``, ``after_name``, ``op``, ``pg_name``, ``shapes``, ``types``, ``after_shapes``,
        ``after_types``, then the other columns.
    """
    for side in ("one", "two"):
        rows = rows.join(_words(catalog, what, side), on=_key(what, side), how="left", maintain_order="left")
    one, two = pl.col("one_name"), pl.col("two_name")
    both = one.is_not_null() & two.is_not_null()
    reshaped = _differ("shapes") | _differ("plain")
    matched = (
        pl.when(one.is_null()).then(pl.lit("added")).when(two.is_null()).then(pl.lit("removed"))
        .when(one != two).then(pl.lit("renamed")).when(reshaped).then(pl.lit("shapes")).otherwise(pl.lit("same"))
    )  # fmt: skip
    first = [
        pl.when(one.is_null()).then(f"two_{name}").otherwise(f"one_{name}").alias(name)
        for name in ("op", "pg_name", "shapes", "types")
    ]
    after = [pl.when(both & reshaped).then(f"two_{name}").alias(f"after_{name}") for name in ("shapes", "types")]
    rest = [name for name in rows.columns if not name.startswith(("one_", "two_"))]
    return rows.select(
        pl.lit(what).alias("what"),
        matched.alias("match"),
        pl.coalesce(one, two).alias("name"),
        pl.when(both & (one != two)).then(two).alias("after_name"),
        *first,
        *after,
        *rest,
    )


def _key(what: str, side: str) -> str:
    return f"{side}_kind" if what == "kernel" else f"{side}_call"


def _words(catalog: Catalog, what: str, side: str) -> pl.DataFrame:
    """Return what kinds or calls are called, with their key."""
    key = _key(what, side)
    if what == "kernel":
        table = catalog.kinds.with_row_index(key).with_columns(pl.col(key).cast(pl.Int64))
    else:
        numbered = catalog.kinds.with_columns(pl.Series(key, catalog.call), name=pl.coalesce("op", "name"))
        table = numbered.unique(key, keep="first", maintain_order=True)
    names = ("op", "shapes", "types", "plain", "pg_name", "name")
    return table.select(key, *(pl.col(name).alias(f"{side}_{name}") for name in names))


def _differ(name: str) -> pl.Expr:
    return pl.col(f"one_{name}").ne_missing(pl.col(f"two_{name}"))
