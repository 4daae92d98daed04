"""Host threads nest, and are cut into disjoint items that tile their time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.timeline import nest, split_items

NONE = np.empty(0, np.int64)


def ints(values):
    return np.array(list(values), np.int64)


def nested(events, tolerance=0):
    """Nest (start, end) pairs of one thread, given in order."""
    parent, low, high, overlaps = nest(
        ints([0] * len(events)), ints(a for a, _ in events), ints(b for _, b in events), tolerance
    )
    return parent.tolist(), list(zip(low.tolist(), high.tolist(), strict=True)), overlaps


@pytest.mark.parametrize(
    ("events", "tolerance", "parent", "spans", "overlaps"),
    [
        ([(0, 10), (2, 5), (3, 4), (6, 8)], 0, [-1, 0, 1, 0], [(0, 10), (2, 5), (3, 4), (6, 8)], 0),
        # One after the other, touching.
        ([(0, 5), (5, 9)], 0, [-1, -1], [(0, 5), (5, 9)], 0),
        # The same span twice: the second is inside the first.
        ([(0, 5), (0, 5)], 0, [-1, 0], [(0, 5), (0, 5)], 0),
        # Mostly inside: clipped to its caller.
        ([(0, 10), (4, 12)], 0, [-1, 0], [(0, 10), (4, 10)], 1),
        # Mostly outside: a sibling that begins where the other ends.
        ([(0, 10), (9, 30)], 0, [-1, -1], [(0, 10), (10, 30)], 1),
        # Within the clock's noise: clipped and not counted.
        ([(0, 10), (9, 12)], 2, [-1, 0], [(0, 10), (9, 10)], 0),
        # Without length, at the end of another: inside it.
        ([(0, 5), (5, 5)], 0, [-1, 0], [(0, 5), (5, 5)], 0),
    ],
)
def test_nesting(events, tolerance, parent, spans, overlaps):
    assert nested(events, tolerance) == (parent, spans, overlaps)


def test_threads_nest_apart():
    parent, _, _, overlaps = nest(ints([0, 1]), ints([0, 2]), ints([10, 5]), 0)
    assert parent.tolist() == [-1, -1]
    assert overlaps == 0


@st.composite
def threads_of_events(draw):
    """Events of up to three threads, sorted as `nest` wants them."""
    rows = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 20)), max_size=14))
    events = sorted(
        ((thread, start, start + length) for thread, start, length in rows), key=lambda e: (e[0], e[1], -e[2])
    )
    return tuple(ints(row[column] for row in events) for column in range(3))


@given(threads_of_events(), st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_nested_events_lie_inside_their_parents(events, tolerance):
    thread, start, end = events
    parent, low, high, _ = nest(thread, start, end, tolerance)
    assert (low >= start).all()
    assert (low <= high).all()
    for event, above in enumerate(parent.tolist()):
        if above >= 0:
            assert above < event
            assert thread[above] == thread[event]
            assert low[above] <= low[event] <= high[event] <= high[above]
    for one in range(len(low)):
        for other in range(one + 1, len(low)):
            if thread[one] == thread[other] and low[one] < high[one] and low[other] < high[other]:
                apart = high[one] <= low[other] or high[other] <= low[one]
                inside = low[one] <= low[other] and high[other] <= high[one]
                assert apart or inside


@st.composite
def splits(draw):
    """Nested events with cuts and disjoint holes, and where each thread's time begins and ends."""
    thread, start, end = draw(threads_of_events())
    _, low, high, _ = nest(thread, start, end, 0)
    count = 3
    bounds = np.searchsorted(thread, np.arange(count + 1)).astype(np.int64)
    cuts = sorted(draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 70)), max_size=6)))
    holes = []
    for number in range(count):
        points = sorted(draw(st.sets(st.integers(0, 69), max_size=6)))
        edges = {*low[thread == number].tolist(), *high[thread == number].tolist()}
        pairs = zip(points[::2], points[1::2], strict=False)
        holes += [(number, a, b) for a, b in pairs if not any(a < edge < b for edge in edges)]
    cut_bounds = np.searchsorted([c[0] for c in cuts], np.arange(count + 1)).astype(np.int64)
    hole_bounds = np.searchsorted([h[0] for h in holes], np.arange(count + 1)).astype(np.int64)
    return bounds, low, high, cut_bounds, cuts, hole_bounds, holes


