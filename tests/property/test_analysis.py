"""Analyses on generated traces: sums, orders, shifts, and traces that nobody should write."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.partition import idle_stretches, partition
from chakra_et.analysis import breakdown, comms, iterations, kernels, ops, overlap, skew, timeline
from chakra_et.analysis.cover import cover_of
from chakra_et.analysis.options import Options
from chakra_et.analysis.run import run_one
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceSet
from chakra_et.testing.strategies import trace_sets

MODULES = (breakdown, comms, iterations, kernels, ops, overlap, skew, timeline)
EPOCH = 1_790_000_000_123_456_789
IDLE = breakdown.IDLE
KINDS = ("compute", "communication", "memory")

moments = st.integers(0, 40)
intervals = st.lists(st.tuples(moments, st.integers(0, 12), st.integers(0, 2)), max_size=12)


# Arrays ---------------------------------------------------------------------------------------------------------------


def columns(table):
    """Start, end and kind, by start."""
    rows = np.array(sorted((begin, begin + length, kind) for begin, length, kind in table), np.int64).reshape(-1, 3)
    return rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].astype(np.int8)


@given(intervals, st.lists(moments, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_the_partition_equals_looking_at_every_ns(table, asked):
    start, end, kind = columns(table)
    asked = np.array(sorted(asked), np.int64)
    found = partition(start, end, kind, np.argsort(end, kind="stable"), asked)
    for moment, times in zip(asked, found, strict=True):
        expected = [0] * 8
        for ns in range(asked[0], moment):
            running = {int(kind[row]) for row in range(len(start)) if start[row] <= ns < end[row]}
            expected[sum(1 << one for one in running)] += 1
        assert times.tolist() == expected


@given(intervals, moments, moments)
@settings(max_examples=150, deadline=None)
def test_idle_stretches_equal_looking_at_every_ns(table, one, two):
    start, end, _ = columns(table)
    begin, until = min(one, two), max(one, two)
    found = idle_stretches(start, end, begin, until)
    idle = [ns for ns in range(begin, until) if not ((start <= ns) & (ns < end)).any()]
    assert [ns for low, high, _ in found for ns in range(low, high)] == idle
    assert all(found[:, 0] < found[:, 1])
    for _, high, follower in found:
        if follower >= 0:
            assert start[follower] == high or (high == until and start[follower] > until)
            assert end[follower] > start[follower]


@given(intervals, st.lists(moments, max_size=6))
@settings(max_examples=150, deadline=None)
def test_a_cover_equals_looking_at_every_ns(table, asked):
    start, end, _ = columns(table)
    covered = np.array([((start <= ns) & (ns < end)).any() for ns in range(60)])
    found = cover_of(start, end).until(np.array(asked, np.int64))
    assert found.tolist() == [int(covered[:moment].sum()) for moment in asked]


# Traces ---------------------------------------------------------------------------------------------------------------


@st.composite
def jobs(draw: st.DrawFn, *, max_ranks: int = 3) -> TraceSet:
    """Ranks with steps, launches, kernels, copies and collectives on several streams; not all of it makes sense."""
    count = draw(st.integers(1, max_ranks))
    group = ProcessGroup("0", tuple(range(count)), count, "dp")
    return TraceSet(tuple(draw(ranks(rank=rank, group=group)) for rank in range(count)))


@st.composite
def ranks(draw: st.DrawFn, *, rank: int = 0, group: ProcessGroup) -> Trace:
    builder = TraceBuilder(rank=rank, world_size=group.size, process_groups=[group], family="collected")
    steps = draw(st.integers(0, 4))
    for number in range(steps):
        builder.add(
            f"ProfilerStep#{number}", NodeType.METADATA_NODE, start_ns=10 * number, span_ns=10, is_cpu_op=True, tid=1
        )
    for number, (begin, length, kind) in enumerate(draw(intervals)):
        issued = draw(st.integers(0, begin))
        call = builder.add("cudaLaunchKernel", NodeType.COMP_NODE, start_ns=issued, duration_ns=begin - issued,
                           is_cpu_op=True, tid=1, correlation=number)  # fmt: skip
        times = {"start_ns": begin, "duration_ns": length, "is_cpu_op": False, "stream": draw(st.integers(7, 9)),
                 "correlation": draw(st.sampled_from([number, 99])), "parent": call}  # fmt: skip
        times["sync_deps"] = draw(st.lists(st.integers(0, 2 * number + 2), max_size=2))
        if kind == 0:
            builder.add(draw(st.sampled_from(["sgemm", "qqq"])), NodeType.COMP_NODE, **times)
        elif kind == 1 and draw(st.booleans()):
            builder.add("nccl", NodeType.COMM_COLL_NODE, comm_type=int(draw(st.sampled_from(CommType))), pg_name="0",
                        comm_size=draw(st.none() | st.integers(0, 100)), **times)  # fmt: skip
        elif kind == 1:
            builder.add("multimem_all_reduce", NodeType.COMP_NODE, **times)
        else:
            builder.add("Memcpy HtoD", NodeType.MEM_LOAD_NODE, copy_kind="HtoD", **times)
    return builder.build()


choices = st.sampled_from(["all", "whole", None])


def table_of(module, source, **options):
    return run_one(module.measure, module.combine, source, Options(**options)).table


@given(jobs(), choices)
@settings(max_examples=25, deadline=None)
def test_parts_add_up_to_the_span(source, choice):
    table = table_of(breakdown, source, iteration=choice)
    for row in table.iter_rows(named=True):
        assert min(value for name, value in row.items() if name.endswith("_ns")) >= 0
        parts = ("compute_ns", "exposed_communication_ns", "memory_ns", "idle_ns")
        assert sum(row[part] for part in parts) == row["span_ns"]
        assert row["exposed_communication_ns"] + row["overlap_ns"] == row["communication_ns"]
        assert sum(row[cause] for cause in IDLE) == row["idle_ns"]
        assert row["busy_ns"] + row["idle_ns"] == row["span_ns"]


@given(jobs(), choices)
@settings(max_examples=25, deadline=None)
def test_overlap_agrees_with_the_breakdown(source, choice):
    keys = ["rank", "iteration"]
    names = ["communication_ns", "overlap_ns", "exposed_communication_ns"]
    one = table_of(overlap, source, iteration=choice).filter(pl.col("communication_ns") > 0)
    two = table_of(breakdown, source, iteration=choice).filter(pl.col("communication_ns") > 0)
    assert one.select(keys + names).sort(keys).equals(two.select(keys + names).sort(keys))


@given(jobs(), choices, st.sampled_from([breakdown, overlap, kernels]))
@settings(max_examples=25, deadline=None)
def test_rows_of_iterations_add_up_to_rows_of_ranks(source, choice, module):
    fine = table_of(module, source, iteration=choice, by=("rank", "iteration"))
    coarse = table_of(module, source, iteration=choice, by=("rank",))
    sums = [name for name in ("count", "total_ns", "span_ns", "compute_ns", "communication_ns", "overlap_ns", *IDLE)
            if name in fine.columns]  # fmt: skip
    added = fine.group_by("rank").agg(pl.col(sums).sum()).sort("rank")
    assert added.equals(coarse.select("rank", *sums).sort("rank"))


@given(jobs(), choices)
@settings(max_examples=15, deadline=None)
def test_stretches_that_meet_cover_all_that_they_span(source, choice):
    """Iterations' rows add up to those of the whole profile where nothing was launched before or behind them."""
    table = table_of(iterations, source, iteration=choice)
    for (_,), own in table.group_by("rank"):
        ends = (own["begin_ns"] + own["span_ns"]).to_list()
        assert own["begin_ns"].to_list()[1:] == ends[:-1]
        assert (own["span_ns"] >= 0).all()


