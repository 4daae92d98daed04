"""What a device waited for, on small graphs worked out by hand."""

from itertools import chain

import numpy as np

from chakra_et._jit.causes import (
    COMMUNICATION,
    HOST_BOUND,
    LAUNCH_LATENCY,
    OTHER_STREAM,
    UNEXPLAINED,
    idle_steps,
)

HOST = -1
NAMES = {UNEXPLAINED: "unexplained", HOST_BOUND: "host", LAUNCH_LATENCY: "latency", OTHER_STREAM: "stream",
         COMMUNICATION: "communication"}  # fmt: skip


def causes(nodes, idle, first):
    """Time by cause of one idle stretch; nodes are (start, end, cause, lane, predecessors)."""
    preds = [list(node[4]) for node in nodes]
    indptr = np.cumsum([0, *map(len, preds)]).astype(np.int64)
    column = [np.array([node[place] for node in nodes], np.int64) for place in range(4)]
    steps, _ = idle_steps(
        np.array([idle], np.int64), np.array([first], np.int64), indptr, np.array([*chain(*preds)], np.int64),
        column[0], column[1], column[2].astype(np.int8), column[3],
    )  # fmt: skip
    assert steps[:, 3].sum() == idle[1] - idle[0]
    found = np.bincount(steps[:, 2], steps[:, 3], len(NAMES))
    return {NAMES[cause]: int(time) for cause, time in enumerate(found) if time}


def test_the_host_came_late():
    """A kernel until 10; the host launches at 10..13; latency until 15."""
    nodes = [
        (0, 10, OTHER_STREAM, 7, ()),
        (4, 13, HOST_BOUND, HOST, ()),
        (13, 15, LAUNCH_LATENCY, 7, (1,)),
        (15, 20, OTHER_STREAM, 7, (0, 2)),
    ]
    assert causes(nodes, (10, 15), 3) == {"host": 3, "latency": 2}


def test_the_longest_chain_counts():
    """Of two that it waits for, the one that ended last is followed, back through what that waited for."""
    nodes = [
        (0, 10, OTHER_STREAM, 7, ()),
        (2, 12, HOST_BOUND, HOST, ()),
        (12, 18, OTHER_STREAM, 9, (1,)),
        (11, 17, HOST_BOUND, HOST, ()),
        (18, 22, OTHER_STREAM, 7, (0, 2, 3)),
    ]
    # Something of another stream ran in 12..18, so that it wouldn't be idle; the walk takes what it is told.
    assert causes(nodes, (10, 18), 4) == {"stream": 6, "host": 2}


def test_latency_behind_another_stream_is_a_wait_for_it():
    nodes = [
        (0, 10, OTHER_STREAM, 9, ()),
        (10, 14, LAUNCH_LATENCY, 7, (0,)),
        (14, 20, OTHER_STREAM, 7, (1,)),
    ]
    assert causes(nodes, (10, 14), 2) == {"stream": 4}


def test_latency_behind_the_own_stream_is_latency():
    nodes = [
        (0, 10, OTHER_STREAM, 7, ()),
        (10, 14, LAUNCH_LATENCY, 7, (0,)),
        (14, 20, OTHER_STREAM, 7, (1,)),
    ]
    assert causes(nodes, (10, 14), 2) == {"latency": 4}


def test_latency_behind_a_communication_is_a_wait_for_it():
    nodes = [
        (0, 10, COMMUNICATION, 7, ()),
        (10, 14, LAUNCH_LATENCY, 7, (0,)),
        (14, 20, OTHER_STREAM, 7, (1,)),
    ]
    assert causes(nodes, (10, 14), 2) == {"communication": 4}


def test_the_host_waits_in_a_communication():
    nodes = [
        (0, 10, OTHER_STREAM, 7, ()),
        (5, 16, COMMUNICATION, HOST, ()),
        (16, 19, HOST_BOUND, HOST, (1,)),
        (19, 25, OTHER_STREAM, 7, (2,)),
    ]
    assert causes(nodes, (10, 19), 3) == {"communication": 6, "host": 3}


def test_what_no_chain_reaches_is_unexplained():
    """Time between nodes of the chain, before its first node, and behind the last activity."""
    nodes = [
        (12, 14, HOST_BOUND, HOST, ()),
        (17, 20, OTHER_STREAM, 7, (0,)),
    ]
    assert causes(nodes, (10, 17), 1) == {"unexplained": 5, "host": 2}
    assert causes(nodes, (20, 30), -1) == {"unexplained": 10}


def test_an_unexplained_gap_is_unexplained():
    nodes = [(0, 10, OTHER_STREAM, 7, ()), (10, 16, UNEXPLAINED, 7, (0,)), (16, 20, OTHER_STREAM, 7, (1,))]
    assert causes(nodes, (10, 16), 2) == {"unexplained": 6}


def test_a_cycle_ends_the_walk():
    nodes = [(12, 12, HOST_BOUND, HOST, (1,)), (12, 12, HOST_BOUND, HOST, (0,)), (17, 20, OTHER_STREAM, 7, (0,))]
    assert causes(nodes, (10, 17), 2) == {"unexplained": 7}


def test_nodes_that_contradict_their_edges():
    """A predecessor that ends after its successor starts takes no more than the time that is left."""
    nodes = [(11, 30, HOST_BOUND, HOST, ()), (15, 20, OTHER_STREAM, 7, (0,))]
    assert causes(nodes, (10, 15), 1) == {"host": 4, "unexplained": 1}


def test_no_idle_time():
    none = np.empty(0, np.int64)
    steps, resumed = idle_steps(
        np.empty((0, 2), np.int64), none, np.zeros(1, np.int64), none, none, none, np.empty(0, np.int8), none
    )
    assert (steps.shape, resumed.shape) == ((0, 4), (0,))
