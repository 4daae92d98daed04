"""How much of the communication hides behind compute."""

import pytest

from chakra_et.analysis.breakdown import breakdown
from chakra_et.analysis.options import Options
from chakra_et.analysis.overlap import overlap
from chakra_et.errors import InputError
from chakra_et.ir import CommType, TraceSet
from tests.unit.analysis.hand_made import Rank
from tests.unit.analysis.test_breakdown import stepped_rank


def two_groups(rank: int = 0) -> Rank:
    """Group 0 at 0-10 (an all-reduce) and 8-14 (a broadcast), group 1 at 12-20; compute at 4-9 and 13-16."""
    made = Rank(rank)
    made.collective(CommType.ALL_REDUCE, 0, 10, 64)
    made.collective(CommType.BROADCAST, 8, 14, 64, stream=11)
    made.collective(CommType.ALL_REDUCE, 12, 20, 64, stream=12, pg_name="1")
    made.kernel("gemm", 4, 9)
    made.kernel("gemm", 13, 16)
    return made


def rows(source, *by):
    found = overlap(source, options=Options(by=by or None)).table
    return found.drop("overlap_share").rows()


def test_by_rank():
    table = overlap(two_groups().build()).table
    # 20 ns without a pause, of which 5 + 3 are hidden.
    assert table.rows() == [(0, None, 3, 20, 8, 12, 0.4)]


def test_groups_have_their_own_time():
    """They may add up to more than the total."""
    assert rows(two_groups().build(), "pg_name") == [("0", 2, 14, 6, 8), ("1", 1, 8, 3, 5)]
    assert rows(two_groups().build(), "pg_name", "comm_type") == [
        ("0", "all_reduce", 1, 10, 5, 5),
        ("0", "broadcast", 1, 6, 2, 4),
        ("1", "all_reduce", 1, 8, 3, 5),
    ]
    assert rows(two_groups().build(), "comm_type") == [("all_reduce", 2, 18, 8, 10), ("broadcast", 1, 6, 2, 4)]


def test_ranks_and_iterations_add_up():
    ranks = TraceSet((two_groups(0).build(), two_groups(1).build()))
    assert rows(ranks) == [(0, None, 3, 20, 8, 12), (1, None, 3, 20, 8, 12)]
    assert rows(ranks, "iteration") == [(None, 6, 40, 16, 24)]


def test_a_copy_hides_nothing():
    rank = Rank()
    rank.collective(CommType.ALL_REDUCE, 0, 10, 64)
    rank.copy(0, 10)
    assert overlap(rank.build()).table["overlap_share"].to_list() == [0.0]


def test_iterations_share_what_crosses_their_boundary():
    """The collective starts in the first one, and counts there."""
    table = overlap(stepped_rank().build(), options=Options(iteration="all")).table
    assert table.drop("overlap_share").rows() == [(0, 0, 1, 14, 14, 0), (0, 1, 0, 2, 2, 0)]
    table = overlap(stepped_rank().build(), options=Options(iteration="all", by=("rank",))).table
    assert table.drop("overlap_share").rows() == [(0, 1, 16, 16, 0)]


def test_it_agrees_with_the_breakdown():
    for trace in (two_groups().build(), stepped_rank().build()):
        for choice in ("all", "whole", None):
            options = Options(iteration=choice)
            columns = ("rank", "iteration", "communication_ns", "overlap_ns", "exposed_communication_ns")
            one, two = (kind(trace, options=options).table.select(columns) for kind in (overlap, breakdown))
            assert one.equals(two)


def test_a_rank_without_communication_has_no_row_and_no_share():
    """Rather than 0 or NaN: there is nothing that could hide."""
    rank = Rank()
    rank.kernel("gemm", 0, 10)
    result = overlap(rank.build())
    assert (result.table.height, result.findings) == (0, ())
    assert result.notes[-1] == "no communication in the chosen iterations"


def test_a_communication_of_no_length_has_no_share():
    rank = Rank()
    rank.kernel("gemm", 0, 10)
    rank.collective(CommType.BARRIER, 5, 5, 0)
    assert overlap(rank.build()).table.rows() == [(0, None, 1, 0, 0, 0, None)]


def test_the_finding_is_of_all_ranks():
    ranks = TraceSet((two_groups(0).build(), two_groups(1).build()))
    assert [finding.text for finding in overlap(ranks).findings] == [
        "compute hides 40.0 % of the communication; 12 ns of a rank's profile stay exposed"
    ]
    assert overlap(ranks, options=Options(by=("pg_name",))).findings == ()


def test_a_key_that_means_nothing():
    with pytest.raises(InputError, match=r"^by: expected one or more of rank, iteration, pg_name, comm_type, got 'pg'"):
        overlap(two_groups().build(), options=Options(by=("pg",)))


def test_the_plot_adds_up():
    plot = overlap(two_groups().build(), options=Options(by=("pg_name", "rank"))).plot()
    assert [(bar["name"], bar["x"]) for bar in plot.data] == [
        ("overlapped", [6.0, 3.0]),
        ("exposed communication", [8.0, 5.0]),
    ]
