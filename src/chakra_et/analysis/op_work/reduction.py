"""Reductions, scans, sorting, losses, pooling and resampling.

A reduction is 1 FLOP for each element that goes in (an addition, a comparison); what it does to an element before
(squares of a norm or variance) counts 1 each. Sorting and selecting are taken as one pass over the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.elementwise import joined, words
from chakra_et.analysis.op_work.tensor import Shape, Tensor
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS"]


def _kept(x: Tensor, axes: Shape | None) -> int:
    """Return how many numbers are left when axes are reduced (all of them if None or empty)."""
    if not axes:
        return 1
    gone = {axis % len(x.shape) for axis in axes} if x.shape else set()
    return math.prod(size for axis, size in enumerate(x.shape) if axis not in gone)


def _reduction(
    per_element: int, axes: int, arity: int, *, outputs: tuple[str, ...] = ("",)
) -> Callable[[Call], OpWork]:
    """Return the formula of a reduction.

    Where the axes weren't recorded, the result is taken to be one number: fewer bytes can't be written.

    Args:
        per_element: FLOP for each element of the input.
        axes: Position of the axes.
        arity: Arguments in the schema; an `out=` tensor comes after them.
        outputs: Element types of the results; empty: that of the input.
    """

    def formula(call: Call) -> OpWork:
        x = call.tensor(0)
        given = call.integers(axes)
        left = _kept(x, given)
        inferred = [Tensor((left,), kind or x.kind) for kind in outputs]
        out = call.optional(arity)
        writes: list[Tensor] = [out] if out else list(call.outputs) or inferred
        return made("reduction", per_element * x.numel, reads=[x], writes=writes, kind=x.kind)

    return formula


def _extremum(call: Call) -> OpWork:
    """`max` and `min`: of two tensors, of all elements, or along an axis with the places."""
    if call.optional(1):
        operands = [call.tensor(0), call.tensor(1)]
        out = call.result(2, joined(operands))
        return made("elementwise", out.numel, reads=operands, writes=[out], kind=out.kind)
    along = len(call.arguments) > 1
    return _reduction(1, 1, 99, outputs=("", "int64") if along else ("",))(call)


def _scan(call: Call) -> OpWork:
    x = call.tensor(0)
    out = call.result(99, Tensor(x.shape, call.kind(2) or x.kind))
    return made("scan", x.numel, reads=[x], writes=[out], kind=x.kind)


def _sort(count: int | None) -> Callable[[Call], OpWork]:
    """Return the formula of sorting, or of selecting as many as argument `count` says; places are written too."""

    def formula(call: Call) -> OpWork:
        x = call.tensor(0)
        writes: list[Tensor] = list(call.outputs)
        if not writes:
            some = call.number(count) if count is not None else None
            if count is not None and some is None:
                raise NoModelError
            axis = call.number(2) if count is not None else -1
            size = x.shape[int(axis if axis is not None else -1)] if x.shape else 1
            left = x.numel if some is None else x.numel // max(size, 1) * int(some)
            writes = [Tensor((left,), x.kind), Tensor((left,), "int64")]
        return made("sort", x.numel, reads=[x], writes=writes, kind=x.kind)

    return formula


def _loss(per_element: int, reduction: int) -> Callable[[Call], OpWork]:
    """Return the formula of a loss of corresponding elements, by the position of its reduction (0: none)."""

    def formula(call: Call) -> OpWork:
        operands = [item for index in range(reduction) if (item := call.optional(index))]
        value = joined(operands)
        out = call.result(99, value if call.number(reduction) == 0 else Tensor((), value.kind))
        return made("loss", per_element * value.numel, reads=operands, writes=[out], kind=value.kind)

    return formula


def _loss_backward(per_element: int, operands: int) -> Callable[[Call], OpWork]:
    def formula(call: Call) -> OpWork:
        tensors = [call.tensor(index) for index in range(operands)]
        value = joined(tensors)
        return made("loss backward", per_element * value.numel, reads=tensors, writes=[value], kind=value.kind)

    return formula


def _nll(call: Call) -> OpWork:
    """One number of each row is read."""
    x, target = call.tensor(0), call.tensor(1)
    picked = Tensor((target.numel,), x.kind)
    out = picked if call.number(3) == 0 else Tensor((), x.kind)
    return made("loss", target.numel, reads=[picked, target], writes=[out], kind=x.kind)


def _nll_backward(call: Call) -> OpWork:
    grad, x, target = call.tensor(0), call.tensor(1), call.tensor(2)
    return made("loss backward", target.numel, reads=[grad, target], writes=[Tensor(x.shape, x.kind)], kind=x.kind)


def _pool(*, with_indices: bool) -> Callable[[Call], OpWork]:
    """Return the formula of pooling with windows: 1 FLOP for each element of each window."""

    def formula(call: Call) -> OpWork:
        x, window = call.tensor(0), call.integers(1)
        if window is None or len(x.shape) < 3:
            raise NoModelError
        stride = call.integers(2) or window
        padding = call.integers(3) or (0,)
        dilation = (call.integers(4) if with_indices else None) or (1,)
        rounds_up = call.flag(5 if with_indices else 4)
        axes = 3 if "3d" in call.name else 2
        shape = list(x.shape)
        for axis in range(-axes, 0):
            size, step, edge, far = (v[axis] if len(v) > 1 else v[0] for v in (window, stride, padding, dilation))
            free = x.shape[axis] + 2 * edge - far * (size - 1) - 1
            shape[axis] = (-(-free // step) if rounds_up else free // step) + 1
        out = call.result(99, Tensor(tuple(shape), x.kind))
        places = math.prod(window) if len(window) > 1 else window[0] ** axes
        writes = [out, Tensor(out.shape, "int64") if with_indices else None]
        return made("pooling", out.numel * places, reads=[x], writes=writes, kind=x.kind)

    return formula


def _adaptive_pool(call: Call) -> OpWork:
    x, sizes = call.tensor(0), call.integers(1)
    if sizes is None and not call.outputs:
        raise NoModelError
    out = call.result(99, Tensor((*x.shape[: -len(sizes or ())], *(sizes or ())), x.kind))
    return made("pooling", max(x.numel, out.numel), reads=[x], writes=[out], kind=x.kind)


def _spread(indices: int | None) -> Callable[[Call], OpWork]:
    """Return the formula of pooling's backward: a gradient is read (and places), one of the input's size written."""

    def formula(call: Call) -> OpWork:
        grad, x = call.tensor(0), call.tensor(1)
        places = None if indices is None else call.optional(indices)
        return made("pooling backward", max(grad.numel, 0 if places else x.numel), reads=[grad, places],
                    writes=[Tensor(x.shape, x.kind)], kind=x.kind)  # fmt: skip

    return formula


def _upsample(taps: int) -> Callable[[Call], OpWork]:
    """Return the formula of resampling: a multiply-add for each of the neighbors that an output is made from."""

    def formula(call: Call) -> OpWork:
        x, sizes = call.tensor(0), call.integers(1)
        if not call.outputs and (sizes is None or len(sizes) + 2 != len(x.shape)):
            raise NoModelError
        out = call.result(99, Tensor((*x.shape[:2], *(sizes or ())), x.kind))
        return made("resampling", out.numel * (2 * taps if taps > 1 else 0), reads=[x], writes=[out], kind=x.kind)

    return formula


def _upsample_backward(taps: int) -> Callable[[Call], OpWork]:
    def formula(call: Call) -> OpWork:
        grad, sizes = call.tensor(0), call.integers(2)
        if not call.outputs and sizes is None:
            raise NoModelError
        out = call.result(99, Tensor(sizes or (), grad.kind))
        return made("resampling backward", grad.numel * 2 * taps, reads=[grad], writes=[out], kind=grad.kind)

    return formula


_TAPS = {"nearest1d": 1, "nearest2d": 1, "nearest3d": 1, "_nearest_exact2d": 1, "linear1d": 2, "bilinear2d": 4,
         "bicubic2d": 16, "trilinear3d": 8}  # fmt: skip
_SIMPLE = words("sum nansum mean prod logsumexp amax amin nanmean")

MODELS: dict[str, Callable[[Call], OpWork]] = {
    **{f"aten::{name}": _reduction(1, 1, 4) for name in _SIMPLE},
    "aten::logsumexp": _reduction(3, 1, 3),
    "aten::all": _reduction(1, 1, 3, outputs=("bool",)),
    "aten::any": _reduction(1, 1, 3, outputs=("bool",)),
    "aten::argmax": _reduction(1, 1, 3, outputs=("int64",)),
    "aten::argmin": _reduction(1, 1, 3, outputs=("int64",)),
    "aten::count_nonzero": _reduction(1, 1, 2, outputs=("int64",)),
    "aten::norm": _reduction(2, 2, 5),
    "aten::linalg_vector_norm": _reduction(2, 2, 5),
    "aten::var": _reduction(4, 1, 4),
    "aten::std": _reduction(4, 1, 4),
    "aten::var_mean": _reduction(4, 1, 4, outputs=("", "")),
    "aten::std_mean": _reduction(4, 1, 4, outputs=("", "")),
    "aten::max": _extremum,
    "aten::min": _extremum,
    "aten::nonzero": _reduction(1, 1, 1, outputs=("int64",)),
    "aten::bincount": _reduction(1, 99, 99, outputs=("int64",)),
    "aten::histc": _reduction(1, 99, 99),
    **{f"aten::{name}{end}": _scan for name in ("cumsum", "cumprod", "logcumsumexp") for end in ("", "_")},
    "aten::_cumsum": _scan,
    "aten::sort": _sort(None),
    "aten::argsort": _sort(None),
    "aten::topk": _sort(1),
    "aten::mse_loss": _loss(3, 2),
    "aten::l1_loss": _loss(3, 2),
    "aten::smooth_l1_loss": _loss(4, 2),
    "aten::huber_loss": _loss(4, 2),
    "aten::kl_div": _loss(4, 2),
    "aten::binary_cross_entropy": _loss(7, 3),
    "aten::binary_cross_entropy_with_logits": _loss(7, 4),
    "aten::mse_loss_backward": _loss_backward(3, 3),
    "aten::smooth_l1_loss_backward": _loss_backward(4, 3),
    "aten::huber_loss_backward": _loss_backward(4, 3),
    "aten::binary_cross_entropy_backward": _loss_backward(5, 3),
    "aten::nll_loss_forward": _nll,
    "aten::nll_loss2d_forward": _nll,
    "aten::nll_loss_backward": _nll_backward,
    "aten::nll_loss2d_backward": _nll_backward,
    "aten::max_pool2d_with_indices": _pool(with_indices=True),
    "aten::max_pool3d_with_indices": _pool(with_indices=True),
    "aten::avg_pool2d": _pool(with_indices=False),
    "aten::avg_pool3d": _pool(with_indices=False),
    "aten::adaptive_avg_pool2d": _adaptive_pool,
    "aten::_adaptive_avg_pool2d": _adaptive_pool,
    "aten::max_pool2d_with_indices_backward": _spread(7),
    "aten::max_pool3d_with_indices_backward": _spread(7),
    "aten::avg_pool2d_backward": _spread(None),
    "aten::avg_pool3d_backward": _spread(None),
    "aten::_adaptive_avg_pool2d_backward": _spread(None),
    **{f"aten::upsample_{name}" if name[0] != "_" else f"aten::_upsample{name}": _upsample(taps)
       for name, taps in _TAPS.items()},
    **{f"aten::upsample_{name}_backward": _upsample_backward(taps) for name, taps in _TAPS.items() if name[0] != "_"},
}  # fmt: skip
