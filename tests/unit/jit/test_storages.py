"""Numbers of storages that are used again."""

import numpy as np

from chakra_et._jit.storages import number_lives


def lives(*uses):
    """Each use: storage, row, begin, end, whether it was returned (True) or given (False)."""
    columns = [np.array(column, np.int64) for column in zip(*(use[:4] for use in uses), strict=True)]
    return number_lives(*columns, np.array([use[4] for use in uses], np.bool_)).tolist()


def test_what_is_only_used_stays_one():
    assert lives((1, 0, 0, 5, False), (1, 3, 9, 12, False), (2, 4, 9, 12, False)) == [0, 0, 1]


def test_what_is_returned_after_the_others_ended_is_another():
    assert lives((1, 0, 0, 5, True), (1, 3, 5, 12, True), (1, 4, 20, 30, True)) == [0, 1, 2]


def test_callers_and_callees_return_the_same():
    assert lives((1, 0, 0, 9, True), (1, 1, 2, 4, True), (1, 2, 5, 8, False), (1, 3, 9, 10, True)) == [0, 0, 0, 1]


def test_what_an_operator_was_given_it_did_not_make():
    assert lives((1, 0, 0, 5, True), (1, 3, 9, 12, False), (1, 3, 9, 12, True)) == [0, 0, 0]


def test_none():
    empty = np.empty(0, np.int64)
    assert number_lives(empty, empty, empty, empty, np.empty(0, np.bool_)).tolist() == []
