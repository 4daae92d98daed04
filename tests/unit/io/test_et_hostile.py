"""Bad bytes: one line that says where, no half-built trace, no memory taken for what a file merely claims."""

import gzip

import pytest

from chakra_et.errors import ChakraError, FormatError, InputError
from chakra_et.io import read
from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.io.et import delimited, parse_et
from tests.unit.io.messages import file_of

METADATA = proto.GlobalMetadata(version="1.0.0")
GOOD = proto.Node(id=1, name="a good node", type=4)


def of(*nodes):
    return file_of(METADATA, GOOD, *nodes)


HUGE = b"\xff" * 8 + b"\x0f"  # a varint of 2^59 and more
CASES = {
    "length of 2^60": (of() + HUGE, "message 2 at byte 26", "length that fits"),
    "length varint too long": (of() + b"\x80" * 11, "message 2 at byte 26", "at most 64 bits"),
    "length varint of 70 bits": (of() + b"\xff" * 9 + b"\x7f", "message 2 at byte 26", "at most 64 bits"),
    "truncated message": (of(GOOD)[:-3], "message 2 at byte 26", "length that fits"),
    "truncated length": (of() + b"\x80", "message 2 at byte 26", "end of what holds it"),
    "name longer than the node": (of(b"\x08\x01\x12\x7fx"), "message 2 at byte 29", "length that fits"),
    "name of 2^59 bytes": (of(b"\x12" + HUGE), "message 2 at byte 27", "length that fits"),
    "name not UTF-8": (of(b"\x12\x02\xc3\x28"), "message 2 at byte 27", "UTF-8"),
    "overlong UTF-8": (of(b"\x12\x02\xc0\x80"), "message 2 at byte 27", "UTF-8"),
    "surrogate": (of(b"\x12\x03\xed\xa0\x80"), "message 2 at byte 27", "UTF-8"),
    "attribute name not UTF-8": (of(b"\x52\x04\x0a\x02\xff\xff"), "message 2 at byte 29", "UTF-8"),
    "column string not UTF-8": (of(b"\x52\x0d\x0a\x07pg_name\xea\x01\x01\xff"), "message 2", "UTF-8"),
    "inputs not UTF-8": (of(b"\x42\x03\x0a\x01\x80"), "message 2 at byte 29", "UTF-8"),
    "id as a string": (of(b"\x0a\x01x"), "message 2 at byte 27", "wire type"),
    "name as a number": (of(b"\x10\x01"), "message 2 at byte 27", "wire type"),
    "attribute as a number": (of(b"\x50\x01"), "message 2 at byte 27", "wire type"),
    "deps as fixed64": (of(b"\x21" + bytes(8)), "message 2 at byte 27", "wire type"),
    "value of another wire type": (of(b"\x52\x08\x0a\x03tid\x4a\x01x"), "message 2", "wire type"),
    "group": (of(b"\x5b"), "message 2 at byte 27", "wire type"),
    "field number 0": (of(b"\x00\x01"), "message 2 at byte 27", "field number"),
    "deps end inside a varint": (of(b"\x22\x02\x01\x80"), "message 2 at byte 27", "end of what holds it"),
    "fixed value cut": (of(b"\x59\x01\x02"), "message 2 at byte 27", "end of what holds it"),
    "list of another wire type": (of(b"\x52\x0f\x0a\x09sync_deps\x72\x02\x0d\x01"), "message 2", "end of what"),
}


@pytest.mark.parametrize(("data", "place", "expected"), CASES.values(), ids=CASES.keys())
def test_one_line_says_where_and_what(data, place, expected):
    with pytest.raises(FormatError) as caught:
        parse_et(data, "dir/trace.0.et")
    text = str(caught.value)
    assert text.startswith("dir/trace.0.et: " + place)
    assert expected in text
    assert text.endswith("copy or convert it again")
    assert "\n" not in text


def test_metadata_that_is_no_metadata():
    with pytest.raises(FormatError, match="message 0 at byte 0: expected GlobalMetadata"):
        parse_et(delimited(b"\x12\x05abc"), "x.et")


@pytest.mark.parametrize("cut", range(len(of(GOOD))))
def test_every_truncation_is_read_or_refused(cut):
    data = of(GOOD)[:cut]
    ends = {0, 8, 26}
    if cut in ends - {0}:
        assert len(parse_et(data, "x.et")) == sorted(ends).index(cut) - 1
    else:
        with pytest.raises(FormatError):
            parse_et(data, "x.et")


@pytest.mark.parametrize("what", ["empty", "directory", "missing", "cut gzip", "damaged gzip", "gzip of nothing"])
def test_files_that_cannot_be_read(what, tmp_path):
    path = tmp_path / "trace.0.et"
    packed = gzip.compress(of(GOOD) * 200)
    if what == "directory":
        path.mkdir()
    elif what != "missing":
        damaged = packed[:40] + bytes(8) + packed[48:]
        content = {"cut gzip": packed[:-9], "damaged gzip": damaged, "gzip of nothing": gzip.compress(b"")}
        path.write_bytes(content.get(what, b""))
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: expected ")
    assert "\n" not in str(caught.value)


def test_no_permission(tmp_path, monkeypatch):
    path = tmp_path / "trace.0.et"
    path.write_bytes(of())

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match="got no permission"):
        read(path)


def test_a_null_byte_in_the_path():
    with pytest.raises(ChakraError):
        read("a\0b.et")
