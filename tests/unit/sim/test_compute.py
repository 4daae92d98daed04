import numpy as np
import pytest

from chakra_et.errors import InputError
from chakra_et.ir import NodeType, TraceBuilder, TraceSet
from chakra_et.sim.compute import KINDS, classify, find_work
from chakra_et.sim.simulate import simulate
from chakra_et.sim.workload import make_workload
from chakra_et.specs.system import Device
from tests.unit.sim.jobs import COMP, system

NAMES = {
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": "gemm",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32": "gemm",
    "aten::addmm": "gemm",
    "aten::bmm": "gemm",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128>>": "attention",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80": "attention",
    "sm80_xmma_fprop_implicit_gemm_bf16 conv": "convolution",
    "aten::convolution_backward": "convolution",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>()": "optimizer",
    "void cunn_SoftMaxForward<8, float>": "normalization",
    "void at::native::reduce_kernel<512, 1>": "reduction",
    "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>": "elementwise",
    "aten::embedding": "embedding",
    "void my_kernel": "other",
}


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_kinds_by_name(name, kind):
    assert classify(name) == kind


def job(*nodes, family="collected"):
    builder = TraceBuilder(rank=0, family=family)
    last = []
    for name, columns in nodes:
        last = [builder.add(name, columns.pop("type", COMP), ctrl_deps=last, **{"duration_ns": 1000} | columns)]
    return TraceSet((builder.build(),))


def lengths(traces, *machine, **options):
    return simulate(traces, *machine, **options).traces.traces[0].nodes["duration_ns"].to_list()


def mixed():
    return job(
        ("op", {"is_cpu_op": True, "tid": 7}),
        ("wake", {"is_cpu_op": True, "tid": 7, "gap_kind": "host_idle"}),
        ("latency", {"gap_kind": "launch_latency"}),
        ("gemm", {}),
        ("relu", {}),
        ("copy", {"type": NodeType.MEM_LOAD_NODE, "copy_kind": "HtoD"}),
        ("set", {"type": NodeType.MEM_STORE_NODE, "copy_kind": "memset"}),
        ("other op", {"is_cpu_op": True, "tid": 8}),
    )


def test_work_of_a_rank_with_a_device():
    work = find_work(make_workload(mixed()))
    assert [KINDS[kind] if kind >= 0 else None for kind in work.kind] == [
        None, None, None, "gemm", "elementwise", "copy", "memset", None
    ]  # fmt: skip
    assert work.host.tolist() == [True, True, False, False, False, False, False, True]


def test_work_of_a_rank_without_a_device_is_the_hosts():
    work = find_work(make_workload(job(("aten::mm", {"is_cpu_op": True}), ("aten::relu", {"is_cpu_op": True}))))
    assert [KINDS[kind] for kind in work.kind] == ["gemm", "elementwise"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1000] * 8),
        ({"compute_scale": 2}, [1000, 1000, 1000, 2000, 2000, 2000, 2000, 1000]),
        ({"compute_scale": {"gemm": 3, "*": 0.5}}, [1000, 1000, 1000, 3000, 500, 500, 500, 1000]),
        ({"compute_scale": {"gemm": 3}}, [1000, 1000, 1000, 3000, 1000, 1000, 1000, 1000]),
        ({"host_scale": 2}, [2000, 2000, 1000, 1000, 1000, 1000, 1000, 2000]),
        ({"host_scale": {8: 3, 9: 9}}, [1000, 1000, 1000, 1000, 1000, 1000, 1000, 3000]),
    ],
)
def test_scales(options, expected):
    assert lengths(mixed(), **options) == expected


def test_from_one_device_to_another():
    before = Device("a", memory_bytes_per_s=1e12, peak_flop_per_s=(("bf16", 50e12), ("fp8", 400e12)))
    traces = job(("gemm", {}), ("gemm_e4m3", {}), ("relu", {}), ("copy", {"copy_kind": "HtoD"}))
    assert lengths(traces, system(), compute="scaled", from_device=before) == [500, 2000, 1000, 1000]
    twice = lengths(traces, system(), compute="scaled", from_device=before, compute_scale=2)
    assert twice == [1000, 4000, 2000, 2000]


def test_copies_by_kernels_follow_the_memories_on_another_device():
    before = Device("a", memory_bytes_per_s=1e12, peak_flop_per_s=(("bf16", 50e12),))
    traces = job(("CatArrayBatchedCopy", {}), ("Memcpy HtoD", {"copy_kind": "HtoD"}), ("relu", {}))
    cat, copy, relu = lengths(traces, system(), compute="scaled", from_device=before)
    assert (cat, copy) == (relu, 1000)


def test_communications_are_no_kind_of_compute():
    assert "communication" not in KINDS
    assert classify("ncclDevKernel_Generic") == "other"


def test_roofline_takes_the_longer_of_arithmetic_and_memory():
    traces = job(
        ("gemm", {"num_ops": 10**9, "tensor_size": 10**6}),
        ("relu", {"num_ops": 10**6, "tensor_size": 30 * 10**6}),
        ("gemm_fp8", {"num_ops": 10**9}),
        ("neither", {}),
        family="synthesized",
    )
    result = simulate(traces, system(), compute="roofline")
    assert result.traces.traces[0].nodes["duration_ns"].to_list() == [10_000, 30_000, 5_000, 1000]
    assert "1 compute node without operations and bytes: kept as measured" in result.notes


@pytest.mark.parametrize(
    ("machine", "options", "text"),
    [
        ((), {"compute": "roofline"}, "compute (roofline): expected a system"),
        ((), {"compute": "scaled"}, "compute (scaled): expected from_device or compute_scale"),
        ((), {"compute": "scaled", "from_device": Device("x")}, "compute (scaled): expected a system"),
        ((), {"compute_scale": {"gems": 2}}, "compute_scale: expected kinds of kv_cache, "),
        ((), {"compute_scale": -1}, "scale of *: expected a factor of 0 or more, got -1"),
        ((), {"host_scale": np.inf}, "scale of host: expected a factor"),
        (
            (system(),),
            {"compute": "scaled", "from_device": Device("x")},
            "device x: expected a bandwidth of its memory",
        ),
    ],
)
def test_refusals(machine, options, text):
    with pytest.raises(InputError) as info:
        simulate(mixed(), *machine, **options)
    assert str(info.value).startswith(text)
