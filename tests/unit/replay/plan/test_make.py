"""Traces of a few calls, and the plans made of them."""

import time
from dataclasses import replace

import pytest

from chakra_et.errors import ReplayError
from chakra_et.ir import NodeType, ProcessGroup
from chakra_et.replay.communications.find import Communications
from chakra_et.replay.plan.make import make_plan
from chakra_et.replay.plan.steps import Communicate, Delay, OpCall, Slot, View, Wait
from chakra_et.replay.plan.tables import peak_bytes, written_storages

from ..building import Calls, allreduce, tensor


def names(plan):
    return [step.name if isinstance(step, OpCall | Delay) else type(step).__name__ for step in plan.steps]


def test_arguments_and_results_are_bound():
    calls = Calls()
    calls.add("aten::add", [tensor(1, 1, (2, 3)), tensor(2, 2, (3,)), 2], [tensor(3, 3, (2, 3))])
    calls.add("aten::mul_", [tensor(3, 3, (2, 3)), tensor(2, 2, (3,))], [tensor(3, 3, (2, 3))])
    plan = make_plan(calls.build())
    add, mul = plan.steps
    assert (add.arguments, add.results) == ((Slot(0), Slot(1), 2), (Slot(2),))
    assert (mul.arguments, mul.results) == ((Slot(2), Slot(1)), (None,))
    assert [(one.first, one.last) for one in plan.tensors] == [(-1, 0), (-1, 1), (0, 1)]
    assert [one.size_bytes for one in plan.storages] == [24, 12, 24]
    assert peak_bytes(plan) == 60
    assert written_storages(plan) == frozenset()


def test_what_is_there_from_the_start_and_written_to_is_known():
    calls = Calls()
    calls.add("aten::mul_", [tensor(3, 3, (4,)), tensor(2, 2, (4,))], [tensor(3, 3, (4,))])
    assert written_storages(make_plan(calls.build())) == {0}


def test_the_topmost_operator_is_called():
    calls = Calls()
    outer = calls.add("aten::add", [tensor(1, 1, (4,)), tensor(2, 2, (4,)), 1], [tensor(3, 3, (4,))])
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(4, 4, (4,))], parent=outer)
    assert names(make_plan(calls.build())) == ["aten::add"]


def test_what_has_no_schema_is_passed_through():
    calls = Calls()
    node = calls.add("autograd::engine::evaluate_function: ReluBackward0")
    inner = calls.add("ReluBackward0", parent=node)
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(4, 4, (4,))], parent=inner)
    assert names(make_plan(calls.build())) == ["aten::relu"]


def test_an_operator_whose_inner_tensor_is_used_later_is_taken_apart():
    def trace(*, later):
        calls = Calls()
        whole = calls.add("aten::dropout", [tensor(1, 1, (4,)), 0.1, True], [tensor(5, 5, (4,))])
        calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(4, 4, (4,))], parent=whole)
        calls.add("aten::add", [tensor(1, 1, (4,)), tensor(4, 4, (4,)), 1], [tensor(5, 5, (4,))], parent=whole)
        calls.add("aten::mul_", [tensor(5, 5, (4,)), tensor(*later, (4,))], [tensor(5, 5, (4,))])
        return make_plan(calls.build())

    assert names(trace(later=(4, 4))) == ["aten::relu", "aten::add", "aten::mul_"]
    assert names(trace(later=(1, 1))) == ["aten::dropout", "aten::mul_"]


def test_a_call_on_python_tensors_gives_way_to_that_on_the_data():
    calls = Calls()
    outer = calls.add("aten::add", [tensor(1, 9, (8,)), tensor(2, 9, (8,)), 1], [tensor(3, 9, (8,))])
    calls.add("aten::add", [tensor(4, 4, (4,)), tensor(5, 5, (4,)), 1], [tensor(6, 6, (4,))], parent=outer)
    plan = make_plan(calls.build())
    assert [plan.tensors[slot.index].shape for slot in plan.steps[0].arguments[:2]] == [(4,), (4,)]


def test_a_view_that_no_call_made_is_a_step():
    calls = Calls()
    calls.add("aten::relu", [tensor(1, 1, (8,))], [tensor(2, 2, (8,))])
    calls.add("aten::relu", [tensor(3, 2, (4,), offset=4)], [tensor(4, 4, (4,))])
    plan = make_plan(calls.build())
    assert names(plan) == ["aten::relu", "View", "aten::relu"]
    view = plan.steps[1]
    assert isinstance(view, View)
    # Its base lives until it is made.
    assert plan.tensors[view.base].last == 1


