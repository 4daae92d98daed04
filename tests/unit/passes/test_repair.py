"""Repairs are complete, minimal, and touch nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import networkx as nx
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir import NodeType, Trace, TraceBuilder, build_graph
from chakra_et.passes.reconstruct import reconstruct
from chakra_et.passes.repair import Change, repair

COMP = NodeType.COMP_NODE


def build(*nodes: dict[str, object]) -> Trace:
    builder = TraceBuilder(rank=2)
    for node in nodes:
        values = dict(node)
        builder.add(str(values.pop("name", "n")), NodeType(values.pop("type", COMP)), **values)
    return builder.build()


def test_a_good_trace_is_returned_as_it_is() -> None:
    trace = build({"duration_ns": 4}, {"ctrl_deps": [0, 0], "sync_deps": [0]})
    fixed, changes = repair(trace)
    assert changes == ()
    assert fixed.nodes.equals(trace.nodes)


def test_dangling_and_self_edges_go_and_the_rest_keeps_its_order() -> None:
    trace = build({"data_deps": [0]}, {"ctrl_deps": [2, 77, 0, 1]}, {"ctrl_deps": [0]})
    fixed, changes = repair(trace)
    assert fixed.nodes["ctrl_deps"].to_list() == [[], [2, 0], [0]]
    assert fixed.nodes["data_deps"].to_list() == [[], [], []]
    assert set(changes) == {
        Change("edge-dangling", 1, "ctrl_deps", "77", "removed"),
        Change("edge-self", 1, "ctrl_deps", "1", "removed"),
        Change("edge-self", 0, "data_deps", "0", "removed"),
    }


def test_duplicate_ids_are_renumbered_and_edges_mean_the_first() -> None:
    fixed, changes = repair(build({"id": 4}, {"id": 4, "ctrl_deps": [4]}, {"id": 9, "ctrl_deps": [4]}))
    assert fixed.nodes["id"].to_list() == [4, 10, 9]
    assert fixed.nodes["ctrl_deps"].to_list() == [[], [4], [4]]
    assert changes == (Change("id-unique", 10, "id", "4", "10"),)


def test_the_least_certain_edge_of_a_cycle_goes() -> None:
    # 0 -data-> 1 -sync-> 2 -ctrl-> 0: the control edge goes.
    fixed, changes = repair(build({"ctrl_deps": [2]}, {"data_deps": [0]}, {"sync_deps": [1]}))
    assert changes == (Change("edge-cycle", 0, "ctrl_deps", "2", "removed"),)
    # Two control edges: the one that contradicts the times goes.
    late = build({"start_ns": 50, "ctrl_deps": [1]}, {"start_ns": 60, "ctrl_deps": [0]})
    assert repair(late)[1] == (Change("edge-cycle", 0, "ctrl_deps", "1", "removed"),)
    # An edge that was only inferred is the first to go.
    guess = build({"sync_deps": [1], "inferred": True}, {"ctrl_deps": [0]})
    assert repair(guess)[1] == (Change("edge-cycle", 0, "sync_deps", "1", "removed"),)
    # An edge is as certain as the best list that has it, and goes from all of them.
    both = build({"ctrl_deps": [1], "data_deps": [1]}, {"ctrl_deps": [0]})
    assert repair(both)[1] == (Change("edge-cycle", 1, "ctrl_deps", "0", "removed"),)
    assert repair(fixed)[1] == ()


def test_missing_types_are_inferred() -> None:
    bad = NodeType.INVALID_NODE
    fixed, changes = repair(
        build(
            {"type": bad, "comm_type": 0, "comm_size": 8},
            {"type": bad, "comm_dst": 1, "comm_size": 8},
            {"type": bad, "comm_src": 1, "comm_size": 8},
            {"type": bad, "comm_src": 2, "comm_dst": 1},
            {"type": bad, "comm_src": 1, "comm_dst": 2},
            {"type": bad, "name": "Memcpy HtoD (Pinned -> Device)"},
            {"type": bad, "copy_kind": "DtoH"},
            {"type": bad, "name": "aten::mm"},
            {"type": NodeType.METADATA_NODE},
        )
    )
    peers = ["COMM_SEND", "COMM_RECV"]
    names = ["COMM_COLL", *peers, *peers, "MEM_LOAD", "MEM_STORE", "COMP", "METADATA"]
    assert [NodeType(number).name for number in fixed.nodes["type"]] == [f"{name}_NODE" for name in names]
    assert changes[0] == Change("type-invalid", 0, "type", "INVALID_NODE", "COMM_COLL_NODE")
    assert len(changes) == 8


def test_host_communications() -> None:
    call = {"name": "c10d::allreduce_", "type": NodeType.COMM_COLL_NODE, "is_cpu_op": True, "comm_type": 0}
    kernel = {"name": "nccl", "type": NodeType.COMM_COLL_NODE, "comm_type": 0}
    # Beside the kernel, the call is compute.
    assert repair(build(call, kernel))[1] == (Change("comm-cpu", 0, "type", "COMM_COLL_NODE", "COMP_NODE"),)
    # Alone among kernels, it is the communication.
    assert repair(build(call, {"name": "gemm"}))[1] == (Change("comm-cpu", 0, "is_cpu_op", "true", "false"),)
    # A rank without a device communicates on its host.
    assert repair(build(call, {"name": "aten::mm", "is_cpu_op": True}))[1] == ()


@given(st.integers(2, 12), st.data())
@settings(max_examples=200, deadline=None)
def test_refused_edges_are_minimal(count: int, data: st.DataObject) -> None:
    ids = st.integers(0, count - 1)
    nodes = []
    for _ in range(count):
        lists = {name: data.draw(st.lists(ids, max_size=2)) for name in ("ctrl_deps", "data_deps", "sync_deps")}
        nodes.append({**lists, "start_ns": data.draw(st.integers(0, 5))})
    fixed, changes = repair(build(*nodes))
    assert reconstruct(fixed).unscheduled == 0
    kept = nx.DiGraph()
    kept.add_nodes_from(range(count))
    graph = build_graph(fixed)
    assert len(graph.self_edges) == 0
    for node in range(count):
        kept.add_edges_from((int(dep), node) for dep in graph.preds[graph.indptr[node] : graph.indptr[node + 1]])
    for change in changes:
        if change.rule == "edge-cycle":
            # Put back, the edge would close a cycle again.
            assert nx.has_path(kept, change.node, int(change.before))
    removed = Counter((change.what, change.node, int(change.before)) for change in changes)
    for name in ("ctrl_deps", "data_deps", "sync_deps"):
        for node, before in enumerate(nodes):
            after = fixed.nodes[name].to_list()[node]
            assert Counter(before[name]) - Counter(after) == Counter(
                {dep: times for (what, where, dep), times in removed.items() if (what, where) == (name, node)}
            )


def test_public_sample_comes_out_valid(repository: Path) -> None:
    path = repository.parent / "shared" / "traces" / "chakra-et" / "resnet_et.tar.gz"
    if not path.exists():
        pytest.skip("the folder of real profiles is absent")
    trace = read_sample(path)
    fixed, changes = repair(trace)
    assert Counter(change.rule for change in changes) == {
        "edge-dangling": 1277,
        "edge-self": 383,
        "edge-cycle": 554,
        "comm-cpu": 14,
    }
    assert {change.what for change in changes} == {"ctrl_deps", "type"}
    assert len(fixed) == 3664
    assert reconstruct(fixed).unscheduled == 0
    assert fixed.nodes.drop("ctrl_deps", "type").equals(trace.nodes.drop("ctrl_deps", "type"))
    assert (fixed.nodes["type"] == int(NodeType.COMM_COLL_NODE)).sum() == 7
    assert repair(fixed)[1] == ()


def read_sample(path: Path) -> Trace:
    """Read the sample's ids, types and dependencies with a parser of a few lines."""
    import tarfile

    with tarfile.open(path) as archive:
        member = archive.extractfile(archive.getmembers()[0])
        assert member is not None
        data = member.read()
    rows = []
    for message in list(messages(data))[1:]:
        row: dict[str, object] = {"id": 0, "name": "", "type": 0, "ctrl_deps": [], "data_deps": [], "is_cpu_op": False}
        for field, value in fields(message):
            if field in (1, 3):
                row["id" if field == 1 else "type"] = value
            elif field == 2:
                row["name"] = value.decode()
            elif field in (4, 5):
                row["ctrl_deps" if field == 4 else "data_deps"] = numbers(value)
            elif field == 10:
                parts = dict(fields(value))
                if parts[1] == b"is_cpu_op":
                    row["is_cpu_op"] = bool(parts.get(27, 0))
        rows.append({**row, "sync_deps": [], "start_ns": None, "duration_ns": 0})
    table = pl.DataFrame(rows, schema=build({"name": "x"}).nodes.schema)
    return Trace(table)


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def messages(data: bytes):
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        yield data[at : at + size]
        at += size


def fields(data: bytes):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        else:
            size, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            yield key >> 3, data[at : at + size]
            at += size


def numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found
