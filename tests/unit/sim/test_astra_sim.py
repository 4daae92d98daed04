"""Exports follow every rule that ASTRA-sim has, checked by a reader of its own, and keep the traces' time."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra_et.errors import OutputError, TraceError
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceSet
from chakra_et.passes.reconstruct import apply_schedule, reconstruct
from chakra_et.sim.astra_sim import AstraSimSystem, export_astra_sim, plan_astra_sim
from chakra_et.validation import validate
from tests.unit.sim.astra_check import Workload

COMP, META = NodeType.COMP_NODE, NodeType.METADATA_NODE
COLL, SEND, RECV = NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE
GROUPS = (
    ProcessGroup("world", (0, 1, 2), 3, "default"),
    ProcessGroup("7", (2, 0), 2, "pair"),
    ProcessGroup("lonely", (1,), 1),
)


def export(trace_set: TraceSet, **options: Any) -> Workload:
    with tempfile.TemporaryDirectory() as folder:
        export_astra_sim(trace_set, Path(folder) / "out", **options)
        return Workload(Path(folder) / "out")


def collective(kind: CommType, group: str, size: int, **columns: Any) -> dict[str, Any]:
    return {"type": COLL, "comm_type": kind, "comm_size": size, "pg_name": group, "duration_ns": 5000, **columns}


def build(rank: int, nodes: list[dict[str, Any]], world: int = 3) -> Trace:
    """Nodes hang on the one before unless they say otherwise."""
    builder = TraceBuilder(rank=rank, world_size=world, process_groups=GROUPS)
    for index, node in enumerate(nodes):
        values = {
            "name": f"n{index}",
            "type": COMP,
            "duration_ns": 3000,
            "ctrl_deps": [index - 1] if index else [],
            **node,
        }
        builder.add(values.pop("name"), values.pop("type"), **values)
    trace = builder.build()
    return apply_schedule(trace, reconstruct(trace))


def three(*lists: list[dict[str, Any]]) -> TraceSet:
    return TraceSet(tuple(build(rank, nodes) for rank, nodes in enumerate(lists)))


def test_host_time_folds_into_the_chain() -> None:
    host = {"is_cpu_op": True, "tid": 1}
    nodes = [
        {"name": "step", "type": META, "ctrl_deps": []},
        {"name": "op", **host, "duration_ns": 10_000, "ctrl_deps": []},
        {"name": "launch_latency", "gap_kind": "launch_latency", "duration_ns": 2_000},
        {"name": "gemm", "stream": 7, "duration_ns": 50_400},
        # The host goes on while the kernel runs, and holds nothing up.
        {"name": "op", **host, "duration_ns": 20_000, "ctrl_deps": [1]},
        collective(CommType.ALL_REDUCE, "world", 100, ctrl_deps=[3], stream=20),
        {"name": "copy", "type": NodeType.MEM_STORE_NODE, "stream": 7, "duration_ns": 5_000, "ctrl_deps": [5]},
    ]
    plan = plan_astra_sim(three(nodes, nodes, nodes))
    assert plan.substitutions == ()
    for trace in plan.trace_set:
        assert trace.nodes["name"].to_list() == ["host", "gemm", "n5", "copy"]
        assert trace.nodes["start_ns"].to_list() == [0, 12_000, 62_000, 67_000]
        assert trace.nodes["duration_ns"].to_list() == [12_000, 50_000, 5_000, 5_000]
    assert export(three(nodes, nodes, nodes)).run() == [72, 72, 72]


def test_unsupported_and_lonely_communications() -> None:
    kinds = [CommType.BARRIER, CommType.REDUCE, CommType.GATHER, CommType.SCATTER, CommType.REDUCE_SCATTER_BLOCK]
    all_three = [collective(kind, "world", 0 if kind == CommType.BARRIER else 6) for kind in kinds]
    all_three += [collective(CommType.ALL_GATHER, "world", 1), collective(CommType.ALL_TO_ALL, "world", 0)]
    one = [
        collective(CommType.ALL_REDUCE, "lonely", 8),
        {"type": RECV, "comm_src": 0, "comm_size": 8, "duration_ns": 2000},
    ]
    plan = plan_astra_sim(three(all_three, all_three + one, [*all_three, collective(CommType.ALL_REDUCE, "7", 8)]))
    seen = {(entry.before, entry.after, entry.reason) for entry in plan.substitutions}
    nearest = "ASTRA-sim doesn't simulate it; this is the nearest"
    small, measured = "sizes must be equal and large enough", "COMP_NODE of the measured time"
    assert seen == {
        ("BARRIER", "ALL_REDUCE", nearest),
        ("BARRIER of 0 bytes", "1 byte", small),
        ("REDUCE", "REDUCE_SCATTER", nearest),
        ("GATHER", "ALL_GATHER", nearest),
        ("SCATTER", "ALL_GATHER", nearest),
        ("REDUCE_SCATTER_BLOCK", "REDUCE_SCATTER", nearest),
        ("ALL_GATHER of 1 byte", "4 bytes", small),
        ("ALL_TO_ALL of 0 bytes", "1 byte", small),
        ("ALL_REDUCE", measured, "its group has one member"),
        ("ALL_REDUCE", measured, "not every member of its group has it"),
        ("COMM_RECV_NODE", measured, "no other rank has its counterpart"),
    }
    workload = export(three(all_three, all_three + one, [*all_three, collective(CommType.ALL_REDUCE, "7", 8)]))
    assert workload.count(7) == 21
    assert workload.run()[1] == 1 + 7 * 5 + 5 + 2


def test_unknown_sizes_keep_their_time() -> None:
    nodes = [
        {**collective(CommType.ALL_REDUCE, "world", 0), "comm_size": None},
        {"type": SEND, "comm_dst": 1, "comm_tag": 1},
    ]
    plan = plan_astra_sim(three(nodes, [nodes[0], {"type": RECV, "comm_src": 0, "comm_tag": 1}], nodes[:1]))
    assert {(entry.before, entry.reason) for entry in plan.substitutions} == {
        (before, "its size is unknown") for before in ("ALL_REDUCE", "COMM_SEND_NODE", "COMM_RECV_NODE")
    }
    assert {kind for trace in plan.trace_set for kind in trace.nodes["type"]} == {int(COMP)}


def test_messages() -> None:
    send = {"type": SEND, "comm_dst": 1, "comm_size": 10, "comm_tag": 3, "duration_ns": 4000}
    recv = {"type": RECV, "comm_src": 0, "comm_size": 10, "comm_tag": 3, "duration_ns": 4000}
    plan = plan_astra_sim(three([send, send, {**send, "comm_tag": 4}], [recv, {**recv, "comm_size": 7}], []))
    first, second, third = plan.trace_set
    assert first.nodes["type"].to_list() == [COMP, SEND, SEND, COMP]
    assert second.nodes["comm_size"].to_list() == [None, 10, 10]
    assert second.nodes["comm_tag"].to_list() == first.nodes["comm_tag"].to_list()[:3]
    assert third.nodes["name"].to_list() == ["idle"]
    assert export(three([send, send], [recv, {**recv, "comm_size": 7}], [])).run() == [9, 9, 1]


def test_calls_beside_device_communications_are_host_time() -> None:
    call = collective(CommType.ALL_REDUCE, "world", 8, is_cpu_op=True)
    kernel = collective(CommType.ALL_REDUCE, "world", 8)
    workload = export(three(*([[call, kernel]] * 3)))
    assert workload.count(7) == 3
    # On a rank without a device, the call is the communication.
    assert export(three(*([[call, {"is_cpu_op": True}]] * 3))).count(7) == 3


def test_orders_that_would_hang() -> None:
    first, second = collective(CommType.ALL_REDUCE, "world", 8), collective(CommType.ALL_REDUCE, "7", 8)
    apart = [{**second, "ctrl_deps": []}, {**first, "ctrl_deps": []}]
    workload = export(three([{**first, "ctrl_deps": []}, {**second, "ctrl_deps": []}], [first], apart))
    workload.run()
    assert workload.count(7) == 5
    # Where the traces themselves wait in a circle, the communications keep their measured time.
    plan = plan_astra_sim(three([first, second], [first], [second, first]))
    assert {entry.reason for entry in plan.substitutions} == {"ranks would wait for each other forever"}
    export(three([first, second], [first], [second, first])).run()


def test_missing_ranks_and_single_ranks() -> None:
    nodes = [collective(CommType.ALL_REDUCE, "world", 8), collective(CommType.ALL_REDUCE, "7", 8)]
    two = TraceSet((build(2, nodes), build(0, nodes)))
    plan = plan_astra_sim(two)
    assert plan.ranks == ("0", "2")
    assert [(group.name, group.ranks, group.description) for group in plan.trace_set.process_groups] == [
        ("1", (1, 0), "7")
    ]
    export(two).run()
    alone = plan_astra_sim(TraceSet((build(0, nodes),)))
    assert alone.ranks == ("0", "none")
    export(TraceSet((build(0, nodes),))).run()
    with pytest.raises(TraceError, match="got none"):
        plan_astra_sim(TraceSet(()))


def test_cycles_are_refused() -> None:
    builder = TraceBuilder(rank=0)
    builder.add("a", COMP, ctrl_deps=[1])
    builder.add("b", COMP, ctrl_deps=[0])
    with pytest.raises(TraceError, match="repair the trace first"):
        plan_astra_sim(TraceSet((builder.build(),)))


def test_folder(tmp_path: Path) -> None:
    nodes = [collective(CommType.ALL_REDUCE, "world", 8)]
    full, pair = three(nodes, nodes, nodes), TraceSet((build(0, nodes), build(1, nodes)))
    out = tmp_path / "out"
    written = export_astra_sim(full, out, system=AstraSimSystem(splits=2, bandwidth_gib_per_s=100))
    assert sorted(written) == sorted(out.iterdir())
    assert json.loads((out / "comm_group.json").read_text()) == {"1": [0, 1, 2]}
    assert "bandwidth: [ 100.0 ]" in (out / "network.yml").read_text()
    assert json.loads((out / "system.json").read_text())["preferred-dataset-splits"] == 2
    readme = (out / "README.md").read_text()
    assert "--workload-configuration=trace" in readme
    assert readme.endswith("| 1 | world | 0, 1, 2 |\n"), "nothing was replaced"
    assert not (out / "substitutions.json").exists()
    with pytest.raises(OutputError, match="expected a new or empty folder"):
        export_astra_sim(pair, out)
    (out / "notes.txt").write_text("mine")
    export_astra_sim(pair, out, force=True)
    assert sorted(path.name for path in out.glob("trace*")) == ["trace.0.et", "trace.1.et"]
    assert (out / "notes.txt").exists()
    assert not (out / "comm_group.json").exists()
    assert len(json.loads((out / "substitutions.json").read_text())) == 2
    readme = (out / "README.md").read_text()
    assert "group here" not in readme
    assert "2 replacements, listed in `substitutions.json`" in readme
    assert readme.endswith("| COMP_NODE of the measured time | not every member of its group has it | 2 |\n")
    export_astra_sim(full, out, force=True)
    assert not (out / "substitutions.json").exists()
    with pytest.raises(OutputError, match="got a file"):
        export_astra_sim(pair, out / "notes.txt")


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail(trace: Trace, path: Path) -> None:
        raise TraceError("no")

    nodes = [collective(CommType.ALL_REDUCE, "world", 8)]
    with pytest.raises(TraceError):
        export_astra_sim(three(nodes, nodes, nodes), tmp_path / "out", write=fail)
    assert list((tmp_path / "out").iterdir()) == []


@st.composite
def chains(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One rank's nodes: any graph of host operators, kernels and gaps; communications one after the other."""
    nodes: list[dict[str, Any]] = []
    last = -1
    for index in range(draw(st.integers(1, 14))):
        deps = draw(st.lists(st.integers(0, index - 1), max_size=3)) if index else []
        kind = draw(st.sampled_from(["host", "kernel", "kernel", "gap", "comm"]))
        node: dict[str, Any] = {"duration_ns": draw(st.integers(0, 9000)), "ctrl_deps": deps}
        if kind == "comm":
            node = {**collective(CommType.ALL_REDUCE, "world", 64), **node}
            node["sync_deps"], last = [last] if last >= 0 else [], index
        nodes.append({**node, "is_cpu_op": kind == "host", **({"gap_kind": "unexplained"} if kind == "gap" else {})})
    return nodes