def changed(source, change):
    return TraceSet(tuple(change(trace) for trace in source), source.process_groups)


@given(jobs(), choices, st.randoms(use_true_random=False), st.sampled_from(MODULES))
@settings(max_examples=25, deadline=None)
def test_the_order_of_nodes_does_not_matter(source, choice, random, module):
    def shuffle(trace):
        order = list(range(len(trace)))
        random.shuffle(order)
        return trace.with_nodes(trace.nodes[order])

    # Which of several that start and end alike comes first is the table's order, and so is a tie's cause.
    one, two = (table_of(module, each, iteration=choice) for each in (source, changed(source, shuffle)))
    if module is breakdown:
        one, two = (each.drop(IDLE) for each in (one, two))
    if module in (kernels, ops, timeline, overlap, breakdown, iterations):
        assert one.sort(one.columns).equals(two.sort(two.columns))
    else:
        assert one.height == two.height


@given(jobs(), choices, st.sampled_from(MODULES), st.sampled_from([1, EPOCH, -EPOCH]))
@settings(max_examples=25, deadline=None)
def test_a_shift_of_all_clocks_changes_nothing(source, choice, module, shift):
    later = changed(source, lambda trace: trace.with_nodes(trace.nodes.with_columns(pl.col("start_ns") + shift)))
    one, two = (table_of(module, each, iteration=choice) for each in (source, later))
    assert one.equals(two)


