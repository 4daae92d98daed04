"""Time and work by operator and shapes, roofline and utilization, worked out by hand."""

import json

import pytest

from chakra_et.analysis.ops import ops
from chakra_et.analysis.options import Options
from chakra_et.errors import InputError
from chakra_et.ir import TraceSet
from chakra_et.specs import Device, System, load_system
from tests.unit.analysis.hand_made import Rank

H100 = load_system("h100-dgx")
# 64 x 32 by 32 x 16 in fp32: 2 * 64 * 32 * 16 FLOP; 4 bytes each of 64 * 32 + 32 * 16 and of 64 * 16.
SMALL = ([64, 32], [32, 16])
FLOP, READ, WRITE = 65_536, 10_240, 4_096


def inputs(*shapes, kind="float"):
    return {"values": "[]", "shapes": json.dumps(list(shapes)), "types": json.dumps([kind] * len(shapes))}


def product(made, begin, *spans, shapes=SMALL, kernel="sgemm", **columns):
    """A product of matrices that launches kernels."""
    op = made.op("aten::mm", begin, begin + 1, inputs=inputs(*shapes), **columns)
    for start, end in spans:
        made.kernel(kernel, start, end, parent=op)
    return op


def row(made, *columns, **options):
    return ops(made.build(), options=Options(**options)).table.select(columns).row(0)


def test_counts_times_and_work():
    made = Rank()
    product(made, 0, (10, 1010))
    product(made, 1, (2000, 2500))
    assert row(made, "op", "shapes", "types", "kind") == (
        "aten::mm", "[[64, 32], [32, 16]]", '["float", "float"]', "gemm",
    )  # fmt: skip
    assert row(made, "count", "kernels", "total_ns", "share", "mean_ns", "p50_ns", "p90_ns") == (
        2, 2, 1500, 1.0, 750.0, 1000, 1000,
    )  # fmt: skip
    assert row(made, "flop_count", "read_bytes", "write_bytes", "dtype", "model") == (
        2 * FLOP, 2 * READ, 2 * WRITE, "fp32", "matmul",
    )  # fmt: skip
    rates = row(made, "flop_per_s", "bytes_per_s", "flop_per_byte")
    assert rates == (2 * FLOP / 1500e-9, 2 * (READ + WRITE) / 1500e-9, pytest.approx(FLOP / (READ + WRITE)))


def test_a_call_of_several_kernels():
    """Split over keys, and summed up: one call."""
    made = Rank()
    op = product(made, 0, (10, 90))
    made.kernel("splitKreduce_kernel", 90, 100, parent=op)
    assert row(made, "kind", "count", "kernels", "total_ns", "flop_count") == ("gemm", 1, 2, 90, FLOP)


def test_shapes_tell_calls_apart():
    made = Rank()
    product(made, 0, (10, 20))
    product(made, 1, (20, 40), shapes=([64, 64], [64, 16]))
    table = ops(made.build()).table
    assert table.select("shapes", "total_ns", "flop_count").rows() == [
        ("[[64, 64], [64, 16]]", 20, 2 * FLOP),
        ("[[64, 32], [32, 16]]", 10, FLOP),
    ]
    assert ops(made.build(), options=Options(by=("op",))).table.select("count", "flop_count").rows() == [(2, 3 * FLOP)]


def test_bounds_at_the_peaks():
    """14,336 bytes take 4.3 ns at 3.35 TB/s, the arithmetic 1 ns at 66.9 TFLOP/s: memory-bound."""
    made = Rank()
    product(made, 0, (10, 1010))
    bound, share = row(made, "bound", "peak_share", system=H100)
    assert (bound, share) == ("memory", pytest.approx((READ + WRITE) / 3.35e12 / 1e-6))
    # 2 * 4096^3 FLOP in bf16: 138.9 us at 989.4 TFLOP/s; 3 * 2 * 4096^2 bytes take 30 us.
    made = Rank()
    op = made.op("aten::mm", 0, 1, inputs=inputs([4096, 4096], [4096, 4096], kind="c10::BFloat16"))
    made.kernel("nvjet_tst_256x128", 0, 200_000, parent=op)
    bound, share, dtype = row(made, "bound", "peak_share", "dtype", system=H100)
    assert (bound, dtype, share) == ("compute", "bf16", pytest.approx(2 * 4096**3 / 989.4e12 / 200e-6))


