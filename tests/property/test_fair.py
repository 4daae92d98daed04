"""Sharing is feasible, leaves nothing over, grants everybody a part, and is max-min fair for messages."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.fair import fair_rates

NEAR = 1e-6


@st.composite
def tables(draw, even=False):
    """Return bytes [A, L] of communications on links (even: equal ones on all links of one), and capacities [L]."""
    count, width = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    sizes = st.sampled_from([0.1, 1.0, 2.0, 5.0, 64.0, 1e6])
    used = np.array(draw(st.lists(st.booleans(), min_size=count * width, max_size=count * width)))
    table = used.reshape(count, width).astype(float)
    for row in table:
        row[draw(st.integers(0, width - 1))] = 1.0
    shape = (count, 1) if even else (count, width)
    amount = draw(st.lists(sizes, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    capacity = draw(st.lists(st.sampled_from([0.5, 1.0, 3.0, 50.0, 450.0]), min_size=width, max_size=width))
    return table * np.array(amount).reshape(shape), np.array(capacity)


def rates_of(table, capacity, order=None):
    indptr = np.concatenate([[0], np.cumsum((table > 0).sum(axis=1))])
    rates = np.zeros(len(table))
    active = np.arange(len(table)) if order is None else order
    fair_rates(active, indptr, np.nonzero(table)[1], table[table > 0], capacity, rates)
    return rates


def max_min(used, capacity):
    """Bandwidths by the textbook: the link with the least for each decides first. `used`: bool [A, L]."""
    bandwidth = np.full(len(used), np.nan)
    room = capacity.copy()
    while np.isnan(bandwidth).any():
        waiting = np.isnan(bandwidth)
        sharers = used[waiting].sum(axis=0)
        part = np.where(sharers > 0, room / np.maximum(sharers, 1), np.inf)
        link = int(np.argmin(part))
        for one in np.nonzero(waiting & used[:, link])[0]:
            bandwidth[one] = part[link]
            room = room - used[one] * part[link]
    return bandwidth


@settings(max_examples=400, deadline=None)
@given(tables())
def test_everybody_is_held_back_by_a_full_link_and_has_an_equal_part(given_):
    table, capacity = given_
    rates = rates_of(table, capacity)
    use = rates @ table
    assert (use <= capacity * (1 + NEAR)).all()
    assert ((table > 0) & (use >= capacity * (1 - NEAR))).any(axis=1).all()
    parts = capacity / np.maximum((table > 0).sum(axis=0), 1)
    sure = np.min(np.where(table > 0, parts / np.where(table > 0, table, 1.0), np.inf), axis=1)
    assert (rates >= sure * (1 - NEAR)).all()


@settings(max_examples=400, deadline=None)
@given(tables(even=True))
def test_messages_are_max_min_fair(given_):
    table, capacity = given_
    bandwidth = rates_of(table, capacity) * table.max(axis=1)
    np.testing.assert_allclose(bandwidth, max_min(table > 0, capacity), rtol=NEAR)


@settings(max_examples=200, deadline=None)
@given(tables(even=True), st.data())
def test_more_capacity_never_slows_the_slowest_message(given_, data):
    table, capacity = given_
    more = capacity.copy()
    more[data.draw(st.integers(0, len(capacity) - 1))] *= data.draw(st.sampled_from([1.5, 2.0, 100.0]))
    before, after = (np.min(rates_of(table, size) * table.max(axis=1)) for size in (capacity, more))
    assert after >= before * (1 - NEAR)


@settings(max_examples=200, deadline=None)
@given(tables(), st.randoms(use_true_random=False), st.sampled_from([0.001, 3.0, 1e4]))
def test_order_and_units_do_not_matter(given_, random, factor):
    table, capacity = given_
    order = np.array(random.sample(range(len(table)), len(table)))
    rates = rates_of(table, capacity)
    np.testing.assert_allclose(rates_of(table, capacity, order), rates, rtol=NEAR)
    np.testing.assert_allclose(rates_of(table, capacity * factor), rates * factor, rtol=NEAR)
    np.testing.assert_allclose(rates_of(table * factor, capacity), rates / factor, rtol=NEAR)
