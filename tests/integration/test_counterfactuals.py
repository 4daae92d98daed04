"""Converted traces answer what-ifs as the machine that made the profiles does.

Gap nodes alone could make any graph exact. So the generator runs each program a second time with something slower, and
the trace that was converted from the first run, slowed the same way, must rebuild to the second run's makespan.
"""

from itertools import product

import numpy as np
import polars as pl
import pytest

from chakra_et.conversion import ConvertOptions
from chakra_et.ir import build_graph
from chakra_et.passes.reconstruct import reconstruct
from chakra_et.testing import Edit, MachineConfig, ProfileConfig, ProgramBuilder, programs
from tests.integration.counterfactual import experiment, window_starts

NAMES = list(programs.PROGRAMS)
TOLERANCE = 0.01
ALL = list(product(NAMES, (1, 4), ("device", "host"), (True, False)))


def wrong(found, *, edits=None, tolerance=TOLERANCE):
    """The edits that the trace answers by more than the tolerance apart from the truth, with the error."""
    errors = {name: found.error(edit) for name, edit in (edits or found.edits()).items()}
    return {name: f"{100 * error:+.2f} %" for name, error in errors.items() if abs(error) > tolerance}


def told(found, bound):
    """The edits that the profile tells enough for: see test_short_pauses_blur_hand_offs."""
    edits = found.edits()
    if (found.program.name, found.program.ranks, bound) == ("pipeline_step", 1, "host"):
        del edits["thread autograd x2"]
    return edits


def timeline_of(trace):
    """Rebuilt starts of the device nodes, by stream."""
    rebuilt = trace.nodes.with_columns(rebuilt=pl.Series(reconstruct(trace).start_ns))
    device = rebuilt.filter(~pl.col("is_cpu_op"), trace.column("gap_kind").is_null(), pl.col("type") > 1)
    return device.select("stream", "rebuilt", "name").sort("stream", "rebuilt", "name").rows()


@pytest.mark.parametrize(("name", "ranks", "bound", "sync"), ALL)
def test_edits_agree_with_a_second_run(name, ranks, bound, sync, tmp_path):
    program = programs.PROGRAMS[name](ranks=ranks, bound=bound)
    found = experiment(program, tmp_path, show=ProfileConfig(cuda_sync=sync))
    assert wrong(found, edits=told(found, bound)) == {}


@pytest.mark.parametrize(("name", "ranks", "bound", "sync"), ALL)
def test_converted_traces_are_whole_and_exact(name, ranks, bound, sync, tmp_path):
    program = programs.PROGRAMS[name](ranks=ranks, bound=bound)
    found = experiment(program, tmp_path, show=ProfileConfig(cuda_sync=sync), host=True)
    quality = found.result.quality
    assert found.result.failed == ()
    for rank, trace, facts in zip(found.run.ranks, found.result.traces, quality.ranks, strict=True):
        assert facts.start_error_ns == {"p50": 0, "p99": 0, "max": 0}
        assert facts.makespan_ns == facts.window_ns == rank.end_ns - rank.start_ns
        assert facts.device_activities == facts.device_nodes == facts.linkable == facts.linked == len(rank.device)
        assert facts.host_ops_matched == facts.host_ops
        assert facts.unknown_communications == 0
        assert facts.communications == sum(event.work.kind == "comm" for event in rank.device)
        graph = build_graph(trace)
        assert len(graph.dangling) == len(graph.self_edges) == 0
        rebuilt = reconstruct(trace)
        assert rebuilt.unscheduled == 0
        assert rebuilt.start_error_all_ns.max == 0
        assert trace.nodes["id"].n_unique() == len(trace)
        recorded = trace.nodes.filter(pl.col("type") > 1)["start_ns"]
        assert recorded.is_sorted()
    matching = quality.matching
    assert (matching.complete, matching.mismatched) == (matching.collectives, 0)
    assert matching.paired == matching.sends == matching.receives
    assert matching.findings == ()
    assert set((matching.clock_offsets_ns or {0: 0}).values()) == {0}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bound", ["device", "host"])
def test_details_rebuild_to_the_same_device_timeline(name, bound, tmp_path):
    program = programs.PROGRAMS[name](ranks=2, bound=bound)
    traces = {
        detail: experiment(program, tmp_path, options=ConvertOptions(detail=detail), host=True).result.traces
        for detail in ("op", "launch", "device")
    }
    for op, launch, device in zip(*traces.values(), strict=True):
        assert timeline_of(op) == timeline_of(launch) == timeline_of(device)
        assert len(op) > len(launch) >= len(device)
        host = device.nodes.filter(pl.col("is_cpu_op"), pl.col("type") != 1)
        assert host["gap_kind"].null_count() == 0
        assert set(device.nodes.filter(pl.col("type") == 1)["name"].str.slice(0, 13)) == {"ProfilerStep#"}


