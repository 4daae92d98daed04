"""Phases of generated steps whose times are known, and of real profiles."""

import polars as pl
import pytest

from chakra_et.analysis.options import Options
from chakra_et.analysis.phases import PHASES, phases
from chakra_et.conversion import convert
from chakra_et.errors import InputError
from chakra_et.ir import NodeType, TraceBuilder, TraceSet


class Step:
    """Builds a step: operators in order on threads, each with the kernel that it launches."""

    def __init__(self):
        self.builder = TraceBuilder(rank=0)
        self.correlation = 0

    def mark(self, name, begin, end, parent=None, tid=1):
        more = {} if parent is None else {"parent": parent}
        return self.builder.add(
            name, NodeType.METADATA_NODE, start_ns=begin, span_ns=end - begin, is_cpu_op=True, tid=tid, **more
        )

    def op(self, name, begin, duration=5, parent=None, tid=1, **more):
        if parent is not None:
            more["parent"] = parent
        return self.builder.add(
            name, NodeType.COMP_NODE, start_ns=begin, duration_ns=duration, is_cpu_op=True, tid=tid, **more
        )

    def kernel(self, name, begin, end, parent=None, stream=7, kind=NodeType.COMP_NODE, call=None, **more):
        self.correlation += 1
        if call is not None:
            self.op("cudaLaunchKernel", call[0], 1, parent=call[1], correlation=self.correlation)
        if parent is not None:
            more["parent"] = parent
        return self.builder.add(
            name, kind, start_ns=begin, duration_ns=end - begin, is_cpu_op=False, stream=stream,
            correlation=self.correlation, **more,
        )  # fmt: skip


def rows_of(result, *columns):
    return {row["phase"]: tuple(row[name] for name in columns) for row in result.table.to_dicts()}


def training_step():
    step = Step()
    top = step.mark("ProfilerStep#3", 0, 1000)
    forward = step.mark("## forward ##", 0, 100, top)
    inner = step.op("aten::linear", 10, 5, forward)
    mm = step.op("aten::mm", 11, 3, inner)
    step.kernel("gemm", 100, 200, mm)
    engine = step.op("autograd::engine::evaluate_function: MmBackward0", 200, 50, tid=2)
    back = step.op("MmBackward0", 201, 10, engine, tid=2)
    step.kernel("d_gemm", 250, 400, back)
    step.kernel("d_gemm", 380, 450, back, stream=8)
    reduce = step.op("nccl:all_reduce", 215, 5, engine, tid=2)
    step.kernel(
        "ncclDevKernel_AllReduce", 420, 600, reduce, stream=9, kind=NodeType.COMM_COLL_NODE, comm_type=0, comm_size=64
    )
    optimizer = step.mark("Optimizer.step#Adam.step", 300, 400, top)
    # What an extension launches has no operator: its runtime call stands under the annotation.
    step.kernel("multi_tensor_apply_kernel", 600, 650, call=(310, optimizer))
    step.kernel("Memcpy HtoD", 650, 660, step.op("aten::copy_", 500, 5, top), kind=NodeType.MEM_LOAD_NODE)
    return step.builder.build()


def test_a_training_step_is_told_apart():
    result = phases(training_step(), options=Options(iteration="all"))
    assert result.table["iteration"].unique().to_list() == [3]
    assert rows_of(result, "device_ns", "exclusive_ns", "activities", "launches") == {
        "forward": (100, 100, 1, 0),
        "backward": (200, 170, 2, 0),
        "communication": (180, 150, 1, 0),
        "optimizer": (50, 50, 1, 1),
        "other": (10, 10, 1, 0),
    }
    assert result.table["phase"].to_list() == [name for name in PHASES if name in result.table["phase"].to_list()]
    assert result.table["span_ns"].unique().to_list() == [560]


def test_host_time_of_phases_is_a_union():
    table = rows_of(phases(training_step()), "host_ns")
    assert table["forward"] == (5,)
    assert table["backward"] == (50,)
    assert table["optimizer"] == (1,)
    assert table["communication"] == (None,)


