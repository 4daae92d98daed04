"""What names tell: collectives, peers, element types, copies."""

import polars as pl
import pytest

from chakra_et.frontends.pytorch.names import (
    HOST_COMM,
    collective_of,
    communicates,
    copy_kind,
    dtype_bytes,
    is_point_to_point,
)
from chakra_et.ir import CommType, NodeType


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ALL_REDUCE"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ALL_REDUCE"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclDevComm*)", "REDUCE_SCATTER"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "REDUCE"),
        ("ncclDevKernel_AllGather_RING_LL", "ALL_GATHER"),
        ("ncclDevKernel_Broadcast_RING_LL", "BROADCAST"),
        ("void vllm::cross_device_reduce_1stage<__half, 8>(RankData*)", "ALL_REDUCE"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16>()", "ALL_REDUCE"),
        ("c10d::_allgather_base_", "ALL_GATHER"),
        ("c10d::reduce_scatter_", "REDUCE_SCATTER"),
        ("c10d::alltoall_base_", "ALL_TO_ALL"),
        ("c10d::gather_", "GATHER"),
        ("c10d::scatter_", "SCATTER"),
        ("c10d::barrier", "BARRIER"),
        ("nccl:all_to_all", "ALL_TO_ALL"),
        ("all_to_allv", "ALL_TO_ALL"),
        ("gloo:all_reduce", "ALL_REDUCE"),
        ("_reduce_scatter_base", "REDUCE_SCATTER"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", None),
        ("wait", None),
        ("", None),
    ],
)
def test_collectives(name, kind):
    assert collective_of(name) == (None if kind is None else CommType[kind])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("send", "SEND"),
        ("recv", "RECV"),
        ("c10d::send", "SEND"),
        ("c10d::recv_", "RECV"),
        ("c10d::recv_any_source_", "RECV"),
        ("gloo:send", "SEND"),
        ("nccl:send 0->1", "SEND"),
        ("nccl:recv 1<-0", "RECV"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
        ("allreduce", None),
        ("sendrecv", None),
    ],
)
def test_sends_and_receives(name, kind):
    assert is_point_to_point(name) == (None if kind is None else NodeType[f"COMM_{kind}_NODE"])


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("float", 4), ("Float", 4), ("c10::Half", 2), ("c10::BFloat16", 2), ("BFloat16", 2), ("torch.float16", 2),
        ("long int", 8), ("Long", 8), ("double", 8), ("unsigned char", 1), ("signed char", 1), ("bool", 1), ("Byte", 1),
        ("c10::Float8_e4m3fn", 1), ("c10::complex<float>", 8), ("c10::complex<double>", 16), ("int[]", 4),
        ("c10::complex<c10::Half>", 4), ("TensorList", 0), ("", 0),
    ],
)  # fmt: skip
def test_element_types(name, size):
    assert dtype_bytes(name) == size


@pytest.mark.parametrize(
    ("name", "field", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "", "HtoD"),
        ("Memcpy DtoH (Device -> Pinned)", "", "DtoH"),
        ("Memcpy PtoP (Device -> Device)", "", "PtoP"),
        ("Memcpy", "DtoD", "DtoD"),
        ("CopyHostToDevice", "", ""),
        ("Memcpy HOST_TO_DEVICE", "", "HtoD"),
        ("CopyDeviceToHost", "DEVICE_TO_HOST", "DtoH"),
        ("something", "", ""),
    ],
)
def test_copies(name, field, kind):
    assert copy_kind(name, field) == kind


@pytest.mark.parametrize(
    "name", ["ncclDevKernel_Generic", "ncclKernel_AllReduce", "mscclKernel_Sum", "deep_ep::dispatch", "nvshmem_put",
             "void vllm::cross_device_reduce_2stage", "symm_mem::multimem", "allreduce_fusion_kernel_oneshot"]
)  # fmt: skip
def test_communication_kernels(name):
    assert communicates(pl.Series([name])).to_list() == [True]


@pytest.mark.parametrize(
    "name", ["ampere_gemm", "reduce_kernel", "splitKreduce", "elementwise", "scatter_add", "gather"]
)
def test_compute_kernels(name):
    assert communicates(pl.Series([name])).to_list() == [False]


def test_ranges_of_cpu_backends():
    assert HOST_COMM.match("gloo:all_reduce")
    assert not HOST_COMM.match("nccl:all_reduce")
    assert not HOST_COMM.match("aten::gloo:")
