"""Normalizations and softmax.

FLOP an element are what the textbook formula takes, each addition, multiplication and function 1:

* layer, batch and group norm: mean 1, difference 1, square 1, sum 1, scaling 1; weight 1 and bias 1 where they are;
  batch norm that isn't training: difference 1, scaling 1, weight 1, bias 1;
* RMS norm: square 1, sum 1, scaling 1; weight 1;
* their backward: normalizing again 2, two sums 3, gradient 4; with a weight 1 more and 3 for the gradients of weight
  and bias; of RMS norm: normalizing again 1, a sum 2, gradient 3; with a weight 1 more and 2;
* softmax and log-softmax: maximum 1, difference 1, exponential 1, sum 1, quotient (difference of the logarithm) 1;
* their backward: product (exponential) 1, sum 1, difference 1, product 1.

Statistics, a few numbers a group, are left out of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.tensor import Tensor
from chakra_et.analysis.op_work.work import OpWork, made

__all__ = ["MODELS"]


def _like(tensor: Tensor) -> Tensor:
    """Return a new tensor of the same shape and type, which isn't the same one."""
    return Tensor(tensor.shape, tensor.kind)


def _forward(model: str, weight: int, bias: int | None, *, base: int = 5, x: int = 0) -> Callable[[Call], OpWork]:
    """Return the formula of a normalization that reads its input and writes as much.

    Args:
        model: Name of the formula.
        weight: Position of the weight.
        bias: Position of the bias; None if there is never one.
        base: FLOP an element without weight and bias.
        x: Position of the input.
    """

    def formula(call: Call) -> OpWork:
        data = call.tensor(x)
        affine = [call.optional(index) for index in (weight, bias) if index is not None]
        per_element = base + sum(tensor is not None for tensor in affine)
        out = call.outputs[0] if call.outputs else _like(data)
        return made(model, per_element * data.numel, reads=[data, *affine], writes=[out], kind=data.kind)

    return formula


def _backward(
    model: str, grad: int, x: int, weight: int, *, base: int = 9, with_weight: int = 4
) -> Callable[[Call], OpWork]:
    """Return the formula of a normalization's backward call from the positions of its arguments."""

    def formula(call: Call) -> OpWork:
        gradient, data, scale = call.tensor(grad), call.tensor(x), call.optional(weight)
        per_element = base + (with_weight if scale else 0)
        writes = [_like(data), _like(scale) if scale else None, _like(scale) if scale and with_weight > 3 else None]
        reads = [gradient, data, scale]
        return made(f"{model} backward", per_element * data.numel, reads=reads, writes=writes, kind=data.kind)

    return formula


def _batch_norm(training: int | None) -> Callable[[Call], OpWork]:
    """Return the formula of batch normalization, by the position of its flag; None: it is always training."""
    trained, fixed = _forward("batch norm", 1, 2), _forward("batch norm", 1, 2, base=2)

    def formula(call: Call) -> OpWork:
        return fixed(call) if training is not None and call.flag(training) is False else trained(call)

    return formula


def _batch_norm_statistics(call: Call) -> OpWork:
    x = call.tensor(0)
    return made("batch norm statistics", 4 * x.numel, reads=[x], writes=[], kind=x.kind)


def _batch_norm_sums(call: Call) -> OpWork:
    grad, x = call.tensor(0), call.tensor(1)
    return made("batch norm backward sums", 4 * x.numel, reads=[grad, x], writes=[], kind=x.kind)


def _softmax(call: Call) -> OpWork:
    x = call.tensor(0)
    kind = "fp32" if call.flag(2) and x.kind in ("fp16", "bf16") else x.kind
    out = call.result(99, Tensor(x.shape, call.kind(3) or kind))
    return made("softmax", 5 * x.numel, reads=[x], writes=[out], kind=x.kind)


def _softmax_backward(call: Call) -> OpWork:
    grad, out = call.tensor(0), call.tensor(1)
    written = call.result(4, Tensor(out.shape, call.kind(3) or out.kind))
    return made("softmax backward", 4 * out.numel, reads=[grad, out], writes=[written], kind=out.kind)


