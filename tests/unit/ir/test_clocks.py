"""Clock offsets from causality alone."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir import CommType, NodeType
from chakra_et.ir.clocks import estimate_offsets, offset_bounds

COLL, SEND, RECV = (int(NodeType[f"COMM_{name}_NODE"]) for name in ("COLL", "SEND", "RECV"))
SCHEMA = {"rank": pl.Int64, "meeting": pl.UInt32, "type": pl.UInt8, "comm_type": pl.Int64, "comm_root": pl.Int64,
          "ready_ns": pl.Int64, "start_ns": pl.Int64, "duration_ns": pl.Int64}  # fmt: skip


def table_of(*rows):
    """Communications of (rank, meeting, type, collective, root, start, end) rows."""
    table = [
        (rank, meeting, kind, None if coll is None else int(coll), root, start, start, end - start)
        for rank, meeting, kind, coll, root, start, end in rows
    ]
    return pl.DataFrame(table, schema=SCHEMA, orient="row")


def offsets_of(*rows):
    return estimate_offsets(table_of(*rows))


def bounds_of(*rows):
    return offset_bounds(table_of(*rows))


def reduced(*members):
    """All-reduces of (rank, meeting, start, end)."""
    return [(rank, meeting, COLL, CommType.ALL_REDUCE, None, start, end) for rank, meeting, start, end in members]


def test_clocks_that_fit_are_one():
    assert offsets_of(*reduced((0, 1, 0, 100), (1, 1, 60, 104))) == {0: 0, 1: 0}


def test_a_clock_that_is_ahead_is_set_back():
    rows = reduced((0, 1, 0, 100), (1, 1, 5060, 5100), (0, 2, 200, 250), (1, 2, 5190, 5250))
    assert offsets_of(*rows) == {0: 0, 1: -5000}


def test_the_estimate_stays_within_the_bounds():
    # Ends differ, but rank 1 may be set back by 4,900 at least and 5,090 at most.
    rows = reduced((0, 1, 0, 100), (1, 1, 5000, 5200))
    assert -5200 <= offsets_of(*rows)[1] <= -4900


def test_ranks_are_reached_over_others():
    rows = reduced((0, 1, 0, 10), (1, 1, 1000, 1010), (1, 2, 1100, 1110), (2, 2, 100, 110), (5, 9, 0, 1))
    assert offsets_of(*rows) == {0: 0, 1: -1000, 2: 0, 5: 0}


def test_a_receive_needs_its_send_but_no_send_its_receive():
    early_send = [(0, 1, SEND, None, None, 0, 10), (1, 1, RECV, None, None, 500, 510)]
    assert offsets_of(*early_send) == {0: 0, 1: 0}
    impossible = [(0, 1, SEND, None, None, 500, 510), (1, 1, RECV, None, None, 0, 10)]
    assert offsets_of(*impossible) == {0: 0, 1: 500}
    assert offsets_of(*[(1 - rank, *row) for rank, *row in impossible]) == {0: 0, 1: -500}


@pytest.mark.parametrize(
    ("kind", "root_early", "root_late"),
    [
        (CommType.BROADCAST, 0, 500),
        (CommType.SCATTER, 0, 500),
        (CommType.REDUCE, -500, 0),
        (CommType.GATHER, -500, 0),
        # Where both need each other, ends are taken as equal as the bounds allow.
        (CommType.ALL_REDUCE, -500, 500),
        (CommType.BARRIER, -500, 500),
    ],
)
def test_who_needs_whom(kind, root_early, root_late):
    """The root (rank 0) is done before the other begins, or the other way round."""
    root = 0 if kind in (CommType.BROADCAST, CommType.SCATTER, CommType.REDUCE, CommType.GATHER) else None
    early = offsets_of((0, 1, COLL, kind, root, 0, 10), (1, 1, COLL, kind, root, 500, 510))
    late = offsets_of((0, 1, COLL, kind, root, 500, 510), (1, 1, COLL, kind, root, 0, 10))
    assert (early[1], late[1]) == (root_early, root_late)


def test_an_unknown_root_bounds_nothing():
    rows = [(0, 1, COLL, CommType.BROADCAST, None, 0, 10), (1, 1, COLL, CommType.BROADCAST, None, 500, 510)]
    assert offsets_of(*rows) == {0: 0, 1: 0}


def test_untimed_communications_bound_nothing():
    table = pl.DataFrame(
        [(0, 1, COLL, 0, None, None, None, 0), (1, 1, COLL, 0, None, None, None, 0)], schema=SCHEMA, orient="row"
    )
    assert estimate_offsets(table) == {0: 0, 1: 0}


@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 500), min_size=5, max_size=5), min_size=1, max_size=6),
    st.integers(1, 300),
)
@settings(max_examples=100, deadline=None)
def test_estimates_obey_causality(clocks, arrivals, transfer):
    """Collectives that end together on a true clock, seen on shifted ones."""
    clocks = [0, *clocks]
    rows, now = [], 0
    for meeting, delays in enumerate(arrivals):
        starts = [now + delay for delay in delays[: len(clocks)]]
        now = max(starts) + transfer
        rows += reduced(
            *((rank, meeting, start + clocks[rank], now + clocks[rank]) for rank, start in enumerate(starts))
        )
    offsets = offsets_of(*rows)
    for rank in range(len(clocks)):
        # Causality leaves no more room than a transfer.
        assert offsets[rank] == 0 or abs(offsets[rank] + clocks[rank]) <= transfer * len(clocks)
        starts = {meeting: start + offsets[r] for r, meeting, *_, start, _ in rows if r == rank}
        assert all(starts[meeting] <= end + offsets[r] for r, meeting, *_, end in rows if r == 0)


def test_bounds_hold_the_offset_and_name_what_they_are_relative_to():
    rows = reduced((0, 1, 0, 100), (1, 1, 5060, 5100), (1, 2, 5200, 5300), (2, 2, 240, 300), (7, 3, 0, 1))
    rows += [(1, 4, SEND, None, None, 5400, 5410), (3, 4, RECV, None, None, 420, 430)]
    found = bounds_of(*rows)
    assert found.rows() == [
        (0, None, 0, None, None, 0),
        (1, 0, -5000, -5100, -4960, 1),
        (2, 1, 0, -100, 60, 1),
        (3, 1, -20, -30, None, 1),
        (7, None, 0, None, None, 0),
    ]
    assert dict(found.select("rank", "offset_ns").rows()) == offsets_of(*rows)
