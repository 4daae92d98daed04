"""Adding up what runs, and finding when nothing does."""

import numpy as np
import pytest

from chakra_et._jit.partition import idle_stretches, partition

COMPUTE, COMMUNICATION, MEMORY = 0, 1, 2


def parts(activities, *moments):
    """Time by combination of kinds (bits: compute 1, communication 2, memory 4) up to each moment."""
    table = np.array(sorted(activities), np.int64).reshape(-1, 3)
    start, end, kind = table[:, 0].copy(), table[:, 1].copy(), table[:, 2].astype(np.int8)
    found = partition(start, end, kind, np.argsort(end, kind="stable"), np.array(moments, np.int64))
    return found.tolist()


def gaps(activities, begin, until):
    table = np.array(sorted(activities), np.int64).reshape(-1, 2)
    return idle_stretches(table[:, 0].copy(), table[:, 1].copy(), begin, until).tolist()


def test_each_combination_has_its_time():
    activities = [(0, 10, COMPUTE), (4, 14, COMMUNICATION), (12, 18, MEMORY), (13, 15, COMPUTE), (20, 21, MEMORY)]
    # 0-4 compute, 4-10 both, 10-12 communication, 12-13 and memory, 13-14 all, 14-15 compute and memory, 15-18 memory
    assert parts(activities, 0, 21)[-1] == [2, 4, 2, 6, 4, 1, 1, 1]


def test_several_of_one_kind_count_once():
    assert parts([(0, 10, COMPUTE), (2, 5, COMPUTE), (8, 12, COMPUTE)], 0, 12)[-1] == [0, 12, 0, 0, 0, 0, 0, 0]


def test_moments_in_the_middle():
    """What began before the first moment runs at it, and what ended before doesn't."""
    activities = [(0, 3, MEMORY), (0, 10, COMPUTE), (6, 8, COMMUNICATION)]
    assert parts(activities, 5, 7, 7, 12) == [
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 1, 0, 0, 0, 0],
        [0, 1, 0, 1, 0, 0, 0, 0],
        [2, 3, 0, 2, 0, 0, 0, 0],
    ]


def test_what_has_no_length_changes_nothing():
    activities = [(2, 2, COMMUNICATION), (2, 4, COMPUTE), (4, 4, MEMORY), (4, 6, COMPUTE)]
    assert parts(activities, 0, 6)[-1] == [2, 4, 0, 0, 0, 0, 0, 0]


def test_nothing_runs():
    assert parts([], 3, 9) == [[0] * 8, [6, 0, 0, 0, 0, 0, 0, 0]]
    assert parts([(0, 5, COMPUTE)]) == []


def test_times_since_1970_fit():
    epoch = 1_790_000_000_000_000_000
    assert parts([(epoch, epoch + 3, COMPUTE)], epoch - 1, epoch + 5)[-1] == [3, 3, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("activities", "stretches"),
    [
        ([(0, 4), (6, 8)], [[4, 6, 1], [8, 10, -1]]),
        ([(2, 4), (3, 9)], [[0, 2, 0], [9, 10, -1]]),
        # The last one begins before the end of the stretch of time and lasts beyond it.
        ([(0, 4), (7, 20)], [[4, 7, 1]]),
        # What ends a stretch may begin only after the end of the time that is looked at.
        ([(0, 4), (12, 20)], [[4, 10, 1]]),
        # A short one inside a long one ends nothing.
        ([(0, 8), (1, 2), (9, 10)], [[8, 9, 2]]),
        # What has no length ends no stretch.
        ([(0, 4), (6, 6), (8, 10)], [[4, 8, 2]]),
        ([], [[0, 10, -1]]),
    ],
)
def test_idle_stretches(activities, stretches):
    assert gaps(activities, 0, 10) == stretches


def test_idle_begins_where_one_asks():
    assert gaps([(0, 4), (6, 8)], 5, 6) == [[5, 6, 1]]
    assert gaps([(0, 4), (6, 8)], 1, 4) == []