def _saved(model: str, per_element: int) -> Callable[[Call], OpWork]:
    """Return the formula of a backward call that is given the gradient alone, and reads what forward kept of it."""

    def formula(call: Call) -> OpWork:
        grad = call.tensor(0)
        reads = [grad, _like(grad)]
        return made(model, per_element * grad.numel, reads=reads, writes=[_like(grad)], kind=grad.kind)

    return formula


MODELS: dict[str, Callable[[Call], OpWork]] = {
    "aten::layer_norm": _forward("layer norm", 2, 3),
    "aten::native_layer_norm": _forward("layer norm", 2, 3),
    "aten::native_layer_norm_backward": _backward("layer norm", 0, 1, 5),
    "aten::group_norm": _forward("group norm", 2, 3),
    "aten::native_group_norm": _forward("group norm", 1, 2),
    "aten::native_group_norm_backward": _backward("group norm", 0, 1, 4),
    "aten::instance_norm": _forward("instance norm", 1, 2),
    "aten::rms_norm": _forward("RMS norm", 2, None, base=3),
    "aten::_fused_rms_norm": _forward("RMS norm", 2, None, base=3),
    "aten::_fused_rms_norm_backward": _backward("RMS norm", 0, 1, 4, base=6, with_weight=3),
    "aten::batch_norm": _batch_norm(5),
    "aten::_batch_norm_impl_index": _batch_norm(5),
    "aten::native_batch_norm": _batch_norm(5),
    "aten::_native_batch_norm_legit": _batch_norm(5),
    "aten::_native_batch_norm_legit_no_training": _forward("batch norm", 1, 2, base=2),
    "aten::_batch_norm_with_update": _batch_norm(None),
    "aten::_batch_norm_no_update": _forward("batch norm", 1, 2, base=2),
    "aten::cudnn_batch_norm": _batch_norm(5),
    "aten::miopen_batch_norm": _batch_norm(5),
    "aten::native_batch_norm_backward": _backward("batch norm", 0, 1, 2),
    "aten::batch_norm_backward": _backward("batch norm", 0, 1, 2),
    "aten::cudnn_batch_norm_backward": _backward("batch norm", 1, 0, 2),
    "aten::miopen_batch_norm_backward": _backward("batch norm", 1, 0, 2),
    "aten::batch_norm_stats": _batch_norm_statistics,
    "aten::batch_norm_elemt": _forward("batch norm", 1, 2, base=2),
    "aten::batch_norm_backward_reduce": _batch_norm_sums,
    "aten::batch_norm_backward_elemt": _backward("batch norm", 0, 1, 4, base=5, with_weight=1),
    "aten::_softmax": _softmax,
    "aten::_log_softmax": _softmax,
    "aten::softmax": _softmax,
    "aten::log_softmax": _softmax,
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::_log_softmax_backward_data": _softmax_backward,
    # Fused kernels of Apex and Megatron-LM, seen as functions of Python's autograd with their tensors.
    "FusedLayerNormAffineFunction": _forward("layer norm", 1, 2),
    "FusedLayerNormAffineFunctionBackward": _saved("layer norm backward", 13),
    "FusedRMSNormAffineFunction": _forward("RMS norm", 1, None, base=3),
    "FusedRMSNormAffineFunctionBackward": _saved("RMS norm backward", 9),
    "ScaledUpperTriangMaskedSoftmax": _forward("softmax", 99, None, base=6),
    "ScaledUpperTriangMaskedSoftmaxBackward": _saved("softmax backward", 5),
    "ScaledMaskedSoftmax": _forward("softmax", 99, None, base=6),
    "ScaledMaskedSoftmaxBackward": _saved("softmax backward", 5),
    "ScaledSoftmax": _forward("softmax", 99, None, base=6),
    "ScaledSoftmaxBackward": _saved("softmax backward", 5),
}
