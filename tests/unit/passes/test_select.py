"""Slices rebuild to the times of the trace that they were cut from."""

from __future__ import annotations

import time

import networkx as nx
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.errors import TraceError
from chakra_et.ir import NodeType, Trace, TraceBuilder, build_graph
from chakra_et.ir.arrays import list_series
from chakra_et.ir.columns import empty_nodes
from chakra_et.passes.reconstruct import apply_schedule, reconstruct
from chakra_et.passes.select import iterations, select_ids, select_iteration, select_time

COLUMNS = ("ctrl_deps", "data_deps", "sync_deps")


@st.composite
def dags(draw: st.DrawFn) -> Trace:
    """Traces whose recorded times are those of their own schedule."""
    count = draw(st.integers(1, 24))
    builder = TraceBuilder(rank=0, family="synthesized")
    for node in range(count):
        deps = draw(st.lists(st.tuples(st.sampled_from(COLUMNS), st.integers(0, node - 1)), max_size=4)) if node else []
        lists = {name: sorted({3 * dep + 5 for column, dep in deps if column == name}) for name in COLUMNS}
        builder.add(
            f"n{node}",
            NodeType.COMP_NODE,
            id=3 * node + 5,
            duration_ns=draw(st.integers(0, 9)),
            is_cpu_op=draw(st.booleans()),
            tid=1,
            **lists,
        )
    trace = builder.build()
    return apply_schedule(trace, reconstruct(trace))


def starts(trace: Trace) -> dict[int, int]:
    """Rebuilt starts by id, METADATA and gaps left out."""
    nodes = trace.nodes.with_columns(trace.column("gap_kind"), pl.Series("at", reconstruct(trace).start_ns))
    real = nodes.filter(pl.col("gap_kind").is_null() & (pl.col("type") != int(NodeType.METADATA_NODE)))
    return dict(real.select("id", "at").iter_rows())


def digraph(trace: Trace) -> nx.DiGraph:
    """Dependencies as a networkx graph over ids."""
    graph = nx.DiGraph()
    graph.add_nodes_from(trace.nodes["id"].to_list())
    for column in COLUMNS:
        for node, deps in trace.nodes.select("id", column).iter_rows():
            graph.add_edges_from((dep, node) for dep in deps)
    return graph


def check_slice(whole: Trace, part: Trace) -> None:
    recorded = dict(whole.nodes.select("id", "start_ns").iter_rows())
    rebuilt = starts(part)
    first = min(recorded[node] for node in rebuilt)
    assert rebuilt == {node: recorded[node] - first for node in rebuilt}
    graph = build_graph(part)
    assert len(graph.dangling) == 0
    assert len(graph.self_edges) == 0
    assert part.nodes["id"].n_unique() == len(part)
    before, after = nx.transitive_closure_dag(digraph(whole)), nx.transitive_closure_dag(digraph(part))
    kept = set(rebuilt)
    pairs = {(a, b) for a, b in before.edges if a in kept and b in kept}
    assert {(a, b) for a, b in after.edges if a in kept and b in kept} == pairs


@given(dags(), st.integers(0, 40), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_time_slice_rebuilds(trace: Trace, begin: int, length: int) -> None:
    inside = trace.nodes["start_ns"].is_between(begin, begin + length, closed="left")
    if not inside.any():
        with pytest.raises(TraceError, match="expected a stretch of time"):
            select_time(trace, begin, begin + length)
        return
    part = select_time(trace, begin, begin + length)
    assert set(starts(part)) == set(trace.nodes.filter(inside)["id"])
    check_slice(trace, part)


@given(dags(), st.data())
@settings(max_examples=150, deadline=None)
def test_any_set_of_nodes_rebuilds(trace: Trace, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.sampled_from(trace.nodes["id"].to_list()), min_size=1, unique=True))
    bare = select_ids(trace, ids, cone=False)
    assert set(starts(bare)) == set(ids)
    recorded = dict(trace.nodes.select("id", "start_ns").iter_rows())
    rebuilt = starts(bare)
    lost = digraph(trace)
    for node in ids:
        if lost.in_degree(node) or recorded[node] == 0:
            assert rebuilt[node] == recorded[node] - min(recorded[other] for other in ids)
    full = select_ids(trace, ids)
    assert set(starts(full)) == set(ids).union(*(nx.ancestors(lost, node) for node in ids))
    assert "gap_kind" not in full.nodes.columns
    check_slice(trace, full)


def test_many_stand_ins_become_a_junction() -> None:
    builder = TraceBuilder(rank=0)
    sources = [builder.add(f"s{k}", NodeType.COMP_NODE, duration_ns=k + 1, start_ns=0) for k in range(40)]
    hub = builder.add("hub", NodeType.COMP_NODE, duration_ns=7, start_ns=40, sync_deps=sources)
    sinks = [builder.add(f"t{k}", NodeType.COMP_NODE, duration_ns=1, start_ns=47, ctrl_deps=[hub]) for k in range(40)]
    trace = builder.build()
    part = select_ids(trace, sources + sinks, cone=False)
    check_slice(trace, part)
    assert sum(part.nodes[column].list.len().sum() for column in COLUMNS) < 200


