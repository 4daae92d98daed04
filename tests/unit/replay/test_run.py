"""Running plans on the CPU: what is called, what is held instead, values, lifetimes, and who communicates."""

import gc

import pytest

from chakra_et.errors import ReplayError
from chakra_et.ir import ProcessGroup
from chakra_et.replay.communications.find import Communications
from chakra_et.replay.comparison import accuracy
from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.plan.make import make_plan
from chakra_et.replay.plan.steps import Communicate, Delay, Iteration, OpCall, Plan, Wait
from chakra_et.replay.run import run_rank

from .building import Calls, allreduce, tensor

pytestmark = pytest.mark.usefixtures("torch")
FAST = ReplayOptions(only="compute", host_time="none", repeats=2)


def test_an_operator_that_is_not_registered_is_held_and_listed():
    calls = Calls()
    calls.add("mylib::secret", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))], duration=2_000_000)
    calls.add("aten::relu", [tensor(2, 2, (4,))], [tensor(3, 3, (4,))], duration=100)
    result = run_rank(make_plan(calls.build()), options=FAST)
    assert result.skipped == {0: "no such operator is registered here"}
    assert (result.ends[:, 0] - result.starts[:, 0] >= 2_000_000).all()
    told = accuracy(result)
    assert (told.operators_called, told.operators, told.coverage) == (1, 2, 0.5)
    assert told.coverage_of_time == pytest.approx(100 / 2_000_100)
    (left,) = told.skipped
    assert (left.name, left.count, left.recorded_ns, left.nodes) == ("mylib::secret", 1, 2_000_000, (0,))


def test_an_operator_that_fails_is_held_and_those_behind_it_run():
    calls = Calls()
    calls.add("aten::mm", [tensor(1, 1, (2, 3)), tensor(2, 2, (4, 5))], [tensor(3, 3, (2, 5))])
    calls.add("aten::relu", [tensor(3, 3, (2, 5))], [tensor(4, 4, (2, 5))])
    result = run_rank(make_plan(calls.build()), options=FAST)
    assert list(result.skipped) == [0]
    assert result.skipped[0].startswith("it fails here: mat1 and mat2 shapes cannot be multiplied")


def test_an_operator_of_another_device_says_so():
    calls = Calls()
    calls.add("aten::relu", [tensor(1, 1, (4,), device="cuda:0")], [tensor(2, 2, (4,), device="cuda:0")])
    schema = "aten::_cudnn_ctc_loss(Tensor log_probs) -> Tensor"
    calls.add("aten::_cudnn_ctc_loss", [tensor(1, 1, (4,), device="cuda:0")], [], op_schema=schema)
    result = run_rank(make_plan(calls.build()), options=FAST)
    assert result.skipped == {1: "it has no implementation for cpu"}


def test_shapes_that_depend_on_values_are_replaced():
    calls = Calls()
    calls.add("aten::nonzero", [tensor(1, 1, (8,), "bool")], [tensor(2, 2, (100, 1), "int64")])
    calls.add("aten::relu", [tensor(2, 2, (100, 1), "int64")], [tensor(3, 3, (100, 1), "int64")])
    result = run_rank(make_plan(calls.build()), options=FAST)
    assert list(result.replaced) == [0]
    assert "not [100, 1]" in result.replaced[0]
    assert result.skipped == {}
    assert accuracy(result).replaced[0].name == "aten::nonzero"


def test_passes_start_from_the_same_values(torch):
    calls = Calls()
    values = [tensor(1, 1, (4,)), tensor(2, 2, (4,))]
    calls.add("aten::mul_", values, [values[0]])
    seen = []

    class Looking:
        def prepare(self, plan):
            pass

        def issue(self, call, inputs, outputs):
            seen.append(inputs[0].clone())

        def wait(self, handle):
            pass

        def barrier(self):
            pass

        def collect(self):
            return [(0, 5, 9)]

    listed = ([[1, 1, 0, 4, 4, "cpu"]], [[4]], "GenericList[Tensor(float)]")
    objects = [("<Object>", [], "Object")] * 2
    row = calls.add("c10d::allreduce_", [listed, *objects, None, True, -1], [listed])
    found = Communications((allreduce(row=row, asynchronous=False),), ())
    plan = make_plan(calls.build(), communications=found)
    for seed in (1, 1, 2):
        result = run_rank(plan, Looking(), ReplayOptions(host_time="none", repeats=2, seed=seed))
    one, again, other = seen[:3], seen[3:6], seen[6:]
    assert all(torch.equal(value, one[0]) for value in (*one, *again))
    assert not torch.equal(other[0], one[0])
    assert all(0 < float(value.abs().max()) < 0.1 for value in seen)
    assert [told.tolist() for told in result.communications] == [[[0, 5, 9]]] * 2
    assert accuracy(result).communications[0].replayed_ns == 4


def test_somebody_must_communicate():
    calls = Calls(process_groups=[ProcessGroup("0", (0, 1), 2)])
    row = calls.add("c10d::allreduce_", [], [])
    plan = make_plan(calls.build(), communications=Communications((allreduce(row=row),), ()))
    with pytest.raises(ReplayError, match="expected somebody to make its communications, got nobody"):
        run_rank(plan)
    with pytest.raises(ReplayError, match="expected operators to replay, got none"):
        run_rank(plan, options=ReplayOptions(only="compute"))


def plan_of(*steps, tail=0):
    length = tail + sum(step.gap_ns + step.duration_ns for step in steps)
    return Plan(0, 1, steps, (Iteration(None, 0, len(steps), 0, length, tail),), (), ())


