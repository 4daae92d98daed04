"""Counts, bytes, times and bandwidths of communications, worked out by hand."""

import polars as pl
import pytest

from chakra_et.analysis.comms import comms
from chakra_et.analysis.meetings import size_class
from chakra_et.analysis.options import Options
from chakra_et.errors import InputError
from chakra_et.ir import CommType, NodeType, ProcessGroup, TraceSet
from chakra_et.specs import load_system
from tests.unit.analysis.hand_made import Rank

SEND, RECV = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE


def world(size, description="default_pg"):
    return (ProcessGroup("0", tuple(range(size)), size, description),)


def collectives(kind, size, *spans, ranks=None, **columns):
    """One collective, whose ranks take part in these spans; the last one to come waits for nobody."""
    traces = []
    latest = max(begin for begin, _ in spans)
    for rank, (begin, end) in zip(ranks or range(len(spans)), spans, strict=True):
        made = Rank(rank, groups=world(max(len(spans), *(ranks or [0])) if ranks else len(spans)))
        made.collective(kind, begin, end, size, wait_ns=latest - begin, transfer_ns=end - latest, **columns)
        traces.append(made.build())
    return TraceSet(tuple(traces))


def only(source, *columns, **options):
    found = comms(source, options=Options(**options)).table
    assert found.height == 1
    return found.select(columns).row(0)


@pytest.mark.parametrize(
    ("kind", "algorithm", "bus"),
    [
        # 4 ranks, 1,000 bytes, 50 ns from the last arrival on: 20 bytes/ns
        (CommType.ALL_REDUCE, 20e9, 30e9),
        (CommType.REDUCE_SCATTER, 20e9, 15e9),
        (CommType.ALL_TO_ALL, 20e9, 15e9),
        (CommType.BROADCAST, 20e9, 20e9),
        (CommType.REDUCE, 20e9, 20e9),
        (CommType.SCATTER, 20e9, 15e9),
        # each contributes 1,000 bytes: the whole has 4,000
        (CommType.ALL_GATHER, 80e9, 60e9),
        (CommType.GATHER, 80e9, 60e9),
    ],
)
def test_bandwidths(kind, algorithm, bus):
    source = collectives(kind, 1000, (0, 100), (50, 100), (20, 101), (30, 100))
    columns = ("comm_type", "count", "ranks", "group_size", "transfer_mean_ns", "algorithm_bytes_per_s",
               "bus_bytes_per_s", "bus_median_bytes_per_s", "bus_gib_per_s", "lower_bound")  # fmt: skip
    assert only(source, *columns) == (kind.name.lower(), 1, 4, 4, 50, algorithm, bus, bus, bus / 2**30, False)


def test_times_are_of_one_rank_on_average():
    """Of 100, 50, 80 and 70 ns, of which 50, 0, 30 and 20 are waits."""
    source = collectives(CommType.ALL_REDUCE, 1000, (0, 100), (50, 100), (20, 100), (30, 100))
    assert only(source, "size_bytes", "time_ns", "exposed_ns", "wait_ns") == (1000, 75, 75, 25)


def test_what_compute_hides():
    traces = []
    for rank in range(2):
        made = Rank(rank, groups=world(2))
        made.kernel("gemm", 0, 30)
        made.collective(CommType.ALL_REDUCE, 10, 50, 64)
        # On the same rank and of the same row: 40-60 overlaps the first one by 10.
        made.collective(CommType.ALL_REDUCE, 40, 60, 64, stream=11)
        made.kernel("gemm", 45, 55 + rank * 2)
        traces.append(made.build())
    # 10-60 is 50 ns; compute at 10-30 and 45-55 (57) leaves 20 (18).
    assert only(TraceSet(tuple(traces)), "count", "time_ns", "exposed_ns") == (2, 50, 19)


def test_means_are_of_ratios():
    """Two of 1,000 bytes in 10 and 40 ns: 100 and 25 bytes/ns; and the median of three."""
    made = Rank(groups=world(1))
    for begin, end in ((0, 10), (20, 60), (70, 90)):
        made.collective(CommType.BROADCAST, begin, end, 1000)
    columns = ("algorithm_bytes_per_s", "bus_median_bytes_per_s", "transfer_mean_ns", "transfer_median_ns")
    rate, median, mean, middle = only(made.build(), *columns)
    assert rate == pytest.approx((100 + 25 + 50) / 3 * 1e9)
    assert (median, mean, middle) == (50e9, pytest.approx(70 / 3), 20)


