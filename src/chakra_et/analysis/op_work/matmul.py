"""Matrix multiplications.

A multiply-add is 2 FLOP: [m, k] x [k, n] is 2 m n k (as in PyTorch's `torch.utils.flop_counter` and in the roofline
literature: Williams et al., CACM 2009). Added biases and scales, and fused activations, are not counted, as there.

Shape letters: m rows, n columns, k inner size, b batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.dtypes import promoted
from chakra_et.analysis.op_work.tensor import Tensor, broadcast
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS", "packing", "stated_product"]


def packing(tensor: Tensor) -> int:
    """Return how many numbers an element of a tensor holds: two fp4 numbers share a byte."""
    return 2 if tensor.kind == "fp4" else 1


def _product(call: Call, a: Tensor, b: Tensor, *, added: Tensor | None, out: Tensor, inner: int) -> OpWork:
    """Return the work of out[..., m, n] = a @ b (+ added)."""
    flop_count = 2 * out.numel * inner * packing(a)
    return made("matmul", flop_count, reads=[a, b, added], writes=[out], kind=a.kind)


def _mm(first: int, arity: int, *, out_kind: str = "") -> Callable[[Call], OpWork]:
    """Return the formula of a product of two matrices at `first` and `first` + 1; what lies before is added."""

    def formula(call: Call) -> OpWork:
        a, b = call.tensor(first, 2), call.tensor(first + 1, 2)
        if a.shape[1] != b.shape[0]:
            raise NoModelError
        out = call.result(arity, Tensor((a.shape[0], b.shape[1]), out_kind or a.kind))
        added = _added(call, first, beta=3)
        return _product(call, a, b, added=added, out=out, inner=a.shape[1])

    return formula


def _bmm(first: int, arity: int) -> Callable[[Call], OpWork]:
    def formula(call: Call) -> OpWork:
        a, b = call.tensor(first, 3), call.tensor(first + 1, 3)
        if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
            raise NoModelError
        out = call.result(arity, Tensor((a.shape[0], a.shape[1], b.shape[2]), a.kind))
        return _product(call, a, b, added=_added(call, first, beta=3), out=out, inner=a.shape[2])

    return formula


def _added(call: Call, first: int, *, beta: int) -> Tensor | None:
    """Return the tensor that a product is added to; it isn't read where its factor is 0."""
    return call.optional(0) if first and call.number(beta) != 0 else None


def _addbmm(call: Call) -> OpWork:
    a, b = call.tensor(1, 3), call.tensor(2, 3)
    out = call.result(5, Tensor((a.shape[1], b.shape[2]), a.kind))
    return _product(call, a, b, added=_added(call, 1, beta=3), out=out, inner=a.shape[0] * a.shape[2])


def _matrix_vector(first: int, arity: int) -> Callable[[Call], OpWork]:
    def formula(call: Call) -> OpWork:
        a, b = call.tensor(first, 2), call.tensor(first + 1, 1)
        out = call.result(arity, Tensor((a.shape[0],), a.kind))
        return _product(call, a, b, added=_added(call, first, beta=3), out=out, inner=a.shape[1])

    return formula


def _outer(first: int, arity: int) -> Callable[[Call], OpWork]:
    def formula(call: Call) -> OpWork:
        a, b = call.tensor(first, 1), call.tensor(first + 1, 1)
        out = call.result(arity, Tensor((a.numel, b.numel), a.kind))
        return _product(call, a, b, added=_added(call, first, beta=3), out=out, inner=1)

    return formula


def _dot(call: Call) -> OpWork:
    a, b = call.tensor(0, 1), call.tensor(1, 1)
    return _product(call, a, b, added=None, out=call.result(2, Tensor((), a.kind)), inner=a.numel)


def _matmul(call: Call) -> OpWork:
    a, b = call.tensor(0), call.tensor(1)
    if not a.shape or not b.shape:
        raise NoModelError
    rows = a.shape if len(a.shape) > 1 else (1, *a.shape)
    columns = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = broadcast([rows[:-2], columns[:-2]])
    if rows[-1] != columns[-2] or batch is None:
        raise NoModelError
    out = call.result(2, Tensor((*batch, rows[-2], columns[-1]), promoted([(a.kind, True), (b.kind, True)])))
    return _product(call, a, b, added=None, out=out, inner=rows[-1])


def _linear(call: Call) -> OpWork:
    x, weight = call.tensor(0), call.tensor(1, 1, 2)
    if not x.shape or x.shape[-1] != weight.shape[-1]:
        raise NoModelError
    out = call.result(99, Tensor((*x.shape[:-1], *weight.shape[:-1]), x.kind))
    return _product(call, x, weight, added=call.optional(2), out=out, inner=x.shape[-1])