def test_autograd_without_annotations():
    step = Step()
    top = step.mark("ProfilerStep#0", 0, 1000)
    first = step.op("aten::conv2d", 10, 5, top, seq_id=4)
    step.kernel("conv", 50, 60, first)
    between = step.op("aten::detach_copy", 20, 5, top)
    step.kernel("copy", 60, 70, between)
    engine = step.op("autograd::engine::evaluate_function: ConvolutionBackward0", 100, 20, seq_id=4, fw_tid=1, tid=2)
    step.kernel("d_conv", 110, 150, engine)
    # Nothing is above it, but its thread is autograd's own.
    step.kernel("hook", 150, 155, step.op("aten::mul", 125, 2, tid=2))
    step.kernel("update", 200, 230, step.op("aten::_foreach_add_", 300, 5, top))
    step.kernel("metric", 230, 231, step.op("aten::sum", 400, 5, top))
    result = phases(step.builder.build())
    assert rows_of(result, "device_ns") == {
        "forward": (20,), "backward": (45,), "optimizer": (30,), "other": (1,),
    }  # fmt: skip
    assert any("1 host nodes between" in note for note in result.notes)


def test_recomputation_in_the_backward_pass_is_backward():
    step = Step()
    engine = step.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 0, 50)
    step.kernel("gemm", 10, 30, step.op("aten::mm", 1, 5, step.op("aten::linear", 1, 9, engine, seq_id=9)))
    assert rows_of(phases(step.builder.build()), "device_ns") == {"backward": (20,)}


@pytest.mark.parametrize(
    ("name", "phase", "expected"),
    [
        ("execute_context_2(500)_generation_0(0)", "prefill", (500, 2, None)),
        ("execute_10_context_0(sq0sk0sqsq0sqsk0)_generation_5(sq10sk700sqsq10sqsk10)", "decode", (10, 5, 50)),
        ("step[DECODE bs=4]", "decode", (4, 4, 100)),
        ("execute_context_1(50)_generation_4(4)", "mixed", (54, 5, 100)),
    ],
)
def test_inference_steps_have_tokens_and_rates(name, phase, expected):
    step = Step()
    top = step.mark(name, 0, 100)
    step.kernel("gemm", 50, 110, step.op("aten::mm", 10, 5, top))
    step.kernel("cross_device_reduce_1stage", 110, 150, step.op("vllm::all_reduce", 20, 5, top))
    result = phases(step.builder.build())
    found = rows_of(result, "device_ns", "tokens", "requests", "output_token_ns")
    assert found[phase] == (60, *expected)
    assert found["communication"] == (40, None, None, None)
    rate = rows_of(result, "tokens_per_s")[phase][0]
    assert rate == pytest.approx(expected[0] * 1e9 / 100)
    assert any(finding.text.startswith(f"{phase}: ") for finding in result.findings)


@pytest.mark.parametrize(
    ("shape", "phase", "tokens"), [([16, 559], "prefill", 8944), ([4, 1], "decode", 4), ([888], "forward", 888)]
)
def test_tokens_of_unmarked_inference_are_those_of_the_embedding(shape, phase, tokens):
    step = Step()
    top = step.mark("ProfilerStep#0", 0, 100)
    inputs = {"values": "[]", "shapes": f"[[1000,64],{shape}]", "types": "[]"}
    op = step.op("aten::embedding", 10, 5, top, inputs=inputs)
    step.op("aten::embedding", 15, 5, top, inputs=inputs | {"shapes": "[[100,64],[7,7]]"})
    step.kernel("gather", 50, 60, op)
    result = phases(step.builder.build())
    assert rows_of(result, "tokens") == {phase: (tokens,)}
    assert any("embedding" in note for note in result.notes)


@pytest.mark.parametrize("shapes", ["[]", "nonsense", "[[1000,64]]", '[[1000,64],"x"]', "{}"])
def test_strange_shapes_tell_no_tokens(shapes):
    step = Step()
    op = step.op("aten::embedding", 10, 5, inputs={"values": "[]", "shapes": shapes, "types": "[]"})
    step.kernel("gather", 50, 60, op)
    assert rows_of(phases(step.builder.build()), "tokens") == {"forward": (None,)}


def test_kernels_without_operators_have_no_phase():
    step = Step()
    step.kernel("gemm", 50, 60)
    result = phases(step.builder.build())
    assert rows_of(result, "device_ns") == {"other": (10,)}
    assert any("no phase" in note for note in result.notes)


