"""Elementwise operators, fills and copies.

A function of an element is 1 FLOP whatever it costs to compute, an exponential as well as an addition; operators that
join several (`addcmul`, `lerp`) count each. Copies, fills, selections, conversions and views are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.dtypes import promoted
from chakra_et.analysis.op_work.tensor import Tensor, broadcast
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS", "PER_ELEMENT", "joined", "words"]

_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")


def joined(tensors: list[Tensor]) -> Tensor:
    """Return the result of an elementwise function of tensors: shapes broadcast, types promoted.

    Raises:
        NoModelError: There is no tensor, or their shapes don't go together.
    """
    shape = broadcast([tensor.shape for tensor in tensors])
    if not tensors or shape is None:
        raise NoModelError
    return Tensor(shape, promoted([(tensor.kind, bool(tensor.shape)) for tensor in tensors]))


def _elementwise(per_element: int, arity: int, *, result: str = "same") -> Callable[[Call], OpWork]:
    """Return the formula of a function of corresponding elements.

    Args:
        per_element: FLOP for each element of the result.
        arity: Arguments in the schema; an `out=` tensor comes after them.
        result: ``same``: the promoted type of the operands; ``bool``; ``float``: that, and fp32 for integers.
    """

    def formula(call: Call) -> OpWork:
        operands = [item for index in range(arity) if (item := call.optional(index))]
        value = joined(operands)
        kind = value.kind
        if result == "bool":
            kind = "bool"
        elif result == "float" and kind in _INTEGERS:
            kind = "fp32"
        in_place = call.name.endswith("_") and not call.name.endswith("__")
        out = call.tensor(0) if in_place else call.result(arity, Tensor(value.shape, kind))
        flop_count = per_element * math.prod(value.shape)
        return made("elementwise", flop_count, reads=operands, writes=[out], kind=value.kind)

    return formula


def _fill(call: Call) -> OpWork:
    """The first tensor is written, and nothing read: fills and random numbers in place."""
    return made("fill", 0, reads=[], writes=[call.tensor(0)])


def _created(call: Call) -> OpWork:
    """A new tensor of a recorded shape (`full`, `arange` with `out=`) or like the first argument."""
    outs = call.outputs[:1] or call.flat()[-1:]
    if not outs:
        raise NoModelError
    return made("fill", 0, reads=[], writes=outs)


def _copy(call: Call) -> OpWork:
    target, source = call.tensor(0), call.tensor(1)
    return made("copy", 0, reads=[source], writes=[target])


def _clone(dtype: int | None) -> Callable[[Call], OpWork]:
    """Return the formula of a copy into a new tensor, whose type may be an argument."""

    def formula(call: Call) -> OpWork:
        source = call.tensor(0)
        kind = (call.kind(dtype) if dtype is not None else None) or source.kind
        return made("copy", 0, reads=[source], writes=[call.result(99, Tensor(source.shape, kind))])

    return formula


def _cat(arity: int) -> Callable[[Call], OpWork]:
    """Return the formula of tensors of a list that are read, and written side by side."""

    def formula(call: Call) -> OpWork:
        items = call.tensors(0)
        kind = promoted([(item.kind, True) for item in items])
        inferred = Tensor((sum(item.numel for item in items),), kind)
        return made("copy", 0, reads=items, writes=[call.result(arity, inferred)])

    return formula


def _repeated(call: Call) -> OpWork:
    """A tensor read once, its result (recorded, or as an `out=`) written: padding, repeating, flipping."""
    source = call.tensor(0)
    sizes = call.integers(1)
    if call.outputs:
        out = call.outputs[0]
    elif call.name in ("aten::flip", "aten::roll", "aten::rot90"):
        out = Tensor(source.shape, source.kind)
    elif sizes is None or min(sizes, default=0) < 0:
        raise NoModelError
    elif "pad" in call.name:
        padded = list(source.shape)
        for index in range(0, len(sizes) - 1, 2):
            padded[-1 - index // 2] += sizes[index] + sizes[index + 1]
        out = Tensor(tuple(padded), source.kind)
    else:
        out = Tensor((source.numel * math.prod(sizes),), source.kind)
    return made("copy", 0, reads=[source], writes=[out])


def _dropout(call: Call) -> OpWork:
    x = call.tensor(0)
    writes = [Tensor(x.shape, x.kind), Tensor(x.shape, "bool")]
    return made("dropout", 2 * x.numel, reads=[x], writes=list(call.outputs) or writes, kind=x.kind)


def _two_halves(per_element: int) -> Callable[[Call], OpWork]:
    """Return the formula of a gate: the last axis is read in halves, and one of them written."""

    def formula(call: Call) -> OpWork:
        x = call.tensor(0)
        out = call.result(2, Tensor((x.numel // 2,), x.kind))
        return made("elementwise", per_element * out.numel, reads=[x], writes=[out], kind=x.kind)

    return formula


def words(text: str) -> list[str]:
    """Split a table of names that is written as a text."""
    return text.split()


_UNARY = words("""abs acos acosh asin asinh atan atanh celu cos cosh digamma elu erf erfc erfinv exp exp2 expm1 frac
    gelu hardsigmoid hardswish hardtanh leaky_relu lgamma log log10 log1p log2 log_sigmoid_forward logit mish neg
    negative reciprocal relu relu6 rsqrt selu sigmoid sign sgn silu sin sinh softplus sqrt square tan tanh threshold
    bitwise_not ceil floor round trunc nan_to_num i0 sinc softshrink hardshrink""")
_FLOATING = words("""acos asin atan cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 rsqrt sigmoid sin sinh sqrt
    tan tanh div true_divide reciprocal atan2""")
_BINARY = words("""add sub rsub mul div true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2
    bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift xlogy hypot copysign subtract multiply
    divide clamp_min clamp_max prelu logaddexp float_power""")
_COMPARISONS = words("eq ne lt le gt ge isclose logical_and logical_or logical_xor")
_TESTS = words("isnan isinf isfinite isposinf isneginf logical_not signbit")
# Name: FLOP an element, arguments.
_OTHERS: dict[str, tuple[int, int]] = {
    "clamp": (2, 3), "clip": (2, 3), "addcmul": (3, 4), "addcdiv": (3, 4), "lerp": (3, 3), "where": (0, 3),
    "masked_fill": (0, 3), "tril": (0, 2), "triu": (0, 2), "native_dropout_backward": (2, 3), "_masked_scale": (2, 3),
    "gelu_backward": (1, 3), "silu_backward": (1, 2), "sigmoid_backward": (3, 2), "tanh_backward": (3, 2),
    "threshold_backward": (1, 3), "elu_backward": (1, 6), "leaky_relu_backward": (1, 4), "hardtanh_backward": (1, 4),
    "hardswish_backward": (1, 2), "hardsigmoid_backward": (1, 2), "softplus_backward": (1, 4), "mish_backward": (1, 2),
    "log_sigmoid_backward": (1, 3), "glu_backward": (3, 3), "logit_backward": (1, 3), "_prelu_kernel": (1, 2),
    "_fused_dropout": (2, 3), "polar": (2, 2), "complex": (0, 2), "view_as_complex_copy": (0, 1),
}  # fmt: skip
_FILLS = words("""fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ log_normal_ geometric_ cauchy_""")
_CREATED = words("""full ones zeros full_like ones_like zeros_like arange linspace eye rand randn randint randperm
    rand_like randn_like scalar_tensor bernoulli""")

# FLOP an element of a function, by its bare name; optimizers' list forms count the same.
PER_ELEMENT: dict[str, int] = (
    dict.fromkeys((*_UNARY, *_BINARY, *_COMPARISONS, *_TESTS), 1)
    | {name: count for name, (count, _) in _OTHERS.items()}
    | {"zero": 0, "copy": 0, "clamp_min": 1, "clamp_max": 1}
)


def _table() -> dict[str, Callable[[Call], OpWork]]:
    """Return the formulas by operator, in-place forms included."""
    forms: dict[str, Callable[[Call], OpWork]] = {}
    # Values after the operands (a slope, a rounding mode, the factor of a sum) come before an `out=` too.
    arities = {"add": 3, "sub": 3, "rsub": 3, "gelu": 2, "clamp_min": 2, "round": 1, "leaky_relu": 2, "elu": 4}
    for names, arity in ((_UNARY, 1), (_BINARY, 2)):
        for name in names:
            kind = "float" if name in _FLOATING else "same"
            forms[name] = _elementwise(1, arities.get(name, arity), result=kind)
    for names, arity in ((_COMPARISONS, 2), (_TESTS, 1)):
        forms |= {name: _elementwise(1, arity, result="bool") for name in names}
    forms |= {name: _elementwise(count, arity) for name, (count, arity) in _OTHERS.items()}
    table = {f"aten::{name}{end}": formula for name, formula in forms.items() for end in ("", "_")}
    table |= {f"aten::__{name}__": forms[f"bitwise_{name}"] for name in ("and", "or", "xor")}
    table |= {f"aten::__i{name}__": forms[f"bitwise_{name}"] for name in ("and", "or", "xor")}
    table |= {f"aten::{name}": _fill for name in _FILLS}
    table |= {f"aten::{name}": _created for name in _CREATED}
    return table


MODELS: dict[str, Callable[[Call], OpWork]] = _table() | {
    "aten::copy_": _copy,
    "aten::_copy_from": _copy,
    "aten::clone": _clone(None),
    "aten::contiguous": _clone(None),
    "aten::_to_copy": _clone(1),
    "aten::to": _clone(1),
    "aten::cat": _cat(2),
    "aten::concat": _cat(2),
    "aten::stack": _cat(2),
    "aten::_cat": _cat(2),
    "aten::flatten_dense_tensors": _cat(1),
    "aten::_chunk_cat": _cat(3),
    "aten::split_with_sizes_copy": _clone(None),
    "aten::constant_pad_nd": _repeated,
    "aten::reflection_pad2d": _repeated,
    "aten::replication_pad2d": _repeated,
    "aten::repeat": _repeated,
    "aten::flip": _repeated,
    "aten::roll": _repeated,
    "aten::native_dropout": _dropout,
    "aten::glu": _two_halves(2),
}