def test_a_participant_is_missing():
    """One rank of four: its time holds waits, so that the bandwidth is a lower bound."""
    made = Rank(groups=world(4))
    made.collective(CommType.ALL_REDUCE, 0, 100, 1000)
    result = comms(made.build())
    columns = ("group_size", "ranks", "algorithm_bytes_per_s", "bus_bytes_per_s", "wait_ns", "lower_bound")
    assert result.table.select(columns).rows() == [(4, 1, 10e9, 15e9, None, True)]
    note = "1 communication of 1 lack a participant: their times may hold waits, and bandwidths are lower bounds; "
    assert note + "convert all ranks together" in result.notes


def test_an_unknown_group():
    """Without its size there is no correction: the algorithm bandwidth is all that is known."""
    made = Rank()
    made.collective(CommType.ALL_REDUCE, 0, 100, 1000, pg_name="strange")
    columns = ("axis", "group_size", "algorithm_bytes_per_s", "bus_bytes_per_s", "lower_bound")
    assert only(made.build(), *columns) == (None, None, 10e9, None, True)


def test_an_all_gather_of_an_unknown_group_has_its_own_bytes():
    made = Rank()
    made.collective(CommType.ALL_GATHER, 0, 100, 1000, pg_name="strange")
    assert only(made.build(), "size_bytes", "algorithm_bytes_per_s") == (1000, 10e9)


def test_no_size_and_no_time():
    """Nothing is divided by nothing: null, and a note that says why."""
    made = Rank(groups=world(1))
    made.collective(CommType.ALL_REDUCE, 0, 100)
    made.collective(CommType.BARRIER, 100, 110, 0)
    made.collective(CommType.BROADCAST, 120, 120, 64)
    result = comms(made.build())
    rows = result.table.select("comm_type", "size_class_bytes", "size_bytes", "bus_bytes_per_s").sort("comm_type")
    assert rows.rows() == [("all_reduce", None, None, None), ("barrier", 0, 0, None), ("broadcast", 64, 64, None)]
    assert "1 communication of 3 have no known size: no bandwidth" in result.notes
    assert "1 communication took no time that can be measured: no bandwidth" in result.notes


def message(send, receive, size=1000):
    """A send of rank 0 and its receive on rank 1: spans."""
    made = [Rank(0, groups=world(2)), Rank(1, groups=world(2))]
    last = max(send[0], receive[0])
    for rank, kind, (begin, end) in zip(made, (SEND, RECV), (send, receive), strict=True):
        rank.message(kind, begin, end, size, (0, 1), wait_ns=max(last - begin, 0), transfer_ns=max(end - last, 0))
    return TraceSet(tuple(rank.build() for rank in made))


def test_a_message_takes_what_its_receiver_takes_after_both_have_come():
    source = message((0, 5), (2, 42))
    columns = ("comm_type", "pg_name", "count", "ranks", "group_size", "size_bytes", "transfer_mean_ns",
               "bus_bytes_per_s", "lower_bound")  # fmt: skip
    assert only(source, *columns) == ("send", None, 1, 2, 2, 1000, 40, 25e9, False)


def test_an_end_of_a_message_is_missing():
    source = message((0, 5), (2, 42)).traces[0]
    assert only(source, "comm_type", "ranks", "group_size", "transfer_mean_ns", "lower_bound") == (
        "send",
        1,
        2,
        5,
        True,
    )


def test_a_receive_that_was_over_before_its_send():
    """Such clocks tell no bandwidth."""
    result = comms(message((50, 60), (2, 42)))
    assert result.table.select("count", "transfer_mean_ns", "bus_bytes_per_s").rows() == [(1, None, None)]


def test_communications_that_only_names_tell():
    made = Rank(groups=world(2))
    made.kernel("multimem_all_reduce_kernel", 0, 10)
    made.kernel("multimem_all_reduce_kernel", 20, 25)
    result = comms(made.build())
    columns = ("pg_name", "comm_type", "count", "time_ns", "size_bytes", "bus_bytes_per_s", "lower_bound")
    assert result.table.select(columns).rows() == [(None, "unknown", 2, 15, None, None, True)]
    assert "2 communications of 2 have no known size: no bandwidth" in result.notes


