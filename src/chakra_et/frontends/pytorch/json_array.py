"""Read a JSON file that is one huge array of small objects into columns, and repair what is safe to repair.

Fields are looked up in the text and copied to columns; no Python object is made for an array element.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.json_fields import attribute_spans, field_spans, gather_strings, gather_values, parse_integers
from chakra_et._jit.json_scan import follow_objects, object_spans, parse_decimals
from chakra_et.errors import FormatError
from chakra_et.ir.arrays import string_series

__all__ = ["ArrayFile", "JsonObjects", "open_array"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayFile:
    """The located objects of an array file.

    Attributes:
        path: Name for messages.
        text: The objects' text.
        header: The top-level keys beside the array.
        spans: (start, end) positions of the objects in the text, int64 [K] each.
        repairs: What was wrong with the file and how it was read all the same.
    """

    path: str
    text: bytes
    header: dict[str, Any]
    spans: tuple[Int, Int]
    repairs: list[str]

    def objects(self) -> JsonObjects:
        """Return the objects, to look fields up in."""
        return JsonObjects(self.text, *self.spans)


class JsonObjects:
    """Objects of a text, and the spans of their fields."""

    def __init__(self, text: bytes, starts: Int, ends: Int) -> None:
        self._buf = np.frombuffer(text, np.uint8)
        self._starts = starts
        self._ends = ends

    def fields(self, keys: tuple[str, ...]) -> dict[str, tuple[Int, Int]]:
        """Return begin and end of the values of some keys."""
        return self._find(field_spans, keys, self._starts, self._ends)

    def inside(self, span: tuple[Int, Int], keys: tuple[str, ...]) -> dict[str, tuple[Int, Int]]:
        """Return the values of some keys of the objects at a field."""
        return self._find(field_spans, keys, *span)

    def attributes(self, span: tuple[Int, Int], names: tuple[str, ...]) -> dict[str, tuple[Int, Int]]:
        """Return the values of some attributes of the attribute lists at a field."""
        return self._find(attribute_spans, names, *span)

    def _find(self, function: Any, keys: tuple[str, ...], starts: Int, ends: Int) -> dict[str, tuple[Int, Int]]:
        raw = [key.encode() for key in keys]
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum([len(key) for key in raw], out=offsets[1:])
        begin, end = function(self._buf, starts, ends, np.frombuffer(b"".join(raw), np.uint8), offsets)
        return {key: (begin[index], end[index]) for index, key in enumerate(keys)}

    def integers(self, span: tuple[Int, Int], missing: int) -> pl.Series:
        """Parse integers."""
        return pl.Series(parse_integers(self._buf, *span, missing))

    def decimals(self, span: tuple[Int, Int], digits: int) -> tuple[Int, bool]:
        """Parse decimal numbers as integers scaled by ten to the `digits`; also return whether any had a fraction."""
        offsets, data, _ = gather_strings(self._buf, *span)
        values, fractional, bad = parse_decimals(data, offsets, digits)
        if bad:
            raw = data.tobytes()
            for row in np.flatnonzero((values == 0) & (span[0] >= 0)).tolist():
                values[row] = _odd_number(raw[offsets[row] : offsets[row + 1]], digits)
        return values, bool(fractional)

    def texts(self, span: tuple[Int, Int], *, plain: bool) -> pl.Series:
        """Copy values: compact JSON, or with `plain` the strings that it stands for; missing is empty."""
        escaped = np.empty(0, np.int64)
        if plain:
            offsets, data, escaped = gather_strings(self._buf, *span)
        else:
            offsets, data = gather_values(self._buf, *span)
        try:
            str(data.data, "utf-8")
        except UnicodeDecodeError:
            raw = data.tobytes()
            return pl.Series([raw[a:b].decode("utf-8", "replace") for a, b in pairwise(offsets.tolist())])
        texts = string_series("", offsets, data)
        if not len(escaped):
            return texts
        return texts.scatter(escaped, [_unescape(texts[int(row)]) for row in escaped])


def _odd_number(text: bytes, digits: int) -> int:
    try:
        value = float(text) * 10**digits
    except ValueError:
        return 0
    return round(value) if abs(value) < 9e18 else 0


def _unescape(text: str) -> str:
    try:
        return str(msgspec.json.decode(f'"{text}"'))
    except msgspec.DecodeError:
        return text


def open_array(path: str, text: bytes, key: str) -> ArrayFile:
    """Locate the objects of the array `key` (or of a file that is nothing but an array).

    Args:
        path: Name for messages.
        text: The whole file, decompressed.
        key: Top-level key of the array.

    Raises:
        FormatError: There is no such array.
    """
    whole = _open_whole(path, text, key)
    if whole is not None:
        return whole
    begin = _array_begin(text, key)
    if begin < 0:
        raise FormatError(f'{path}: expected JSON with a "{key}" array, got {_glimpse(text)}; is this the right file?')
    repairs: list[str] = []
    buffer = np.frombuffer(text, np.uint8)
    starts, ends, stop, closed = object_spans(buffer, begin)
    if not closed:
        repairs.append(f"the file ends inside the {key} array (truncated); read up to its last whole record")
    header = _header(text, begin, stop if closed else len(text))
    more = _array_begin(text, key, stop) if closed else -1
    while more >= 0:
        extra_starts, extra_ends, stop, closed = object_spans(buffer, more)
        repairs.append(f"a second JSON document follows the first; its {len(extra_starts)} records were read too")
        starts, ends = np.concatenate([starts, extra_starts]), np.concatenate([ends, extra_ends])
        more = _array_begin(text, key, stop) if closed else -1
    header.pop(key, None)
    if not repairs and text[:begin].strip(b"\xef\xbb\xbf \t\r\n") != b"[":
        repairs.append(f"the file is no valid JSON; its {len(starts)} {key} records were read one by one")
    return ArrayFile(path, text, header, (starts, ends), repairs)


def _open_whole(path: str, text: bytes, key: str) -> ArrayFile | None:
    """Open a file that is one valid JSON document, the fast way; None if it isn't."""
    try:
        top = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        objects = msgspec.json.decode(top.pop(key), type=list[msgspec.Raw])
        header = {name: msgspec.json.decode(value) for name, value in top.items()}
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, KeyError, RecursionError):
        return None
    begin = _array_begin(text, key)
    lengths = np.array([memoryview(found).nbytes for found in objects], np.int64)
    starts = follow_objects(np.frombuffer(text, np.uint8), begin, lengths)
    if len(starts) and bytes(objects[-1]) != text[starts[-1] : starts[-1] + lengths[-1]]:
        return None  # the first occurrence of the key stands in a string
    return ArrayFile(path, text, header, (starts, starts + lengths), [])


def _array_begin(text: bytes, key: str, start: int = 0) -> int:
    stripped = text[start : start + 64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start == 0 and stripped[:1] == b"[":
        return text.index(b"[") + 1
    match = re.compile(rb'"' + re.escape(key.encode()) + rb'"\s*:\s*\[').search(text, start)
    return match.end() if match else -1


def _header(text: bytes, begin: int, stop: int) -> dict[str, Any]:
    head, tail = text[:begin], text[stop:]
    if head.strip() == b"[":
        return {}
    attempts: tuple[Callable[[], bytes], ...] = (
        lambda: head + b"]" + tail,
        lambda: head + b"]}",
    )
    for attempt in attempts:
        try:
            found = json.JSONDecoder(strict=False).raw_decode(
                attempt().decode("utf-8", errors="replace").lstrip("\ufeff \r\n\t")
            )[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _glimpse(text: bytes) -> str:
    return "an empty file" if not text.strip() else repr(text[:40].decode("utf-8", errors="replace"))
