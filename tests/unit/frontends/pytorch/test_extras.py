import json

import polars as pl

from chakra_et.conversion import convert
from chakra_et.frontends.pytorch.extras import extra_attributes
from chakra_et.io import read, write
from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.ir import NodeType, TraceBuilder


def decoded(raw):
    return {attribute.name: attribute.string_val for attribute in proto.Node.FromString(raw).attr}


def test_records_are_attributes_of_a_node():
    nodes = pl.DataFrame({"kernel_backend": ["triton", None, None], "kernel_file": ["é" * 100, None, "k.py"]})
    first, none, last = extra_attributes(nodes).to_list()
    assert decoded(first) == {"kernel_backend": "triton", "kernel_file": "é" * 100}
    assert none is None
    assert decoded(last) == {"kernel_file": "k.py"}


def test_no_column_without_values():
    assert extra_attributes(pl.DataFrame({"id": [1]})) is None


def test_they_travel_in_the_file(tmp_path):
    builder = TraceBuilder(rank=0)
    (raw,) = extra_attributes(pl.DataFrame({"kernel_file": ["k.py"]})).to_list()
    builder.add("triton_poi_fused_0", NodeType.COMP_NODE, attr=raw)
    back = read(write(builder.build(), tmp_path / "trace.0.et"))
    assert decoded(back.nodes["attr"][0]) == {"kernel_file": "k.py"}


def test_an_execution_trace_keeps_them(tmp_path):
    attrs = [
        {"name": "rf_id", "type": "uint64", "value": 1},
        {"name": "kernel_backend", "type": "string", "value": "triton"},
    ]
    io = {"values": [], "shapes": [], "types": []}
    node = {"id": 2, "name": "triton_poi", "ctrl_deps": 1, "inputs": io, "outputs": io, "attrs": attrs}
    path = tmp_path / "host.0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [node]}))
    (trace,) = convert(path).traces
    assert decoded(trace.nodes["attr"][0]) == {"kernel_backend": "triton"}
