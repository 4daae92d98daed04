"""Which work of one trace is which of another: sequences aligned by what the user wrote, then by the kernels within.

Calls of operators are aligned first: by operator, shapes and types; what is left between them by less and less, down to
what kind of kernel they launch. Then, inside each pair of calls, the kernels: by name, by class, by position. Each
alignment is a longest common subsequence, so that order holds, and what was added or removed moves nothing else; only
long blocks may change places, where the device's steps begin elsewhere in the program.

Shape letters: I items, C calls, K kinds of items, L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.align import common_subsequence
from chakra_et.analysis.diff_measure import CALL, ITEM

__all__ = ["NOBODY", "UNTOLD", "Catalog", "Chain", "Targets", "make_catalog", "match_by_ids", "match_by_order"]

Int = npt.NDArray[np.int64]

NOBODY, UNTOLD = -1, -2
_PATIENCE = 512
# Blocks of this many calls may have moved, with so many others between two of them, and so many times.
_BLOCK, _NEAR, _MOVES_MOST = 6, 3, 4
# What tells calls apart, from strict to loose; an operator that isn't known goes by its kernel's name.
_LEVELS: tuple[tuple[str, ...], ...] = (
    CALL,
    ("what", "op", "shapes", "types"),
    ("what", "op", "shapes"),
    ("what", "op", "pg_name", "copy"),
    ("what", "op", "name", "digits"),
    ("what", "op", "name"),
    ("what", "op", "copy"),
    ("what", "name"),
)
# Of these, such whose pairs may stand anywhere, if there are as many of a code on both sides; and such that tell
# iterations of one set apart: operators, whatever their shapes. The last ones ignore operators.
_ANYWHERE, _WITHIN, _STRANGERS = (1, 4, 5), 7, 2
# So many kernels may an operator launch that is taken for another one.
_FEW = 3
# Classes of kernels of which a step has few enough that position tells the rest; the others must lack an operator.
_TELLING = ("gemm", "attention", "convolution", "communication", "embedding", "optimizer")
_MOVES = ("copy", "memset")


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """The kinds of items of all ranks of both sets, [K].

    Attributes:
        kinds: Columns of `ITEM`, and ``plain`` (types, as all sources write them).
        call: int64 [K]: number of the kind's call (`CALL`).
        levels: int64 [L, K]: codes by which calls are aligned, the strictest first; -1: not by this one.
        name: int64 [K]: code of the kernel's name; ``group``: of its class, ``any``: 0, or -1 for copies and sets.
        group: See `name`.
        any: See `name`.
    """

    kinds: pl.DataFrame
    call: Int
    levels: Int
    name: Int
    group: Int
    any: Int


def make_catalog(tables: Sequence[pl.DataFrame]) -> tuple[Catalog, list[Int]]:
    """Return all kinds, and the number there of each row of each table."""
    lengths = [table.height for table in tables]
    every = pl.concat(tables)
    kinds = every.unique(maintain_order=True).with_columns(plain=_plain_types())
    place = every.join(
        kinds.with_row_index("place"), on=list(ITEM), how="left", nulls_equal=True, maintain_order="left"
    )
    where = place["place"].cast(pl.Int64).to_numpy()
    copies = pl.when(pl.col("kind").is_in(_MOVES)).then("name")
    known = kinds.with_columns(op=pl.coalesce("op", "name"), types="plain", copy=copies)
    # Shapes that vary from step to step keep their size, about.
    known = known.with_columns(digits=pl.col("shapes").str.replace_all(r"\d", "9"))
    levels = [_codes(known, level) for level in _LEVELS]
    telling = pl.col("kind").is_in(_TELLING) | kinds["op"].is_null() & ~pl.col("kind").is_in(["other", *_MOVES])
    group = _codes(known, ("what", "kind"))
    levels.append(np.where(known.select(telling.fill_null(False)).to_series().to_numpy(), group, -1))
    moves = known.select(pl.col("kind").is_in(_MOVES).fill_null(False)).to_series().to_numpy()
    catalog = Catalog(
        kinds, _codes(known, CALL), np.stack(levels), _codes(known, ("name",)), group, np.where(moves, -1, 0)
    )
    return catalog, np.split(where, np.cumsum(lengths)[:-1]) if lengths else []


def _plain_types() -> pl.Expr:
    """Return types of inputs alike from execution traces and profiles: of tensors as C++ says, of all else nothing."""
    inner = pl.col("types").str.replace_all(r"Tensor\(([^)]*)\)", "$1").str.replace_all(r'"[A-Z][^"]*"', '""')
    return pl.when(pl.col("what") == "communication").then(pl.col("types").str.to_lowercase()).otherwise(inner)


def _codes(table: pl.DataFrame, columns: Sequence[str]) -> Int:
    """Return a number for each distinct row of some columns, int64, by first appearance."""
    distinct = table.select(columns).unique(maintain_order=True).with_row_index("code")
    found = table.select(columns).join(distinct, on=list(columns), how="left", nulls_equal=True, maintain_order="left")
    numbers: Int = found["code"].cast(pl.Int64).to_numpy()
    return numbers


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """One rank's items, in order.

    Attributes:
        window: int64 [I], ascending.
        call: int64 [I], ascending.
        kind: int64 [I]: number in the catalog.
        id: uint64 [I]: node.
        duration_ns: int64 [I].
    """

    window: Int
    call: Int
    kind: Int
    id: npt.NDArray[np.uint64]
    duration_ns: Int

    def stretch(self, window: int) -> tuple[int, int]:
        """Return the first item of a window, and the one after its last."""
        low, high = np.searchsorted(self.window, (window, window + 1))
        return int(low), int(high)

    def typical(self) -> int | None:
        """Return the window with the median number of items, the earliest of equals; None without items."""
        if not len(self.window):
            return None
        windows, counts = np.unique(self.window, return_counts=True)
        middle = np.sort(counts)[(len(counts) - 1) // 2]
        return int(windows[np.flatnonzero(counts == middle)[0]])


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What each item of a rank is in the other set.

    Attributes:
        own: int64 [I]: kind of the item at its place in the typical iteration, since shapes may vary by iteration;
            its own kind where that isn't known.
        kind: int64 [I]: kind of its counterpart; `NOBODY`: it has none; `UNTOLD`: its place was not compared.
        call: int64 [I]: call of its counterpart, or of that of its operator call.
    """

    own: Int
    kind: Int
    call: Int