def test_kernels_of_compilers_are_delays():
    calls = Calls()
    calls.add("triton_poi_fused_add_0", duration=700)
    plan = make_plan(calls.build())
    (delay,) = plan.steps
    assert (delay.name, delay.duration_ns) == ("triton_poi_fused_add_0", 700)
    assert "no schema" in delay.reason


def test_kernels_that_nothing_else_stands_for_are_delays():
    calls = Calls()
    node = calls.add("FusedNorm", duration=300)
    calls.builder.add("norm_kernel", NodeType.COMP_NODE, parent=node, start_ns=5000, duration_ns=900, stream=7)
    (delay,) = make_plan(calls.build()).steps
    assert (delay.name, delay.duration_ns, delay.device_ns) == ("FusedNorm", 300, 900)


def test_objects_of_the_process_cannot_be_passed():
    calls = Calls()
    opaque = ("<Object>", [], "Object")
    calls.add("mylib::secret", [opaque], [])
    (delay,) = make_plan(calls.build()).steps
    assert delay.reason == "its argument 'self' is an object that only the recorded process had"


def test_times_between_calls():
    calls = Calls()
    calls.marker(3, 2000)
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))], gap=50, duration=100)
    outer = calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))], gap=70, duration=10)
    # A later segment of the call, and of what it calls.
    calls.add("aten::relu", parent=outer, duration=30, segment=1, op_schema=None)
    plan = make_plan(calls.build())
    assert [(step.gap_ns, step.duration_ns) for step in plan.steps] == [(50, 100), (70, 40)]
    (iteration,) = plan.iterations
    assert (iteration.number, iteration.duration_ns, iteration.tail_ns) == (3, 2000, 2000 - 260)


def test_iterations_are_chosen_by_number():
    calls = Calls()
    for number in (3, 4):
        calls.marker(number, 200)
        calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))], gap=10)
        calls.clock += 100
    trace = calls.build()
    assert [one.number for one in make_plan(trace).iterations] == [3, 4]
    assert [one.number for one in make_plan(trace, iterations=[4]).iterations] == [4]
    with pytest.raises(ReplayError, match="expected an iteration to replay, got 7; there are: #3, #4"):
        make_plan(trace, iterations=[7])


@pytest.mark.parametrize(
    ("window", "expected"),
    [({"step_before_ns": 1500.6}, 1500), ({"step_before_ns": None}, None), ({"step_before_ns": "1"}, None), ([], None)],
)
def test_the_step_of_the_job_is_the_captures(window, expected):
    calls = Calls()
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))])
    trace = calls.build()
    sources = ({"kind": "kineto"}, {"kind": "manifest", "window": window})
    trace = replace(trace, metadata=replace(trace.metadata, sources=sources))
    assert make_plan(trace).job_step_ns == expected


def test_nothing_to_replay_is_an_error():
    calls = Calls()
    calls.add("forward")
    with pytest.raises(ReplayError, match="expected operators with a schema"):
        make_plan(calls.build())


def communicating(**changes):
    """A call, a communication (in place, on the call's result), a call, one that uses the result, one more."""
    calls = Calls(process_groups=[ProcessGroup("0", (0, 1), 2)])
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))])
    listed = ([[2, 2, 0, 4, 4, "cpu"]], [[4]], "GenericList[Tensor(float)]")
    objects = [("<Object>", [], "Object")] * 2
    row = calls.add("c10d::allreduce_", [listed, *objects, None, True, -1], [listed, ("<Object>", [], "Object")])
    for _ in range(3):
        calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(3, 3, (4,))], gap=500)
    times = {"start_ns": 1100, "end_ns": 1200, "comm_start_ns": 1150, "duration_ns": 1000}
    call = allreduce(node=row, row=row, comm_row=row, **times, **changes)
    return make_plan(calls.build(), communications=Communications((call,), ()))


def test_a_communication_gets_the_tensors_of_its_call():
    plan = communicating(asynchronous=False)
    assert names(plan)[:3] == ["aten::relu", "Communicate", "Wait"]
    communicate = plan.steps[1]
    assert isinstance(communicate, Communicate)
    assert communicate.inputs == communicate.outputs == (plan.steps[0].results[0].index,)
    assert plan.tensors[communicate.inputs[0]].last == 2


def test_waits_stand_where_they_were():
    assert names(communicating(asynchronous=True, wait_row=3))[1:5] == [
        "Communicate",
        "aten::relu",
        "Wait",
        "aten::relu",
    ]
    assert names(communicating(asynchronous=True, wait_row=None))[-1] == "Wait"


