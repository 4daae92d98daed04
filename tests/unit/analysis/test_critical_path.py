"""The critical path over all ranks, and what-ifs by scheduling anew."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from chakra_et.analysis.critical_path import critical_path, measure
from chakra_et.analysis.joint import join
from chakra_et.analysis.options import Options
from chakra_et.analysis.run import Source
from chakra_et.analysis.view import RankView
from chakra_et.conversion import convert
from chakra_et.errors import InputError
from chakra_et.ir import NodeType, ProcessGroup, TraceBuilder, TraceSet
from chakra_et.ir.process_group import join_groups
from chakra_et.sim.simulate import simulate
from chakra_et.testing import ProfileConfig, programs, run
from tests.property.test_simulate import jobs
from tests.unit.sim.jobs import COLL, COMP, RECV, SEND, grid, system

WORLD = ProcessGroup("7", (0, 1, 2), 3, "data parallel")
WHOLE = Options(iteration="whole")


def found(source: Source, kind: str, *columns: str) -> list[tuple]:
    """Rows of one kind of contributor: name and columns."""
    return critical_path(source, options=WHOLE).table.filter(kind=kind).select("name", *columns).rows()


def device(builder, name, start, duration, deps=(), kind=COMP, **columns):
    return builder.add(
        name, kind, start_ns=start, duration_ns=duration, sync_deps=list(deps), is_cpu_op=False, stream=7, **columns
    )


def reduce(builder, start, duration, deps, **columns):
    columns = {"pg_name": "7", "comm_type": 0, "comm_size": 64} | columns
    return device(builder, "ncclAllReduce", start, duration, deps, COLL, **columns)


def staggered(offsets=(0, 0, 0), ranks=(0, 1, 2)):
    """Ranks that begin at 50, arrive at 100, 250, 180 and leave at 300, 310, 300; the first one goes on longest."""
    traces = []
    for rank, arrival, end, rest in ((0, 100, 300, 90), (1, 250, 310, 5), (2, 180, 300, 5)):
        builder = TraceBuilder(rank=rank, world_size=3, process_groups=[WORLD], family="collected")
        work = device(builder, "gemm", 50 + offsets[rank], arrival - 50)
        node = reduce(builder, arrival + offsets[rank], end - arrival, [work])
        device(builder, "add", end + offsets[rank], rest, [node])
        traces.append(builder.build())
    return TraceSet(tuple(traces[rank] for rank in ranks))


def test_the_path_goes_over_the_rank_that_came_last():
    result = critical_path(staggered())
    assert (result.finish_ns, result.hops, result.start_error_ns, result.steps) == (340, 1, 0, 1)
    assert result.path.drop("nodes").rows() == [
        (1, 0, 200, "compute", "gemm", None),
        (0, 200, 250, "communication", "ncclAllReduce", "7"),
        (0, 250, 340, "compute", "add", None),
    ]
    assert result.origin_ns == 50


def test_what_ifs_schedule_anew():
    """Without gemm, all arrive at once; nobody's gain is what it takes on the path alone."""
    assert found(staggered(), "kernel", "path_ns", "total_ns", "finish_ns", "gain_ns") == [
        ("gemm", 200, 380, 140, 200),
        ("add", 90, 100, 260, 80),
        ("ncclAllReduce", 50, 160, 290, 50),
    ]
    assert found(staggered(), "class", "path_ns", "finish_ns") == [("compute", 290, 60), ("communication", 50, 290)]
    assert found(staggered(), "group", "path_ns", "gain_ns") == [("7", 50, 50)]
    # Without rank 1's work, rank 2 is the last; without rank 0's, rank 1 ends last.
    assert found(staggered(), "rank", "path_ns", "finish_ns") == [("1", 200, 270), ("0", 90, 265)]


def test_shares_are_of_the_whole():
    table = critical_path(staggered()).table
    assert table.filter(kind="class")["path_ns"].sum() == 340
    row = table.row(0, named=True)
    assert row["path_share"] == row["path_ns"] / 340
    assert row["gain_share"] == row["gain_ns"] / 340
    assert row["gain_ns"] == 340 - row["finish_ns"]