def _scaled_mm(out_kind: int, arity: int) -> Callable[[Call], OpWork]:
    """Return the formula of a product of scaled matrices; its result has the type that argument `out_kind` says."""

    def formula(call: Call) -> OpWork:
        a, b = call.tensor(0, 2), call.tensor(1, 2)
        if a.shape[1] != b.shape[0]:
            raise NoModelError
        # Without the argument, and where it wasn't recorded: fp8 products are nearly always written in 16 bits.
        kind = call.kind(out_kind) or "bf16"
        out = call.result(arity, Tensor((a.shape[0], b.shape[1]), kind))
        return _product(call, a, b, added=None, out=out, inner=a.shape[1])

    return formula


def _int4_weight(call: Call) -> OpWork:
    """[m, k] x a weight of 4 bits a number, packed as [n / 8, ...] (`_weight_int4pack_mm`)."""
    x, weight = call.tensor(0, 2), call.tensor(1, 4)
    out = call.result(4, Tensor((x.shape[0], weight.shape[0] * 8), x.kind))
    return _product(call, x, weight, added=call.optional(3), out=out, inner=x.shape[1])


def _rnn(call: Call) -> OpWork:
    """Every weight matrix meets every row of every time step once; gates aren't counted."""
    x, weights = call.tensor(0, 3), call.tensors(1)
    steps = x.shape[0] * x.shape[1]
    flop_count = 2 * steps * sum(weight.numel for weight in weights if len(weight.shape) == 2)
    writes: list[Tensor] = list(call.outputs)
    return made(
        "recurrent network",
        flop_count,
        reads=[x, *weights],
        writes=writes or [Tensor(x.shape, x.kind)],
        kind=x.kind,
        is_exact=bool(writes),
    )


def stated_product(call: Call) -> OpWork:
    """Return the work of a product whose arguments' order isn't known, from shapes that fit.

    Three tensors [m, k], [k, n] (or turned) and [m, n] mean 2 m n k whichever of them is the result. Without a third
    one the first tensor and the first matrix that shares its last size are the operands.

    Raises:
        NoModelError: Nothing fits.
    """
    tensors = [tensor for tensor in call.flat() if len(tensor.shape) >= 2][:8]
    best = max(
        ((math.isqrt(a.numel * b.numel * c.numel), a, b, c) for a, b, c in combinations(tensors, 3) if _fit(a, b, c)),
        key=lambda found: found[0],
        default=None,
    )
    if best:
        _, *three = best
        narrow = min(three, key=lambda tensor: (tensor.size_bytes or 0) / max(tensor.numel, 1))
        return made("matmul by shapes", 2 * best[0] * packing(narrow), reads=three, writes=[], kind=narrow.kind)
    x = tensors[0] if tensors else None
    for weight in tensors[1:]:
        if x and len(weight.shape) == 2 and x.shape[-1] in weight.shape:
            inner = x.shape[-1]
            columns = weight.numel // max(inner, 1)
            out = call.result(99, Tensor((*x.shape[:-1], columns), x.kind if x.kind != "fp8" else "bf16"))
            flop_count = 2 * x.numel * columns * packing(x)
            return made("matmul by shapes", flop_count, reads=[x, weight], writes=[out], kind=x.kind)
    raise NoModelError


def _fit(a: Tensor, b: Tensor, c: Tensor) -> bool:
    """Tell whether three matrices (with equal batch sizes) can be two factors and their product."""
    if len({tensor.shape[:-2] for tensor in (a, b, c)}) > 1 or len(a.shape) > 3:
        return False
    sizes = [set(tensor.shape[-2:]) for tensor in (a, b, c)]
    every = [size for tensor in (a, b, c) for size in tensor.shape[-2:]]
    # Each of the three sizes is on two of the matrices: every number occurs an even number of times.
    return all(every.count(size) % 2 == 0 for size in every) and all(sizes[i] & sizes[i - 1] for i in range(3))


MODELS: dict[str, Callable[[Call], OpWork]] = {
    "aten::mm": _mm(0, 2),
    "aten::addmm": _mm(1, 5),
    "aten::_addmm_activation": _mm(1, 6),
    "aten::_int_mm": _mm(0, 2, out_kind="int32"),
    "aten::bmm": _bmm(0, 2),
    "aten::baddbmm": _bmm(1, 5),
    "aten::addbmm": _addbmm,
    "aten::mv": _matrix_vector(0, 2),
    "aten::addmv": _matrix_vector(1, 5),
    "aten::ger": _outer(0, 2),
    "aten::outer": _outer(0, 2),
    "aten::addr": _outer(1, 5),
    "aten::dot": _dot,
    "aten::vdot": _dot,
    "aten::matmul": _matmul,
    "aten::linear": _linear,
    "vllm::rocm_unquantized_gemm": _linear,
    "vllm::rocm_unquantized_gemm_impl": _linear,
    "aten::_scaled_mm": _scaled_mm(6, 8),
    "aten::_scaled_mm_v2": _scaled_mm(9, 12),
    "aten::_weight_int4pack_mm": _int4_weight,
    "aten::_cudnn_rnn": _rnn,
    "aten::miopen_rnn": _rnn,
}
MODELS |= {f"{name}_": MODELS[name] for name in ("aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::addmv")}
