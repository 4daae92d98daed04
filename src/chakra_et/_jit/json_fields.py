"""Fields of many JSON objects as positions in their text, without building objects.

Texts that aren't valid JSON give missing fields, never an out-of-bounds access.

Shape letters: B bytes, N objects, K keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["attribute_spans", "field_spans", "gather_strings", "gather_values", "parse_integers"]

Bytes = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]

_QUOTE, _BACKSLASH, _COLON, _COMMA = 34, 92, 58, 44
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93


@njit(cache=True, nogil=True)
def _string_end(buf: Bytes, pos: int, stop: int) -> int:
    """Return the position of the quote that closes a string whose opening quote is at `pos`, or `stop`."""
    pos += 1
    while pos < stop:
        char = buf[pos]
        if char == _QUOTE:
            return pos
        if char == _BACKSLASH:
            pos += 1
        pos += 1
    return stop


@njit(cache=True, nogil=True)
def _value_end(buf: Bytes, pos: int, stop: int) -> int:
    """Return the position after the value that begins at `pos`."""
    char = buf[pos]
    if char == _QUOTE:
        return min(_string_end(buf, pos, stop) + 1, stop)
    if char in (_OPEN, _OPEN_LIST):
        depth = 0
        while pos < stop:
            char = buf[pos]
            if char == _QUOTE:
                pos = _string_end(buf, pos, stop)
            elif char >= _OPEN_LIST:
                if char in (_OPEN, _OPEN_LIST):
                    depth += 1
                elif char in (_CLOSE, _CLOSE_LIST):
                    depth -= 1
                    if depth == 0:
                        return pos + 1
            pos += 1
        return stop
    while pos < stop:
        char = buf[pos]
        if char in (_COMMA, _CLOSE, _CLOSE_LIST) or char <= 32:
            return pos
        pos += 1
    return stop


@njit(cache=True, nogil=True)
def _skip(buf: Bytes, pos: int, stop: int) -> int:
    while pos < stop and buf[pos] <= 32:
        pos += 1
    return pos


@njit(cache=True, nogil=True)
def _key_index(buf: Bytes, begin: int, end: int, keys: Bytes, key_offsets: Int) -> int:
    size = end - begin
    for key in range(len(key_offsets) - 1):
        low = key_offsets[key]
        if key_offsets[key + 1] - low != size:
            continue
        same = True
        for at in range(size):
            if keys[low + at] != buf[begin + at]:
                same = False
                break
        if same:
            return key
    return -1


@njit(cache=True, nogil=True)
def field_spans(buf: Bytes, starts: Int, ends: Int, keys: Bytes, key_offsets: Int) -> tuple[Int, Int]:
    """Find the values of some keys of each object.

    Args:
        buf: uint8 [B].
        starts: int64 [N], position of each object's opening brace; -1: no object.
        ends: int64 [N], position after its closing brace.
        keys: uint8, the keys' bytes.
        key_offsets: int64 [K + 1].

    Returns:
        begin and end of the values, int64 [K, N]; -1 where an object lacks the key. Of repeated keys the last counts.
    """
    count = len(starts)
    wanted = len(key_offsets) - 1
    begin = np.full((wanted, count), -1, np.int64)
    end = np.full((wanted, count), -1, np.int64)
    for row in range(count):
        stop = ends[row]
        if starts[row] < 0 or stop <= starts[row] or buf[starts[row]] != _OPEN:
            continue
        pos = starts[row] + 1
        while True:
            while pos < stop and buf[pos] != _QUOTE:
                pos += 1
            if pos >= stop:
                break
            key_end = _string_end(buf, pos, stop)
            key = _key_index(buf, pos + 1, key_end, keys, key_offsets)
            pos = _skip(buf, key_end + 1, stop)
            if pos >= stop or buf[pos] != _COLON:
                continue
            pos = _skip(buf, pos + 1, stop)
            if pos >= stop:
                break
            value_end = _value_end(buf, pos, stop)
            if key >= 0:
                begin[key, row] = pos
                end[key, row] = value_end
            pos = value_end
    return begin, end


@njit(cache=True, nogil=True)
def attribute_spans(buf: Bytes, starts: Int, ends: Int, keys: Bytes, key_offsets: Int) -> tuple[Int, Int]:
    """Find the values of named attributes in lists of ``{"name": ..., "type": ..., "value": ...}``.

    Args:
        buf: uint8 [B].
        starts: int64 [N], position of each list's opening bracket; -1: no list.
        ends: int64 [N], position after its closing bracket.
        keys: uint8, the attribute names' bytes.
        key_offsets: int64 [K + 1].

    Returns:
        begin and end of the values, int64 [K, N]; -1 where a list lacks the attribute.
    """
    count = len(starts)
    wanted = len(key_offsets) - 1
    begin = np.full((wanted, count), -1, np.int64)
    end = np.full((wanted, count), -1, np.int64)
    for row in range(count):
        if starts[row] < 0:
            continue
        pos, stop = starts[row] + 1, ends[row]
        while True:
            while pos < stop and buf[pos] != _OPEN:
                pos += 1
            if pos >= stop:
                break
            attribute, value_begin, value_end = -1, -1, -1
            pos += 1
            while pos < stop and buf[pos] != _CLOSE:
                if buf[pos] != _QUOTE:
                    pos += 1
                    continue
                key_begin, key_end = pos + 1, _string_end(buf, pos, stop)
                pos = _skip(buf, key_end + 1, stop)
                if pos >= stop or buf[pos] != _COLON:
                    continue
                pos = _skip(buf, pos + 1, stop)
                if pos >= stop:
                    break
                after = _value_end(buf, pos, stop)
                # "name" and "value" are told by their first letter and length.
                if key_end - key_begin == 4 and buf[key_begin] == 110 and buf[pos] == _QUOTE:
                    attribute = _key_index(buf, pos + 1, after - 1, keys, key_offsets)
                elif key_end - key_begin == 5 and buf[key_begin] == 118:
                    value_begin, value_end = pos, after
                pos = after
            if attribute >= 0 and value_begin >= 0:
                begin[attribute, row] = value_begin
                end[attribute, row] = value_end
    return begin, end


@njit(cache=True, nogil=True)
def parse_integers(buf: Bytes, begin: Int, end: Int, missing: int) -> Int:
    """Parse the integers at some spans.

    Args:
        buf: uint8 [B].
        begin: int64 [N], -1: none.
        end: int64 [N].
        missing: Value where there is none, or where the text is no integer.

    Returns:
        int64 [N]; what doesn't fit wraps (thread ids, -1 written as 2^64 - 1). A list counts as its first number.
    """
    values = np.full(len(begin), missing, np.int64)
    for row in range(len(begin)):
        pos, stop = begin[row], end[row]
        if pos < 0:
            continue
        while pos < stop and (buf[pos] == _OPEN_LIST or buf[pos] == _QUOTE or buf[pos] <= 32):
            pos += 1
        negative = pos < stop and buf[pos] == 45
        if negative:
            pos += 1
        value, digits = np.int64(0), 0
        while pos < stop and 48 <= buf[pos] <= 57:
            value = value * 10 + np.int64(buf[pos] - 48)
            digits += 1
            pos += 1
        if digits:
            values[row] = -value if negative else value
    return values


@njit(cache=True, nogil=True)
def gather_strings(buf: Bytes, begin: Int, end: Int) -> tuple[Int, Bytes, Int]:
    """Copy strings into one buffer, without their quotes.

    Args:
        buf: uint8 [B].
        begin: int64 [N], -1: none.
        end: int64 [N].

    Returns:
        offsets int64 [N + 1], bytes uint8, and the rows that hold a backslash. What is no string is copied as it is.
    """
    count = len(begin)
    offsets = np.zeros(count + 1, np.int64)
    for row in range(count):
        size = end[row] - begin[row] if begin[row] >= 0 else 0
        offsets[row + 1] = offsets[row] + (size - 2 if size >= 2 and buf[begin[row]] == _QUOTE else size)
    data = np.empty(offsets[count], np.uint8)
    escaped = np.empty(count, np.int64)
    found = 0
    for row in range(count):
        low = offsets[row]
        size = offsets[row + 1] - low
        if size == 0:
            continue
        source = begin[row] + (1 if buf[begin[row]] == _QUOTE else 0)
        slash = False
        for at in range(size):
            char = buf[source + at]
            data[low + at] = char
            slash |= char == _BACKSLASH
        if slash:
            escaped[found] = row
            found += 1
    return offsets, data, escaped[:found].copy()


@njit(cache=True, nogil=True)
def gather_values(buf: Bytes, begin: Int, end: Int) -> tuple[Int, Bytes]:
    """Copy JSON values into one buffer, without white space between their parts.

    Args:
        buf: uint8 [B].
        begin: int64 [N], -1: none.
        end: int64 [N].

    Returns:
        offsets int64 [N + 1] and bytes uint8.
    """
    count = len(begin)
    offsets = np.zeros(count + 1, np.int64)
    total = 0
    for row in range(count):
        total += max(end[row] - begin[row], 0) if begin[row] >= 0 else 0
    data = np.empty(total, np.uint8)
    fill = 0
    for row in range(count):
        in_string = False
        pos = begin[row] if begin[row] >= 0 else end[row]
        while pos < end[row]:
            char = buf[pos]
            if in_string or char > 32:
                data[fill] = char
                fill += 1
            if char == _QUOTE:
                in_string = not in_string
            elif char == _BACKSLASH and in_string and pos + 1 < end[row]:
                pos += 1
                data[fill] = buf[pos]
                fill += 1
            pos += 1
        offsets[row + 1] = fill
    return offsets, data[:fill].copy()
