"""Profiles of the model machine read as Kineto's do, and say what happened."""

import gzip
import json
import re
from collections import defaultdict
from itertools import pairwise

import pytest

from chakra_et.errors import InputError
from chakra_et.testing import MachineConfig, ProfileConfig, make_profile_file, programs, run

ALL = [(name, ranks) for name in programs.PROGRAMS for ranks in (1, 4)]


def slices(profile, *categories):
    return [event for event in profile["traceEvents"] if event["ph"] == "X" and event["cat"] in categories]


def profile_of(name="training_step", ranks=1, rank=0, **show):
    return run(programs.PROGRAMS[name](ranks=ranks), show=ProfileConfig(**show)).profile(rank)


def is_nested(events, resolution=0.0):
    """Slices of one track either lie apart or one within the other."""
    open_ends = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while open_ends and open_ends[-1] <= event["ts"] + resolution:
            open_ends.pop()
        if open_ends and event["ts"] + event["dur"] > open_ends[-1] + resolution:
            return False
        open_ends.append(event["ts"] + event["dur"])
    return True


@pytest.mark.parametrize(("name", "ranks"), ALL)
def test_files_hold_what_the_run_says(name, ranks, tmp_path):
    result = run(programs.PROGRAMS[name](ranks=ranks))
    paths = result.write(tmp_path, host=True)
    assert [path.name for path in paths[:ranks]] == [f"rank-{rank}.json.gz" for rank in range(ranks)]
    assert [path.name for path in paths[ranks:]] == [f"host.{rank}.json.gz" for rank in range(ranks)]
    for rank in range(ranks):
        profile = json.loads(gzip.decompress(paths[rank].read_bytes()))
        assert profile == result.profile(rank)
        assert profile["distributedInfo"]["rank"] == rank
        assert profile["distributedInfo"]["pg_config"][0]["ranks"] == list(range(ranks))
        seen = slices(profile, "kernel", "gpu_memcpy", "gpu_memset")
        assert len(seen) == len(result.ranks[rank].device)
        first = min(event["ts"] for event in profile["traceEvents"])
        span = max(event["ts"] + event["dur"] for event in seen) - first
        assert span == pytest.approx(max(event.end_ns for event in result.ranks[rank].device) / 1000, abs=0.002)


def test_bytes_depend_on_the_seed_alone(tmp_path):
    def files(seed, folder):
        paths = run(programs.fsdp_step(ranks=2, seed=seed)).write(tmp_path / folder, host=True, compress=False)
        return [path.read_bytes() for path in paths]

    assert files(1, "a") == files(1, "b")
    assert files(1, "a") != files(2, "c")
    assert json.loads(files(1, "a")[0])["schemaVersion"] == 1


@pytest.mark.parametrize("unit", ["ns", "us"])
@pytest.mark.parametrize("name", list(programs.PROGRAMS))
def test_slices_nest_and_flows_have_both_ends(name, unit):
    profile = profile_of(name, ranks=2, rank=1, time_unit=unit, python_functions=True)
    tracks = defaultdict(list)
    for event in slices(profile, "cpu_op", "user_annotation", "cuda_runtime", "python_function"):
        tracks[event["tid"]].append(event)
    assert all(is_nested(events, 0.0005) for events in tracks.values())
    starts = {(event["pid"], event["tid"], event["ts"]) for event in profile["traceEvents"] if event["ph"] == "X"}
    flows = defaultdict(lambda: defaultdict(int))
    for event in profile["traceEvents"]:
        if event["ph"] in "sf":
            flows[event["cat"], event["id"]][event["ph"]] += 1
            assert (event["pid"], event["tid"], event["ts"]) in starts
    assert all(ends["s"] == 1 and ends["f"] >= 1 for ends in flows.values())
    backward = {event["args"]["Sequence number"] for event in slices(profile, "cpu_op") if "Backward0" in event["name"]}
    assert sum(category == "fwdbwd" for category, _ in flows) == len(backward)


def test_whole_microseconds_are_whole_and_true():
    exact, coarse = profile_of(), profile_of(time_unit="us")
    for a, b in zip(slices(exact, "kernel"), slices(coarse, "kernel"), strict=True):
        assert isinstance(b["ts"], int)
        assert isinstance(b["dur"], int)
        assert abs(a["dur"] - b["dur"]) <= 1
    assert "baseTimeNanoseconds" not in profile_of(base_time=False)


def test_every_activity_has_its_call_and_external_id():
    profile = profile_of(ranks=2)
    calls = {event["args"]["correlation"]: event for event in slices(profile, "cuda_runtime")}
    ops = {event["args"]["External id"]: event for event in slices(profile, "cpu_op")}
    for event in slices(profile, "kernel", "gpu_memcpy", "gpu_memset"):
        call = calls[event["args"]["correlation"]]
        assert call["ts"] < event["ts"]
        op = ops[event["args"]["External id"]]
        assert op["ts"] <= call["ts"]
        assert call["ts"] + call["dur"] <= op["ts"] + op["dur"]
        assert event["tid"] == event["args"]["stream"]
    assert all(event["args"]["bytes"] for event in slices(profile, "gpu_memcpy"))
    ids = [event["args"]["Record function id"] for event in slices(profile, "cpu_op", "user_annotation")]
    assert len(set(ids)) == len(ids)


def test_external_ids_can_be_wrong_or_old():
    right, wrong = profile_of(), profile_of(wrong_external_share=0.3)
    pairs = list(zip(slices(right, "kernel"), slices(wrong, "kernel"), strict=True))
    share = sum(a["args"]["External id"] != b["args"]["External id"] for a, b in pairs) / len(pairs)
    assert 0.1 < share < 0.5
    for event in slices(profile_of(external_id="correlation"), "kernel", "cuda_runtime"):
        assert event["args"]["External id"] == event["args"]["correlation"]
    bare = slices(profile_of(record_function_ids=False), "cpu_op")
    assert not any("Record function id" in event["args"] for event in bare)


def test_waits_are_recorded_with_what_they_wait_for():
    profile = profile_of("fsdp_step", ranks=2)
    calls = {event["args"]["correlation"]: event for event in slices(profile, "cuda_runtime")}
    syncs = slices(profile, "cuda_sync")
    assert {event["name"] for event in syncs} == {"Stream Wait Event", "Stream Sync", "Context Sync"}
    waits = [event for event in syncs if event["name"] == "Stream Wait Event"]
    assert len(waits) == sum(event["name"] == "cudaStreamWaitEvent" for event in calls.values())
    for event in waits:
        record = calls[event["args"]["wait_on_cuda_event_record_corr_id"]]
        assert record["name"] == "cudaEventRecord"
        assert record["ts"] < event["ts"]
        kernels = [kernel for kernel in slices(profile, "kernel") if kernel["tid"] == event["args"]["stream"]]
        before = [
            kernel
            for kernel in slices(profile, "kernel")
            if kernel["tid"] == event["args"]["wait_on_stream"]
            and calls[kernel["args"]["correlation"]]["ts"] < record["ts"]
        ]
        later = [kernel for kernel in kernels if calls[kernel["args"]["correlation"]]["ts"] > event["ts"]]
        if before and later:
            assert min(kernel["ts"] for kernel in later) >= max(kernel["ts"] + kernel["dur"] for kernel in before)
    assert not slices(profile_of(cuda_sync=False), "cuda_sync")
    kinds = {event["name"] for event in slices(profile_of("inference_graph_step"), "cuda_sync")}
    assert "Event Sync" in kinds


