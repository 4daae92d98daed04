"""Graphs of several ranks scheduled as one, against plain Python."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.joint import cut_graph, end_times, join_graphs, topological_order, walk_back


def csr(lists, dtype=np.int32):
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in lists]))).astype(dtype)
    return offsets, np.array([pred for one in lists for pred in one], dtype)


def lists_of(indptr, preds):
    return [preds[low:high].tolist() for low, high in pairwise(indptr)]


def run(lists, duration, nothing=()):
    indptr, preds = csr(lists)
    order, cut = topological_order(indptr, preds)
    end = np.empty(len(lists), np.int64)
    end_times(order, indptr, preds, np.array(duration, np.int64), mask(nothing, len(lists)), end)
    return order, cut, end, lists_of(indptr, preds)


def mask(nodes, count):
    found = np.zeros(count, np.bool_)
    found[list(nodes)] = True
    return found


@st.composite
def graphs(draw, most=12):
    """Acyclic predecessor lists in any numbering, and durations."""
    count = draw(st.integers(1, most))
    names = draw(st.permutations(range(count)))
    lists = [[] for _ in range(count)]
    for place in range(count):
        before = draw(st.lists(st.integers(0, place - 1), max_size=3)) if place else []
        lists[names[place]] = [names[one] for one in before]
    return lists, draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))


def longest(lists, duration, node, known=None):
    """The longest chain that ends with a node, by recursion."""
    known = {} if known is None else known
    if node not in known:
        known[node] = duration[node] + max((longest(lists, duration, pred, known) for pred in lists[node]), default=0)
    return known[node]


@given(graphs(), st.data())
@settings(max_examples=200, deadline=None)
def test_ends_are_those_of_the_longest_chains(graph, data):
    lists, duration = graph
    nothing = data.draw(st.sets(st.integers(0, len(lists) - 1)))
    order, cut, end, _ = run(lists, duration, nothing)
    assert sorted(order.tolist()) == list(range(len(lists)))
    assert cut == 0
    left = [0 if node in nothing else time for node, time in enumerate(duration)]
    assert end.tolist() == [longest(lists, left, node) for node in range(len(lists))]


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_a_path_adds_up_to_its_end(graph):
    lists, duration = graph
    _, _, end, _ = run(lists, duration)
    for node in range(len(lists)):
        path = walk_back(node, *csr(lists), end).tolist()
        assert path[-1] == node
        assert lists[path[0]] == []
        assert all(one in lists[two] for one, two in pairwise(path))
        assert sum(duration[one] for one in path) == end[node]


def test_of_equal_ends_the_lowest_number_is_followed():
    lists = [[], [], [], [2, 1, 0]]
    _, _, end, _ = run(lists, [3, 5, 5, 1])
    assert walk_back(3, *csr(lists), end).tolist() == [1, 3]


def test_long_paths_fit():
    count = 5000
    lists = [[], *([node] for node in range(count - 1))]
    _, _, end, _ = run(lists, [1] * count)
    assert walk_back(count - 1, *csr(lists), end).tolist() == list(range(count))


def test_edges_that_close_cycles_are_cut_and_the_rest_stays():
    # 0 -> 1 -> 2 -> 1, 3 on itself, 4 behind the cycle.
    order, cut, end, left = run([[], [0, 2], [1], [3], [2]], [1, 10, 100, 7, 1000])
    assert (sorted(order.tolist()), cut) == ([0, 1, 2, 3, 4], 2)
    assert sum(one.count(-1) for one in left) == 2
    # The cycle is entered at node 1: what closes it is the edge from 1 to 2.
    assert end.tolist() == [1, 110, 100, 7, 1100]
    assert walk_back(4, *csr([[], [0, 2], [-1], [-1], [2]]), end).tolist() == [2, 4]


@given(graphs(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_cut_keeps_edges_among_the_kept(graph, data):
    lists, _ = graph
    kept = sorted(data.draw(st.sets(st.integers(0, len(lists) - 1))))
    slot = np.full(len(lists), -1, np.int32)
    slot[kept] = np.arange(1, len(kept) + 1)
    indptr, preds = cut_graph(*csr(lists, np.int64), slot, len(kept))
    wanted = [[int(slot[pred]) for pred in lists[node] if slot[pred] >= 0] or [0] for node in kept]
    assert lists_of(indptr, preds) == [[], *wanted]


@st.composite
def jobs(draw):
    """Ranks that run chains and meet: per rank the meetings it goes through, in one order, and times between."""
    ranks, rooms = draw(st.integers(1, 4)), draw(st.integers(0, 4))
    parties = [draw(st.sets(st.integers(0, ranks - 1), min_size=1)) for _ in range(rooms)]
    time = st.integers(0, 30)
    plan = [[(room, draw(time), draw(time), draw(st.booleans())) for room in range(rooms) if rank in parties[room]]
            for rank in range(ranks)]  # fmt: skip
    return rooms, plan, draw(st.dictionaries(st.integers(0, max(rooms - 1, 0)), time, max_size=2))


@given(jobs())
@settings(max_examples=200, deadline=None)
def test_meetings_wait_for_the_last(job):
    rooms, plan, outside = job
    outside = {room: moment for room, moment in outside.items() if room < rooms}
    lists, duration, comms = [], [], []
    for rank in plan:
        last = []
        for room, work, own, waits in rank:
            lists.append(last)
            lists.append([len(lists) - 1])
            duration += [work, own]
            comms.append((len(lists) - 1, room, waits))
            last = [len(lists) - 1]
    count = len(lists)
    begin, meeting = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    for place, (node, room, waits) in enumerate(comms):
        begin[node], meeting[node] = place, room if waits else -1
    arrivals = [[node for node, at, _ in comms if at == room] for room in range(rooms)]
    seats, seated = csr(arrivals)
    fixed = np.array(sorted(outside), np.int32)
    indptr, preds = join_graphs(*csr(lists), begin, meeting, seats, seated, fixed)
    order, cut = topological_order(indptr, preds)
    times = np.zeros(len(order), np.int64)
    times[:count] = duration
    times[len(order) - len(fixed) :] = [outside[room] for room in fixed.tolist()]
    end = np.empty(len(order), np.int64)
    end_times(order, indptr, preds, times, np.zeros(len(order), np.bool_), end)
    assert cut == 0
    assert end[:count].tolist() == simulated(plan, rooms, outside)


def simulated(plan, rooms, outside):
    """Ends of work and communications, rank by rank, by going round until no arrival moves any more."""
    came = [0] * rooms
    while True:
        ends, arrived = [], [[outside.get(room, 0)] for room in range(rooms)]
        for steps in plan:
            now = 0
            for room, work, own, waits in steps:
                arrived[room].append(now + work)
                ends += [now + work, max(now + work, came[room] * waits) + own]
                now = ends[-1]
        latest = [max(times) for times in arrived]
        if latest == came:
            return ends
        came = latest
