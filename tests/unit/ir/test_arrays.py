"""Buffers in and out of Polars."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir.arrays import (
    binary_series,
    list_series,
    list_values,
    sorted_unique,
    string_bytes,
    string_series,
    without_negatives,
)

LISTS = st.lists(st.lists(st.integers(0, 2**63 - 1), max_size=4), max_size=6)
TEXTS = st.lists(st.text(max_size=5), max_size=6)


def csr(lists, dtype):
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return offsets, np.array([value for part in lists for value in part], dtype)


@given(LISTS)
@settings(deadline=None)
@pytest.mark.parametrize("dtype", [np.uint64, np.int64])
def test_lists_go_in_and_out(dtype, lists):
    offsets, values = csr(lists, dtype)
    series = list_series("deps", offsets, values)
    assert series.name == "deps"
    assert series.to_list() == lists
    assert series.dtype == pl.List(pl.UInt64 if dtype is np.uint64 else pl.Int64)
    back = list_values(series)
    assert back[0].tolist() == offsets.tolist()
    assert back[1].tolist() == values.tolist()


def test_a_null_is_an_empty_list():
    series = pl.Series([[1], None, [], [2, 3]], dtype=pl.List(pl.UInt64))
    offsets, values = list_values(series)
    assert offsets.tolist() == [0, 1, 1, 1, 3]
    assert values.tolist() == [1, 2, 3]


@given(TEXTS)
@settings(deadline=None)
def test_strings_go_in_and_out(texts):
    offsets, data = string_bytes(pl.Series(texts, dtype=pl.String))
    series = string_series("name", offsets, data)
    assert series.to_list() == texts
    assert series.dtype == pl.String
    assert series.name == "name"


def test_bytes_and_nulls():
    offsets, data = string_bytes(pl.Series([b"\xff\x00", None, b""], dtype=pl.Binary))
    assert offsets.tolist() == [0, 2, 2, 2]
    valid = np.array([True, False, True])
    assert binary_series("attr", offsets, data, valid).to_list() == [b"\xff\x00", None, b""]
    offsets, data = string_bytes(pl.Series(["é", None], dtype=pl.String))
    assert string_series("name", offsets, data, np.array([True, False])).to_list() == ["é", None]


@given(st.lists(st.integers(-5, 5)))
@settings(deadline=None)
def test_sorted_unique(values):
    assert sorted_unique(np.array(values, np.int64)).tolist() == sorted(set(values))


def test_negative_positions_are_nobody():
    found = without_negatives(np.array([2, -1, 0, -7]))
    assert found.to_list() == [2, None, 0, None]
    assert found.dtype == pl.Int64
    assert without_negatives(np.empty(0, np.int64)).to_list() == []
