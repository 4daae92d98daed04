"""How much intervals cover up to any moment."""

import numpy as np

from chakra_et.analysis.cover import cover_of


def cover(*intervals):
    table = np.array(sorted(intervals), np.int64).reshape(-1, 2)
    return cover_of(table[:, 0], table[:, 1])


def until(found, *moments):
    return found.until(np.array(moments, np.int64)).tolist()


def test_overlapping_and_touching_intervals_are_one_block():
    found = cover((0, 5), (3, 7), (7, 9), (20, 22), (20, 21))
    assert (found.begin.tolist(), found.length.tolist(), found.before.tolist()) == ([0, 20], [9, 2], [0, 9])


def test_a_short_interval_inside_a_long_one_adds_nothing():
    assert until(cover((0, 10), (2, 3), (5, 6)), 10) == [10]


def test_moments_before_between_inside_and_after():
    assert until(cover((2, 5), (8, 10)), -4, 2, 3, 5, 7, 8, 9, 10, 99) == [0, 0, 1, 3, 3, 3, 4, 5, 5]


def test_stretches():
    found = cover((2, 5), (8, 10))
    begin, end = np.array([0, 3, 5, 9, 9]), np.array([20, 9, 8, 30, 1])
    # The last one ends before it begins.
    assert found.between(begin, end).tolist() == [5, 3, 0, 1, 0]


def test_without_intervals_nothing_is_covered():
    assert until(cover(), 0, 5) == [0, 0]
    assert cover().between(np.array([0]), np.array([9])).tolist() == [0]


def test_intervals_of_no_or_negative_length_cover_nothing():
    assert until(cover((3, 3), (5, 2)), 9) == [0]


def test_times_since_1970_stay_exact():
    epoch = 1_790_000_000_123_456_789
    assert until(cover((epoch, epoch + 3), (epoch + 5, epoch + 6)), epoch + 1, epoch + 9) == [1, 4]