def test_clocks_are_set_first():
    shifted = staggered(offsets=(0, 7_000_000, -3_000_000))
    result = critical_path(shifted)
    assert result.start_error_ns == 0
    assert abs(result.finish_ns - 340) <= 60
    assert result.path["rank"].to_list() == [1, 0, 0]


def test_who_is_not_in_the_set_is_waited_for_as_far_as_a_matching_has_told():
    alone = critical_path(staggered(ranks=(0,)))
    assert (alone.finish_ns, alone.start_error_ns) == (340, 0)
    assert any("1 communication with ranks that aren't in the set" in note for note in alone.notes)
    assert found(staggered(ranks=(0,)), "class", "path_ns") == [("communication", 200), ("compute", 140)]
    trace = staggered().traces[0]
    wait = pl.Series("wait_ns", [None, 150, None], pl.Int64)
    told = trace.with_columns([wait, pl.Series("transfer_ns", [None, 50, None], pl.Int64)])
    assert found(told, "class", "path_ns", "finish_ns") == [
        ("outside", 200, 190),
        ("compute", 90, 250),
        ("communication", 50, 290),
    ]
    assert critical_path(told).path.row(0) == (None, 0, 200, "outside", None, None, 1)


def messages(send, receive, *, host=False, call=None):
    """A message from rank 0 to rank 1: (start, duration) of both nodes."""
    made = [TraceBuilder(rank=rank, family="collected") for rank in range(2)]
    ends = {"comm_src": 0, "comm_dst": 1, "comm_size": 8, "is_cpu_op": host}
    before = (
        made[0].add("c10d::send", COMP, is_cpu_op=True, start_ns=call, duration_ns=send[0] - call) if host else None
    )
    parent = {"parent": before, "ctrl_deps": [before]} if host else {}
    made[0].add("s", SEND, start_ns=send[0], duration_ns=send[1], **ends, **parent)
    work = made[1].add("work", COMP, start_ns=0, duration_ns=receive[0], is_cpu_op=host)
    made[1].add("r", RECV, start_ns=receive[0], duration_ns=receive[1], ctrl_deps=[work], **ends)
    return TraceSet(tuple(builder.build() for builder in made))


@pytest.mark.parametrize(
    "traces",
    [
        messages((0, 5_000), (20_000, 1_000)),
        messages((0, 25_000), (20_000, 5_500)),
        messages((9_000, 2_000), (3_000, 4_000), host=True, call=1_000),
        messages((0, 5_000), (20_000, 1_000), host=True, call=0),
    ],
    ids=["eager", "rendezvous", "ready at its call", "host"],
)
def test_messages_are_rebuilt(traces):
    result = critical_path(traces, options=WHOLE)
    assert result.start_error_ns == 0
    assert result.finish_ns == simulate(traces, comm="measured").finish_ns


def test_an_eager_send_waits_for_nobody():
    eager = messages((0, 5_000), (20_000, 1_000))
    assert found(eager, "class", "path_ns") == [("compute", 20_000), ("communication", 1_000)]
    assert critical_path(eager).hops == 0


@pytest.mark.parametrize("kind", [3, 4, 5], ids=["gather", "scatter", "broadcast"])
def test_rooted_collectives_follow_the_simulator(kind):
    traces = []
    for rank, (start, end) in enumerate(((0, 12_000), (10_000, 99_000), (90_000, 95_000))):
        builder = TraceBuilder(rank=rank, process_groups=[WORLD], family="collected")
        work = device(builder, "gemm", 0, start)
        reduce(builder, start, end - start, [work], comm_type=kind, comm_root=1)
        traces.append(builder.build())
    assert without(TraceSet(tuple(traces))) == simulated(TraceSet(tuple(traces)))


# Against the simulator, which has an engine of its own


def joint_of(traces):
    parts = [measure(RankView(trace, rank, WHOLE)) for rank, trace in zip(traces.ranks, traces, strict=True)]
    groups = (*traces.process_groups, *(group for trace in traces for group in trace.process_groups))
    return parts, join(parts, join_groups(groups, traces.world_size))


