"""Kernel classes: real names over vendors and libraries; users' files win; what is wrong in them is said."""

import re
from importlib import resources

import polars as pl
import pytest

from chakra_et.errors import FormatError, InputError
from chakra_et.specs import KernelClasses, KernelRule, load_kernel_classes
from chakra_et.specs.system import DTYPES

NAMES = {
    "communication": [
        "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        "mscclKernel_Sum_float_Simple_0",
        "oneccl_reduce_base<float, 2, 16, 1, 1, 2>",
        "oneccl_allgatherv_pcie",
        "void nvshmemi_proxy_rma_entrypoint_blocking",
        "_rocshmem_put",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void c10d::symmetric_memory::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>()",
        "one_shot_all_reduce_kernel<c10::BFloat16, 16>",
        "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*, long*, int*, void*, int*)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*)",
        "void deep_ep::intranode::notify_dispatch<8>(int const*, int*, int const*, int*)",
        "_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4Pf",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*, int*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
        "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 4>",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
        "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false, false>",
        "moefinalize_allreduce_fusion_kernel_oneshot_lamport",
        "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<3, __nv_bfloat16>",
        "quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half,8>, true>, __half>",
        "tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<8>",
        "tensorrt_llm::kernels::helixAllToAllKernel<true>",
        "void (anonymous namespace)::dispatchKernel<10, true>(int*, unsigned long)",
        "EpDispatchInterNodeV1KernelLowLatency",
        "mori::collective::OneShotAllGatherSdmaKernel_u32",
        "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8<8, __nv_fp8_e4m3>",
        "persistent_gemm_all_reduce",
        "kernel_gemm_reduce_scatter",
        "dlslime::intranode_alltoall_kernel",
        "all-reduce-start.3",
        "collective-permute.1",
        "gloo:all_reduce",
        "c10d::allreduce_",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false>>",
        "void flash::flash_fwd_splitkv_combine_kernel<flash::Flash_fwd_kernel_traits<128, 64>, 4, 3, true>",
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>>>",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1u>>",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u, __nv_bfloat16>",
        "void sm90::flash_fwd_splitkv_mla_kernel<cutlass::bfloat16_t>",
        "get_mla_metadata_kernel",
        "aiter::mla_a8w8_qh32_qseqlen4_gqaratio32_ps",
        "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmhaBatchPrefillPipeline",
        "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>",
        "kernel_unified_attention_3d",
        "reduce_segments",
        "_fwd_grouped_kernel_stage1",
        "bwd_kernel_dk_dv",
        "triton_tem_fused_flex_attention_0",
        "aten::_scaled_dot_product_flash_attention",
    ],
    "gemm": [
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
        "volta_sgemm_64x64_nt",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
        "nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_nn_align8>",
        "_ZN7cutlass13device_kernelIN10flashinfer4gemm35DeviceGemmFp4GemmSm100",
        "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16, __nv_bfloat16, float, __nv_bfloat16, true>",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>",
        "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 256u, 128u, 128u, 0u, 128u, 4u, 3u>",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        "fused_moe_kernel",
        "mfma_moe1_silu_mul_afp8_wfp8_fp8_t128x128x256_pm1_fp8q_sort_async",
        "moe_gemm2_0",
        "wvSplitK_hf_sml_",
        "_w8a8_block_fp8_matmul",
        "_mxfp8_linear_kernel.kd",
        "triton_tem_fused_addmm_relu_0",
        "aten::addmm",
        "AddmmBackward0",
    ],
    "moe": [
        "void vllm::moe::topkGatingSoftmax<4, 128, 4, 16>(float const*, bool const*, float*, int)",
        "void vllm::moe::moe_align_block_size_kernel<int>",
        "void vllm::moe::count_and_sort_expert_tokens_kernel<int>",
        "void moe::dev::routing::routingIndicesOffsetsKernel<moe::dev::routing::routingRenormalize::KernelParams>",
        "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<cutlass::bfloat16_t>>",
        "ck_tile::MoeSortingKernel",
        "aiter::grouped_topk_opt_sort_kernel",
        "moe_permute_kernel",
        "_topk_forward",
        "_finalize_matmul_scatter_bf16",
    ],
    "convolution": [
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_stage5_warpsize2x2x1",
        "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_64x256_16x4_nhwc_align4>",
        "cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>",
        "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm_xdl",
        "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm_bk0mk1_bk0nk1",
        "Im2d2Col_v2",
        "cudnn-conv.1",
        "_causal_conv1d_update_kernel",
        "aten::convolution_backward",
    ],
    "recurrent": [
        "void LSTM_elementWise_fp<__half, __half, float, (cudnnRNNBiasMode_t)2>",
        "RNN_blockPersist_fp_LSTM",
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16>>",
        "_chunk_state_fwd_kernel",
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
        "fused_recurrent_gated_delta_rule_fwd_kernel",
        "fused_sigmoid_gating_delta_rule_update_kernel",
    ],
    "kv_cache": [
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>",
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>",
        "void flashinfer::AppendPagedKVCacheKernel<128u, 8u, __nv_bfloat16, int>",
        "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>((anonymous namespace)::StoreKVCacheParams)",
        "create_flashinfer_kv_indices_triton",
        "aiter::fuse_qk_rope_concat_and_cache_mla_per_head_kernel",
    ],
    "embedding": [
        "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 5ul>",
        "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<float, float, float>",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>",
        "void bounds_check_indices_kernel<long>(at::GenericPackedTensorAccessor<long, 1ul>, fbgemm_gpu::FixedDivisor)",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2>",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::_cuda_scatter_gather_internal_kernel>",
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<index_kernel_impl>>",
        "triton_poi_fused_embedding_0",
        "aten::embedding",
    ],
    "optimizer": [
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float, float>",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOp>",
        "triton_for_fused_0",
        "aten::_foreach_add_",
    ],
    "normalization": [
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwdPipelineProblem",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
        "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
        "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)",
        "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>",
        "void cuApplyLayerNorm<c10::Half, float, c10::Half>(c10::Half*, float*, float*, c10::Half const*)",
        "void transformer_engine::normalization::ln_fwd_tuned_kernel<>",
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>",
        "MIOpenBatchNormBwdSpatial",
        "void (anonymous namespace)::scaled_upper_triang_masked_softmax_warp_forward<c10::Half, c10::Half, float, 11>",
        "void cunn_SoftMaxForward<8, float>",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>",
        "triton_red_fused_add_mean_mul_pow_rsqrt_0",
        "triton_per_fused__softmax_3",
        "triton_red_fused__unsafe_view_add_addmm_mul_native_layer_norm_split_unsqueeze_19",
    ],
    "quantization": [
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>",
        "void tensorrt_llm::kernels::quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2, half>",
        "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>",
        "_per_token_group_quant_8bit",
        "void transformer_engine::cast_transpose_fused_kernel_notaligned<true>",
        "GroupHadamardAmaxTmaKernel",
        "void fbgemm_gpu::(anonymous namespace)::_FP8rowwise_to_float_cuda_kernel<float>(unsigned char const*, int)",
    ],
    "sampling": [
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>",
        "void flashinfer::sampling::TopPRenormProbKernel<1024u>",
        "void vllm::apply_repetition_penalties_kernel<float>",
        "void (anonymous namespace)::resolve_future_token_ids_kernel<long>(long*, long const*, unsigned long)",
    ],
    "reduction": [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float, float>>>",
        "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false>",
        "void rocprim::ROCPRIM_400400_NS::detail::trampoline_kernel<default_config, partition_config_selector>",
        "void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*, long const*)",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>",
        "triton_red_fused_abs_amax_transpose_view_32",
        "triton_per_fused_linalg_vector_norm_1",
        "input_reduce_fusion",
    ],
    "memset": ["Memset (Device)"],
    "copy": [
        "Memcpy HtoD (Pinned -> Device)",
        "CopyHostToDevice",
    ],
    "layout": [
        "fsdp::all_gather_copy_in",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)",
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}>>",
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIterator&)>",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>",
        "batched_transpose_16x64_pack_1x4_ediv_1x2_half",
        "loop_transpose_fusion",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>",
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel("
        "at::TensorIteratorBase&)::{lambda()#1}>",
        "void at::native::elementwise_kernel_manual_unroll<128, 8, gpu_kernel_impl_nocast<MulFunctor<float>>>",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, normal_>",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)",
        "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i",
        "void at::native::(anonymous namespace)::upsample_nearest2d_out_frame<c10::BFloat16>",
        "SubTensorOpWithScalar1d",
        "triton_poi_fused__scaled_dot_product_flash_attention_cat_transpose_view_10",
        "triton_poi_fused_addmm_gelu_view_15",
        "loop_convert_fusion",
        "aten::normal_",
    ],
    "other": ["at::cuda::(anonymous namespace)::spin_kernel(long)", "my_kernel", "aten::view", ""],
}  # fmt: skip
CASES = [(name, kind) for kind, names in NAMES.items() for name in names]
TYPES = {
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": "bf16",
    "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128": "fp8",
    "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0>": "fp8",
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2": "fp8",
    "bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16": "fp4",
    "cutlass3x_sm100_bstensorop_s128x128x64gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_bf16_bf16": "fp4",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1": "bf16",
    "nvjet_sm100_tst_64x32_64x16_2x1_2cta_v_bz_splitK_TNT": "bf16",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT": "fp16",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x256": "bf16",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32": "fp16",
    "Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16": "fp32",
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdIDF16bDF16bfLi8EE": "bf16",
    "ampere_fp16_s1688gemm_fp16_256x64_ldg8_f2f_tn": "fp16",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>": "tf32",
    "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_10tfloat32_tENS_9transform29": "tf32",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32": "tf32",
    "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_32x4_nhwc_align4>": "tf32",
    "void gemv_kernel<_Float16, float>": "fp16",
    "volta_h884gemm_128x64_ldg8_nn": "fp16",
    "volta_dgemm_64x64_nn": "fp64",
    "turing_int8_i8816gemm_int8_128x128_ldg16_stages_64x1_tn": "int8",
    "volta_sgemm_64x64_nt": "fp32",
    "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>": "bf16",
    "transpose_CNHW2NCHW_V2_2D_WG_off64": None,
    "attn_fwd": None,
}  # fmt: skip
OWN = """
[[classes]]
name = "physics"
meaning = "The solver."
patterns = ["navier", "^LBM_"]
[[classes]]
name = "gemm"
patterns = ["^my_matrix_"]
[[dtypes]]
name = "fp6"
patterns = ["e3m2"]
"""


