"""Allocations and frees of a profile stay in the trace, outside the graph."""

import gzip
import json

import numpy as np
import polars as pl
import pytest

from chakra_et.frontends.pytorch.convert import convert_rank
from chakra_et.frontends.pytorch.memory_events import enclosing_events
from chakra_et.frontends.pytorch.parse_kineto import parse_kineto
from chakra_et.frontends.pytorch.timeline import build_timeline
from chakra_et.io import read, write
from chakra_et.ir import NodeType
from chakra_et.passes.fuse import fuse
from chakra_et.passes.reconstruct import reconstruct
from chakra_et.passes.select import select_time
from tests.unit.frontends.pytorch.profiles import call, event, kernel, op, profile

COLUMNS = ("device", "alloc_bytes", "alloc_address", "alloc_total_bytes", "alloc_reserved_bytes")


def memory(ts, size, *, tid=1, device=0, address=4096, total=0, reserved=1 << 20, **args):
    """One allocation, or free."""
    kind = {"Device Type": 0 if device < 0 else 1, "Device Id": device}
    sums = {"Total Allocated": total, "Total Reserved": reserved, "Bytes": size, "Addr": address}
    return event("cpu_instant_event", "[memory]", ts, 0, tid=tid, ph="i", **sums, **kind, **args)


WORK = [
    event("user_annotation", "ProfilerStep#0", 0, 100),
    op("aten::mm", 10, 20, rf=3, ext=3),
    op("aten::empty", 11, 2, rf=4, ext=4),
    call("cudaLaunchKernel", 15, 5, 44),
    kernel("gemm", 24, 30, 44),
]
BLOCKS = [
    memory(11.5, 512, total=512),
    memory(12, 8, device=-1, total=8, reserved=0),
    memory(16, 256, total=768, address=8192),
    memory(60, -512, total=256),
    memory(70, 64, tid=9, total=320),
]


def traced(*events, **header):
    return convert_rank(profile(list(events), **header), None, sources=())


def blocks(trace):
    return trace.nodes.filter(trace.column("alloc_bytes").is_not_null())


def test_events_become_nodes_without_edges_or_length():
    trace, facts = traced(*WORK, *BLOCKS)
    found = blocks(trace)
    assert facts.memory_events == 5
    assert found.select("name", "type", "duration_ns", "is_cpu_op").unique().rows() == [("[memory]", 1, 0, True)]
    assert found["start_ns"].to_list() == [11_500, 12_000, 16_000, 60_000, 70_000]
    assert found.select(COLUMNS).rows()[:4] == [
        (0, 512, 4096, 512, 1 << 20),
        (-1, 8, 4096, 8, 0),
        (0, 256, 8192, 768, 1 << 20),
        (0, -512, 4096, 256, 1 << 20),
    ]
    ids = set(found["id"].to_list())
    for column in ("ctrl_deps", "data_deps", "sync_deps"):
        assert found[column].list.len().sum() == 0
        assert not ids & set(trace.nodes[column].explode(empty_as_null=False).to_list())


def test_the_parent_is_the_innermost_operator_of_the_thread():
    trace, _ = traced(*WORK, *BLOCKS)
    names = dict(trace.nodes.select("id", "name").rows())
    # The third falls into the launch call, which is no operator; the last is of a thread that nothing else is of.
    parents = [names.get(parent) for parent in blocks(trace)["parent"]]
    assert parents == ["aten::empty", "aten::empty", "aten::mm", "ProfilerStep#0", None]


def test_an_instant_is_inside_what_encloses_it():
    found = profile([op("a", 0, 10, tid=1), op("b", 2, 3, tid=1), op("c", 4, 2, tid=2), call("d", 6, 2, 1, tid=1)])
    timeline = build_timeline(found.host, resolution_ns=1)
    names = timeline.frame["name"].to_list()

    def around(time, tid):
        at = [np.array([value], np.int64) for value in (1, tid, time)]
        row = int(enclosing_events(*at, timeline)[0])
        return names[row] if row >= 0 else None

    assert [around(time, 1) for time in (0, 1_999, 2_000, 5_000, 5_001, 7_000, 10_000, 10_001)] == [
        "a", "a", "b", "b", "a", "a", "a", None,
    ]  # fmt: skip
    assert (around(3_999, 2), around(4_000, 2), around(4_000, 3)) == (None, "c", None)