@pytest.mark.parametrize("host_time", ["measured", "gaps"])
def test_time_of_the_host_is_held(host_time):
    plan = plan_of(Delay(1, "a", "x", 3_000_000, 1_000_000), Delay(2, "b", "x", 2_000_000, 1_000_000), tail=500_000)
    result = run_rank(plan, options=ReplayOptions(host_time=host_time, repeats=1))
    begin, end = result.iterations[0, 0]
    assert result.starts[0, 0] - begin >= 3_000_000
    assert result.starts[0, 1] - begin >= 6_000_000
    assert end - begin >= 7_500_000
    assert (end - begin) / 7_500_000 == pytest.approx(accuracy(result).error + 1, rel=1e-6)


def test_calls_that_took_longer_eat_into_the_pauses_behind_them(monkeypatch):
    from chakra_et.replay.backends import program_ops
    from chakra_et.replay.backends.torch_ops import BoundCall

    now = [1000]

    def hold(until):
        now[0] = max(now[0], until)
        return now[0]

    def slow():
        now[0] += 70

    def starts(*, paced):
        now[0] = 1000
        call = BoundCall(slow, (), {}, (), True)
        program = program_ops.Program(plan, {0: call, 1: call, 3: call}, frozenset(), None, None, None, paced=paced)
        return program.run([]).starts

    monkeypatch.setattr(program_ops, "hold", hold)
    monkeypatch.setattr(program_ops.time, "perf_counter_ns", lambda: now[0])
    calls = [OpCall(1, "a", "", (), (), gap, 50) for gap in (200, 240, 230)]
    plan = plan_of(calls[0], calls[1], Wait(0), calls[2])
    # Due 200 and 490 behind the begin; 230 behind the wait, which comes when the second call is over.
    assert starts(paced=True) == [1200, 1490, 1560, 1790]
    assert starts(paced=False) == [1200, 1510, 1580, 1810]


def test_a_profile_of_the_replay_is_told_of_each_iteration():
    class Recording:
        steps = stopped = 0

        def step(self):
            self.steps += 1

        def stop(self):
            self.stopped += 1

    recording = Recording()
    plan = plan_of(Delay(1, "a", "x", 0, 10))
    run_rank(plan, options=ReplayOptions(repeats=3, warmup=4), record=lambda: recording)
    assert (recording.steps, recording.stopped) == (3, 1)


def test_nothing_is_collected_in_a_profile_of_the_replay():
    collected = []

    class Recording:
        def step(self):
            pass

        def stop(self):
            gc.callbacks.remove(tell)

    def tell(phase, info):
        collected.append(phase)

    def record():
        gc.callbacks.append(tell)
        return Recording()

    plan = plan_of(Delay(1, "a", "x", 0, 10))
    run_rank(plan, options=ReplayOptions(repeats=3), record=record)
    assert collected == []
    assert gc.isenabled()


def test_communications_without_delays_are_not_paced():
    def pace(**options):
        class Nobody:
            prepare = issue = wait = staticmethod(lambda *_: None)
            barrier = staticmethod(lambda: None)
            collect = staticmethod(tuple)

        plan = plan_of(Communicate(allreduce(), (), (), gap_ns=10, duration_ns=20))
        return run_rank(plan, Nobody(), ReplayOptions(only="comm", repeats=1, **options)).host_time

    assert (pace(), pace(delays="none"), pace(host_time="gaps")) == ("measured", "none", "gaps")


def test_modules_that_are_not_there():
    plan = plan_of(Delay(1, "a", "x", 0, 10))
    with pytest.raises(ReplayError, match="module no_such_module: expected to import it"):
        run_rank(plan, options=ReplayOptions(modules=("no_such_module",)))


def test_what_fails_in_a_later_pass_is_named():
    from chakra_et.replay.backends.program_ops import Program
    from chakra_et.replay.backends.torch_ops import BoundCall

    def fail():
        raise IndexError("index 9 is out of bounds")

    calls = (OpCall(1, "aten::relu", "", (), ()), OpCall(8, "aten::index", "", (), ()))
    bound = {0: BoundCall(lambda: None, (), {}, (), True), 1: BoundCall(fail, (), {}, (), True)}
    program = Program(plan_of(*calls), bound, frozenset(), None, None, None, paced=False)
    with pytest.raises(
        ReplayError, match=r"rank 0: node 8 \('aten::index'\): it fails in a later pass: index 9 is out"
    ):
        program.run([])


def test_operators_alone_keep_no_tensor_longer_than_they_need_it(monkeypatch):
    from chakra_et.replay.backends.trial_ops import Trial

    calls, comms = Calls(), []
    for number in range(1, 40, 2):
        calls.add("aten::relu", [tensor(number, number, (4,))], [tensor(number + 1, number + 1, (4,))])
        row = calls.add("c10d::allreduce_", [], [])
        comms.append(allreduce(row=row, number=row))
        calls.add("aten::relu", [tensor(number + 1, number + 1, (4,))], [tensor(number + 2, number + 2, (4,))])
    alive = []
    attempt = Trial._try

    def count(trial, place, step, slots):
        attempt(trial, place, step, slots)
        alive.append(sum(slot is not None for slot in slots))

    monkeypatch.setattr(Trial, "_try", count)
    plan = make_plan(calls.build(), communications=Communications(tuple(comms), ()))
    run_rank(plan, options=FAST)
    # What goes in first, a call's argument and its result.
    assert (len(alive), max(alive)) == (40, 3)


def test_how_far_it_is():
    calls = Calls()
    calls.add("aten::relu", [tensor(1, 1, (4,))], [tensor(2, 2, (4,))])
    told = []
    run_rank(make_plan(calls.build()), options=FAST, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3)]
