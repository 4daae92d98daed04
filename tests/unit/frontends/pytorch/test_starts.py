"""Why each activity started when it did: gaps that add up to the recorded start."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.frontends.pytorch.starts import explain_starts

WINDOW = 1000


def explained(rows, default=10_000):
    """Explain (start, follows, launched, call start, first, busy until[, held]) rows."""
    columns = [np.array([(*row, 0)[i] for row in rows], np.int64) for i in range(7)]
    starts, typical = explain_starts(
        *columns[:4], columns[4].astype(bool), *columns[5:], window_start_ns=WINDOW, default_ns=default
    )
    return list(zip(starts.launch.tolist(), starts.follow.tolist(), starts.unexplained.tolist(), strict=True)), typical


def idle(latency, at=100_000):
    """A launch onto an idle device."""
    return (at + latency, -1, at, at - 2000, 1, 0)


def test_a_launch_onto_an_idle_device_shows_the_latency():
    gaps, typical = explained([idle(5000), idle(5000), idle(5000)])
    assert gaps == [(5000, 0, 0)] * 3
    assert (typical.launch_median, typical.launch_p95) == (5000, 5000)


def test_beyond_the_usual_latency_is_unexplained():
    gaps, typical = explained([*(idle(5000) for _ in range(99)), idle(50_000)])
    assert typical.launch_p95 == 5000
    assert gaps[-1] == (5000, 0, 45_000)


def test_queued_work_follows_the_work_before():
    queued = (201_000, 200_000, 120_000, 118_000, 1, 200_000)
    gaps, typical = explained([idle(5000), queued])
    assert gaps[1] == (5000, 1000, 0)
    assert typical.gap_median == 1000


def test_waiting_beside_a_neighbor_that_still_ran_is_no_gap_of_the_device():
    """A chain of overlapping kernels follows the last but one; host-bound kernels keep no kernel's length from it."""
    chain = [(200_000 + 50_000 * n, 150_900 + 50_000 * n, 100_000, 98_000, 1, 200_000, 50_000) for n in range(20)]
    late = (2_000_000, 1_900_000, 1_995_000, 1_993_000, 1, 1_900_000)
    gaps, typical = explained([*(idle(5000) for _ in range(20)), *chain, late])
    assert (typical.gap_median, typical.gap_p95) == (0, 0)
    assert gaps[20:40] == [(5000, 49_100, 0)] * 20
    assert gaps[40] == (5000, 0, 0)


def test_few_that_waited_for_something_are_not_typical():
    waited = (5_200_000, 200_000, 120_000, 118_000, 1, 200_000)
    queued = (201_000, 200_000, 120_000, 118_000, 1, 200_000)
    late = (2_000_000, 1_900_000, 1_995_000, 1_993_000, 1, 1_900_000)
    gaps, typical = explained([idle(5000), waited, waited, queued, late])
    assert typical.gap_median == 1000
    assert gaps[-1] == (5000, 1000, 0)
    gaps, typical = explained([*(idle(5000) for _ in range(20)), *(waited for _ in range(20)), late])
    assert typical.gap_median == typical.launch_p95 == 5000


def test_later_kernels_of_a_graph_only_follow():
    gaps, _ = explained([idle(5000), (131_000, 130_000, 100_000, 98_000, 0, 130_000)])
    assert gaps[1][0] == 0
    assert gaps[1][1] + gaps[1][2] == 1000


def test_without_launch_and_predecessor_the_window_is_left():
    gaps, _ = explained([(61_000, -1, -1, -1, 1, 0)])
    assert gaps == [(0, 0, 60_000)]


def test_nothing_to_explain():
    gaps, typical = explained([])
    assert gaps == []
    assert typical.launch_p95 == 10_000


@st.composite
def cases(draw):
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        follows = draw(st.one_of(st.just(-1), st.integers(WINDOW, 300_000)))
        launched = draw(st.one_of(st.just(-1), st.integers(WINDOW, 300_000)))
        start = max(follows, launched, WINDOW) + draw(st.integers(0, 60_000))
        call, first, busy = max(launched - 2000, -1), draw(st.integers(0, 1)), draw(st.integers(0, 300_000))
        rows.append((start, follows, launched, call, first, busy, draw(st.sampled_from([0, 0, 500, 40_000]))))
    return rows


@given(cases())
@settings(max_examples=300, deadline=None)
def test_gaps_add_up_to_the_recorded_start(rows):
    gaps, typical = explained(rows)
    for (start, follows, launched, _, first, _, _), (launch, follow, unexplained) in zip(rows, gaps, strict=True):
        assert min(launch, follow, unexplained) >= 0
        uses_launch = launched >= 0 and (first or follows < launched)
        ends = [launched + launch] * uses_launch + [follows + follow] * (follows >= 0)
        # The last gap comes after both sides.
        assert max(ends, default=WINDOW) + unexplained == start
        assert launch == 0 or uses_launch
        assert follow == 0 or follows >= 0
        # What only follows its launch has no longer latency than launches onto idle lanes show.
        assert launch <= typical.launch_p95 or follows >= launched