def test_utilization():
    """The product takes 65,536 / 66.9 T of a step of 2,000 ns; the rest is idle or unknown."""
    made = Rank()
    product(made, 0, (10, 1010))
    made.kernel("qqq", 1010, 2010)
    result = ops(made.build(), options=Options(system=H100))
    assert result.device == "H100 SXM5 80GB"
    (step,) = result.steps.rows()
    assert step == (0, None, 2000, FLOP, FLOP, FLOP / 2e-6, pytest.approx(FLOP / 66.9e12 / 2e-6))
    assert result.findings[0].text == "model FLOP utilization at least 0.0 % of the peaks"
    assert (
        "50.0 % of the computing kernels' time has no FLOP or byte model: rates and utilization are lower bounds"
        in result.notes
    )


def test_utilization_weighs_element_types():
    """Half of the work in bf16, half in fp32: each at its own peak."""
    made = Rank()
    product(made, 0, (0, 100))
    op = made.op("aten::mm", 1, 2, inputs=inputs(*SMALL, kind="c10::BFloat16"))
    made.kernel("nvjet_bf16", 100, 200, parent=op)
    (step,) = ops(made.build(), options=Options(system=H100)).steps.rows()
    assert step[3] == 2 * FLOP
    assert step[6] == pytest.approx((FLOP / 66.9e12 + FLOP / 989.4e12) / 200e-9)


def test_an_element_type_without_a_peak():
    """Part of the work has no peak: there is no utilization, rather than one that is too low."""
    device = Device("d", memory_bytes_per_s=1e12, peak_flop_per_s=(("bf16", 1e12),))
    system = System("s", "", device, H100.dimensions)
    made = Rank()
    product(made, 0, (10, 1010))
    result = ops(made.build(), options=Options(system=system))
    assert result.steps["mfu"].to_list() == [None]
    assert result.table.select("bound", "peak_share").row(0) == (None, None)


def test_a_few_flop_without_a_peak_do_not_matter():
    """Adding 32 numbers of int64, which the device has no peak for, beside a product of matrices."""
    made = Rank()
    product(made, 0, (0, 100))
    op = made.op("aten::add", 1, 2, inputs=inputs([32], [32], kind="long int"))
    made.kernel("vectorized_elementwise_kernel", 100, 200, parent=op)
    (step,) = ops(made.build(), options=Options(system=H100)).steps.rows()
    assert step[3] == FLOP + 32
    assert step[6] == pytest.approx(FLOP / 66.9e12 / 200e-9)


def test_a_copy_from_the_host_has_no_roofline():
    """Its bytes come over another link than that to the device's memory."""
    made = Rank()
    for place, kind in enumerate(("HtoD (Pinned -> Device)", "DtoD (Device -> Device)")):
        shape = [1024, place + 1]
        op = made.op("aten::copy_", place, place + 1, inputs=inputs(shape, shape))
        made.copy(1000 * place, 1000 * place + 500, kind, parent=op)
    table = ops(made.build(), options=Options(system=H100)).table.sort("shapes")
    assert table.select("kind", "read_bytes", "model", "bound").rows() == [
        ("copy", 4096, "copy", None), ("copy", 8192, "copy", "memory"),
    ]  # fmt: skip


def test_steps():
    made = Rank()
    for number in range(3):
        made.step(number, 10 * number, 10 * number + 10)
        op = product(made, 10 * number, shapes=([64, 32], [32, 16 * (number + 1)]))
        made.call(number, 10 * number + 2, 10 * number + 3)
        made.kernel("sgemm", 10 * number + 4, 10 * number + 9, parent=op, correlation=number)
    result = ops(made.build(), options=Options(iteration="all"))
    assert result.steps.select("iteration", "span_ns", "flop_count", "mfu").rows() == [
        (0, 10, FLOP, None), (1, 10, 2 * FLOP, None), (2, 5, 3 * FLOP, None),
    ]  # fmt: skip
    assert ops(made.build()).table["flop_count"].to_list() == [2 * FLOP]


