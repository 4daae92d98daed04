"""The rules of the model machine, on programs whose times can be worked out by hand and on the library of programs."""

from itertools import pairwise

import pytest

from chakra_et.errors import InputError
from chakra_et.testing import Edit, MachineConfig, ProgramBuilder, programs, run

EXACT = MachineConfig(latency_ns=5_000, latency_jitter_ns=0, gap_ns=1_000, doorbell_fraction=0.5, handoff_ns=8_000)
ALL = [(name, ranks, bound) for name in programs.PROGRAMS for ranks in (1, 4) for bound in ("device", "host")]


def one_thread():
    builder = ProgramBuilder("test", ranks=1)
    return builder, builder.rank(0).thread()


def times(result, rank=0):
    return [(event.work.name, event.start_ns, event.end_ns) for event in result.ranks[rank].device]


def calls(result, name, rank=0):
    return [(event.start_ns, event.end_ns) for event in result.ranks[rank].host if event.name == name]


def test_a_launch_takes_doorbell_and_latency_and_the_stream_a_gap():
    builder, main = one_thread()
    main.launch("a", duration_ns=20_000, call_ns=4_000)
    main.launch("b", duration_ns=7_000, call_ns=4_000)
    assert times(run(builder.build(), config=EXACT)) == [("a", 7_000, 27_000), ("b", 28_000, 35_000)]


def test_a_kernel_may_start_before_its_call_returns():
    builder, main = one_thread()
    main.launch("a", duration_ns=1_000, call_ns=40_000)
    result = run(builder.build(), config=EXACT)
    assert times(result) == [("a", 25_000, 26_000)]
    assert calls(result, "cudaLaunchKernel") == [(0, 40_000)]


def test_host_scale_moves_the_doorbell_and_not_the_latency():
    builder, main = one_thread()
    main.launch("a", duration_ns=1_000, call_ns=4_000)
    program = builder.build()
    assert times(run(program, config=EXACT, edit=Edit(host_thread_scale={main.tid: 3.0}))) == [("a", 11_000, 12_000)]


def test_a_stream_waits_for_an_event_and_the_host_does_not():
    builder, main = one_thread()
    main.launch("a", duration_ns=50_000, call_ns=4_000)
    main.event_record("e", 7)
    main.stream_wait_event(9, "e")
    main.launch("b", duration_ns=3_000, stream=9, call_ns=4_000)
    result = run(builder.build(), config=EXACT)
    assert times(result) == [("a", 7_000, 57_000), ("b", 58_000, 61_000)]
    assert calls(result, "cudaLaunchKernel")[1][1] < 20_000


def test_only_the_latest_record_before_the_wait_counts_and_an_unknown_event_is_no_wait():
    builder, main = one_thread()
    main.stream_wait_event(9, "e")
    main.event_record("e", 7)
    main.launch("a", duration_ns=50_000, call_ns=4_000)
    main.stream_wait_event(9, "e")
    main.launch("b", duration_ns=3_000, stream=9, call_ns=4_000)
    result = run(builder.build(), config=EXACT)
    assert times(result)[1][1] < 50_000


@pytest.mark.parametrize("wait", ["stream", "event", "device"])
def test_a_host_wait_ends_when_the_work_has_and_its_own_time_has_passed(wait):
    builder, main = one_thread()
    main.launch("a", duration_ns=50_000, call_ns=4_000)
    main.event_record("e")
    {
        "stream": main.stream_synchronize,
        "event": lambda: main.event_synchronize("e"),
        "device": main.device_synchronize,
    }[wait]()
    main.busy(1_000_000)
    sync = f"cuda{wait.capitalize()}Synchronize"
    program = builder.build()
    result = run(program, config=EXACT)
    cost = next(entry.host_ns for entry in program.threads[0].instructions if type(entry).__name__ == "Sync")
    assert calls(result, sync)[0][1] == 57_000 + cost


def test_a_pageable_copy_blocks_and_a_pinned_one_does_not():
    builder, main = one_thread()
    main.memcpy_async("HtoD", 2_000_000)
    main.memcpy("DtoH", 2_000_000)
    result = run(builder.build(), config=EXACT)
    (first, second), copies = calls(result, "cudaMemcpyAsync"), times(result)
    assert first[1] < copies[0][2]
    assert copies[1][1] == copies[0][2] + EXACT.gap_ns
    assert second[1] >= copies[1][2]


