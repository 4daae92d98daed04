"""The iterations of a job, and how long each takes."""

import pytest

from chakra_et.analysis.iterations import iterations
from chakra_et.analysis.options import Options
from chakra_et.errors import InputError
from chakra_et.ir import TraceSet
from tests.unit.analysis.hand_made import Rank, stepped

KERNELS = ((1, 5, 9), (12, 15, 28), (21, 30, 35))


def rows(source, *columns, **options):
    return iterations(source, options=Options(**options)).table.select(columns).rows()


def test_every_iteration_is_listed_whatever_was_chosen():
    trace = stepped((0, 10), (10, 20), (20, 31), kernels=KERNELS, origin=1000)
    columns = ("iteration", "label", "source", "chosen", "begin_ns", "span_ns", "host_span_ns")
    assert rows(trace, *columns) == [
        (0, "ProfilerStep#0", "profiler_step", False, 0, 10, 10),
        (1, "ProfilerStep#1", "profiler_step", True, 10, 15, 10),
        (2, "ProfilerStep#2", "profiler_step", False, 25, 5, 11),
    ]
    assert rows(trace, "iteration", "chosen", iteration=2) == [(0, False), (1, False), (2, True)]


def test_activities_count_where_they_start():
    trace = stepped((0, 10), (10, 20), (20, 30), kernels=((1, 5, 9), (2, 9, 20), (12, 15, 28), (21, 30, 35)))
    assert [count for (count,) in rows(trace, "activities")] == [2, 1, 1]


def test_a_step_without_activities_is_not_listed():
    result = iterations(stepped((0, 10), (10, 20), (20, 30), kernels=(KERNELS[0], KERNELS[2])))
    assert result.table["iteration"].to_list() == [0, 2]
    assert result.notes == ("rank 0: 1 iteration that run nothing are left out",)
    assert iterations(stepped((0, 10), kernels=KERNELS[:1])).notes == ()


def test_the_whole_profile():
    trace = stepped((0, 10), (10, 20), kernels=KERNELS[:2])
    columns = ("iteration", "label", "source", "kind", "begin_ns", "span_ns", "host_span_ns", "activities")
    expected = (None, "whole profile", "", None, 0, 23, None, 2)
    assert rows(trace, *columns, iteration="whole") == [expected]
    assert rows(stepped(kernels=KERNELS[:2]), *columns) == [expected]


def test_steps_on_the_host_where_there_is_no_device():
    made = Rank()
    for number in range(2):
        made.step(number, 10 * number, 10 * number + 8)
        made.op("aten::mm", 10 * number + 2, 10 * number + 5)
    assert rows(made.build(), "iteration", "begin_ns", "span_ns", "host_span_ns") == [(0, 0, 8, 8), (1, 10, 8, 8)]


def served(*marks):
    made = Rank()
    for number, mark in enumerate(marks):
        made.mark(mark, 10 * number, 10 * number + 10)
        made.call(number, 10 * number + 1, 10 * number + 2)
        made.kernel("gemm", 10 * number + 3, 10 * number + 6, correlation=number)
    return made.build()


def test_requests_and_tokens_of_a_serving_engine():
    trace = served("execute_context_2(300)_generation_0(0)", "execute_context_0(0)_generation_2(2)",
                   "execute_context_1(40)_generation_2(2)")  # fmt: skip
    columns = ("source", "kind", "context_requests", "context_tokens", "generation_requests", "generation_tokens")
    assert rows(trace, *columns) == [
        ("vllm", "prefill", 2, 300, 0, 0),
        ("vllm", "decode", 0, 0, 2, 2),
        ("vllm", "mixed", 1, 40, 2, 2),
    ]


def test_ranks_have_their_own():
    source = TraceSet((stepped((0, 10), kernels=KERNELS[:1]), stepped((0, 10), (10, 20), kernels=KERNELS[:2], rank=1)))
    assert rows(source, "rank", "iteration", "span_ns") == [(0, 0, 4), (1, 0, 10), (1, 1, 13)]


def test_how_long_a_step_takes():
    kernels = tuple((10 * number + 1, 10 * number + 3, 10 * number + 9) for number in range(7))
    steps = tuple((10 * number, 10 * number + 10) for number in range(7))
    assert [finding.text for finding in iterations(stepped(*steps, kernels=kernels)).findings] == [
        "a step takes 10 ns on average over 5 iterations (10 ns to 10 ns)"
    ]


def test_one_step_of_several_ranks():
    source = TraceSet((stepped((0, 10), kernels=KERNELS[:1]), stepped((0, 10), kernels=((1, 5, 11),), rank=1)))
    assert [finding.text for finding in iterations(source).findings] == [
        "a step takes 5 ns on average over 2 ranks (4 ns to 6 ns)"
    ]


def test_a_step_that_stands_out():
    begins = (0, 10, 20, 30, 55, 65)
    kernels = tuple((begin + 1, begin + 3, begin + 9) for begin in begins)
    steps = tuple((begin, begin + 10) for begin in begins)
    found = iterations(stepped(*steps, kernels=kernels)).findings
    assert [(finding.text, finding.cost_ns) for finding in found] == [
        ("a step takes 13 ns on average over 4 iterations (10 ns to 25 ns)", 0),
        # 15 ns, once in 4 steps
        ("iteration 3 of rank 0 takes 150.0 % longer than its median one", 3),
    ]


def test_keys():
    for by in (("name",), ("rank",)):
        with pytest.raises(InputError, match=rf"^by: expected rank, iteration, as its rows always are, got {by[0]}; "):
            iterations(served("x"), options=Options(by=by))
    assert iterations(served("x"), options=Options(by=("iteration", "rank"))).table.height


def test_nothing_at_all():
    result = iterations(Rank().build())
    assert (result.table.height, result.findings, result.plot().data) == (0, (), ())


def test_the_plot_has_a_line_a_rank():
    plot = iterations(stepped((0, 10), (10, 20), (20, 31), kernels=KERNELS)).plot()
    assert [(line["name"], line["x"], line["y"]) for line in plot.data] == [
        ("rank 0", ["0", "1", "2"], [10.0, 15.0, 5.0])
    ]
