"""Steps from annotations: formats of engines, and loops of users."""

import pytest

from chakra_et.analysis.markers import STEP_SCHEMA, marked_steps, parse_marker
from chakra_et.ir import NodeType, TraceBuilder


def trace_of(*marks, operators=()):
    """Build a trace: marks are (name, begin, end) or (name, begin, end, thread)."""
    builder = TraceBuilder(rank=0)
    for name, begin, end, *thread in marks:
        builder.add(
            name,
            NodeType.METADATA_NODE,
            start_ns=begin,
            span_ns=end - begin,
            is_cpu_op=True,
            tid=thread[0] if thread else 1,
        )
    for name, begin, duration in operators:
        builder.add(name, NodeType.COMP_NODE, start_ns=begin, duration_ns=duration, is_cpu_op=True, tid=1)
    return builder.build()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "execute_context_1(888)_generation_2(2)",
            ("vllm", "mixed", {"context_requests": 1, "context_tokens": 888, "generation_requests": 2}),
        ),
        ("execute_context_1(888_788544)_generation_0(0)", ("vllm", "prefill", {"context_tokens": 888})),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
            ("vllm", "decode", {"generation_requests": 32, "generation_tokens": 32, "kv_tokens": 55086}),
        ),
        ("execute_new_2_cached_3", ("vllm", "mixed", {"context_requests": 2, "generation_requests": 3})),
        ("step[EXTEND bs=2 toks=107]", ("sglang", "prefill", {"context_requests": 2, "context_tokens": 107})),
        ("step[DECODE bs=4]", ("sglang", "decode", {"generation_requests": 4, "generation_tokens": 4})),
        ("step[DECODE bs=4 toks=8]", ("sglang", "decode", {"generation_requests": 4, "generation_tokens": 8})),
        ("step[MIXED bs=4]", ("sglang", "mixed", {})),
        ("step[TARGET_VERIFY bs=4]", ("sglang", "decode", {"generation_requests": 4})),
        ("step[IDLE bs=0]", ("sglang", "unknown", {})),
        (
            "[Executor] _forward_step 7: 0 ctx reqs, 0 ctx tokens, 32 gen reqs",
            ("tensorrt_llm", "decode", {"iteration": 7, "generation_requests": 32}),
        ),
        (
            "[Executor] _forward_step: 3 ctx reqs, 1 gen reqs",
            ("tensorrt_llm", "mixed", {"context_requests": 3, "generation_requests": 1}),
        ),
    ],
)
def test_markers_of_engines(name, expected):
    engine, kind, fields = expected
    found = parse_marker(name)
    assert found is not None
    assert found[0] == engine
    assert found[1]["kind"] == kind
    assert {key: found[1].get(key) for key in fields} == fields
    assert set(found[1]) <= set(STEP_SCHEMA)


@pytest.mark.parametrize(
    "name", ["execute_model", "step", "step 3", "execute_context", "[Executor] prepare", "aten::mm"]
)
def test_other_names_are_no_markers(name):
    assert parse_marker(name) is None


def test_profiler_steps_come_in_time_order():
    steps = marked_steps(trace_of(("ProfilerStep#8", 100, 200), ("ProfilerStep#7", 0, 90)))
    assert steps.source == "profiler_step"
    assert steps.table.select("iteration", "label", "begin_ns", "end_ns", "kind").rows() == [
        (7, "ProfilerStep#7", 0, 90, "unknown"),
        (8, "ProfilerStep#8", 100, 200, "unknown"),
    ]


def test_a_step_with_gradients_is_training():
    operators = [("autograd::engine::evaluate_function: AddBackward0", 10, 5)]
    assert marked_steps(trace_of(("ProfilerStep#7", 0, 90), operators=operators)).table["kind"].to_list() == [
        "training"
    ]


def test_profiler_steps_take_counts_from_the_marker_inside():
    marks = [("ProfilerStep#0", 0, 100), ("step[DECODE bs=4]", 10, 80), ("ProfilerStep#1", 100, 200)]
    steps = marked_steps(trace_of(*marks))
    assert steps.source == "profiler_step"
    assert steps.table.select("iteration", "kind", "generation_tokens").rows() == [
        (0, "decode", 4),
        (1, "unknown", None),
    ]