def without(traces):
    """How long everything takes as it is, without communication, without the device's work, without the host's."""
    parts, joint = joint_of(traces)
    ends = []
    hosted = all(len(part.kinds) == 1 for part in parts)
    for classes in (
        (),
        ("communication",),
        ("compute", "memory"),
        ("host", *(("compute", "memory") if hosted else ())),
    ):
        nothing = np.zeros(len(joint.order), np.bool_)
        for place, part in enumerate(parts):
            codes = [part.classes.index(name) for name in classes]
            nothing[joint.offsets[place] : joint.offsets[place + 1]] = np.isin(part.of_class, codes)
        ends.append(joint.finish_without(nothing, np.empty(len(nothing), np.int64)))
    return ends


def simulated(traces):
    """The same from the simulator."""
    changes = ({}, {"comm_scale": 0}, {"compute_scale": 0}, {"host_scale": 0})
    return [simulate(traces, comm="measured", iteration="all", **change).finish_ns for change in changes]


@pytest.mark.parametrize("name", ["training_step", "fsdp_step", "pipeline_step"])
@pytest.mark.parametrize("bound", ["device", "host"])
def test_whatifs_of_generated_jobs_are_the_simulators(name, bound, tmp_path):
    done = run(programs.PROGRAMS[name](ranks=2, bound=bound), show=ProfileConfig(clock_offset_ns={1: 5_000_000}))
    done.write(tmp_path, compress=False)
    traces = convert(tmp_path).traces
    assert without(traces) == simulated(traces)
    result = critical_path(traces, options=WHOLE)
    assert result.start_error_ns == 0
    steps = critical_path(traces, options=Options(iteration="all"))
    assert steps.start_error_ns == 0
    assert steps.steps == (1 if name == "pipeline_step" else 2)


@pytest.fixture(scope="module")
def converted(repository):
    return convert(repository / "examples" / "data").traces


def test_whatifs_of_the_sample_are_the_simulators(converted):
    """On ranks without a device, the simulator's compute holds calls of communications too; all else is the same."""
    ours, theirs = without(converted), simulated(converted)
    assert [ours[place] for place in (0, 1, 3)] == [theirs[place] for place in (0, 1, 3)]


@given(jobs())
@settings(max_examples=25, deadline=None)
def test_random_jobs_are_rebuilt_and_follow_the_simulator(drawn):
    recorded = simulate(drawn, system(size=2), resources="streams").traces
    result = critical_path(recorded)
    # Without times, nothing is recorded, and nothing takes time. Of a message that takes a ns or none, times can't tell
    # whether its sender waited for it: each may be a ns off.
    sends = (pl.col("type") == int(NodeType.COMM_SEND_NODE)) & (pl.col("duration_ns") <= 1)
    slack = max(1, sum(trace.nodes.select(sends.sum()).item() for trace in recorded))
    assert (result.start_error_ns or 0) <= slack
    assert result.table.filter(kind="class")["path_ns"].sum() == result.finish_ns
    assert (result.table["gain_ns"] >= 0).all()
    assert (result.table["gain_ns"] <= result.table["total_ns"]).all()
    ends = [simulate(recorded, comm="measured", resources="streams", **change).finish_ns
            for change in ({}, {"comm_scale": 0}, {"compute_scale": 0})]  # fmt: skip
    ours = without(recorded)[:3]
    ended = max(trace.nodes.select((pl.col("start_ns") + pl.col("duration_ns")).max()).item() for trace in recorded)
    assert abs(ours[0] - ended) <= slack
    # Where the simulator takes a sender to have waited that hadn't, it is a few ns off itself.
    if abs(ends[0] - ended) <= slack:
        assert ours == pytest.approx(ends, abs=slack)


def test_grids_of_parallelism_are_rebuilt():
    recorded = simulate(grid(skew=500, uneven=True), system(), resources="streams").traces
    result = critical_path(recorded)
    again = simulate(recorded, comm="measured", resources="streams")
    assert (result.start_error_ns, result.finish_ns) == (0, again.finish_ns)
    groups = result.table.filter(kind="group")["name"].to_list()
    assert set(groups) == {"tp", "dp", "point to point"}
    assert result.hops > 0


# Iterations


