"""Topological scheduling, inversion and chains."""

from itertools import pairwise

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.chains import chain_heads
from chakra_et._jit.schedule import invert, schedule


def csr(lists):
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return indptr, np.array([value for part in lists for value in part], np.int64)


GRAPHS = st.integers(1, 10).flatmap(
    lambda count: st.lists(st.sets(st.integers(0, count - 1), max_size=4), min_size=count, max_size=count)
)


@given(GRAPHS)
@settings(deadline=None)
def test_inverting_twice_gives_the_graph_back(lists):
    lists = [sorted(part) for part in lists]
    indptr, preds = csr(lists)
    out, succs = invert(indptr, preds)
    assert [succs[a:b].tolist() for a, b in pairwise(out)] == [
        [node for node, part in enumerate(lists) if pred in part] for pred in range(len(lists))
    ]
    back = invert(out, succs)
    assert back[0].tolist() == indptr.tolist()
    assert back[1].tolist() == preds.tolist()


@given(GRAPHS, st.data())
@settings(deadline=None)
def test_starts_are_longest_paths_and_cycles_are_left_out(lists, data):
    durations = data.draw(st.lists(st.integers(0, 9), min_size=len(lists), max_size=len(lists)))
    start, binding, order = schedule(*csr([sorted(part) for part in lists]), np.array(durations, np.int64))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(lists)))
    graph.add_edges_from((pred, node) for node, part in enumerate(lists) for pred in part)
    stuck = {node for part in nx.strongly_connected_components(graph) if len(part) > 1 for node in part}
    stuck |= set(nx.nodes_with_selfloops(graph))
    stuck |= {node for one in set(stuck) for node in nx.descendants(graph, one)}
    assert set(order.tolist()) == set(range(len(lists))) - stuck
    for node, part in enumerate(lists):
        if node in stuck:
            assert (start[node], binding[node]) == (-1, -1)
        else:
            assert start[node] == max((start[pred] + durations[pred] for pred in part), default=0)
            assert (binding[node] >= 0) == bool(part)
            assert binding[node] < 0 or start[binding[node]] + durations[binding[node]] == start[node]
    position = {node: place for place, node in enumerate(order.tolist())}
    assert all(position[pred] < position[node] for node in position for pred in lists[node])


def test_nothing_to_schedule():
    start, binding, order = schedule(np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    assert len(start) == len(binding) == len(order) == 0


def test_chain_heads():
    assert chain_heads(np.array([-1, 0, 1, -1, 3, 2], np.int64)).tolist() == [0, 0, 0, 3, 3, 0]
    assert chain_heads(np.empty(0, np.int64)).tolist() == []
