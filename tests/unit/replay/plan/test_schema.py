"""Operator schemas, parsed without torch."""

import pytest

from chakra_et.replay.plan.schema import parse_schema


def test_overload_keywords_and_what_is_written():
    schema = parse_schema("aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)")
    assert (schema.name, schema.overload) == ("aten::add", "out")
    assert [one.name for one in schema.parameters] == ["self", "other", "alpha", "out"]
    assert [one.keyword_only for one in schema.parameters] == [False, False, True, True]
    assert [one.written for one in schema.parameters] == [False, False, False, True]
    assert schema.place("alpha") == 2
    assert schema.place("missing") is None


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("a::b(Tensor(a -> *) self, int[2] stride=[1, 2], str mode='a,b)') -> Tensor[]", ["Tensor", "int[2]", "str"]),
        ("a::b(Tensor?[] indices, Generator? generator=None) -> ()", ["Tensor?[]", "Generator?"]),
        ("a::b() -> int", []),
    ],
)
def test_types(text, types):
    assert [one.type for one in parse_schema(text).parameters] == types


@pytest.mark.parametrize("text", ["", "mm", "aten::mm", "aten::mm(Tensor self", "aten::mm.x.y(Tensor self) -> Tensor"])
def test_what_is_no_schema(text):
    assert parse_schema(text) is None


def test_every_schema_reads_as_torch_reads_it():
    torch = pytest.importorskip("torch")
    # Dictionaries and arguments without number are TorchScript's own: no operator on tensors has them.
    texts = {str(schema): schema for schema in torch._C._jit_get_all_schemas()}
    texts = {text: schema for text, schema in texts.items() if "Dict(" not in text and "..." not in text}
    assert len(texts) > 2000
    wrong = []
    for text, schema in texts.items():
        own = parse_schema(text)
        expected = [
            (argument.name, argument.kwarg_only, bool(argument.alias_info and argument.alias_info.is_write))
            for argument in schema.arguments
        ]
        if (
            own is None
            or (own.name, own.overload) != (schema.name, schema.overload_name)
            or [(one.name, one.keyword_only, one.written) for one in own.parameters] != expected
        ):
            wrong.append(text)
    assert wrong == []