def test_work_below_one_call_counts_once():
    """Two operators inside, without arguments of their own, did what the outer one's arguments say."""
    made = Rank()
    outer = made.op("aten::linear", 0, 9, inputs=inputs([64, 32], [16, 32]))
    for place, name in enumerate(("aten::mm", "aten::add_")):
        op = made.op(name, 1 + place, 2 + place, parent=outer)
        made.kernel("sgemm", 10 + 10 * place, 20 + 10 * place, parent=op)
    table = ops(made.build(), options=Options(by=("op",))).table
    assert table["count"].sum() == 2
    assert table["flop_count"].sum() == FLOP
    assert ops(made.build()).steps["flop_count"].to_list() == [FLOP]


def test_activities_without_an_operator():
    made = Rank()
    made.kernel("sgemm", 0, 10)
    made.kernel("sgemm", 10, 40)
    result = ops(made.build())
    columns = ("op", "shapes", "count", "total_ns", "flop_count", "flop_per_s", "model", "bound")
    assert result.table.select(columns).rows() == [("(no operator)", None, 2, 40, None, None, None, None)]
    note = "no operator's shapes were recorded: no FLOP and no bytes; record with record_shapes=True"
    assert note in result.notes
    assert "no system given: no roofline and no utilization; name the machine, such as h100-dgx" in result.notes
    assert result.steps.select("flop_count", "flop_per_s", "mfu").rows() == [(None, None, None)]


def test_kernels_of_no_length_have_no_rate():
    made = Rank()
    product(made, 0, (10, 10))
    made.kernel("x", 20, 30)
    columns = ("flop_count", "flop_per_s", "bytes_per_s", "peak_share")
    table = ops(made.build(), options=Options(system=H100)).table
    assert table.filter(op="aten::mm").select(columns).rows() == [(FLOP, None, None, None)]


def test_modules_ranks_and_iterations():
    traces = []
    for rank in range(2):
        made = Rank(rank)
        product(made, 0, (10, 20 + rank), module=f"Net/Layer_{rank}")
        traces.append(made.build())
    table = ops(TraceSet(tuple(traces)), options=Options(by=("rank", "module", "iteration"))).table
    assert table.select("rank", "module", "iteration", "total_ns").rows() == [
        (1, "Net/Layer_1", None, 11), (0, "Net/Layer_0", None, 10),
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"^by: expected one or more of rank, iteration, op, shapes, types, module"):
        ops(traces[0], options=Options(by=("name",)))


def test_without_a_device_operators_stand_for_themselves():
    made = Rank()
    made.op("aten::mm", 0, 1000, inputs=inputs(*SMALL))
    assert row(made, "op", "count", "total_ns", "flop_count") == ("aten::mm", 1, 1000, FLOP)


def test_far_from_the_roofline():
    made = Rank()
    product(made, 0, (0, 1000))
    texts = [finding.text for finding in ops(made.build(), options=Options(system=H100)).findings]
    assert texts[1] == (
        "aten::mm: 0.4 % of its memory roofline; "
        "at the roofline, a rank's profile would spend 995 ns less in it at most"
    )


def test_the_plot_is_a_roofline():
    made = Rank()
    product(made, 0, (0, 1000))
    plot = ops(made.build(), options=Options(system=H100)).plot()
    point, roof = plot.data
    assert (point["x"][0], point["y"][0]) == (pytest.approx(FLOP / (READ + WRITE)), pytest.approx(FLOP / 1e-6 / 1e12))
    assert roof["name"] == "roofline fp32"
    assert ops(Rank().build()).plot().data == ()


# Element types and classes of calls whose kernels differ --------------------------------------------------------------

# 2 * 32 * 7 * 7 * 512 * 2048 FLOP in TF32, which an A100 does at 156 TFLOP/s.
IMAGES, FILTERS, POINTWISE = [32, 512, 7, 7], [2048, 512, 1, 1], 2 * 32 * 7 * 7 * 512 * 2048
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>"
MANGLED = (
    "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_10tfloat32_tENS_9transform29Pitch"
)
A100 = load_system("a100-dgx")


def convolution(made, begin, *kernels):
    """A convolution that launches kernels of names and durations, one after the other."""
    arguments = {
        "values": json.dumps(["", "", [0, 0], [1, 1], [1, 1], 1, False, False, True]),
        "shapes": json.dumps([IMAGES, FILTERS, *[[[], []]] * 3, *[[]] * 4]),
        "types": json.dumps(["float", "float", *["GenericList[Int,Int]"] * 3, "Int", *["Bool"] * 3]),
    }
    op = made.op("aten::cudnn_convolution", begin, begin + 1, inputs=arguments)
    at = begin
    for name, duration in kernels:
        made.kernel(name, at, at + duration, parent=op)
        at += duration