def match_by_ids(one: Chain, two: Chain, catalog: Catalog) -> tuple[Targets, Targets]:
    """Match items of equal node ids that are of one operator or name: runs of their own may use an id for all sorts."""
    return _same_ids(one, two, catalog), _same_ids(two, one, catalog)


def _same_ids(one: Chain, two: Chain, catalog: Catalog) -> Targets:
    order = np.argsort(two.id, kind="stable")
    place = np.searchsorted(two.id[order], one.id)
    found = np.full(len(one.id), NOBODY, np.int64)
    if len(order):
        near = order[np.minimum(place, len(order) - 1)]
        same = (two.id[near] == one.id) & _akin(one.kind, two.kind[near], catalog)
        found[same] = near[same]
    kind = np.where(found >= 0, two.kind[found], NOBODY) if len(two.kind) else found
    return Targets(one.kind, kind, np.where(kind >= 0, catalog.call[kind], NOBODY))


def _akin(one: Int, two: Int, catalog: Catalog) -> npt.NDArray[np.bool_]:
    """Return which kinds may be one thing: both operators or both communications, of equal operator or name, [I]."""
    own, far = catalog.kinds[one], catalog.kinds[two]
    same = (own[name] == far[name] for name in ("what", "op", "name"))
    what, op, name = (column.fill_null(False).to_numpy() for column in same)
    akin: npt.NDArray[np.bool_] = what & (op | name)
    return akin