def sized(*sizes):
    made = Rank(groups=world(1))
    for place, size in enumerate(sizes):
        made.collective(CommType.ALL_REDUCE, 10 * place, 10 * place + 5, size, comm_dtype="float" if size else "half")
    return made.build()


def test_the_histogram_of_sizes():
    result = comms(sized(0, 1, 1023, 1024, 1500, None))
    assert result.sizes.rows() == [
        ("all_reduce", None, 1, None),
        ("all_reduce", 0, 1, 0),
        ("all_reduce", 1, 1, 1),
        ("all_reduce", 512, 1, 1023),
        ("all_reduce", 1024, 2, 2524),
    ]


def test_size_classes_of_large_sizes():
    sizes = pl.Series([2**62, 2**53 + 1, 2**53 - 1])
    assert size_class(sizes).to_list() == [2**62, 2**53, 2**52]


def test_keys():
    source = collectives(CommType.ALL_REDUCE, 1000, (0, 100), (50, 100), comm_dtype="float")

    def rows(*by, **options):
        return comms(source, options=Options(by=by, **options)).table.drop(
            "size_bytes", "exposed_ns", "transfer_mean_ns", "transfer_median_ns", "algorithm_bytes_per_s",
            "bus_bytes_per_s", "bus_median_bytes_per_s", "bus_gib_per_s", "lower_bound", "link_share",
        ).rows()  # fmt: skip

    assert rows("rank") == [(0, 1, 1, 2, 100, 50), (1, 1, 1, 2, 50, 0)]
    assert rows("rank", "comm_type") == [(0, "all_reduce", 1, 1, 2, 100, 50), (1, "all_reduce", 1, 1, 2, 50, 0)]
    assert rows("iteration", "comm_dtype") == [(None, "float", 1, 2, 2, 75, 25)]
    assert rows("rank", "comm_dtype", "size_class_bytes")[0] == (0, "float", 512, 1, 1, 2, 100, 50)
    assert rows("axis", "scope") == [("world", None, 1, 2, 2, 75, 25)]
    assert rows("scope", ranks_per_server=1) == [("inter", 1, 2, 2, 75, 25)]
    assert rows("scope", ranks_per_server=2) == [("intra", 1, 2, 2, 75, 25)]
    with pytest.raises(InputError, match=r"^by: expected one or more of rank, iteration, pg_name, axis, scope"):
        rows("type")


