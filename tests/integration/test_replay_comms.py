"""Communications replayed on gloo: every call, in order, on its group, in its size, with the right result; no hang."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import polars as pl
import pytest

pytest.importorskip("torch")

from chakra_et.conversion import convert
from chakra_et.errors import ReplayError
from chakra_et.ir import Trace, TraceSet
from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.find import find_communications
from chakra_et.replay.communications.groups import used_groups
from chakra_et.replay.job.launch import LaunchOptions, launch
from chakra_et.replay.job.plan import Job, JobOptions, plan_job
from chakra_et.replay.options import ConnectOptions, ReplayOptions
from chakra_et.replay.plan.comms import CommFilter, calls_of
from tests.conftest import ROOT
from tests.integration.processes import capture_job, free_port
from tests.unit.replay.plans import WORLD, blocking, comm, plan

SHARED = ROOT.parent / "shared" / "traces"
RECORDED = {"gloo-coll4": SHARED, "gloo-pipe4": SHARED, "moe": None, "pipeline": None}
COMM = JobOptions(only="comm")


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """The recorded jobs, each converted once."""
    made: dict[str, TraceSet] = {}

    def get(name: str) -> TraceSet:
        if name not in made:
            folder = RECORDED[name]
            if folder is not None and not (folder / name).is_dir():
                pytest.skip(f"{folder / name} is not there")
            source = capture_job(name, 4, tmp_path_factory.mktemp(name)) if folder is None else folder / name
            made[name] = convert(source).traces
        return made[name]

    return get


def run(job: Job, *, delays="none", record=None, check=True, timeout_s=60.0, repeats=1, only="comm"):
    options = ReplayOptions(only=only, delays=delays, repeats=repeats)
    return launch(job, LaunchOptions(options, ConnectOptions(timeout_s=timeout_s, check=check), record))


def told(call: CommCall) -> tuple[object, ...]:
    """What a call must be again: group names are torch's own, the ranks in them tell which is which."""
    return (call.kind, call.ranks, call.inputs, call.outputs, call.dtype, call.in_splits, call.out_splits, call.root,
            call.peer, call.tag, call.reduce_op)  # fmt: skip


def all_calls(traces: TraceSet) -> dict[int, list[tuple[object, ...]]]:
    return {
        rank: [
            told(call) for call in find_communications(trace, rank, groups=traces.process_groups, world_size=4).calls
        ]
        for rank, trace in zip(traces.ranks, traces, strict=True)
    }


@pytest.mark.parametrize("delays", ["none", "measured"])
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_replay_captured_again_has_the_same_calls_in_the_same_order(sets, name, delays, tmp_path):
    traces = sets(name)
    job = plan_job(traces, COMM, place=name)
    reports = run(job, delays=delays, record=tmp_path)
    assert [report.wrong for report in reports] == [()] * 4
    # The first pass and the measured one; what a rank that isn't the root of a reduce holds is not told.
    results = [2 * sum(bool(call.outputs) for call in calls_of(one)) for one in job.plans]
    assert [report.checked + report.unchecked for report in reports] == results
    assert sum(report.unchecked for report in reports) == (12 if name == "gloo-coll4" else 0)
    expected = all_calls(traces)
    assert all_calls(convert(tmp_path).traces) == expected
    assert min(map(len, expected.values())) >= 16
    if delays == "measured":
        spent = [report.result.iterations[0, :, 1].max() - report.result.iterations[0, 0, 0] for report in reports]
        held = [sum(step.gap_ns for step in report.result.plan.steps) for report in reports]
        assert all(own >= gaps > 0 for own, gaps in zip(spent, held, strict=True))


