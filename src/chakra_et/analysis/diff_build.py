"""Putting the tables of a comparison together.

Shape letters: I items, K kinds of items, W windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from chakra_et.analysis.breakdown import IDLE
from chakra_et.analysis.diff_match import Catalog, Chain, Targets, make_catalog, match_by_ids, match_by_order
from chakra_et.analysis.diff_nodes import Timing, compare_nodes, no_nodes
from chakra_et.analysis.diff_pairs import Kept, Pairs
from chakra_et.analysis.diff_rows import AFTER, BEFORE, StepCounts, compare, describe, pair_up, rounded

__all__ = ["PARTS", "Built", "build"]

# What adds up to a step.
PARTS: tuple[str, ...] = ("compute_ns", "exposed_communication_ns", "memory_ns", *IDLE)
_ROW: dict[str, type[pl.DataType]] = {
    "what": pl.String, "match": pl.String, "name": pl.String, "after_name": pl.String, "op": pl.String,
    "pg_name": pl.String, "shapes": pl.String, "types": pl.String, "after_shapes": pl.String, "after_types": pl.String,
    "before_ns": pl.Int64, "after_ns": pl.Int64, "change_ns": pl.Int64, "ratio": pl.Float64, "before_count": pl.Float64,
    "after_count": pl.Float64, "significant": pl.Boolean,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """Tables of a comparison, as `chakra_et.analysis.diff.Diff` documents them.

    Attributes:
        table: All rows.
        steps: The step and its parts.
        iterations: The breakdown of each iteration.
        communications: Communications with their kernels.
        nodes: Nodes, matched by ids.
        timing: How far they lie apart.
        samples: How many iterations there are, before and after.
        matched: Share of the items' time that has a counterpart, before and after; None without any time.
    """

    table: pl.DataFrame
    steps: pl.DataFrame
    iterations: pl.DataFrame
    communications: pl.DataFrame
    nodes: pl.DataFrame
    timing: Timing | None
    samples: tuple[int, int]
    matched: tuple[float | None, float | None]


def build(pairs: Pairs, *, by_ids: bool, keys: tuple[str, ...]) -> Built:
    """Compare pairs of ranks.

    Args:
        pairs: What was kept of them.
        by_ids: True to match by node ids.
        keys: ``rank``, or nothing.
    """
    tables = [kept.part.kinds for pair in pairs.ranks.values() for kept in pair]
    catalog, places = make_catalog(tables)
    chains = _chains(pairs.ranks, places)
    match = match_by_ids if by_ids else match_by_order
    targets: Mapping[int, tuple[Targets, Targets]] = {rank: match(*pair, catalog) for rank, pair in chains.items()}
    items = pair_up(chains, targets, catalog)
    groups = [{rank: pair} for rank, pair in pairs.ranks.items()] if keys else [pairs.ranks]
    rows, steps, communications = [], [], []
    for group in groups:
        own = items.filter(pl.col("rank").is_in(list(group)))
        label = [pl.lit(next(iter(group)), pl.Int64).alias("rank")] if keys else []
        count = _windows(group, apart=not by_ids)
        parts = _step_parts(group, count)
        told, comms = _rows(own, catalog, group, count, parts)
        rows.append(told.select(*label, pl.all()))
        steps.append(parts.select(*label, pl.all()))
        communications.append(comms.select(*label, pl.all()))
    table = pl.concat(rows).sort(pl.col("what") != "step", -pl.col("change_ns"), "what", "name", "shapes")
    nodes, timing = no_nodes(), None
    if by_ids:
        nodes, timing = compare_nodes({rank: (one.part, two.part) for rank, (one, two) in pairs.ranks.items()})
    return Built(
        table=table,
        steps=pl.concat(steps),
        iterations=_iterations(pairs.ranks),
        communications=pl.concat(communications),
        nodes=nodes,
        timing=timing,
        samples=_samples(pairs.ranks),
        matched=(_matched(items, BEFORE), _matched(items, AFTER)),
    )


def _chains(ranks: Mapping[int, tuple[Kept, Kept]], places: list[np.ndarray]) -> dict[int, tuple[Chain, Chain]]:
    """Return the items of each rank with their kinds' numbers in the catalog."""
    each = iter(places)
    chains = {}
    for rank, pair in ranks.items():
        sides = []
        for kept in pair:
            items, place = kept.part.items, next(each)
            kind = place[items["of_kind"].to_numpy()] if items.height else np.empty(0, np.int64)
            columns = [items[name].to_numpy() for name in ("window", "call", "id", "duration_ns")]
            sides.append(Chain(columns[0], columns[1], kind, columns[2], columns[3]))
        chains[rank] = (sides[0], sides[1])
    return chains


