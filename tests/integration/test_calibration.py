"""The network model fitted to the measured transfers of real profiles, read from a folder beside the checkout."""

import math
import tarfile

import pytest

from chakra_et.conversion import convert
from chakra_et.sample import sample_folder
from chakra_et.sim.network.calibrate import calibrate
from chakra_et.specs import load_system
from tests.conftest import ROOT
from tests.integration.measured import measured_communications

TRACES = ROOT.parent / "shared" / "traces"
beside = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real profiles isn't there")


def fitted(folder, system=None):
    """Return the communications of a folder of profiles, and the fit to them."""
    traces = convert(folder).traces
    table = measured_communications(traces)
    return table, calibrate(table, system, len(traces.ranks))


def check(table, fit):
    """Every measured communication of more than one rank is in a class, and each class says how far it is off."""
    assert sum(one.samples for one in fit.classes) == table.height
    for one in fit.classes:
        assert one.latency_factor >= 0 <= one.transfer_factor
        assert math.isfinite(one.residual_median)
        assert math.isfinite(one.residual_p90)
        print(one)
    flows = fit.plan_flows(table)
    assert math.isfinite(flows.latency_ns.sum())
    assert fit.validity(table) == ()


def test_the_bundled_sample():
    check(*fitted(sample_folder()))


@beside
@pytest.mark.parametrize("name", ["gloo-ddp2", "gloo-fsdp2", "gloo-coll4", "gloo-pipe4"])
def test_gloo(name):
    check(*fitted(TRACES / name))


@beside
def test_tensor_parallel_all_reduces_on_a100():
    table, fit = fitted(TRACES / "megatron-tp8-a100", load_system("a100-dgx"))
    check(table, fit)
    (one,) = fit.classes
    assert (one.span, one.comm_type, one.samples, one.method) == ("scale_up", "all_reduce", 84, "latency and transfer")
    # NCCL's own model never expects more than 235 of an A100's 300 GB/s (src/graph/tuning.cc).
    assert 180e9 < one.bytes_per_s < 240e9
    assert one.residual_median < 0.05


@beside
def test_a_recommendation_model_on_v100(tmp_path):
    for archive in sorted((TRACES / "dlrm-8xv100").glob("*.tar.gz")):
        with tarfile.open(archive) as file:
            file.extractall(tmp_path, filter="data")
    table, fit = fitted(tmp_path)
    check(table, fit)
    assert {one.comm_type for one in fit.classes} == {"all_reduce", "all_to_all"}
    assert max(one.residual_median for one in fit.classes) < 0.1
