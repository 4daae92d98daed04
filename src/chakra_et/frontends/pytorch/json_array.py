"""Read a JSON file that is one huge array of small objects, in chunks, and repair what is safe to repair."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from chakra_et._jit.json_scan import object_spans
from chakra_et.errors import FormatError

__all__ = ["ArrayFile", "open_array"]

T = TypeVar("T")
_CHUNK = 8192


@dataclass(frozen=True, slots=True, eq=False)
class ArrayFile:
    """The located objects of an array file.

    Attributes:
        path: Name for messages.
        text: The whole file.
        header: The top-level keys beside the array.
        spans: (start, end) positions of the objects, int64 [K] each.
        repairs: What was wrong with the file and how it was read all the same.
    """

    path: str
    text: bytes
    header: dict[str, Any]
    spans: tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]
    repairs: list[str]

    def chunks(self, decoder: msgspec.json.Decoder[list[T]], one: msgspec.json.Decoder[T]) -> Iterator[list[T]]:
        """Decode the objects, some thousands at a time; an object that can't be decoded is dropped and noted.

        Args:
            decoder: Decodes a list of objects.
            one: Decodes a single object; used for a chunk in which something is wrong.
        """
        starts, ends = self.spans
        dropped = 0
        for low in range(0, len(starts), _CHUNK):
            high = min(low + _CHUNK, len(starts))
            body = self.text[starts[low] : ends[high - 1]]
            try:
                yield decoder.decode(b"[" + body + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError):
                objects, lost = self._one_by_one(one, low, high)
                dropped += lost
                yield objects
        if dropped:
            self.repairs.append(f"{dropped} of {len(starts)} records could not be decoded and were dropped")

    def _one_by_one(self, one: msgspec.json.Decoder[T], low: int, high: int) -> tuple[list[T], int]:
        starts, ends = self.spans
        objects: list[T] = []
        lost = 0
        for index in range(low, high):
            raw = self.text[starts[index] : ends[index]]
            for attempt in (_as_is, _clean_text):
                try:
                    objects.append(one.decode(attempt(raw)))
                    break
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
            else:
                lost += 1
        return objects, lost


def _as_is(raw: bytes) -> bytes:
    return raw


def _clean_text(raw: bytes) -> bytes:
    """Escape raw control characters, replace what isn't UTF-8, double stray backslashes, and turn NaN into null."""
    text = raw.decode("utf-8", errors="replace")
    text = re.sub(r'\\(?!["\\/bfnrtu])', r"\\\\", text)
    text = re.sub(r"[\x00-\x1f]", " ", text)
    text = re.sub(r"(?<=[:\[,\s])-?(?:NaN|Infinity|inf|nan)(?=[,\]}\s])", "null", text)
    return text.encode()


def open_array(path: str, text: bytes, key: str) -> ArrayFile:
    """Locate the objects of the array `key` (or of a file that is nothing but an array).

    Args:
        path: Name for messages.
        text: The whole file, decompressed.
        key: Top-level key of the array.

    Raises:
        FormatError: There is no such array.
    """
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
    return ArrayFile(path, text, header, (starts, ends), repairs)


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
            found = json.JSONDecoder(strict=False).raw_decode(attempt().decode("utf-8", errors="replace").lstrip("\ufeff \r\n\t"))[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _glimpse(text: bytes) -> str:
    return "an empty file" if not text.strip() else repr(text[:40].decode("utf-8", errors="replace"))
