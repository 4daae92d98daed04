"""Launches worked out by hand, and queues against a plain count."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.analysis.breakdown import breakdown
from chakra_et.analysis.launch_queue import length_at_call, measure_queue, queue_points, queue_steps, thinned
from chakra_et.analysis.launches import launches
from chakra_et.analysis.options import Options
from chakra_et.conversion import convert
from chakra_et.errors import InputError
from chakra_et.ir import Trace, TraceSet
from chakra_et.testing import MachineConfig, programs, run
from tests.unit.analysis.hand_made import Rank

ALL = Options(iteration="all")


def only(result, *columns):
    """The only row."""
    assert result.table.height == 1
    return result.table.select(columns).row(0)


def three(origin: int = 0) -> Trace:
    """Calls 0-4, 5-9, 20-30; kernels 7-17, 18-19 (launched early), 28-40 (starts within its call)."""
    rank = Rank(origin=origin)
    for number, (call, kernel) in enumerate((((0, 4), (7, 17)), ((5, 9), (18, 19)), ((20, 30), (28, 40)))):
        launch = rank.call(number, *call)
        rank.kernel(f"gemm{number}", *kernel, correlation=number, ctrl_deps=[launch] if number < 2 else [])
    return rank.build()


@pytest.mark.parametrize("origin", [0, 1_768_554_939_873_688_495])
def test_cost_delay_and_latency(origin):
    result = launches(three(origin))
    assert only(result, "span_ns", "activities", "unlinked", "calls", "call_ns", "call_mean_ns", "call_p50_ns",
                "call_max_ns") == (33, 3, 0, 3, 18, 6, 4, 10)  # fmt: skip
    # From the calls' starts: 7, 13, 8; from their ends: 3, 9, -2.
    assert only(result, "delay_mean_ns", "delay_p50_ns", "delay_max_ns") == (9, 8, 13)
    assert only(result, "after_call_min_ns", "after_call_p50_ns", "after_call_max_ns", "within_call") == (-2, 3, 9, 1)
    # The second is launched while none has started, and waits for the first.
    assert only(result, "latency_count", "latency_p50_ns", "latency_max_ns") == (2, 8, 8)
    # The first takes 10 for a call of 4; the second 1 for 4; the third 12 for 10.
    assert only(result, "kernels", "short_kernels", "short_time_ns", "short_call_ns") == (3, 1, 1, 4)
    assert result.short.row(0) == (0, "gemm1", "gemm", 1, 1, 1, 4, 3)
    assert only(result, "graph_launches", "blocked_calls", "blocked_ns", "copy_wait_ns") == (0, 0, 0, 0)


def test_the_queue():
    result = launches(three(origin=100))
    assert result.queue.select("stream", "time_ns", "length").rows() == [
        (7, 100, 1), (7, 105, 2), (7, 107, 1), (7, 118, 0), (7, 120, 1), (7, 128, 0),
    ]  # fmt: skip
    # In the device's stretch, 7 to 40: 1 for 11, 0 for 2, 1 for 8, 0 for 12. Who starts it has left the queue.
    assert only(result, "queue_max", "queue_mean", "queue_empty_ns", "queue_empty_share") == (1, 19 / 33, 14, 14 / 33)
    plot = result.plot().as_dict()
    assert plot["data"][0]["y"] == [1, 2, 1, 0, 1, 0]
    assert plot["data"][0]["name"] == "rank 0, stream 7"
    json.dumps(plot, allow_nan=False)


def test_rows_by_stream_and_call():
    rank = Rank()
    for number, (stream, name) in enumerate(((7, "cudaLaunchKernel"), (7, "cudaMemsetAsync"), (9, "cudaLaunchKernel"))):
        rank.op(name, 10 * number, 10 * number + 2, correlation=number)
        rank.kernel("k", 10 * number + 5, 10 * number + 9, correlation=number, stream=stream)
    options = Options(by=("stream", "call"))
    table = launches(rank.build(), options=options).table
    assert table.select("stream", "call", "calls", "activities", "queue_max", "host_bound_spans").rows() == [
        (7, "cudaLaunchKernel", 1, 1, 0, 0),
        (7, "cudaMemsetAsync", 1, 1, 1, 0),
        (9, "cudaLaunchKernel", 1, 1, 1, 0),
    ]
    with pytest.raises(InputError, match="rank, iteration, device, stream, call"):
        launches(rank.build(), options=Options(by=("color",)))


def test_ranks_together():
    traces = TraceSet((three(), Trace(three().nodes, (), three().metadata.__class__(rank=1))))
    result = launches(traces, options=Options(by=("iteration",)))
    assert only(result, "span_ns", "calls", "call_ns", "delay_p50_ns", "queue_mean") == (66, 6, 36, 8, 19 / 33)
    assert result.queue["rank"].unique().sort().to_list() == [0, 1]


def test_calls_that_wait_for_room_or_their_copy():
    rank = Rank()
    first = rank.call(0, 0, 2)
    old = rank.kernel("gemm", 10, 60, correlation=0, ctrl_deps=[first])
    # Waits from 22 to 60 for room; the next from 70 to 90 for its own copy.
    blocked = rank.call(1, 20, 22)
    rest = rank.op("cudaLaunchKernel", 60, 63, segment=1, parent=blocked, sync_deps=[old], ctrl_deps=[blocked])
    rank.kernel("gemm", 65, 66, correlation=1, ctrl_deps=[rest])
    copies = rank.op("cudaMemcpyAsync", 68, 70, correlation=2)
    copy = rank.copy(75, 90, "DtoH", correlation=2, ctrl_deps=[copies])
    rank.op("cudaMemcpyAsync", 90, 95, segment=1, parent=copies, sync_deps=[copy])
    result = launches(rank.build())
    assert only(result, "calls", "call_ns", "call_max_ns") == (3, 2 + 43 + 27, 43)
    assert only(result, "blocked_calls", "blocked_ns", "copy_wait_ns") == (1, 38, 20)
    # Without what it waited, the second call costs 5: more than its kernel.
    assert only(result, "short_kernels", "short_time_ns", "short_call_ns") == (1, 1, 5)


def test_a_long_call_while_the_queue_is_long_waits_for_room():
    rank = Rank()
    for number in range(1000):
        took = 200_000 if number in (600, 950) else 1000
        rank.call(number, number * 300_000, number * 300_000 + took)
        rank.kernel("gemm", 400_000_000 + number * 9000, 400_000_000 + number * 9000 + 8000, correlation=number)
    result = launches(rank.build(), options=Options(iteration="whole"))
    # The call at 600 is as long, but the queue isn't.
    assert only(result, "blocked_calls", "blocked_ns") == (1, 199_000)
    assert any("1 call that took far longer than usual" in note for note in result.notes)


def host_bound(origin: int = 0) -> Rank:
    """The device idles 10-30 (after a synchronization) and 40-70; the host is in ops, and outside from 45 to 55."""
    rank = Rank(origin=origin)
    launch = rank.call(0, 0, 1)
    first = rank.kernel("a", 2, 10, correlation=0, ctrl_deps=[launch])
    sync = rank.op("cudaStreamSynchronize", 3, 4, ctrl_deps=[launch])
    done = rank.op("cudaStreamSynchronize", 10, 12, segment=1, parent=sync, sync_deps=[first], ctrl_deps=[sync])
    op = rank.op("aten::mm", 12, 27, ctrl_deps=[done], module="Model/Layer_1")
    launch = rank.call(1, 27, 29, ctrl_deps=[op], parent=op)
    gap = rank.gap("launch_latency", 29, 30, ctrl_deps=[launch])
    second = rank.kernel("b", 30, 40, correlation=1, sync_deps=[gap, first])
    op = rank.op("aten::add", 29, 45, ctrl_deps=[launch], module="Model/Layer_2")
    idle = rank.op("host_idle", 45, 55, gap_kind="host_idle", ctrl_deps=[op])
    launch = rank.call(2, 55, 65, ctrl_deps=[idle])
    gap = rank.gap("launch_latency", 65, 70, ctrl_deps=[launch])
    rank.kernel("c", 70, 80, correlation=2, sync_deps=[gap, second])
    return rank


def test_what_the_host_does_while_the_device_waits():
    trace = host_bound(origin=1000).build()
    result = launches(trace)
    assert only(result, "host_bound_spans", "host_bound_ns") == (2, 19 + 25)
    assert breakdown(trace).table["idle_host_bound_ns"].to_list() == [44]
    columns = ("begin_ns", "end_ns", "idle_ns", "host_bound_ns", "name", "call", "after", "host_name", "host_name_ns",
               "outside_ns", "module")  # fmt: skip
    assert result.spans.select(columns).rows() == [
        (1040, 1070, 30, 25, "c", "cudaLaunchKernel", None, "cudaLaunchKernel", 10, 10, None),
        (1010, 1030, 20, 19, "b", "cudaLaunchKernel", "cudaStreamSynchronize", "aten::mm", 15, 0, "Model/Layer_1"),
    ]
    assert result.host_work.select("name", "spans", "time_ns").rows() == [
        ("aten::mm", 1, 15), ("cudaLaunchKernel", 2, 12), (None, 1, 10), ("aten::add", 1, 5),
        ("cudaStreamSynchronize", 1, 2),
    ]  # fmt: skip
    text = next(finding.text for finding in result.findings if "waits for the host" in finding.text)
    assert "2 times, 44 ns in all; the host is then mostly in aten::mm (34.1 %)" in text


def test_graph_launches():
    rank = Rank()
    rank.step(0, 0, 100)
    rank.op("cudaGraphLaunch", 0, 20, correlation=5)
    for number in range(3):
        rank.kernel(f"k{number}", 30 + 10 * number, 35 + 10 * number, correlation=5)
    rank.copy(60, 61, "DtoD", correlation=5)
    rank.op("cudaGraphLaunch_ptsz", 70, 75, correlation=6)
    rank.call(7, 76, 80)
    rank.kernel("k", 90, 100, correlation=7)
    result = launches(rank.build(), options=ALL)
    columns = ("call", "call_ns", "activities", "kernels", "delay_ns", "device_ns", "span_ns")
    # Of the second the profile has no activity.
    assert result.graphs.select(columns).rows() == [
        ("cudaGraphLaunch", 20, 4, 3, 30, 16, 31),
        ("cudaGraphLaunch_ptsz", 5, 0, 0, None, None, None),
    ]
    assert only(result, "graph_launches", "graph_activities", "graph_share", "graph_call_ns", "graph_device_ns") == (
        1, 4, 0.8, 20, 16,
    )  # fmt: skip
    assert only(result, "calls", "activities", "kernels") == (2, 5, 1)
    assert any(finding.text == "1 graph launch starts 80.0 % of the activities, 4 each" for finding in result.findings)


def capturable(changes=None, *, steps=3, launches_=12, more=()) -> Trace:
    """Steps of launches that take 4, each with a kernel of 5 that ends before the next; a copy to the host ends a step.

    Args:
        changes: Names instead of the usual ones, by step and place.
        steps: Number of steps.
        launches_: Launches of a step.
        more: Steps with one more.
    """
    rank = Rank()
    last = None
    for step in range(steps):
        begin = step * 1000
        rank.step(step, begin, begin + 1000)
        for place in range(launches_ + (step in more)):
            time = begin + 20 * place
            call = rank.call(100 * step + place, time, time + 4, ctrl_deps=[] if last is None else [last])
            name = (changes or {}).get((step, place), f"kernel{place % 4}")
            rank.kernel(name, time + 6, time + 11, correlation=100 * step + place, ctrl_deps=[call])
            last = rank.op("aten::mm", time + 4, time + 20, ctrl_deps=[call])
        call = rank.op("cudaMemcpyAsync", begin + 900, begin + 904, correlation=100 * step + 99, ctrl_deps=[last])
        copy = rank.add("Memcpy DtoH", 3, begin + 910, begin + 912, correlation=100 * step + 99, is_cpu_op=False,
                        stream=7, copy_kind="DtoH", ctrl_deps=[call])  # fmt: skip
        last = rank.op("cudaStreamSynchronize", begin + 912, begin + 914, sync_deps=[copy], ctrl_deps=[call])
    return rank.build()


def test_candidates_for_a_graph():
    result = launches(capturable(), options=ALL)
    assert result.capture.height == 1
    found = result.capture.row(0, named=True)
    assert (found["launches"], found["names"], found["runs"], found["iterations"]) == (12, 4, 3, 3)
    assert (found["first"], found["last"]) == ("kernel0", "kernel3")
    assert (found["device_ns"], found["call_ns"], found["ceiling_call_ns"]) == (60, 48, 44)
    # Between two kernels the device idles 15; the host's part ends with the call: 13.
    assert found["ceiling_idle_ns"] == 11 * 13
    assert not any("one stretch alone" in note for note in result.notes)
    finding = next(finding for finding in result.findings if "each iteration repeats a run of 12" in finding.text)
    assert finding.cost_ns == 143


def test_what_interrupts_a_run():
    # A kernel of another name in the second step: what is before and after it in all steps remains.
    changed = launches(capturable({(1, 9): "other"}, launches_=20), options=ALL).capture
    assert changed.select("launches", "runs", "iterations").rows() == [(10, 3, 3), (9, 3, 3)]
    assert launches(capturable({(1, 5): "other"}), options=ALL).capture.height == 0
    # One more at the end of a step.
    longer = launches(capturable(more=(1,)), options=ALL).capture
    assert longer.select("launches", "runs", "iterations", "ceiling_idle_ns").rows() == [(12, 3, 3, 143)]
    assert launches(capturable(launches_=7), options=ALL).capture.height == 0
    # A single step doesn't tell.
    alone = launches(capturable(steps=1), options=ALL)
    assert alone.capture["launches"].to_list() == [12]
    assert any("one stretch alone" in note for note in alone.notes)


def test_a_wait_of_the_launching_thread_ends_a_run():
    nodes = capturable(launches_=20).nodes
    waiting = nodes.with_columns(
        name=pl.when((pl.col("name") == "aten::mm") & (pl.col("start_ns") % 1000 == 204))
        .then(pl.lit("cudaStreamSynchronize")).otherwise("name"),
        correlation=pl.when((pl.col("name") == "aten::mm") & (pl.col("start_ns") % 1000 == 204))
        .then(pl.col("id").cast(pl.Int64) + 5000).otherwise("correlation"),
    )  # fmt: skip
    trace = capturable(launches_=20).with_nodes(waiting)
    assert launches(capturable(launches_=20), options=ALL).capture["launches"].to_list() == [20]
    assert launches(trace, options=ALL).capture["launches"].to_list() == [11, 9]
    # The same on another thread doesn't.
    elsewhere = waiting.with_columns(
        tid=pl.when(pl.col("name") == "cudaStreamSynchronize").then(2).otherwise("tid").cast(pl.Int64)
    )
    assert launches(trace.with_nodes(elsewhere), options=ALL).capture["launches"].to_list() == [20]


def test_activities_without_a_launch_are_counted():
    rank = Rank()
    rank.kernel("early", 0, 5, correlation=77)
    rank.call(1, 1, 3)
    rank.kernel("gemm", 8, 10, correlation=1)
    result = launches(rank.build())
    assert only(result, "activities", "unlinked", "calls", "kernels") == (2, 1, 1, 1)
    assert result.queue["length"].to_list() == [0, 1, 0]


def test_nothing_is_known_without_calls():
    rank = Rank()
    rank.kernel("gemm", 0, 5)
    rank.kernel("gemm", 8, 9)
    result = launches(rank.build())
    row = result.table.row(0, named=True)
    assert (row["activities"], row["unlinked"], row["calls"]) == (2, 2, 0)
    for name in (
        "call_ns",
        "delay_p50_ns",
        "latency_count",
        "queue_mean",
        "blocked_ns",
        "host_bound_ns",
        "short_share",
    ):
        assert row[name] is None
    assert any("no activity's launch is known" in note for note in result.notes)
    assert any("what the device waits for isn't known" in note for note in result.notes)
    json.dumps(result.as_dict(), allow_nan=False)
    assert result.plot().data == ()


def test_a_host_alone_launches_nothing():
    rank = Rank()
    rank.op("aten::mm", 0, 5)
    result = launches(rank.build())
    assert result.table.height == result.queue.height == result.spans.height == 0
    assert result.notes[-1] == "no rank has a device, so nothing is launched there"
    assert launches(Rank().build()).table.height == 0
    assert launches(rank.build(), options=Options(by=("stream",))).table.height == 0


# Queues against a plain count, walks against the causes that they explain --------------------------------------------

TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(0, 2)), max_size=30)


def count_at(entries, lane, moment, *, before=False):
    """How many of a lane are launched and not started after a moment (or at it, before any starts)."""
    return sum(
        launched <= moment and (started > moment or (before and started == moment))
        for launched, started, of in entries
        if of == lane
    )


@settings(max_examples=200, deadline=None)
@given(TIMES, st.integers(0, 20), st.integers(1, 30))
def test_queues_are_counted_plainly(entries, begin, span):
    entries = [(launched, launched + wait, lane) for launched, wait, lane in entries]
    launched, started, lane = (np.array([entry[place] for entry in entries], np.int64) for place in range(3))
    steps = queue_steps(launched, started, lane)
    for of, time, length in zip(*(values.tolist() for values in steps), strict=True):
        assert length in (count_at(entries, of, time), count_at(entries, of, time, before=True))
    assert length_at_call(launched, started, lane).tolist() == [
        count_at(entries, of, time, before=True) for time, _, of in entries
    ]
    begins, ends = np.array([begin], np.int64), np.array([begin + span], np.int64)
    found = measure_queue(steps, 3, begins, ends).sort("lane")
    for of, area, empty in found.select("lane", "queue_area", "queue_empty_ns").iter_rows():
        lengths = [count_at(entries, of, moment) for moment in range(begin, begin + span)]
        assert (area, empty) == (sum(lengths), lengths.count(0))
    points = queue_points(steps, 3, begins, ends)
    assert points.group_by("lane").agg(pl.col("length").last()).sort("lane")["length"].to_list() == [
        count_at(entries, of, begin + span - 1) for of in range(3)
    ]


def test_thinned_queues_keep_their_peaks():
    length = np.arange(10_000) % 7
    length[5431] = 99
    queue = pl.DataFrame({"time_ns": 1_700_000_000_000_000_000 + np.arange(10_000) * 31, "length": length})
    thin = thinned(queue, 100)
    assert thin.height <= 200
    assert thin["length"].max() == 99
    assert thin["time_ns"].is_sorted()
    assert thinned(queue.head(20), 100).height == 20


@pytest.fixture(scope="module", params=[(name, bound) for name in programs.PROGRAMS for bound in ("device", "host")])
def ran(request, tmp_path_factory):
    """A generated job on a device with a short queue: the program, what happened, and the traces."""
    name, bound = request.param
    program = programs.PROGRAMS[name](bound=bound)
    done = run(program, config=MachineConfig(queue_depth=16))
    folder = tmp_path_factory.mktemp("ran")
    done.write(folder, compress=False)
    return program, done, convert(folder).traces


def call_ns(done):
    return sum(event.end_ns - event.start_ns for event in done.ranks[0].host if event.name == "cudaLaunchKernel")


def test_calls_wait_for_room_as_long_as_a_longer_queue_spares_them(ran):
    program, done, traces = ran
    spared = call_ns(done) - call_ns(run(program, config=MachineConfig(queue_depth=100_000)))
    table = launches(traces, options=Options(iteration="whole", by=("call",))).table
    plain = table.filter(pl.col("call") == "cudaLaunchKernel")
    assert (plain["call_ns"].item(), plain["blocked_ns"].item()) == (call_ns(done), spared)


def test_idleness_is_told_as_the_breakdown_tells_it(ran):
    traces = ran[2]
    table = launches(traces, options=ALL).table
    assert table["host_bound_ns"].to_list() == breakdown(traces, options=ALL).table["idle_host_bound_ns"].to_list()


def test_rows_of_streams_add_up(ran):
    whole = launches(ran[2], options=ALL).table
    parts = launches(ran[2], options=Options(iteration="all", by=("rank", "iteration", "stream", "call"))).table
    sums = ("activities", "calls", "call_ns", "blocked_ns", "host_bound_ns", "host_bound_spans", "short_kernels",
            "graph_activities", "within_call", "latency_count")  # fmt: skip
    assert parts.select(pl.col(sums).sum()).row(0) == whole.select(pl.col(sums).sum()).row(0)
    assert parts["call_max_ns"].max() == whole["call_max_ns"].max()
    json.dumps(launches(ran[2]).as_dict(), allow_nan=False)
