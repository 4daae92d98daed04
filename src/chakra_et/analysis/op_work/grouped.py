"""Several products in one call: grouped matrix multiplications and fused mixtures of experts.

Shape letters: t tokens, k inner size, n columns, g groups (experts).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.matmul import packing
from chakra_et.analysis.op_work.tensor import Tensor
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS"]


def _grouped(offsets: int, out_kind: int, arity: int, *, fallback: str) -> Callable[[Call], OpWork]:
    """Return the formula of `_grouped_mm` and its kin.

    Rows [t, k] x [g, k, n]: each row meets its group's matrix; [g, t, k] x [k, n]: each column its group's;
    [m, t] x [t, n]: each group sums over its own part of t. Each is 2 t k n in all, padding rows included.
    """

    def formula(call: Call) -> OpWork:
        a, b = call.tensor(0, 2, 3), call.tensor(1, 2, 3)
        rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
        if inner != b.shape[-2]:
            raise NoModelError
        groups = call.optional(offsets)
        count = groups.numel if groups else None
        shape = _shape(a, b, count)
        out = call.result(arity, Tensor(shape, call.kind(out_kind) or fallback or a.kind))
        products = a.shape[0] if len(a.shape) == len(b.shape) == 3 else 1
        flop_count = 2 * products * rows * inner * columns * packing(a)
        return made("grouped matmul", flop_count, reads=[a, b, groups], writes=[out], kind=a.kind)

    return formula


def _shape(a: Tensor, b: Tensor, groups: int | None) -> tuple[int, ...]:
    rows, columns = a.shape[-2], b.shape[-1]
    if len(a.shape) == len(b.shape) == 3:
        return (a.shape[0], rows, columns)
    if len(a.shape) == len(b.shape) == 2:
        if groups is None:
            raise NoModelError
        return (groups, rows, columns)
    return (rows, columns)


def _experts(first: int) -> Callable[[Call], OpWork]:
    """Return the formula of a fused mixture of experts: tokens [t, k], two weights [g, ...], choices [t, chosen].

    Every token meets the two matrices of each expert chosen for it. Which experts were chosen isn't recorded: weights
    of as many as can be are read.
    """

    def formula(call: Call) -> OpWork:
        x, up, down = call.tensor(first, 2), call.tensor(first + 1, 3), call.tensor(first + 2, 3)
        choices = call.tensor(first + 3, 2)
        tokens, experts = x.shape[0], max(up.shape[0], 1)
        if choices.shape[0] != tokens:
            raise NoModelError
        # Gate and up are one matrix, of 2n columns; packed weights hold several numbers an element.
        inner = x.shape[-1]
        unpacked = [_numbers(weight, inner) for weight in (up, down)]
        flop_count = 2 * choices.numel * sum(unpacked) // experts
        work = made("mixture of experts", flop_count, reads=[x, choices], writes=[x], kind=x.kind)
        touched = min(experts, choices.numel)
        weights = sum(made("", 0, reads=[weight], writes=[]).read_bytes for weight in (up, down)) * touched // experts
        return OpWork(flop_count, work.read_bytes + weights, work.write_bytes, work.dtype, work.model)

    return formula


def _numbers(weight: Tensor, inner: int) -> int:
    """Return how many numbers a weight holds; 4-bit ones lie packed, so that its inner size is half as large."""
    packed = 2 if inner not in weight.shape and inner // 2 in weight.shape else 1
    return math.prod(weight.shape) * packed


_FUSED = (
    "vllm::inplace_fused_experts",
    "vllm::outplace_fused_experts",
    "vllm::rocm_aiter_fused_moe",
    "sglang::inplace_fused_experts",
    "sglang::outplace_fused_experts",
    "aiter::fused_moe_",
)

MODELS: dict[str, Callable[[Call], OpWork]] = {
    "aten::_grouped_mm": _grouped(2, 4, 5, fallback=""),
    "aten::_scaled_grouped_mm": _grouped(4, 7, 9, fallback="bf16"),
} | {name: _experts(0) for name in _FUSED}
