"""The report, from times written by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from chakra_et.replay.comparison import accuracy
from chakra_et.replay.plan.steps import Communicate, Delay, Iteration, OpCall, Plan, Wait
from chakra_et.replay.run import RankResult

from .building import allreduce


def result(*, has_times=True, **changes):
    steps = (
        OpCall(1, "aten::mm", "", (), (), 10, 100, 1000),
        OpCall(2, "aten::mm", "", (), (), 0, 60, 500),
        Communicate(allreduce(duration_ns=70), (), (), 0, 20),
        Wait(0, 0, 50),
        Delay(3, "triton_add", "it has no schema", 10, 40, 500),
        Delay(4, "nccl:send", "its peer is unknown", 0, 5),
        OpCall(5, "lib::gone", "", (), (), 0, 5),
    )
    plan = Plan(3, 4, steps, (Iteration(7, 0, 7, 0, 300, 0),), (), (), has_times=has_times)
    ends = np.cumsum([[120, 60, 20, 50, 40, 5, 5], [100, 40, 20, 50, 40, 5, 5]], axis=1)
    starts = np.concatenate([[[0], [0]], ends[:, :-1]], axis=1)
    known = {
        "rank": 3, "plan": plan, "host_time": "gaps", "starts": starts, "ends": ends,
        "iterations": np.array([[[0, 330]], [[0, 270]]]),
        "communications": (np.array([[0, 10, 90]]), np.array([[0, 10, 70]])),
        "skipped": {6: "no such operator is registered here"},
    }  # fmt: skip
    return RankResult(**{**known, **changes})


def test_iterations_and_the_whole():
    told = accuracy(result())
    (iteration,) = told.iterations
    assert (iteration.number, iteration.recorded_ns, iteration.replayed_ns) == (7, 300, 300)
    assert (iteration.fastest_ns, iteration.slowest_ns, iteration.error) == (270, 330, 0.0)
    assert (told.recorded_ns, told.replayed_ns, told.error) == (300, 300, 0.0)


def test_operators():
    told = accuracy(result())
    (mm,) = told.by_operator
    assert (mm.name, mm.count, mm.recorded_ns, mm.replayed_ns) == ("aten::mm", 2, 160, 160)
    assert (mm.p50_ns, mm.p99_ns) == (80, 119)
    assert (told.operators_recorded_ns, told.operators_replayed_ns) == (160, 160)


def test_coverage_counts_operators_alone():
    told = accuracy(result())
    # Two are called; a kernel and an unknown operator are not; the send is no operator.
    assert (told.operators_called, told.operators, told.coverage) == (2, 4, 0.5)
    assert told.coverage_of_time == pytest.approx(160 / (160 + 40 + 5))
    assert told.coverage_of_device_time == pytest.approx(1500 / 2000)


def test_everything_left_out_has_its_reason():
    told = accuracy(result(replaced={1: "it returned no tensor"}))
    assert [(one.name, one.reason, one.count, one.nodes) for one in told.skipped] == [
        ("triton_add", "it has no schema", 1, (3,)),
        ("lib::gone", "no such operator is registered here", 1, (5,)),
        ("nccl:send", "its peer is unknown", 1, (4,)),
    ]
    assert [(one.name, one.reason, one.nodes) for one in told.replaced] == [("aten::mm", "it returned no tensor", (2,))]


def test_communications():
    (one,) = accuracy(result()).communications
    assert (one.kind, one.group, one.recorded_ns, one.replayed_ns) == ("allreduce_", "0", 70, 70)
    assert (one.fastest_ns, one.slowest_ns) == (60, 80)


def test_a_trace_without_times_has_no_error():
    told = accuracy(result(has_times=False))
    assert (told.error, told.iterations[0].error) == (None, None)
    assert "recorded (" not in told.headline


def test_the_headline():
    assert accuracy(result()).headline == (
        "rank 3: a step takes 300 ns where 300 ns were recorded (+0.0%); 2 of 4 operators called "
        "(78.0% of their recorded time), in 160 ns instead of 160 ns"
    )
    assert "calls paced as recorded" in accuracy(result(host_time="measured")).headline


def test_the_job_before_it_was_recorded():
    found = result()
    told = accuracy(result(plan=replace(found.plan, job_step_ns=200)))
    assert (told.job_step_ns, accuracy(found).job_step_ns) == (200, None)
    assert ", and 200 ns in the job before it was recorded (+50.0%); 2 of 4" in told.headline


def test_it_is_plain_data():
    told = json.loads(json.dumps(accuracy(result()).as_dict()))
    assert told["headline"].startswith("rank 3: a step takes")
    assert told["by_operator"][0]["name"] == "aten::mm"