@given(chains())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_ranks_in_step_take_the_time_that_they_took(nodes: list[dict[str, Any]]) -> None:
    trace_set = three(nodes, nodes, nodes)
    makespan = reconstruct(trace_set.traces[0]).makespan_ns
    workload = export(trace_set)
    ends = workload.run()
    late = any(node.deps == {0} and node.type == 7 for node in workload.nodes[0])
    assert len(set(ends)) == 1
    if ends != [1, 1, 1]:
        assert (makespan + 500) // 1000 in ((ends[0], ends[0] - 1) if late else (ends[0],))


KINDS = st.sampled_from(list(CommType))


@given(st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_set_follows_the_rules_and_ends(data: st.DataObject) -> None:
    lists: list[list[dict[str, Any]]] = [[], [], []]
    # What the ranks do together, in one order, with a chance to be missing somewhere.
    for number in range(data.draw(st.integers(0, 6))):
        what = data.draw(st.sampled_from(["world", "7", "lonely", "message"]))
        if what == "message":
            src, dst = data.draw(st.permutations([0, 1, 2]))[:2]
            tag, size = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 9))
            pair = [
                (src, {"type": SEND, "comm_dst": dst, "comm_tag": tag, "comm_size": size}),
                (dst, {"type": RECV, "comm_src": src, "comm_tag": tag, "comm_size": data.draw(st.integers(0, 9))}),
            ]
        else:
            kind, size = data.draw(KINDS), data.draw(st.integers(0, 9))
            members = {"world": (0, 1, 2), "7": (2, 0), "lonely": (1,)}[what]
            pair = [(rank, collective(kind, what, size, comm_seq=number)) for rank in members]
        for rank, node in pair:
            if data.draw(st.integers(0, 9)):
                lists[rank].append(node)
    for nodes in lists:
        for index in range(len(nodes), -1, -1):
            extra = {"is_cpu_op": data.draw(st.booleans()), "stream": 1}
            if data.draw(st.booleans()):
                nodes.insert(index, {**extra, "type": data.draw(st.sampled_from([COMP, META, NodeType.MEM_LOAD_NODE]))})
        for index, node in enumerate(nodes):
            node["duration_ns"] = data.draw(st.integers(0, 6000))
            if index and data.draw(st.booleans()):
                node["ctrl_deps"] = data.draw(st.lists(st.integers(0, index - 1), max_size=2))
    trace_set = three(*lists)
    export(trace_set).run()
    report = validate(plan_astra_sim(trace_set).trace_set, target="astra-sim")
    assert [finding for finding in report.findings if finding.severity != "info"] == []


def test_time_grows_linearly() -> None:
    def run(count: int) -> float:
        traces = []
        for rank in (0, 1):
            builder = TraceBuilder(rank=rank, process_groups=[ProcessGroup("1", (0, 1), 2)])
            for node in range(count):
                host = node % 3 == 0
                communicates = node % 50 == 49
                columns = (
                    collective(CommType.ALL_REDUCE, "1", 64) if communicates else {"type": COMP, "duration_ns": 2000}
                )
                deps = [max(node - 1 - node % 4, 0)] if node else []
                builder.add("n", columns.pop("type"), is_cpu_op=host and not communicates, ctrl_deps=deps, **columns)
            traces.append(builder.build())
        begin = time.process_time()
        plan_astra_sim(TraceSet(tuple(traces)))
        return time.process_time() - begin

    run(100)
    assert run(50_000) < 40 * max(run(5_000), 0.02)
