"""Host segments that follow each other become one; the device doesn't notice."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir import NodeType, TraceBuilder, build_graph
from chakra_et.passes.fuse import fuse
from chakra_et.passes.reconstruct import reconstruct

COMP = NodeType.COMP_NODE


def host(builder, name, duration, *deps, tid=1, **more):
    return builder.add(name, COMP, duration_ns=duration, is_cpu_op=True, tid=tid, ctrl_deps=list(deps), **more)


def chain():
    """Host work, a launch, more host work; a kernel that hangs on the launch, and a wait for it."""
    builder = TraceBuilder(rank=0)
    step = builder.add("ProfilerStep#0", NodeType.METADATA_NODE, is_cpu_op=True, tid=1, span_ns=100)
    first = host(builder, "aten::a", 10, parent=step)
    inner = builder.add("inside", NodeType.METADATA_NODE, is_cpu_op=True, tid=1, parent=first, ctrl_deps=[first])
    second = host(builder, "aten::b", 5, first, parent=first, rf_id=7)
    launch = host(builder, "cudaLaunchKernel", 3, second)
    third = host(builder, "aten::c", 20, launch, data_deps=[first])
    idle = host(builder, "host_idle", 9, third, gap_kind="host_idle")
    gap = builder.add("launch_latency", COMP, duration_ns=4, gap_kind="launch_latency", ctrl_deps=[launch])
    kernel = builder.add("gemm", COMP, duration_ns=50, stream=7, ctrl_deps=[launch, gap], parent=second)
    host(builder, "aten::d", 2, idle, sync_deps=[kernel])
    assert inner == 2
    return builder.build()


def told(trace):
    return trace.nodes.select("name", "duration_ns", "ctrl_deps", "sync_deps").rows()


def test_segments_between_launches_and_waits_are_one():
    trace = fuse(chain(), detail="launch")
    assert told(trace) == [
        ("ProfilerStep#0", 0, [], []),
        ("host", 18, [], []),
        ("host", 29, [1], []),
        ("launch_latency", 4, [1], []),
        ("gemm", 50, [1, 3], []),
        ("aten::d", 2, [2], [4]),
    ]
    assert trace.nodes["id"].to_list() == list(range(6))
    assert trace.nodes["parent"].to_list() == [None, None, None, None, 1, None]
    assert trace.column("rf_id").null_count() == 6
    assert trace.nodes["data_deps"].list.len().sum() == 0
    assert trace.rank == 0


def test_device_detail_leaves_gap_nodes_of_the_host():
    trace = fuse(chain(), detail="device")
    kinds = trace.nodes.select("name", "gap_kind").rows()
    assert kinds == [
        ("ProfilerStep#0", None),
        ("host", "host_work"),
        ("host", "host_work"),
        ("launch_latency", "launch_latency"),
        ("gemm", None),
        ("aten::d", "host_work"),
    ]


def test_the_schedule_stays():
    trace = chain()
    before = reconstruct(trace)
    for detail in ("launch", "device"):
        after = reconstruct(fuse(trace, detail=detail))
        assert after.makespan_ns == before.makespan_ns
        assert after.unscheduled == 0


def test_idle_time_alone_stays_idle():
    builder = TraceBuilder()
    idle = host(builder, "host_idle", 9, gap_kind="host_idle")
    builder.add("kernel", COMP, duration_ns=5, stream=7, ctrl_deps=[idle])
    host(builder, "host_idle", 9, idle, gap_kind="host_idle")
    trace = fuse(builder.build(), detail="launch")
    assert trace.nodes["gap_kind"].to_list() == ["host_idle", None, "host_idle"]
    assert trace.nodes["name"].to_list() == ["host_idle", "kernel", "host_idle"]


def test_threads_communications_and_branches_are_not_fused():
    builder = TraceBuilder()
    a = host(builder, "a", 1)
    host(builder, "other thread", 1, a, tid=2)
    b = host(builder, "b", 1, a)
    comm = builder.add("gloo", NodeType.COMM_COLL_NODE, is_cpu_op=True, tid=1, duration_ns=9, ctrl_deps=[b])
    host(builder, "c", 1, comm)
    trace = fuse(builder.build(), detail="launch")
    assert trace.nodes["name"].to_list() == ["a", "other thread", "b", "gloo", "c"]


def test_a_single_node_keeps_what_it_says():
    builder = TraceBuilder()
    a = host(builder, "aten::a", 1, rf_id=5, op_schema="aten::a()")
    builder.add("kernel", COMP, duration_ns=5, ctrl_deps=[a])
    host(builder, "aten::b", 1, a)
    nodes = fuse(builder.build(), detail="launch").nodes
    assert nodes.select("name", "rf_id", "op_schema").row(0) == ("aten::a", 5, "aten::a()")


def test_an_empty_trace():
    assert len(fuse(TraceBuilder().build(), detail="launch")) == 0


@st.composite
def traces(draw):
    """Threads with launches, kernels on streams, and waits; ids ascend in dependency order."""
    builder = TraceBuilder()
    last_host, last_kernel = {}, {}
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["host", "host", "kernel", "wait", "note"]))
        thread, stream = draw(st.integers(1, 2)), draw(st.integers(7, 8))
        before = [last_host[thread]] if thread in last_host else []
        length = draw(st.integers(0, 20))
        if kind == "host":
            last_host[thread] = host(builder, "op", length, *before, tid=thread)
        elif kind == "kernel" and before:
            deps = [last_kernel[stream]] if stream in last_kernel else []
            last_kernel[stream] = builder.add(
                "k", COMP, duration_ns=length, stream=stream, ctrl_deps=before, sync_deps=deps
            )
        elif kind == "wait" and stream in last_kernel:
            last_host[thread] = host(builder, "wait", length, *before, tid=thread, sync_deps=[last_kernel[stream]])
        elif kind == "note" and before:
            builder.add("note", NodeType.METADATA_NODE, is_cpu_op=True, tid=thread, ctrl_deps=before, parent=before[0])
    return builder.build()


@given(traces(), st.sampled_from(["launch", "device"]))
@settings(max_examples=200, deadline=None)
def test_device_timelines_are_the_same(trace, detail):
    fused = fuse(trace, detail=detail)

    def timeline(one):
        start = pl.Series("start", reconstruct(one).start_ns)
        kernels = one.nodes.with_columns(start).filter(~pl.col("is_cpu_op"))
        return sorted(kernels.select("start", "duration_ns").rows())

    assert timeline(fused) == timeline(trace)
    assert len(fused) <= len(trace)
    graph = build_graph(fused)
    assert len(graph.dangling) == len(graph.self_edges) == 0
    works = trace.nodes.filter(pl.col("is_cpu_op"), pl.col("type") == int(COMP))["duration_ns"].sum()
    assert fused.nodes.filter(pl.col("is_cpu_op"))["duration_ns"].sum() == works


@pytest.mark.parametrize("detail", ["launch", "device"])
def test_fusing_again_changes_nothing(detail):
    once = fuse(chain(), detail=detail)
    assert told(fuse(once, detail=detail)) == told(once)
