"""The plain calculator of `raw_profile` against figures that another program computed from the same files.

Expected values are as printed there, and compared as printed: rounded to the same digits. Nothing here runs the
package; the analyses are measured against this calculator elsewhere.
"""

import functools
import json
from collections import Counter
from decimal import Decimal
from statistics import mean, median

import pytest

from tests.conftest import ROOT
from tests.integration.raw_profile import (
    Activity,
    Call,
    RawProfile,
    communications,
    copies,
    device_times,
    elements,
    launches,
    length,
    queues,
    read_profile,
    stream_idle,
    time_by_name,
    to_ns,
    union,
)

TRACES = ROOT.parent / "shared" / "traces"
real = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real profiles isn't there")

A100 = "kineto/nccl_2rank_a100.json.gz"
MI300X = "kineto/resnet_8rank_mi300.json.gz"
B200 = "kineto/eager_8rank_b200.json.gz"
MEGATRON = [f"megatron-tp8-a100/megatron_kineto_{rank}.json.gz" for rank in range(8)]
GIB = 1 << 30


@functools.cache
def read(name):
    return read_profile(TRACES / name)


def milliseconds(ns):
    return f"{ns / 1e6:.3f}"


# By hand --------------------------------------------------------------------------------------------------------------


def activity(start, end, name="gemm", kind="kernel", stream=7, correlation=0):
    return Activity(name, kind, start, end, 0, stream, correlation, None)


def test_times_are_exact():
    assert to_ns(Decimal("1712195495506161.208")) == 1_712_195_495_506_161_208
    assert to_ns(1706850122862403) == 1_706_850_122_862_403_000
    with pytest.raises(ValueError, match="whole ns"):
        to_ns(Decimal("0.0001"))


def test_unions():
    assert union([(5, 9), (0, 3), (3, 4), (6, 7)]) == [(0, 4), (5, 9)]
    assert length([(0, 3), (1, 5), (8, 8)]) == 5


def test_a_device_divides_exactly():
    times = device_times([
        activity(0, 10),
        activity(5, 25, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL()", stream=24),
        activity(20, 30, "Memcpy DtoD (Device -> Device)", kind="copy"),
        activity(40, 41, "at::native::reduce_kernel"),
    ])  # fmt: skip
    assert (times.span_ns, times.busy_ns, times.idle_ns) == (41, 31, 10)
    assert (times.compute_ns, times.communication_ns, times.memory_ns) == (11, 20, 10)
    # The copy runs beside the communication and doesn't hide it.
    assert (times.overlap_ns, times.exposed_ns, times.compute_only_ns, times.memory_only_ns) == (5, 15, 6, 5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", True),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", True),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 8>(c10::BFloat16*)", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", True),
        ("void deep_ep::internode_ll::dispatch<true, 7168>(void*)", True),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >()", False),
        ("void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*> >()", False),
        ("_combined_routing_compute", False),
    ],
)
def test_names_of_communication(name, expected):
    assert activity(0, 1, name).is_communication is expected


def test_idle_queue_and_launches_of_a_stream():
    kernels = (activity(10, 20, correlation=1), activity(15, 18, correlation=2), activity(22, 30, correlation=3),
               activity(50, 51, correlation=4), activity(100, 101, correlation=9))  # fmt: skip
    calls = {
        1: Call("cudaLaunchKernel", 4, 8, "1/1"),
        2: Call("cudaLaunchKernel", 8, 16, "1/1"),
        3: Call("cudaLaunchKernel", 10, 12, "1/1"),
        4: Call("cudaLaunchKernel", 31, 40, "1/1"),
    }
    profile = RawProfile(kernels, calls, ())
    # The gap before the third kernel begins where the first ends, not the second: 2, not 4.
    assert stream_idle(profile, short_ns=5) == {(0, 7): {"host_wait": 20, "kernel_wait": 2, "other": 49}}
    (queue,) = queues(profile).values()
    # 1 in [4, 8), 2 in [8, 15) though one starts and one is launched at 10, 1 in [15, 22), 0, and 1 in [31, 50).
    assert (queue.peak, queue.area_ns, queue.length_ns) == (3, 4 + 14 + 7 + 19, 46)
    assert [launch.after_end_ns for launch in launches(profile)] == [2, -1, 10, 10]
    assert [launch.after_start_ns for launch in launches(profile)] == [6, 7, 12, 19]


# Against what another program found -----------------------------------------------------------------------------------

DEVICE_TIMES = [
    (A100, False, "660.551", "157.500", "46.876", "39.559", "15.61"),
    (MEGATRON[0], False, "595.241", "372.727", "241.191", "241.191", "0.00"),
    (MI300X, False, "86.568", "84.002", "71.517", "55.625", "22.22"),
    (MI300X, True, "56.518", "56.234", "47.200", "35.283", "25.25"),
]


