"""Fields of objects as positions in their text."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.json_fields import attribute_spans, field_spans, gather_strings, gather_values, parse_integers

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def keys_of(*names):
    raw = [name.encode() for name in names]
    return np.frombuffer(b"".join(raw), np.uint8), np.cumsum([0, *map(len, raw)]).astype(np.int64)


def spans_of(function, texts, *names):
    text = b"".join(texts)
    ends = np.cumsum([len(part) for part in texts]).astype(np.int64)
    starts = ends - [len(part) for part in texts]
    begin, end = function(np.frombuffer(text, np.uint8), starts, ends, *keys_of(*names))
    return [
        [text[a:b] if a >= 0 else None for a, b in zip(*pair, strict=True)] for pair in zip(begin, end, strict=True)
    ]


@given(st.lists(st.dictionaries(st.sampled_from(["a", "ab", "b", "zz"]), VALUES, max_size=4), min_size=1, max_size=4))
@settings(deadline=None)
def test_fields_are_what_a_parser_finds(objects):
    texts = [json.dumps(part).encode() for part in objects]
    for name, found in zip(("a", "ab", "b"), spans_of(field_spans, texts, "a", "ab", "b"), strict=True):
        told = [None if part is None else json.loads(part) for part in found]
        assert told == [part.get(name) for part in objects]
        assert [part is not None for part in found] == [name in part for part in objects]


def test_keys_in_strings_and_nested_objects_dont_count():
    text = b'{"x": {"a": 1, "b": "\\"a\\": 2"}, "y": "\\"a\\": 3", "a" : [4, {"a": 5}] }'
    assert spans_of(field_spans, [text], "a", "b") == [[b'[4, {"a": 5}]'], [None]]


def test_of_repeated_keys_the_last_counts():
    assert spans_of(field_spans, [b'{"a":1,"a":2}'], "a") == [[b"2"]]


@pytest.mark.parametrize("text", [b'{"a"', b'{"a":', b'{"a":"x', b'{"a', b"{", b"", b"[1]", b'{"a":[1', b'{"a" 1}'])
def test_broken_objects_give_missing_fields_or_what_is_there(text):
    (found,) = spans_of(field_spans, [text], "a")
    assert found[0] is None or text.endswith(found[0])


def test_no_object_no_field():
    begin, end = field_spans(np.frombuffer(b"{}", np.uint8), np.array([-1]), np.array([0]), *keys_of("a"))
    assert (begin.tolist(), end.tolist()) == ([[-1]], [[-1]])


def test_attributes_by_name():
    texts = [
        b'[{"name": "rf_id", "type": "uint64", "value": 5}, {"name": "op", "type": "string", "value": "aten::{}"}]',
        b'[{"value": 9, "type": "uint64", "name": "rf_id"}]',
        b"[]",
        b'[{"name": "rf_id"}, {"name": 3, "value": 1}]',
    ]
    assert spans_of(attribute_spans, texts, "rf_id", "op") == [
        [b"5", b"9", None, None],
        [b'"aten::{}"', None, None, None],
    ]


def integers(texts, missing=-7):
    text = b"".join(texts)
    end = np.cumsum([len(part) for part in texts]).astype(np.int64)
    begin = end - [len(part) for part in texts]
    return parse_integers(np.frombuffer(text, np.uint8), begin, end, missing).tolist()


def test_integers():
    assert integers([b"12", b"-3", b'"45"', b'"-6"', b"null", b'""', b"[8, 9]", b"7.9", b"[]"]) == [
        12, -3, 45, -6, -7, -7, 8, 7, -7,
    ]  # fmt: skip


def test_integers_wrap():
    assert integers([b"18446744073709551615", b"140215923324672", b"9223372036854775808"]) == [
        -1,
        140215923324672,
        -(2**63),
    ]


def test_missing_integers():
    assert parse_integers(np.frombuffer(b"1", np.uint8), np.array([-1, 0]), np.array([-1, 1]), 3).tolist() == [3, 1]


def test_gather_strings():
    text = b'"ab"17"c\\n"'
    begin, end = np.array([0, -1, 4, 6]), np.array([4, -1, 6, 11])
    offsets, data, escaped = gather_strings(np.frombuffer(text, np.uint8), begin, end)
    assert offsets.tolist() == [0, 2, 2, 4, 7]
    assert data.tobytes() == b"ab17c\\n"
    assert escaped.tolist() == [3]


def test_gather_values_drops_white_space_between_parts():
    parts = [b'[ 1,\n  "a \\" b" ]', b"", b'"x y"']
    text = b"".join(parts)
    ends = np.cumsum([len(part) for part in parts])
    begin = np.array([0, -1, ends[1]])
    offsets, data = gather_values(np.frombuffer(text, np.uint8), begin, ends)
    copied = [data.tobytes()[a:b] for a, b in pairwise(offsets)]
    assert copied == [b'[1,"a \\" b"]', b"", b'"x y"']
