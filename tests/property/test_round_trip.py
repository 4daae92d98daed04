"""Every format gives back what was written; files by others come out with every message equal."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from chakra_et.errors import ChakraError
from chakra_et.io import FORMATS, read_set, write_set
from chakra_et.io.et import et_chunks, parse_et
from chakra_et.io.json import json_chunks, parse_json
from chakra_et.testing.strategies import trace_sets, traces
from tests.property.foreign import files
from tests.unit.io.messages import messages_of, written

FILES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refusal(data):
    """Return the message with which a file's bytes are refused; None if they are read, and written again."""
    try:
        b"".join(et_chunks(parse_et(data, "trace.et")))
    except ChakraError as err:
        return str(err)
    return None


def same(left, right):
    assert_frame_equal(left.nodes, right.nodes)
    assert left.process_groups == right.process_groups
    assert left.metadata == right.metadata


@settings(max_examples=150, deadline=None)
@given(traces())
def test_et_gives_the_trace_back(trace):
    same(parse_et(b"".join(et_chunks(trace)), "x"), trace)


@settings(max_examples=60, deadline=None)
@given(traces())
def test_json_gives_the_trace_back(trace):
    same(parse_json(b"".join(json_chunks(trace)), "x"), trace)


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
@FILES
@given(trace_set=trace_sets())
def test_sets_through_files(entry, trace_set, tmp_path):
    folder = tmp_path / entry.name
    paths = write_set(trace_set, folder, format=entry.name, force=True)
    back = read_set(paths)
    assert back.ranks == trace_set.ranks
    for left, right in zip(back, trace_set, strict=True):
        same(left, right)


@settings(max_examples=300, deadline=None)
@given(files())
def test_foreign_messages_stay_equal(data):
    before = messages_of(data)
    trace = parse_et(data, "trace.et")
    assert len(trace) == len(before) - 1
    assert written(trace) == before


@settings(max_examples=60, deadline=None)
@given(files())
def test_foreign_traces_read_the_same_twice(data):
    once = parse_et(data, "trace.et")
    same(parse_et(b"".join(et_chunks(once)), "trace.et"), once)


@settings(max_examples=200, deadline=None)
@given(files(), st.data())
def test_damaged_files_give_one_clear_error(data, draw):
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    damaged = bytes(damaged[: draw.draw(st.integers(1, len(damaged)))])
    text = refusal(damaged)
    assert text is None or (text.startswith("trace.et") and "\n" not in text)


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=64))
def test_random_bytes_give_one_clear_error(data):
    text = refusal(data)
    assert text is None or (text.startswith("trace.et") and "\n" not in text)
