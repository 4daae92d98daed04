"""Host events are sorted and nested by thread, and what lies between them is found."""

import numpy as np
import polars as pl

from chakra_et.frontends.pytorch.calls import (
    ASYNC_COPY,
    BLOCKING_COPY,
    DEVICE_SYNC,
    EVENT_SYNC,
    OTHER,
    RECORD,
    STREAM_SYNC,
    WAIT,
    LaunchLog,
    call_roles,
    find_graph_launches,
    find_launchers,
)
from chakra_et.frontends.pytorch.timeline import build_timeline, find_pauses
from tests.unit.frontends.pytorch.profiles import call, event, op, profile


def timeline_of(*events):
    found = profile(list(events))
    return build_timeline(found.host, resolution_ns=found.resolution_ns)


def names(timeline, events=None):
    frame = timeline.frame["name"]
    return frame.to_list() if events is None else [frame[int(e)] if e >= 0 else None for e in events]


def test_events_are_sorted_by_thread_and_start_enclosing_ones_first():
    timeline = timeline_of(
        op("late", 50, 5), op("inner", 10, 10), event("user_annotation", "step", 10, 90), op("outer", 10, 30),
        op("other", 0, 5, tid=2), call("cudaLaunchKernel", 12, 3, 1),
    )  # fmt: skip
    assert names(timeline) == ["step", "outer", "inner", "cudaLaunchKernel", "late", "other"]
    assert names(timeline, timeline.parent) == [None, "step", "outer", "inner", "step", None]
    assert timeline.bounds.tolist() == [0, 5, 6]
    assert timeline.tids.tolist() == [1, 2]


def test_of_equal_spans_annotations_enclose_operators_and_those_calls():
    timeline = timeline_of(
        call("cudaLaunchKernel", 10, 5, 1), op("aten::mm", 10, 5), event("user_annotation", "a", 10, 5)
    )
    assert names(timeline) == ["a", "aten::mm", "cudaLaunchKernel"]


def test_threads_of_two_processes_are_apart():
    one, other = op("a", 1, 5), op("b", 2, 5)
    other["pid"] = 9
    timeline = timeline_of(one, other)
    assert timeline.parent.tolist() == [-1, -1]
    assert timeline.pids.tolist() == [1, 9]


def test_the_operator_around_a_call_is_the_innermost():
    timeline = timeline_of(
        op("aten::linear", 0, 30), op("aten::mm", 2, 20), event("user_annotation", "nccl:x", 3, 10),
        call("cudaLaunchKernel", 4, 3, 1), call("cudaFree", 40, 1, 2),
    )  # fmt: skip
    index = {name: number for number, name in enumerate(names(timeline))}
    asked = np.array([index["cudaLaunchKernel"], index["aten::mm"], index["cudaFree"], -1])
    assert names(timeline, timeline.operator_of(asked)) == ["aten::mm", "aten::linear", None, None]


def test_pauses_are_between_top_events():
    main = [op("a", 10, 10), op("inside", 12, 2), op("b", 25, 5), call("cudaFree", 50, 5, 1)]
    timeline = timeline_of(*main, op("x", 5, 5, tid=2))
    pauses = find_pauses(timeline, window_start_ns=5000)
    assert pauses.bounds.tolist() == [0, 3, 4]
    assert list(zip(pauses.begin.tolist(), pauses.end.tolist(), strict=True)) == [
        (5000, 10_000), (20_000, 25_000), (30_000, 50_000), (5000, 5000),
    ]  # fmt: skip
    assert pauses.leading.tolist() == [True, False, False, True]
    assert pauses.containing(0, 40_000) == 2
    assert pauses.containing(0, 20_000) == -1
    assert pauses.containing(0, 25_000) == 1
    assert pauses.containing(0, 60_000) == -1
    assert pauses.following(0, 21_000) == 2
    assert pauses.following(0, 31_000) == -1