def write(place, text, name="mine.toml"):
    path = place / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_classes_of_real_names(name, kind):
    assert load_kernel_classes().classify(name) == kind


def test_enough_names_and_every_class():
    assert len(CASES) >= 150
    assert set(NAMES) == set(load_kernel_classes().kinds)


@pytest.mark.parametrize(("name", "dtype"), TYPES.items())
def test_element_types_of_real_names(name, dtype):
    assert load_kernel_classes().dtype(name) == dtype


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("splitKreduce_combine", "gemm"),
        ("flash_fwd_mla_combine_kernel", "attention"),
        ("aten::scatter_reduce", "embedding"),
        ("linearize_index_kernel", "embedding"),
        ("aten::upsample_bilinear2d", "elementwise"),
        ("aten::convert_element_type", "elementwise"),
        ("void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16>", "elementwise"),
        ("void softmax<float, BlockAllReduce>(float*)", "normalization"),
    ],
)
def test_common_words_mean_no_communication_and_no_gemm(name, kind):
    assert load_kernel_classes().classify(name) == kind


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, "enum"])
def test_columns_equal_single_names(dtype):
    classes = load_kernel_classes()
    names = pl.Series("name", [name for name, _ in CASES] * 3)
    column = names.cast(pl.Enum(names.unique()) if dtype == "enum" else dtype)
    kinds, dtypes = classes.classify_names(column), classes.dtype_names(column)
    assert kinds.name == "name"
    assert kinds.dtype == pl.Enum(classes.kinds)
    assert kinds.to_list() == [kind for _, kind in CASES] * 3
    assert dtypes.dtype == pl.Enum(classes.types)
    assert dtypes.to_list() == [classes.dtype(name) for name in names]