@given(splits())
@settings(max_examples=500, deadline=None)
def test_items_tile_the_time_of_their_thread(case):
    bounds, start, end, cut_bounds, cuts, hole_bounds, holes = case
    threads = len(bounds) - 1
    cut_time, hole_from, hole_to = (
        ints(part) for part in ([c[1] for c in cuts], [h[1] for h in holes], [h[2] for h in holes])
    )
    origin = ints([0] * threads + [70] * threads)
    uncalled = ints([-1] * len(cuts))
    owner, low, high, item_bounds, cut_item, before, after = split_items(
        bounds, origin, start, end, cut_bounds, cut_time, uncalled, hole_bounds, hole_from, hole_to
    )
    assert item_bounds[0] == 0
    assert item_bounds[-1] == len(owner)
    for thread in range(threads):
        items = slice(item_bounds[thread], item_bounds[thread + 1])
        events = range(bounds[thread], bounds[thread + 1])
        waits = [(begin, stop) for number, begin, stop in holes if number == thread]
        check_time(low[items], high[items], waits)
        check_owners(owner[items], low[items], high[items], events, start, end, waits)
    for (thread, time), item in zip(cuts, cut_item.tolist(), strict=True):
        waits = [(begin, stop) for number, begin, stop in holes if number == thread]
        check_cut(time, item, high, waits)
        assert item < 0 or item_bounds[thread] <= item < item_bounds[thread + 1]
    # Something stands right after every hole, and what stands before it has ended.
    for (thread, begin, stop), one, other in zip(holes, before.tolist(), after.tolist(), strict=True):
        assert item_bounds[thread] <= other < item_bounds[thread + 1]
        assert low[other] == stop
        assert one == other - 1 or (one < 0 and other == item_bounds[thread])
        assert one < 0 or high[one] <= begin


def check_time(low, high, waits):
    """Items are disjoint, ascend, and are together with the holes everything there is."""
    covered = np.zeros(70, np.int64)
    now = 0
    for first, last in zip(low, high, strict=True):
        assert now <= first <= last
        now = last
        covered[first:last] += 1
    for begin, stop in waits:
        covered[begin:stop] += 1
    assert (covered == 1).all()


def check_owners(owner, low, high, events, start, end, waits):
    """An item belongs to the innermost event around it; each event owns one, at its start unless a wait covers it."""
    for own, first, last in zip(owner, low, high, strict=True):
        if first < last:
            inside = [event for event in events if start[event] <= first and last <= end[event]]
            assert own == (max(inside) if inside else -1)
    for event in events:
        mine = np.flatnonzero(owner == event)
        assert len(mine)
        hidden = any(begin <= start[event] <= stop for begin, stop in waits)
        assert low[mine[0]] == start[event] or hidden


def check_cut(time, item, high, waits):
    """A cut is where an item ends; inside a hole, it is where the last item before the hole ended."""
    if item >= 0:
        assert high[item] == time or any(begin <= time <= stop for begin, stop in waits)
    else:
        assert time == 0 or any(begin == 0 for begin, _ in waits)


def one_thread(events, cuts=(), holes=(), until=None):
    """Split one thread; cuts are (time, event)."""
    last = until if until is not None else max(end for _, end in events)
    owner, low, high, _, cut_item, before, after = split_items(
        ints([0, len(events)]),
        ints([0, last]),
        ints(a for a, _ in events),
        ints(b for _, b in events),
        ints([0, len(cuts)]),
        ints(time for time, _ in cuts),
        ints(event for _, event in cuts),
        ints([0, len(holes)]),
        ints(a for a, _ in holes),
        ints(b for _, b in holes),
    )
    items = list(zip(owner.tolist(), low.tolist(), high.tolist(), strict=True))
    return items, cut_item.tolist(), before.tolist(), after.tolist()


def test_own_time_between_children_is_an_item():
    items, _, _, _ = one_thread([(2, 10), (4, 6)], until=12)
    assert items == [(-1, 0, 2), (0, 2, 4), (1, 4, 6), (0, 6, 10), (-1, 10, 12)]


def test_cut_at_a_launch():
    items, cut_item, _, _ = one_thread([(0, 10)], cuts=[(3, -1)])
    assert items == [(0, 0, 3), (0, 3, 10)]
    assert cut_item == [0]


def test_cut_of_an_event_at_its_very_start_comes_after_its_first_item():
    items, cut_item, _, _ = one_thread([(0, 4), (4, 10)], cuts=[(4, 1)])
    assert items == [(0, 0, 4), (1, 4, 4), (1, 4, 10)]
    assert cut_item == [1]
    _, cut_item, _, _ = one_thread([(0, 4), (4, 10)], cuts=[(4, -1)])
    assert cut_item == [0]


def test_a_wait_leaves_its_time_out():
    items, _, before, after = one_thread([(0, 10)], holes=[(3, 8)])
    assert items == [(0, 0, 3), (0, 8, 10)]
    assert (before, after) == ([0], [1])


def test_a_wait_ends_where_a_child_begins():
    items, _, before, after = one_thread([(0, 10), (5, 7)], holes=[(3, 9)])
    assert items == [(0, 0, 3), (1, 5, 7), (0, 7, 10)]
    assert (before, after) == ([0], [1])


def test_a_wait_until_the_end_is_followed_by_an_item_without_length():
    items, _, before, after = one_thread([(0, 10)], holes=[(3, 10)])
    assert items == [(0, 0, 3), (-1, 10, 10)]
    assert (before, after) == ([0], [1])


def test_no_threads():
    empty = np.zeros(1, np.int64)
    found = split_items(empty, NONE, NONE, NONE, empty, NONE, NONE, empty, NONE, NONE)
    assert [len(part) for part in found] == [0, 0, 0, 1, 0, 0, 0]