@pytest.mark.parametrize("iteration", [None, "all", 3])
def test_iterations_are_cut_out_and_rebuilt(converted, iteration):
    result = critical_path(converted, options=Options(iteration=iteration))
    assert result.start_error_ns == 0
    assert result.table.filter(kind="class")["path_ns"].sum() == result.finish_ns
    assert result.path["begin_ns"][0] == 0
    assert result.path["end_ns"][-1] == result.finish_ns
    assert (result.path["begin_ns"][1:] == result.path["end_ns"][:-1]).all()


def steps_of(gaps=(10, 10), lead=0):
    """Two steps on one rank: the host launches a kernel of 100 ns in each, and needs 30 ns to do so."""
    builder = TraceBuilder(rank=0, family="collected")
    kernel, host, now = [], [], 0
    for number, gap in enumerate(gaps):
        step = builder.add(f"ProfilerStep#{number}", NodeType.METADATA_NODE, start_ns=now, span_ns=30, is_cpu_op=True)
        call = {"parent": step, "correlation": number, "tid": 1}
        launch = builder.add(
            "cudaLaunchKernel", COMP, start_ns=now, duration_ns=30, ctrl_deps=host, is_cpu_op=True, **call
        )
        begin = max(now + 30, 30 + 100 * number)
        kernel = [
            builder.add("gemm", COMP, start_ns=begin, duration_ns=100, ctrl_deps=[launch], sync_deps=kernel,
                        is_cpu_op=False, stream=7, **call)
        ]  # fmt: skip
        now += 30
        host = [builder.add("idle", COMP, start_ns=now, duration_ns=gap, ctrl_deps=[launch], gap_kind="host_idle",
                            is_cpu_op=True, tid=1)]  # fmt: skip
        now += gap
    return builder.build()


def test_a_step_on_the_device_ends_where_the_next_one_begins():
    trace = steps_of()
    first, both = (critical_path(trace, options=Options(iteration=choice)) for choice in (0, "all"))
    assert (first.finish_ns, first.steps, both.finish_ns, both.steps) == (100, 1, 200, 2)
    assert first.start_error_ns == both.start_error_ns == 0
    # Without its kernels, the first step ends when the second one's launch is through: it begins at 40, and the
    # stretch at 30.
    assert both.table.filter(kind="kernel").select("path_ns", "finish_ns").rows() == [(200, 40)]
    assert first.table.filter(kind="kernel").select("finish_ns").rows() == [(40,)]
    idle = critical_path(steps_of(gaps=(150, 10)), options=Options(iteration=0))
    assert idle.finish_ns == 180
    assert idle.table.filter(kind="class").select("name", "path_ns").rows() == [("host", 180), ("compute", 0)]


def test_iterations_that_are_apart_are_said_to_be(converted):
    trace = steps_of(gaps=(10, 10, 10))
    result = critical_path(trace, options=Options(iteration=(0, 2)))
    assert (result.finish_ns, result.steps) == (300, 2)
    assert any("are apart" in note for note in result.notes)
    assert not any("are apart" in note for note in critical_path(trace, options=Options(iteration="all")).notes)
    assert not any("are apart" in note for note in critical_path(converted, options=Options(iteration="all")).notes)


# Whatever the trace lacks


def test_an_empty_trace_has_no_path():
    result = critical_path(TraceBuilder(rank=0).build())
    assert (result.finish_ns, result.start_error_ns, result.table.height, result.path.height) == (0, None, 0, 0)
    assert json.dumps([result.as_dict(), result.plot().as_dict()])


def test_cycles_and_dangling_dependencies_are_said_and_left_out():
    builder = TraceBuilder(rank=0)
    for number, deps in enumerate(([1, 99], [0], [1], [])):
        builder.add("op", COMP, duration_ns=10 + number, data_deps=deps, is_cpu_op=False)
    result = critical_path(builder.build())
    # The first node waits for the second one: what closes the cycle is the second one's dependency on the first.
    assert result.finish_ns == 23
    assert any("1 edge from nodes" in note for note in result.notes)
    assert any("1 edge that would close them" in note for note in result.notes)


def test_ranks_that_would_wait_for_one_another_are_told():
    """One rank issues a before b, the other b before a."""
    traces = []
    for rank, order in ((0, "ab"), (1, "ba")):
        groups = [ProcessGroup(name, (0, 1), 2) for name in "ab"]
        builder, last = TraceBuilder(rank=rank, process_groups=groups), []
        for name in order:
            last = [builder.add(name, COLL, duration_ns=5, pg_name=name, comm_type=0, data_deps=last)]
        traces.append(builder.build())
    result = critical_path(TraceSet(tuple(traces)))
    assert any("cycles" in note for note in result.notes)
    assert result.finish_ns >= 10