def test_an_annotation_ends_a_pause():
    timeline = timeline_of(op("a", 0, 10), event("user_annotation", "step", 40, 30), op("b", 60, 5))
    pauses = find_pauses(timeline, window_start_ns=0)
    assert pauses.end.tolist() == [0, 40_000, 60_000, 70_000]
    assert pauses.begin.tolist() == [0, 10_000, 40_000, 65_000]


def test_threads_that_only_poll_are_told():
    timeline = timeline_of(op("a", 0, 10), call("cudaEventQuery", 3, 1, 1, tid=2))
    assert timeline.op_threads.tolist() == [True, False]


def test_roles_of_calls():
    roles = {
        "cudaEventRecord": RECORD, "cudaEventRecordWithFlags": RECORD, "hipEventRecord": RECORD,
        "cudaStreamWaitEvent": WAIT, "hipStreamWaitEvent": WAIT, "cudaDeviceSynchronize": DEVICE_SYNC,
        "hipDeviceSynchronize": DEVICE_SYNC, "cuCtxSynchronize": DEVICE_SYNC, "cudaStreamSynchronize": STREAM_SYNC,
        "cudaEventSynchronize": EVENT_SYNC, "cudaMemcpy": BLOCKING_COPY, "hipMemcpyWithStream": BLOCKING_COPY,
        "cudaMemcpyAsync": ASYNC_COPY, "hipMemcpyHtoDAsync": ASYNC_COPY, "cudaMalloc": DEVICE_SYNC,
        "cudaFree": DEVICE_SYNC, "cudaMallocAsync": OTHER, "cudaFreeAsync": OTHER, "cudaFreeHost": OTHER,
        "cudaMallocHost": OTHER, "cudaLaunchKernel": OTHER, "cudaStreamIsCapturing": OTHER, "cudaEventQuery": OTHER,
    }  # fmt: skip
    timeline = timeline_of(*(call(name, 10 * i, 5, i) for i, name in enumerate(roles)), op("cudaEventRecord", 1000, 5))
    found = dict(zip(names(timeline)[:-1], call_roles(timeline)[:-1].tolist(), strict=True))
    assert found == roles
    # An operator of that name is no call.
    assert call_roles(timeline)[-1] == OTHER


def test_launchers_are_found_by_correlation():
    launches = [call("cudaLaunchKernel", 0, 10, 5), call("cuLaunchKernel", 2, 5, 5)]
    timeline = timeline_of(*launches, call("cudaMemcpyAsync", 20, 3, 9), op("a", 0, 99))
    found = find_launchers(timeline, np.array([9, 5, 77, -1]))
    assert names(timeline, found) == ["cudaMemcpyAsync", "cudaLaunchKernel", None, None]
    assert find_launchers(timeline_of(op("a", 0, 1)), np.array([5])).tolist() == [-1]


def test_launch_log():
    log = LaunchLog.build(np.array([0, 0, 1, -1]), np.array([50, 90, 60, 10]), np.array([40, 20, -1, 5]))
    # Launches may be out of order with starts; an unknown launch counts as the start.
    assert log.activity[0].tolist() == [1, 0]
    assert log.time[1].tolist() == [60]
    assert set(log.time) == {0, 1}
    assert (log.last_before(0, 20), log.last_before(0, 21), log.last_before(0, 99)) == (-1, 1, 0)
    assert (log.first_from(0, 20), log.first_from(0, 21), log.first_from(0, 41)) == (1, 0, -1)


def test_graph_launches_use_several_lanes():
    launcher = np.array([3, 3, 3, 4, -1])
    lane = np.array([0, 0, 1, 0, 1])
    start = np.array([10, 20, 15, 30, 5])
    (graph,) = find_graph_launches(launcher, lane, start)
    assert (graph.call, graph.firsts, graph.lasts) == (3, (0, 2), (1, 2))
    assert find_graph_launches(np.array([-1]), np.array([0]), np.array([0])) == []


def test_no_host_events():
    timeline = build_timeline(profile([event("kernel", "k", 1, 1)]).host, resolution_ns=1000)
    assert len(timeline.thread) == 0
    assert timeline.bounds.tolist() == [0]
    assert call_roles(timeline).tolist() == []
    assert isinstance(timeline.frame, pl.DataFrame)
