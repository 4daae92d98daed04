"""Who comes late to communications, and why, worked out by hand."""

import pytest

from chakra_et.analysis.options import Options
from chakra_et.analysis.skew import skew
from chakra_et.errors import InputError
from chakra_et.ir import CommType, NodeType, ProcessGroup, TraceBuilder, TraceSet
from tests.unit.analysis.hand_made import Rank

EPOCH = 1_790_000_000_000_000_001
WHY = ("late_ns", "late_compute_ns", "late_host_ns", "late_before_ns")


def job(*ranks, origins=None):
    """Ranks of kernels (begin, end) and, after a None, all-reduces."""
    count = len(ranks)
    groups = (ProcessGroup("0", tuple(range(count)), count, "data parallel"),)
    traces = []
    for number, (kernels, communications) in enumerate(ranks):
        made = Rank(number, groups=groups, origin=(origins or [0] * count)[number])
        for begin, end in kernels:
            made.kernel("gemm", begin, end)
        for begin, end in communications:
            made.collective(CommType.ALL_REDUCE, begin, end, 64)
        traces.append(made.build())
    return TraceSet(tuple(traces))


def of_rank(source, rank, *columns, **options):
    return skew(source, options=Options(**options)).table.filter(rank=rank).select(columns).row(0)


def three():
    """Arrivals at 10, 20 and 50."""
    return job(([(0, 10)], [(10, 60)]), ([(0, 20)], [(20, 60)]), ([(0, 50)], [(50, 60)]))


def test_who_waits_for_whom():
    columns = ("rank", "count", "last_count", "last_share", "behind_mean_ns", "behind_max_ns", "waited_ns", "cost_ns")
    assert skew(three()).table.select(columns).rows() == [
        (0, 1, 0, 0.0, 0.0, 0, 40, 0),
        (1, 1, 0, 0.0, 10.0, 10, 30, 0),
        # Punctual, it would gain 30: then the rank at 20 is the last.
        (2, 1, 1, 1.0, 40.0, 40, 0, 30),
    ]


def test_each_meeting():
    result = skew(three())
    assert result.meetings.rows() == [(0, None, "0", "all_reduce", 3, 0, 40, 0, 2, 30, 50 / 60)]
    assert result.arrivals.rows() == [(0, 0, 0, 1), (0, 1, 10, 2), (0, 2, 40, 3)]


def test_slow_compute():
    """It computes 20 longer than the other."""
    assert of_rank(job(([(0, 10)], [(10, 40)]), ([(0, 30)], [(30, 40)])), 1, *WHY) == (20, 20, 0, 0)


def test_a_late_host():
    """It computes for as long, and then nothing happens for 20."""
    assert of_rank(job(([(0, 10)], [(10, 40)]), ([(0, 10)], [(30, 40)])), 1, *WHY) == (20, 0, 20, 0)


def test_a_slow_link():
    """It leaves the communication before 20 later, and then takes as long as the other."""
    source = job(([(0, 2), (10, 15)], [(2, 10), (15, 40)]), ([(0, 2), (30, 35)], [(2, 30), (35, 40)]))
    assert of_rank(source, 1, "last_count", "cost_ns", *WHY) == (1, 20, 20, 0, 0, 20)


def test_causes_may_make_up_for_each_other():
    """It leaves 20 later, computes 3 less, and its host takes 1 longer."""
    source = job(([(0, 2), (10, 15)], [(2, 10), (15, 40)]), ([(0, 2), (30, 32)], [(2, 30), (33, 40)]))
    assert of_rank(source, 1, *WHY) == (18, -3, 1, 20)


def test_causes_are_compared_with_the_mean_of_the_others():
    """Arrivals at 10, 21 and 50: 50 - 15.5, where a half is rounded, and the host takes what that leaves."""
    source = job(([(0, 10)], [(10, 60)]), ([(0, 21)], [(21, 60)]), ([(0, 40)], [(50, 60)]))
    late, compute, host, before = of_rank(source, 2, *WHY)
    assert (late, before) == (34, 0)
    assert compute in (24, 25)
    assert compute + host + before == late