def test_a_full_queue_blocks_the_launch():
    builder, main = one_thread()
    for index in range(6):
        main.launch(f"k{index}", duration_ns=100_000, call_ns=2_000)
    program = builder.build()
    free = run(program, config=EXACT)
    full = run(program, config=MachineConfig(latency_jitter_ns=0, doorbell_fraction=0.5, queue_depth=2))
    assert calls(free, "cudaLaunchKernel")[-1] == (10_000, 12_000)
    ends = [end for _, _, end in times(full)]
    for index, (start, end) in enumerate(calls(full, "cudaLaunchKernel")):
        assert end == (start if index < 2 else max(start, ends[index - 2])) + 2_000
    assert times(free) == times(full)


def test_a_graph_forks_and_joins():
    builder, main = one_thread()
    main.launch("before", duration_ns=30_000, call_ns=2_000)
    main.graph_launch([("a", 10_000, 7), ("side", 40_000, 9), ("b", 5_000, 7)], call_ns=2_000)
    main.launch("after", duration_ns=1_000, call_ns=2_000)
    result = run(builder.build(), config=EXACT)
    at = {name: (start, end) for name, start, end in times(result)}
    assert at["before"] == (6_000, 36_000)
    assert at["a"] == (37_000, 47_000)
    assert at["side"] == (37_000, 77_000)
    assert at["b"] == (48_000, 53_000)
    assert at["after"] == (78_000, 79_000)
    assert len({event.launch for event in result.ranks[0].device}) == 3


def test_a_collective_ends_for_all_when_the_last_has_come_and_the_transfer_is_done():
    builder = ProgramBuilder("test", ranks=3)
    for rank in range(3):
        main = builder.rank(rank).thread()
        main.busy(10_000 * rank)
        main.wait(main.collective("allreduce", 1_000, stream=20, transfer_ns=30_000))
        main.launch("after", duration_ns=1_000)
    program = builder.build()
    result = run(program, config=EXACT)
    comms = [next(event for event in rank.device if event.work.comm) for rank in result.ranks]
    assert {event.end_ns for event in comms} == {max(event.start_ns for event in comms) + 30_000}
    for rank, comm in zip(result.ranks, comms, strict=True):
        after = next(event for event in rank.device if event.work.name == "after")
        assert after.start_ns == comm.end_ns + EXACT.gap_ns
    skewed = run(program, config=MachineConfig(end_skew_ns=400))
    ends = {next(event for event in rank.device if event.work.comm).end_ns for rank in skewed.ranks}
    assert len(ends) > 1
    assert max(ends) - min(ends) < 400


def test_a_send_meets_its_receive():
    builder = ProgramBuilder("test", ranks=2)
    first, second = builder.rank(0).thread(), builder.rank(1).thread()
    first.busy(500_000)
    first.send(1_000, peer=1, stream=40)
    second.wait(second.recv(1_000, peer=0, stream=40))
    second.launch("use", duration_ns=1_000)
    result = run(builder.build())
    send, receive = result.ranks[0].device[0], result.ranks[1].device[0]
    assert receive.start_ns < 100_000 < send.start_ns
    assert send.end_ns == receive.end_ns
    assert result.ranks[1].device[1].start_ns > send.end_ns


def test_backward_runs_while_the_main_thread_sleeps():
    builder, main = one_thread()
    main.busy(10_000)
    with main.call_backward(builder.rank(0).thread("autograd")) as worker:
        worker.launch("grad", duration_ns=1_000, call_ns=2_000)
        worker.busy(20_000)
    main.call("cudaStreamIsCapturing", host_ns=500)
    result = run(builder.build(), config=EXACT)
    assert calls(result, "cudaLaunchKernel") == [(18_000, 20_000)]
    assert calls(result, "cudaStreamIsCapturing") == [(48_000, 48_500)]


def test_dependent_launch_overlaps_neighbors_within_bounds():
    builder, main = one_thread()
    for _ in range(50):
        main.launch("k", duration_ns=20_000)
    program = builder.build()
    plain = run(program).ranks[0].device
    overlapped = run(program, config=MachineConfig(pdl_share=0.5)).ranks[0].device
    assert all(a.end_ns + 1_000 <= b.start_ns for a, b in pairwise(plain))
    overlaps = [a.end_ns - b.start_ns for a, b in pairwise(overlapped)]
    assert 10 < sum(overlap > 0 for overlap in overlaps) < 40
    assert max(overlaps) == 1_500


