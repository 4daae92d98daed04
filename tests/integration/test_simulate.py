"""Converted profiles simulated as they were measured must give back what was measured; and what-ifs on them."""

import tarfile

import numpy as np
import pytest

from chakra_et.conversion import convert
from chakra_et.ir import NodeType
from chakra_et.ir.cut import iterations
from chakra_et.sim.simulate import simulate
from chakra_et.specs import load_system
from tests.conftest import ROOT

TRACES = ROOT.parent / "shared" / "traces"
FOLDERS = ("megatron-tp8-a100", "dlrm-8xv100", "gloo-ddp2", "gloo-fsdp2", "gloo-pipe4", "gloo-coll4")
TOLERANCE = 0.01


@pytest.fixture(scope="module")
def converted(tmp_path_factory, sample):
    found = {}

    def get(name):
        if name not in found:
            folder = sample if name == "sample" else TRACES / name
            if not folder.is_dir():
                pytest.skip("the folder of real profiles isn't there")
            archives = list(folder.glob("*.tar.gz"))
            if archives:
                folder = tmp_path_factory.mktemp(name)
                for archive in archives:
                    with tarfile.open(archive) as bundle:
                        bundle.extractall(folder, filter="data")
            found[name] = convert(folder).traces
        return found[name]

    return get


def windows(traces):
    """Recorded begin and end of each rank's nodes, on one clock from the first begin."""
    bounds = []
    for trace in traces:
        timed = trace.nodes["start_ns"].is_not_null().to_numpy() & (trace.integers("type") != NodeType.METADATA_NODE)
        start, duration = trace.integers("start_ns", 0)[timed], trace.integers("duration_ns", 0)[timed]
        bounds.append((start.min(), (start + duration).max()))
    return np.array(bounds) - min(begin for begin, _ in bounds)


@pytest.mark.parametrize("name", ["sample", *FOLDERS])
def test_identity(name, converted):
    traces = converted(name)
    result = simulate(traces, comm="measured", iteration="all")
    recorded = windows(traces)
    simulated = np.array([rank.finish_ns for rank in result.ranks])
    assert (np.abs((simulated - recorded[:, 0]) / (recorded[:, 1] - recorded[:, 0]) - 1) <= TOLERANCE).all()
    assert abs(result.finish_ns / recorded[:, 1].max() - 1) <= TOLERANCE
    # Much better than asked for: every node starts when it did.
    assert simulated.tolist() == recorded[:, 1].tolist()
    assert sum(result.bounds.values()) == result.finish_ns


@pytest.mark.parametrize("name", ["sample", *FOLDERS])
def test_iterations_take_what_their_ranges_took(name, converted):
    traces = converted(name)
    result = simulate(traces, comm="measured")
    for one in result.iterations or (result,):
        ranges = [iterations(trace)[one.iteration] for trace in traces]
        recorded = max(end for _, end in ranges) - min(begin for begin, _ in ranges)
        # The last kernel may end after the range, and the range after the last operator.
        assert one.finish_ns == pytest.approx(recorded, rel=0.04), one.iteration


@pytest.mark.parametrize("name", ["sample", "megatron-tp8-a100", "gloo-pipe4"])
def test_what_ifs_move_the_right_way(name, converted):
    traces = converted(name)
    base = simulate(traces, comm="measured").mean_ns
    assert simulate(traces, comm="measured", comm_scale=50.0).mean_ns > base
    assert simulate(traces, comm="measured", host_scale=0.5).mean_ns < base
    assert simulate(traces, comm="measured", rank_delay_ns={0: 10**9}).mean_ns > base + 0.9e9


def test_gpu_traces_on_machines(converted):
    traces = converted("megatron-tp8-a100")
    measured = simulate(traces, comm="measured")
    machine = load_system("a100-dgx")
    native, fitted = simulate(traces, machine), simulate(traces, machine, comm="calibrated")
    assert native.finish_ns == pytest.approx(measured.finish_ns, rel=0.05)
    assert fitted.finish_ns == pytest.approx(measured.finish_ns, rel=0.01)
    assert any("all_reduce over scale_up" in note for note in fitted.notes)
    faster = simulate(traces, load_system("h100-dgx"), compute="scaled", from_device=machine.device)
    assert faster.ranks[0].compute_ns < 0.7 * measured.ranks[0].compute_ns