def _windows(group: Mapping[int, tuple[Kept, Kept]], *, apart: bool = True) -> StepCounts:
    return StepCounts.of([(len(one.facts.windows), len(two.facts.windows)) for one, two in group.values()], apart=apart)


def _samples(group: Mapping[int, tuple[Kept, Kept]]) -> tuple[int, int]:
    steps = _windows(group)
    return len(steps.ranks[BEFORE]), len(steps.ranks[AFTER])


def _matched(items: pl.DataFrame, side: int) -> float | None:
    own = items.filter(pl.col("side") == side)
    far = "two_kind" if side == BEFORE else "one_kind"
    total, found = own.select(
        pl.col("ns").sum().alias("a"), pl.col("ns").filter(pl.col(far) >= 0).sum().alias("b")
    ).row(0)
    return found / total if total else None


def _iterations(ranks: Mapping[int, tuple[Kept, Kept]]) -> pl.DataFrame:
    tables = [
        kept.breakdown.select(pl.lit(word).alias("side"), pl.all())
        for place, word in ((BEFORE, "before"), (AFTER, "after"))
        for kept in (pair[place] for pair in ranks.values())
    ]
    return pl.concat(tables)


def _step_parts(group: Mapping[int, tuple[Kept, Kept]], steps: StepCounts) -> pl.DataFrame:
    """Return the step and its parts; rounded so that they add up."""
    names = (
        "step",
        *(name.removesuffix("_ns") for name in PARTS[:3]),
        "idle",
        *(name.removesuffix("_ns") for name in IDLE),
    )
    means, values = [], []
    for side in (BEFORE, AFTER):
        grid = np.zeros((len(PARTS), len(steps.ranks[side])))
        for pair in group.values():
            told = pair[side].breakdown.select(PARTS).to_numpy().T
            grid[:, : told.shape[1]] += told
        ends = rounded(np.cumsum(grid.sum(axis=1)) / max(steps.total(side), 1))
        parts = np.diff(ends, prepend=0)
        means.append(np.concatenate(([ends[-1]], parts[:3], [parts[3:].sum()], parts[3:])))
        values.append(
            np.vstack((grid.sum(axis=0), grid[:3], grid[3:].sum(axis=0), grid[3:])) / np.maximum(steps.ranks[side], 1)
        )
    table = pl.DataFrame(
        {"part": names, "before_ns": means[BEFORE], "after_ns": means[AFTER]},
        schema={"part": pl.String, "before_ns": pl.Int64, "after_ns": pl.Int64},
    )
    ratio = pl.when(pl.col("before_ns") > 0).then(pl.col("after_ns") / pl.col("before_ns"))
    return table.with_columns(
        change_ns=pl.col("after_ns") - pl.col("before_ns"),
        ratio=ratio,
        significant=steps.significance(values[BEFORE], values[AFTER]),
    )