def test_communications_are_described_where_asked():
    profile = profile_of("pipeline_step", ranks=4, rank=1)
    kernels = [event for event in slices(profile, "kernel") if event["name"].startswith("ncclDevKernel_SendRecv")]
    peers = {(event["args"]["Collective name"], event["args"].get("Dst Rank")) for event in kernels}
    assert peers == {("send", 2), ("send", 0), ("recv", None)}
    assert {event["args"].get("Src Rank") for event in kernels} == {None, 0, 2}
    assert {event["args"]["Process Group Ranks"] for event in kernels} == {"[0, 1, 2, 3]"}
    names = [event["name"] for event in slices(profile, "user_annotation") if event["name"].startswith("nccl:")]
    assert {re.sub(r"\d", "N", name) for name in names} == {"nccl:send N->N", "nccl:recv N<-N"}
    bare = profile_of("pipeline_step", ranks=4, kernel_comm_args=False, host_comm_args=False)
    assert not any("Collective name" in event["args"] for event in slices(bare, "kernel", "cpu_op"))
    ops = [event for event in slices(profile_of(), "cpu_op") if event["name"] == "record_param_comms"]
    assert {event["args"]["Collective name"] for event in ops} == {"allreduce", "wait"}


def test_amd_speaks_hip():
    profile = profile_of("inference_graph_step", vendor="amd", ranks=2)
    runtime = slices(profile, "cuda_runtime")
    assert all(event["name"].startswith("hip") and "cid" in event["args"] for event in runtime)
    assert not slices(profile, "cuda_sync")
    kernels = slices(profile, "kernel")
    assert {event["args"]["kind"] for event in kernels} == {"Dispatch Kernel", "Dispatch Task"}
    assert any(event["name"].startswith("ncclDevKernel_Generic") for event in kernels)
    graph = next(event for event in runtime if event["name"] == "hipGraphLaunch")
    assert sum(event["args"]["correlation"] == graph["args"]["correlation"] for event in kernels) == 12


def test_what_began_before_the_window_is_not_written():
    whole = run(programs.training_step())
    kernels = [event for event in whole.ranks[0].device if event.launch.name == "cudaLaunchKernel"]
    begin = kernels[8].start_ns - 1
    cut = run(whole.program, show=ProfileConfig(window_start_ns=begin)).profile(0)
    calls = {event["args"]["correlation"] for event in slices(cut, "cuda_runtime")}
    orphans = [event for event in slices(cut, "kernel") if event["args"]["correlation"] not in calls]
    assert len(orphans) > 5
    assert min(event["ts"] for event in slices(cut, "cpu_op", "kernel")) >= 1_365_627_862_000 + begin / 1000 - 0.001
    tails = {event["id"] for event in cut["traceEvents"] if event["ph"] == "s" and event["cat"] == "ac2g"}
    heads = {event["id"] for event in cut["traceEvents"] if event["ph"] == "f" and event["cat"] == "ac2g"}
    assert tails == heads


def test_ranges_and_frames_can_be_shown_or_hidden():
    shown = profile_of(python_functions=True)
    frames = slices(shown, "python_function")
    assert any(event["name"] == "nn.Module: Block_0" and "Python module id" in event["args"] for event in frames)
    assert any(event["name"] == "ProfilerStep#0" for event in slices(shown, "gpu_user_annotation"))
    hidden = profile_of(profiler_steps=False, gpu_annotations=False, flows=False)
    assert not any("ProfilerStep" in event["name"] for event in hidden["traceEvents"])
    assert not slices(hidden, "gpu_user_annotation", "python_function")
    assert not any(event["ph"] in "sf" for event in hidden["traceEvents"])


def test_clocks_can_differ_between_ranks():
    moved = run(programs.training_step(ranks=2), show=ProfileConfig(clock_offset_ns={1: 3_000_000}))
    same = run(moved.program)
    for rank, offset in ((0, 0), (1, 3_000)):
        a, b = slices(same.profile(rank), "kernel")[0], slices(moved.profile(rank), "kernel")[0]
        assert b["ts"] - a["ts"] == pytest.approx(offset, abs=0.001)
        assert a["dur"] == b["dur"]


def test_overlap_shows_in_the_profile():
    result = run(programs.training_step(), config=MachineConfig(pdl_share=0.8))
    kernels = [event for event in slices(result.profile(0), "kernel") if event["tid"] == 7]
    assert any(a["ts"] + a["dur"] > b["ts"] for a, b in pairwise(kernels))


@pytest.mark.parametrize("show", [{"vendor": "other"}, {"time_unit": "ms"}, {"wrong_external_share": 2}])
def test_senseless_profiles_are_refused(show):
    with pytest.raises(InputError, match="profile: expected"):
        ProfileConfig(**show)


