"""`GlobalMetadata`: our own, that of others, and files without any."""

import json
from dataclasses import replace

import pytest

from chakra_et.errors import TraceError
from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.io.et import delimited, et_chunks, parse_et
from chakra_et.ir import NodeType, ProcessGroup, TraceBuilder
from tests.unit.io.messages import file_of, messages_of, read_nodes, written

GROUP = ProcessGroup("0", (0, 1), 2, "default_pg", "cuda:nccl")
NODE = proto.Node(id=5, name="op", type=4)


def own(**changes):
    builder = TraceBuilder(rank=1, world_size=2, family="collected", process_groups=[GROUP])
    builder.add("op", NodeType.COMP_NODE)
    trace = builder.build()
    return replace(trace, metadata=replace(trace.metadata, **changes))


def attributes(message):
    return {entry.name: getattr(entry, entry.WhichOneof("value")) for entry in message.attr}


def test_own_metadata():
    message = written(own(sources=({"path": "x.json", "events": 3},)))[0]
    found = attributes(message)
    assert message.version == "1.0.0"
    assert (found["rank"], found["world_size"], found["trace_family"]) == (1, 2, "collected")
    assert json.loads(found["process_groups"]) == [GROUP.as_dict()]
    assert json.loads(found["sources"]) == [{"path": "x.json", "events": 3}]


def test_the_family_is_written_even_if_unknown():
    assert attributes(written(own(family=""))[0])["trace_family"] == ""


def test_own_metadata_with_more_in_it_keeps_it():
    metadata, node = written(own())
    metadata.attr.add(name="note", string_val="hello")
    trace = parse_et(file_of(metadata, node), "x")
    assert trace.metadata.typed_edges
    assert trace.process_groups == (GROUP,)
    assert written(trace) == [metadata, node]
    moved = replace(trace, metadata=replace(trace.metadata, rank=7))
    found = attributes(written(moved)[0])
    assert (found["rank"], found["note"]) == (7, "hello")


def test_foreign_metadata_is_kept():
    metadata = proto.GlobalMetadata(version="0.0.4")
    metadata.attr.add(name="schema", string_val="1.0.1")
    metadata.attr.add(name="pid", uint64_val=5, doc_string="process")
    trace = read_nodes(NODE, metadata=metadata, path="dir/trace.12.et")
    assert (trace.rank, trace.metadata.version, trace.metadata.typed_edges) == (12, "0.0.4", False)
    assert written(trace) == [metadata, NODE]


def test_foreign_attributes_of_ours_are_updated_in_place():
    metadata = proto.GlobalMetadata()
    metadata.attr.add(name="rank", int32_val=3)
    metadata.attr.add(name="world_size", uint64_val=4)
    trace = read_nodes(NODE, metadata=metadata)
    assert (trace.rank, trace.metadata.world_size) == (3, 4)
    assert written(trace)[0] == metadata
    changed = replace(trace, metadata=replace(trace.metadata, rank=2, world_size=None))
    assert attributes(written(changed)[0]) == {"rank": 2}


def test_an_adopted_trace_gets_all_of_ours():
    metadata = proto.GlobalMetadata(version="0.0.4")
    metadata.attr.add(name="schema", string_val="1.0.1")
    trace = read_nodes(NODE, metadata=metadata, path="trace.2.et")
    adopted = replace(trace, metadata=replace(trace.metadata, typed_edges=True, family="collected"))
    found = attributes(written(adopted)[0])
    assert found["schema"] == "1.0.1"
    assert (found["rank"], found["trace_family"]) == (2, "collected")
    assert parse_et(b"".join(et_chunks(adopted)), "x").metadata.typed_edges


def test_an_empty_metadata_message_stays():
    trace = read_nodes(NODE, metadata=proto.GlobalMetadata())
    assert len(trace) == 1
    assert written(trace) == [proto.GlobalMetadata(), NODE]


FIRST_NODES = {
    "id": proto.Node(id=1, name="op"),
    "type without id": proto.Node(name="op", type=4),
    "name that looks like nothing": proto.Node(name="op"),
    "attribute without id": proto.Node(attr=[proto.AttributeProto(name="tid", int64_val=3)]),
}


@pytest.mark.parametrize("node", FIRST_NODES.values(), ids=FIRST_NODES.keys())
def test_a_file_without_metadata(node):
    trace = parse_et(file_of(node, NODE), "trace.4.et")
    assert (len(trace), trace.rank) == (2, 4)
    assert written(trace) == [proto.GlobalMetadata(version="1.0.0"), node, NODE]


FIRST_METADATA = {
    "version": proto.GlobalMetadata(version="1"),
    "one attribute": proto.GlobalMetadata(attr=[proto.AttributeProto(name="schema", string_val="x")]),
    "two attributes": proto.GlobalMetadata(attr=[proto.AttributeProto(name="a"), proto.AttributeProto(name="b")]),
}


@pytest.mark.parametrize("metadata", FIRST_METADATA.values(), ids=FIRST_METADATA.keys())
def test_metadata_is_told_from_a_node(metadata):
    assert written(read_nodes(NODE, metadata=metadata)) == [metadata, NODE]


def test_a_file_of_metadata_alone():
    trace = parse_et(delimited(b"\x0a\x051.0.0"), "trace.0.et")
    assert len(trace) == 0
    assert len(messages_of(b"".join(et_chunks(trace)))) == 1


GROUPS = '[{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [0, 1], "group_size": 2}]'


@pytest.mark.parametrize("values", [str([GROUPS]), json.dumps([GROUPS]), GROUPS])
def test_groups_from_init_nodes(values):
    node = proto.Node(id=1, name="## process_group:init ##", type=1, inputs=proto.IOInfo(values=values))
    trace = read_nodes(node)
    assert trace.process_groups == (GROUP,)
    assert written(trace)[1] == node


@pytest.mark.parametrize("values", ["", "[", "['[{]']", "5", "[5]", "[" * 5000, '[["{}"]]', '[{"ranks": ["x"]}]'])
def test_groups_that_cannot_be_parsed_are_none(values):
    node = proto.Node(id=1, name="## process_group:init ##", type=1, inputs=proto.IOInfo(values=values))
    assert read_nodes(node).process_groups == ()


def test_groups_from_an_attribute_that_is_no_list():
    metadata = proto.GlobalMetadata()
    metadata.attr.add(name="process_groups", string_val="{}")
    trace = read_nodes(NODE, metadata=metadata)
    assert trace.process_groups == ()
    assert written(trace)[0] == metadata


def test_sources_that_json_cannot_hold_are_refused():
    with pytest.raises(TraceError, match=r"metadata\.sources"):
        list(et_chunks(own(sources=({"x": object()},))))


def test_raw_that_is_no_metadata_is_refused():
    with pytest.raises(TraceError, match=r"metadata\.raw"):
        list(et_chunks(own(raw=b"\xff")))


def test_the_messages_stay_out_of_the_default_pool():
    from google.protobuf import descriptor_pool

    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("ChakraProtoMsg.Node")