def test_a_wait_takes_until_its_communication_is_over():
    # It returned at 1200; the next call starts at 1700, the communication ends at 2150.
    plan = communicating(asynchronous=False)
    wait, after = plan.steps[2:4]
    assert isinstance(wait, Wait)
    assert (wait.gap_ns, wait.duration_ns, after.gap_ns) == (0, 500, 0)
    # Two calls later (2300): the wait ended with the communication.
    plan = communicating(asynchronous=True, wait_row=3)
    wait, after = plan.steps[3:5]
    assert (wait.duration_ns, after.gap_ns) == (2150 - 1800, 2300 - 2150)


def test_what_a_communication_does_on_its_thread_is_part_of_it():
    calls = Calls()
    row = calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))])
    start = {"start_ns": 1010, "duration_ns": 500, "is_cpu_op": True, "tid": 9}
    calls.builder.add("gloo:all_reduce", NodeType.COMM_COLL_NODE, parent=row, **start)
    calls.add("aten::relu", [tensor(2, 2, (4,))], [tensor(3, 3, (4,))], tid=9)
    plan = make_plan(calls.build(), communications=Communications((), ()))
    assert names(plan) == ["aten::relu"]


def test_sends_and_receives_use_the_recorded_tensors():
    calls = Calls()
    listed = ([[3, 3, 0, 4, 4, "cpu"]], [[4]], "GenericList[Tensor(float)]")
    schema = "c10d::{}(Tensor[] tensors, ProcessGroup process_group, int {}, int tag) -> Work"
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(3, 3, (4,))])
    rows = [
        calls.add(f"c10d::{name}", [listed, ("<Object>", [], "Object"), 1, 0], op_schema=schema.format(name, peer))
        for name, peer in (("send", "dst"), ("recv_", "src"))
    ]
    sent = allreduce(row=rows[0], kind="send", outputs=(), peer=1)
    got = allreduce(row=rows[1], number=1, kind="recv_", inputs=(), peer=1)
    plan = make_plan(calls.build(), communications=Communications((sent, got), ()))
    steps = [step for step in plan.steps if isinstance(step, Communicate)]
    assert [(step.inputs, step.outputs) for step in steps] == [((1,), ()), ((), (1,))]


def test_time_of_two_threads_at_once_is_told_once():
    calls = Calls()
    calls.marker(1, 100)
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))], duration=60)
    calls.clock = 1020
    calls.add("aten::relu", [tensor(3, 3, (4,))], [tensor(4, 4, (4,))], duration=60, tid=2)
    calls.clock = 1030
    calls.add("aten::relu", [tensor(5, 5, (4,))], [tensor(6, 6, (4,))], duration=10, tid=3)
    plan = make_plan(calls.build())
    assert [(step.gap_ns, step.duration_ns) for step in plan.steps] == [(0, 60), (-40, 60), (-10, 10)]
    assert plan.iterations[0].tail_ns == 20


def test_a_wait_at_the_end_of_an_iteration_does_not_take_the_next_one():
    calls = Calls()
    calls.marker(1, 1000)
    listed = ([[1, 1, 0, 4, 4, "cpu"]], [[4]], "GenericList[Tensor(float)]")
    row = calls.add("c10d::allreduce_", [listed, *[("<Object>", [], "Object")] * 2, None, True, -1], duration=500)
    calls.clock = 2000
    marker = calls.marker(2, 1000)
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))], duration=60)
    call = allreduce(
        row=row, asynchronous=True, wait_row=marker, wait_assumed=True, comm_start_ns=1000, duration_ns=400
    )
    plan = make_plan(calls.build(), communications=Communications((call,), ()), iterations=[1])
    first = plan.iterations[0]
    assert sum(step.gap_ns + step.duration_ns for step in plan.steps) + first.tail_ns == first.duration_ns == 1000


def test_a_storage_number_used_again_means_the_later_storage():
    calls = Calls()
    calls.add("aten::relu", [tensor(9, 9, (4,))], [tensor(1, 8, (4,))])
    calls.add("aten::relu", [tensor(9, 9, (4,))], [tensor(2, 8, (4,))])
    calls.add("aten::relu", [tensor(1, 8, (4,))], [tensor(3, 3, (4,))])
    plan = make_plan(calls.build())
    assert names(plan) == ["aten::relu", "aten::relu", "View", "aten::relu"]
    assert plan.tensors[plan.steps[2].result].storage == plan.tensors[plan.steps[1].results[0].index].storage


def test_many_open_communications_are_planned_in_a_moment():
    calls, comms = Calls(), []
    for number in range(3000):
        calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))])
        comms.append(allreduce(row=calls.add("c10d::allreduce_"), number=number, asynchronous=True))
    began = time.process_time()
    plan = make_plan(calls.build(), communications=Communications(tuple(comms), ()))
    assert len(plan.steps) == 9000
    assert time.process_time() - began < 5
