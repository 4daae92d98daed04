"""Host threads wait for devices, for each other, and for room in the queue."""

import polars as pl
import pytest

from chakra_et.passes.reconstruct import reconstruct
from chakra_et.testing import MachineConfig, ProfileConfig, ProgramBuilder, programs
from tests.unit.frontends.pytorch.converted import convert_program, one_thread, resumed

BOTH = pytest.mark.parametrize("sync", [True, False], ids=["records", "inferred"])


def two_streams(wait):
    """A short kernel on one stream, a long one on another, and a host that waits."""

    def body(main):
        with main.op("aten::mm"):
            main.launch("short", duration_ns=60_000)
        main.event_record("mark")
        with main.op("aten::mm"):
            main.launch("more", duration_ns=60_000)
        with main.op("aten::mm"):
            main.launch("long", duration_ns=300_000, stream=13)
        wait(main)
        main.python(400_000)
        with main.op("aten::empty"):
            main.busy(1000)

    return body


@BOTH
@pytest.mark.parametrize(
    ("wait", "call", "expected"),
    [
        (lambda main: main.stream_synchronize(7), "cudaStreamSynchronize", {"more"}),
        (lambda main: main.stream_synchronize(13), "cudaStreamSynchronize", {"long"}),
        (lambda main: main.event_synchronize("mark"), "cudaEventSynchronize", {"short"}),
        (lambda main: main.device_synchronize(), "cudaDeviceSynchronize", {"more", "long"}),
    ],
    ids=["stream 7", "stream 13", "event", "device"],
)
def test_synchronizations_wait_for_what_they_name(sync, wait, call, expected):
    trace, facts = one_thread(two_streams(wait), show=ProfileConfig(cuda_sync=sync))
    assert resumed(trace, call) == [expected]
    assert facts.details["contradicting"] == 0
    assert reconstruct(trace).start_error_all_ns.max == 0


def test_a_wait_has_no_length_of_its_own():
    """The time that a synchronize call waits is in no node, so that a what-if can shrink it."""
    trace, _ = one_thread(two_streams(lambda main: main.device_synchronize()))
    call = trace.nodes.filter(pl.col("name") == "cudaDeviceSynchronize")
    assert call.height == 2
    assert call["duration_ns"].sum() < 10_000


def test_copies_to_pageable_memory_wait_for_themselves():
    def body(main):
        with main.op("aten::mm"):
            main.launch("gemm", duration_ns=200_000)
        with main.op("aten::item"):
            main.memcpy("DtoH", 4)
        with main.op("aten::mm"):
            main.launch("gemm2", duration_ns=5_000)

    trace, _ = one_thread(body)
    assert resumed(trace, "cudaMemcpyAsync") == [{"Memcpy DtoH (Device -> Pageable)"}]


def test_copies_to_pinned_memory_wait_for_nothing():
    def body(main):
        with main.op("aten::mm"):
            main.launch("gemm", duration_ns=200_000)
        with main.op("aten::copy_"):
            main.memcpy_async("DtoH", 4)
        with main.op("aten::mm"):
            main.launch("gemm2", duration_ns=5_000)

    trace, _ = one_thread(body)
    assert resumed(trace, "cudaMemcpyAsync") == []


def test_threads_hand_over_and_come_back():
    trace, _ = convert_program(programs.training_step(iterations=1, bound="host"))
    threads = trace.nodes.filter(pl.col("is_cpu_op"), pl.col("type") > 1)
    tids = dict(threads.select("id", "tid").rows())
    main, autograd = sorted(set(tids.values()))
    crossing = [
        (tids[dep], row["tid"], bool(row["inferred"]))
        for row in threads.iter_rows(named=True)
        for dep in row["sync_deps"]
        if dep in tids and tids[dep] != row["tid"]
    ]
    assert crossing == [(main, autograd, True), (autograd, main, True)]


def test_pauses_of_a_thread_that_works_alone_are_its_own():
    def body(main):
        with main.op("aten::mm"):
            main.launch("a", duration_ns=10_000)
        main.python(500_000)
        with main.op("aten::mm"):
            main.launch("b", duration_ns=10_000)

    trace, _ = one_thread(body)
    idle = trace.nodes.filter(pl.col("gap_kind") == "host_idle")
    assert idle["duration_ns"].max() >= 500_000
    assert idle["sync_deps"].list.len().sum() == 0


def test_polling_threads_ride_on_working_ones():
    builder = ProgramBuilder("poll", ranks=1)
    main, watchdog = builder.rank(0).thread(), builder.rank(0).thread("watchdog")
    for _ in range(20):
        with main.op("aten::mm"):
            main.busy(50_000)
    for _ in range(10):
        watchdog.python(90_000)
        watchdog.call("cudaEventQuery")
    trace, _ = convert_program(builder.build())
    tid = trace.nodes.filter(pl.col("name") == "cudaEventQuery")["tid"][0]
    calls = trace.nodes.filter(pl.col("tid") == tid, pl.col("sync_deps").list.len() > 0)
    assert calls.height >= 8
    assert reconstruct(trace).start_error_all_ns.max == 0
    # Twice as fast an operator thread makes the polls come earlier.
    owner = trace.nodes["tid"] == builder.build().tid(0)
    faster = trace.with_columns([pl.Series("duration_ns", trace.nodes["duration_ns"] // (owner.cast(pl.Int64) + 1))])
    assert reconstruct(faster).makespan_ns < 0.65 * reconstruct(trace).makespan_ns


# Room in the queue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [8, 1024])
def test_the_length_of_a_queue_that_is_full_at_times(depth):
    _, facts = convert_program(programs.multi_stream(layers=8, iterations=8), config=MachineConfig(queue_depth=depth))
    assert facts.details["queue_length"] == (depth if depth == 8 else 0)


def test_launches_wait_for_room():
    def body(main):
        for number in range(40):
            with main.op("aten::mm"):
                main.launch(f"k{number}", duration_ns=100_000)
        main.device_synchronize()

    trace, facts = one_thread(body, config=MachineConfig(queue_depth=6))
    assert facts.details["queue_length"] == 6
    # The seventh waits for the first, and so on.
    assert resumed(trace, "cudaLaunchKernel") == [{f"k{number}"} for number in range(34)]
    assert trace.column("inferred").sum() >= 34
