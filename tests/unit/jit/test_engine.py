import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.jit.engine_model import Flow, Job, Meeting, Model, Node, run


def ends(job, **kwargs):
    return run(job, **kwargs)[1]


def test_edges_alone_decide_without_resources():
    nodes = [Node(5), Node(7, (0,)), Node(1, (0,)), Node(2, (1, 2)), Node(4, earliest=20)]
    assert run(Job(nodes)) == ([0, 5, 5, 12, 20], [5, 12, 6, 14, 24])


def test_of_ready_nodes_the_first_in_order_runs():
    nodes = [Node(10, resource=0), Node(4, (0,), resource=0), Node(3, resource=0), Node(2, (2,), resource=0)]
    assert run(Job(nodes, servers=[1])) == ([0, 10, 14, 17], [10, 14, 17, 19])


def test_all_that_happens_at_one_moment_counts_before_a_resource_is_given():
    """Node 1 becomes ready when node 4 ends, at the moment when the resource is free for node 2."""
    nodes = [Node(10, resource=0), Node(5, (4,), resource=0), Node(5, resource=0), Node(0, (3,)), Node(0)]
    nodes[3], nodes[4] = Node(10), Node(0, (3,))
    assert run(Job(nodes, servers=[1]))[0] == [0, 10, 15, 0, 10]


def test_participants_end_after_the_last_arrival():
    nodes = [Node(10), Node(3, (0,), meeting=0, signals=(0,)), Node(4, meeting=0, signals=(0,)), Node(1, (2,))]
    assert run(Job(nodes, [Meeting()])) == ([0, 10, 0, 14], [10, 13, 14, 15])


def test_who_waits_for_nobody_doesnt_hold_others_up():
    send = Node(2, meeting=0, signals=(0,), waits=False)
    receive = [Node(50), Node(3, (1,), meeting=0)]
    assert ends(Job([send, *receive], [Meeting()])) == [2, 50, 53]
    early = [Node(30), Node(2, (0,), meeting=0, signals=(0,), waits=False), Node(3, meeting=0)]
    assert ends(Job(early, [Meeting()])) == [30, 32, 33]


def test_a_call_may_arrive_for_its_node():
    nodes = [Node(20, signals=(0,)), Node(1, (0,), meeting=0), Node(5, meeting=0, signals=(0,))]
    assert run(Job(nodes, [Meeting()])) == ([0, 20, 0], [20, 21, 5])


def test_a_node_may_tell_several_meetings():
    nodes = [Node(9), Node(0, (0,), signals=(0, 1)), Node(2, meeting=0), Node(3, meeting=1)]
    assert ends(Job(nodes, [Meeting(), Meeting()])) == [9, 9, 11, 12]


def both(flow, other=None):
    """Two meetings of two nodes each, at times 0 and 0."""
    nodes = [Node(0, meeting=room, signals=(room,)) for room in (0, 0, 1, 1)]
    return Job(nodes, [Meeting(0), Meeting(1)], flows=[flow, other or flow], capacity=[10.0, 4.0])


def test_a_flow_takes_latency_and_its_most_loaded_link():
    assert ends(both(Flow(7.5, {0: 1000.0}), Flow(3.0, {0: 0.5, 1: 100.0}))) == [108, 108, 28, 28]
    assert ends(both(Flow(7.5, {}), Flow(2.4, {}))) == [8, 8, 2, 2]


def test_flows_share_links():
    job = both(Flow(0.0, {0: 1000.0}), Flow(0.0, {0: 500.0}))
    assert ends(job) == [150, 150, 100, 100]
    job = both(Flow(0.0, {0: 1000.0}), Flow(20.0, {0: 400.0, 1: 10.0}))
    assert ends(job) == [140, 140, 100, 100]


def test_meetings_that_are_alike_may_have_one_flow():
    job = both(Flow(0.0, {0: 1000.0}))
    job.meetings[1].flow = 0
    assert ends(job) == [200, 200, 200, 200]


