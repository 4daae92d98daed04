"""JSON files that are one huge array: read into columns, repaired where that is safe."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.json_array import open_array

RECORDS = [{"a": 1, "n": "x"}, {"a": 2, "n": 'q"\\{}[]'}, {"n": "é\n"}]


def opened(text, key="traceEvents"):
    return open_array("file.json", text if isinstance(text, bytes) else text.encode(), key)


def names_of(file):
    return file.objects().texts(file.objects().fields(("n",))["n"], plain=True).to_list()


def numbers_of(file, missing=-1):
    objects = file.objects()
    return objects.integers(objects.fields(("a",))["a"], missing).to_list()


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("order", ["first", "last"])
def test_whole_documents(indent, order):
    rest = {"schemaVersion": 1, "distributedInfo": {"rank": 3, "list": [1, {"x": "]"}]}}
    top = {"traceEvents": RECORDS} | rest if order == "first" else rest | {"traceEvents": RECORDS}
    file = opened(json.dumps(top, indent=indent))
    assert file.header == rest
    assert names_of(file) == ["x", 'q"\\{}[]', "é\n"]
    assert numbers_of(file) == [1, 2, -1]
    assert file.repairs == []


def test_a_list_as_the_whole_file():
    file = opened("\n" + json.dumps(RECORDS))
    assert file.header == {}
    assert numbers_of(file) == [1, 2, -1]
    assert file.repairs == []


def test_a_byte_order_mark():
    assert numbers_of(opened(b"\xef\xbb\xbf" + json.dumps({"traceEvents": RECORDS}).encode())) == [1, 2, -1]
    assert numbers_of(opened(b"\xef\xbb\xbf" + json.dumps(RECORDS).encode())) == [1, 2, -1]


def test_empty_arrays():
    assert names_of(opened('{"traceEvents": []}')) == []
    assert names_of(opened("[]")) == []


@given(st.integers(0, len(json.dumps({"v": 1, "traceEvents": RECORDS}))))
@settings(deadline=None)
def test_truncated_anywhere(cut):
    text = json.dumps({"v": 1, "traceEvents": RECORDS})[:cut]
    if '"traceEvents": [' not in text:
        with pytest.raises(FormatError):
            opened(text)
        return
    file = opened(text)
    found = names_of(file)
    assert found == ["x", 'q"\\{}[]', "é\n"][: len(found)]
    if cut < len(json.dumps({"v": 1, "traceEvents": RECORDS})) - 1:
        assert file.repairs == [
            "the file ends inside the traceEvents array (truncated); read up to its last whole record"
        ]
    assert file.header == {"v": 1}


def test_the_header_survives_truncation_after_the_array():
    text = '{"v": 1, "traceEvents": [{"a": 5}], "w": 2'
    file = opened(text)
    assert numbers_of(file) == [5]
    assert file.header["v"] == 1


def test_concatenated_documents():
    one, two = json.dumps({"v": 1, "traceEvents": RECORDS}), json.dumps({"v": 2, "traceEvents": [{"a": 9}]})
    file = opened(f"{one}\n{two}")
    assert numbers_of(file) == [1, 2, -1, 9]
    assert file.header == {"v": 1}
    assert file.repairs == ["a second JSON document follows the first; its 1 records were read too"]


def test_missing_commas():
    file = opened('{"v": 1, "traceEvents": [{"a": 1} {"a": 2}\n{"a": 3},]}')
    assert numbers_of(file) == [1, 2, 3]
    assert file.header == {"v": 1}
    assert file.repairs == ["the file is no valid JSON; its 3 traceEvents records were read one by one"]


def test_nan_and_infinity():
    file = opened('{"v": NaN, "traceEvents": [{"a": NaN, "n": "x"}, {"a": 7, "n": Infinity}]}')
    assert numbers_of(file) == [-1, 7]
    assert names_of(file)[0] == "x"


def test_control_characters_in_strings():
    file = opened(b'{"v": "a\tb", "traceEvents": [{"a": 1, "n": "x\x01\ny"}]}')
    assert names_of(file) == ["x\x01\ny"]
    assert file.header == {"v": "a\tb"}


def test_bytes_that_are_no_utf8():
    file = opened(b'{"v": "\xff", "traceEvents": [{"a": 1, "n": "x\xfey"}, {"a": 2, "n": "z"}]}')
    assert numbers_of(file) == [1, 2]
    assert names_of(file) == ["x\ufffdy", "z"]
    assert file.header == {"v": "\ufffd"}


def test_lone_surrogates_and_broken_escapes():
    file = opened(rb'{"traceEvents": [{"n": "a\ud800b"}, {"n": "a\u00e9"}, {"n": "tab\t"}, {"n": "\x"}]}')
    assert names_of(file)[1:3] == ["aé", "tab\t"]
    assert len(names_of(file)) == 4


def test_the_key_in_a_string_is_no_key():
    text = json.dumps({"note": '"traceEvents": [', "traceEvents": RECORDS})
    assert numbers_of(opened(text)) == [1, 2, -1]


@pytest.mark.parametrize("text", [b"", b"  \n", b"{}", b"hello", b'{"nodes": [{}]}', b'{"traceEvents": {"a": 1}}'])
def test_files_without_the_array_are_refused(text):
    with pytest.raises(FormatError, match=r'file\.json: expected JSON with a "traceEvents" array, got .*right file'):
        opened(text)


def test_refusals_show_the_beginning():
    with pytest.raises(FormatError, match="got an empty file"):
        opened(b" ")
    with pytest.raises(FormatError, match="got 'hello world'"):
        opened(b"hello world")


def test_decimals_keep_every_nanosecond():
    numbers = ["1795973882902932.087", "5", "0.0005", '"12.25"', "1.5e3", "NaN", "null", "-3.5"]
    file = opened('{"traceEvents": [' + ",".join(f'{{"t": {number}}}' for number in numbers) + ', {"u": 1}]}')
    objects = file.objects()
    values, fractional = objects.decimals(objects.fields(("t",))["t"], 3)
    assert values.tolist() == [1795973882902932087, 5000, 1, 12250, 1_500_000, 0, 0, -3500, 0]
    assert fractional


def test_integers_have_no_fraction():
    file = opened('{"traceEvents": [{"t": 5}, {"t": 7}]}')
    objects = file.objects()
    assert not objects.decimals(objects.fields(("t",))["t"], 3)[1]


def test_nested_fields():
    file = opened('{"traceEvents": [{"args": {"k": 1, "l": [1,2]}}, {"args": null}, {"args": {"l": "s"}}, {}]}')
    objects = file.objects()
    inside = objects.inside(objects.fields(("args",))["args"], ("k", "l"))
    assert objects.integers(inside["k"], -1).to_list() == [1, -1, -1, -1]
    assert objects.texts(inside["l"], plain=False).to_list() == ["[1,2]", "", '"s"', ""]
    assert objects.texts(inside["l"], plain=True).to_list() == ["[1,2]", "", "s", ""]


@given(st.lists(st.dictionaries(st.sampled_from("an"), st.text() | st.integers(-(2**63), 2**63 - 1)), max_size=4))
@settings(deadline=None)
def test_repaired_reading_agrees_with_plain_reading(records):
    """A trailing comma makes a file invalid, and so takes the repairing path."""
    text = json.dumps(records)
    plain, odd = opened(f'{{"traceEvents": {text}}}'), opened(f'{{"traceEvents": {text[:-1]} ,]}}')
    assert names_of(plain) == names_of(odd)
    assert names_of(plain) == [str(record.get("n", "")) for record in records]
    assert numbers_of(plain) == numbers_of(odd)
