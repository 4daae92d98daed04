"""Who wrote what an operator reads: through views, in place, by communications."""

import json

import numpy as np
import polars as pl
import pytest

from chakra_et.frontends.pytorch.storage_edges import storage_writers
from chakra_et.frontends.pytorch.tensors import tensor_edges

ADD = "aten::add(Tensor self, Tensor other) -> Tensor"
ADD_IN_PLACE = "aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)"
VIEW = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
FOREACH = "aten::_foreach_add_(Tensor(a!)[] self, Tensor[] other) -> ()"
OUT = "fsdp::chunk_cat(Tensor[] tensors, int dim, *, Tensor(a!) out) -> ()"
ALL_TO_ALL = "c10d::alltoall_base_(Tensor output, Tensor input, ProcessGroup pg) -> Work"
SEND = "c10d::send(Tensor[] tensors, ProcessGroup pg, int dst, int tag) -> Work"
EMPTY = "aten::empty(SymInt[] size) -> Tensor"


def tensor(number, storage, offset=0, shape=(8,), strides=None):
    """Return value, shape and strides of a tensor of floats."""
    strides = strides or [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    return [number, storage, offset, int(np.prod(shape)), 4, "cpu"], list(shape), strides


def side(values):
    parts = [
        [part[place] if isinstance(part, tuple) else [one[place] for one in part] for part in values]
        for place in range(3)
    ]
    return [json.dumps(part) for part in parts]


def table(*calls, parents=None):
    rows = []
    for row, (schema, inputs, outputs) in enumerate(calls):
        rows.append(
            [
                row + 1,
                (parents or [0] * len(calls))[row],
                schema.partition("(")[0],
                schema,
                *side(inputs),
                *side(outputs),
            ]
        )
    names = ["id", "parent", "name", "op_schema"]
    names += [f"{end}_{part}" for end in ("input", "output") for part in ("values", "shapes", "strides")]
    return pl.DataFrame(rows, schema=names, orient="row")


def pairs(*calls):
    nodes = table(*calls)
    before, after = storage_writers(nodes, np.arange(nodes.height))
    return list(zip(before.tolist(), after.tolist(), strict=True))


def test_results_are_written_and_views_are_not():
    x, y, z = tensor(1, 1), tensor(2, 2), tensor(3, 3)
    flat = tensor(4, 2, shape=(2, 4))
    assert pairs((ADD, [x, x], [y]), (VIEW, [y], [flat]), (ADD, [flat, x], [z])) == [(0, 1), (0, 2)]


def test_a_write_in_place_is_seen_through_views_made_before():
    x, y, flat = tensor(1, 1), tensor(2, 2), tensor(3, 2, shape=(2, 4))
    calls = [(ADD, [x, x], [y]), (VIEW, [y], [flat]), (ADD_IN_PLACE, [y, x], [y]), (ADD, [flat, flat], [tensor(4, 4)])]
    assert pairs(*calls) == [(0, 1), (0, 2), (2, 3)]


def test_operators_that_return_nothing_write_what_their_schema_says():
    first, second, out = tensor(1, 1), tensor(2, 2), tensor(3, 3)
    calls = [
        (FOREACH, [[first, second], [out, out]], []),
        (OUT, [[first, second], (0, [], []), out], []),
        (ADD, [out, second], [tensor(4, 4)]),
    ]
    assert pairs(*calls) == [(0, 1), (0, 2), (1, 2)]


def test_communications_fill_their_first_argument_and_sends_do_not():
    x, y = tensor(1, 1), tensor(2, 2)
    assert pairs((ALL_TO_ALL, [y, x], []), (SEND, [[y]], []), (ADD, [y, y], [tensor(3, 3)])) == [(0, 1), (0, 2)]


def test_parts_of_a_storage():
    whole, low, high = tensor(1, 1, shape=(16,)), tensor(2, 1, 0), tensor(3, 1, 8)
    other = tensor(9, 9)
    fill = [(ADD_IN_PLACE, [low, other], [low]), (ADD_IN_PLACE, [high, other], [high])]
    read = lambda part: (ADD, [part, other], [tensor(5, 5)])  # noqa: E731
    assert pairs(*fill, read(low)) == [(0, 2)]
    assert pairs(*fill, read(high)) == [(1, 2)]
    assert pairs(*fill, read(whole)) == [(0, 2), (1, 2)]
    # What covers all earlier writes takes their place.
    assert pairs(*fill, (ADD_IN_PLACE, [whole, other], [whole]), read(low)) == [(0, 2), (1, 2), (2, 3)]


def test_strided_parts_reach_as_far_as_their_strides():
    whole = tensor(1, 1, shape=(4, 6))
    left = tensor(2, 1, 0, (4, 3), [6, 1])
    end = tensor(3, 1, 20, (4,))
    other = tensor(9, 9)
    calls = [(ADD_IN_PLACE, [left, other], [left]), (ADD, [end, other], [tensor(5, 5)])]
    assert pairs(*calls) == [(0, 1)]  # the last row's third element is element 20
    assert pairs((ADD, [other, other], [whole]), *calls) == [(0, 1), (0, 2), (1, 2)]


def test_empty_tensors_and_scalars_depend_on_nothing():
    none, scalar = tensor(1, 1, shape=(0,)), tensor(2, 2, shape=())
    assert pairs(
        (ADD, [none, scalar], [none]), (ADD, [none, scalar], [scalar]), (ADD, [scalar, none], [tensor(3, 3)])
    ) == [(1, 2)]


def test_a_call_ends_when_its_last_descendant_does():
    x, y, inner = tensor(1, 1), tensor(2, 2), tensor(2, 2)
    # An outer call returns what an inner one wrote; a later one reads it, and depends on the one that wrote.
    nodes = table((ADD, [x, x], [y]), (ADD, [x, x], [inner]), (ADD, [y, x], [tensor(3, 3)]), parents=[0, 1, 0])
    assert [list(deps) for deps in tensor_edges(nodes)] == [[], [], [1]]


@pytest.mark.parametrize("text", ["[", "{}", "null", '[[1,2,3,4,"x","cpu"]]', "[[[1]]]"])
def test_damaged_texts_tell_nothing(text):
    nodes = table((ADD, [tensor(1, 1), tensor(1, 1)], [tensor(2, 2)]), (ADD, [tensor(2, 2)], [tensor(3, 3)]))
    damaged = nodes.with_columns(input_values=pl.lit(text))
    assert len(storage_writers(damaged, np.arange(2))[0]) == 0