@real
@pytest.mark.parametrize(("name", "linked", "span", "busy", "communication", "exposed", "overlap"), DEVICE_TIMES)
def test_device_times(name, linked, span, busy, communication, exposed, overlap):
    profile = read(name)
    times = device_times(profile.linked() if linked else profile.activities)
    assert milliseconds(times.span_ns) == span
    assert milliseconds(times.busy_ns) == busy
    assert milliseconds(times.communication_ns) == communication
    assert milliseconds(times.exposed_ns) == exposed
    assert f"{100 * times.overlap_ns / times.communication_ns:.2f}" == overlap
    parts = times.compute_only_ns, times.exposed_ns, times.overlap_ns, times.memory_only_ns, times.idle_ns
    assert sum(parts) == times.span_ns
    assert min(parts) >= 0


@real
def test_activities_launched_before_the_window():
    profile = read(MI300X)
    assert len(profile.activities) == 3653
    assert len(profile.activities) - len(profile.linked()) == 968


@real
def test_communication_without_nccl():
    profile = read(B200)
    reductions = [each for each in profile.activities if "multimem_all_reduce_kernel" in each.name]
    assert len(reductions) == 73
    assert all(each.is_communication for each in reductions)
    assert f"{length((each.start_ns, each.end_ns) for each in reductions) / 1e6:.2f}" == "2.12"
    times = device_times(profile.activities)
    assert f"{times.busy_ns / 1e6:.2f}" == "11.60"
    # One NCCL kernel comes on top.
    assert times.communication_ns == 2_141_501


@real
def test_bus_bandwidth_and_skew_of_eight_ranks():
    profiles = [read(name) for name in MEGATRON]
    ranks = [communications(profile) for profile in profiles]
    assert {len(rank) for rank in ranks} == {84}
    assert len({tuple(each.name for each in rank) for rank in ranks}) == 1
    meetings = list(zip(*ranks, strict=True))
    half = [meeting for meeting in meetings if "_f16_" in meeting[0].name]
    assert len(half) == 81
    for profile, rank in zip(profiles, ranks, strict=True):
        sizes = [2 * elements(profile, each) for each in rank if "_f16_" in each.name]
        assert set(sizes) == {64 << 20}
    durations = [min(each.end_ns - each.start_ns for each in meeting) for meeting in half]
    assert f"{mean(durations) / 1e3:.1f}" == "617.3"
    # The other program's GB are 2^30 bytes, and its mean is of the rates: 109.0 and 190.8 GB/s with decimal GB.
    rates = [(64 << 20) / duration * 1e9 for duration in durations]
    bus = [rate * 2 * 7 / 8 for rate in rates]
    assert f"{mean(rates) / GIB:.1f}" == "101.5"
    assert (f"{mean(bus) / GIB:.1f}", f"{median(bus) / GIB:.1f}") == ("177.7", "181.4")
    assert (f"{mean(bus) / 1e9:.1f}", f"{median(bus) / 1e9:.1f}") == ("190.8", "194.8")
    starts = [[each.start_ns for each in meeting] for meeting in half]
    skews = [(max(each) - min(each)) / 1e6 for each in starts]
    assert (f"{mean(skews):.2f}", f"{median(skews):.2f}", f"{max(skews):.1f}") == ("5.26", "2.66", "41.7")


@real
def test_last_to_arrive():
    meetings = zip(*(communications(read(name)) for name in MEGATRON), strict=True)
    # Over all 84, the three of fp32 too. One ends in a tie of ranks 5 and 6: the lower rank has it.
    starts = [[each.start_ns for each in meeting] for meeting in meetings]
    last = Counter(each.index(max(each)) for each in starts)
    assert [[rank for rank, start in enumerate(each) if start == max(each)]
            for each in starts if each.count(max(each)) > 1] == [[5, 6]]  # fmt: skip
    assert (f"{100 * last[0] / 84:.1f}", f"{100 * last[6] / 84:.1f}") == ("38.1", "33.3")


# Against HolisticTraceAnalysis ----------------------------------------------------------------------------------------
# Version 0.5.0, the last step included. It doesn't round times in whole us, and agrees in all that it defines alike.

CONTROL = "kineto/diff_control_a100.json.gz"
# ms: idle while the host was late, between neighbors less than 30 us apart, and otherwise
HTA_IDLE = {
    CONTROL: {7: (133.311, 17.152, 32.751), 20: (424.456, 0.739, 9.684),
              21: (285.806, 0.078, 0), 22: (340.772, 1.515, 0)},
    MEGATRON[0]: {7: (249.335, 0.925, 213.445), 24: (309.915, 0, 35.290)},
}  # fmt: skip
# ms: from the first start to the last end, idle, compute, busy without compute
HTA_BREAKDOWN = {
    CONTROL: (464.594, 76.007, 281.336, 107.251),
    MEGATRON[0]: (595.241, 222.514, 131.390, 241.337),
    MEGATRON[6]: (606.299, 208.748, 133.554, 263.997),
}
HTA_QUEUE_PEAK = {CONTROL: {7: 288, 20: 10, 21: 2, 22: 22}, MEGATRON[0]: {7: 34, 24: 4}}


