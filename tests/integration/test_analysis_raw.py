"""Analyses of converted profiles against figures worked out plainly from the same JSON: equal to the ns."""

import functools

import polars as pl
import pytest

from chakra_et.analysis.breakdown import breakdown
from chakra_et.analysis.kernels import kernels
from chakra_et.analysis.options import Options
from chakra_et.analysis.overlap import overlap
from chakra_et.analysis.view import RankView
from chakra_et.conversion import convert
from tests.conftest import ROOT
from tests.integration import raw_profile
from tests.integration.raw_profile import Activity, RawProfile, device_times, read_profile, stream_idle, time_by_name

TRACES = ROOT.parent / "shared" / "traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real profiles isn't there")

MI300X = "kineto/resnet_8rank_mi300.json.gz"
# Its clock counts whole us: conversion snaps ends to the next start within that, at most 1 us an activity.
COARSE = "kineto/diff_test_v100.json.gz"
PROFILES = [
    "kineto/nccl_2rank_a100.json.gz",
    MI300X,
    "kineto/eager_8rank_b200.json.gz",
    "kineto/cuda_graph_16rank_a100.json.gz",
    "kineto/diff_control_a100.json.gz",
    "kineto/qwen_h100.json.gz",
    "kineto/gpu_only_mi210.json.gz",
    "kineto/minitoy_mi250.json.gz",
    "kineto/simple_add_cuda_sync_a100.json.gz",
    "kineto/torch_compile_triton_mi300.json.gz",
    "vllm-decode-hipgraph/graph_execution.json.gz",
    "megatron-tp8-a100/megatron_kineto_0.json.gz",
]
WHOLE = Options(iteration="whole")
LINKED = Options(iteration="whole", linked_only=True)


@functools.cache
def raw(name: str) -> RawProfile:
    return read_profile(TRACES / name)


@functools.cache
def view(name: str, *, linked_only: bool = False) -> RankView:
    trace = next(iter(convert(TRACES / name).traces))
    return RankView(trace, 0, LINKED if linked_only else WHOLE)


def divided(name, activities, options):
    """The breakdown's row, and what the calculator says of it."""
    row = breakdown(view(name).trace, options=options).table.row(0, named=True)
    times = device_times(activities)
    expected = {
        "span_ns": times.span_ns,
        "busy_ns": times.busy_ns,
        "compute_ns": times.compute_ns,
        "communication_ns": times.communication_ns,
        "exposed_communication_ns": times.exposed_ns,
        "overlap_ns": times.overlap_ns,
        "memory_ns": times.memory_only_ns,
        "covered_memory_ns": times.memory_ns - times.memory_only_ns,
        "idle_ns": times.idle_ns,
    }
    return {name: row[name] for name in expected}, expected


@pytest.mark.parametrize("name", PROFILES)
def test_the_breakdown_of_the_whole_profile(name):
    found, expected = divided(name, raw(name).activities, WHOLE)
    assert found == expected


def test_the_breakdown_of_what_was_launched_in_the_profile():
    """968 of 3,653 activities were launched before it."""
    linked = raw(MI300X).linked()
    assert (len(raw(MI300X).activities), len(linked)) == (3653, 2685)
    found, expected = divided(MI300X, linked, LINKED)
    assert found == expected
    share = overlap(view(MI300X).trace, options=LINKED).table["overlap_share"].item()
    assert share == expected["overlap_ns"] / expected["communication_ns"]


def test_a_coarse_clock():
    found, expected = divided(COARSE, raw(COARSE).activities, WHOLE)
    assert (found["span_ns"], found["idle_ns"]) == (expected["span_ns"], pytest.approx(expected["idle_ns"], abs=14_000))
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=14_000), name


@pytest.mark.parametrize("name", PROFILES)
def test_overlap_agrees_with_both(name):
    table = overlap(view(name).trace, options=WHOLE).table
    times = device_times(raw(name).activities)
    found = table.select("communication_ns", "overlap_ns", "exposed_communication_ns").rows()
    assert found == ([(times.communication_ns, times.overlap_ns, times.exposed_ns)] if times.communication_ns else [])


@pytest.mark.parametrize("name", PROFILES)
def test_gaps_of_each_stream(name):
    """As HolisticTraceAnalysis tells them apart, but for its rounding and its negative gaps."""
    streams = breakdown(view(name).trace, options=WHOLE).streams
    found = {
        (device, stream): {"host_wait": host, "kernel_wait": kernel, "other": other}
        for device, stream, host, kernel, other in streams.select(
            "device", "stream", "host_wait_ns", "kernel_wait_ns", "other_wait_ns"
        ).iter_rows()
    }
    expected = stream_idle(raw(name))
    if len({device for device, _ in expected}) == 1:
        # The device's number is kept only where there are several.
        expected = {(0, stream): gaps for (_, stream), gaps in expected.items()}
    assert found == expected


@pytest.mark.parametrize("name", PROFILES)
def test_kernels_by_name(name):
    table = kernels(view(name).trace, options=Options(iteration="whole", by=("name",))).table
    found = {row[0]: row[1:] for row in table.select("name", "count", "total_ns", "min_ns", "max_ns").iter_rows()}
    assert found == time_by_name(raw(name).activities)


def kind_of(activity: Activity) -> str:
    return "communication" if activity.is_communication else "compute" if activity.kind == "kernel" else "memory"


@pytest.mark.parametrize("name", PROFILES)
def test_categories(name):
    table = kernels(view(name).trace, options=Options(iteration="whole", by=("category",))).table
    found = {row[0]: row[1:] for row in table.select("category", "count", "total_ns").iter_rows()}
    expected = {}
    for activity in raw(name).activities:
        count, total = expected.get(kind_of(activity), (0, 0))
        expected[kind_of(activity)] = (count + 1, total + activity.end_ns - activity.start_ns)
    assert found == expected


@pytest.mark.parametrize("name", PROFILES)
def test_copies_and_sets(name):
    expected = {"copy": [0, 0], "memset": [0, 0]}
    for kind, (count, time, _) in raw_profile.copies(raw(name).activities).items():
        own = expected["memset" if kind == "Memset" else "copy"]
        own[0], own[1] = own[0] + count, own[1] + time
    kinds = kernels(view(name).trace, options=WHOLE).kinds.filter(pl.col("category") == "memory")
    found = {kind: [count, time] for kind, count, time in kinds.select("kind", "count", "total_ns").iter_rows()}
    assert found == {kind: value for kind, value in expected.items() if value[0]}


@pytest.mark.parametrize("name", PROFILES)
def test_what_launched_what(name):
    """The same activities are linked, and their calls begin and end when the profile says so."""
    activities = pl.concat([view(name).activities, view(name).launches], how="horizontal")
    linked = activities.filter(pl.col("call_row").is_not_null())
    found = linked.select(
        pl.col("end_ns") - pl.col("start_ns"),
        pl.col("start_ns") - pl.col("call_start_ns"),
        (pl.col("start_ns") - pl.col("call_end_ns")).alias("after"),
    )
    expected = [(one.activity_ns, one.after_start_ns, one.after_end_ns) for one in raw_profile.launches(raw(name))]
    assert sorted(found.rows()) == sorted(expected)
