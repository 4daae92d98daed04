"""Who wrote what an operator reads, by storage: through views, in-place operators and communications.

An execution trace names the storage of each tensor. Operators that write say so in their schema (``Tensor(a!)``), new
results are theirs, and views (``Tensor(a)``) write nothing. A read depends on the latest writes that together made what
it reads: those that overlap it and no later write covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["storage_writers"]

Int = npt.NDArray[np.int64]
_COLUMNS = (
    "name", "op_schema", "input_values", "input_shapes", "input_strides", "output_values", "output_shapes",
    "output_strides",
)  # fmt: skip
_decode = msgspec.json.Decoder().decode
# Of communications, these give only; the others fill their first argument, which their schemas don't say.
_GIVING = ("c10d::send", "c10d::barrier", "c10d::check_for_nan")


class _Extent(NamedTuple):
    """Bytes of a storage, from `low` up to `high`."""

    storage: int
    low: int
    high: int


class _Effects(NamedTuple):
    """Which arguments an operator writes, and which of its results are new."""

    writes: frozenset[int]
    is_new: tuple[bool, ...]


def storage_writers(nodes: pl.DataFrame, last: Int) -> tuple[Int, Int]:
    """Pair each operator with those that wrote what it reads.

    Args:
        nodes: `HostTrace.nodes`, a node's start being its row.
        last: int64 [N]: row of each node's last descendant, at which it ends.

    Returns:
        Writer and reader rows, int64 [E] each, without repeats.
    """
    reads: list[list[_Extent]] = []
    writes: list[list[_Extent]] = []
    for row in nodes.select(_COLUMNS).iter_rows():
        read, wrote = _accesses(*row)
        reads.append(read)
        writes.append(wrote)
    return _pair(reads, writes, last)


def _pair(reads: list[list[_Extent]], writes: list[list[_Extent]], last: Int) -> tuple[Int, Int]:
    ending: dict[int, list[int]] = {}
    for row, end in enumerate(last.tolist()):
        if writes[row]:
            ending.setdefault(end, []).append(row)
    live: dict[int, list[tuple[int, int, int]]] = {}
    pairs: set[tuple[int, int]] = set()
    for row, extents in enumerate(reads):
        for storage, low, high in extents:
            for begin, end, writer in reversed(live.get(storage, ())):
                if begin < high and low < end:
                    pairs.add((writer, row))
                    if begin <= low and high <= end:
                        break
        # Of calls that end together, the innermost has written.
        for writer in ending.get(row, ()):
            for storage, low, high in writes[writer]:
                kept = [one for one in live.get(storage, ()) if one[0] < low or one[1] > high]
                live[storage] = [*kept, (low, high, writer)]
    ordered = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    return ordered[:, 0].copy(), ordered[:, 1].copy()


def _accesses(
    name: str, schema: str, values: str, shapes: str, strides: str, outputs: str, out_shapes: str, out_strides: str
) -> tuple[list[_Extent], list[_Extent]]:
    """Return what a node reads and what it writes; without a schema, nothing is known to be written."""
    if not schema:
        return [], []
    effects = _effects(name, schema)
    read: list[_Extent] = []
    wrote: list[_Extent] = []
    for place, parts in enumerate(_arguments(values, shapes, strides)):
        found = list(_extents(*parts))
        read += found
        if place in effects.writes:
            wrote += found
    for place, parts in enumerate(_arguments(outputs, out_shapes, out_strides)):
        if place >= len(effects.is_new) or effects.is_new[place]:
            wrote += _extents(*parts)
    return read, wrote


def _arguments(values: str, shapes: str, strides: str) -> list[tuple[Any, Any, Any]]:
    try:
        decoded = [_decode(text) if text else [] for text in (values, shapes, strides)]
    except msgspec.DecodeError:
        return []
    first, second, third = (part if isinstance(part, list) else [] for part in decoded)
    third = third if len(third) == len(first) else [None] * len(first)
    return list(zip(first, second, third, strict=False))


def _extents(value: Any, shape: Any, strides: Any) -> Iterator[_Extent]:
    if not isinstance(value, list):
        return
    if len(value) == 6 and isinstance(value[5], str):
        if all(type(part) is int for part in value[:5]) and value[1] and value[3]:
            _, storage, offset, numel, item, _ = value
            span = _span(shape, strides) or numel
            yield _Extent(storage, offset * item, (offset + span) * item)
        return
    if not isinstance(shape, list):
        return
    inner = strides if isinstance(strides, list) and len(strides) == len(value) else [None] * len(value)
    for parts in zip(value, shape, inner, strict=False):
        yield from _extents(*parts)


def _span(shape: Any, strides: Any) -> int:
    """Return the elements from a tensor's first to its last; 0 if they aren't told."""
    if not (isinstance(shape, list) and isinstance(strides, list) and strides and len(shape) == len(strides)):
        return 0
    if not all(type(part) is int for part in (*shape, *strides)):
        return 0
    return int(1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)))


@lru_cache(maxsize=1 << 14)
def _effects(name: str, schema: str) -> _Effects:
    arguments, _, results = schema.partition(" -> ")
    listed = [part for part in _split(arguments.partition("(")[2].removesuffix(")")) if part != "*"]
    written = {place for place, part in enumerate(listed) if "!" in part.partition("=")[0]}
    if name.startswith("c10d::") and name not in _GIVING:
        written.add(0)
    returned = _split(results[1:-1] if results.startswith("(") else results)
    return _Effects(frozenset(written), tuple("(" not in part or "!" in part for part in returned))


def _split(text: str) -> list[str]:
    """Split a list of a schema at its top-level commas."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [*parts, text[begin:].strip()] if text else []