# Traces that nobody should write --------------------------------------------------------------------------------------


def check_plain(module, source, **options):
    result = run_one(module.measure, module.combine, source, Options(**options))
    json.dumps(result.as_dict(), allow_nan=False)
    json.dumps(result.plot().as_dict(), allow_nan=False)
    for name in result.table.columns:
        if name.endswith(("_ns", "_bytes", "_count")) and result.table[name].dtype.is_integer():
            assert name.startswith("late_") or (result.table[name].fill_null(0) >= 0).all(), name


@given(trace_sets(max_ranks=2, max_nodes=6), st.sampled_from(MODULES), choices, st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_trace_is_told_in_plain_numbers(source, module, choice, linked_only):
    check_plain(module, changed(source, _sensible), iteration=choice, linked_only=linked_only)


def _sensible(trace):
    """Times of a machine that was ever switched on: a difference of any two fits into 64 bits."""
    bound = 2**60
    nodes = trace.nodes
    names = [name for name in ("start_ns", "duration_ns", "span_ns", "comm_size", "wait_ns", "transfer_ns")
             if name in nodes.columns]  # fmt: skip
    names += [name for name in ("tensor_size",) if name in nodes.columns]
    return trace.with_nodes(nodes.with_columns((pl.col(name) % bound).alias(name) for name in names))


def odd_traces():
    empty = TraceBuilder(rank=0)
    one = TraceBuilder(rank=0)
    one.add("gemm", NodeType.COMP_NODE, start_ns=3, duration_ns=0)
    untimed = TraceBuilder(rank=0)
    first = untimed.add("gemm", NodeType.COMP_NODE, duration_ns=5)
    untimed.add("ar", NodeType.COMM_COLL_NODE, duration_ns=5, comm_type=0, comm_size=4, sync_deps=[first])
    cyclic = TraceBuilder(rank=0)
    cyclic.add("a", NodeType.COMP_NODE, duration_ns=5, sync_deps=[1])
    cyclic.add("b", NodeType.COMM_COLL_NODE, duration_ns=5, sync_deps=[0], comm_type=0)
    cyclic.add("c", NodeType.COMP_NODE, start_ns=40, duration_ns=5, sync_deps=[2, 1])
    dangling = TraceBuilder(rank=0)
    dangling.add("a", NodeType.COMP_NODE, start_ns=0, duration_ns=5, sync_deps=[77], parent=88)
    dangling.add("b", NodeType.COMP_NODE, start_ns=9, duration_ns=5, data_deps=[0, 78])
    double = TraceBuilder(rank=0)
    double.add("a", NodeType.COMP_NODE, start_ns=0, duration_ns=5)
    double.add("b", NodeType.COMP_NODE, start_ns=9, duration_ns=5, id=0, parent=0, sync_deps=[0])
    typeless = TraceBuilder(rank=0)
    typeless.add("ar", NodeType.COMM_COLL_NODE, start_ns=0, duration_ns=5)
    typeless.add("send", NodeType.COMM_SEND_NODE, start_ns=0, duration_ns=5)
    typeless.add("copy", NodeType.MEM_LOAD_NODE, start_ns=0, duration_ns=5)
    typeless.add("?", NodeType.INVALID_NODE, start_ns=0, duration_ns=5)
    names = ("empty", "one", "untimed", "cyclic", "dangling", "double", "typeless")
    made = (empty, one, untimed, cyclic, dangling, double, typeless)
    return [pytest.param(builder.build(), id=name) for name, builder in zip(names, made, strict=True)]


@pytest.mark.parametrize("trace", odd_traces())
@pytest.mark.parametrize("module", MODULES, ids=[module.__name__.rpartition(".")[2] for module in MODULES])
def test_odd_traces(module, trace):
    for choice in ("all", "whole"):
        check_plain(module, trace, iteration=choice)
    check_plain(module, TraceSet((trace,)), linked_only=True)
