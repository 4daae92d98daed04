"""Where a device's time goes, worked out by hand."""

import polars as pl
import pytest

from chakra_et.analysis.breakdown import IDLE, breakdown
from chakra_et.analysis.options import Options
from chakra_et.analysis.run import Source
from chakra_et.errors import InputError
from chakra_et.ir import CommType, TraceSet
from tests.unit.analysis.hand_made import COMMUNICATION, Rank, stepped

PARTS = ("compute_ns", "exposed_communication_ns", "memory_ns", "idle_ns")


def row(source: Source, **options: object) -> dict[str, int]:
    """The only row, without what is zero."""
    found = breakdown(source, options=Options(**options)).table  # type: ignore[arg-type]
    check_sums(found)
    assert found.height == 1
    return {name.removesuffix("_ns"): value for name, value in found.row(0, named=True).items() if value}


def check_sums(table: pl.DataFrame) -> None:
    """The parts add up: to the ns."""
    sums = table.select(
        (pl.sum_horizontal(PARTS) == pl.col("span_ns")).all(),
        (pl.col("exposed_communication_ns") + pl.col("overlap_ns") == pl.col("communication_ns")).all().alias("b"),
        (pl.sum_horizontal(IDLE) == pl.col("idle_ns")).all().alias("c"),
        (pl.col("span_ns") - pl.col("busy_ns") == pl.col("idle_ns")).all().alias("d"),
        (pl.col("busy_ns") >= pl.max_horizontal("compute_ns", "communication_ns", "memory_ns")).all().alias("e"),
    )
    assert sums.row(0) == (True,) * 5


def one_of_each() -> Rank:
    """Compute 0-10 and 30-34, communication 6-16, copy 18-22, set 21-23 and 31-33.

    The copy waits for the communication; the kernel at 30 for its launch, that ends at 27.
    """
    rank = Rank()
    rank.kernel("gemm", 0, 10)
    communication = rank.collective(CommType.ALL_REDUCE, 6, 16, 64)
    latency = rank.gap("launch_latency", 16, 18, sync_deps=[communication])
    copy = rank.copy(18, 22, sync_deps=[latency])
    rank.kernel("Memset", 21, 23, stream=8, copy_kind="memset")
    launch = rank.call(5, 19, 27)
    latency = rank.gap("launch_latency", 27, 30, ctrl_deps=[launch])
    rank.kernel("gemm", 30, 34, correlation=5, sync_deps=[latency, copy])
    rank.kernel("Memset", 31, 33, stream=8, copy_kind="memset")
    return rank


def test_all_parts():
    assert row(one_of_each().build()) == {
        "iterations": 1,
        "span": 34,
        "busy": 25,
        "compute": 14,
        "communication": 10,
        "exposed_communication": 6,
        "overlap": 4,
        "memory": 5,
        "covered_memory": 2,
        "idle": 9,
        "idle_communication": 2,
        "idle_host_bound": 4,
        "idle_launch_latency": 3,
    }


def test_a_copy_beside_a_communication_does_not_hide_it():
    rank = Rank()
    rank.collective(CommType.ALL_REDUCE, 0, 10, 64)
    rank.copy(2, 6)
    assert row(rank.build()) == {
        "iterations": 1, "span": 10, "busy": 10, "communication": 10, "exposed_communication": 10, "covered_memory": 4,
    }  # fmt: skip


def test_waiting_for_another_stream():
    rank = Rank()
    other = rank.kernel("gemm", 0, 10, stream=8)
    latency = rank.gap("launch_latency", 10, 13, sync_deps=[other])
    rank.kernel("add", 13, 15, sync_deps=[latency])
    assert row(rank.build())["idle_other_stream"] == 3


def test_what_no_edge_explains():
    rank = Rank()
    first = rank.kernel("gemm", 0, 10)
    gap = rank.gap("unexplained", 10, 13, sync_deps=[first])
    rank.kernel("add", 13, 15, sync_deps=[gap])
    rank.kernel("no edges", 20, 22)
    assert row(rank.build())["idle_unexplained"] == 3 + 5


