"""The operators of real traces, planned and replayed."""

from __future__ import annotations

import tarfile

import pytest

import chakra_et as chakra
from chakra_et.replay.comparison import accuracy
from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.plan.filters import filtered
from chakra_et.replay.plan.make import make_plan
from chakra_et.replay.plan.steps import Communicate, Delay, OpCall, Wait
from chakra_et.replay.plan.tables import peak_bytes, slots_in
from chakra_et.replay.run import run_rank
from tests.conftest import ROOT

TRACES = ROOT.parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="../shared/traces is not there")
OPERATORS = ReplayOptions(only="compute", host_time="none", repeats=1, threads=1)
SCHEMAS = (
    "1.0.3_resnet.json.gz", "1.1.0_resnet_2gpu.json.gz", "1.1.0_hf_gpt2.json.tar.gz", "1.1.1_resnet.json.tar.gz",
    "1.1.1_pt2_triton.json.tar.gz", "1.0.2_comms.tgz",
)  # fmt: skip


def host_trace(path, folder):
    """Return the trace of an execution trace, unpacked if need be."""
    if not path.name.endswith((".tgz", ".tar.gz")):
        return chakra.convert(host=path).traces.traces[0]
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (one for one in folder.rglob("*.json") if not one.name.startswith("."))
    return chakra.convert(host=found).traces.traces[0]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_version_can_be_planned(name, tmp_path):
    plan = make_plan(host_trace(TRACES / "pytorch-et-versions" / name, tmp_path))
    assert any(isinstance(step, OpCall) for step in plan.steps)
    assert not plan.has_times
    assert [step for step in plan.steps if isinstance(step, Delay) and not step.reason] == []
    assert peak_bytes(plan) > 0


@pytest.mark.parametrize("name", ["linear-rtx2080ti/linear_et.json.gz", "simple-add-a100/simple_add_et.json.gz"])
def test_gpu_traces_run_on_the_cpu(name):
    pytest.importorskip("torch")
    plan = make_plan(chakra.convert(host=TRACES / name).traces.traces[0])
    assert "cuda:0" in {tensor.device for tensor in plan.tensors}
    told = accuracy(run_rank(plan, options=OPERATORS))
    assert (told.coverage, told.error) == (1.0, None)


def test_operators_that_only_the_profile_has_are_delays():
    host, device = (TRACES / "linear-rtx2080ti" / f"linear_{kind}.json.gz" for kind in ("et", "kineto"))
    plan = make_plan(chakra.convert(host=host, device=device).traces.traces[0])
    delays = [step for step in plan.steps if isinstance(step, Delay)]
    # The profile holds 40 steps, the execution trace one of them.
    assert len(delays) > 8000
    assert {step.reason for step in delays} == {"its arguments were not recorded: the execution trace lacks it"}


@pytest.fixture(scope="module")
def gloo():
    """A function that returns the plan of one iteration of rank 0 of a set."""
    return lambda name: make_plan(chakra.convert(TRACES / name).traces.traces[0], iterations=[4])


@pytest.mark.parametrize("name", ["gloo-ddp2", "gloo-fsdp2"])
def test_every_operator_of_a_step_is_called(gloo, name):
    pytest.importorskip("torch")
    plan = gloo(name)
    told = accuracy(run_rank(plan, options=OPERATORS))
    assert (told.coverage, told.coverage_of_time, told.skipped, told.replaced) == (1.0, 1.0, (), ())
    assert told.operators > 700


@pytest.mark.parametrize(("name", "calls"), [("gloo-ddp2", 5), ("gloo-fsdp2", 10)])
def test_parts_of_a_step_add_up(gloo, name, calls):
    plan = gloo(name)
    communications = sum(isinstance(step, Communicate) for step in plan.steps)
    waits = sum(isinstance(step, Wait) for step in plan.steps)
    assert communications == waits >= calls
    (iteration,) = plan.iterations
    timed = [step for step in plan.steps if hasattr(step, "gap_ns")]
    whole = iteration.tail_ns + sum(step.gap_ns + step.duration_ns for step in timed)
    # Nothing of the recorded step is lost, and nothing counted twice.
    assert whole == pytest.approx(iteration.duration_ns, rel=1e-4)
    alone = filtered(plan, ReplayOptions(only="comm"))
    assert len(alone.steps) == communications + waits
    held = alone.iterations[0].tail_ns + sum(step.gap_ns + step.duration_ns for step in alone.steps)
    assert held == whole


def test_tensors_of_communications_are_those_of_operators(gloo):
    plan = gloo("gloo-ddp2")
    for step in plan.steps:
        if isinstance(step, Communicate):
            shapes = [plan.tensors[slot].shape for slot in step.inputs]
            assert shapes == list(step.call.inputs)


def test_megatron_on_the_cpu():
    pytest.importorskip("torch")
    from chakra_et.replay.backends.torch_ops import BoundCall, Operators
    from chakra_et.replay.backends.values import devices_of

    folder = TRACES / "megatron-tp8-a100"
    files = {"host": folder / "megatron_et_0.json.gz", "device": folder / "megatron_kineto_0.json.gz"}
    plan = make_plan(chakra.convert(**files).traces.traces[0])
    operators = Operators("cpu")
    calls = [step for step in plan.steps if isinstance(step, OpCall)]
    found = [operators.bind(step, devices_of(plan, slots_in(step.arguments), "cpu")) for step in calls]
    assert all(isinstance(one, BoundCall) for one in found)
    delays = [step for step in plan.steps if isinstance(step, Delay)]
    assert {step.name for step in delays} == {"triton_poi_fused_add_0", "triton_poi_fused_add_mul_tanh_0"}
    assert len(calls) / (len(calls) + len(delays)) >= 0.9
    assert plan.world_size == 8
