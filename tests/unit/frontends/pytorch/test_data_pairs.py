"""Data edges: tensor producers, forward and backward."""

import json

import numpy as np
import polars as pl

from chakra_et.frontends.pytorch.data_pairs import flow_pairs, sequence_pairs, tensor_pairs
from chakra_et.frontends.pytorch.tensors import filled, io_struct, operator_arguments, producers, tensor_edges
from chakra_et.frontends.pytorch.timeline import build_timeline
from tests.unit.frontends.pytorch.profiles import host_trace, node, op, profile


def tensor(number):
    return [number, number + 100, 0, 8, 4, "cuda:0"]


def uses(number, name, reads=(), writes=(), **more):
    return node(
        number,
        name,
        inputs={"values": [tensor(i) for i in reads]},
        outputs={"values": [tensor(i) for i in writes]},
        **more,
    )


def test_the_latest_producer_counts():
    texts = [json.dumps([tensor(5)]), json.dumps([tensor(5), 7, [tensor(6)]]), "[]"]
    inputs = pl.Series(["[]", "[]", texts[1]])
    outputs = pl.Series([texts[0], texts[1], "[]"])
    before, after = producers(inputs, outputs, np.array([0, 10, 20]), np.array([5, 15, 25]))
    assert list(zip(before.tolist(), after.tolist(), strict=True)) == [(1, 2)]


def test_what_isnt_done_yet_produces_nothing():
    one = pl.Series([json.dumps([tensor(5)]), "[]"])
    other = pl.Series(["[]", json.dumps([tensor(5)])])
    assert producers(other, one, np.array([0, 3]), np.array([5, 9]))[0].tolist() == []
    assert producers(other, one, np.array([0, 5]), np.array([5, 9]))[0].tolist() == [0]


def test_nothing_to_pair():
    empty = pl.Series(["[]", ""])
    assert [part.tolist() for part in producers(empty, empty, np.array([0, 1]), np.array([1, 2]))] == [[], []]


def test_edges_of_an_execution_trace_alone():
    host = host_trace(
        [
            uses(2, "root"),
            uses(3, "aten::a", writes=[1], parent=2),
            uses(4, "aten::b", reads=[1], writes=[1], parent=2),
            uses(5, "aten::inside", reads=[1], writes=[2], parent=4),
            uses(6, "aten::c", reads=[1, 2], parent=2),
        ]
    )
    # The last one reads what b wrote when it ended, and what the operator inside b wrote.
    assert tensor_edges(host.nodes).to_list() == [[], [], [1], [1], [2, 3]]


def events_of(*events):
    found = profile(list(events))
    return found, build_timeline(found.host, resolution_ns=1000)


def test_pairs_of_joined_operators():
    _, timeline = events_of(op("a", 0, 5), op("b", 10, 20), op("inner", 12, 3), op("c", 40, 5))
    host = host_trace([uses(1, "a", writes=[1]), uses(2, "b", reads=[1], writes=[2]), uses(3, "inner", reads=[1]),
                       uses(4, "c", reads=[2])])  # fmt: skip
    before, after = tensor_pairs(host, np.array([0, 1, 2, 3]), timeline)
    # What an operator inside its caller uses is implied by what the caller uses.
    assert list(zip(before.tolist(), after.tolist(), strict=True)) == [(0, 1), (1, 3)]


def test_flows_join_forward_and_backward():
    arrows = [
        {"ph": phase, "cat": "fwdbwd", "id": number, "pid": 1, "tid": tid, "ts": ts}
        for number, ends in enumerate([((1, 10), (2, 60)), ((1, 20), (2, 15)), ((1, 30), (2, 999))])
        for phase, (tid, ts) in zip("sf", ends, strict=True)
    ]
    forward = [op("forward", 10, 5), op("late", 20, 5), op("other", 30, 5)]
    backward = [op("backward", 60, 5, tid=2), op("early", 15, 5, tid=2)]
    found, timeline = events_of(*forward, *backward, *arrows)
    before, after = flow_pairs(found.flows, timeline)
    names = timeline.frame["name"]
    assert [(names[a], names[b]) for a, b in zip(before.tolist(), after.tolist(), strict=True)] == [
        ("forward", "backward")
    ]


def test_flows_lead_to_the_innermost_operator():
    arrows = [
        {"ph": p, "cat": "fwdbwd", "id": 1, "pid": 1, "tid": t, "ts": ts} for p, t, ts in (("s", 1, 10), ("f", 2, 60))
    ]
    found, timeline = events_of(op("outer", 10, 9), op("inner", 10, 5), op("backward", 60, 5, tid=2), *arrows)
    before, _ = flow_pairs(found.flows, timeline)
    assert [timeline.frame["name"][int(event)] for event in before] == ["inner"]


def test_sequence_numbers_stand_in_for_flows():
    engine = "autograd::engine::evaluate_function: MmBackward0"
    _, timeline = events_of(
        op("aten::mm", 10, 5, **{"Sequence number": 4, "Fwd thread id": 0}),
        op("aten::add", 20, 5, **{"Sequence number": 5, "Fwd thread id": 0}),
        op(engine, 60, 5, tid=2, **{"Sequence number": 4, "Fwd thread id": 1}),
        op("MmBackward0", 61, 2, tid=2, **{"Sequence number": 4, "Fwd thread id": 1}),
        op(engine, 2, 5, tid=2, **{"Sequence number": 5, "Fwd thread id": 1}),
    )
    before, after = sequence_pairs(timeline)
    names = timeline.frame["name"]
    assert [(names[a], names[b]) for a, b in zip(before.tolist(), after.tolist(), strict=True)] == [
        ("aten::mm", engine)
    ]


def test_arguments_as_columns():
    host = host_trace([uses(1, "a", reads=[1], op_schema="aten::a()"), node(2, "b")])
    columns = operator_arguments(host.nodes)
    assert columns["op_schema"].to_list() == ["aten::a()", None]
    first, second = columns["inputs"].to_list()
    assert json.loads(first["values"]) == [tensor(1)]
    assert second is None
    assert columns["outputs"].to_list() == [None, None]
    assert columns["input_strides"].to_list() == [None, None]


def test_empty_arguments_are_null():
    assert filled(pl.Series(["[]", "[1]", "", None])).to_list() == [None, "[1]", None, None]
    packed = io_struct(pl.Series(["[]", "[1]", None]), pl.Series(["[]", None, None]), pl.Series(["[]", "[]", None]))
    assert packed.to_list() == [None, {"values": "[1]", "shapes": "", "types": "[]"}, None]
