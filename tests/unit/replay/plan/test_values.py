"""Integers that a replay draws lie in what they index, wherever they came from."""

import json

import pytest

from chakra_et.ir import NodeType, TraceBuilder
from chakra_et.replay.plan.arguments import Recorded
from chakra_et.replay.plan.make import make_plan
from chakra_et.replay.plan.values import bounds_of, recorded_bounds


def floats(*shape):
    return Recorded(1, 1, 0, shape, (1,) * len(shape), "float32", 4, "cpu")


def ints(*shape, dtype="int64"):
    return Recorded(2, 2, 0, shape, (1,) * len(shape), dtype, 8, "cpu")


@pytest.mark.parametrize(
    ("name", "values", "high"),
    [
        ("aten::embedding", {"weight": floats(10, 4), "indices": ints(3)}, 9),
        ("aten::embedding_dense_backward", {"indices": ints(3), "num_weights": 12}, 11),
        ("aten::index_select", {"self": floats(5, 7), "dim": 1, "index": ints(3)}, 6),
        ("aten::gather", {"self": floats(5, 7), "dim": -1, "index": ints(5, 2)}, 6),
        ("aten::scatter_add_", {"self": floats(5, 7), "dim": 0, "index": ints(5, 2)}, 4),
        ("aten::cross_entropy_loss", {"self": floats(8, 10), "target": ints(8)}, 9),
        ("aten::nll_loss_forward", {"self": floats(10), "target": ints()}, 9),
        ("aten::one_hot", {"self": ints(3), "num_classes": 6}, 5),
        ("aten::take", {"self": floats(4, 5), "index": ints(3)}, 19),
        ("aten::max_pool2d_with_indices_backward", {"self": floats(1, 2, 6, 7), "indices": ints(1, 2, 3, 3)}, 41),
    ],
)
def test_indices(name, values, high):
    assert [(low, top) for _, low, top in bounds_of(name, values)] == [(0, high)]


def test_each_index_has_its_dimension():
    mask = ints(3, 4, dtype="bool")
    values = {"self": floats(3, 4, 5, 6), "indices": (mask, None, ints(2))}
    assert [(tensor is mask, high) for tensor, _, high in bounds_of("aten::index", values)] == [(False, 5)]


def test_targets_that_are_probabilities_are_free():
    assert list(bounds_of("aten::cross_entropy_loss", {"self": floats(8, 10), "target": floats(8, 10)})) == []


@pytest.mark.parametrize("name", ["aten::add", "mylib::embedding"])
def test_other_operators_ask_for_nothing(name):
    assert list(bounds_of(name, {"weight": floats(10, 4), "indices": ints(3)})) == []


def test_recorded_ranges():
    index = ints(3)
    assert list(recorded_bounds('{"1":[2,5]}', (floats(4), index))) == [(index, 2, 5)]
    for text in ("", None, "{", '{"9":[1,2]}', '{"1":[1]}', '{"a":[1,2]}'):
        assert list(recorded_bounds(text, (floats(4), index))) == []


def add(builder, name, schema, inputs, outputs):
    def io(tensors):
        values = [[t.tensor, t.storage, t.offset, 1, t.item_bytes, t.device] for t in tensors]
        kinds = {"float32": "Tensor(float)", "int64": "Tensor(long int)"}
        return {
            "values": json.dumps(values),
            "shapes": json.dumps([list(t.shape) for t in tensors]),
            "types": json.dumps([kinds[t.dtype] for t in tensors]),
        }

    schema = f"{name}({schema})"
    builder.add(name, NodeType.COMP_NODE, is_cpu_op=True, op_schema=schema, inputs=io(inputs), outputs=io(outputs))


def test_a_range_reaches_what_a_tensor_was_copied_from():
    target = Recorded(1, 1, 0, (2, 4), (4, 1), "int64", 8, "cpu")
    flat = Recorded(2, 2, 0, (8,), (1,), "int64", 8, "cpu")
    scores = Recorded(3, 3, 0, (8, 10), (10, 1), "float32", 4, "cpu")
    loss = Recorded(4, 4, 0, (), (), "float32", 4, "cpu")
    builder = TraceBuilder(rank=0)
    add(builder, "aten::clone", "Tensor self) -> (Tensor", [target], [flat])
    add(builder, "aten::nll_loss", "Tensor self, Tensor target) -> (Tensor", [scores, flat], [loss])
    plan = make_plan(builder.build())
    drawn = [tensor for tensor in plan.tensors if tensor.first < 0 and tensor.dtype == "int64"]
    assert [(tensor.shape, tensor.low, tensor.high) for tensor in drawn] == [((2, 4), 0, 9)]
