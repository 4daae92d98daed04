"""Operators and their formulas, in one table."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from chakra_et.analysis.op_work import (
    attention,
    convolution,
    elementwise,
    embedding,
    grouped,
    matmul,
    normalization,
    optimizer,
    reduction,
    streamed,
)
from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.work import OpWork

__all__ = ["MODELS", "formula_of"]

# Later families win where two know an operator (`aten::max` is a reduction too).
MODELS: dict[str, Callable[[Call], OpWork]] = {
    **elementwise.MODELS,
    **reduction.MODELS,
    **optimizer.MODELS,
    **streamed.MODELS,
    **embedding.MODELS,
    **normalization.MODELS,
    **convolution.MODELS,
    **attention.MODELS,
    **grouped.MODELS,
    **matmul.MODELS,
}

# Products of libraries outside PyTorch, whose names say so (`_C::cutlass_scaled_mm`, `aiter::gemm_a8w8`,
# `sgl_kernel::fp8_scaled_mm`, `deep_gemm::fp8_gemm_nt`), and Transformer Engine's layers.
_FOREIGN_PRODUCT = re.compile(r"^(?!aten::|triton).*(gemm|(^|[:_])(scaled_|bmm_?|mm)(fp8|mm)?|wvsplitk|llmm1)", re.I)
_LAYERS = ("_Linear", "_LayerNormLinear", "LinearFunction")
_NOT_PRODUCTS = re.compile(r"moe|grouped|quant|Backward|attention", re.I)


@lru_cache(maxsize=1 << 14)
def formula_of(name: str) -> Callable[[Call], OpWork] | None:
    """Return the formula for an operator, or None.

    Example:
        >>> formula_of("aten::mm") is not None, formula_of("AddmmBackward0")
        (True, None)
    """
    formula = MODELS.get(name)
    if formula is not None:
        return formula
    if name.startswith("triton_"):
        return streamed.compiled
    if name in _LAYERS or ("::" in name and _FOREIGN_PRODUCT.search(name) and not _NOT_PRODUCTS.search(name)):
        return matmul.stated_product
    base, dot, _ = name.rpartition(".")  # an overload's name: aten::add.Tensor
    return MODELS.get(base) if dot else None