# Of ../shared/traces/README.md: one iteration of a rank, in elements.
COLL4 = [
    ("allreduce_", 1024, "float32"), ("allreduce_", 2048, "bfloat16"), *[("allreduce_", 65536, "float32")] * 3,
    ("allreduce_", 512, "float32"), ("allreduce_", 256, "float32"), ("broadcast_", 128, "float32"),
    ("reduce_", 128, "float32"), ("allgather_", 64, "float32"), ("_allgather_base_", 64, "float32"),
    ("_reduce_scatter_base_", 128, "float32"), ("gather_", 16, "float32"),
]  # fmt: skip


def test_the_calls_are_those_that_the_recorded_program_made(sets):
    traces = sets("gloo-coll4")
    tensor, data = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}, {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}
    for one in plan_job(traces, COMM).plans:
        calls = calls_of(one)
        assert len(calls) == 42
        for own in (calls[:21], calls[21:]):
            assert [(call.kind, call.in_elements, call.dtype) for call in own[:13]] == COLL4
            assert [call.kind for call in own[13:17]] == ["scatter_", "alltoall_base_", "alltoall_", "barrier"]
            assert (own[13].out_elements, own[14].in_elements, own[15].inputs) == (16, 32, ((8,),) * 4)
            assert [call.asynchronous for call in own[:5]] == [False, False, True, True, True]
            assert (own[5].ranks, own[6].ranks, own[7].ranks) == (tensor[one.rank], data[one.rank], (0, 1, 2, 3))
            ends = {(call.kind, call.peer, call.tag, call.in_elements + call.out_elements) for call in own[17:]}
            after, before = (one.rank + 1) % 4, (one.rank - 1) % 4
            assert ends == {("send", after, 7, 100), ("recv_", before, 7, 100), ("send", after, 0, 200),
                            ("recv_", before, 0, 200)}  # fmt: skip


SWAPPED = ("name", "op_schema", "inputs", "outputs", "comm_type", "comm_size", "comm_dtype", "comm_root")


def mutated(trace: Trace, what: str) -> tuple[Trace, int]:
    """Swap, drop or resize the first broadcast of a trace; return the node that must be named, too."""
    calls = find_communications(trace, 2, world_size=4).calls
    place = next(number for number, call in enumerate(calls) if call.kind == "broadcast_")
    call, following = calls[place], calls[place + 1]
    nodes = trace.nodes
    if what == "drop":
        own = nodes["id"][call.row]
        gone = (pl.col("id") == own) | (pl.col("parent") == own).fill_null(False)
        return trace.with_nodes(nodes.filter(~gone)), following.node
    if what == "resize":
        smaller = pl.col("inputs").struct.with_fields(pl.field("shapes").str.replace("128", "127", literal=True))
        return trace.with_nodes(nodes.with_columns(pl.when(pl.col("id") == call.node).then(smaller)
                                                   .otherwise("inputs").alias("inputs"))), call.node  # fmt: skip
    order = list(range(len(nodes)))
    for one, other in ((call.row, following.row), (call.comm_row, following.comm_row)):
        order[one], order[other] = other, one
    return trace.with_columns(nodes[name][order] for name in SWAPPED), call.node


@pytest.mark.parametrize("what", ["swap", "drop", "resize"])
def test_one_rank_that_differs_is_named_before_any_process_starts(sets, what, monkeypatch):
    traces = sets("gloo-coll4")
    odd, node = mutated(traces.trace(2), what)
    changed = TraceSet(tuple(odd if trace.rank == 2 else trace for trace in traces), traces.process_groups)
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(ReplayError) as caught:
        run(plan_job(changed, COMM, place="out/"))
    assert str(caught.value).startswith(f"out/: rank 2: node {node} ")
    assert "expected broadcast_ of 128 float32 as on rank 0 (node " in str(caught.value)


def without(job: Job, rank: int, place: int) -> Job:
    """Leave one communication of a rank out of its plan."""
    gone = calls_of(job.plans[rank])[place].number
    steps = tuple(
        step for step in job.plans[rank].steps
        if getattr(step, "number", None) != gone and getattr(getattr(step, "call", None), "number", None) != gone
    )  # fmt: skip
    iterations = (replace(job.plans[rank].iterations[0], begin=0, end=len(steps)),)
    changed = replace(job.plans[rank], steps=steps, iterations=iterations)
    return replace(job, plans=tuple(changed if own.rank == rank else own for own in job.plans))