@pytest.mark.parametrize(
    ("kernel", "kind", "dtype", "peak"),
    [
        (MANGLED, "convolution", "tf32", 156e12),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc", "convolution", "tf32", 156e12),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>", "gemm", "tf32", 156e12),
        ("cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "convolution", "fp32", 19.5e12),
        ("implicit_convolve", "convolution", "fp32", 19.5e12),
    ],
)
def test_the_kernel_that_computes_tells_class_and_element_type(kernel, kind, dtype, peak):
    """The transposes beside it take longer, and say float."""
    made = Rank()
    convolution(made, 0, (TO_NHWC, 90_000), (kernel, 60_000), ("void splitKreduce_kernel<float>", 70_000))
    result = ops(made.build(), options=Options(system=A100))
    columns = ("kind", "dtype", "count", "kernels", "flop_count", "bound", "exact")
    assert result.table.select(columns).rows() == [(kind, dtype, 1, 3, POINTWISE, "compute", True)]
    assert result.table["peak_share"].item() == pytest.approx(POINTWISE / peak / 220e-6)
    assert result.steps["mfu"].item() == pytest.approx(POINTWISE / peak / 220e-6)


def test_the_longest_of_those_that_compute_counts():
    made = Rank()
    convolution(made, 0, ("scudnn_128x64", 10), ("tf32f32_wgrad_a", 30), ("scudnn_winograd", 20))
    assert row(made, "kind", "dtype") == ("convolution", "tf32")


def test_work_belongs_to_the_operator_that_computes():
    """The outer call's product is in its second operator, which says bf16; its first only copies."""
    made = Rank()
    outer = made.op("aten::linear", 0, 9, inputs=inputs([64, 32], [16, 32]))
    for place, (name, kernel) in enumerate((("aten::t_copy", "float_copy_kernel"), ("aten::mm", "gemm_bf16"))):
        op = made.op(name, 1 + place, 2 + place, parent=outer)
        made.kernel(kernel, 10 + 90 * place, 100 + 10 * place, parent=op)
    table = ops(made.build(), options=Options(by=("op", "kind"))).table
    assert table.select("op", "kind", "total_ns", "flop_count", "dtype").rows() == [
        ("aten::t_copy", "layout", 90, 0, "bf16"), ("aten::mm", "gemm", 10, FLOP, "bf16"),
    ]  # fmt: skip


def test_other_kernels_compute_in_their_operators_type():
    """Quantizing computes on bf16, though its kernel's name has the result's type."""
    made = Rank()
    op = made.op("aten::add", 0, 1, inputs=inputs([64], [64], kind="c10::BFloat16"))
    made.kernel("elementwise_fp8_kernel", 0, 10, parent=op)
    assert row(made, "kind", "dtype") == ("elementwise", "bf16")


# What shares of the peak mean -----------------------------------------------------------------------------------------


def test_above_the_memory_roofline():
    """12 * 2^20 bytes would take 3.76 us at 3.35 TB/s; they took 2 us, and that is said, not cut off."""
    made = Rank()
    op = made.op("aten::add", 0, 1, inputs=inputs([1 << 20], [1 << 20]))
    made.kernel("vectorized_elementwise_kernel", 0, 2000, parent=op)
    product(made, 2000, (2000, 4000))
    result = ops(made.build(), options=Options(system=H100))
    assert result.table.filter(op="aten::add").select("bound", "peak_share").row(0) == (
        "memory", pytest.approx(12 * 2**20 / 3.35e12 / 2e-6),
    )  # fmt: skip
    assert [note for note in result.notes if "above" in note] == [
        "1 row (50.0 % of the time) above the memory roofline: a cache still held what they read; "
        "their bytes are those of a cold cache"
    ]


def test_above_the_compute_roofline():
    made = Rank()
    op = made.op("aten::mm", 0, 1, inputs=inputs([4096, 4096], [4096, 4096]))
    made.kernel("sgemm", 0, 1_000_000, parent=op)
    result = ops(made.build(), options=Options(system=H100))
    assert result.table["peak_share"].item() == pytest.approx(2 * 4096**3 / 66.9e12 / 1e-3)
    (note,) = (note for note in result.notes if "above" in note)
    assert note.startswith("1 row (100.0 % of the time) above the compute roofline: their algorithm saves arithmetic")