def test_an_engine_that_marks_more_steps_than_the_profiler_is_believed():
    marks = [("ProfilerStep#0", 0, 100), ("step[EXTEND bs=1 toks=9]", 5, 40), ("step[DECODE bs=1]", 41, 60)]
    steps = marked_steps(trace_of(*marks))
    assert steps.source == "sglang"
    assert steps.table.select("iteration", "kind").rows() == [(0, "prefill"), (1, "decode")]


def test_a_marker_inside_another_is_no_step():
    marks = [("step[DECODE bs=4]", 0, 100), ("step[DRAFT_EXTEND bs=4]", 10, 20), ("step[DECODE bs=3]", 100, 180)]
    assert marked_steps(trace_of(*marks)).table["generation_requests"].to_list() == [4, 3]


def test_numbers_of_the_executor_are_kept():
    marks = [
        (f"[Executor] _forward_step {k}: 0 ctx reqs, 0 ctx tokens, 2 gen reqs", k * 10, k * 10 + 9) for k in (5, 6)
    ]
    steps = marked_steps(trace_of(*marks))
    assert steps.source == "tensorrt_llm"
    assert steps.table["iteration"].to_list() == [5, 6]


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["step 12", "step 13", "step 14"], [12, 13, 14]),
        (["iteration#3", "iteration#4"], [3, 4]),
        (["## train_step ##"] * 3, [0, 1, 2]),
        (["train_batch[7]", "train_batch[8]"], [7, 8]),
        (["gpu_model_runner: forward"] * 2, [0, 1]),
    ],
)
def test_loops_of_users(names, numbers):
    marks = [(name, k * 100, k * 100 + 90) for k, name in enumerate(names)]
    inner = [("loss", k * 100 + 50, k * 100 + 60) for k in range(len(names))]
    steps = marked_steps(trace_of(*marks, *inner))
    assert steps.source == "annotation"
    assert steps.table["iteration"].to_list() == numbers
    assert steps.table["end_ns"].to_list() == [k * 100 + 90 for k in range(len(names))]


def test_an_annotation_that_covers_most_of_the_time_is_taken_with_a_note():
    marks = [("run cell", k * 100, k * 100 + 95) for k in range(3)]
    steps = marked_steps(trace_of(*marks, ("small", 5, 10), ("small", 20, 30)))
    assert len(steps) == 3
    assert "run cell" in steps.notes[0]


def test_annotations_on_several_threads_or_nested_ones_are_no_steps():
    assert len(marked_steps(trace_of(("work", 0, 90, 1), ("work", 100, 190, 2)))) == 0
    assert len(marked_steps(trace_of(("work", 0, 190), ("work", 10, 180)))) == 0


def test_optimizer_calls_end_steps():
    marks = [("Optimizer.step#SGD.step", k * 100 + 80, k * 100 + 90) for k in range(3)]
    steps = marked_steps(trace_of(*marks, operators=[("aten::mm", 5, 10)]))
    assert steps.source == "optimizer"
    assert steps.table.select("begin_ns", "end_ns").rows() == [(5, 90), (90, 190), (190, 290)]
    assert "Optimizer.step#SGD.step" in steps.notes[0]


def test_a_loader_begins_steps():
    marks = [("enumerate(DataLoader)#Loader.__next__", k * 100, k * 100 + 5) for k in range(2)]
    steps = marked_steps(trace_of(*marks, operators=[("aten::mm", 150, 30)]))
    assert steps.source == "dataloader"
    assert steps.table.select("begin_ns", "end_ns").rows() == [(0, 100), (100, 180)]


def test_no_annotations_no_steps():
    steps = marked_steps(trace_of(operators=[("aten::mm", 0, 5)]))
    assert len(steps) == 0
    assert steps.source == ""
    assert list(steps.table.columns) == list(STEP_SCHEMA)
    assert len(marked_steps(TraceBuilder().build())) == 0


def test_the_bundled_sample_is_marked(sample):
    from chakra_et.conversion import convert

    traces = convert(sample).traces
    for trace in traces:
        steps = marked_steps(trace)
        assert steps.source == "profiler_step"
        assert (steps.table["end_ns"] > steps.table["begin_ns"]).all()
        assert (steps.table["begin_ns"].diff().drop_nulls() > 0).all()