def test_a_communication_that_one_rank_leaves_out_is_named_within_the_time_out():
    calls = [comm(number, kind) for number, kind in enumerate(("allreduce_", "_allgather_base_", "allreduce_"))]
    plans = tuple(plan(rank, blocking(calls)) for rank in range(4))
    job = without(Job(plans, used_groups(calls), {}, 4), 2, 2)
    begin = time.monotonic()
    with pytest.raises(ReplayError) as caught:
        run(job, check=False, timeout_s=2.0)
    text = str(caught.value)
    assert "node 102 ('allreduce_'): number 2 of group '0': 3 of 4 ranks there after 2 s; missing: rank 2 (" in text
    # Mostly the start of four processes.
    assert time.monotonic() - begin < 60


def test_a_rank_that_fails_ends_the_others():
    calls = [comm(number, "barrier") for number in range(2)]
    broken = [comm(0, "barrier"), comm(1, "barrier", group=("none", (0, 1, 2, 3)))]
    plans = tuple(plan(rank, blocking(broken if rank == 1 else calls)) for rank in range(4))
    begin = time.monotonic()
    with pytest.raises(ReplayError, match=r"^rank 1: node 101 \('barrier'\): expected its group 'none' among those"):
        run(Job(plans, used_groups(calls), {}, 4), timeout_s=300.0)
    assert time.monotonic() - begin < 60
    deadline = time.monotonic() + 5
    while _children() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _children() == []


def _children() -> list[str]:
    """Return the command lines of this process's children that replay."""
    found = []
    for folder in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if folder.isdecimal():
            try:
                with open(f"/proc/{folder}/stat") as stat, open(f"/proc/{folder}/cmdline") as command:
                    if int(stat.read().rpartition(")")[2].split()[1]) == os.getpid():
                        found.append(command.read())
            except OSError:
                continue
    return [line for line in found if "launch_rank" in line]


def everything(rank: int) -> list[CommCall]:
    """Every kind, on groups that overlap: a 2 x 2 mesh, the world twice, a pair with an odd name."""
    calls: list[CommCall] = []

    def add(kind: str, **more: object) -> None:
        calls.append(comm(len(calls), kind, **more))

    mesh = (("tp", (0, 1) if rank < 2 else (2, 3)), ("mesh_dp", (rank % 2, rank % 2 + 2)))
    for group in (WORLD, ("9", (0, 1, 2, 3)), *mesh, ("pair of names ü", (1, 2))):
        members = len(group[1])
        if rank not in group[1]:
            continue
        for kind in ("allreduce_", "broadcast_", "reduce_", "allgather_", "_allgather_base_", "reduce_scatter_",
                     "_reduce_scatter_base_", "alltoall_", "alltoall_base_", "barrier"):  # fmt: skip
            add(kind, group=group)
        two, many = ((8,), (3, 2)), ((8 * members,), (3 * members, 2))
        add("allreduce_coalesced_", group=group, inputs=two, outputs=two)
        add("allgather_into_tensor_coalesced_", group=group, inputs=two, outputs=many)
        add("reduce_scatter_tensor_coalesced_", group=group, inputs=many, outputs=two)
        add("allgather_coalesced_", group=group, inputs=two, outputs=two * members)
        root = group[1][-1]
        add("gather_", group=group, root=root, outputs=((8,),) * members if rank == root else ())
        add("scatter_", group=group, root=root, inputs=((8,),) * members if rank == root else ())
        own = group[1].index(rank)
        sent = tuple((own + 2 * other) % 3 for other in range(members))
        taken = tuple((other + 2 * own) % 3 for other in range(members))
        add("alltoall_base_", group=group, in_splits=sent, out_splits=taken, inputs=((sum(sent), 5),),
            outputs=((sum(taken), 5),))  # fmt: skip
    for op in ("max", "min", "product", "avg", "premul_sum"):
        add("allreduce_", reduce_op=op)
    add("send", peer=(rank + 1) % 4, tag=3, asynchronous=True)
    add("recv_", peer=(rank - 1) % 4, tag=3, asynchronous=True)
    return calls