def _rows(
    items: pl.DataFrame,
    catalog: Catalog,
    group: Mapping[int, tuple[Kept, Kept]],
    steps: StepCounts,
    parts: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return all rows, and those of communications with their kernels."""
    known = catalog.kinds.select(
        communicates=pl.col("what") == "communication",
        called=pl.col("op").is_not_null(),
        launched=pl.col("op").ne_missing(pl.col("name")) | pl.col("op").is_null(),
    )
    either = items.select(pl.when(pl.col("one_kind") >= 0).then("one_kind").otherwise("two_kind")).to_series()
    flags = known[either].with_columns(called=_any(items, known["called"]), launched=_any(items, known["launched"]))
    items = items.hstack(flags)
    work = items.filter(~pl.col("communicates"))
    comms = _calls(items.filter("communicates"), catalog, steps, "communication")
    kernels = work.filter("launched").select("one_kind", "two_kind", "side", "window", "ns", count=pl.lit(1, pl.Int64))
    tables = [
        parts.filter(pl.col("part") == "step").select(
            pl.exclude("part"), what=pl.lit("step"), match=pl.lit("same"), name=pl.lit("step")
        ),
        describe(_calls(work.filter("called"), catalog, steps, "op"), catalog, "op"),
        describe(compare(kernels, ("one_kind", "two_kind"), steps), catalog, "kernel"),
        describe(comms, catalog, "communication"),
        *(_named(group, steps, what) for what in ("launch", "host")),
    ]
    told = [
        table.select(
            (pl.col(name) if name in table.columns else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in _ROW.items()
        )
        for table in tables
    ]
    return pl.concat(told), _communications(items.filter("communicates"), comms, catalog)


def _any(items: pl.DataFrame, flag: pl.Series) -> pl.Series:
    """Return whether a flag of kinds holds for the kind of either side."""
    both = [flag.gather(items[name].set(items[name] < 0, None)).fill_null(False) for name in ("one_kind", "two_kind")]
    return both[0] | both[1]


def _calls(items: pl.DataFrame, catalog: Catalog, steps: StepCounts, what: str) -> pl.DataFrame:
    """Compare calls."""
    keys = ("one_call", "two_call")
    cells = items.group_by(*keys, "side", "window", maintain_order=True).agg(
        pl.col("ns").sum(), count=pl.col("call").n_unique().cast(pl.Int64)
    )
    return compare(cells, keys, steps)


def _named(group: Mapping[int, tuple[Kept, Kept]], steps: StepCounts, what: Literal["launch", "host"]) -> pl.DataFrame:
    """Compare what is told apart by its name alone."""
    tables = []
    for place in (BEFORE, AFTER):
        for pair in group.values():
            table = pair[place].part.launches if what == "launch" else pair[place].part.host
            tables.append(table.select("name", pl.lit(place, pl.Int8).alias("side"), "window", "count", ns="total_ns"))
    rows = compare(pl.concat(tables), ("name",), steps)
    match = (
        pl.when(pl.col("before_count") + pl.col("before_ns") == 0).then(pl.lit("added"))
        .when(pl.col("after_count") + pl.col("after_ns") == 0).then(pl.lit("removed")).otherwise(pl.lit("same"))
    )  # fmt: skip
    return rows.with_columns(what=pl.lit(what), match=match)


def _communications(items: pl.DataFrame, rows: pl.DataFrame, catalog: Catalog) -> pl.DataFrame:
    """Return the communications with the kernels that ran them, the most frequent one of each row."""
    told = describe(rows, catalog, "communication")
    kernels = rows.select("one_call", "two_call")
    for side, name in (("one", "kernel"), ("two", "after_kernel")):
        place = BEFORE if side == "one" else AFTER
        own = items.filter(pl.col("side") == place)
        most = (
            own.with_columns(catalog.kinds["name"].gather(own[f"{side}_kind"]).alias(name))
            .group_by("one_call", "two_call", name).len()
            .sort("len", name, descending=[True, False])
            .unique(("one_call", "two_call"), keep="first", maintain_order=True).drop("len")
        )  # fmt: skip
        kernels = kernels.join(most, on=["one_call", "two_call"], how="left", maintain_order="left")
    found = told.hstack(kernels.select("kernel", "after_kernel"))
    words = {"name": "comm_type", "after_name": "after_comm_type", "shapes": "size_bytes",
             "after_shapes": "after_size_bytes", "types": "comm_dtype"}  # fmt: skip
    sizes = pl.col("size_bytes", "after_size_bytes").cast(pl.Int64)
    found = found.rename(words).with_columns(sizes).select(
        "match", "comm_type", "after_comm_type", "pg_name", "size_bytes", "after_size_bytes", "comm_dtype", "kernel",
        "after_kernel", "before_ns", "after_ns", "change_ns", "ratio", "before_count", "after_count", "significant",
    )  # fmt: skip
    return found.sort("change_ns", "comm_type", "size_bytes", descending=[True, False, False])
