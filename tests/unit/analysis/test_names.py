"""Names of kernels as people read them."""

import pytest

from chakra_et.analysis.names import short_name

COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#2}>>(int, at::native::gpu_kernel_impl_nocast<int>)"
)
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, 4>>(R)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (COPY, "direct_copy_kernel_cuda, elementwise_kernel"),
        (REDUCE, "MeanOps, reduce_kernel"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(int)",
         "AdamFunctor, multi_tensor_apply_kernel"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64>(Params)", "cutlass_80_tensorop_s1688gemm_64x64"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 10>(float*)", "softmax_warp_forward"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long*)", "vllm::rotary_embedding_kernel"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT16x16", "Cijk_Ailk_Bljk_BBS_BH_MT16x16"),
        ("Memset (Device)", "Memset (Device)"),
        ("aten::add", "aten::add"),
        ("<lambda>", "<lambda>"),
        ("", ""),
    ],
)  # fmt: skip
def test_short_names(name, short):
    assert short_name(name) == short