def test_a_trace_without_anything_is_an_empty_table():
    result = phases(TraceBuilder(rank=0).build())
    assert result.table.is_empty()
    assert result.layers.is_empty()
    assert result.as_dict()["rows"] == []
    assert result.plot().data == ()


def test_a_host_only_rank_is_measured_by_its_operators():
    step = Step()
    top = step.mark("ProfilerStep#0", 0, 100)
    forward = step.mark("## forward ##", 0, 30, top)
    step.op("aten::mm", 0, 30, forward)
    step.op("autograd::engine::evaluate_function: MmBackward0", 30, 40, top)
    step.builder.add(
        "gloo:all_reduce", NodeType.COMM_COLL_NODE, start_ns=60, duration_ns=30, is_cpu_op=True, tid=9, comm_type=0
    )
    found = rows_of(phases(step.builder.build()), "device_ns", "exclusive_ns", "host_ns")
    assert found == {"forward": (30, 30, 30), "backward": (40, 30, 40), "communication": (30, 20, 30)}


def layered(*, module=False, rank=0):
    """A step of 4 layers, with modules or without, the third of which is slow."""
    step = Step()
    step.builder = TraceBuilder(rank=rank)
    top = step.mark("ProfilerStep#0", 0, 10_000)
    time = 1000
    for k in range(4):
        for part in ("norm", "qkv", "attention", "proj", "add"):
            path = {"module": f"Model_0/Block_{k}/{part}_{k}"} if module else {}
            op = step.op(f"aten::{part}", len(step.builder._rows) * 10, 5, top, **path)
            length = 300 if k == 2 and part == "attention" else 20
            step.kernel(part, time, time + length, op)
            if part == "proj":
                step.kernel("ncclDevKernel_AllReduce", time, time + 10, op, 9, NodeType.COMM_COLL_NODE, comm_type=0)
            time += length
    return step.builder.build()


def test_layers_of_modules():
    result = phases(layered(module=True))
    assert result.layer_source == "modules"
    assert result.layers.select(
        "layer", "module_type", "device_ns", "compute_ns", "communication_ns", "activities"
    ).rows() == [(f"Block_{k}", "Block", 380 if k == 2 else 100, 380 if k == 2 else 100, 10, 6) for k in range(4)]
    slow = next(finding for finding in result.findings if "Block_2" in finding.text)
    assert slow.cost_ns == 280
    assert "3.8 times" in slow.text


def test_layers_of_repeats_take_what_was_launched_meanwhile():
    result = phases(layered())
    assert result.layer_source == "repeats"
    assert result.layers["layer"].to_list() == [f"forward repeat {k}" for k in range(4)]
    assert result.layers["device_ns"].to_list() == [100, 100, 380, 100]
    assert result.layers["communication_ns"].to_list() == [10] * 4


def test_layers_of_annotations():
    step = Step()
    for k in range(3):
        mark = step.mark(f"layer_{k}", k * 100, k * 100 + 90)
        step.kernel(f"kernel_{k}", k * 100 + 50, k * 100 + 80, step.op(f"aten::op{k}", k * 100, 5, mark))
    result = phases(step.builder.build())
    assert result.layer_source == "annotations"
    assert result.layers.select("layer", "module_type", "device_ns").rows() == [
        (f"layer_{k}", "layer", 30) for k in range(3)
    ]


def test_backward_operators_run_in_the_module_of_their_forward_operator():
    step = Step()
    top = step.mark("ProfilerStep#0", 0, 1000)
    for k in range(2):
        op = step.op("aten::mm", 10 * k, 5, top, seq_id=k, module=f"Net_0/Block_{k}")
        step.kernel("gemm", 100 + 20 * k, 120 + 20 * k, op)
    for k in (1, 0):
        engine = step.op("autograd::engine::evaluate_function: MmBackward0", 50 - 10 * k, 5, tid=2, seq_id=k, fw_tid=1)
        step.kernel("d_gemm", 250 - 50 * k, 290 - 50 * k, engine)
    layers = phases(step.builder.build()).layers.sort("layer")
    assert layers.select("layer", "forward_ns", "backward_ns").rows() == [("Block_0", 20, 40), ("Block_1", 20, 40)]