def test_nodes_of_any_kind_are_classified():
    builder = TraceBuilder(rank=0, family="collected")
    op = builder.add("aten::mm", COMP, start_ns=0, duration_ns=10, is_cpu_op=True, tid=1)
    call = builder.add("cudaLaunchKernel", COMP, start_ns=10, duration_ns=5, ctrl_deps=[op], is_cpu_op=True, parent=op,
                       correlation=4, tid=1)  # fmt: skip
    gap = builder.add("launch_latency", COMP, start_ns=15, duration_ns=3, ctrl_deps=[call], gap_kind="launch_latency",
                      is_cpu_op=False)  # fmt: skip
    kernel = device(builder, "ampere_bf16_s16816gemm_tn", 18, 40, [gap], parent=op, correlation=4)
    copy = device(builder, "Memcpy DtoH", 58, 7, [kernel], NodeType.MEM_STORE_NODE, copy_kind="DtoH", parent=op)
    odd = builder.add("?", COMP, start_ns=65, duration_ns=2, sync_deps=[copy], gap_kind="unexplained", is_cpu_op=False)
    device(builder, "ncclDevKernel_AllReduce", 67, 9, [odd], COLL, unknown_comm=True)
    trace = builder.build()
    assert dict(found(trace, "class", "path_ns")) == {
        "host": 15, "compute": 40, "memory": 7, "communication": 9, "launch_latency": 3, "unexplained": 2,
    }  # fmt: skip
    assert found(trace, "op", "path_ns", "gain_ns") == [("aten::mm", 62, 62)]
    assert ("gemm", 40, 40) in found(trace, "kernel class", "path_ns", "gain_ns")
    assert found(trace, "rank") == []
    assert any("1 communication with unknown partners" in note for note in critical_path(trace).notes)


def test_pieces_are_small_and_travel(converted):
    part = measure(RankView(converted.traces[0], 0, WHOLE))
    arrays = [getattr(part, name) for name in ("indptr", "preds", "start_ns", "duration_ns", "of_class", "of_kind",
                                               "of_name", "of_op", "of_group")]  # fmt: skip
    assert sum(array.nbytes for array in arrays) / len(part) < 45


# What is shown


def test_findings_are_ceilings_in_words():
    first = critical_path(staggered()).findings[0]
    assert first.text == (
        "compute bounds 85.3 % of the profile; without it the profile would take 60 ns instead of 340 ns, "
        "at most 82.4 % less"
    )
    assert first.cost_ns == 280
    costs = [finding.cost_ns for finding in critical_path(staggered()).findings]
    assert costs == sorted(costs, reverse=True)


def test_the_picture_shows_classes_and_their_gains(converted):
    result = critical_path(converted)
    path, gain = result.plot().data
    classes = result.table.filter(pl.col("kind") == "class", (pl.col("path_ns") > 0.002 * result.finish_ns))
    assert len(path["y"]) == len(gain["x"]) == classes.height
    assert json.dumps([result.as_dict(), result.plot().as_dict()])


def test_rows_are_by_kind_only():
    with pytest.raises(InputError, match=r"^by: expected kind, as its rows always are, got rank; "):
        critical_path(staggered(), options=replace(WHOLE, by=("rank",)))
    with pytest.raises(InputError, match="iteration"):
        critical_path(staggered(), options=Options(iteration=5))


@pytest.mark.parametrize("name", ["megatron-tp8-a100", "gloo-pipe4"])
def test_real_sets_are_rebuilt_to_the_ns(repository, name):
    folder = repository.parent / "shared" / "traces" / name
    if not folder.is_dir():
        pytest.skip("needs the folder shared beside the checkout")
    traces = convert(folder).traces
    assert critical_path(traces, options=WHOLE).start_error_ns == 0
    assert critical_path(traces).start_error_ns == 0
    if name == "megatron-tp8-a100":
        assert without(traces) == simulated(traces)