def test_every_kind_on_every_group_gives_what_it_must():
    made = {rank: everything(rank) for rank in range(4)}
    plans = tuple(plan(rank, blocking(calls)) for rank, calls in made.items())
    groups = used_groups(call for calls in made.values() for call in calls)
    assert len(groups) == 7
    reports = run(Job(plans, groups, {}, 4), timeout_s=30.0)
    assert [report.wrong for report in reports] == [()] * 4
    assert min(report.checked for report in reports) >= 2 * 65


def test_ranks_without_anything_to_do_do_not_hold_up_the_others(sets):
    keep = CommFilter(groups=("1",), kinds=("allreduce",))
    job = plan_job(sets("gloo-coll4"), JobOptions(only="comm", keep=keep))
    assert [len(calls_of(one)) for one in job.plans] == [2, 2, 0, 0]
    reports = run(job)
    assert [report.checked for report in reports] == [4, 4, 0, 0]
    assert [len(report.result.communications) for report in reports] == [1, 1, 0, 0]


@pytest.mark.parametrize("kind", ["traces", "profiles"])
def test_any_launcher_can_start_the_ranks_and_fewer_of_them(sets, tmp_path, kind):
    from chakra_et.io import write_set

    traces = sets("gloo-coll4")
    place = tmp_path / "traces" if kind == "traces" else RECORDED["gloo-coll4"] / "gloo-coll4"
    if kind == "traces":
        write_set(traces, place)
    words = [sys.executable, "-m", "chakra_et.replay", str(place), "--only", "comm", "--delays", "none",
             "--world-size", "2", "--check", "--repeats", "1"]  # fmt: skip
    port = str(free_port())
    ranks = [
        subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={
            **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "GLOO_SOCKET_IFNAME": "lo"})
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=90) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [process.returncode for process in ranks] == [0, 0], said
    assert "checked 136 results of communications: 0 wrong" in said[0][0]
    assert "rank 1: a step takes " in said[0][0]
    assert said[1][0] == ""


def test_the_command_line(sets, tmp_path, chakra):
    from chakra_et.io import write_set

    write_set(sets("gloo-coll4"), tmp_path / "traces")
    dry = chakra("replay", tmp_path / "traces", "--only", "comm", "--dry-run", "--json")
    assert dry.code == 0, dry.err
    assert [rank["communications"] for rank in dry.json["ranks"]] == [42] * 4
    assert chakra("replay", tmp_path / "traces", "--only", "comm", "--nproc", "3").code == 2
    assert chakra("replay", tmp_path / "traces", "--check").code == 2
    missing = chakra("replay", tmp_path / "traces", "--only", "comm", "--type", "gather", "--group", "1")
    assert missing.code == 1
    assert "expected communications that the filters let through, got none; groups: 0, 1, 2, 3, 4;" in missing.err
    out = tmp_path / "report"
    words = ("replay", tmp_path / "traces", "--only", "comm", "--world-size", "2", "--delays", "none", "--check")
    done = chakra(*words, "--repeats", "1", "-o", out)
    assert done.code == 0, done.err
    assert "all as they must be" in done.out
    assert f"Wrote {out / 'replay.json'}" in done.out
    (out / "host.0.json.gz").touch()
    mixed = chakra(*words, "--profile", out)
    assert mixed.code == 1
    assert "expected no earlier capture in the folder" in mixed.err
    again = chakra(*words, "-o", out)
    assert again.code == 1
    assert "--force" in again.err
