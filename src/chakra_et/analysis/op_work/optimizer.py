"""Operators on lists of tensors: `_foreach_*`, fused optimizers, and what data parallelism does to its buckets."""

from __future__ import annotations

from collections.abc import Callable

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.elementwise import PER_ELEMENT, words
from chakra_et.analysis.op_work.tensor import Tensor
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS"]


def _foreach(name: str, per_element: int) -> Callable[[Call], OpWork]:
    """Return the formula of an elementwise function of lists; in place where its name ends so."""
    in_place = name.endswith("_")
    read_self = name not in ("copy_", "zero_")

    def formula(call: Call) -> OpWork:
        lists = [item for item in call.arguments if isinstance(item, tuple)]
        first = call.tensors(0)
        tensors = [tensor for items in lists for tensor in items if isinstance(tensor, Tensor)]
        reads = tensors if read_self else tensors[len(first) :]
        writes = list(first) if in_place else [Tensor(tensor.shape, tensor.kind) for tensor in first]
        count = sum(tensor.numel for tensor in first)
        return made("elementwise lists", per_element * count, reads=reads, writes=writes, kind=first[0].kind)

    return formula


def _foreach_norm(call: Call) -> OpWork:
    first = call.tensors(0)
    writes = [Tensor((), tensor.kind) for tensor in first]
    count = sum(tensor.numel for tensor in first)
    return made("reduction of lists", 2 * count, reads=first, writes=writes, kind=first[0].kind)


def _fused(per_element: int, written: tuple[int, ...], lists: int) -> Callable[[Call], OpWork]:
    """Return the formula of a fused optimizer step: its lists are read, some written back.

    Args:
        per_element: FLOP for each parameter.
        written: Positions of the lists that are written; lists that are empty are left out.
        lists: How many lists of tensors as large as the parameters come first.
    """

    def formula(call: Call) -> OpWork:
        parameters = call.tensors(0)
        groups = {
            index: [tensor for tensor in call.arguments[index] if isinstance(tensor, Tensor)]
            for index in range(min(lists, len(call.arguments)))
            if isinstance(call.arguments[index], tuple)
        }
        if len(groups) < 2:
            raise NoModelError
        count = sum(tensor.numel for tensor in parameters)
        reads = [tensor for group in groups.values() for tensor in group]
        writes = [tensor for index in written for tensor in groups.get(index, [])]
        kind = parameters[0].kind
        return made("fused optimizer", per_element * count, reads=reads, writes=writes, kind=kind)

    return formula


# Adam: two moments of 3 and 4 (a square more), corrections 2, root 1, epsilon 1, quotient 1, step 2; decay 2.
_ADAM = _fused(16, (0, 2, 3, 4), 5)
_NAMES = words("""abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg
    reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc add sub mul div pow maximum minimum clamp_min
    clamp_max addcmul addcdiv lerp zero copy""")

MODELS: dict[str, Callable[[Call], OpWork]] = {
    **{
        f"aten::_foreach_{name}{end}": _foreach(name + end, PER_ELEMENT.get(name, 1))
        for name in _NAMES
        for end in ("", "_")
    },
    "aten::_foreach_norm": _foreach_norm,
    "aten::_fused_adam_": _ADAM,
    "aten::_fused_adamw_": _ADAM,
    "aten::_fused_adagrad_": _fused(7, (0, 2), 3),
    "aten::_fused_sgd_": _fused(4, (0, 2), 3),
    "aten::_amp_foreach_non_finite_check_and_unscale_": _foreach("unscale_", 1),
}