def test_findings_on_the_phases_proportions():
    step = Step()
    step.kernel("gemm", 0, 100, step.op("aten::mm", 0, 5, step.mark("## forward ##", 0, 10)))
    step.kernel("d_gemm", 100, 700, step.op("MmBackward0", 10, 5))
    step.kernel("adam", 700, 1000, step.op("aten::add_", 20, 5, step.mark("## optimizer ##", 20, 30)))
    texts = [finding.text for finding in phases(step.builder.build()).findings]
    assert any("6.0 times the forward pass" in text for text in texts)
    assert any("30.0 %" in text for text in texts)


def test_the_plot_adds_up_to_the_span():
    result = phases(training_step())
    bars = result.plot().data
    assert {bar["name"] for bar in bars} >= {"forward", "backward", "optimizer", "communication"}
    assert sum(sum(bar["x"]) for bar in bars) == pytest.approx(result.table["span_ns"][0])


def test_the_bundled_sample(sample):
    result = phases(convert(sample).traces, options=Options(iteration="all"))
    assert result.table.height
    assert not result.table["tokens_per_s"].is_nan().any()
    assert (result.table["exclusive_ns"] <= result.table["device_ns"]).all()
    assert (result.table["device_ns"] <= result.table["span_ns"]).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kineto/nccl_2rank_a100.json.gz", {"forward", "backward", "optimizer", "communication"}),
        ("kineto/diff_control_a100.json.gz", {"forward", "backward", "optimizer", "communication", "other"}),
        ("kineto/eager_8rank_b200.json.gz", {"prefill", "communication"}),
        ("kineto/qwen_h100.json.gz", {"prefill"}),
        ("megatron-tp8-a100", {"forward", "communication"}),
    ],
)
def test_real_profiles(repository, name, expected):
    path = repository.parent / "shared" / "traces" / name
    if not path.exists():
        pytest.skip("the folder of real profiles is absent")
    result = phases(next(iter(convert(path).traces)))
    assert set(result.table["phase"]) == expected
    layers = {
        "kineto/eager_8rank_b200.json.gz": ("modules", "TransformerBlock", 36),
        "kineto/qwen_h100.json.gz": ("modules", "Qwen2DecoderLayer", 24),
        "megatron-tp8-a100": ("repeats", "forward repeat", 40),
    }
    if name in layers:
        source, kind, count = layers[name]
        assert result.layer_source == source
        assert result.layers.filter(pl.col("module_type") == kind).height == count


def steps_of(*optimizers):
    """Steps of 100 ns: forward for 30, a collective from 20 to 60, and the optimizer for as long as told, or not."""
    step = Step()
    for number, optimizer in enumerate(optimizers):
        begin = number * 100
        top = step.mark(f"ProfilerStep#{number}", begin, begin + 100)
        forward = step.mark("## forward ##", begin, begin + 9, top)
        op = step.op("aten::mm", begin + 1, 5, forward)
        step.kernel("gemm", begin, begin + 30, op)
        step.kernel("ncclDevKernel_AllReduce", begin + 20, begin + 60, op, 9, NodeType.COMM_COLL_NODE, comm_type=0)
        if optimizer:
            update = step.mark("## optimizer ##", begin + 10, begin + 20, top)
            step.kernel("adam", begin + 60, begin + 60 + optimizer, step.op("aten::add_", begin + 11, 5, update))
    return step.builder.build()


def by(source, *keys):
    return phases(source, options=Options(iteration="all", by=keys))


def test_rows_by_phase_are_means_of_the_steps_in_which_it_runs():
    found = by(steps_of(10, 0, 20), "phase")
    assert found.table.columns[:2] == ["phase", "steps"]
    assert found.table.select("phase", "steps", "device_ns", "exclusive_ns", "activities").rows() == [
        ("forward", 3, 30, 20, 1.0),
        ("optimizer", 2, 15, 15, 1.0),
        ("communication", 3, 40, 30, 1.0),
    ]
    assert found.parameters["by"] == ["phase"]
    assert found.each.equals(phases(steps_of(10, 0, 20), options=Options(iteration="all")).table)
    assert found.plot() == phases(steps_of(10, 0, 20), options=Options(iteration="all")).plot()