def test_groups_of_one_name_on_different_ranks():
    """Two tensor-parallel groups named alike: each has its own meetings, and a row stands for both."""
    groups = [ProcessGroup("tp", (0, 1), 2, "mesh_tp"), ProcessGroup("tp", (2, 3), 2, "mesh_tp")]
    traces = []
    for rank in range(4):
        made = Rank(rank, groups=(groups[rank // 2],))
        made.collective(CommType.ALL_REDUCE, 10 * rank, 60, 1000, pg_name="tp", comm_seq=0)
        traces.append(made.build())
    columns = ("pg_name", "axis", "count", "ranks", "group_size", "size_bytes", "transfer_mean_ns")
    # The last arrivals are at 10 and at 30.
    assert only(TraceSet(tuple(traces)), *columns) == ("tp", "tp", 2, 4, 2, 2000, 40)


def test_share_of_a_links_peak():
    """An H100 server's NVLink: 450 GB/s a direction; between servers, 50."""
    source = collectives(CommType.ALL_REDUCE, 4_500_000, (0, 10_000), (0, 10_000))
    system = load_system("h100-dgx")
    near, far = (float(dimension.bandwidth_bytes_per_s) for dimension in (system.dimensions[0], system.dimensions[-1]))
    assert only(source, "bus_bytes_per_s", "link_share") == (450e9, None)
    assert only(source, "link_share", system=system) == (pytest.approx(450e9 / near),)
    assert only(source, "link_share", system=system, ranks_per_server=1) == (pytest.approx(450e9 / far),)


def exchanged(parts, *, size=4, listed=True):
    """An all-to-all whose rank r sends parts[r][k] elements to rank k."""
    count = len(parts)
    traces = []
    for rank, sent in enumerate(parts):
        received = [row[rank] for row in parts]
        made = Rank(rank, groups=world(count))
        splits = {"in_split_sizes": str(sent), "out_split_sizes": str(received)} if listed else {}
        made.collective(CommType.ALL_TO_ALL, 0, 10, sum(sent) * size, comm_seq=0, **splits)
        traces.append(made.build())
    return TraceSet(tuple(traces))


def test_uneven_exchanges():
    result = comms(exchanged([[1, 5], [2, 6]]))
    # Rank 0 gets 3 elements, rank 1 gets 11.
    assert result.imbalance.rows() == [(0, "0", 1, 24, 12, 3 / 7), (1, "0", 1, 32, 44, 11 / 7)]
    assert [finding.text for finding in result.findings] == [
        "rank 1 receives 1.57 times the mean in uneven all-to-alls of group 0"
    ]


def test_a_rank_that_sends_nothing_still_receives():
    result = comms(exchanged([[0, 0], [3, 5]]))
    assert result.imbalance.rows() == [(0, "0", 1, 0, 12, 0.75), (1, "0", 1, 32, 20, 1.25)]


def test_even_exchanges_are_not_uneven():
    assert comms(exchanged([[4, 4], [4, 4]])).imbalance.height == 0
    assert comms(exchanged([[4, 4], [4, 4]], listed=False)).imbalance.height == 0


@pytest.mark.parametrize("text", ["[]", "nonsense", "{}", '["a"]', "[1.5]"])
def test_splits_that_tell_nothing(text):
    """Who receives how much isn't known then; what is sent is."""
    made = Rank(groups=world(2))
    made.collective(CommType.ALL_TO_ALL, 0, 10, 32, in_split_sizes="[3, 5]", out_split_sizes=text)
    made.collective(CommType.ALL_TO_ALL, 10, 20, 32, in_split_sizes=text)
    assert comms(made.build()).imbalance.rows() == [(0, "0", 1, 32, None, None)]


def test_waiting_is_worth_a_finding():
    source = collectives(CommType.ALL_REDUCE, 1000, (0, 100), (50, 100), (20, 100), (30, 100))
    assert [finding.text for finding in comms(source).findings] == [
        "33.3 % of the time in all_reduce of group 0 of 512 B and more is waiting for the last rank to come"
    ]
    assert comms(source).findings[0].cost_ns == 25


def test_what_any_rank_starts_in_an_iteration_is_chosen_for_all():
    """A meeting belongs to the earliest iteration in which one of its ranks starts it, whole."""
    traces = []
    for rank, begins in enumerate(((12, 22), (8, 22))):
        made = Rank(rank, groups=world(2))
        for number in range(3):
            made.step(number, 10 * number, 10 * number + 10)
            made.call(number, 10 * number + 1, 10 * number + 2)
            made.kernel("gemm", 10 * number + 3, 10 * number + 5, correlation=number)
        for place, begin in enumerate(begins):
            made.call(3 + place, 10 * place + 2, 10 * place + 3)
            made.collective(CommType.ALL_REDUCE, begin, begin + 3, 64, correlation=3 + place)
        traces.append(made.build())
    source = TraceSet(tuple(traces))
    # Stretches begin at 3, 13 and 23: rank 0 starts its first at 12, rank 1 at 8; both the second at 22.
    assert comms(source, options=Options(iteration=0)).table["count"].to_list() == [1]
    rows = comms(source, options=Options(iteration="all", by=("iteration",))).table
    assert rows.select("iteration", "count", "ranks").sort("iteration").rows() == [(0, 1, 2), (1, 1, 2)]


def test_nothing_to_tell():
    result = comms(Rank().build())
    assert (result.table.height, result.sizes.height, result.imbalance.height) == (0, 0, 0)
    assert result.notes[-1] == "no communication in the chosen iterations"
    assert result.plot().data[0]["x"] == []


def test_the_plot_names_rows():
    plot = comms(collectives(CommType.ALL_REDUCE, 1000, (0, 100), (50, 100))).plot()
    assert plot.data[0]["y"] == ["all_reduce of group 0 (world) 512 B+"]
    assert plot.data[0]["x"] == [pytest.approx(20.0)]
