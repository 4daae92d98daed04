"""What an activity follows on its stream."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.lanes import lane_order


def order_of(activities, resolution=0, lanes=None):
    """Order (start, end) pairs of one lane; return each one's predecessors, ends, and the two counts."""
    lane = np.array(lanes if lanes is not None else [0] * len(activities), np.int64)
    start, end = (np.array([pair[side] for pair in activities], np.int64) for side in (0, 1))
    indptr, preds, ends, _, snapped, overlapping = lane_order(lane, start, end, resolution)
    lists = [preds[a:b].tolist() for a, b in pairwise(indptr)]
    return lists, ends.tolist(), snapped, overlapping


def test_one_after_the_other():
    assert order_of([(0, 5), (5, 9), (20, 21)]) == ([[], [0], [1]], [5, 9, 21], 0, 0)


def test_ends_within_the_resolution_are_moved():
    assert order_of([(0, 6), (5, 9)], resolution=1) == ([[], [0]], [5, 9], 1, 0)
    assert order_of([(0, 6), (5, 9)], resolution=0) == ([[], []], [6, 9], 0, 1)


def test_an_overlapping_one_hangs_on_what_the_earlier_one_hung_on():
    lists, _, _, overlapping = order_of([(0, 5), (6, 20), (15, 30), (31, 40)])
    assert lists == [[], [0], [0], [1, 2]]
    assert overlapping == 1


def test_what_still_ran_is_told():
    """Of a chain that overlaps link by link, each one follows the last but one, and waited beside the last."""
    start, end = np.array([0, 50, 99, 150, 201]), np.array([51, 100, 150, 200, 210])
    indptr, preds, _, beside, _, overlapping = lane_order(np.zeros(5, np.int64), start, end, 0)
    assert [preds[a:b].tolist() for a, b in pairwise(indptr)] == [[], [], [0], [1, 2], [3]]
    assert beside.tolist() == [-1, 0, 1, -1, -1]
    assert overlapping == 1


def test_lanes_are_apart_and_none_is_a_lane():
    lists, _, _, overlapping = order_of([(0, 5), (6, 8), (0, 4), (5, 6), (0, 1), (2, 3)], lanes=[-1, -1, 0, 0, 1, 1])
    assert lists == [[], [], [], [2], [], [4]]
    assert overlapping == 0


def test_many_open_at_once():
    """Graph branches: hundreds that overlap, then one that follows them."""
    lists, _, _, overlapping = order_of([(i, 1000 + i) for i in range(200)] + [(5000, 5001)])
    assert lists[:200] == [[]] * 200
    assert overlapping == 199
    assert 199 in lists[200]
    assert len(lists[200]) <= 64


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 15)), max_size=30), st.integers(0, 2))
@settings(max_examples=300, deadline=None)
def test_edges_never_contradict_the_times(rows, resolution):
    rows = sorted((lane, start, start + length) for lane, start, length in rows)
    lane = [row[0] for row in rows]
    lists, ends, _, _ = order_of([(a, b) for _, a, b in rows], resolution, lane)
    for here, preds in enumerate(lists):
        _, start, end = rows[here]
        assert len(set(preds)) == len(preds)
        for pred in preds:
            assert pred < here
            assert lane[pred] == lane[here]
            assert ends[pred] <= start
        assert start <= ends[here] or ends[here] == end
        assert end - resolution <= ends[here] <= end
    # What nothing overlaps follows the one before it.
    for here in range(1, len(rows)):
        if lane[here] == lane[here - 1] and all(
            rows[other][2] <= rows[here][1] for other in range(here) if lane[other] == lane[here]
        ):
            assert lists[here]