def test_columns_without_names():
    classes = load_kernel_classes()
    assert classes.classify_names(pl.Series([], dtype=pl.String)).to_list() == []
    assert classes.classify_names(pl.Series([None, "gemm"])).to_list() == ["other", "gemm"]
    assert classes.classify_names(pl.Series([None], dtype=pl.String)).to_list() == ["other"]
    assert classes.dtype_names(pl.Series([None, "x", "hgemm"])).to_list() == [None, None, "fp16"]


def test_the_built_in_file():
    classes = load_kernel_classes()
    assert load_kernel_classes() is classes
    assert len(classes.kinds) <= 18
    assert classes.kinds[-1] == "other"
    assert set(classes.types) <= set(DTYPES)
    assert all(meaning.endswith(".") for _, meaning in classes.meanings)
    for rule in (*classes.rules, *classes.dtypes):
        assert pl.Series([""]).str.contains(rule.pattern).to_list() == [False]
        assert rule.pattern == rule.pattern.lower()
    text = (resources.files("chakra_et.specs") / "presets" / "kernel_classes.toml").read_text(encoding="utf-8")
    assert len(re.findall(r"^\[\[classes\]\]$", text, re.MULTILINE)) == len(classes.rules)


def test_users_rules_win_and_add(tmp_path):
    classes = load_kernel_classes(write(tmp_path, OWN))
    assert classes.kinds[-2:] == ("physics", "other")
    assert classes.classify("navier_stokes_gemm") == "physics"
    assert classes.classify("lbm_step") == "physics"
    assert classes.classify("my_matrix_nccl") == "gemm"
    assert classes.classify("ncclDevKernel_Generic") == "communication"
    assert classes.dtype("gemm_e3m2_fp8") == "fp6"
    assert load_kernel_classes().classify("lbm_step") == "other"