def test_mixed_element_types_count_each_at_its_own_peak():
    """The same product in fp32 and in bf16; arithmetic bounds the first, 2 us, and the second, 0.1 us."""
    made = Rank()
    shapes, flop = ([4096, 256], [256, 4096]), 2 * 4096 * 4096 * 256
    product(made, 0, (0, 300_000), shapes=shapes)
    op = made.op("aten::mm", 1, 2, inputs=inputs(*shapes, kind="c10::BFloat16"))
    made.kernel("nvjet_tst", 300_000, 400_000, parent=op)
    result = ops(made.build(), options=Options(system=H100, by=("op",)))
    moved = 2 * (2 * 4096 * 256 + 4096 * 4096)
    best = flop / 66.9e12 + max(flop / 989.4e12, moved / 3.35e12)
    assert result.table.select("dtype", "bound", "peak_share").row(0) == ("fp32", "compute", pytest.approx(best / 4e-4))
    assert [note for note in result.notes if "types" in note] == [
        "1 row (100.0 % of the time) with arithmetic in several element types: each call counts at its own type's "
        "peak, and the column dtype is that of most time"
    ]
    assert result.findings[-1].cost_ns == pytest.approx(400_000 - best * 1e9, abs=1)


def test_gains_are_of_the_time_that_is_modelled():
    """600 of 1,000 ns have a model: no more than these can be saved."""
    made = Rank()
    product(made, 0, (0, 600))
    op = made.op("aten::mm", 1, 2)
    made.kernel("sgemm", 600, 1000, parent=op)
    result = ops(made.build(), options=Options(system=H100, by=("op",)))
    best = (READ + WRITE) / 3.35e12 * 1e9
    assert result.table["peak_share"].item() == pytest.approx(best / 600)
    assert result.findings[-1].cost_ns == int(600 - best)


def test_no_share_of_the_peak_for_the_lesser_part():
    made = Rank()
    product(made, 0, (0, 400))
    op = made.op("aten::mm", 1, 2)
    made.kernel("sgemm", 400, 1000, parent=op)
    result = ops(made.build(), options=Options(system=H100, by=("op",)))
    assert result.table.select("flop_count", "bound", "peak_share").row(0) == (FLOP, None, None)
    assert result.findings == ()
    assert (
        "1 row (100.0 % of the time) without a share of the peak, since most of their time has no model, "
        "or no peak for its element type"
    ) in result.notes


def test_nothing_rests_on_inexact_models():
    """How long the cached contexts are isn't recorded: neither a point, nor utilization, nor a finding."""
    made = Rank()
    product(made, 0, (0, 1000))
    op = made.op("vllm::unified_attention_with_output", 1, 2, inputs=inputs([888, 8, 64], [888, 1, 64], [888, 1, 64]))
    made.kernel("kernel_unified_attention_3d", 1000, 9000, parent=op)
    result = ops(made.build(), options=Options(system=H100))
    assert result.table.select("kind", "exact", "flop_count").rows() == [
        ("attention", False, 4 * 888 * 8 * 64), ("gemm", True, FLOP),
    ]  # fmt: skip
    (step,) = result.steps.select("flop_count", "exact_flop_count", "mfu").rows()
    assert step == (FLOP + 4 * 888 * 8 * 64, FLOP, pytest.approx(FLOP / 66.9e12 / 9e-6))
    texts = [finding.text for finding in result.findings]
    assert texts[0] == "model FLOP utilization at least 0.0 % of the peaks"
    assert [text.split()[0] for text in texts[1:]] == ["aten::mm:"]
    assert [trace["name"] for trace in result.plot().data] == ["gemm", "roofline fp32"]
    (note,) = (note for note in result.notes if "column exact" in note)
    assert note.startswith("models of 88.9 % of the time assume something that wasn't recorded (column exact)")


def test_nothing_at_all():
    result = ops(Rank().build(), options=Options(system=H100))
    assert (result.table.height, result.steps.height, result.findings) == (0, 0, ())
    assert result.notes[-1] == "no activity in the chosen iterations"