def test_programs_that_cannot_end_are_refused():
    builder = ProgramBuilder("half", ranks=2)
    builder.rank(0).thread().collective("allreduce", 8, stream=20)
    with pytest.raises(InputError, match=r"'half'.*expected launches on 2 ranks, got 1"):
        run(builder.build())
    builder.rank(0).thread().device_synchronize()
    with pytest.raises(InputError, match=r"'half': rank 0: thread 4000 \('main'\) waits for ever"):
        run(builder.build())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Edit(kernel_scale=0),
        lambda: Edit(rank_delay_ns={0: -1}),
        lambda: MachineConfig(queue_depth=0),
        lambda: MachineConfig(doorbell_fraction=2),
        lambda: ProgramBuilder("none", ranks=0),
        lambda: programs.training_step(bound="both"),
        lambda: programs.training_step(iterations=0),
    ],
)
def test_senseless_values_are_refused(make):
    with pytest.raises(InputError, match="expected"):
        make()


# The library of programs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "ranks", "bound"), ALL)
def test_every_program_keeps_the_rules(name, ranks, bound):
    program = programs.PROGRAMS[name](ranks=ranks, bound=bound)
    result = run(program)
    meetings = {}
    for rank in result.ranks:
        assert rank.start_ns == 0
        for stream in program.streams:
            works = [event for event in rank.device if event.work.stream == stream]
            order = sorted(works, key=lambda event: event.launch.start_ns)
            assert order == works
            assert all(a.end_ns + 1_000 <= b.start_ns for a, b in pairwise(works))
        for event in rank.device:
            assert event.start_ns >= event.launch.start_ns + 5_000
            if event.work.comm:
                meetings.setdefault(event.work.comm.key, []).append((event.end_ns, len(event.work.comm.members)))
        for event in rank.host:
            if event.parent:
                assert event.parent.start_ns <= event.start_ns <= event.end_ns <= event.parent.end_ns
    for ends in meetings.values():
        assert len(ends) == ends[0][1]
        assert len({end for end, _ in ends}) == 1
    assert bool(meetings) == (ranks > 1 or name in ("training_step", "fsdp_step"))


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("name", list(programs.PROGRAMS))
def test_edits_change_what_they_should(name, ranks):
    device = programs.PROGRAMS[name](ranks=ranks, bound="device")
    host = programs.PROGRAMS[name](ranks=ranks, bound="host")
    usual = {"device": run(device).makespan_ns, "host": run(host).makespan_ns}

    def growth(program, bound, **edit):
        return run(program, edit=Edit(**edit)).makespan_ns / usual[bound]

    assert 1.75 < growth(device, "device", kernel_scale=2.0) < 2.01
    assert growth(host, "host", kernel_scale=2.0) < 1.02
    assert 2.5 < growth(device, "device", stream_scale={7: 3.0}) < 3.01
    assert growth(device, "device", host_thread_scale={device.tid(0): 2.0}) < 1.2
    assert growth(host, "host", host_thread_scale={host.tid(0): 2.0}) > 1.35
    late = run(device, edit=Edit(rank_delay_ns={0: 5_000_000}))
    assert late.spans_ns[0][0] == 5_000_000
    assert late.makespan_ns > 5_000_000


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    spans = [run(programs.fsdp_step(ranks=2, seed=seed)).spans_ns for seed in (3, 3, 4)]
    assert spans[0] == spans[1] != spans[2]


def test_an_edit_draws_the_same_latencies():
    program = programs.training_step(bound="host")
    usual, slow = run(program).ranks[0].device, run(program, edit=Edit(kernel_scale=1.5)).ranks[0].device

    def latencies(events):
        return {event.uid: event.start_ns - event.launch.start_ns for event in events}

    a, b = latencies(usual), latencies(slow)
    assert a.keys() == b.keys()
    assert sum(a[uid] == b[uid] for uid in a) > 0.7 * len(a)


@pytest.mark.parametrize("name", list(programs.PROGRAMS))
def test_every_program_runs_on_a_machine_with_a_short_queue_and_overlap(name):
    program = programs.PROGRAMS[name](ranks=4)
    config = MachineConfig(queue_depth=2, pdl_share=0.3, end_skew_ns=300)
    result = run(program, config=config)
    for rank in result.ranks:
        launches = list(dict.fromkeys(event.launch for event in rank.device))
        launches.sort(key=lambda call: call.start_ns)
        ended = {call: max(event.end_ns for event in rank.device if event.launch is call) for call in launches}
        for earlier, later in zip(launches, launches[2:], strict=False):
            assert later.end_ns > ended[earlier]
    blocked = [call.end_ns - call.start_ns for call in launches]
    assert max(blocked) > 50_000
