"""Operators that pass over their tensors once, described by which they read and write; and compiled kernels.

A pattern has a letter for each argument: ``r`` read, ``w`` written, ``x`` read and written, ``l`` written as much as
the arguments marked ``r`` have (a cache of which only the new rows are touched), ``-`` neither. A ``>`` at its end:
the result is new, and as large as the first tensor that is read; ``=``: all that is read is written again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.matmul import stated_product
from chakra_et.analysis.op_work.tensor import Tensor
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS", "compiled"]

_PRODUCT = re.compile(r"_(mm|addmm|bmm|baddbmm)(_|$)")


def _streamed(pattern: str, per_element: int, model: str) -> Callable[[Call], OpWork]:
    """Return the formula of one pass.

    Args:
        pattern: See the module.
        per_element: FLOP for each element of the largest tensor.
        model: Name of the formula.
    """
    letters = pattern.rstrip(">=")

    def formula(call: Call) -> OpWork:
        marked: dict[str, list[Tensor]] = {letter: [] for letter in "rwxl-"}
        for index, letter in enumerate(letters):
            if tensor := call.optional(index):
                marked[letter].append(tensor)
        touched = marked["r"] + marked["x"] + marked["w"]
        if not touched:
            raise NoModelError
        writes = marked["w"] + marked["x"]
        if pattern.endswith(">"):
            writes = [*writes, Tensor(touched[0].shape, touched[0].kind)]
        elif pattern.endswith("="):
            writes = writes + [Tensor(tensor.shape, tensor.kind) for tensor in marked["r"]]
        for cache, rows in zip(marked["l"], marked["r"], strict=False):
            writes = [*writes, Tensor(rows.shape, cache.kind)]
        largest = max(touched, key=lambda tensor: tensor.numel)
        reads = marked["r"] + marked["x"]
        return made(model, per_element * largest.numel, reads=reads, writes=writes, kind=largest.kind)

    return formula


def compiled(call: Call) -> OpWork:
    """Return the work of a kernel that TorchInductor wrote: the bytes of its pointers.

    Pointers come before sizes, results last. A kernel touches no more of a tensor than its sizes multiply to, so a
    table that it looks up in counts no more than that. What it computes isn't recorded: FLOP are 0, but for the
    templates of matrix products.
    """
    if call.name.startswith("triton_tem") and _PRODUCT.search(call.name):
        return stated_product(call)
    tensors = [item for item in call.arguments if isinstance(item, Tensor)]
    sizes = [item for item in call.arguments if type(item) is int and item > 0]
    if not tensors:
        raise NoModelError
    numel = math.prod(sizes[-2:]) if sizes else max(tensor.numel for tensor in tensors)
    capped = [tensor if tensor.numel <= numel else Tensor((numel,), tensor.kind) for tensor in tensors]
    model = "compiled kernel (bytes alone)"
    return made(model, 0, reads=capped[:-1], writes=capped[-1:], is_exact=False)


MODELS: dict[str, Callable[[Call], OpWork]] = {
    "_C::rms_norm": _streamed("wrr", 4, "RMS norm"),
    "_C::fused_add_rms_norm": _streamed("xxr", 5, "RMS norm"),
    "_C::rms_norm_static_fp8_quant": _streamed("wrrr", 5, "RMS norm"),
    "_C::fused_add_rms_norm_static_fp8_quant": _streamed("wrxrr", 6, "RMS norm"),
    "_C::rms_norm_dynamic_per_token_quant": _streamed("wrrw--x", 6, "RMS norm"),
    "aiter::rms_norm": _streamed("rr>", 4, "RMS norm"),
    "vllm::rocm_aiter_rms_norm": _streamed("rr>", 4, "RMS norm"),
    "aiter::rmsnorm2d_fwd": _streamed("rr>", 4, "RMS norm"),
    "aiter::rmsnorm2d_fwd_ck": _streamed("rr>", 4, "RMS norm"),
    "aiter::rmsnorm2d_fwd_with_add": _streamed("wrrwr", 5, "RMS norm"),
    "aiter::rmsnorm2d_fwd_with_add_ck": _streamed("wrrwr", 5, "RMS norm"),
    "vllm::rocm_aiter_rmsnorm2d_fwd_with_add": _streamed("rrr=", 5, "RMS norm"),
    "sgl_kernel::rmsnorm": _streamed("wrr", 4, "RMS norm"),
    "sgl_kernel::fused_add_rmsnorm": _streamed("xxr", 5, "RMS norm"),
    "sgl_kernel::gemma_rmsnorm": _streamed("wrr", 4, "RMS norm"),
    "_C::silu_and_mul": _streamed("wr", 1, "gate"),
    "_C::mul_and_silu": _streamed("wr", 1, "gate"),
    "_C::gelu_and_mul": _streamed("wr", 1, "gate"),
    "_C::gelu_tanh_and_mul": _streamed("wr", 1, "gate"),
    "_C::swigluoai_and_mul": _streamed("wr", 2, "gate"),
    "sgl_kernel::silu_and_mul": _streamed("wr", 1, "gate"),
    "sgl_kernel::gelu_and_mul": _streamed("wr", 1, "gate"),
    "_C::rotary_embedding": _streamed("rxx", 3, "rotary embedding"),
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache": _streamed("rrww", 3, "rotary embedding"),
    "_C::static_scaled_fp8_quant": _streamed("wrr", 1, "quantization"),
    "_C::dynamic_scaled_fp8_quant": _streamed("wrw", 2, "quantization"),
    "_C::dynamic_per_token_scaled_fp8_quant": _streamed("wrw", 2, "quantization"),
    "_C::static_scaled_int8_quant": _streamed("wrr", 1, "quantization"),
    "_C::dynamic_scaled_int8_quant": _streamed("wrw", 2, "quantization"),
    "_C::per_token_group_fp8_quant": _streamed("rww", 2, "quantization"),
    "_C::scaled_fp4_quant": _streamed("wrw", 2, "quantization"),
    "sgl_kernel::sgl_per_token_group_quant_fp8": _streamed("rww", 2, "quantization"),
    "_C_cache_ops::reshape_and_cache": _streamed("rrllr", 0, "copy"),
    "_C_cache_ops::reshape_and_cache_flash": _streamed("rrllr", 0, "copy"),
    "_C_cache_ops::concat_and_cache_mla": _streamed("rr--=", 0, "copy"),
    "vllm::unified_kv_cache_update": _streamed("rr=", 0, "copy"),
    "_moe_C::topk_softmax": _streamed("wwwr", 5, "routing"),
    "_moe_C::moe_sum": _streamed("rw", 1, "reduction"),
    "sgl_kernel::topk_softmax": _streamed("wwr", 5, "routing"),
    "torch::distributed::reducer::mul_out": _streamed("wrr", 1, "elementwise"),
    "aten::_local_scalar_dense": _streamed("r=", 0, "copy"),
    "fbgemm::permute_2D_sparse_data": _streamed("rrrr=", 0, "copy"),
    "fbgemm::permute_sparse_features": _streamed("rrrr=", 0, "copy"),
    "fbgemm::permute_1D_sparse_data": _streamed("rrrr=", 0, "copy"),
    "fbgemm::permute_pooled_embs": _streamed("r>", 0, "copy"),
    "fbgemm::permute_pooled_embs_auto_grad": _streamed("r>", 0, "copy"),
    "fbgemm::recat_embedding_grad_output_mixed_D_batch": _streamed("r>", 0, "copy"),
    "fbgemm::recat_embedding_grad_output_mixed_D": _streamed("r>", 0, "copy"),
    "fbgemm::bounds_check_indices": _streamed("rrr", 0, "check"),
    "fbgemm::block_bucketize_sparse_features": _streamed("rr---r=", 0, "copy"),
    "fbgemm::asynchronous_complete_cumsum": _streamed("r>", 1, "scan"),
    "fbgemm::asynchronous_inclusive_cumsum": _streamed("r>", 1, "scan"),
    "fbgemm::asynchronous_exclusive_cumsum": _streamed("r>", 1, "scan"),
    "fb::asynchronous_complete_cumsum": _streamed("r>", 1, "scan"),
    "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >": _streamed(
        "r>", 0, "copy"
    ),
    "aten::bucketize": _streamed("rr>", 1, "search"),
}
