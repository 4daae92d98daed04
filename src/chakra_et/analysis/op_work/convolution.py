"""Convolutions.

Every weight meets every position of the output (of the input, if transposed) once: 2 * batch * positions * weights,
as PyTorch's flop counter has it. Biases aren't counted. What an implementation saves (Winograd, FFT) isn't taken off.

A backward call costs that once for the gradient of the input and once for that of the weight, with groups too
(PyTorch's counter takes the weight's gradient of a grouped convolution for that of a full one).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.tensor import Shape, Tensor
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of a forward convolution's arguments; None where it has no such argument.

    Attributes:
        stride: Position of the stride.
        padding: Position of the padding.
        dilation: Position of the dilation; None: 1.
        bias: Position of the bias.
        added: Position of a tensor that is added to the result.
        output_padding: Position of the padding of a transposed convolution's output.
        groups: Position of the number of groups, of a transposed convolution.
        transposed: True, or the position of the flag.
    """

    stride: int
    padding: int
    dilation: int | None = None
    bias: int | None = None
    added: int | None = None
    output_padding: int | None = None
    groups: int | None = None
    transposed: bool | int = False


def _flop_count(batch: int, positions: Shape, weight: Tensor) -> int:
    return 2 * batch * math.prod(positions) * weight.numel


def _forward(layout: Layout) -> Callable[[Call], OpWork]:
    def formula(call: Call) -> OpWork:
        x, weight = call.tensor(0), call.tensor(1)
        where = layout.transposed
        transposed = bool(call.flag(where)) if type(where) is int else bool(where)
        if len(x.shape) != len(weight.shape):  # a single image, without a batch
            x = Tensor((1, *x.shape), x.kind)
        if len(x.shape) != len(weight.shape) or len(x.shape) < 3:
            raise NoModelError
        out = call.outputs[0] if call.outputs else _output(call, layout, x, weight, transposed)
        positions = (x if transposed else out).shape[2:]
        extra = [call.optional(index) for index in (layout.bias, layout.added) if index is not None]
        flop_count = _flop_count(x.shape[0], positions, weight)
        return made("convolution", flop_count, reads=[x, weight, *extra], writes=[out], kind=x.kind)

    return formula


