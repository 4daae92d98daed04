"""Byte-level JSON scanning: find the objects of an array without decoding them, and decimal numbers without rounding.

Shape letters: B bytes, K objects, N numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["follow_objects", "object_spans", "parse_decimals", "tensor_records"]

Bytes = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]

_QUOTE, _BACKSLASH = 34, 92
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93


@njit(cache=True, nogil=True)
def object_spans(buf: Bytes, begin: int) -> tuple[Int, Int, int, bool]:
    """Find the objects of an array; commas between them are not required.

    Args:
        buf: uint8 [B].
        begin: Position after the array's opening bracket.

    Returns:
        starts int64 [K], ends int64 [K] (exclusive), the position after the closing bracket (B if it is missing), and
        whether the array was closed. An object that the end of the buffer cuts off is left out.
    """
    capacity = max(16, (len(buf) - begin) // 64)
    starts = np.empty(capacity, np.int64)
    ends = np.empty(capacity, np.int64)
    count, depth, first = 0, 0, 0
    pos = begin
    size = len(buf)
    while pos < size:
        char = buf[pos]
        if char == _QUOTE:
            pos += 1
            while pos < size and buf[pos] != _QUOTE:
                if buf[pos] == _BACKSLASH:
                    pos += 1
                pos += 1
        elif char >= _OPEN_LIST:
            if char in (_OPEN, _OPEN_LIST):
                if depth == 0:
                    first = pos
                depth += 1
            elif char in (_CLOSE, _CLOSE_LIST):
                if depth == 0:
                    return starts[:count].copy(), ends[:count].copy(), pos + 1, char == _CLOSE_LIST
                depth -= 1
                if depth == 0 and char == _CLOSE:
                    if count == capacity:
                        capacity *= 2
                        starts = np.concatenate((starts, np.empty(count, np.int64)))
                        ends = np.concatenate((ends, np.empty(count, np.int64)))
                    starts[count] = first
                    ends[count] = pos + 1
                    count += 1
        pos += 1
    return starts[:count].copy(), ends[:count].copy(), size, False


@njit(cache=True, nogil=True)
def follow_objects(buf: Bytes, begin: int, lengths: Int) -> Int:
    """Return where the objects of an array start, from their lengths: only white space and commas stand between them.

    Args:
        buf: uint8 [B].
        begin: Position after the array's opening bracket.
        lengths: int64 [K].
    """
    starts = np.empty(len(lengths), np.int64)
    pos = begin
    for row in range(len(lengths)):
        while pos < len(buf) and (buf[pos] <= 32 or buf[pos] == 44):
            pos += 1
        starts[row] = pos
        pos += lengths[row]
    return starts


@njit(cache=True, nogil=True)
def parse_decimals(buf: Bytes, offsets: Int, digits: int) -> tuple[Int, bool, int]:
    """Parse decimal numbers as integers scaled by ten to the `digits`, rounded half up, without going through floats.

    Args:
        buf: uint8 [B], the numbers' text (quotes are skipped).
        offsets: int64 [N + 1].
        digits: Decimal digits to keep.

    Returns:
        values int64 [N], whether any number had a fraction, and how many weren't plain decimals (their value is 0).
    """
    count = len(offsets) - 1
    values = np.zeros(count, np.int64)
    fractional = False
    bad = 0
    for row in range(count):
        value, negative, kept, seen_point, round_up, okay, empty = np.int64(0), False, 0, False, False, True, True
        for pos in range(offsets[row], offsets[row + 1]):
            char = buf[pos]
            if 48 <= char <= 57:
                empty = False
                if not seen_point:
                    value = value * 10 + (char - 48)
                elif kept < digits:
                    value = value * 10 + (char - 48)
                    kept += 1
                    fractional = True
                elif kept == digits:
                    round_up = char >= 53
                    kept += 1
            elif char == 46 and not seen_point:
                seen_point = True
            elif char == 45 and empty:
                negative = True
            elif char != _QUOTE and char != 43 and char != 32:
                okay = False
        if not okay or empty:
            bad += 1
            continue
        for _ in range(kept, digits):
            value *= 10
        if round_up:
            value += 1
        values[row] = -value if negative else value
    return values, fractional, bad


@njit(cache=True, nogil=True)
def _device_number(buf: Bytes, pos: int, stop: int) -> int:
    """Return the number of the device whose name begins at `pos`; -1 for the host, -2 for none (``meta``)."""
    if stop - pos >= 3 and buf[pos] == 99 and buf[pos + 1] == 112 and buf[pos + 2] == 117:
        return -1
    if pos >= stop or buf[pos] == _QUOTE or (buf[pos] == 109 and pos + 1 < stop and buf[pos + 1] == 101):
        return -2
    number = 0
    while pos < stop and buf[pos] != _QUOTE:
        if 48 <= buf[pos] <= 57:
            number = number * 10 + np.int64(buf[pos] - 48)
        pos += 1
    return number


@njit(cache=True, nogil=True)
def tensor_records(buf: Bytes, offsets: Int) -> tuple[Int, Int]:
    """Find tensor records ``[tensor id, storage id, offset, elements, bytes each, "device"]`` in JSON texts.

    Args:
        buf: uint8 [B], the texts.
        offsets: int64 [N + 1], one text a row.

    Returns:
        row int64 [K], and the records int64 [K, 6]; of the device its number, -1 for the host's memory, -2 for none.
    """
    capacity = max(16, len(buf) // 24)
    rows = np.empty(capacity, np.int64)
    records = np.empty((capacity, 6), np.int64)
    numbers = np.zeros(5, np.int64)
    count = 0
    for row in range(len(offsets) - 1):
        fields, value, has_digit, in_string = -1, np.int64(0), False, False
        end = offsets[row + 1]
        pos = offsets[row]
        while pos < end:
            char = buf[pos]
            if in_string:
                if char == _BACKSLASH:
                    pos += 1
                elif char == _QUOTE:
                    in_string = False
            elif char == _OPEN_LIST:
                fields, value, has_digit = 0, np.int64(0), False
            elif 48 <= char <= 57:
                value = value * 10 + (char - 48)
                has_digit = True
            elif char == 44:
                if fields >= 0 and fields < 5 and has_digit:
                    numbers[fields] = value
                    fields += 1
                elif fields != 5:
                    fields = -1
                value, has_digit = np.int64(0), False
            elif char == _QUOTE:
                if fields == 5 and count < capacity:
                    rows[count] = row
                    records[count, :5] = numbers
                    records[count, 5] = _device_number(buf, pos + 1, end)
                    count += 1
                fields = -1
                in_string = True
            elif char != 32:
                fields = -1
            pos += 1
    return rows[:count].copy(), records[:count].copy()