def test_the_first_of_several_files_wins(tmp_path):
    first = write(tmp_path, '[[classes]]\nname = "moe"\npatterns = ["navier"]', "first.toml")
    both = load_kernel_classes(first, str(write(tmp_path, OWN)))
    assert both.classify("navier") == "moe"
    assert both.classify("lbm_step") == "physics"
    assert [rule.value for rule in both.rules[:3]] == ["moe", "physics", "gemm"]


def test_rules_may_be_made_by_hand():
    classes = KernelClasses((KernelRule("a", ("^X", "y$")),), (), (("a", "A."),))
    assert (classes.classify("xz"), classes.classify("zY"), classes.classify("z"), classes.dtype("x")) == (
        "a", "a", "other", None
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classes = 3", "{}: classes: expected a list of tables, got 3; write [[classes]] before each"),
        ("rules = []", "{}: expected only the keys classes, dtypes, got 'rules'; remove it"),
        ('[[classes]]\nname = "Gemm"\npatterns = ["x"]', "{}: classes[0]: name: expected a name of lower-case"),
        ('[[classes]]\nname = "other"\npatterns = ["x"]', "{}: classes[0]: name: expected a name of lower-case"),
        ("[[classes]]\npatterns = ['x']", "{}: classes[0]: name: expected a text, got nothing"),
        ('[[classes]]\nname = "gemm"', "{}: classes[0]: patterns: expected a list of regular expressions, none of"),
        ('[[classes]]\nname = "gemm"\npatterns = [""]', "{}: classes[0]: patterns: expected a list of regular expr"),
        ('[[classes]]\nname = "gemm"\npatterns = "x"', "{}: classes[0]: patterns: expected a list of texts, got 'x'"),
        ('[[classes]]\nname = "gemm"\npatterns = ["x"]\nwhy = 1', "{}: classes[0]: expected only the keys name, mean"),
        ('[[classes]]\nname = "gemm"\npatterns = ["x", "(a"]', "{}: classes[0]: patterns: expected a regular express"),
        ('[[classes]]\nname = "gemm"\npatterns = ["conv(?!ert)"]', "{}: classes[0]: patterns: expected a regular exp"),
        ('[[classes]]\nname = "new"\npatterns = ["x"]', "{}: classes: expected one of communication, "),
        ('[[classes]]\nname = "new"\nmeaning = 3\npatterns = ["x"]', "{}: classes[0]: meaning: expected a text, got 3"),
        ('[[dtypes]]\nname = "fp7"\npatterns = ["x"]', "{}: dtypes[0]: name: expected one of fp64, fp32, "),
        ('[[dtypes]]\nname = "fp8"\nmeaning = "x"\npatterns = ["x"]', "{}: dtypes[0]: expected only the keys name, p"),
    ],
)  # fmt: skip
def test_refusals(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as info:
        load_kernel_classes(path)
    assert str(info.value).startswith(message.format(path))
    assert "\n" not in str(info.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(FormatError, match=r"mine\.toml: expected TOML, got an error"):
        load_kernel_classes(write(tmp_path, "= 3"))
    with pytest.raises(InputError, match="expected a file, got nothing of that name"):
        load_kernel_classes(tmp_path / "absent.toml")
