"""The dependency graph as arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir import NodeType, Trace, TraceBuilder, build_graph
from chakra_et.ir.columns import empty_nodes
from chakra_et.ir.graph import edge_list, positions


def trace_of(*dependencies, ids=None):
    """A trace whose nodes have these control dependencies."""
    builder = TraceBuilder()
    for number, deps in enumerate(dependencies):
        builder.add("n", NodeType.COMP_NODE, id=ids[number] if ids else number, ctrl_deps=deps)
    return builder.build()


def test_columns_are_taken_together_without_repeats():
    builder = TraceBuilder()
    for number in range(3):
        builder.add("n", NodeType.COMP_NODE, id=number)
    builder.add("n", NodeType.COMP_NODE, ctrl_deps=[2, 0], data_deps=[0], sync_deps=[1, 1])
    graph = build_graph(builder.build())
    assert graph.node_count == 4
    assert graph.indptr.tolist() == [0, 0, 0, 0, 3]
    assert graph.preds.tolist() == [0, 1, 2]
    assert build_graph(builder.build(), ("sync_deps",)).preds.tolist() == [1]


def test_dangling_and_self_edges_are_told_and_left_out():
    graph = build_graph(trace_of([7], [1], [0, 9], ids=[0, 1, 2]))
    assert graph.dangling.tolist() == [[0, 7], [2, 9]]
    assert graph.self_edges.tolist() == [1]
    assert graph.preds.tolist() == [0]


def test_ids_need_no_order():
    graph = build_graph(trace_of([], [50], [10, 50], ids=[50, 10, 30]))
    assert graph.indptr.tolist() == [0, 0, 1, 3]
    assert graph.preds.tolist() == [0, 0, 1]


def test_huge_ids_dangle_instead_of_wrapping():
    huge = 2**64 - 1
    graph = build_graph(trace_of([huge], [], ids=[0, 1]))
    assert len(graph.preds) == 0
    assert graph.dangling[:, 0].tolist() == [0]
    assert build_graph(trace_of([], [huge], ids=[huge, 3])).preds.tolist() == [0]


def test_edges_keep_the_ids_as_written():
    edges = edge_list(trace_of([], [0, 5]), "ctrl_deps")
    assert edges.node.tolist() == [1, 1]
    assert edges.dep.tolist() == [0, -1]
    assert edges.dep_id.tolist() == [0, 5]


def test_empty_trace():
    graph = build_graph(Trace(empty_nodes()))
    assert (graph.node_count, len(graph.preds), len(graph.dangling)) == (0, 0, 0)
    assert build_graph(trace_of([], [])).preds.dtype == np.int64


@pytest.mark.parametrize("ids", [[0, 1, 2], [4, 2, 9], []])
def test_positions(ids):
    wanted = np.array([*ids[::-1], 77], np.uint64)
    found = positions(np.array(ids, np.uint64), wanted)
    assert found.tolist() == [*range(len(ids))[::-1], -1]


def test_position_of_a_repeated_id_is_the_first():
    assert positions(np.array([5, 3, 5], np.uint64), np.array([5], np.uint64)).tolist() == [0]


@given(st.lists(st.lists(st.integers(0, 12), max_size=4), min_size=1, max_size=9))
@settings(deadline=None)
def test_every_edge_is_kept_once_or_told(lists):
    trace = trace_of(*lists)
    graph = build_graph(trace)
    count = len(lists)
    for node, deps in enumerate(lists):
        expected = sorted({dep for dep in deps if dep < count and dep != node})
        assert graph.preds[graph.indptr[node] : graph.indptr[node + 1]].tolist() == expected
    lost = [[node, dep] for node, deps in enumerate(lists) for dep in deps if dep >= count]
    assert graph.dangling.tolist() == lost
    assert graph.self_edges.tolist() == [node for node, deps in enumerate(lists) if node in deps]
