"""Launches and queues of real profiles against the plain calculator of `raw_profile`, to the ns, and by hand."""

import functools
from collections import Counter
from itertools import pairwise

import polars as pl
import pytest

from chakra_et.analysis.breakdown import breakdown
from chakra_et.analysis.launch_calls import launched_activities
from chakra_et.analysis.launches import launches
from chakra_et.analysis.options import Options
from chakra_et.analysis.view import RankView
from chakra_et.conversion import convert
from tests.conftest import ROOT
from tests.integration.raw_profile import by_stream, queues, read_profile, stream_idle, union
from tests.integration.raw_profile import launches as raw_launches

TRACES = ROOT.parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real profiles isn't there")

WHOLE = Options(iteration="whole")
A100 = "kineto/nccl_2rank_a100.json.gz"
B200 = "kineto/eager_8rank_b200.json.gz"
MI300X = "kineto/resnet_8rank_mi300.json.gz"
GRAPHS = "kineto/cuda_graph_16rank_a100.json.gz"
CONTROL = "kineto/diff_control_a100.json.gz"
FULL = "kineto/ns_resolution_v100.json.gz"
DECODE = "vllm-decode-hipgraph/graph_execution.json.gz"
PROFILES = (A100, B200, MI300X, GRAPHS, CONTROL, FULL, DECODE)


@functools.cache
def raw(name):
    return read_profile(TRACES / name)


@functools.cache
def trace(name):
    return next(iter(convert(TRACES / name).traces))


@functools.cache
def analyzed(name, iteration="whole", by=None):
    return launches(trace(name), options=Options(iteration=iteration, by=by))


@pytest.mark.parametrize("name", PROFILES)
def test_each_launch(name):
    table = launched_activities(RankView(trace(name), 0, WHOLE)).filter(pl.col("call_row").is_not_null())
    call = pl.col("call_end_ns") - pl.col("call_start_ns")
    ours = table.select(
        "call",
        call,
        pl.col("end_ns") - pl.col("start_ns"),
        (pl.col("start_ns") - pl.col("call_start_ns")).alias("after_start"),
        (pl.col("start_ns") - pl.col("call_end_ns")).alias("after_end"),
    ).rows()
    theirs = raw_launches(raw(name))
    assert Counter(ours) == Counter(
        (each.call, each.call_ns, each.activity_ns, each.after_start_ns, each.after_end_ns) for each in theirs
    )
    row = analyzed(name).table.row(0, named=True)
    assert row["activities"] == len(raw(name).activities)
    assert row["unlinked"] == len(raw(name).activities) - len(theirs)
    calls = {each.correlation: each.call_ns for each in theirs}
    assert (row["calls"], row["call_ns"], row["call_max_ns"]) == (len(calls), sum(calls.values()), max(calls.values()))
    assert row["delay_max_ns"] == max(each.after_start_ns for each in theirs)
    assert row["after_call_min_ns"] == min(each.after_end_ns for each in theirs)
    assert row["within_call"] == sum(each.after_end_ns < 0 for each in theirs)
    ordered = sorted(each.after_end_ns for each in theirs)
    middle = (len(ordered) - 1) // 2
    assert row["after_call_p50_ns"] in ordered[middle : middle + 2]


@pytest.mark.parametrize("name", PROFILES)
def test_queues(name):
    ours = {}
    for (stream,), steps in analyzed(name).queue.group_by("stream"):
        steps = steps.sort("time_ns", maintain_order=True)
        lasts = steps["time_ns"].diff().shift(-1).fill_null(0)
        assert steps["length"][-1] == 0
        ours[stream] = (steps["length"].max(), int((steps["length"] * lasts).sum()))
    theirs = {stream: (queue.peak, queue.area_ns) for (_, stream), queue in queues(raw(name)).items()}
    assert ours == theirs


@pytest.mark.parametrize("name", PROFILES)
def test_idle_streams(name):
    table = breakdown(trace(name), options=WHOLE).streams
    ours = {row["stream"]: (row["host_wait_ns"], row["kernel_wait_ns"], row["other_wait_ns"])
            for row in table.iter_rows(named=True)}  # fmt: skip
    theirs = stream_idle(raw(name))
    assert ours == {stream: tuple(waits.values()) for (_, stream), waits in theirs.items()}


@pytest.mark.parametrize("name", [A100, B200, CONTROL, DECODE])
def test_short_kernels(name):
    """On profiles where no kernel's call waits."""
    profile = raw(name)
    shared = Counter(each.correlation for each in profile.linked())
    kernels = [each for each in profile.linked() if each.kind == "kernel" and shared[each.correlation] == 1]
    calls = [profile.calls[each.correlation] for each in kernels]
    pairs = [
        (each.end_ns - each.start_ns, call.end_ns - call.start_ns) for each, call in zip(kernels, calls, strict=True)
    ]
    short = [(time, call) for time, call in pairs if call > time]
    row = analyzed(name).table.select("kernels", "short_kernels", "short_time_ns", "short_call_ns").row(0)
    assert row == (len(pairs), len(short), sum(time for time, _ in short), sum(call for _, call in short))
    by_name = Counter(each.name for each, (time, call) in zip(kernels, pairs, strict=True) if call > time)
    assert dict(analyzed(name).short.select("name", "short_launches").iter_rows()) == by_name


def late_ns(profile):
    """Device idleness until the call of what ends it began, and until that call returned."""
    first = {}
    for activity in profile.activities:
        first.setdefault(activity.start_ns, activity)
    began = returned = 0
    busy = union((each.start_ns, each.end_ns) for each in profile.activities)
    for (_, free), (start, _) in pairwise(busy):
        call = profile.calls.get(first[start].correlation)
        if call is not None:
            began += min(max(call.start_ns - free, 0), start - free)
            returned += min(max(call.end_ns - free, 0), start - free)
    return began, returned