@pytest.mark.parametrize("name", NAMES)
def test_details_answer_the_same(name, tmp_path):
    program = programs.PROGRAMS[name](ranks=2)
    for detail in ("launch", "device"):
        found = experiment(program, tmp_path, options=ConvertOptions(detail=detail))
        edits = {name: edit for name, edit in found.edits().items() if "thread" not in name}
        assert wrong(found, edits=edits) == {}, detail


@pytest.mark.parametrize("depth", [8, 32])
@pytest.mark.parametrize("name", ["training_step", "multi_stream", "fsdp_step"])
@pytest.mark.parametrize("sync", [True, False])
def test_full_queues(name, depth, sync, tmp_path):
    config = MachineConfig(queue_depth=depth)
    found = experiment(programs.PROGRAMS[name](ranks=1), tmp_path, config=config, show=ProfileConfig(cuda_sync=sync))
    edits = found.edits() | {"kernels /2": Edit(kernel_scale=0.5)}
    assert wrong(found, edits=edits) == {}


@pytest.mark.parametrize(("depth", "launches"), [(6, 40), (32, 600)])
def test_queues_that_are_always_full(depth, launches, tmp_path):
    """A host that runs ahead all the time: nearly every launch waits for room."""
    builder = ProgramBuilder("ahead", ranks=1)
    main = builder.rank(0).thread()
    for number in range(launches):
        with main.op("aten::mm"):
            main.launch(f"gemm {number}", duration_ns=main.vary(100_000))
    main.device_synchronize()
    found = experiment(builder.build(), tmp_path, config=MachineConfig(queue_depth=depth))
    edits = found.edits() | {"kernels /4": Edit(kernel_scale=0.25)}
    assert wrong(found, edits=edits) == {}


@pytest.mark.parametrize(
    "show",
    [
        ProfileConfig(vendor="amd", time_unit="us", base_time=False, kernel_comm_args=False),
        ProfileConfig(vendor="amd"),
        ProfileConfig(time_unit="us", cuda_sync=False),
        ProfileConfig(record_function_ids=False, external_id="correlation", flows=False, cuda_sync=False),
        ProfileConfig(wrong_external_share=0.2, gpu_annotations=False, python_functions=True),
        ProfileConfig(profiler_steps=False, cuda_sync=False),
    ],
    ids=["old amd", "amd", "whole us", "old ids", "wrong ids", "no steps"],
)
@pytest.mark.parametrize(("name", "bound"), list(product(NAMES, ("device", "host"))))
def test_what_profiles_show_and_hide(name, bound, show, tmp_path):
    program = programs.PROGRAMS[name](ranks=1, bound=bound)
    found = experiment(program, tmp_path, show=show)
    assert wrong(found, edits=told(found, bound)) == {}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_other_seeds_with_noise(name, seed, tmp_path):
    program = programs.PROGRAMS[name](
        ranks=4 if name == "pipeline_step" else 2, bound="device" if seed % 2 else "host", seed=seed
    )
    found = experiment(
        program,
        tmp_path,
        config=MachineConfig(latency_jitter_ns=2_500, end_skew_ns=700),
        show=ProfileConfig(clock_offset_ns={1: 5_000_000} if seed == 3 else {}),
    )
    assert all(facts.start_error_ns["max"] == 0 for facts in found.result.quality.ranks)
    assert wrong(found) == {}


def test_clock_offsets_are_found(tmp_path):
    shift = {1: 5_000_000, 2: -40_000, 3: 7_654_321_000}
    found = experiment(programs.training_step(ranks=4), tmp_path, show=ProfileConfig(clock_offset_ns=shift))
    offsets = found.result.quality.matching.clock_offsets_ns
    # All members leave a collective at one moment here, so that causality leaves little room.
    assert all(abs(offsets[rank] + shift.get(rank, 0)) < 50_000 for rank in range(4))
    assert wrong(found) == {}


def test_recording_that_began_late(tmp_path):
    found = experiment(programs.training_step(iterations=4), tmp_path, show=ProfileConfig(window_start_ns=3_000_000))
    facts = found.result.quality.ranks[0]
    assert facts.linked == facts.linkable < facts.device_activities == facts.device_nodes
    assert any("no launch call" in warning for warning in facts.warnings)
    assert facts.start_error_ns["max"] == 0
    assert window_starts(found.run)[0] >= 3_000_000
    # What the profile's window left out can't be made slower.
    kept = {name: found.edits()[name] for name in ("as it was", "last rank late")}
    assert wrong(found, edits=kept) == {}


