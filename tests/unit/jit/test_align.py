from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.align import common_subsequence

CODES = st.lists(st.integers(0, 4), max_size=40)


def aligned(one, two, patience=1 << 30):
    return common_subsequence(np.array(one, np.int64), np.array(two, np.int64), patience)


def longest(one, two):
    """The length by the table of all prefixes."""
    row = [0] * (len(two) + 1)
    for a in one:
        before = row
        row = [0]
        for place, b in enumerate(two):
            row.append(before[place] + 1 if a == b else max(row[place], before[place + 1]))
    return row[-1]


def check(one, two, pairs):
    assert all(one[i] == two[j] for i, j in pairs)
    assert (np.diff(pairs, axis=0) > 0).all()


@settings(deadline=None, max_examples=400)
@given(CODES, CODES)
def test_result_is_the_longest(one, two):
    pairs = aligned(one, two)
    check(one, two, pairs)
    assert len(pairs) == longest(one, two)


@settings(deadline=None)
@given(CODES, CODES, st.integers(1, 4))
def test_impatient_search_gives_a_valid_alignment(one, two, patience):
    check(one, two, aligned(one, two, patience))


def test_what_was_inserted_or_removed_is_all_that_is_left_out():
    layer = list(range(20))
    one = layer * 30
    two = layer * 10 + [77] + layer * 8 + layer[3:] + layer * 11
    pairs = aligned(one, two, 64)
    check(one, two, pairs)
    assert len(pairs) == len(one) - 20 + 17


def test_sequences_without_anything_in_common_take_linear_time():
    one, two = np.arange(200_000), np.arange(200_000) + 1_000_000
    assert len(aligned(one, two, 64)) == 0
