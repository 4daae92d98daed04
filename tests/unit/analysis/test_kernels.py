"""Time by kernel."""

import polars as pl
import pytest

from chakra_et.analysis.kernels import kernels
from chakra_et.analysis.options import Options
from chakra_et.errors import InputError
from chakra_et.ir import CommType, TraceSet
from tests.unit.analysis.hand_made import Rank, stepped


def rank_of(*durations, name="sgemm", rank=0):
    made = Rank(rank)
    op = made.op("aten::mm", 0, 1)
    begin = 10
    for duration in durations:
        made.kernel(name, begin, begin + duration, parent=op)
        begin += 100
    return made


def test_counts_and_times():
    made = rank_of(4, 1, 7, 2, 6)
    made.kernel("qqq", 600, 630)
    made.copy(700, 705)
    made.collective(CommType.ALL_REDUCE, 800, 805, 64)
    table = kernels(made.build()).table.with_columns(pl.col("category").cast(pl.String), pl.col("share").round(6))
    assert table.rows() == [
        ("qqq", "other", "compute", 1, 30, 0.5, 30.0, 30, 30, 30, 30, 30, None),
        ("sgemm", "gemm", "compute", 5, 20, 0.333333, 4.0, 1, 4, 7, 7, 7, "aten::mm"),
        ("Memcpy HtoD", "copy", "memory", 1, 5, 0.083333, 5.0, 5, 5, 5, 5, 5, None),
        ("ncclDevKernel_ALL_REDUCE", "communication", "communication", 1, 5, 0.083333, 5.0, 5, 5, 5, 5, 5, None),
    ]


def test_kernels_that_run_at_once_count_each():
    made = Rank()
    made.kernel("sgemm", 0, 10)
    made.kernel("sgemm", 0, 10, stream=8)
    assert kernels(made.build()).table["total_ns"].to_list() == [20]


def test_one_stream_number_on_two_devices_is_two_streams():
    made = Rank()
    made.kernel("sgemm", 0, 10, device=0)
    made.kernel("sgemm", 0, 30, device=1)
    found = kernels(made.build(), options=Options(by=("device", "stream"))).table
    assert found.select("device", "stream", "total_ns").rows() == [(1, 7, 30), (0, 7, 10)]


def test_classes():
    made = rank_of(4, 6)
    made.kernel("sgemm_2", 600, 630)
    made.copy(700, 705)
    kinds = kernels(made.build()).kinds.with_columns(pl.col("category").cast(pl.String))
    assert kinds.select("category", "kind", "count", "total_ns").rows() == [
        ("compute", "gemm", 3, 40),
        ("memory", "copy", 1, 5),
    ]
    assert kinds["share"].sum() == pytest.approx(1)


def test_ranks_are_joined_unless_asked():
    source = TraceSet((rank_of(4, 1).build(), rank_of(10, rank=1).build()))
    assert kernels(source).table.select("name", "count", "total_ns", "p50_ns", "max_ns").rows() == [
        ("sgemm", 3, 15, 4, 10)
    ]
    found = kernels(source, options=Options(by=("rank", "stream"))).table
    assert found.select("rank", "stream", "count", "total_ns").rows() == [(1, 7, 1, 10), (0, 7, 2, 5)]


def test_iterations():
    """An activity counts where it starts, whole."""
    trace = stepped((0, 10), (10, 20), (20, 30), kernels=((1, 5, 9), (2, 12, 30), (12, 15, 28), (21, 30, 35)))
    found = kernels(trace, options=Options(iteration="all", by=("iteration",))).table
    assert found.select("iteration", "count", "total_ns").sort("iteration").rows() == [
        (0, 2, 22),
        (1, 1, 13),
        (2, 1, 5),
    ]
    assert kernels(trace).table["total_ns"].to_list() == [13]
    assert kernels(trace, options=Options(iteration=(0, 2))).table["count"].to_list() == [3]


def test_launching_operators():
    """The three most frequent ones, of equal ones the first by name."""
    made = Rank()
    for place, name in enumerate(("d", "d", "c", "b", "a", "a", "a")):
        op = made.op(name, 10 * place, 10 * place + 1)
        made.kernel("sgemm", 10 * place + 2, 10 * place + 5, parent=op)
    made.kernel("sgemm", 200, 203)
    assert kernels(made.build()).table["ops"].to_list() == ["a, d, b"]
    by_op = kernels(made.build(), options=Options(by=("op",))).table
    assert by_op.select("op", "count", "ops").sort("op", nulls_last=True).rows() == [
        ("a", 3, "a"), ("b", 1, "b"), ("c", 1, "c"), ("d", 2, "d"), (None, 1, None),
    ]  # fmt: skip


def test_percentiles_are_values_that_occur():
    table = kernels(rank_of(*range(1, 101)).build()).table
    assert table.select("p50_ns", "p90_ns", "p99_ns", "max_ns").row(0) == (51, 90, 99, 100)


def test_kernels_of_no_length():
    table = kernels(rank_of(0, 0).build()).table
    assert table.select("count", "total_ns", "share", "mean_ns").rows() == [(2, 0, None, 0.0)]


def test_findings():
    made = rank_of(50, 40)
    made.kernel("qqq", 600, 610)
    assert [(finding.text, finding.cost_ns) for finding in kernels(made.build()).findings] == [
        ("sgemm takes 90.0 % of the device time, 90 ns of a rank's profile in 2 calls", 90),
        ("10.0 % of the device time is in kernels of no known class: a file of classes can name them", 0),
    ]


def test_a_long_name_is_cut_in_findings_only():
    name = "void gemm_kernel<" + "T, " * 50 + ">"
    result = kernels(rank_of(5, name=name).build())
    assert result.table["name"].to_list() == [name]
    assert result.findings[0].text.startswith("gemm_kernel takes 100.0 %")


def test_without_a_device_there_are_no_kernels_to_name():
    made = Rank()
    made.op("aten::mm", 0, 6)
    made.op("my::op", 6, 12)
    result = kernels(made.build())
    assert result.table.select("name", "category", "ops").rows() == [
        ("aten::mm", "compute", "aten::mm"), ("my::op", "compute", "my::op"),
    ]  # fmt: skip
    assert [finding.text for finding in result.findings] == [
        "aten::mm takes 50.0 % of the host's time, 6 ns of a rank's profile in 1 call"
    ]


def test_a_key_that_means_nothing():
    with pytest.raises(InputError, match=r"^by: expected one or more of rank, iteration, device, stream, category"):
        kernels(rank_of(5).build(), options=Options(by=("shapes",)))


def test_nothing_at_all():
    result = kernels(Rank().build())
    assert (result.table.height, result.kinds.height, result.findings) == (0, 0, ())
    assert result.notes[-1] == "no activity in the chosen iterations"


def test_the_plot_has_a_bar_a_class():
    made = rank_of(50, 40)
    made.copy(700, 705)
    plot = kernels(made.build()).plot()
    assert (plot.data[0]["y"], plot.data[0]["x"]) == (["gemm", "copy"], [90.0, 5.0])
