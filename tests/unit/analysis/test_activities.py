"""The activities of a rank, and the calls that launched them."""

import polars as pl

from chakra_et.analysis.activities import (
    find_activities,
    has_device,
    launches_of,
    recorded_starts,
)
from chakra_et.ir import CommType, NodeType, TraceBuilder
from chakra_et.ir.call_stack import parent_rows
from chakra_et.specs import load_kernel_classes
from tests.unit.analysis.hand_made import Rank

CLASSES = load_kernel_classes()
COMP = NodeType.COMP_NODE


def activities(trace):
    return find_activities(trace, recorded_starts(trace)[0], CLASSES)


def kinds(trace):
    return activities(trace).select("name", pl.col("category").cast(pl.String), "kind").rows()


def launches(trace):
    start = recorded_starts(trace)[0]
    return launches_of(trace, find_activities(trace, start, CLASSES), start, parent_rows(trace)).rows()


def test_categories_and_kinds():
    rank = Rank()
    rank.op("aten::mm", 0, 1)
    rank.mark("ProfilerStep#1", 0, 90)
    rank.kernel("ampere_sgemm_128x64_nn", 10, 12)
    rank.kernel("qqq", 12, 13)
    rank.kernel("multimem_all_reduce_kernel<float>", 13, 15)
    rank.collective(CommType.ALL_REDUCE, 15, 16, 64)
    rank.copy(16, 17)
    rank.kernel("Memset (Device)", 17, 18, copy_kind="memset")
    rank.add("Memcpy DtoH", NodeType.MEM_STORE_NODE, 18, 19, is_cpu_op=False, stream=7)
    rank.gap("unexplained", 19, 25)
    assert kinds(rank.build()) == [
        ("ampere_sgemm_128x64_nn", "compute", "gemm"),
        ("qqq", "compute", "other"),
        ("multimem_all_reduce_kernel<float>", "communication", "communication"),
        ("ncclDevKernel_ALL_REDUCE", "communication", "communication"),
        ("Memcpy HtoD", "memory", "copy"),
        ("Memset (Device)", "memory", "memset"),
        ("Memcpy DtoH", "memory", "copy"),
    ]


def test_order_streams_and_bytes():
    rank = Rank()
    rank.kernel("late", 30, 40, tensor_size=5)
    rank.kernel("long", 10, 20, device=2)
    rank.kernel("short", 10, 15, stream=None)
    rank.collective(CommType.ALL_REDUCE, 12, 16, 64, tensor_size=9)
    rank.copy(1, 2, tensor_size=128)
    found = activities(rank.build())
    assert found.select("row", "start_ns", "end_ns", "device", "stream", "bytes").rows() == [
        (4, 1, 2, 0, 7, 128),
        (2, 10, 15, 0, 0, None),
        (1, 10, 20, 2, 7, None),
        (3, 12, 16, 0, 9, 64),
        (0, 30, 40, 0, 7, 5),
    ]


def test_without_a_device_the_host_works():
    """An operator that starts a communication is none itself: the communication has a node of its own."""
    rank = Rank()
    rank.op("aten::mm", 0, 5)
    rank.op("c10d::allreduce_", 5, 6)
    rank.collective(CommType.ALL_REDUCE, 6, 9, 64, is_cpu_op=True, tid=3)
    rank.gap("host_idle", 9, 11, is_cpu_op=True)
    trace = rank.build()
    assert not has_device(trace)
    assert kinds(trace) == [
        ("aten::mm", "compute", "gemm"),
        ("c10d::allreduce_", "compute", "other"),
        ("ncclDevKernel_ALL_REDUCE", "communication", "communication"),
    ]
    assert activities(trace)["stream"].to_list() == [1, 1, 3]


def test_a_rank_with_nothing_but_annotations():
    rank = Rank()
    rank.mark("ProfilerStep#1", 0, 90)
    assert activities(rank.build()).height == 0
    assert activities(Rank().build()).height == 0


def test_missing_and_negative_values():
    builder = TraceBuilder()
    builder.add("k", COMP, start_ns=3, duration_ns=-4, is_cpu_op=None)
    builder.add(None, COMP, start_ns=5, duration_ns=None)
    assert activities(builder.build()).select("name", "start_ns", "end_ns").rows() == [("k", 3, 3), ("", 5, 5)]


def test_the_call_of_an_activity_has_its_correlation():
    rank = Rank()
    rank.call(1, 0, 3, tid=5)
    rank.kernel("first", 4, 6, correlation=1)
    rank.kernel("graph's second", 6, 8, correlation=1)
    rank.kernel("launched before", 1, 2, correlation=77)
    rank.kernel("unknown", 8, 9)
    assert launches(rank.build()) == [
        (None, None, None, None),
        (0, 0, 3, 5),
        (0, 0, 3, 5),
        (None, None, None, None),
    ]


def test_a_call_that_was_cut_lasts_until_its_last_segment_ends():
    rank = Rank()
    first = rank.call(1, 0, 3)
    rank.op("cudaLaunchKernel", 3, 7, parent=first, segment=1)
    rank.op("cudaLaunchKernel", 9, 12, parent=first, segment=2)
    rank.op("aten::add", 12, 20, parent=first)
    rank.kernel("gemm", 3, 6, correlation=1)
    assert launches(rank.build()) == [(0, 0, 12, 1)]


def test_without_correlations_no_call_is_known():
    rank = Rank()
    rank.kernel("gemm", 3, 6)
    assert launches(rank.build()) == [(None, None, None, None)]
    rank.kernel("gemm", 6, 7, correlation=3)
    assert launches(rank.build()) == [(None, None, None, None)] * 2


def test_recorded_starts_stay():
    rank = Rank(origin=1_790_000_000_000_000_001)
    rank.kernel("gemm", 3, 6)
    start, notes = recorded_starts(rank.build())
    assert (start.tolist(), notes) == ([1_790_000_000_000_000_004], ())


def test_starts_that_are_missing_are_rebuilt():
    builder = TraceBuilder()
    first = builder.add("a", COMP, duration_ns=5)
    second = builder.add("b", COMP, duration_ns=7, sync_deps=[first])
    builder.add("c", COMP, duration_ns=1, data_deps=[second, first])
    start, notes = recorded_starts(builder.build())
    assert start.tolist() == [0, 5, 12]
    assert notes == ("3 of 3 nodes have no recorded start: theirs is rebuilt from edges and durations",)


def test_some_starts_are_missing():
    builder = TraceBuilder()
    first = builder.add("a", COMP, start_ns=100, duration_ns=5)
    builder.add("b", COMP, duration_ns=7, sync_deps=[first])
    builder.add("mark", NodeType.METADATA_NODE)
    start, notes = recorded_starts(builder.build())
    assert start[:2].tolist() == [100, 105]
    assert notes == ("1 of 2 nodes have no recorded start: theirs is rebuilt from edges and durations",)


def test_a_cycle_can_not_be_rebuilt():
    builder = TraceBuilder()
    builder.add("a", COMP, duration_ns=5, sync_deps=[1])
    builder.add("b", COMP, start_ns=40, duration_ns=7, sync_deps=[0])
    start, notes = recorded_starts(builder.build())
    assert start.tolist() == [0, 40]
    assert notes == ("1 of 2 nodes have no recorded start and the graph has a cycle: they are taken to start at 0",)
