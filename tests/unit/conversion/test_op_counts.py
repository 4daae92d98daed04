"""Operations and bytes of captures made before execution."""

import json

import pytest

from chakra_et.conversion.op_counts import with_op_counts
from chakra_et.ir import NodeType, TraceBuilder

COMP = NodeType.COMP_NODE


def tensor(number, *shape):
    count = 1
    for size in shape:
        count *= size
    return [number, number, 0, count, 2, "cuda:0"], list(shape), "Tensor(c10::BFloat16)"


def texts(values):
    parts = [
        [part[place] if isinstance(part, tuple) else [one[place] for one in part] for part in values]
        for place in (0, 1)
    ]
    types = [
        part[2] if isinstance(part, tuple) else f"GenericList[{','.join(one[2] for one in part)}]" for part in values
    ]
    return dict(zip(("values", "shapes", "types"), map(json.dumps, (*parts, types)), strict=True))


def counts(name, schema, inputs, outputs, **columns):
    """Return operations and bytes of one call."""
    builder = TraceBuilder(rank=0)
    arguments = {"inputs": texts(inputs), "outputs": texts(outputs), "op_schema": schema}
    builder.add(name, columns.pop("type", COMP), **arguments, **columns)
    trace = with_op_counts(builder.build())
    return trace.column("num_ops").item(), trace.column("tensor_size").item()


def test_products_have_the_formula_of_products():
    found = counts(
        "aten::mm",
        "aten::mm(Tensor self, Tensor mat2) -> Tensor",
        [tensor(1, 4, 8), tensor(2, 8, 16)],
        [tensor(3, 4, 16)],
    )
    assert found == (2 * 4 * 8 * 16, 2 * (4 * 8 + 8 * 16 + 4 * 16))


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("aten::view", "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"),
        ("aten::split", "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]"),
        ("aten::empty", "aten::empty.memory_format(SymInt[] size, *, Device? device=None) -> Tensor"),
        ("aten::new_empty_strided", "aten::new_empty_strided(Tensor self, SymInt[] size) -> Tensor"),
    ],
)
def test_views_and_empty_memory_count_nothing(name, schema):
    assert counts(name, schema, [tensor(1, 4, 8)], [tensor(2, 32)]) == (None, None)


def test_others_count_the_bytes_of_their_tensors_each_once():
    schema = "mine::mix(Tensor a, Tensor b) -> Tensor"
    assert counts("mine::mix", schema, [tensor(1, 4), tensor(1, 4)], [tensor(2, 8)]) == (0, 2 * (4 + 8))
    in_place = "mine::mix_(Tensor(a!) a, Tensor b) -> Tensor(a!)"
    assert counts("mine::mix_", in_place, [tensor(1, 4), tensor(3, 6)], [tensor(1, 4)]) == (0, 2 * (4 + 6 + 4))


def test_what_fsdp_copies_into_its_place_is_the_shards():
    schema = "fsdp::all_gather_copy_in(Tensor[] inputs, Tensor output) -> (Tensor, Tensor)"
    shards, whole = [tensor(1, 4), tensor(2, 6)], tensor(3, 800)
    assert counts("fsdp::all_gather_copy_in", schema, [shards, whole], [tensor(4, 10), whole]) == (0, 2 * 2 * 10)


def test_what_is_known_stays_and_communications_are_left_alone():
    schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    call = [tensor(1, 4, 8), tensor(2, 8, 16)], [tensor(3, 4, 16)]
    assert counts("aten::mm", schema, *call, num_ops=5) == (5, None)
    assert counts("aten::mm", schema, *call, tensor_size=7) == (None, 7)
    assert counts("c10d::allreduce_", "", *call, type=NodeType.COMM_COLL_NODE) == (None, None)


def test_a_trace_without_arguments_stays_as_it_is():
    builder = TraceBuilder(rank=0)
    builder.add("gemm", COMP, duration_ns=5)
    trace = builder.build()
    assert with_op_counts(trace) is trace