def test_blocking_copies(tmp_path):
    """The call of a pageable copy returns when the copy has ended, in either direction."""
    builder = ProgramBuilder("copies", ranks=1)
    main = builder.rank(0).thread()
    for _ in range(6):
        with main.op("aten::copy_"):
            main.memcpy("HtoD", 400_000)
        with main.op("aten::mm"):
            main.launch("gemm", duration_ns=150_000)
        with main.op("aten::item"):
            main.memcpy("DtoH", 40_000)
        with main.op("aten::add"):
            main.launch("add", duration_ns=20_000)
    main.device_synchronize()
    for sync in (True, False):
        found = experiment(builder.build(), tmp_path / str(sync), show=ProfileConfig(cuda_sync=sync))
        assert found.result.quality.ranks[0].start_error_ns["max"] == 0
        edits = found.edits()
        # Where in its call a launch rang the doorbell can't be seen, and here every launch is exposed.
        assert wrong(found, edits={"main": edits.pop("thread main x2")}, tolerance=0.025) == {}
        assert wrong(found, edits=edits) == {}


# Honest limits: what a profile doesn't show can't be told from it.


def test_programmatic_dependent_launch_is_exact_but_not_causal(tmp_path):
    """Overlapping kernels hang on a common predecessor: the profile doesn't say what let the later one start."""
    found = experiment(programs.training_step(iterations=3), tmp_path, config=MachineConfig(pdl_share=0.3))
    facts = found.result.quality.ranks[0]
    assert facts.start_error_ns["max"] == 0
    assert facts.makespan_ns == facts.window_ns
    assert any("overlap the one before" in warning for warning in facts.warnings)
    assert found.error(Edit()) == 0
    assert -0.25 < found.error(Edit(kernel_scale=2.0)) < 0


@pytest.mark.parametrize("overlapping", [0.0, 1.0])
def test_a_host_that_takes_no_time_leaves_kernels_back_to_back(overlapping, tmp_path):
    """Kernels 100 us apart, for the host's sake, keep no more between them than queued ones show."""
    builder = ProgramBuilder("bursts", ranks=1)
    main = builder.rank(0).thread()
    for apart in (100_000, 5_000, 100_000):
        for number in range(40):
            with main.op("aten::mm", host_ns=apart):
                main.launch(f"gemm {number}", duration_ns=60_000 if apart == 5_000 else 20_000)
        main.device_synchronize()
    program, config = builder.build(), MachineConfig(pdl_share=overlapping)
    found = experiment(program, tmp_path, config=config)
    assert found.result.quality.ranks[0].start_error_ns["max"] == 0
    edits = {f"main x{scale}": Edit(host_thread_scale={program.tid(0, "main"): scale}) for scale in (0.5, 0.01)}
    # An overlap has no edge: where neighbors begin to overlap, the trace has them one after the other.
    assert wrong(found, edits=edits, tolerance=0.05 if overlapping else TOLERANCE) == {}


def test_short_pauses_blur_hand_offs(tmp_path):
    """Between two backward passes, nothing tells the hand-offs from the thread's own time."""
    found = experiment(programs.pipeline_step(bound="host"), tmp_path)
    edit = {name: edit for name, edit in found.edits().items() if "autograd" in name}
    assert wrong(found, edits=edit, tolerance=0.02) == {}


def test_stream_waits_reach_host_waits(tmp_path):
    """Who waits for a stream waits for what that stream was told to wait for, though nothing runs there after."""
    builder = ProgramBuilder("join", ranks=1)
    main = builder.rank(0).thread()
    for turn in range(4):
        with main.op("aten::mm"):
            main.launch("long", duration_ns=200_000, stream=13)
        main.event_record(f"done {turn}", 13)
        with main.op("aten::mm"):
            main.launch("short", duration_ns=20_000)
        main.stream_wait_event(7, f"done {turn}")
        main.stream_synchronize(7)
        main.python(30_000)
    for sync in (True, False):
        found = experiment(builder.build(), tmp_path / str(sync), show=ProfileConfig(cuda_sync=sync))
        assert wrong(found) == {}, sync


def test_unwaited_sends_are_not_what_a_receiver_waits_for(tmp_path):
    """Nobody waits for a send: without records, a wait after a receive is for the receive, not for the send before."""
    program = programs.pipeline_step(ranks=4)
    show = ProfileConfig(cuda_sync=False)
    found = experiment(program, tmp_path, show=show)
    edits = {name: edit for name, edit in found.edits().items() if name.startswith("stream 4")}
    assert len(edits) == 3
    assert wrong(found, edits=edits) == {}
    assert np.isclose(found.error(Edit()), 0, atol=1e-4)
