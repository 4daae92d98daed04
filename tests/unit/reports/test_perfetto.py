"""The timeline follows the trace-event rules, and reads back as what the trace holds."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.errors import OutputError
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceSet
from chakra_et.reports.perfetto import export_perfetto, perfetto_chunks

COMP, COLL, META = NodeType.COMP_NODE, NodeType.COMM_COLL_NODE, NodeType.METADATA_NODE
EPOCH = 1_700_000_000_000_000_123


class Parsed:
    """An independent reading of a trace-event file; raises where it breaks a rule."""

    def __init__(self, data: bytes) -> None:
        document = json.loads(data.decode("utf-8"))
        self.base = document["baseTimeNanoseconds"]
        self.names: dict[tuple[int, int], str] = {}
        self.processes: dict[int, str] = {}
        self.tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        flows: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
        for event in document["traceEvents"]:
            key = (event["pid"], event["tid"])
            if event["ph"] == "M" and event["name"] == "process_name":
                self.processes[event["pid"]] = event["args"]["name"]
            elif event["ph"] == "M" and event["name"] == "thread_name":
                assert key not in self.names
                self.names[key] = event["args"]["name"]
            elif event["ph"] == "X":
                event["begin"] = self.ns(event["ts"])
                event["end"] = event["begin"] + self.ns(event["dur"])
                assert event["dur"] >= 0
                self.tracks[key].append(event)
            elif event["ph"] in "sf":
                assert event["ph"] not in flows[event["id"]]
                flows[event["id"]][event["ph"]] = event
                assert event["ph"] == "s" or event["bp"] == "e"
        assert set(self.tracks) <= set(self.names)
        assert all(self.names[key] for key in self.names)
        assert {pid for pid, _ in self.names} <= set(self.processes)
        for slices in self.tracks.values():
            self.check_nesting(slices)
        self.arrows = [self.check_flow(ends) for ends in flows.values()]

    @staticmethod
    def ns(time: float) -> int:
        value = round(time * 1000)
        assert abs(time * 1000 - value) < 1e-3
        return value

    @staticmethod
    def check_nesting(slices: list[dict[str, Any]]) -> None:
        stack: list[dict[str, Any]] = []
        ordered = sorted(slices, key=lambda event: (event["begin"], -event["end"]))
        for event in ordered:
            while stack and stack[-1]["end"] <= event["begin"]:
                stack.pop()
            assert not stack or event["end"] <= stack[-1]["end"], (stack[-1], event)
            event["depth"] = len(stack)
            event["above"] = stack[-1] if stack else None
            stack.append(event)

    def check_flow(self, ends: dict[str, dict[str, Any]]) -> tuple[str, str, str]:
        assert set(ends) == {"s", "f"}
        first, last = ends["s"], ends["f"]
        assert first["ts"] <= last["ts"]
        assert (first["name"], first["cat"]) == (last["name"], last["cat"])
        return (first["cat"], *(self.around(event)["name"] for event in (first, last)))

    def around(self, event: dict[str, Any]) -> dict[str, Any]:
        at = self.ns(event["ts"])
        inside = [
            s
            for s in self.tracks[event["pid"], event["tid"]]
            if s["begin"] <= at and (at < s["end"] or at == s["begin"])
        ]
        assert inside, f"an arrow's end lies outside all slices: {event}"
        return max(inside, key=lambda s: (s["begin"], -s["end"]))

    def track(self, process: str, thread: str) -> list[tuple[str, int, int, int]]:
        key = next(key for key, name in self.names.items() if name == thread and self.processes[key[0]] == process)
        return [(s["name"], s["begin"], s["end"], s["depth"]) for s in self.tracks[key]]

    def find(self, name: str) -> dict[str, Any]:
        return next(event for slices in self.tracks.values() for event in slices if event["name"] == name)


def parse(*traces: Trace, **options: Any) -> Parsed:
    return Parsed(b"".join(perfetto_chunks(TraceSet(traces, **options))))


def profile(rank: int = 0) -> Trace:
    """One operator with a launch inside it, its kernel, a collective on another stream, and a wait for it."""
    builder = TraceBuilder(rank=rank, world_size=2, process_groups=[ProcessGroup("1", (0, 1), 2, "dp")])

    def at(start: int, end: int) -> dict[str, int]:
        return {"start_ns": EPOCH + start, "duration_ns": end - start}

    host = {"is_cpu_op": True, "tid": 4_000_000_000}
    builder.add("ProfilerStep#2", META, start_ns=EPOCH, span_ns=900, is_cpu_op=True, tid=4_000_000_000)
    op = builder.add(
        "aten::mm", COMP, **at(0, 100), **host, parent=0, inputs={"values": "[]", "shapes": "[[2, 3]]", "types": "[]"}
    )
    launch = builder.add("cudaLaunchKernel", COMP, **at(100, 140), **host, parent=op, ctrl_deps=[op], correlation=9)
    rest = builder.add("aten::mm", COMP, **at(140, 200), **host, parent=op, segment=1, ctrl_deps=[launch])
    late = builder.add("launch_latency", COMP, **at(140, 170), stream=7, gap_kind="launch_latency", ctrl_deps=[launch])
    kernel = builder.add("gemm", COMP, **at(170, 600), stream=7, ctrl_deps=[late], correlation=9, parent=op)
    comm = {"comm_type": CommType.ALL_REDUCE, "comm_size": 64, "pg_name": "1"}
    reduce = builder.add("nccl", COLL, **at(600, 900), stream=20, sync_deps=[kernel], **comm)
    sync = builder.add("cudaStreamSynchronize", COMP, **at(200, 210), **host, ctrl_deps=[rest])
    builder.add(
        "cudaStreamSynchronize",
        COMP,
        **at(900, 910),
        **host,
        parent=sync,
        segment=1,
        ctrl_deps=[sync],
        sync_deps=[reduce],
    )
    return builder.build()


def test_reads_like_the_profile() -> None:
    parsed = parse(profile())
    assert parsed.base == EPOCH
    assert set(parsed.processes.values()) == {"rank 0 host", "rank 0 device"}
    assert sorted(parsed.names.values()) == [
        "stream 20",
        "stream 7",
        "stream 7 gaps",
        "thread 4000000000",
        "thread 4000000000 (2)",
    ]
    assert parsed.track("rank 0 host", "thread 4000000000") == [
        ("ProfilerStep#2", 0, 900, 0),
        ("aten::mm", 0, 200, 1),
        ("cudaLaunchKernel", 100, 140, 2),
    ]
    # It ends after the annotation: on one track, the two could not be drawn.
    assert parsed.track("rank 0 host", "thread 4000000000 (2)") == [("cudaStreamSynchronize", 200, 910, 0)]
    assert parsed.track("rank 0 device", "stream 7") == [("gemm", 170, 600, 0)]
    assert parsed.track("rank 0 device", "stream 7 gaps") == [("launch_latency", 140, 170, 0)]
    assert sorted(parsed.arrows) == [
        ("flow_event", "gemm", "nccl"),
        ("flow_launch", "cudaLaunchKernel", "gemm"),
        ("flow_wait", "nccl", "cudaStreamSynchronize"),
    ]


def test_details() -> None:
    parsed = parse(profile())
    reduce = parsed.find("nccl")
    assert reduce["cat"] == "communication"
    wanted = {"comm_type": "ALL_REDUCE", "comm_size": 64, "pg_name": "1", "group": "1 dp", "group ranks": [0, 1]}
    assert {name: reduce["args"][name] for name in wanted} == wanted
    assert parsed.find("aten::mm")["args"]["input shapes"] == "[[2, 3]]"
    assert parsed.find("gemm")["cat"] == "kernel"


def test_every_rank_has_its_processes() -> None:
    parsed = parse(profile(0), profile(3))
    assert sorted(parsed.processes.values()) == [
        f"rank {rank} {side}" for rank in (0, 3) for side in ("device", "host")
    ]
    assert len(parsed.arrows) == 6


@pytest.mark.parametrize(
    "name", ['a"b\\c', "tab\tline\nnul\x00", "</script>", "kernel<float, 4>", "日本 🚀", "", "\u2028"]
)
def test_hostile_names(name: str) -> None:
    builder = TraceBuilder(rank=0)
    builder.add(name, COMP, duration_ns=1, start_ns=0, op_schema=name)
    event = parse(builder.build()).find(name or "unnamed")
    assert event["args"]["op_schema"] == name


def test_overlapping_slices_get_a_track_of_their_own() -> None:
    builder = TraceBuilder(rank=0)
    for start, end in ((0, 10), (5, 15), (6, 20), (8, 9), (20, 25)):
        builder.add(f"k{start}", COMP, start_ns=start, duration_ns=end - start, stream=1)
    parsed = parse(builder.build())
    assert [row[0] for row in parsed.track("rank 0 device", "stream 1")] == ["k0", "k8", "k20"]
    assert [row[0] for row in parsed.track("rank 0 device", "stream 1 (2)")] == ["k5"]
    assert [row[0] for row in parsed.track("rank 0 device", "stream 1 (3)")] == ["k6"]


def test_traces_without_times_are_scheduled() -> None:
    builder = TraceBuilder(rank=0)
    first = builder.add("a", COMP, duration_ns=1001)
    builder.add("b", COMP, duration_ns=7, data_deps=[first])
    assert parse(builder.build()).track("rank 0 device", "stream unknown") == [("a", 0, 1001, 0), ("b", 1001, 1008, 0)]


def test_threads_wait_for_each_other() -> None:
    builder = TraceBuilder(rank=0)
    first = builder.add("forward", COMP, is_cpu_op=True, tid=1, start_ns=0, duration_ns=5)
    gap = builder.add(
        "host_idle", COMP, is_cpu_op=True, tid=2, start_ns=5, duration_ns=5, gap_kind="host_idle", ctrl_deps=[first]
    )
    builder.add("backward", COMP, is_cpu_op=True, tid=2, start_ns=10, duration_ns=5, ctrl_deps=[gap])
    assert parse(builder.build()).arrows == [("flow_thread", "forward", "backward")]


def test_empty() -> None:
    assert parse().tracks == {}
    assert parse(TraceBuilder(rank=0).build()).tracks == {}


def test_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    traces = TraceSet((profile(),))
    assert export_perfetto(traces, plain) == [plain]
    export_perfetto(traces, packed)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    with pytest.raises(OutputError, match="expected a new file"):
        export_perfetto(traces, plain)
    export_perfetto(traces, plain, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.json.gz"]


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_any_trace_keeps_the_rules(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    builder = TraceBuilder(rank=0)
    for node in range(count):
        ids = st.integers(0, count)
        kind = data.draw(st.sampled_from([COMP, COMP, COLL, META]))
        values: dict[str, Any] = {
            "start_ns": data.draw(st.none() | st.integers(0, 30)),
            "duration_ns": data.draw(st.integers(0, 20)),
            "is_cpu_op": data.draw(st.booleans()),
            "tid": data.draw(st.none() | st.integers(-1, 1)),
            "stream": data.draw(st.none() | st.integers(0, 1)),
            "parent": data.draw(st.none() | ids),
            "segment": data.draw(st.none() | st.integers(0, 2)),
            "gap_kind": data.draw(st.none() | st.just("host_idle")),
            "span_ns": data.draw(st.none() | st.integers(0, 30)),
            "ctrl_deps": data.draw(st.lists(ids, max_size=2)),
            "sync_deps": data.draw(st.lists(ids, max_size=2)),
        }
        builder.add(f"n{node}", kind, **values)
    parse(builder.build())


def test_time_grows_linearly() -> None:
    import time

    from chakra_et.ir.arrays import list_series

    def draw(count: int) -> float:
        node = np.arange(count, dtype=np.uint64)
        offsets = np.arange(count + 1, dtype=np.int64)
        none = list_series("data_deps", np.zeros(count + 1, np.int64), np.empty(0, np.uint64))
        table = pl.DataFrame(
            [
                pl.Series("id", node),
                pl.Series("name", ["x"] * count),
                pl.Series("type", np.full(count, 4, np.uint8)),
                list_series("ctrl_deps", np.maximum(offsets - 1, 0), node[:-1]),
                none,
                none.alias("sync_deps"),
                pl.Series("start_ns", np.arange(count, dtype=np.int64)),
                pl.Series("duration_ns", np.ones(count, np.int64)),
                pl.Series("is_cpu_op", node % 2 == 0),
            ]
        )
        begin = time.process_time()
        for _ in perfetto_chunks(TraceSet((Trace(table),))):
            pass
        return time.process_time() - begin

    draw(100)
    assert draw(100_000) < 50 * max(draw(6_250), 0.02)
