"""What must hold of simulations, whatever the job and the machine."""

from dataclasses import replace

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir import CommType, ProcessGroup, TraceBuilder, TraceSet
from chakra_et.sim.simulate import simulate
from tests.unit.sim.jobs import COLL, COMP, RECV, SEND, plain, system

TYPES = [int(kind) for kind in CommType]
SIZES = st.sampled_from([0, 1, 1000, 64_000, 5_000_000])


@st.composite
def jobs(draw, *, ranks=4, alike=False, sends=True):
    """Ranks 0 .. 3 in pairs and all together: compute, and communications in one order for all."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["compute", "pair", "world", "send"] if sends else ["compute", "pair", "world"]),
                SIZES, st.sampled_from(TYPES), st.booleans(),
            ),
            min_size=1, max_size=8,
        )
    )  # fmt: skip
    lengths = [draw(st.lists(st.integers(0, 50_000), min_size=8, max_size=8)) for _ in range(1 if alike else ranks)]
    traces = []
    for rank in range(ranks):
        pair = rank // 2 * 2
        groups = [ProcessGroup("pair", (pair, pair + 1), 2), ProcessGroup("world", tuple(range(ranks)), ranks)]
        builder = TraceBuilder(rank=rank, process_groups=groups)
        last = []
        for number, (what, size, kind, waits) in enumerate(steps):
            deps = {"data_deps": last}
            if what == "compute":
                node = builder.add("gemm", COMP, duration_ns=lengths[rank % len(lengths)][number], **deps)
            elif what == "send":
                way = {"comm_src": pair, "comm_dst": pair + 1, "comm_size": size}
                node = builder.add("p2p", RECV if rank % 2 else SEND, **way, **deps)
            else:
                node = builder.add("c", COLL, pg_name=what, comm_type=kind, comm_size=size, **deps)
            last = [node] if waits else last
        traces.append(builder.build())
    return TraceSet(tuple(traces))


def alone(traces):
    """True if a communication waits for all before it, so that no two share a link."""
    return all(len(deps) == 1 for trace in traces for deps in trace.nodes["data_deps"].to_list()[1:])


@settings(max_examples=60, deadline=None)
@given(jobs(), st.sampled_from([1.0, 1.3, 4.0]), st.sampled_from([1.0, 2.0]))
def test_more_bandwidth_is_never_slower_where_nothing_contends(traces, up, out):
    """With contention it may be (Graham 1969: exclusive resources; here also shared links), so chains only."""
    chained = traces.map(lambda trace: trace.with_nodes(_chained(trace.nodes)))
    assert alone(chained)
    options = {"resources": "streams", "algorithm": "ring"}
    before = simulate(chained, system(size=2, up=10.0, out=5.0), **options)
    after = simulate(chained, system(size=2, up=10.0 * up, out=5.0 * out), **options)
    assert all(b.finish_ns <= a.finish_ns for a, b in zip(before.ranks, after.ranks, strict=True))


def _chained(nodes):
    before = [[number - 1] if number else [] for number in range(nodes.height)]
    return nodes.with_columns(pl.Series("data_deps", before, pl.List(pl.UInt64)))


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_a_late_rank_never_makes_streams_faster(traces):
    """Measured times and no resources: all waits only add up."""
    late = simulate(traces, comm="measured", resources="streams", rank_delay_ns={1: 7_000})
    assert late.finish_ns >= simulate(traces, comm="measured", resources="streams").finish_ns


@settings(max_examples=60, deadline=None)
@given(jobs(alike=True), st.sampled_from(["streams", "engines"]), st.sampled_from([1.0, 1.7]))
def test_folding_changes_nothing(traces, resources, slowdown):
    options = {"resources": resources, "overlap_slowdown": slowdown}
    machine = system(size=2, up=20.0, out=5.0)
    folded, whole = simulate(traces, machine, **options), simulate(traces, machine, fold="off", **options)
    assert plain(folded) == plain(whole)
    assert folded.bounds == whole.bounds


@settings(max_examples=60, deadline=None)
@given(jobs(), st.sampled_from(["streams", "engines"]))
def test_the_numbering_of_ranks_changes_nothing(traces, resources):
    """The pairs change places, and all nodes with them."""
    moved = {0: 2, 1: 3, 2: 0, 3: 1}

    def move(trace):
        groups = tuple(replace(g, ranks=tuple(moved[rank] for rank in g.ranks)) for g in trace.process_groups)
        columns = [trace.column(name).replace_strict(moved, default=None) for name in ("comm_src", "comm_dst")]
        nodes = trace.nodes.with_columns(columns)
        return replace(
            trace, nodes=nodes, process_groups=groups, metadata=replace(trace.metadata, rank=moved[trace.rank])
        )

    machine = system(size=2, up=20.0, out=5.0)
    other = TraceSet(tuple(sorted(map(move, traces), key=lambda trace: trace.rank)))
    before, after = (plain(simulate(one, machine, resources=resources))[0] for one in (traces, other))
    for rank in range(4):
        assert before[rank] == after[moved[rank]]


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_time_is_never_negative_and_edges_hold(traces):
    result = simulate(traces, system(size=2)).traces
    for trace in result:
        start, end = trace.integers("start_ns"), trace.integers("start_ns") + trace.integers("duration_ns")
        assert (end >= start).all()
        for node, deps in enumerate(trace.nodes["data_deps"].to_list()):
            assert all(end[dep] <= start[node] for dep in deps)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(TYPES), st.integers(1, 5), st.integers(0, 90_000))
def test_zero_size_and_one_rank_collectives_end_at_once(kind, ranks, work):
    traces = []
    for rank in range(ranks):
        groups = [ProcessGroup("w", tuple(range(ranks)), ranks), ProcessGroup(f"own {rank}", (rank,), 1)]
        builder = TraceBuilder(rank=rank, process_groups=groups)
        node = builder.add("gemm", COMP, duration_ns=work)
        if kind != CommType.BARRIER or ranks == 1:
            node = builder.add("empty", COLL, pg_name="w", comm_type=kind, comm_size=0, data_deps=[node])
        builder.add("own", COLL, pg_name=f"own {rank}", comm_type=kind, comm_size=1 << 30, data_deps=[node])
        traces.append(builder.build())
    assert simulate(TraceSet(tuple(traces)), system()).finish_ns == work