def test_of_ties_the_lowest_rank_is_last():
    source = job(([(0, 30)], [(30, 40)]), ([(0, 10)], [(10, 40)]), ([(0, 30)], [(30, 40)]))
    result = skew(source)
    assert result.table.select("rank", "last_count", "cost_ns").rows() == [(0, 1, 0), (1, 0, 0), (2, 0, 0)]
    assert result.meetings.select("first_rank", "last_rank", "skew_ns").rows() == [(1, 0, 20)]


def test_the_part_of_the_step_in_which_it_is_late():
    spans = [(10, 12), (50, 52), (90, 100)]
    source = job(([(0, 10)], spans), ([(0, 10)], [(begin + 1, end) for begin, end in spans]))
    columns = ("last_in_begin", "last_in_middle", "last_in_end")
    assert of_rank(source, 1, *columns) == (1, 1, 1)
    assert of_rank(source, 0, *columns) == (0, 0, 0)


def test_parts_of_a_step_of_a_few_ns_at_times_since_1970():
    """Floating-point numbers of that size are 256 apart."""
    spans = [(10, 12), (50, 52), (90, 100)]
    source = job(([(0, 10)], spans), ([(0, 10)], [(begin + 1, end) for begin, end in spans]), origins=[EPOCH] * 2)
    assert skew(source).meetings["place"].to_list() == [0.11, 0.51, 0.91]


def test_rows_by_group_and_type():
    assert skew(three(), options=Options(by=("pg_name", "comm_type"))).table.select(
        "pg_name", "comm_type", "count", "last_count", "cost_ns"
    ).rows() == [("0", "all_reduce", 3, 1, 30)]
    assert skew(three(), options=Options(by=("iteration", "rank"))).table["iteration"].to_list() == [None] * 3
    with pytest.raises(InputError, match=r"^by: expected one or more of rank, iteration, pg_name, comm_type"):
        skew(three(), options=Options(by=("axis",)))


def test_clocks_within_their_bounds_are_taken_as_one():
    result = skew(three())
    assert result.clocks.select("rank", "offset_ns").rows() == [(0, 0), (1, 0), (2, 0)]
    # Nobody leaves before all have come: to rank 2's clock, 10 may be added, and 50 taken from it.
    assert result.clocks.filter(rank=2).select("low_ns", "high_ns", "meetings").rows() == [(-50, 10, 1)]
    assert any("leaves clock offsets open by up to 90 ns" in note for note in result.notes)


def test_clocks_that_are_off_are_shifted():
    """Rank 1's clock is 1,000,000 ahead: its arrival is told on the other's clock."""
    source = job(([(0, 10)], [(10, 40)]), ([(0, 30)], [(30, 40)]), origins=[EPOCH, EPOCH + 1_000_000])
    result = skew(source)
    assert result.clocks.select("rank", "reference", "offset_ns").rows() == [(0, None, 0), (1, 0, -1_000_000)]
    assert result.meetings.select("first_ns", "skew_ns", "last_rank", "cost_ns").rows() == [(0, 20, 1, 20)]
    assert of_rank(source, 1, *WHY) == (20, 20, 0, 0)
    assert result.notes[-2] == "rank 1: clocks were shifted by up to 1.000 ms, from causality"


def test_clocks_that_were_shifted_back_count_from_the_first_arrival():
    source = job(([(0, 10)], [(10, 40)]), ([(0, 30)], [(30, 40)]), origins=[EPOCH + 1_000_000, EPOCH])
    assert skew(source).meetings.select("first_ns", "skew_ns", "last_rank").rows() == [(0, 20, 1)]


def test_many_ranks_at_times_since_1970():
    """Sums of their times don't fit into 64 bits."""
    ranks = [([(0, 10 + rank)], [(10 + rank, 100)]) for rank in range(12)]
    plain, late = (skew(job(*ranks, origins=[origin] * 12)) for origin in (0, EPOCH))
    assert plain.table.equals(late.table)
    # 21 against the mean of 10..20
    assert plain.table.filter(rank=11).select(WHY).rows() == [(6, 6, 0, 0)]


