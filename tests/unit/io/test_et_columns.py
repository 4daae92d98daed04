"""What an `.et` file's fields and attributes become, and where our own traces write their columns."""

import pytest

from chakra_et.errors import TraceError
from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.io.et import et_chunks, parse_et
from chakra_et.ir import NodeType, ProcessGroup, TraceBuilder
from tests.unit.io.messages import file_of, messages_of, read_nodes, written


def node(*, ident=1, name="op", **fields):
    return proto.Node(id=ident, name=name, type=proto.COMP_NODE, **fields)


def attribute(name, **value):
    return proto.AttributeProto(name=name, **value)


NUMERIC = {
    "double_val": 7.0,
    "float_val": 7.0,
    "int32_val": 7,
    "int64_val": 7,
    "uint32_val": 7,
    "uint64_val": 7,
    "sint32_val": 7,
    "sint64_val": 7,
    "fixed32_val": 7,
    "fixed64_val": 7,
    "sfixed32_val": 7,
    "sfixed64_val": 7,
}


@pytest.mark.parametrize("kind", NUMERIC)
@pytest.mark.parametrize("column", ["comm_size", "comm_src", "tensor_size"])
def test_a_numeric_column_takes_any_numeric_kind(column, kind):
    before = node(attr=[attribute(column, **{kind: NUMERIC[kind]})])
    trace = read_nodes(before)
    assert trace.nodes[column].to_list() == [7]
    assert written(trace)[1] == before


@pytest.mark.parametrize(
    ("kind", "value"), [("int32_val", -3), ("sint32_val", -3), ("sint64_val", -(2**60)), ("sfixed32_val", -3)]
)
def test_negative_numbers(kind, value):
    trace = read_nodes(node(attr=[attribute("comm_tag", **{kind: value})]))
    assert trace.nodes["comm_tag"].to_list() == [value]


@pytest.mark.parametrize(("kind", "value"), [("double_val", 1.5), ("uint64_val", 2**63), ("string_val", "7")])
def test_what_a_number_column_cannot_hold_stays_an_attribute(kind, value):
    before = node(attr=[attribute("comm_size", **{kind: value})])
    trace = read_nodes(before)
    assert "comm_size" not in trace.nodes.columns
    assert written(trace)[1] == before


def test_unsigned_columns_take_the_upper_half():
    trace = read_nodes(node(attr=[attribute("tensor_size", uint64_val=2**64 - 1)]))
    assert trace.nodes["tensor_size"].to_list() == [2**64 - 1]


@pytest.mark.parametrize("value", [{"bool_val": True}, {"int64_val": 1}, {"uint32_val": 5}])
def test_is_cpu_op_may_be_a_number(value):
    before = node(attr=[attribute("is_cpu_op", **value)])
    trace = read_nodes(before)
    assert trace.nodes["is_cpu_op"].to_list() == [True]
    assert written(trace)[1] == before


def test_microseconds_become_nanoseconds():
    before = [node(start_time_micros=5, duration_micros=3), node(ident=2)]
    trace = read_nodes(*before)
    assert trace.nodes["start_ns"].to_list() == [5000, None]
    assert trace.nodes["duration_ns"].to_list() == [3000, 0]
    assert written(trace)[1:] == before


def test_nanosecond_attributes_win_over_microseconds():
    attr = [attribute("start_time_ns", int64_val=5432), attribute("duration_ns", int64_val=999)]
    before = node(start_time_micros=5, duration_micros=7, attr=attr)
    trace = read_nodes(before)
    assert trace.nodes["start_ns"].to_list() == [5432]
    assert trace.nodes["duration_ns"].to_list() == [999]
    assert written(trace)[1] == before


def test_packed_and_unpacked_ids_are_the_same():
    packed = node(ctrl_deps=[3, 300], data_deps=[2**64 - 1]).SerializeToString()
    unpacked = node().SerializeToString() + b"\x20\x03\x20\xac\x02\x28" + b"\xff" * 9 + b"\x01"
    for raw in (packed, unpacked):
        trace = read_nodes(raw)
        assert trace.nodes["ctrl_deps"].to_list() == [[3, 300]]
        assert trace.nodes["data_deps"].to_list() == [[2**64 - 1]]