def test_without_the_phase_what_overlaps_is_not_added_up():
    found = by(steps_of(10, 0, 20), "rank").table
    assert found.select("rank", "steps", "exclusive_ns", "activities").rows() == [(0, 3, 60, pytest.approx(8 / 3))]
    assert not {"device_ns", "host_ns", "phase", "iteration"} & set(found.columns)
    each = by(steps_of(10, 0, 20), "iteration").table
    assert each.select("iteration", "steps", "exclusive_ns").rows() == [(0, 1, 60), (1, 1, 50), (2, 1, 70)]


def test_rates_by_phase_are_those_of_all_its_tokens():
    step = Step()
    for number, (tokens, end) in enumerate(((100, 100), (300, 400))):
        top = step.mark(f"execute_context_1({tokens})_generation_0(0)", number * 100, number * 100 + 90)
        step.kernel("gemm", number * 100 + 50, number * 100 + 50 + end, step.op("aten::mm", number * 100, 5, top))
    each = phases(step.builder.build(), options=Options(iteration="all")).table
    spans = each["span_ns"].to_list()
    assert each["tokens"].to_list() == [100, 300]
    found = by(step.builder.build(), "phase").table.row(0, named=True)
    assert (found["tokens"], found["steps"], found["span_ns"]) == (200.0, 2, sum(spans) // 2)
    assert found["tokens_per_s"] == pytest.approx(400e9 / sum(spans))
    assert found["output_token_ns"] is None


def test_rows_by_layer_say_which_computes_longest():
    found = by(layered(module=True), "layer").table
    assert found.select("layer", "steps", "compute_ns", "communication_ns").rows() == [
        ("Block_2", 1, 380, 10), *((f"Block_{k}", 1, 100, 10) for k in (0, 1, 3)),
    ]  # fmt: skip
    kinds = by(layered(module=True), "rank", "module_type").table
    assert kinds.select("rank", "module_type", "steps", "compute_ns", "activities").rows() == [(0, "Block", 1, 680, 24)]
    two = TraceSet((layered(module=True), layered(module=True, rank=1)))
    assert by(two, "layer").table.select("steps", "compute_ns").row(0) == (2, 380)
    assert by(two, "rank", "layer").table["rank"].to_list() == [0] * 4 + [1] * 4
    assert by(training_step(), "layer").table.is_empty()


def test_a_layer_that_waits_is_not_slow():
    step = Step()
    for k in range(4):
        op = step.op("aten::mm", k * 10, 5, module=f"Model_0/Block_{k}/Linear_{k}")
        step.kernel("gemm", 1000 * k, 1000 * k + 100, op)
        wait = 900 if k == 2 else 50
        end = 1000 * k + 100 + wait
        step.kernel("ncclDevKernel_AllReduce", 1000 * k + 100, end, op, 9, NodeType.COMM_COLL_NODE, comm_type=0)
    found = phases(step.builder.build())
    assert found.layers["device_ns"].to_list() == [150, 150, 1000, 150]
    assert not any("Block_2" in finding.text for finding in found.findings)
    slow = phases(layered(module=True)).findings
    assert any(
        finding.text == "layer Block_2 computes for 380 ns a step, 3.8 times the median Block (100 ns)"
        for finding in slow
    )


@pytest.mark.parametrize(
    ("world_size", "more"), [(None, ""), (8, "; ranks that share tokens aren't told apart")]
)  # fmt: skip
def test_tokens_are_those_of_a_step_and_no_rank_s(world_size, more):
    step = Step()
    step.builder = TraceBuilder(rank=0, world_size=world_size)
    top = step.mark("execute_context_2(500)_generation_0(0)", 0, 100)
    step.kernel("gemm", 50, 150, step.op("aten::mm", 10, 5, top))
    texts = [finding.text for finding in phases(step.builder.build()).findings]
    assert texts == [f"prefill: a step of 500 tokens takes 100 ns, 5,000,000,000 tokens/s{more}"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("op",), "by: expected one or more of rank, iteration, phase, layer, module_type, got 'op'; leave it out"),
        (("rank", "phase", "layer"), "by: expected phase or layer, got both; leave out phase: "),
        ((), "by: expected one or more of rank, iteration, phase, layer, module_type, got nothing; leave it out"),
    ],
)
def test_keys_that_make_no_rows_are_refused(keys, said):
    with pytest.raises(InputError) as err:
        by(training_step(), *keys)
    assert str(err.value).startswith(said)