@real
@pytest.mark.parametrize("name", list(HTA_BREAKDOWN))
def test_breakdown_agrees_with_hta(name):
    times = device_times(read(name).activities)
    ours = times.span_ns, times.idle_ns, times.compute_ns, times.busy_ns - times.compute_ns
    assert tuple(ns / 1e6 for ns in ours) == HTA_BREAKDOWN[name]


@real
@pytest.mark.parametrize("name", list(HTA_IDLE))
def test_idle_and_queues_agree_with_hta(name):
    idle = {stream: tuple(ns / 1e6 for ns in found.values()) for (_, stream), found in stream_idle(read(name)).items()}
    assert idle == HTA_IDLE[name]
    assert {stream: queue.peak for (_, stream), queue in queues(read(name)).items()} == HTA_QUEUE_PEAK[name]


@real
def test_the_rest_agrees_with_hta():
    profile = read(CONTROL)
    times = device_times(profile.activities)
    assert f"{100 * times.overlap_ns / times.communication_ns:.2f}" == "46.24"
    found = launches(profile)
    sums = sum(each.call_ns for each in found), sum(each.activity_ns for each in found)
    assert sums == (139_446_000, 501_567_000)
    # Its delays end at zero; 78 activities start within their calls.
    assert sum(max(0, each.after_end_ns) for each in found) == 20_056_883_000
    assert sum(each.after_end_ns < 0 for each in found) == 78
    names = time_by_name(profile.activities)
    assert (len(names), sum(ns for _, ns, *_ in names.values())) == (174, 501_567_000)
    # Of the part that its rows by type show: pieces that run beside memory copies are added to those without.
    parts = times.compute_only_ns, times.exposed_ns, times.overlap_ns, times.memory_only_ns
    assert [ns // 1000 for ns in parts] == [180_696 + 25_026, 86_554 + 1_367, 66_699 + 8_915, 19_330]


@real
def test_rounding_is_why_hta_differs_in_ns():
    profile = read(MI300X)
    linked = profile.linked()
    rounded = [
        activity(-(-each.start_ns // 1000), each.end_ns // 1000, each.name, each.kind) for each in linked
    ]  # us: a start is rounded up, an end down
    theirs, ours = device_times(rounded), device_times(linked)
    assert (theirs.idle_ns, theirs.compute_ns) == (1541, 17_018)
    # What ends before it starts, by rounding, takes no part in its overlap.
    left = device_times([each for each in rounded if each.end_ns > each.start_ns])
    assert f"{100 * left.overlap_ns / left.communication_ns:.2f}" == "22.45"
    assert f"{1000 * theirs.idle_ns / ours.idle_ns:.1f}" == "5.4"


# The calculator against itself ----------------------------------------------------------------------------------------


@real
@pytest.mark.parametrize("name", [A100, MI300X, B200, MEGATRON[0]])
def test_parts_belong_together(name):
    profile = read(name)
    names = time_by_name(profile.activities)
    total = sum(each.end_ns - each.start_ns for each in profile.activities)
    assert sum(count for count, *_ in names.values()) == len(profile.activities)
    assert sum(ns for _, ns, *_ in names.values()) == total >= device_times(profile.activities).busy_ns
    memory = [each for each in profile.activities if each.kind != "kernel"]
    assert sum(count for count, *_ in copies(memory).values()) == len(memory)
    found = launches(profile)
    assert len(found) == len(profile.linked())
    assert all(each.after_start_ns == each.call_ns + each.after_end_ns for each in found)
    for (device, stream), queue in queues(profile).items():
        of_stream = [each for each in profile.linked() if (each.device, each.stream) == (device, stream)]
        # What waits, waits from its call's start to its own: the area is the sum of these.
        waited = sum(each.start_ns - profile.calls[each.correlation].start_ns for each in of_stream)
        assert queue.area_ns == waited
        assert 1 <= queue.peak <= len(of_stream)


@real
def test_copies_have_their_bytes():
    assert copies(read(A100).activities)["DtoD"] == (960, 2_262_781, 307_323_096)
    # Copies that were launched before the profile began don't tell, and ROCm's sets never do.
    profile = read(MI300X)
    assert copies(profile.activities) == {"DtoD": (550, 2_538_596, None), "Memset": (108, 435_650, None)}
    assert copies(profile.linked())["DtoD"] == (366, 1_633_426, 70_195_152)


def test_plain_and_gzip_files_read_alike(tmp_path):
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 12.345, "dur": 1,
             "args": {"device": 0, "stream": 7, "correlation": 3}}  # fmt: skip
    path = tmp_path / "profile.json"
    path.write_text(json.dumps([event]))
    (found,) = read_profile(path).activities
    assert (found.start_ns, found.end_ns, found.stream, found.size_bytes) == (12_345, 13_345, 7, None)