@pytest.mark.parametrize(("name", "share"), [(A100, 0.99), (B200, 0.97), (CONTROL, 0.86), (FULL, 0.22), (DECODE, 0)])
def test_host_bound(name, share):
    """The device idles until the call that ends it began, at least, and until it returned, at most."""
    began, returned = late_ns(raw(name))
    ours = analyzed(name).table["host_bound_ns"].item()
    assert 0.99 * began <= ours <= returned
    idle = breakdown(trace(name), options=WHOLE).table["idle_ns"].item()
    assert ours / idle == pytest.approx(share, abs=0.015)


def test_latency_onto_idle_streams():
    """Plainly: kernels whose stream was free at the call. Waits for other streams apart, which a graph tells."""
    for name, most, expected in ((A100, 1680, 12_300), (B200, 623, 10_000), (CONTROL, 2073, 8000)):
        profile, latencies = raw(name), []
        for activities in by_stream(profile.activities).values():
            free = -1
            for activity in activities:
                call = profile.calls.get(activity.correlation)
                if call is not None and activity.kind == "kernel" and free <= call.start_ns:
                    latencies.append(activity.start_ns - call.start_ns)
                free = max(free, activity.end_ns)
        assert len(latencies) == most
        row = analyzed(name).table.select("latency_count", "latency_p50_ns", "latency_p90_ns").row(0, named=True)
        assert 0.9 * most <= row["latency_count"] <= most
        assert row["latency_p50_ns"] == pytest.approx(sorted(latencies)[most // 2], rel=0.02)
        assert row["latency_p50_ns"] == pytest.approx(expected, rel=0.02)


# By hand --------------------------------------------------------------------------------------------------------------


def test_graph_launches_of_a_recommender():
    """70 cudaGraphLaunch calls start 345 activities; the host is far ahead, and waits for room and for copies."""
    whole, steps = analyzed(GRAPHS), analyzed(GRAPHS, None)
    row = whole.table.row(0, named=True)
    assert (row["graph_launches"], row["graph_activities"], whole.graphs.height) == (70, 345, 70)
    assert whole.graphs["activities"].sum() == 345
    assert whole.graphs["device_ns"].sum() == row["graph_device_ns"]
    # 14 a step, in each of the three steps in the middle.
    assert steps.table["graph_launches"].to_list() == [14, 14, 14]
    assert steps.table["queue_max"].min() > 900
    assert steps.table["queue_empty_share"].to_list() == [0, 0, 0]
    # Calls of up to 7 ms while 967 to 973 are queued: about 15 ms a step.
    assert all(10_000_000 < blocked < 20_000_000 for blocked in steps.table["blocked_ns"])
    # Most of the calls' time waits in copies to pageable memory.
    assert all(copies > 0.8 * calls for copies, calls in steps.table.select("copy_wait_ns", "call_ns").iter_rows())
    assert any("14 graph launches in a step start 5.0 %" in finding.text for finding in steps.findings)


def test_a_decode_step_is_one_graph():
    result = analyzed(DECODE)
    row = result.table.row(0, named=True)
    assert (row["activities"], row["calls"], row["graph_launches"], row["graph_activities"]) == (434, 14, 1, 421)
    assert result.graphs.select("call", "call_ns", "activities", "kernels").row(0) == (
        "hipGraphLaunch",
        506_768,
        421,
        421,
    )
    assert row["host_bound_ns"] == 0
    assert result.capture.height == 0
    assert result.findings[-1].text == "1 graph launch starts 97.0 % of the activities, 421 each"


def test_a_step_could_be_a_graph():
    """diff_control: each step launches 1,027 activities on one stream from forward to optimizer without a wait."""
    result = analyzed(CONTROL, None)
    best = result.capture.row(0, named=True)
    assert (best["stream"], best["launches"], best["runs"], best["iterations"]) == (7, 1027, 4, 4)
    assert best["ceiling_idle_ns"] < result.table["host_bound_ns"].sum() // 4
    assert best["ceiling_call_ns"] < best["call_ns"]
    assert result.table["graph_launches"].to_list() == [0] * 4
    # The busiest stream's queue is never longer than HolisticTraceAnalysis finds it.
    assert analyzed(CONTROL).queue.filter(pl.col("stream") == 7)["length"].max() == 288


def test_eager_execution_waits_for_its_host():
    for name, share, first in ((A100, 0.75, "cudaEventSynchronize"), (B200, 0.75, None)):
        result = analyzed(name, None)
        row = result.table.row(0, named=True)
        assert row["host_bound_ns"] > share * row["span_ns"]
        assert row["queue_max"] <= 10
        assert result.spans["host_bound_ns"].is_sorted(descending=True)
        assert first is None or first in result.spans["after"].to_list()
        assert result.host_work["time_ns"].sum() == row["host_bound_ns"]
    longest = analyzed(B200, None).spans.row(0, named=True)
    assert (longest["host_name"], longest["host_name_ns"], longest["call"]) == (
        "aten::addmm",
        2_405_233,
        "cuLaunchKernelEx",
    )
    assert longest["module"].startswith("GptOssForCausalLM_0/")


def test_a_full_queue():
    """V100: the calls wait for the launch 1,022 before theirs, three quarters of the host's time."""
    row = analyzed(FULL).table.row(0, named=True)
    assert row["queue_max"] == 1022
    assert 0.85 < row["blocked_ns"] / row["call_ns"] < 0.9
    assert row["blocked_calls"] > 1000


def test_activities_launched_before_the_profile():
    result = analyzed(MI300X)
    assert result.table.select("activities", "unlinked", "calls").row(0) == (3653, 968, 2685)
    assert any("968 of 3,653 activities" in note for note in result.notes)