def test_the_host_sleeps():
    """A pause of the host is the host's: it came late."""
    rank = Rank()
    first = rank.kernel("gemm", 0, 10)
    pause = rank.gap("host_idle", 4, 16, is_cpu_op=True, tid=1)
    launch = rank.call(2, 16, 18, ctrl_deps=[pause])
    rank.kernel("add", 18, 20, correlation=2, ctrl_deps=[launch], sync_deps=[first])
    assert row(rank.build())["idle_host_bound"] == 8


def test_the_host_waits_for_the_device_and_then_launches():
    """The device is busy while the host waits for it; only what the host does after that is lost."""
    rank = Rank()
    first = rank.kernel("gemm", 0, 10)
    wait = rank.op("cudaStreamSynchronize", 10, 12, sync_deps=[first])
    launch = rank.call(2, 12, 15, ctrl_deps=[wait])
    rank.kernel("add", 15, 20, correlation=2, ctrl_deps=[launch])
    assert row(rank.build())["idle_host_bound"] == 5


def stepped_rank() -> Rank:
    """Two steps whose stretches meet at 20; a kernel (until 24) and a collective (until 22) cross over."""
    rank = Rank()
    rank.step(0, 0, 10)
    rank.step(1, 10, 20)
    for number, begin in ((1, 1), (2, 2), (3, 11), (4, 12)):
        rank.call(number, begin, begin + 1)
    rank.kernel("gemm", 4, 24, correlation=1)
    rank.collective(CommType.ALL_REDUCE, 6, 22, 64, correlation=2)
    rank.kernel("gemm", 20, 21, stream=8, correlation=3)
    rank.kernel("gemm", 30, 33, correlation=4)
    return rank


def test_stretches_share_what_crosses_their_boundary():
    table = breakdown(stepped_rank().build(), options=Options(iteration="all")).table
    check_sums(table)
    columns = ("iteration", "span_ns", "compute_ns", "communication_ns", "overlap_ns", "idle_ns")
    assert table.select(columns).rows() == [(0, 16, 16, 14, 14, 0), (1, 13, 7, 2, 2, 6)]


def test_rows_may_be_joined():
    trace = stepped_rank().build()
    whole = breakdown(trace, options=Options(iteration="whole")).table.drop("rank", "iteration", "iterations")
    by_rank = breakdown(trace, options=Options(iteration="all", by=("rank",))).table
    assert by_rank["iterations"].to_list() == [2]
    # Stretches that meet cover the whole profile.
    assert by_rank.drop("rank", "iterations").equals(whole)
    assert breakdown(trace, options=Options(iteration="all", by=("iteration",))).table.columns[0] == "iteration"


@pytest.mark.parametrize("by", [("pg_name",), ("rank", "name"), ()])
def test_keys_that_mean_nothing(by):
    with pytest.raises(InputError, match=r"^by: expected one or more of rank, iteration, got"):
        breakdown(one_of_each().build(), options=Options(by=by))


def test_first_and_last_iterations_are_left_out():
    trace = stepped((0, 10), (10, 20), (20, 30), kernels=((1, 5, 9), (12, 15, 28), (21, 30, 35)))
    assert breakdown(trace).table.select("iteration", "span_ns", "compute_ns").rows() == [(1, 15, 13)]
    result = breakdown(trace, options=Options(iteration=2))
    assert result.table.select("iteration", "span_ns").rows() == [(2, 5)]
    assert result.parameters["iteration"] == 2


def test_idle_stretches_before_later_iterations_know_what_ran_before():
    """An activity that covers the begin of a later stretch keeps the device busy there."""
    trace = stepped((0, 10), (10, 20), (20, 30), kernels=((1, 5, 9), (2, 9, 40), (12, 15, 16), (21, 30, 31)))
    table = breakdown(trace, options=Options(iteration="all")).table
    assert table.select("span_ns", "idle_ns").rows() == [(10, 0), (15, 0), (1, 0)]


