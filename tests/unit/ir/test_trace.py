"""Traces, trace sets, groups and the builder as values."""

import polars as pl
import pytest

from chakra_et.errors import TraceError
from chakra_et.ir import COLUMNS, CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceMetadata, TraceSet
from chakra_et.ir.columns import CORE_COLUMNS, SCHEMA, empty_nodes
from chakra_et.ir.process_group import groups_of


def trace_of_rank(rank, world_size=None):
    builder = TraceBuilder(rank=rank, world_size=world_size)
    builder.add("n", NodeType.COMP_NODE)
    return builder.build()


def test_builder_counts_ids_and_leaves_out_unused_columns():
    builder = TraceBuilder(rank=3, world_size=4, family="collected", process_groups=[ProcessGroup("0", (0, 3), 2)])
    first = builder.add("a", NodeType.COMP_NODE, duration_ns=5, is_cpu_op=True)
    second = builder.add("b", NodeType.COMM_COLL_NODE, sync_deps=[first], comm_type=int(CommType.ALL_GATHER))
    third = builder.add("c", NodeType.COMP_NODE, id=40)
    trace = builder.build()
    assert (first, second, third) == (0, 1, 40)
    assert set(trace.nodes.columns) == {column.name for column in CORE_COLUMNS} | {"comm_type"}
    assert trace.nodes["sync_deps"].to_list() == [[], [0], []]
    assert trace.nodes["start_ns"].to_list() == [None] * 3
    assert (trace.rank, trace.metadata.world_size, trace.metadata.family) == (3, 4, "collected")
    assert trace.process_groups[0].ranks == (0, 3)


def test_builder_refuses_unknown_columns():
    with pytest.raises(TraceError, match=r"node 'a': unknown columns wrong; see chakra_et\.ir\.columns"):
        TraceBuilder().add("a", NodeType.COMP_NODE, wrong=1)


def test_columns_are_declared_once_and_typed():
    names = [column.name for column in COLUMNS]
    assert len(names) == len(set(names))
    assert all(column.meaning.endswith((".", ")")) for column in COLUMNS)
    assert Trace(empty_nodes()).nodes.schema == {c.name: c.dtype for c in CORE_COLUMNS}


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (empty_nodes().drop("id"), "expected the core columns, got none named id"),
        (empty_nodes().cast({"duration_ns": pl.Int32}), r"wrong column types: duration_ns Int32 \(expected Int64\)"),
        (empty_nodes().with_columns(odd=pl.lit(1)), "unknown columns odd"),
    ],
)
def test_wrong_node_tables_are_refused(nodes, message):
    with pytest.raises(TraceError, match=message):
        Trace(nodes)


def test_missing_columns_read_as_null():
    trace = trace_of_rank(0)
    assert trace.column("stream").to_list() == [None]
    assert trace.column("stream").dtype == SCHEMA["stream"]
    assert trace.integers("stream").tolist() == [-1]
    assert trace.integers("stream", 7).tolist() == [7]
    assert trace.integers("duration_ns").tolist() == [0]
    assert Trace(empty_nodes()).column("stream").to_list() == []


def test_changes_make_new_traces():
    trace = trace_of_rank(0)
    longer = trace.with_columns([pl.Series("duration_ns", [9])])
    assert (trace.integers("duration_ns").tolist(), longer.integers("duration_ns").tolist()) == ([0], [9])
    assert longer.metadata is trace.metadata
    assert len(trace.with_nodes(empty_nodes())) == 0


def test_trace_sets_are_in_rank_order_of_their_making():
    traces = TraceSet((trace_of_rank(2), trace_of_rank(5, world_size=16)))
    assert traces.ranks == (2, 5)
    assert traces.world_size == 16
    assert traces.trace(5).rank == 5
    assert [trace.rank for trace in traces] == [2, 5]
    assert len(traces) == 2
    assert traces.map(lambda trace: trace.with_nodes(empty_nodes())).trace(2).nodes.height == 0


def test_traces_without_a_rank_count_by_position():
    assert TraceSet((trace_of_rank(None), trace_of_rank(None))).ranks == (0, 1)
    assert TraceSet((trace_of_rank(None), trace_of_rank(9))).world_size == 10


def test_a_rank_stands_once():
    with pytest.raises(TraceError, match="expected one trace a rank, got several for rank 1"):
        TraceSet((trace_of_rank(1), trace_of_rank(0), trace_of_rank(1)))
    with pytest.raises(TraceError, match=r"expected one of the ranks \[0\], got 4"):
        TraceSet((trace_of_rank(0),)).trace(4)


def test_groups_read_what_pytorch_writes():
    record = {"pg_name": 7, "pg_desc": "dp", "backend_config": "cuda:nccl", "ranks": [2, 0], "pg_size": 2}
    group = ProcessGroup.from_dict(record)
    assert group == ProcessGroup("7", (2, 0), 2, "dp", "cuda:nccl")
    assert ProcessGroup.from_dict(group.as_dict()) == group
    assert ProcessGroup.from_dict({"pg_name": "0", "ranks": [], "group_size": 8}).size == 8
    assert ProcessGroup.from_dict({"pg_name": "0", "ranks": [1, 2], "group_size": "?"}).size == 2
    assert ProcessGroup.from_dict({}) == ProcessGroup("", (), 0)


def test_one_name_may_stand_for_several_groups():
    groups = [ProcessGroup("tp", (), 2), ProcessGroup("tp", (0, 1), 2), ProcessGroup("tp", (2, 3), 2)]
    assert groups_of(0, groups)["tp"].ranks == (0, 1)
    assert groups_of(3, groups)["tp"].ranks == (2, 3)
    assert groups_of(9, groups)["tp"].ranks == (0, 1)


def test_metadata_says_little_by_default():
    assert TraceMetadata() == TraceMetadata("1.0.0", None, None, "", True, (), b"")
