"""Bytes of JSON: objects of an array, decimals without rounding, tensor records."""

import json
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et._jit.json_scan import follow_objects, object_spans, parse_decimals, tensor_records

JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('a"\\{}[],', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('b"\\', max_size=2), inner, max_size=3),
    max_leaves=8,
)


def bytes_of(text):
    return np.frombuffer(text, np.uint8)


def joined(texts):
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return bytes_of(b"".join(texts)), offsets


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3), max_size=5), st.sampled_from([None, 1]))
@settings(deadline=None)
def test_objects_are_found_whatever_they_hold(objects, indent):
    text = json.dumps(objects, indent=indent).encode()
    starts, ends, stop, closed = object_spans(bytes_of(text), 1)
    assert [json.loads(text[a:b]) for a, b in zip(starts, ends, strict=True)] == objects
    assert closed
    assert stop == len(text)
    lengths = ends - starts
    assert follow_objects(bytes_of(text), 1, lengths).tolist() == starts.tolist()


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3), min_size=1, max_size=4), st.data())
@settings(deadline=None)
def test_a_cut_off_array_gives_its_whole_objects(objects, data):
    text = json.dumps(objects).encode()
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    starts, ends, stop, closed = object_spans(bytes_of(cut), 1)
    assert not closed
    assert stop == len(cut)
    found = [json.loads(cut[a:b]) for a, b in zip(starts, ends, strict=True)]
    assert found == objects[: len(found)]
    assert len(found) >= len(objects) - 1 or len(cut) < len(json.dumps(objects[: len(found) + 1])) - 1


def test_commas_are_optional_and_other_values_are_skipped():
    text = b'{"a":1} {"b":2},,3,"}",[{"c":1}],{"d":"]"}] rest'
    starts, ends, stop, closed = object_spans(bytes_of(text), 0)
    assert [text[a:b] for a, b in zip(starts, ends, strict=True)] == [b'{"a":1}', b'{"b":2}', b'{"d":"]"}']
    assert closed
    assert text[stop:] == b" rest"


def test_a_wrong_bracket_ends_the_array():
    _, _, stop, closed = object_spans(bytes_of(b'{"a":1}}'), 0)
    assert not closed
    assert stop == 8


@given(st.lists(st.decimals(-(10**12), 10**12, places=5, allow_nan=False), max_size=6), st.integers(0, 6))
@settings(deadline=None)
def test_decimals_are_exact(numbers, digits):
    texts = [f"{number:f}".encode() for number in numbers]
    values, fractional, bad = parse_decimals(*joined(texts), digits)
    # Rounded half away from zero, as the digits are read before the sign.
    expected = [int((n * 10**digits).to_integral_value(ROUND_HALF_UP)) for n in map(Decimal, map(bytes.decode, texts))]
    assert values.tolist() == expected
    assert bad == 0
    assert not fractional or digits > 0


@pytest.mark.parametrize(
    ("text", "value", "bad"),
    [
        (b"1795973882902932.087", 1795973882902932087, 0),
        (b"1795973882902932.0875", 1795973882902932088, 0),
        (b'"12.5"', 12500, 0),
        (b"+7", 7000, 0),
        (b"", 0, 1),
        (b"1e3", 0, 1),
        (b"NaN", 0, 1),
        (b"-0.0004", 0, 0),
        (b"-0.0005", -1, 0),
    ],
)
def test_odd_decimals(text, value, bad):
    values, _, wrong = parse_decimals(*joined([text]), 3)
    assert (values.tolist(), wrong) == ([value], bad)


def test_a_fraction_is_noticed():
    assert not parse_decimals(*joined([b"1", b"2."]), 3)[1]
    assert parse_decimals(*joined([b"1", b"2.0"]), 3)[1]


def test_tensor_records():
    texts = [
        b'[[1,2,0,100,4,"cuda:0"],"x",[[3,4,0,7,8,"cpu"],[5,6,0,1,2,"cpu"]]]',
        b"[]",
        b'["[9,9,9,9,9,\\"cuda\\"]", [1,2,3], [1,2,3,4,5]]',
        b'[[11, 12, 0, 2, 4, "cuda:1"]]',
        b'[[1,2,0,1,4,"meta"],[1,2,0,1,4,""],[1,2,0,1,4,"mtia:12"]]',
    ]
    rows, records = tensor_records(*joined(texts))
    assert rows.tolist() == [0, 0, 0, 3, 4, 4, 4]
    assert records[:4].tolist() == [
        [1, 2, 0, 100, 4, 0],
        [3, 4, 0, 7, 8, -1],
        [5, 6, 0, 1, 2, -1],
        [11, 12, 0, 2, 4, 1],
    ]
    assert records[4:, 5].tolist() == [-2, -2, 12]