def match_by_order(one: Chain, two: Chain, catalog: Catalog) -> tuple[Targets, Targets]:
    """Match the items of a typical iteration of each; the other iterations do as their own typical one."""
    targets = tuple(
        Targets(side.kind.copy(), np.full(len(side.kind), UNTOLD), np.full(len(side.kind), UNTOLD))
        for side in (one, two)
    )
    typical = one.typical(), two.typical()
    if typical[0] is None or typical[1] is None:
        return targets[0], targets[1]
    stretches = one.stretch(typical[0]), two.stretch(typical[1])
    pair = _align(one, stretches[0], two, stretches[1], catalog, within=False)
    for place, (side, other) in enumerate(((one, two), (two, one))):
        found = targets[place]
        items, calls = pair[place]
        own = slice(*stretches[place])
        found.kind[own] = np.where(items >= 0, other.kind[items], NOBODY)
        found.call[own] = np.where(calls >= 0, catalog.call[other.kind[calls]], NOBODY)
        for window in np.unique(side.window):
            if window != typical[place]:
                _take_over(side, side.stretch(int(window)), stretches[place], found, catalog)
    return targets[0], targets[1]


def _take_over(side: Chain, own: tuple[int, int], typical: tuple[int, int], found: Targets, catalog: Catalog) -> None:
    """Give the items of an iteration the counterparts of those at their place in the typical one."""
    (items, calls), _ = _align(side, own, side, typical, catalog, within=True)
    here = slice(*own)
    found.own[here] = np.where(items >= 0, found.own[items], found.own[here])
    found.kind[here] = np.where(items >= 0, found.kind[items], UNTOLD)
    found.call[here] = np.where(calls >= 0, found.call[calls], UNTOLD)


def _align(
    one: Chain, own: tuple[int, int], two: Chain, other: tuple[int, int], catalog: Catalog, *, within: bool
) -> tuple[tuple[Int, Int], tuple[Int, Int]]:
    """Align two iterations.

    Args:
        one: One side.
        own: Its items.
        two: The other.
        other: Its items.
        catalog: The kinds.
        within: True for two iterations of one set.

    Returns:
        For the items of each, the item of the other that it is, and the first item of the call that its call is; -1
        for none.
    """
    sides = [(chain.call[low:high], chain.kind[low:high], chain.duration_ns[low:high], low)
             for chain, (low, high) in ((one, own), (two, other))]  # fmt: skip
    firsts = [np.flatnonzero(np.diff(call, prepend=-1)) for call, _, _, _ in sides]
    mains = [_longest(call, kind, time) for call, kind, time, _ in sides]
    levels = [catalog.levels[:, main] for main in mains]
    for level, first, (call, _, _, _) in zip(levels, firsts, sides, strict=True):
        level[-_STRANGERS:, np.diff(first, append=len(call)) > _FEW] = -1
    ends = _WITHIN if within else len(catalog.levels)
    pairs = _align_levels(levels[0][:ends], levels[1][:ends])
    for place in _ANYWHERE:
        pairs = _merged(pairs, _anywhere(pairs, levels[0][place], levels[1][place]))
    numbers = []
    calls = []
    for place, (call, _, _, _) in enumerate(sides):
        of_call = np.full(len(firsts[place]), -1, np.int64)
        of_call[pairs[:, place]] = np.arange(len(pairs))
        number = of_call[np.cumsum(np.diff(call, prepend=-1) != 0) - 1] if len(call) else np.empty(0, np.int64)
        far = firsts[1 - place][pairs[:, 1 - place]] + sides[1 - place][3]
        numbers.append(number)
        calls.append(np.where(number >= 0, far[number], -1) if len(far) else np.full(len(number), -1, np.int64))
    inner = [catalog.name, catalog.group, *([] if within else [catalog.any])]
    span = len(catalog.call) + 1
    codes = [
        np.stack([np.where((number >= 0) & (code[side[1]] >= 0), number * span + code[side[1]], -1) for code in inner])
        for number, side in zip(numbers, sides, strict=True)
    ]
    # Blocks of calls may have moved: inside, both sides go by pairs of calls.
    order = [np.argsort(number, kind="stable") for number in numbers]
    found = _align_levels(*(code[:, rows] for code, rows in zip(codes, order, strict=True)))
    partners = [order[side][found[:, side]] for side in (0, 1)]
    items = [np.full(len(number), -1, np.int64) for number in numbers]
    items[0][partners[0]] = partners[1] + sides[1][3]
    items[1][partners[1]] = partners[0] + sides[0][3]
    return (items[0], calls[0]), (items[1], calls[1])


def _longest(call: Int, kind: Int, time: Int) -> Int:
    """Return the kind of the longest item of each call, int64 [C]."""
    order = np.lexsort((-time, call))
    return kind[order][np.flatnonzero(np.diff(call[order], prepend=-1))]


