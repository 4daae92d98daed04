"""How communications share links."""

import numpy as np
import pytest

from chakra_et._jit.fair import fair_rates, fair_rates_into


def rates_of(loads, capacity):
    """Return speeds; `loads` is one {link: bytes} a communication."""
    indptr = np.cumsum([0, *map(len, loads)])
    links = np.array([link for load in loads for link in load], np.int64)
    sent = np.array([size for load in loads for size in load.values()], np.float64)
    rates = np.full(len(loads), np.nan)
    fair_rates(np.arange(len(loads)), indptr, links, sent, np.array(capacity, np.float64), rates)
    return rates.tolist()


def test_alone_the_tightest_link_counts():
    assert rates_of([{0: 100.0, 1: 20.0}], [50.0, 5.0]) == [0.25]


def test_equals_get_equal_parts():
    assert rates_of([{0: 10.0}, {0: 10.0}], [4.0]) == [0.2, 0.2]


def test_equal_bandwidth_whatever_the_size():
    assert rates_of([{0: 1.0}, {0: 100.0}], [4.0]) == [2.0, 0.02]


def test_what_one_leaves_the_others_take():
    assert rates_of([{0: 1.0}, {0: 1.0, 1: 1.0}], [50.0, 10.0]) == [40.0, 10.0]


def test_a_long_one_against_short_ones():
    assert rates_of([{0: 1.0, 1: 1.0}, {0: 1.0}, {1: 1.0}, {1: 1.0}], [9.0, 9.0]) == [3.0, 6.0, 3.0, 3.0]


def test_a_hierarchical_collective_has_half_of_what_it_shares():
    hierarchical, scale_up, scale_out = {0: 350.0, 1: 50.0}, {0: 1.0}, {1: 1.0}
    assert rates_of([hierarchical, scale_up], [450.0, 50.0]) == pytest.approx([225 / 350, 225.0])
    assert rates_of([hierarchical, scale_out], [450.0, 50.0]) == pytest.approx([0.5, 25.0])


def test_crossed_loads_fill_both_links():
    assert rates_of([{0: 1.0, 1: 0.5}, {0: 0.5, 1: 1.0}], [1.0, 1.0]) == pytest.approx([2 / 3, 2 / 3])


def test_without_loads_there_is_no_limit():
    assert rates_of([{}, {0: 2.0}, {0: 2.0}], [4.0]) == [np.inf, 1.0, 1.0]
    assert rates_of([{}], [4.0]) == [np.inf]


def test_only_active_ones_count_and_are_written():
    indptr, links = np.array([0, 1, 2, 3]), np.zeros(3, np.int64)
    rates, slots = np.full(3, -1.0), np.full(1, -1)
    fair_rates_into(np.array([2, 0]), indptr, links, np.ones(3), np.array([6.0]), rates, slots)
    assert rates.tolist() == [3.0, -1.0, 3.0]
    assert slots.tolist() == [-1]
