"""Parts of a plan, and what is held in the place of what is left out."""

from dataclasses import replace

import pytest

from chakra_et.errors import ReplayError
from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.plan.filters import filtered
from chakra_et.replay.plan.steps import (
    Communicate,
    Delay,
    Iteration,
    OpCall,
    Plan,
    Slot,
    Storage,
    TensorSlot,
    View,
    Wait,
)
from chakra_et.replay.plan.tables import peak_bytes

from ..building import allreduce

STEPS = (
    OpCall(1, "aten::relu", "", (), (), gap_ns=1, duration_ns=10),
    View(1, 0),
    Communicate(allreduce(), (0,), (0,), gap_ns=2, duration_ns=20),
    Delay(2, "kernel", "no schema", gap_ns=3, duration_ns=30),
    Wait(0, gap_ns=4, duration_ns=40),
    OpCall(3, "aten::relu", "", (), (), gap_ns=5, duration_ns=50),
)
TENSORS = tuple(TensorSlot(0, 0, (4,), (1,), "float32", "cpu", *span) for span in ((-1, 10), (1, 7)))
PLAN = Plan(0, 2, STEPS * 2, (Iteration(1, 0, 6, tail_ns=6), Iteration(2, 6, 12, tail_ns=7)), TENSORS,
            (Storage(16, "cpu", -1, 10),))  # fmt: skip


def part(**options):
    """The kinds, gaps and lengths of the first iteration's steps, and its tail."""
    plan = filtered(PLAN, ReplayOptions(**options))
    first, second = plan.iterations
    assert (first.begin, second.end) == (0, len(plan.steps))
    assert first.end == second.begin
    steps = plan.steps[: first.end]
    return [(type(one).__name__, getattr(one, "gap_ns", None)) for one in steps], first.tail_ns


def test_all_of_it():
    assert filtered(PLAN, ReplayOptions()) is PLAN
    assert filtered(PLAN, ReplayOptions(host_time="gaps")) is PLAN


def test_a_part_of_a_step_is_not_compared_with_the_job():
    plan = replace(PLAN, job_step_ns=9)
    found = [filtered(plan, options).job_step_ns for options in (
        ReplayOptions(host_time="none"), ReplayOptions(only="compute"), ReplayOptions(only="comm")
    )]  # fmt: skip
    assert found == [9, None, None]


def test_without_the_host():
    steps, tail = part(host_time="none")
    assert [gap for _, gap in steps] == [0, None, 0, 0, 0, 0]
    assert tail == 0


def test_communications_alone_with_the_time_between_them():
    assert part(only="comm") == ([("Communicate", 13), ("Wait", 37)], 6 + 55)
    communicate = filtered(PLAN, ReplayOptions(only="comm")).steps[0]
    assert communicate.inputs == communicate.outputs == ()


def test_communications_alone_without_it():
    assert part(only="comm", delays="none") == ([("Communicate", 0), ("Wait", 0)], 0)


def test_communications_alone_with_the_time_of_operators_but_not_the_host():
    assert part(only="comm", host_time="none") == ([("Communicate", 10), ("Wait", 30)], 50)


def test_operators_alone():
    steps, tail = part(only="compute")
    assert steps == [("OpCall", 1), ("View", None), ("Delay", 5), ("OpCall", 9)]
    assert tail == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"only": "comms"}, "only: expected one of all, compute, comm, got 'comms'"),
        ({"repeats": 0}, "repeats: expected a number from 1 up, got 0"),
        ({"warmup": -1}, "warmup: expected a number from 0 up, got -1"),
    ],
)
def test_options_are_checked(given, message):
    with pytest.raises(ReplayError, match=message):
        ReplayOptions(**given)


def test_tensors_live_as_long_as_the_part_needs_them():
    made = OpCall(1, "aten::relu", "", (Slot(0),), (Slot(1),))
    again = OpCall(2, "aten::neg_", "", (Slot(1),), (None,))
    steps = (Communicate(allreduce(), (2,), (2,)), Wait(0), made, again, made)
    tensors = tuple(
        TensorSlot(slot, 0, (4,), (1,), "float32", "cpu", *span) for slot, span in enumerate([(-1, 4), (2, 4), (-1, 1)])
    )
    storages = tuple(Storage(16, "cpu", one.first, one.last) for one in tensors)
    plan = Plan(0, 2, steps, (Iteration(None, 0, 5),), tensors, storages)
    part = filtered(plan, ReplayOptions(only="compute"))
    assert [(one.first, one.last) for one in part.tensors] == [(-1, 2), (2, 2), (-1, -1)]
    assert [(one.first, one.last) for one in part.storages] == [(-1, 2), (2, 2), (-1, -1)]
    assert (peak_bytes(plan), peak_bytes(part)) == (48, 32)
    assert filtered(plan, ReplayOptions(only="comm")).tensors[0].last == -1