def test_host_trace_matches_the_profile():
    result = run(programs.training_step(ranks=2))
    profile, trace = result.profile(1), result.host_trace(1)
    assert trace["schema"] == "1.1.1-chakra.0.0.4"
    nodes = {node["id"]: node for node in trace["nodes"]}
    assert len(nodes) == len(trace["nodes"])
    assert all(node["ctrl_deps"] in nodes for node in trace["nodes"])
    attrs = {number: {attr["name"]: attr["value"] for attr in node["attrs"]} for number, node in nodes.items()}
    by_id = {attrs[number]["rf_id"]: node["name"] for number, node in nodes.items() if attrs[number]["rf_id"]}
    ranges = slices(profile, "cpu_op", "user_annotation")
    assert by_id == {event["args"]["Record function id"]: event["name"] for event in ranges}
    order = [node["id"] for node in trace["nodes"]]
    position = {number: index for index, number in enumerate(order)}
    assert all(
        position[node["ctrl_deps"]] > position[node["id"]]
        for node in trace["nodes"]
        if attrs[node["id"]]["rf_id"] and attrs[node["ctrl_deps"]]["rf_id"]
    )
    backward = [number for number in nodes if attrs[number]["fw_parent"]]
    assert backward
    for number in backward:
        assert attrs[number]["seq_id"] == attrs[attrs[number]["fw_parent"]]["seq_id"]
        assert (attrs[number]["tid"], attrs[number]["fw_tid"]) == (2, 1)


def test_host_trace_has_tensors_groups_and_communications():
    trace = run(programs.training_step(ranks=2)).host_trace(1)
    init = next(node for node in trace["nodes"] if node["name"] == "## process_group:init ##")
    assert json.loads(init["inputs"]["values"][0])[0]["group_size"] == 2
    tensors = {
        side: {
            value[0]
            for node in trace["nodes"]
            for value, kind in zip(node[side]["values"], node[side]["types"], strict=True)
            if kind.startswith("Tensor(")
        }
        for side in ("inputs", "outputs")
    }
    assert len(tensors["inputs"] & tensors["outputs"]) > 10
    comms = [node for node in trace["nodes"] if node["name"] == "record_param_comms"]
    reduce = next(node for node in comms if node["inputs"]["values"][4] == "allreduce")
    assert reduce["inputs"]["values"][1:] == [
        [0, False],
        ["0", "default_pg"],
        1,
        "allreduce",
        [],
        [],
        0,
        1,
        2,
    ]
    assert all(len(node["inputs"]["values"]) == len(node["inputs"]["types"]) for node in trace["nodes"])
    waits = [node["inputs"]["values"] for node in comms if node["inputs"]["values"][3] == "wait"]
    assert [values[0] for values in waits[:2]] == [[0, False], [1, False]]


@pytest.mark.parametrize("name", ["big.json", "big.json.gz"])
def test_large_profiles_are_valid(name, tmp_path):
    path = make_profile_file(tmp_path / name, megabytes=6, seed=2)
    data = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    assert 4e6 < len(data) < 8e6
    profile = json.loads(data)
    calls = {event["args"]["correlation"]: event for event in slices(profile, "cuda_runtime")}
    assert len(calls) == len(slices(profile, "cuda_runtime"))
    kernels = slices(profile, "kernel")
    assert all(calls[event["args"]["correlation"]]["ts"] < event["ts"] for event in kernels)
    for stream in {event["tid"] for event in kernels}:
        works = sorted((event["ts"], event["dur"]) for event in kernels if event["tid"] == stream)
        assert all(a[0] + a[1] <= b[0] for a, b in pairwise(works))
    steps = [event["name"] for event in slices(profile, "user_annotation") if event["name"].startswith("ProfilerStep")]
    assert len(set(steps)) == len(steps) >= 12
    ids = [event["id"] for event in profile["traceEvents"] if event["ph"] == "s" and event["cat"] == "ac2g"]
    assert len(set(ids)) == len(ids)