def _align_levels(one: Int, two: Int) -> Int:
    """Align by the first level, and what is left between by the next ones; pairs of positions, ascending in the first.

    Args:
        one: int64 [L, N]: codes; -1 never matches.
        two: int64 [L, M]: codes.
    """
    pairs = _blocks(one[0], two[0])
    for codes in zip(one[1:], two[1:], strict=True):
        for ahead in (False, True):
            pairs = _merged(pairs, _between(pairs, codes, ahead=ahead))
    return pairs


def _blocks(one: Int, two: Int) -> Int:
    """Align what is in the same order, then what moved as a block: a device far behind its host turns a step around."""
    pairs = _common(one, two, np.flatnonzero(one >= 0), np.flatnonzero(two >= 0))
    for _ in range(_MOVES_MOST):
        left = [np.flatnonzero(_free(pairs, side, codes)) for side, codes in enumerate((one, two))]
        moved = _common(one, two, left[0], left[1])
        if len(moved):
            near = np.max([np.diff(np.searchsorted(rows, moved[:, side])) for side, rows in enumerate(left)], axis=0)
            block = np.cumsum(np.concatenate(([0], near > _NEAR)))
            moved = moved[np.bincount(block)[block] >= _BLOCK]
        if not len(moved):
            break
        pairs = _merged(pairs, moved)
    return pairs


def _between(pairs: Int, codes: tuple[Int, Int], *, ahead: bool) -> Int:
    """Align what follows the same pair, or with `ahead` what the same pair follows."""
    span = int(max(codes[0].max(initial=0), codes[1].max(initial=0))) + 1
    rows, keys = [], []
    for side, own in enumerate(codes):
        number = np.full(len(own), -1, np.int64)
        number[pairs[:, side]] = np.arange(len(pairs))
        line = number[::-1] if ahead else number
        last = np.maximum.accumulate(np.where(line >= 0, np.arange(len(line)), -1)) if len(line) else line
        context = np.where(last >= 0, line[last], -1) if len(line) else line
        context = context[::-1] if ahead else context
        free = np.flatnonzero((number < 0) & (own >= 0))
        free = free[np.argsort(context[free], kind="stable")]
        rows.append(free)
        keys.append((context[free] + 1) * span + own[free])
    found = _common(keys[0], keys[1], np.arange(len(keys[0])), np.arange(len(keys[1])))
    return np.stack([rows[0][found[:, 0]], rows[1][found[:, 1]]], axis=1)


def _anywhere(pairs: Int, one: Int, two: Int) -> Int:
    """Pair what is left in its order, where there are as many of a code on both sides."""
    rows = [np.flatnonzero(_free(pairs, side, codes)) for side, codes in enumerate((one, two))]
    most = int(max(one.max(initial=0), two.max(initial=0))) + 1
    counts = [np.bincount(codes[left], minlength=most) for codes, left in zip((one, two), rows, strict=True)]
    even = counts[0] == counts[1]
    chosen = []
    for codes, left in zip((one, two), rows, strict=True):
        left = left[even[codes[left]]]
        chosen.append(left[np.argsort(codes[left], kind="stable")])
    return np.stack(chosen, axis=1)


def _free(pairs: Int, side: int, codes: Int) -> npt.NDArray[np.bool_]:
    """Return what has a code and no partner yet."""
    free: npt.NDArray[np.bool_] = codes >= 0
    free[pairs[:, side]] = False
    return free


def _common(one: Int, two: Int, rows_one: Int, rows_two: Int) -> Int:
    """Return the pairs of a longest common subsequence of some rows."""
    shared = np.isin(one[rows_one], two[rows_two]), np.isin(two[rows_two], one[rows_one])
    rows = rows_one[shared[0]], rows_two[shared[1]]
    found = common_subsequence(one[rows[0]], two[rows[1]], _PATIENCE)
    return np.stack([rows[0][found[:, 0]], rows[1][found[:, 1]]], axis=1)


def _merged(pairs: Int, more: Int) -> Int:
    every = np.concatenate((pairs, more))
    return every[np.argsort(every[:, 0])]
