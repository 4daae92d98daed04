import pickle
from dataclasses import replace

import pytest

from chakra_et.errors import SimulationError
from chakra_et.ir import NodeType, ProcessGroup, TraceBuilder, TraceSet
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.simulate import prepare, simulate
from tests.unit.sim.jobs import COLL, COMP, RECV, SEND, grid, plain, system


def ranks(count=2, family="synthesized"):
    world = ProcessGroup("w", tuple(range(count)), count)
    alone = [ProcessGroup(f"only {rank}", (rank,), 1) for rank in range(count)]
    return [TraceBuilder(rank=rank, family=family, process_groups=[world, alone[rank]]) for rank in range(count)]


def job(made):
    return TraceSet(tuple(builder.build() for builder in made))


def reduce(builder, size, **columns):
    return builder.add("r", COLL, **{"pg_name": "w", "comm_type": 0, "comm_size": size} | columns)


def finish(made, machine=None, **options):
    return simulate(job(made), machine, **options).finish_ns


# Costs ----------------------------------------------------------------------------------------------------------------


def test_native_costs_are_latency_and_the_most_loaded_link():
    """A ring of two: two rounds of 500 ns; each rank sends its vector once, at 100 bytes per ns."""
    made = ranks()
    for builder in made:
        reduce(builder, 1_000_000)
    assert finish(made, system(), algorithm="ring") == 2 * 500 + 10_000
    assert finish(made, system(), algorithm="ring", comm_scale=2) == 2 * (2 * 500 + 10_000)
    assert finish(made, system(), comm_scale=0) == 0


def test_communications_on_one_link_share_it():
    made = ranks(3)
    for peer in (1, 2):
        made[0].add("s", SEND, comm_dst=peer, comm_size=100_000)
        made[peer].add("r", RECV, comm_src=0, comm_size=100_000)
    result = simulate(job(made), system())
    assert [rank.finish_ns for rank in result.ranks] == [2500, 2500, 2500]
    assert result.bounds == {"scale_up": 2000, "latency": 500}


def test_an_eager_send_doesnt_wait_for_its_receive():
    made = ranks()
    made[0].add("s", SEND, comm_dst=1, comm_size=100_000)
    work = made[1].add("gemm", COMP, duration_ns=9_000)
    made[1].add("r", RECV, comm_src=0, comm_size=100_000, data_deps=[work])
    result = simulate(job(made), system())
    assert [rank.finish_ns for rank in result.ranks] == [1500, 9000]
    result = simulate(job(made), system(), sends="rendezvous")
    assert [rank.finish_ns for rank in result.ranks] == [10_500, 10_500]


@pytest.mark.parametrize("comm", ["native", "measured"])
def test_nothing_to_transfer_ends_at_once(comm):
    made = ranks()
    for rank, builder in enumerate(made):
        work = builder.add("gemm", COMP, duration_ns=100 + rank)
        empty = reduce(builder, 0, data_deps=[work])
        builder.add("s", COLL, pg_name=f"only {rank}", comm_type=0, comm_size=1 << 20, data_deps=[empty])
    result = simulate(job(made), system(), comm=comm)
    assert result.finish_ns == 101
    said = ("2 communications in a group of one rank: they take no time",)
    assert result.notes == (said if comm == "native" else simulate(job(made), comm=comm).notes)


def test_a_barrier_takes_its_latency():
    made = ranks()
    for builder in made:
        builder.add("b", COLL, pg_name="w", comm_type=9, comm_size=0)
    assert finish(made, system()) >= 500


def test_what_cant_be_modeled_keeps_its_measured_time():
    made = ranks(family="collected")
    for builder in made:
        reduce(builder, None, duration_ns=400, start_ns=0)
        builder.add("x", COLL, pg_name=None, comm_type=0, comm_size=8, duration_ns=700, start_ns=0)
    result = simulate(job(made), system())
    assert result.traces.traces[0].nodes["duration_ns"].to_list() == [400, 700]
    assert result.notes[1:] == (
        "1 communication of unknown size: kept as measured",
        "2 communications with unknown type or partners: kept as measured",
    )


def test_measured_times_that_arent_there_are_said():
    made = ranks()
    for builder in made:
        reduce(builder, 64)
    notes = simulate(job(made), comm="measured").notes
    assert notes == ("no communication has a measured time: they take none; simulate them on a system",)