def _output(call: Call, layout: Layout, x: Tensor, weight: Tensor, transposed: bool) -> Tensor:
    """Return the result's shape: the formula in the documentation of `torch.nn.Conv2d` and `ConvTranspose2d`."""
    count = len(x.shape) - 2
    stride = _per_axis(call.integers(layout.stride), count)
    padding = _per_axis(call.integers(layout.padding), count)
    dilation = _per_axis((1,) if layout.dilation is None else call.integers(layout.dilation), count)
    reach = [far * (size - 1) for far, size in zip(dilation, weight.shape[2:], strict=True)]
    if transposed:
        extra = _per_axis((0,) if layout.output_padding is None else call.integers(layout.output_padding), count)
        sizes = [
            (x.shape[axis + 2] - 1) * stride[axis] - 2 * padding[axis] + reach[axis] + extra[axis] + 1
            for axis in range(count)
        ]
        # Such a weight is [in, out / groups, ...].
        channels = weight.shape[1] * _per_axis(None if layout.groups is None else call.integers(layout.groups), 1)[0]
    else:
        sizes = [(x.shape[axis + 2] + 2 * padding[axis] - reach[axis] - 1) // stride[axis] + 1 for axis in range(count)]
        channels = weight.shape[0]
    if min(sizes) < 1:
        raise NoModelError
    return Tensor((x.shape[0], channels, *sizes), x.kind)


def _per_axis(values: Shape | None, count: int) -> Shape:
    if values is None or len(values) not in (1, count) or min(values) < 0:
        raise NoModelError
    return values * count if len(values) == 1 else values


def _backward(gradient: int, x: int, *, transposed: int | None, mask: int | None) -> Callable[[Call], OpWork]:
    """Return the formula of a backward convolution from the positions of its arguments.

    Without a recorded mask both gradients are taken to be asked for; only a network's first convolution asks for one.
    """

    def formula(call: Call) -> OpWork:
        grad, data, weight = call.tensor(gradient), call.tensor(x), call.tensor(2)
        if not len(grad.shape) == len(data.shape) == len(weight.shape) >= 3:
            raise NoModelError
        is_transposed = transposed is not None and bool(call.flag(transposed))
        wanted = call.value(mask) if mask is not None else None
        known = [bool(item) for item in wanted] if isinstance(wanted, list) and len(wanted) == 3 else None
        is_exact = known is not None
        to_input, to_weight, to_bias = known or (True, True, False)
        positions = (data if is_transposed else grad).shape[2:]
        flop_count = _flop_count(data.shape[0], positions, weight) * (to_input + to_weight)
        bias = Tensor((grad.shape[1],), weight.kind)
        return made(
            "convolution backward" if is_exact else "convolution backward (both gradients assumed)",
            flop_count,
            reads=[grad, data if to_weight else None, weight if to_input else None],
            # Gradients have the shapes of what they belong to, but not its identity.
            writes=[
                Tensor(data.shape, data.kind) if to_input else None,
                Tensor(weight.shape, weight.kind) if to_weight else None,
                bias if to_bias else None,
            ],
            kind=data.kind,
            is_exact=is_exact,
        )

    return formula


_PLAIN = Layout(bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8)
_LIBRARY = Layout(padding=2, stride=3, dilation=4)
_LIBRARY_BIAS = Layout(bias=2, padding=3, stride=4, dilation=5)
_NAMED = Layout(bias=2, stride=3, padding=4, dilation=5)
_TRANSPOSED = Layout(bias=2, stride=3, padding=4, output_padding=5, groups=6, dilation=7, transposed=True)
_SLOW = Layout(bias=3, stride=4, padding=5)
_SLOW_DILATED = Layout(bias=3, stride=4, padding=5, dilation=6)
_ADDED = Layout(added=2, bias=4, stride=5, padding=6, dilation=7)

MODELS: dict[str, Callable[[Call], OpWork]] = {
    "aten::convolution": _forward(_PLAIN),
    "aten::_convolution": _forward(_PLAIN),
    "aten::convolution_overrideable": _forward(_PLAIN),
    "aten::cudnn_convolution": _forward(_LIBRARY),
    "aten::cudnn_convolution_relu": _forward(_NAMED),
    "aten::cudnn_convolution_add_relu": _forward(_ADDED),
    "aten::cudnn_convolution_transpose": _forward(
        Layout(padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True)
    ),
    "aten::miopen_convolution": _forward(_LIBRARY_BIAS),
    "aten::miopen_depthwise_convolution": _forward(_LIBRARY_BIAS),
    "aten::miopen_convolution_relu": _forward(_NAMED),
    "aten::miopen_convolution_add_relu": _forward(_ADDED),
    "aten::miopen_convolution_transpose": _forward(
        Layout(bias=2, padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True)
    ),
    "aten::mkldnn_convolution": _forward(_LIBRARY_BIAS),
    "aten::_slow_conv2d_forward": _forward(_SLOW),
    "aten::slow_conv3d_forward": _forward(_SLOW),
    "aten::_conv_depthwise2d": _forward(_SLOW_DILATED),
    "aten::conv_depthwise3d": _forward(_SLOW_DILATED),
    "aten::slow_conv_dilated2d": _forward(_SLOW_DILATED),
    "aten::slow_conv_dilated3d": _forward(_SLOW_DILATED),
    "aten::convolution_backward": _backward(0, 1, transposed=7, mask=10),
    "aten::convolution_backward_overrideable": _backward(0, 1, transposed=6, mask=9),
    "aten::cudnn_convolution_backward": _backward(1, 0, transposed=None, mask=10),
    "aten::miopen_convolution_backward": _backward(1, 0, transposed=None, mask=9),
    "aten::_slow_conv2d_backward": _backward(0, 1, transposed=None, mask=6),
}
MODELS |= {f"aten::conv{axes}d": _forward(_NAMED) for axes in (1, 2, 3)}
MODELS |= {f"aten::conv_transpose{axes}d": _forward(_TRANSPOSED) for axes in (1, 2, 3)}