def test_gap_tells_its_kind_and_place() -> None:
    builder = TraceBuilder(rank=0)
    launch = builder.add("launch", NodeType.COMP_NODE, is_cpu_op=True, tid=7, start_ns=100, duration_ns=10)
    builder.add("kernel", NodeType.COMP_NODE, stream=3, start_ns=110, duration_ns=50, ctrl_deps=[launch])
    other = builder.add(
        "other", NodeType.COMP_NODE, is_cpu_op=True, tid=7, start_ns=110, duration_ns=5, ctrl_deps=[launch]
    )
    waits = {"ctrl_deps": [other], "sync_deps": [1]}
    builder.add("sync", NodeType.COMP_NODE, is_cpu_op=True, tid=7, start_ns=160, duration_ns=5, **waits)
    part = select_ids(builder.build(), [0, 3], cone=False)
    gap = part.nodes.filter(pl.col("gap_kind").is_not_null()).row(0, named=True)
    assert (gap["gap_kind"], gap["tid"], gap["start_ns"], gap["duration_ns"]) == ("host_idle", 7, 110, 50)
    assert part.nodes["name"].to_list() == ["launch", "host_idle", "sync"]
    assert part.nodes.filter(pl.col("name") == "sync")["ctrl_deps"].to_list() == [[gap["id"]]]


def stepped() -> Trace:
    """Two iterations: each launches a kernel that runs after the step's range."""
    builder = TraceBuilder(rank=0)
    for step in (0, 1):
        builder.add(f"ProfilerStep#{step + 4}", NodeType.METADATA_NODE, start_ns=1000 + 100 * step, span_ns=100)
    host = builder.add("op0", NodeType.COMP_NODE, is_cpu_op=True, start_ns=1000, duration_ns=100, parent=0)
    after = {"ctrl_deps": [host], "parent": 1}
    next_host = builder.add("op1", NodeType.COMP_NODE, is_cpu_op=True, start_ns=1100, duration_ns=100, **after)
    kernel = builder.add("k0", NodeType.COMP_NODE, stream=1, start_ns=1100, duration_ns=150, ctrl_deps=[host])
    deps = {"ctrl_deps": [next_host], "sync_deps": [kernel]}
    builder.add("k1", NodeType.COMP_NODE, stream=1, start_ns=1250, duration_ns=10, **deps)
    return builder.build()


@pytest.mark.parametrize(
    ("number", "names"), [(4, ["op0", "k0"]), (0, ["op0", "k0"]), (5, ["op1", "k1"]), (1, ["op1", "k1"])]
)
def test_iteration_takes_what_it_launched(number: int, names: list[str]) -> None:
    part = select_iteration(stepped(), number)
    kinds = part.column("gap_kind")
    real = part.nodes.filter(kinds.is_null() & (pl.col("type") == int(NodeType.COMP_NODE)))
    assert real["name"].to_list() == names
    recorded = real["start_ns"].to_list()
    assert [starts(part)[node] for node in real["id"]] == [value - recorded[0] for value in recorded]
    assert f"ProfilerStep#{number if number > 3 else number + 4}" in part.nodes["name"].to_list()


def test_unknown_iteration_lists_the_known_ones() -> None:
    assert iterations(stepped()) == {4: (1000, 1100), 5: (1100, 1200)}
    with pytest.raises(TraceError, match="got 9; there are: #4, #5"):
        select_iteration(stepped(), 9)
    with pytest.raises(TraceError, match="no ProfilerStep annotations"):
        select_iteration(Trace(empty_nodes()), 0)


def test_parents_move_up_to_kept_ones() -> None:
    builder = TraceBuilder(rank=0)
    builder.add("outer", NodeType.COMP_NODE)
    builder.add("middle", NodeType.COMP_NODE, parent=0, ctrl_deps=[0])
    builder.add("inner", NodeType.COMP_NODE, parent=1, ctrl_deps=[1])
    assert select_ids(builder.build(), [0, 2], cone=False).nodes["parent"].to_list() == [None, 0]
    assert select_ids(builder.build(), [2], cone=False).nodes["parent"].to_list() == [None]


def test_unknown_id_and_cycle_are_refused() -> None:
    builder = TraceBuilder(rank=0)
    builder.add("a", NodeType.COMP_NODE, ctrl_deps=[1])
    builder.add("b", NodeType.COMP_NODE, ctrl_deps=[0])
    with pytest.raises(TraceError, match="repair the trace first"):
        select_ids(builder.build(), [0])
    with pytest.raises(TraceError, match="got 77"):
        select_ids(stepped(), [77])


def test_time_grows_linearly() -> None:
    def cut(count: int) -> float:
        # Every node waits for the previous and for one far behind: both are bridged many times over.
        offsets = np.arange(count + 1, dtype=np.int64)
        node = np.arange(count, dtype=np.uint64)
        empty = list_series("sync_deps", np.zeros(count + 1, np.int64), np.empty(0, np.uint64))
        own = list_series("ctrl_deps", np.maximum(offsets - 1, 0), node[:-1])
        far = list_series("data_deps", offsets, node // 2)
        table = pl.DataFrame(
            [
                pl.Series("id", node),
                pl.Series("name", ["x"] * count),
                pl.Series("type", np.full(count, 4, np.uint8)),
                own,
                far.alias("data_deps"),
                empty,
                pl.Series("start_ns", np.arange(count, dtype=np.int64)),
                pl.Series("duration_ns", np.ones(count, np.int64)),
                pl.Series("is_cpu_op", [False] * count),
            ]
        )
        trace = Trace(table)
        begin = time.process_time()
        select_ids(trace, range(0, count, 7), cone=False)
        return time.process_time() - begin

    cut(100)
    small, large = min(cut(12_500) for _ in range(3)), cut(100_000)
    assert large < 30 * max(small, 0.01)