def test_calibration_fits_what_was_measured():
    made = ranks(family="collected")
    for builder in made:
        time, last = 0, []
        for size in (10_000, 100_000, 1_000_000, 3_000_000):
            last = [reduce(builder, size, start_ns=time, duration_ns=3_000 + size // 20, sync_deps=last)]
            time += 3_000 + size // 20
    traces = job(made)
    measured = simulate(traces, comm="measured")
    fitted = simulate(traces, system(), comm="calibrated", algorithm="ring")
    assert fitted.finish_ns == pytest.approx(measured.finish_ns, rel=1e-3)
    assert any(
        note.startswith("all_reduce over scale_up: 3.000 us and 20 GB/s from 4 samples") for note in fitted.notes
    )
    # Twice the bandwidth: the fitted efficiency stays.
    faster = simulate(traces, system(up=200.0), comm="calibrated", algorithm="ring", measured_system=system())
    assert faster.finish_ns == pytest.approx(4 * 3_000 + 4_110_000 // 40, rel=1e-3)


# Failures -------------------------------------------------------------------------------------------------------------


def test_ranks_that_wait_for_each_other():
    made = ranks()
    for rank, builder in enumerate(made):
        groups = ["a", "b"] if rank else ["b", "a"]
        last = []
        for name in groups:
            last = [builder.add(name, COLL, pg_name=name, comm_type=0, comm_size=8, data_deps=last)]
    traces = TraceSet(job(made).traces, (ProcessGroup("a", (0, 1), 2), ProcessGroup("b", (0, 1), 2)))
    with pytest.raises(SimulationError) as info:
        simulate(traces, comm="measured")
    assert str(info.value) == (
        "expected every node to end, got 0 of 4 when ranks began to wait for one another (rank 0 waits for node 1 "
        "('b') of rank 1); the order of communications differs between ranks"
    )
    assert [(row.rank, row.node, row.group, row.waits_for) for row in info.value.waiting] == [
        (0, 0, "b", "node 1 ('b') of rank 1"),
        (1, 0, "a", "node 1 ('a') of rank 0"),
    ]


def test_cycles():
    made = ranks(1)
    made[0].add("a", COMP, ctrl_deps=[1])
    made[0].add("b", COMP, ctrl_deps=[0])
    with pytest.raises(SimulationError, match=r"rank 0: node 0 .*: expected an acyclic graph, got a cycle of 2 nodes"):
        finish(made)


@pytest.mark.parametrize(
    ("deps", "text"),
    [
        ([7], r"rank 0: node 0 \('a'\): expected its dependency 7 in the trace, got no such node"),
        ([0], r"rank 0: node 0 \('a'\): expected other nodes as dependencies, got itself"),
    ],
)
def test_broken_edges(deps, text):
    made = ranks(1)
    made[0].add("a", COMP, ctrl_deps=deps)
    with pytest.raises(SimulationError, match=text):
        finish(made)


def test_no_traces_and_no_nodes():
    with pytest.raises(SimulationError, match="expected the trace of at least one rank, got none"):
        simulate(TraceSet(()))
    made = ranks()
    made[0].add("a", COMP)
    with pytest.raises(SimulationError, match="rank 1: expected nodes, got a trace without any"):
        finish(made)


# Results --------------------------------------------------------------------------------------------------------------


def test_annotations_move_with_the_nodes_around_them():
    builder = TraceBuilder(rank=0, family="collected")
    builder.add("range", NodeType.METADATA_NODE, start_ns=1_000, span_ns=300)
    first = builder.add("aten::mm", COMP, is_cpu_op=True, start_ns=1_010, duration_ns=100)
    builder.add("aten::mm", COMP, is_cpu_op=True, start_ns=1_110, duration_ns=100, ctrl_deps=[first])
    builder.add("inside", NodeType.METADATA_NODE, start_ns=1_115, span_ns=50)
    nodes = simulate(TraceSet((builder.build(),)), compute_scale=3).traces.traces[0].nodes
    assert nodes.select("name", "start_ns", "duration_ns", "span_ns").rows() == [
        ("range", -10, 0, 500),
        ("aten::mm", 0, 300, None),
        ("aten::mm", 300, 300, None),
        ("inside", 305, 0, 50),
    ]


def test_everything_else_stays_as_it_was():
    traces = grid()
    result = simulate(traces, system()).traces
    for before, after in zip(traces, result, strict=True):
        names = [name for name in before.nodes.columns if name not in ("start_ns", "duration_ns")]
        assert before.nodes.select(names).equals(after.nodes.select(names))
        assert (before.process_groups, before.metadata) == (after.process_groups, after.metadata)


def test_prepared_once_run_many_times():
    traces = grid(tp=4, pp=2, dp=4, skew=300)
    prepared = prepare(traces)
    for machine in (system(), system(size=8, up=300.0), system(out=3.0), system()):
        for options in (SimulateOptions(), SimulateOptions(fold="off", channels=2), SimulateOptions(compute_scale=2.0)):
            assert plain(prepared.run(machine, options)) == plain(simulate(traces, machine, options=options))


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr("chakra_et.sim.plan._BUDGET", 10)
    told = []
    simulate(grid(), system(), fold="off", progress=lambda *what: told.append(what))
    assert {what[0] for what in told} == {"simulate"}
    assert {what[2] for what in told} == {sum(map(len, grid()))}
    assert [what[1] for what in told] == sorted(what[1] for what in told)


def test_options_by_name_are_on_top_of_the_others():
    options = SimulateOptions(comm="measured", compute_scale=2.0)
    traces = grid(pp=1)
    assert simulate(traces, options=options).ranks[0].compute_ns == 6 * 26_000
    assert simulate(traces, options=options, compute_scale=3.0).ranks[0].compute_ns == 6 * 39_000


def test_bounds_follow_the_critical_path():
    result = simulate(grid(tp=4, pp=2, dp=4), system())
    assert sum(result.bounds.values()) == result.finish_ns
    assert set(result.bounds) == {"compute", "scale_up", "scale_out", "latency"}
    late = simulate(grid(), comm="measured", rank_delay_ns={3: 10**6})
    assert late.bounds["late start"] == 10**6


def test_families_are_kept(tmp_path):
    traces = grid(pp=1).map(lambda trace: replace(trace, metadata=replace(trace.metadata, family="compiled")))
    assert {trace.metadata.family for trace in simulate(traces, system()).traces} == {"compiled"}


def test_a_prepared_job_can_be_sent_to_other_processes():
    prepared = prepare(grid(tp=4, pp=2, dp=4))
    first = prepared.run(system())
    again = pickle.loads(pickle.dumps(prepared))
    assert plain(again.run(system())) == plain(first)
    assert plain(again.run(system(), SimulateOptions(fold="off", sends="rendezvous"))) == plain(
        prepared.run(system(), SimulateOptions(fold="off", sends="rendezvous"))
    )