def test_a_shift_of_the_clock_changes_nothing():
    kernels = ((1, 5, 9), (12, 15, 28), (21, 30, 35))
    plain, shifted = (
        breakdown(stepped((0, 10), (10, 20), kernels=kernels, origin=origin)).table
        for origin in (0, 1_790_000_000_000_000_001)
    )
    assert plain.equals(shifted)


def test_without_a_device_the_hosts_work_is_divided():
    rank = Rank()
    rank.op("aten::mm", 0, 6)
    rank.collective(CommType.ALL_REDUCE, 4, 9, 64, is_cpu_op=True, tid=2)
    pause = rank.gap("host_idle", 9, 15, is_cpu_op=True, tid=1)
    rank.op("aten::mm", 15, 20, ctrl_deps=[pause])
    trace = rank.build()
    assert row(trace) == {
        "iterations": 1, "span": 20, "busy": 14, "compute": 11, "communication": 5, "exposed_communication": 3,
        "overlap": 2, "idle": 6, "idle_host_bound": 6,
    }  # fmt: skip
    result = breakdown(trace)
    assert result.notes[-1] == "no rank has device activities, so the host's operators are taken for them"
    assert [finding.text for finding in result.findings] == [
        "the host is idle between operators: 30.0 % of the time, 6 ns of a rank's profile at most",
        "communication that no operator hides: 15.0 % of the time, 3 ns of a rank's profile at most",
    ]


def test_gaps_of_each_stream():
    """On stream 7: a gap of 8 whose launch came late, one of 40,000 and one of 2 whose launches came before."""
    rank = Rank()
    for number, begin in ((1, 0), (2, 12), (3, 13), (4, 14), (5, 1)):
        rank.call(number, begin, begin + 1)
    rank.kernel("a", 2, 10, correlation=1)
    rank.kernel("b", 18, 30, correlation=2)
    rank.kernel("c", 40_030, 40_040, correlation=3)
    rank.kernel("d", 40_035, 40_050, correlation=3)
    rank.kernel("e", 40_052, 40_060, correlation=4)
    rank.kernel("other stream", 20, 25, correlation=5, stream=COMMUNICATION)
    rank.kernel("without a launch", 50, 55, stream=COMMUNICATION)
    streams = breakdown(rank.build()).streams
    assert streams.drop("rank", "iteration", "device").sort("stream").rows() == [
        (7, 5, 8 + 12 + 20 + 8, 8, 2, 40_000),
        (COMMUNICATION, 2, 10, 0, 25, 0),
    ]


def test_streams_of_two_devices_are_told_apart():
    rank = Rank()
    rank.kernel("a", 0, 10)
    rank.kernel("b", 4, 14, device=1)
    streams = breakdown(rank.build()).streams
    assert streams.select("device", "stream", "busy_ns").rows() == [(0, 7, 10), (1, 7, 10)]


def test_findings_tell_what_costs_most():
    found = breakdown(one_of_each().build()).findings
    assert [finding.text for finding in found] == [
        "communication that no compute hides: 17.6 % of the time, 6 ns of a rank's profile at most",
        "copies and sets that nothing hides: 14.7 % of the time, 5 ns of a rank's profile at most",
        "the device waits for the host to launch (host-bound): 11.8 % of the time, 4 ns of a rank's profile at most",
        "launch latency: 8.8 % of the time, 3 ns of a rank's profile at most",
        "the device idles for a communication: 5.9 % of the time, 2 ns of a rank's profile at most",
    ]
    assert [finding.cost_ns for finding in found] == [6, 5, 4, 3, 2]


def test_the_plot_shows_all_parts_of_a_mean_iteration():
    plot = breakdown(stepped_rank().build(), options=Options(iteration="all")).plot()
    assert sum(bar["x"][0] for bar in plot.data) == pytest.approx((16 + 13) / 2)
    assert {bar["name"] for bar in plot.data} == {"compute", "overlapped", "idle: unexplained"}


def test_nothing_at_all():
    result = breakdown(TraceSet((Rank(0).build(), Rank(1).build())))
    assert (result.table.height, result.streams.height, result.findings) == (0, 0, ())
    assert result.plot().data == ()
