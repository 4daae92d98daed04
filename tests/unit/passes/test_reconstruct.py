"""The rebuilt schedule comes from edges and durations only."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir import NodeType, Trace, TraceBuilder
from chakra_et.ir.columns import empty_nodes
from chakra_et.passes.reconstruct import apply_schedule, reconstruct


def launched(*, rank: int = 0, origin: int = 1000) -> Trace:
    """A launch, its latency, a kernel 30 ns late in the record, and an annotation."""
    builder = TraceBuilder(rank=rank, family="collected")
    builder.add("step", NodeType.METADATA_NODE, start_ns=origin - 500, span_ns=700)
    launch = builder.add("launch", NodeType.COMP_NODE, is_cpu_op=True, start_ns=origin, duration_ns=100)
    latency = builder.add(
        "gap", NodeType.COMP_NODE, start_ns=origin + 100, duration_ns=20, gap_kind="launch_latency", ctrl_deps=[launch]
    )
    builder.add("unused gap", NodeType.COMP_NODE, start_ns=origin, duration_ns=5, gap_kind="host_idle")
    builder.add("kernel", NodeType.COMP_NODE, start_ns=origin + 150, duration_ns=50, sync_deps=[latency])
    return builder.build()


def test_figures() -> None:
    result = reconstruct(launched())
    assert result.start_ns.tolist() == [0, 0, 100, 0, 120]
    assert (result.makespan_ns, result.window_ns, result.unscheduled) == (170, 200, 0)
    assert result.start_error_ns.as_dict() == {"p50": 30, "p99": 30, "max": 30}
    assert (result.start_error_ns.nodes, result.start_error_all_ns.nodes, result.start_error_all_ns.p50) == (1, 2, 30)
    assert result.gap_ns == {"launch_latency": 20}
    assert result.gap_total_ns == {"launch_latency": 20, "host_idle": 5}
    assert result.critical_path.tolist() == [1, 2, 4]


def test_recorded_starts_are_no_input() -> None:
    trace = launched()
    shuffled = trace.with_columns([pl.Series("start_ns", [5, 900, 3, 77, 0])])
    assert reconstruct(shuffled).start_ns.tolist() == reconstruct(trace).start_ns.tolist()


def test_columns_can_be_chosen() -> None:
    assert reconstruct(launched(), columns=("ctrl_deps",)).start_ns.tolist() == [0, 0, 100, 0, 0]


def test_cycles_are_left_out_and_counted() -> None:
    builder = TraceBuilder()
    builder.add("a", NodeType.COMP_NODE, ctrl_deps=[1], duration_ns=3)
    builder.add("b", NodeType.COMP_NODE, ctrl_deps=[0], duration_ns=3)
    builder.add("c", NodeType.COMP_NODE, ctrl_deps=[1], duration_ns=3)
    builder.add("d", NodeType.COMP_NODE, duration_ns=3)
    result = reconstruct(builder.build())
    assert result.start_ns.tolist() == [-1, -1, -1, 0]
    assert (result.makespan_ns, result.unscheduled) == (3, 3)
    assert apply_schedule(builder.build(), result).nodes["start_ns"].to_list() == [None, None, None, 0]


def test_empty_trace() -> None:
    result = reconstruct(Trace(empty_nodes()))
    assert (result.makespan_ns, result.window_ns, len(result.critical_path), result.gap_ns) == (0, 0, 0, {})


def test_applied_schedule_matches_exactly_and_moves_annotations() -> None:
    trace = launched()
    longer = trace.with_columns([pl.Series("duration_ns", [0, 300, 20, 5, 50])])
    result = apply_schedule(longer, reconstruct(longer))
    assert result.nodes["start_ns"].to_list() == [500, 1000, 1300, 1000, 1320]
    # The annotation ended 50 ns after the kernel began, and still does.
    assert result.nodes["span_ns"].to_list() == [1320 + 50 - 500, None, None, None, None]
    assert reconstruct(result).start_error_all_ns.max == 0


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_agrees_with_longest_paths(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 20))
    graph = nx.DiGraph()
    builder = TraceBuilder()
    durations = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    for node in range(count):
        deps = data.draw(st.sets(st.integers(0, node - 1), max_size=3)) if node else set()
        builder.add("n", NodeType.COMP_NODE, duration_ns=durations[node], data_deps=sorted(deps))
        graph.add_node(node)
        graph.add_edges_from((dep, node, {"weight": durations[dep]}) for dep in deps)
    result = reconstruct(builder.build())
    expected = [0] * count
    for node in nx.topological_sort(graph):
        expected[node] = max((expected[dep] + durations[dep] for dep in graph.predecessors(node)), default=0)
    assert result.start_ns.tolist() == expected
    path = result.critical_path
    assert int(np.array(durations)[path].sum()) == result.makespan_ns
    assert all(graph.has_edge(a, b) for a, b in pairwise(path))