def test_the_rest_of_the_trace_is_as_without_them():
    plain, _ = traced(*WORK)
    trace, facts = traced(*WORK, *BLOCKS)
    rest = trace.nodes.filter(trace.column("alloc_bytes").is_null())
    same = ("name", "type", "gap_kind", "start_ns", "duration_ns", "stream", "correlation")
    assert rest.select(same).equals(plain.nodes.select(same))
    rebuilt = reconstruct(trace)
    assert (rebuilt.makespan_ns, rebuilt.start_error_all_ns.max) == (reconstruct(plain).makespan_ns, 0)
    assert facts.window_ns == rebuilt.window_ns


def test_profiles_without_them_have_no_columns_for_them():
    marks = event("", "Iteration Start: PyTorch Profiler", 0, 0, ph="i")
    trace, facts = traced(*WORK, marks)
    assert facts.memory_events == 0
    assert not [name for name in trace.nodes.columns if name.startswith("alloc_")]


def test_what_older_profiles_leave_out_is_unknown():
    bare = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5}
    trace, facts = traced(*WORK, {**bare, "args": {"Device Type": 0, "Bytes": 64}}, {**bare, "args": {}}, bare)
    assert facts.memory_events == 1
    found = blocks(trace)
    assert found.select("device", "alloc_bytes", "start_ns").rows() == [(-1, 64, 5_000)]
    assert "alloc_total_bytes" not in found.columns
    amd, _ = traced(*WORK, memory(5, 64, **{"finished": False, "Ev Idx": 3}) | {"cat": "cpu_instant_event"})
    assert blocks(amd)["device"].to_list() == [0]


def test_events_before_zero_move_with_the_rest():
    trace, _ = traced(*WORK, memory(-3, 64))
    assert blocks(trace)["start_ns"].to_list() == [0]
    assert trace.nodes.filter(name="gemm")["start_ns"].item() == 27_000


def test_a_profile_of_a_device_alone_keeps_them():
    trace, facts = traced(kernel("gemm", 24, 30, 44), memory(5, 64))
    assert facts.memory_events == 1
    assert blocks(trace)["alloc_bytes"].to_list() == [64]
    assert trace.column("parent").null_count() == len(trace)


def test_the_file_keeps_the_sign(tmp_path):
    trace, _ = traced(*WORK, *BLOCKS)
    write(trace, tmp_path / "trace.0.et")
    again = read(tmp_path / "trace.0.et")
    assert blocks(again).select(COLUMNS).equals(blocks(trace).select(COLUMNS))


def test_detail_launch_and_slices_keep_them_detail_device_does_not():
    trace, _ = traced(*WORK, *BLOCKS)
    assert blocks(fuse(trace, detail="launch"))["alloc_bytes"].to_list() == [512, 8, 256, -512, 64]
    assert blocks(fuse(trace, detail="device")).height == 0
    part = select_time(trace, 10_000, 15_000)
    assert blocks(part)["alloc_bytes"].to_list() == [512, 8]


@pytest.mark.parametrize(
    "name", ["kineto/qwen_h100.json.gz", "vllm-decode-hipgraph/graph_capture.json.gz"], ids=["nvidia", "amd"]
)
def test_real_profiles_keep_every_event(repository, name):
    path = repository.parent / "shared" / "traces" / name
    if not path.exists():
        pytest.skip("the shared profiles are not here")
    text = gzip.decompress(path.read_bytes())
    raw = [entry for entry in json.loads(text)["traceEvents"] if entry.get("name") == "[memory]"]
    trace, facts = convert_rank(parse_kineto(str(path), text), None, sources=())
    found = blocks(trace)
    keys = ("Bytes", "Addr", "Total Allocated", "Total Reserved")
    expected = sorted(
        (round(entry["ts"] * 1000), *(entry["args"][key] for key in keys), entry["args"]["Device Id"]) for entry in raw
    )
    base = json.loads(text)["baseTimeNanoseconds"]
    columns = [pl.col("start_ns") - base, *COLUMNS[1:], "device"]
    assert len(raw) == facts.memory_events == found.height > 1000
    got = sorted(found.select(columns).rows())
    assert [row[1:] for row in got] == [row[1:] for row in expected]
    # Beyond 2^53 ns, the times as floats are off by a quarter of a microsecond.
    assert max(abs(mine[0] - other[0]) for mine, other in zip(got, expected, strict=True)) <= 1000
    assert (found["type"] == int(NodeType.METADATA_NODE)).all()
    assert found["parent"].null_count() == 0
    assert reconstruct(trace).start_error_all_ns.max == 0
