"""The JSON dialects."""

import json

import pytest
from google.protobuf import json_format

from chakra_et.errors import FormatError, TraceError
from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.io.json import json_chunks, parse_json
from chakra_et.ir import NodeType, TraceBuilder
from tests.unit.io.messages import written


def text_of(*messages):
    """Return what the public jsonizer writes."""
    return "".join(json_format.MessageToJson(message) for message in messages).encode()


METADATA = proto.GlobalMetadata(version="1.0.0")
NODE = proto.Node(id=2**63, name="op \u2713", type=7, data_deps=[1, 2**64 - 1], duration_micros=5)
NODE.attr.add(name="comm_type", int64_val=2)
NODE.attr.add(name="x", double_val=float("inf"), doc_string="d")
NODE.attr.add(name="y", bytes_list=proto.BytesList(values=[b"\xff", b""]))


@pytest.mark.parametrize("separator", ["", "\n", "  \n\n"])
def test_protobuf_json(separator):
    text = separator.join(json_format.MessageToJson(message) for message in (METADATA, NODE, proto.Node()))
    trace = parse_json(text.encode(), "dir/x.3.json")
    assert trace.rank == 3
    assert trace.nodes["id"].to_list() == [2**63, 0]
    assert trace.nodes["comm_type"].to_list() == [2, None]
    assert written(trace) == [METADATA, NODE, proto.Node()]
    assert b"".join(json_chunks(trace)) == text_of(METADATA, NODE, proto.Node())


def test_without_metadata():
    assert written(parse_json(text_of(NODE), "x.json")) == [METADATA, NODE]


def test_metadata_whose_one_attribute_could_be_a_node():
    metadata = proto.GlobalMetadata(attr=[proto.AttributeProto(name="x")])
    assert written(parse_json(text_of(metadata, NODE), "x.json")) == [metadata, NODE]


def test_a_byte_order_mark_and_unknown_keys():
    text = b"\xef\xbb\xbf" + text_of(METADATA) + b'{"id": "4", "storage": {"level": 1}}'
    assert parse_json(text, "x.json").nodes["id"].to_list() == [4]


WORKLOAD = {
    "workload_graph": [
        {"Id": 216, "Name": "a", "NodeType": 4, "ctrlDeps": [3], "data_deps": [], "runtime": 318, "is_cpu_op": True},
        {
            "Id": 435,
            "Name": "ncclKernel",
            "NodeType": 7,
            "data_deps": [216],
            "runtime": 28,
            "is_cpu_op": False,
            "tensor_size": 10,
            "comm_type": 2,
            "comm_priority": 1,
            "comm_size": 64,
            "comm_src": 0,
            "comm_dst": 1,
            "comm_tag": 5,
            "note": [1],
        },
    ]
}


def test_workload_graph():
    trace = parse_json(json.dumps(WORKLOAD).encode(), "chakra.0.json")
    assert not trace.metadata.typed_edges
    assert trace.rank == 0
    first, second = trace.nodes.rows(named=True)
    assert (first["id"], first["ctrl_deps"], first["duration_ns"], first["is_cpu_op"]) == (216, [3], 318_000, True)
    wanted = {"type": 7, "data_deps": [216], "tensor_size": 10, "comm_size": 64, "comm_dst": 1, "comm_priority": 1}
    assert {key: second[key] for key in wanted} == wanted
    assert [entry.string_val for entry in written(trace)[2].attr if entry.name == "note"] == ["[1]"]


BAD = {
    "no JSON": (b"hello", "character 0: expected a JSON object"),
    "a list": (b"[1]", "character 0: expected a JSON object, got list"),
    "truncated": (text_of(METADATA, NODE)[:-4], "character 24: expected a JSON object"),
    "nested too deep": (b'{"a":' * 200_000, "character 0: expected a JSON object"),
    "not UTF-8": (b'{"version": "\xff"}', "byte 13: expected UTF-8 text"),
    "only spaces": (b"  \n", "expected a Chakra trace as JSON, got an empty file"),
    "a profile": (b'{"traceEvents": []}', r"got a profile \(traceEvents\); run `chakra convert`"),
    "a PyTorch trace": (b'{"schema": "1.1.0", "nodes": []}', "got a PyTorch execution trace; run `chakra convert`"),
    "a quality report": (
        b'{"ranks": [], "groups": [], "matching": {}, "failed": []}',
        "got a quality report; name the",
    ),
    "other keys": (b'{"name": "app", "version": 2}', r"message 0: expected a Node .* other keys \('name', 'version'\)"),
    "many keys": (
        text_of(METADATA) + b'{"type": "Feature", "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}',
        r"message 1: .* \('type', 'b', 'c', 'd', 'e', \.\.\.\)",
    ),
    "a wrong type": (text_of(METADATA) + b'{"id": "x"}', "message 1: expected a Node"),
    "a large number": (text_of(METADATA) + b'{"id": "18446744073709551616"}', "message 1: expected a Node"),
    "a lone surrogate": (text_of(METADATA) + b'{"name": "\\ud800"}', "message 1: expected a Node"),
    "no node list": (b'{"workload_graph": {}}', "workload_graph: expected a list"),
    "no id": (b'{"workload_graph": [{"Name": "x"}]}', r"workload_graph\[0\]: expected Id"),
    "a negative id": (b'{"workload_graph": [{"Id": -1}]}', r"workload_graph\[0\]: expected Id"),
    "a bad list": (b'{"workload_graph": [{"Id": 1, "data_deps": 5}]}', r"workload_graph\[0\]: expected Id"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD.keys())
def test_one_clear_line(data, message):
    with pytest.raises(FormatError, match=message) as caught:
        parse_json(data, "x.json")
    assert str(caught.value).startswith("x.json: ")
    assert "\n" not in str(caught.value)


def test_a_blob_with_a_damaged_attribute_is_refused():
    builder = TraceBuilder(rank=0)
    builder.add("x", NodeType.COMP_NODE, attr=b"\x52\x05\x0a\x01q\x42\x00" + b"\x52\x06\x0a\x01q\x42\x01\x0a")
    with pytest.raises(TraceError, match="rank 0: attr"):
        b"".join(json_chunks(builder.build()))
