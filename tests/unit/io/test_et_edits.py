"""Changing a column of a trace that others wrote changes just that attribute."""

import polars as pl
import pytest

from chakra_et.io._proto import et_def_pb2 as proto
from tests.unit.io.messages import read_nodes, written


def foreign():
    made = proto.Node(id=1, name="send", type=proto.COMM_SEND_NODE, start_time_micros=4, duration_micros=9)
    made.attr.add(name="scope", int64_val=7)
    made.attr.add(name="comm_size", int32_val=64, doc_string="bytes")
    made.attr.add(name="pg_name", string_val="0")
    made.attr.add(name="sync_deps", uint64_list=proto.Uint64List(values=[5]))
    made.attr.add(name="is_cpu_op", bool_val=False)
    return made


def edited(node, *columns):
    trace = read_nodes(node)
    return written(trace.with_nodes(trace.nodes.with_columns(*columns)))[1]


def test_unchanged():
    assert edited(foreign()) == foreign()


def test_a_changed_number_keeps_kind_place_and_doc_string():
    wanted = foreign()
    wanted.attr[1].int32_val = 65
    assert edited(foreign(), pl.lit(65, pl.Int64).alias("comm_size")) == wanted


def test_a_number_that_the_kind_cannot_hold_takes_the_columns_kind():
    wanted = foreign()
    wanted.attr[1].int64_val = 2**40
    assert edited(foreign(), pl.lit(2**40, pl.Int64).alias("comm_size")) == wanted


def test_a_changed_string():
    wanted = foreign()
    wanted.attr[2].string_val = "group"
    assert edited(foreign(), pl.lit("group").alias("pg_name")) == wanted


def test_a_changed_list():
    wanted = foreign()
    wanted.attr[3].uint64_list.values[:] = [1, 2]
    assert edited(foreign(), pl.lit([1, 2], pl.List(pl.UInt64)).alias("sync_deps")) == wanted


def test_an_emptied_list_is_left_out():
    wanted = foreign()
    del wanted.attr[3]
    assert edited(foreign(), pl.lit([], pl.List(pl.UInt64)).alias("sync_deps")) == wanted


@pytest.mark.parametrize(("column", "place"), [("comm_size", 1), ("pg_name", 2), ("is_cpu_op", 4)])
def test_a_nulled_value_is_left_out(column, place):
    wanted = foreign()
    del wanted.attr[place]
    assert edited(foreign(), pl.lit(None).cast(read_nodes(foreign()).nodes[column].dtype).alias(column)) == wanted


def test_an_added_value_goes_to_the_end():
    wanted = foreign()
    wanted.attr.add(name="comm_tag", int32_val=3)
    assert edited(foreign(), pl.lit(3, pl.Int64).alias("comm_tag")) == wanted


def test_a_changed_time_rewrites_its_field():
    wanted = foreign()
    wanted.duration_micros = 2
    wanted.attr.add(name="duration_ns", int64_val=1700)
    assert edited(foreign(), pl.lit(1700, pl.Int64).alias("duration_ns")) == wanted


def test_a_changed_time_in_whole_microseconds_needs_no_attribute():
    wanted = foreign()
    wanted.start_time_micros = 6
    assert edited(foreign(), pl.lit(6000, pl.Int64).alias("start_ns")) == wanted


def test_a_time_that_disagreed_with_its_field_is_brought_in_line_when_changed():
    before = proto.Node(id=1, duration_micros=100)
    before.attr.add(name="duration_ns", int64_val=1234)
    wanted = proto.Node(id=1, duration_micros=3)
    wanted.attr.add(name="duration_ns", int64_val=2600)
    assert edited(before) == before
    assert edited(before, pl.lit(2600, pl.Int64).alias("duration_ns")) == wanted


def test_changed_inputs_drop_what_is_not_known():
    before = proto.Node(id=1)
    before.inputs.ParseFromString(b"\x0a\x01a\x22\x01z")
    wanted = proto.Node(id=1, inputs=proto.IOInfo(values="b"))
    new = pl.struct(pl.lit("b").alias("values"), pl.lit("").alias("shapes"), pl.lit("").alias("types"))
    assert edited(before) == before
    assert edited(before, new.alias("inputs")) == wanted


def test_duplicates_of_a_changed_attribute_go():
    before = proto.Node(id=1)
    for value in (1, 2):
        before.attr.add(name="tid", int64_val=value)
    wanted = proto.Node(id=1)
    wanted.attr.add(name="tid", int64_val=8)
    assert edited(before) == before
    assert edited(before, pl.lit(8, pl.Int64).alias("tid")) == wanted


@pytest.mark.parametrize("kind", ["double_val", "float_val", "uint32_val", "sint64_val", "fixed32_val", "sfixed64_val"])
def test_each_kind_is_kept(kind):
    before, wanted = proto.Node(id=1), proto.Node(id=1)
    before.attr.add(name="comm_size", **{kind: 8})
    wanted.attr.add(name="comm_size", **{kind: 9})
    assert edited(before, pl.lit(9, pl.Int64).alias("comm_size")) == wanted
