"""Recorded arguments: tensors, lists of any depth, numbers, and what a trace can't hold."""

import json

import pytest

from chakra_et.replay.plan.arguments import Opaque, Recorded, parse_values, tensors_in


def texts(values, shapes, types):
    return {"values": json.dumps(values), "shapes": json.dumps(shapes), "types": json.dumps(types)}


def test_each_kind_of_value():
    values = [[7, 8, 2, 6, 2, "cuda:0"], [1, 2], "<None>", 1, 0.5, True, "mean", "cuda:0", "<Generator>", "<Object>"]
    shapes = [[3, 2], [[], []], [], [], [], [], [], [], [], []]
    types = ["Tensor(c10::BFloat16)", "GenericList[Int,Int]", "None", "Int", "Double", "Bool", "String", "Device",
             "Generator", "Object"]  # fmt: skip
    strides = [[1, 3], [[], []], [], [], [], [], [], [], [], []]
    tensor, *rest = parse_values(texts(values, shapes, types), json.dumps(strides))
    assert tensor == Recorded(7, 8, 2, (3, 2), (1, 3), "bfloat16", 2, "cuda:0")
    assert rest == [(1, 2), None, 1, 0.5, True, "mean", "cuda:0", Opaque("Generator"), Opaque("Object")]


def test_lists_of_tensors_of_any_depth():
    one, other = [1, 2, 0, 4, 4, "cpu"], [3, 4, 0, 4, 4, "cpu"]
    nested = texts(
        [[[one, other]], [one, "<None>"]], [[[[4], [2, 2]]], [[4], []]],
        ["GenericList[GenericList[Tensor(float),Tensor(float)]]", "GenericList[Tensor(float),None]"],
    )  # fmt: skip
    values = parse_values(nested, None)
    assert [tensor.shape for tensor in tensors_in(values)] == [(4,), (2, 2), (4,)]
    assert values[1][1] is None


def test_undefined_tensors_are_none():
    undefined = texts([[9, 0, 0, 0, 0, ""]], [[]], ["Tensor(nullptr (uninitialized))"])
    assert parse_values(undefined, None) == (None,)


def test_strides_are_contiguous_where_untold():
    (tensor,) = parse_values(texts([[1, 2, 0, 24, 4, "cpu"]], [[2, 3, 4]], ["Tensor(float)"]), None)
    assert tensor.strides == (12, 4, 1)
    assert not tensor.strides_told


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "expected"),
    [((2, 3), (3, 1), 0, 24), ((2, 3), (100, 1), 5, (5 + 102 + 1) * 4), ((4, 0), (1, 1), 9, 0), ((5,), (0,), 3, 16)],
)
def test_extent(shape, strides, offset, expected):
    assert Recorded(1, 2, offset, shape, strides, "float32", 4, "cpu").extent_bytes == expected


def test_a_call_without_arguments():
    assert parse_values(None, None) == ()


@pytest.mark.parametrize(
    "broken",
    [
        {"values": "[1", "shapes": "[]", "types": "[]"},
        {"values": "[1,2]", "shapes": "[[]]", "types": '["Int"]'},
        {"values": "[[1,2]]", "shapes": "[[2]]", "types": '["Tensor(float)"]'},
        {"values": None, "shapes": None, "types": None},
    ],
)
def test_what_cannot_be_read(broken):
    assert parse_values(broken, None) is None
