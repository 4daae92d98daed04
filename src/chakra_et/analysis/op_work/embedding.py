"""Table lookups, and reads and writes at indices.

Rows that are looked up twice are read once from a cold cache, but the indices' values aren't recorded: as many bytes
are counted as the lookups give, and never more than the table has. Sums of rows are 1 FLOP an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.dtypes import ELEMENT_BYTES
from chakra_et.analysis.op_work.tensor import Tensor, broadcast
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS"]


def _touched(table: Tensor, count: int) -> Tensor:
    """Return what `count` elements of a table take, the whole table at most."""
    return Tensor((min(count, table.numel),), table.kind)


def _embedding(call: Call) -> OpWork:
    table, indices = call.tensor(0, 2), call.tensor(1)
    out = call.result(99, Tensor((*indices.shape, table.shape[1]), table.kind))
    return made("embedding", 0, reads=[_touched(table, out.numel), indices], writes=[out])


def _embedding_bag(call: Call) -> OpWork:
    table, indices, offsets = call.tensor(0, 2), call.tensor(1), call.tensor(2)
    width = table.shape[1]
    bags = offsets.numel - (1 if call.flag(7) else 0)
    out = call.result(99, Tensor((bags, width), table.kind))
    flop_count = indices.numel * width
    reads = [_touched(table, flop_count), indices, offsets, call.optional(6)]
    return made("embedding bag", flop_count, reads=reads, writes=[out], kind=table.kind)


def _embedding_dense_backward(rows_at: int) -> Callable[[Call], OpWork]:
    """Return the formula of a gradient as large as the table, by the position of its number of rows."""

    def formula(call: Call) -> OpWork:
        grad, indices = call.tensor(0), call.tensor(1)
        rows = call.number(rows_at)
        if not grad.shape or (not call.outputs and rows is None):
            raise NoModelError
        width = grad.shape[-1]
        out = call.result(99, Tensor((int(rows or 0), width), grad.kind))
        flop_count = indices.numel * width
        return made("embedding backward", flop_count, reads=[grad, indices], writes=[out], kind=grad.kind)

    return formula


def _index_select(call: Call) -> OpWork:
    x, indices = call.tensor(0), call.tensor(2)
    axis = call.number(1)
    if axis is None and not call.outputs:
        raise NoModelError
    size = x.shape[int(axis or 0)] if x.shape else 1
    inferred = Tensor((x.numel // max(size, 1) * indices.numel,), x.kind)
    out = call.result(3, inferred)
    return made("gather", 0, reads=[_touched(x, out.numel), indices], writes=[out])


def _gather(call: Call) -> OpWork:
    x, indices = call.tensor(0), call.tensor(2)
    out = call.result(4, Tensor(indices.shape, x.kind))
    return made("gather", 0, reads=[_touched(x, out.numel), indices], writes=[out])


def _take(call: Call) -> OpWork:
    x, indices = call.tensor(0), call.tensor(1)
    out = call.result(2, Tensor(indices.shape, x.kind))
    return made("gather", 0, reads=[_touched(x, out.numel), indices], writes=[out])


def _scatter(per_element: int, arity: int) -> Callable[[Call], OpWork]:
    """Return the formula of writes at indices (the third argument) of what the fourth holds."""

    def formula(call: Call) -> OpWork:
        x, indices, source = call.tensor(0), call.tensor(2), call.optional(3)
        # index_* move whole rows, the others an element an index.
        count = source.numel if source and source.shape and "index_" in call.name else indices.numel
        written = _touched(x, count)
        reads: list[Tensor | None] = [indices, source, written if per_element else None]
        writes = [written]
        if not call.name.endswith("_"):  # a copy of all comes first
            reads, writes = [x, indices, source], [call.result(arity, Tensor(x.shape, x.kind))]
        return made("scatter", per_element * count, reads=reads, writes=writes, kind=x.kind)

    return formula


def _indexed_shape(x: Tensor, indices: tuple[Tensor | None, ...]) -> tuple[int, ...]:
    """Return the shape of `x[indices]`; None among the indices takes a whole axis."""
    used = [index for index in indices if index is not None]
    if any(index.kind in ("bool", "uint8") for index in used):
        raise NoModelError  # how many are true isn't recorded
    common = broadcast([index.shape for index in used])
    if common is None or len(indices) > len(x.shape):
        raise NoModelError
    kept = [size for axis, size in enumerate(x.shape) if axis >= len(indices) or indices[axis] is None]
    return (*common, *kept)


def _indices(call: Call, position: int) -> tuple[Tensor | None, ...]:
    call.tensors(position)  # raises unless some are known
    return tuple(item if isinstance(item, Tensor) else None for item in call.arguments[position])


def _index(call: Call) -> OpWork:
    x = call.tensor(0)
    indices = _indices(call, 1)
    given = call.optional(2) or (call.outputs[0] if call.outputs else None)
    out = given or Tensor(_indexed_shape(x, indices), x.kind)
    return made("gather", 0, reads=[_touched(x, out.numel), *indices], writes=[out])


def _index_put(call: Call) -> OpWork:
    x, values = call.tensor(0), call.tensor(2)
    indices = _indices(call, 1)
    count = max(values.numel, math.prod(_indexed_shape(x, indices)))
    written, adds = _touched(x, count), bool(call.flag(3))
    reads = [*indices, values, written if adds else None]
    return made("scatter", count if adds else 0, reads=reads, writes=[written], kind=x.kind)


def _fbgemm_lookup(first: int, *, has_cache: bool) -> Callable[[Call], OpWork]:
    """Return the formula of FBGEMM's lookups in several tables at once.

    Args:
        first: Position of the tables' weights.
        has_cache: True for the split lookups, whose arguments also hold weights in host memory, a cache, and
            placements; their rowwise optimizers keep a number a row, which tells the width where nothing else does.
    """
    shift = 4 if has_cache else 1  # of weights_offsets after the weights

    def formula(call: Call) -> OpWork:
        at = first + shift
        weights, widths = call.tensor(first), call.tensor(at + 1)
        indices, offsets = call.tensor(at + 6), call.tensor(at + 7)
        if has_cache and (host := call.optional(first + 1)) and not weights.numel:
            weights = host
        tables = max(widths.numel - 1, 1)
        total = call.number(at + 2)
        state = call.optional(at + 15) if has_cache and "rowwise" in call.name else None
        is_exact = total is not None
        if total is None and state and state.numel:  # a mean width, by rows
            total = tables * (weights.numel / state.numel)
            is_exact = tables == 1
        if total is None:
            raise NoModelError
        batch = (offsets.numel - 1) // tables
        looked_up = int(indices.numel * total / tables)
        item = ELEMENT_BYTES.get(weights.kind, 4)
        factors = call.optional(at + 9)
        is_pooled = call.number(at + 8) != 2
        written = Tensor((int(batch * total) if is_pooled else looked_up,), "fp32")
        flop_count = looked_up * ((2 if factors else 1) if is_pooled else 0)
        reads = [indices, offsets, factors]
        work = made("embedding bags", flop_count, reads=reads, writes=[written], kind=weights.kind)
        rows = min(looked_up, weights.numel) * item
        return OpWork(
            work.flop_count, work.read_bytes + rows, work.write_bytes, work.dtype, work.model, is_exact=is_exact
        )

    return formula


def _fbgemm_backward(call: Call) -> OpWork:
    """The gradient that comes in is all that a backward lookup records: the rows that it updates are not."""
    grad = call.tensor(0)
    model = "embedding bags backward (the gradient alone)"
    return made(model, grad.numel, reads=[grad], writes=[], kind=grad.kind, is_exact=False)


_LOOKUPS = ("adagrad", "rowwise_adagrad", "rowwise_adagrad_with_counter", "adam", "sgd", "lamb", "partial_rowwise_adam",
            "partial_rowwise_lamb", "lars_sgd", "none")  # fmt: skip

MODELS: dict[str, Callable[[Call], OpWork]] = {
    "aten::embedding": _embedding,
    "aten::_embedding_bag": _embedding_bag,
    "aten::_embedding_bag_forward_only": _embedding_bag,
    "aten::embedding_dense_backward": _embedding_dense_backward(2),
    "aten::_embedding_bag_dense_backward": _embedding_dense_backward(5),
    "aten::index_select": _index_select,
    "aten::gather": _gather,
    "aten::index": _index,
    "aten::take": _take,
    "aten::_index_put_impl_": _index_put,
    "aten::index_put_": _index_put,
    "fbgemm::dense_embedding_codegen_lookup_function": _fbgemm_lookup(0, has_cache=False),
}
MODELS |= {f"aten::{name}{end}": _scatter(0, 4) for name in ("scatter", "index_copy") for end in ("", "_")}
MODELS |= {
    f"aten::{name}{end}": _scatter(1, 4)
    for name in ("scatter_add", "index_add", "scatter_reduce", "index_reduce")
    for end in ("", "_")
}
MODELS |= {
    f"fbgemm::split_embedding_codegen_lookup_{name}_function": _fbgemm_lookup(1, has_cache=True) for name in _LOOKUPS
}
MODELS |= {
    f"torch::autograd::CppNode<SplitLookupFunction_{name}_Op>": _fbgemm_backward
    for name in (*_LOOKUPS, "Dense", "dense")
}