def test_channels_take_one_after_the_other():
    job = both(Flow(10.0, {0: 1000.0}), Flow(10.0, {1: 40.0}))
    job.meetings[0].channel = job.meetings[1].channel = 0
    job.servers = [1]
    assert ends(job) == [110, 110, 130, 130]
    job.servers = [2]
    assert ends(job) == [110, 110, 20, 20]


def test_channels_hold_measured_transfers_too():
    nodes = [Node(5, meeting=0, signals=(0,)), Node(8, meeting=0, signals=(0,)), Node(2, meeting=1, signals=(1,))]
    job = Job(nodes, [Meeting(channel=0), Meeting(channel=0)], servers=[1])
    assert ends(job) == [5, 8, 10]


@pytest.mark.parametrize(("slowdown", "end"), [(1.0, 100), (2.0, 130), (np.inf, 160)])
def test_compute_slows_down_while_its_rank_communicates(slowdown, end):
    nodes = [Node(100, resource=0), Node(0, meeting=0, signals=(0,))]
    job = Job(nodes, [Meeting(0)], servers=[1], flows=[Flow(60.0, {})], slowdown=slowdown, engines={0: 0})
    assert ends(job) == [end, 60]


def test_what_waits_for_each_other_never_ends():
    nodes = [
        Node(1, meeting=0, signals=(0,)), Node(1, (0,), meeting=1, signals=(1,)),
        Node(1, meeting=1, signals=(1,)), Node(1, (2,), meeting=0, signals=(0,)),
    ]  # fmt: skip
    assert ends(Job(nodes, [Meeting(), Meeting()])) == [-1, -1, -1, -1]


@st.composite
def jobs(draw):
    ranks, rooms = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    capacity = draw(st.lists(st.sampled_from([1.0, 2.5, 10.0]), min_size=1, max_size=3))
    flows = [
        Flow(
            draw(st.sampled_from([0.0, 3.0, 7.25])),
            draw(st.dictionaries(st.integers(0, len(capacity) - 1), st.sampled_from([10.0, 33.0, 80.0]))),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    shared = 2 * ranks
    meetings = [
        Meeting(draw(st.integers(-1, len(flows) - 1)), draw(st.sampled_from([-1, shared]))) for _ in range(rooms)
    ]
    nodes = []
    for rank in range(ranks):
        first = len(nodes)
        for _ in range(draw(st.integers(1, 6))):
            known = range(first, len(nodes))
            preds = tuple(sorted(draw(st.sets(st.sampled_from(known), max_size=2)))) if known else ()
            node = Node(draw(st.sampled_from([0, 1, 4, 10])), preds, rank=rank, earliest=3 * rank)
            if meetings and draw(st.booleans()):
                node.meeting = draw(st.integers(0, rooms - 1))
                node.signals = (node.meeting,) if draw(st.integers(0, 4)) else ()
                node.waits = bool(draw(st.integers(0, 4)))
            else:
                node.resource = draw(st.sampled_from([-1, rank, rank, ranks + rank]))
            nodes.append(node)
    engines = {rank: rank for rank in range(ranks)}
    slowdown = draw(st.sampled_from([1.0, 1.0, 1.5, np.inf]))
    return Job(nodes, meetings, [1] * (2 * ranks) + [draw(st.integers(1, 2))], flows, capacity, slowdown, engines)


@settings(max_examples=400, deadline=None)
@given(jobs(), st.integers(1, 9))
def test_agrees_with_a_model_that_looks_at_everything(job, budget):
    expected = Model(job).run()
    assert run(job) == expected
    assert run(job, budget=budget) == expected


def test_the_same_source_runs_uncompiled():
    code = """
from tests.unit.jit.test_engine import both, Flow, ends
assert ends(both(Flow(0.0, {0: 1000.0}), Flow(20.0, {0: 400.0, 1: 10.0}))) == [140, 140, 100, 100]
import numba
from chakra_et._jit.engine import advance
print(type(advance).__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"NUMBA_DISABLE_JIT": "1", "PATH": ""},
    )
    assert done.stdout.split() == ["function"]