def test_absent_and_empty_io_differ():
    before = [node(), node(inputs=proto.IOInfo()), node(inputs=proto.IOInfo(values="[1]"))]
    trace = read_nodes(*before)
    empty = {"values": "", "shapes": "", "types": ""}
    assert trace.nodes["inputs"].to_list() == [None, empty, {**empty, "values": "[1]"}]
    assert written(trace)[1:] == before


def test_a_foreign_trace_keeps_its_two_lists():
    attr = [attribute("sync_deps", uint64_list=proto.Uint64List(values=[9]))]
    before = node(ctrl_deps=[1, 1], data_deps=[7, 3], attr=attr)
    trace = read_nodes(before)
    assert not trace.metadata.typed_edges
    assert trace.nodes.select("ctrl_deps", "data_deps", "sync_deps").rows() == [([1, 1], [7, 3], [9])]
    assert written(trace)[1] == before


def own_trace():
    builder = TraceBuilder(rank=0, world_size=2, process_groups=[ProcessGroup("0", (0, 1), 2)])
    for ident in range(4):
        builder.add(f"op{ident}", NodeType.COMP_NODE, start_ns=1500, duration_ns=499)
    builder.add("last", NodeType.COMP_NODE, ctrl_deps=[2], data_deps=[3, 1], sync_deps=[2, 0], duration_ns=500)
    return builder.build()


def test_own_data_deps_hold_every_edge():
    last = written(own_trace())[-1]
    assert list(last.data_deps) == [0, 1, 2, 3]
    assert list(last.ctrl_deps) == [2]
    assert [(entry.name, list(entry.uint64_list.values)) for entry in last.attr[:2]] == [
        ("sync_deps", [2, 0]),
        ("tensor_deps", [3, 1]),
    ]


def test_own_times_are_rounded_and_kept():
    first, last = written(own_trace())[1], written(own_trace())[-1]
    assert (first.start_time_micros, first.duration_micros, last.duration_micros) == (2, 0, 1)
    values = {entry.name: entry.int64_val for entry in first.attr}
    assert (values["start_time_ns"], values["duration_ns"]) == (1500, 499)


def test_own_edges_come_back_by_kind():
    back = parse_et(b"".join(et_chunks(own_trace())), "x")
    assert back.metadata.typed_edges
    assert back.nodes.row(4, named=True)["data_deps"] == [3, 1]
    assert back.nodes.row(4, named=True)["sync_deps"] == [2, 0]


def test_own_traces_changed_by_another_tool_are_read_as_foreign():
    metadata, *nodes = messages_of(b"".join(et_chunks(own_trace())))
    nodes[-1].data_deps.append(77)
    trace = parse_et(file_of(metadata, *nodes), "x")
    assert not trace.metadata.typed_edges
    assert trace.nodes["data_deps"].to_list()[-1] == [0, 1, 2, 3, 77]
    assert written(trace) == [metadata, *nodes]


def test_long_lists_and_names_survive():
    builder = TraceBuilder(rank=0)
    builder.add("first" * 20_000, NodeType.COMP_NODE)
    builder.add("x", NodeType.COMP_NODE, data_deps=list(range(50_000, 0, -1)), sync_deps=list(range(70_000)))
    trace = builder.build()
    back = parse_et(b"".join(et_chunks(trace)), "x")
    assert back.nodes.equals(trace.nodes)


def test_rows_grow_where_late_nodes_are_large():
    builder = TraceBuilder(rank=0)
    for index in range(300):
        builder.add("n" * (index if index < 250 else 5000), NodeType.COMP_NODE, sync_deps=list(range(index)))
    trace = builder.build()
    assert parse_et(b"".join(et_chunks(trace)), "x").nodes.equals(trace.nodes)


def test_a_value_that_its_kind_cannot_hold_is_named():
    builder = TraceBuilder(rank=3)
    builder.add("send", NodeType.COMM_SEND_NODE, comm_dst=2**40)
    with pytest.raises(TraceError, match=r"rank 3: node 0 \('send'\): comm_dst: expected a value that int32 holds"):
        list(et_chunks(builder.build()))


def test_a_blob_that_is_no_node_is_named():
    builder = TraceBuilder(rank=3)
    builder.add("x", NodeType.COMP_NODE, attr=b"\xff\xff")
    with pytest.raises(TraceError, match=r"rank 3: node 0 \('x'\): attr"):
        list(et_chunks(builder.build()))
