"""Cells for people: columns that exist, headings without units, values with them."""

import polars as pl
import pytest

from chakra_et.analysis.analyze import ANALYSES, analyze
from chakra_et.analysis.options import Options
from chakra_et.errors import InputError
from chakra_et.ir import CommType
from chakra_et.reports.analysis_cells import COLUMNS, SCREEN, cells, shown_columns, word_places
from chakra_et.specs import load_system
from tests.unit.analysis.hand_made import Rank

KEYS = ("rank", "iteration", "pg_name", "axis", "scope", "comm_type", "size_class_bytes", "comm_dtype", "stream",
        "device", "call", "category", "kind", "name", "op", "shapes", "types", "module", "phase", "layer",
        "module_type")  # fmt: skip


def cell(name, value):
    """Return a value as people see it."""
    dtype = pl.Float64 if isinstance(value, float) else None
    (_, ((text,),)) = cells(pl.DataFrame({name: pl.Series([value], dtype=dtype)}))
    return text


@pytest.fixture(scope="module")
def job():
    made = Rank(0, world_size=2)
    made.kernel("gemm", 0, 10)
    made.collective(CommType.ALL_REDUCE, 10, 20, 64)
    return made.build()


@pytest.mark.parametrize("name", [one.name for one in ANALYSES])
def test_every_column_exists(job, name):
    """By default, or when rows are told apart by it."""
    known = set(analyze(job, only=[name], options=Options(system=load_system("h100-dgx"))).results[name].table.columns)
    for key in KEYS:
        try:
            known |= set(analyze(job, only=[name], options=Options(by=(key,))).results[name].table.columns)
        except InputError:
            continue
    assert set(COLUMNS[name]) <= known
    if name == "breakdown":
        assert set(SCREEN) <= known


def test_there_are_columns_for_every_analysis():
    assert list(COLUMNS) == [one.name for one in ANALYSES]


def test_columns_that_hold_nothing_are_left_out():
    table = pl.DataFrame({"b": [None, None], "a": [1, None], "c": [1, 2]})
    assert shown_columns(table, ("a", "b", "d")) == ["a"]
    assert shown_columns(table.clear(), ("a", "b")) == []


def test_exactness_is_shown_where_something_is_not_exact():
    table = pl.DataFrame({"a": [1, 2, 3], "exact": [True, None, True]})
    assert shown_columns(table, ("a", "exact")) == ["a"]
    inexact = table.with_columns(exact=pl.Series([True, None, False]))
    assert shown_columns(inexact, ("a", "exact")) == ["a", "exact"]
    assert cells(inexact)[1] == [["1", "yes"], ["2", "-"], ["3", "no"]]


def test_words_are_told_from_numbers():
    table = pl.DataFrame({"a": ["x"], "b": [1], "c": [True], "d": pl.Series(["k"], dtype=pl.Enum(["k"]))})
    assert word_places(table) == [0, 2, 3]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("span_ns", 0, "0 ns"),
        ("span_ns", 999, "999 ns"),
        ("span_ns", 1_000, "1.000 us"),
        ("span_ns", 12_345_678, "12.35 ms"),
        ("span_ns", -223_700, "-223.7 us"),
        ("span_ns", 1_234_567_890_123, "1,235 s"),
        ("mean_ns", 1.5, "2 ns"),
        ("share", 0.1234, "12.3 %"),
        ("mfu", 0.5, "50.0 %"),
        ("bus_bytes_per_s", 190.8e9, "190.8 GB/s"),
        ("bus_gib_per_s", 177.68, "177.7"),
        ("flop_per_s", 2.5e14, "250.0 TFLOP/s"),
        ("tokens_per_s", 13_252.4, "13.3 k/s"),
        ("size_class_bytes", 1 << 26, "64.0 MiB"),
        ("flop_count", 2_000_000, "2.0 MFLOP"),
        ("rank", 12345, "12345"),
        ("device", -1, "host"),
        ("device", 3, "3"),
        ("count", 12345, "12,345"),
        ("queue_mean", 12.3456, "12.35"),
        ("exact", True, "yes"),
        ("exact", False, "no"),
        ("name", None, "-"),
        ("name", "x" * 61, "x" * 57 + "..."),
        ("name", "x" * 60, "x" * 60),
        ("shapes", "[[8192,2048],[],[]]", "[[8192,2048]]"),
        ("shapes", "[[],[]]", "[[]]"),
    ],
)
def test_values(name, value, said):
    assert cell(name, value) == said


def test_headings_have_no_units():
    names = ["rank", "span_ns", "size_bytes", "read_bytes_per_s", "exposed_communication_ns", "last_share"]
    headings, rows = cells(pl.DataFrame({name: [1] for name in names}))
    assert headings == ["rank", "span", "size", "read/s", "exposed comm.", "last share"]
    assert len(rows) == 1