def test_starts_that_are_rebuilt_from_edges():
    """As of a trace that was generated, or converted without times; one rank has nothing at all."""
    traces = []
    for number in range(3):
        builder = TraceBuilder(rank=number, process_groups=(ProcessGroup("0", (0, 1), 2),))
        work = builder.add("gemm", NodeType.COMP_NODE, duration_ns=10 + 5 * number)
        if number < 2:
            builder.add("ar", NodeType.COMM_COLL_NODE, duration_ns=20, comm_type=0, pg_name="0", sync_deps=[work])
        traces.append(builder.build())
    result = skew(TraceSet(tuple(traces)))
    assert result.meetings.select("ranks", "skew_ns", "last_rank").rows() == [(2, 5, 1)]
    assert result.table.filter(rank=1).select(WHY).rows() == [(5, 5, 0, 0)]


def test_a_communication_that_only_its_name_tells_meets_nobody():
    """And leaves the times of those that meet as they are."""
    traces = []
    for number in range(2):
        made = Rank(number, groups=(ProcessGroup("0", (0, 1), 2),), origin=EPOCH)
        made.kernel("multimem_all_reduce_kernel", 0, 5)
        made.kernel("gemm", 5, 10)
        made.collective(CommType.ALL_REDUCE, 10 + 7 * number, 40, 64)
        traces.append(made.build())
    result = skew(TraceSet(tuple(traces)))
    assert result.meetings.select("ranks", "skew_ns", "last_rank").rows() == [(2, 7, 1)]
    assert result.table.filter(rank=1).select(WHY).rows() == [(7, 0, 7, 0)]


def test_sends_meet_receives():
    traces = []
    for number, kind in enumerate((NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)):
        made = Rank(number)
        made.kernel("gemm", 0, 20 - 10 * number)
        made.message(kind, 20 - 10 * number, 30, 64, (0, 1))
        traces.append(made.build())
    result = skew(TraceSet(tuple(traces)))
    assert result.meetings.select("comm_type", "pg_name", "ranks", "first_rank", "last_rank", "cost_ns").rows() == [
        ("send", None, 2, 1, 0, 10)
    ]


def test_a_send_to_itself_is_no_meeting():
    made = Rank(0)
    made.message(NodeType.COMM_SEND_NODE, 0, 9, 64, (0, 0))
    made.message(NodeType.COMM_RECV_NODE, 2, 9, 64, (0, 0), stream=11)
    assert skew(made.build()).table.height == 0


def test_groups_of_one_name_do_not_meet():
    groups = [ProcessGroup("tp", (0, 1), 2), ProcessGroup("tp", (2, 3), 2)]
    traces = []
    for number in range(4):
        made = Rank(number, groups=(groups[number // 2],))
        made.collective(CommType.ALL_REDUCE, 10 * number, 60, 64, pg_name="tp")
        traces.append(made.build())
    result = skew(TraceSet(tuple(traces)))
    assert result.meetings.select("first_rank", "last_rank", "skew_ns").rows() == [(0, 1, 10), (2, 3, 10)]


def test_one_rank_alone_meets_nobody():
    result = skew(three().traces[0])
    assert (result.table.height, result.meetings.height, result.findings) == (0, 0, ())
    assert result.notes[-1] == (
        "no communication that two ranks of the set take part in: arrivals need several ranks, converted together"
    )


def test_findings_name_the_rank_its_cost_and_why():
    source = job(
        ([(0, 10), (40, 50)], [(10, 40), (50, 80)]),
        ([(0, 30), (40, 70)], [(30, 40), (70, 80)]),
    )
    result = skew(source)
    assert [(finding.text, finding.cost_ns) for finding in result.findings] == [
        (
            "rank 1 arrives last in 100.0 % of all_reduce of group 0; costs the others 40 ns in the profile at most; "
            "mostly its compute takes longer (100.0 %)",
            40,
        )
    ]


def test_the_plot_is_a_rank_by_communication_map():
    plot = skew(three()).plot()
    assert plot.data[0]["z"] == [[0.0], [10.0], [40.0]]
    assert plot.data[0]["y"] == ["rank 0", "rank 1", "rank 2"]
    assert skew(Rank().build()).plot().data[0]["z"] == []
