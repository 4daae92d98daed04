"""Traces as Parquet."""

import io
import random

import polars as pl
import pytest

from chakra_et.errors import FormatError, TraceError
from chakra_et.io.parquet import parse_parquet, read_parquet, write_parquet
from chakra_et.ir import ProcessGroup, TraceBuilder, TraceMetadata
from chakra_et.ir.trace import Trace
from tests.unit.io.messages import read_nodes


def plain(frame, **metadata):
    buffer = io.BytesIO()
    frame.write_parquet(buffer, metadata=metadata or None)
    return buffer.getvalue()


def test_metadata_and_groups_come_back(tmp_path):
    metadata = TraceMetadata("0.0.4", 3, 8, "collected", False, ({"path": "x"},), b"\xff\x00")
    trace = Trace(TraceBuilder().build().nodes, (ProcessGroup("1", (0, 3), 2, "dp", "nccl"),), metadata)
    back = read_parquet(write_parquet(trace, tmp_path / "t.3.parquet"))
    assert (back.metadata, back.process_groups) == (metadata, trace.process_groups)


def test_other_tools_can_read_the_columns(tmp_path):
    trace = read_nodes(b"\x08\x05\x12\x01x\x58\x07")
    path = write_parquet(trace, tmp_path / "t.0.parquet")
    assert pl.read_parquet(path).equals(trace.nodes)


GOOD = plain(TraceBuilder().build().nodes, chakra_et="{}")
BAD = {
    "no Parquet": (b"PAR1" + b"x" * 50, "expected Parquet"),
    "truncated": (GOOD[:-20], "expected Parquet"),
    "another table": (plain(pl.DataFrame({"a": [1]})), "expected the metadata entry 'chakra_et'"),
    "no facts": (GOOD, "expected a trace's facts"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD.keys())
def test_one_clear_line(data, message):
    with pytest.raises(FormatError, match=message) as caught:
        parse_parquet(data, "x.parquet")
    assert str(caught.value).startswith("x.parquet: ")
    assert "\n" not in str(caught.value)


def test_damage_anywhere_is_told_by_us_alone(tmp_path, capfd):
    whole = write_parquet(
        read_nodes(*(b"\x08%c\x12\x01x\x58\x07" % n for n in range(1, 60))), tmp_path / "t"
    ).read_bytes()
    dice = random.Random(1)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[dice.randrange(len(whole) - 20)] ^= 1 << dice.randrange(8)
        seal = whole.index(b"CHAKRA-CRC32")
        if damaged[seal : seal + 12] == b"CHAKRA-CRC32":
            with pytest.raises(FormatError, match="expected Parquet, got other bytes"):
                parse_parquet(bytes(damaged), "x.parquet")
    # Polars' decoder would print its own lines.
    assert capfd.readouterr() == ("", "")


def test_columns_of_another_type(tmp_path):
    path = write_parquet(TraceBuilder(rank=0).build(), tmp_path / "t.parquet")
    facts = pl.read_parquet_metadata(path)["chakra_et"]
    data = plain(pl.read_parquet(path).with_columns(id=pl.lit("x")), chakra_et=facts)
    with pytest.raises(FormatError, match=r"x\.parquet: node table: wrong column types: id String"):
        parse_parquet(data, "x.parquet")


def test_sources_that_json_cannot_hold(tmp_path):
    trace = Trace(TraceBuilder().build().nodes, (), TraceMetadata(sources=({"x": object()},)))
    with pytest.raises(TraceError, match=r"metadata\.sources"):
        write_parquet(trace, tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []
