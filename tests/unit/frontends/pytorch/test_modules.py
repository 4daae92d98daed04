"""Module paths from Python frames."""

from chakra_et.frontends.pytorch.modules import module_paths
from chakra_et.frontends.pytorch.timeline import build_timeline
from tests.unit.frontends.pytorch.profiles import call, event, op, profile


def paths(*events):
    found = profile(list(events))
    timeline = build_timeline(found.host, resolution_ns=1000)
    modules = module_paths(found.frames, timeline)
    return None if modules is None else dict(zip(timeline.frame["name"], modules, strict=True))


def frame(name, ts, dur, tid=1):
    return event("python_function", name, ts, dur, tid=tid)


def test_frames_around_an_operator_make_its_path():
    assert paths(
        frame("nn.Module: Net_0", 0, 100),
        frame("nn.Module: Linear_0", 10, 20),
        frame("torch/nn/functional.py(1): linear", 11, 18),
        frame("nn.Module: Linear_1", 40, 20),
        op("aten::first", 12, 5),
        call("cudaLaunchKernel", 13, 1, 1),
        op("aten::between", 32, 5),
        op("aten::second", 41, 5),
        op("aten::outside", 200, 5),
        op("aten::elsewhere", 12, 5, tid=2),
    ) == {
        "aten::first": "Net_0/Linear_0",
        "cudaLaunchKernel": None,
        "aten::between": "Net_0",
        "aten::second": "Net_0/Linear_1",
        "aten::outside": None,
        "aten::elsewhere": None,
    }


def test_without_frames_there_are_none():
    assert paths(op("aten::a", 0, 1), frame("x.py(3): f", 0, 9)) is None


def test_frames_of_threads_that_run_no_operator_are_left_out():
    assert paths(op("aten::a", 0, 1), frame("nn.Module: Net_0", 0, 9, tid=5)) is None
