"""Protobuf wire primitives: varints, skipping, UTF-8, attribute records. Shared by the reader and the writer loops.

Functions that can meet bad bytes return a position; a negative one is ``-code`` of an error below. Positions count
bytes in the buffer; `end` is exclusive.

Numba's cache of the loops in `wire_read` and `wire_write` doesn't notice a change in this file: after one, delete their
``.nbi`` files in ``__pycache__``.

Shape letters: B bytes, A attribute names, H hash slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = [
    "BAD_FIELD",
    "BAD_UTF8",
    "BAD_WIRE",
    "KIND_BOOL",
    "LENGTH_DELIMITED",
    "LIST",
    "LONG_VARINT",
    "NUMBER",
    "PAST_END",
    "STRING",
    "TRUNCATED",
    "UNSIGNED",
    "WIRE_OF_KIND",
    "ZERO",
    "WireTable",
    "attribute",
    "copy_bytes",
    "equal_bytes",
    "fits",
    "folded",
    "hot",
    "inner",
    "is_utf8",
    "lookup",
    "number",
    "packed",
    "read_tag",
    "read_varint",
    "skip",
    "split",
    "takes",
    "walk_ids",
]

Bytes = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]

# Constants are typed, because numba compiles a function anew for each literal that it is called with.
ZERO = np.int64(0)
LENGTH_DELIMITED = np.int64(2)

_FOUR, _EIGHT = np.int64(4), np.int64(8)

# Error codes.
TRUNCATED = np.int64(1)  # the bytes end inside a varint or a fixed-width value
LONG_VARINT = np.int64(2)  # a varint of more than 64 bits
PAST_END = np.int64(3)  # a length that reaches past the end of what holds it
BAD_WIRE = np.int64(4)  # wire type 3, 4, 6 or 7, or not the one that the schema gives the field
BAD_FIELD = np.int64(5)  # field number 0 or too large
BAD_UTF8 = np.int64(6)  # a string that isn't UTF-8

# What a column takes.
NUMBER = np.int64(0)  # any numeric kind whose value fits int64
KIND_BOOL = np.int64(1)  # any integer kind; zero is False
STRING = np.int64(2)
LIST = np.int64(3)  # a list of ids
UNSIGNED = np.int64(4)  # any numeric kind whose value fits uint64

# Wire type of each oneof kind (field number in AttributeProto); 9 = no kind.
WIRE_OF_KIND = np.array(
    [9, 9, 9, 1, 2, 5, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 5, 2, 1, 2, 5, 2, 1, 2, 0, 2, 2, 2, 2, 2], np.int64
)


# For functions that only compiled code calls. Without the wrappers that let Python call them, and without a cache
# entry each, the loops compile in half the time; without reference counts on the arrays (nothing here allocates) they
# run in half. `hot` ones are always inlined by the machine code compiler, `folded` ones before types are known (for
# one caller, cheaper to compile): passing a dozen arrays on the stack costs more than the functions themselves.
inner = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)
hot = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, forceinline=True)
folded = njit(inline="always", _nrt=False)


class WireTable(NamedTuple):
    """The attribute names that are columns.

    Attributes:
        slots: int64 [H], H a power of two: attribute number, or -1; open addressing, see `lookup`.
        names: uint8 [B], the names, one after the other.
        starts: int64 [A + 1], where each name starts.
        family: int64 [A]: what the column takes (NUMBER, KIND_BOOL, STRING, LIST, UNSIGNED).
        kind: int64 [A]: the oneof kind that is written.
        row: int64 [A]: row of the column's values in the arrays of its family; -1: the column isn't there.
        mode: int64 [3]: 1 if the trace types its edges; attribute numbers of start and duration.
    """

    slots: Int
    names: Bytes
    starts: Int
    family: Int
    kind: Int
    row: Int
    mode: Int


@hot
def read_varint(buf: Bytes, pos: int, end: int) -> tuple[np.uint64, int]:
    """Return the varint at `pos` and the position behind it."""
    if pos < end and buf[pos] < 128:
        return np.uint64(buf[pos]), pos + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    stop = min(end, pos + 10)
    while pos < stop:
        byte = buf[pos]
        pos += 1
        if byte < 128:
            if shift == np.uint64(63) and byte > 1:
                return value, -LONG_VARINT
            return value | (np.uint64(byte) << shift), pos
        value |= np.uint64(byte & 127) << shift
        shift += np.uint64(7)
    return value, -LONG_VARINT if shift == np.uint64(70) else -TRUNCATED


@hot
def read_tag(buf: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    """Return field number, wire type and the position behind the tag."""
    tag, pos = read_varint(buf, pos, end)
    if pos < 0:
        return 0, 0, pos
    if tag < np.uint64(8) or tag > np.uint64(0xFFFFFFFF):
        return 0, 0, -BAD_FIELD
    return np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7)), pos


@hot
def skip(buf: Bytes, pos: int, end: int, wire: int) -> tuple[int, int]:
    """Return where the value at `pos` starts (behind its length, if it has one) and ends; the end may be negative."""
    if wire == 0:
        _, stop = read_varint(buf, pos, end)
        return pos, stop
    if wire == 2:
        size, start = read_varint(buf, pos, end)
        if start < 0:
            return pos, start
        if size > np.uint64(end - start):
            return pos, -PAST_END
        return start, start + np.int64(size)
    if wire != 1 and wire != 5:
        return pos, -BAD_WIRE
    stop = pos + (8 if wire == 1 else 4)
    return pos, stop if stop <= end else -TRUNCATED


@hot
def is_utf8(buf: Bytes, pos: int, end: int) -> bool:
    """Return True if the bytes are well-formed UTF-8 (no surrogates, nothing over-long)."""
    high = np.uint8(0)
    for at in range(
        np.uint64(pos), np.uint64(end)
    ):  # unsigned: no test for negative indices, so the loop is vectorized
        high |= buf[at]
    if high < 128:
        return True
    while pos < end:
        lead = buf[pos]
        if lead < 0x80:
            pos += 1
            continue
        size = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
        if lead < 0xC2 or lead > 0xF4 or pos + size > end:
            return False
        second = buf[pos + 1]
        low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
        top = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
        if second < low or second > top:
            return False
        for at in range(pos + 2, pos + size):
            if buf[at] & 0xC0 != 0x80:
                return False
        pos += size
    return True


@njit(cache=True, nogil=True, _nrt=False)
def split(buf: Bytes, spans: Int, count: int) -> tuple[int, int, int]:
    """Find the length-delimited messages of a file.

    Args:
        buf: uint8 [B], read-only.
        spans: int64 [room, 2]: start and end of each message.
        count: How many of `spans` are known from an earlier call; 0 to begin.

    Returns:
        how many messages are known now (less than `room`: all, or an error), the error code (0: none) and its byte.
    """
    pos = spans[count - 1, 1] if count else ZERO
    while pos < len(buf) and count < len(spans):
        start, end = skip(buf, pos, len(buf), LENGTH_DELIMITED)
        if end < 0:
            return count, -end, pos
        spans[count, 0] = start
        spans[count, 1] = end
        count += 1
        pos = end
    return count, 0, 0


@hot
def equal_bytes(first: Bytes, pos: int, end: int, second: Bytes, start: int, stop: int) -> bool:
    """Return True if two byte ranges are equal."""
    if end - pos != stop - start:
        return False
    for at in range(end - pos):  # noqa: SIM110 (compiled code has no generators)
        if first[pos + at] != second[start + at]:
            return False
    return True


@hot
def copy_bytes(out: Bytes, at: int, buf: Bytes, start: int, stop: int) -> int:
    """Copy a byte range to `out`; return the position behind it."""
    target, source = np.uint64(at), np.uint64(start)
    for step in range(np.uint64(stop - start)):  # unsigned: as above
        out[target + step] = buf[source + step]
    return at + stop - start


@hot
def lookup(table: WireTable, buf: Bytes, pos: int, end: int) -> int:
    """Return the number of the attribute with that name, or -1. The hash is that of `chakra_et.io._table`."""
    if pos == end:
        return -1
    mask = len(table.slots) - 1
    slot = (np.int64(buf[pos]) * 5 + np.int64(buf[end - 1]) * 11 + (end - pos) * 23) & mask
    while True:
        found = table.slots[slot]
        if found < 0:
            return -1
        if equal_bytes(buf, pos, end, table.names, table.starts[found], table.starts[found + 1]):
            return found
        slot = (slot + 1) & mask


@inner
def attribute(buf: Bytes, pos: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """Parse one AttributeProto.

    Returns:
        name start and end, kind (field number of the value; 0: no value, or several), value start and end, 1 if
        anything but one name and one value is there, and the position of an error with ``-code`` in place of the name
        start.
    """
    name, name_end, kind, value, value_end, odd, values = 0, 0, 0, 0, 0, 0, 0
    names = 0
    while pos < end:
        at = pos
        field, wire, pos = read_tag(buf, pos, end)
        if pos < 0:
            return pos, 0, 0, 0, 0, 0, at
        start, stop = skip(buf, pos, end, wire)
        if stop < 0:
            return stop, 0, 0, 0, 0, 0, at
        if field <= 2:
            if wire != 2:
                return -BAD_WIRE, 0, 0, 0, 0, 0, at
            if not is_utf8(buf, start, stop):
                return -BAD_UTF8, 0, 0, 0, 0, 0, at
            if field == 1:
                name, name_end = start, stop
                names += 1
            else:
                odd = 1
        elif field < len(WIRE_OF_KIND):
            if wire != WIRE_OF_KIND[field]:
                return -BAD_WIRE, 0, 0, 0, 0, 0, at
            if field == 29 and not is_utf8(buf, start, stop):
                return -BAD_UTF8, 0, 0, 0, 0, 0, at
            kind, value, value_end = field, start, stop
            values += 1
        else:
            odd = 1
        pos = stop
    if names != 1 or values != 1:
        return name, name_end, 0, 0, 0, 1, 0
    return name, name_end, kind, value, value_end, odd, 0


@inner
def _fixed(buf: Bytes, pos: int, size: int) -> np.uint64:
    value = np.uint64(0)
    for at in range(size):
        value |= np.uint64(buf[pos + at]) << np.uint64(8 * at)
    return value


@inner
def _whole(value: float) -> tuple[np.int64, int]:
    if value != np.floor(value) or not -9.2e18 < value < 9.2e18:
        return np.int64(0), 9
    return np.int64(value), -1 if value < 0 else 0


@inner
def number(buf: Bytes, kind: int, pos: int, end: int) -> tuple[np.int64, int]:
    """Decode a scalar numeric value.

    Returns:
        its 64 bits, and its place: 0 fits int64 and isn't negative, -1 negative, 1 fits uint64 only, 9 not a whole
        number (or not numeric).
    """
    if kind == 3:
        return _whole(np.uint64(_fixed(buf, pos, _EIGHT)).view(np.float64))
    if kind == 5:
        return _whole(np.float64(np.uint32(_fixed(buf, pos, _FOUR)).view(np.float32)))
    raw = np.uint64(0)
    if kind <= 17 or kind == 27:
        raw, _ = read_varint(buf, pos, end)
    elif kind <= 25:
        raw = _fixed(buf, pos, end - pos)
    else:
        return np.int64(0), 9
    if kind == 27:
        return np.int64(raw != np.uint64(0)), 0
    if kind in (7, 23):
        value = np.int64(np.int32(raw & np.uint64(0xFFFFFFFF)))
        return value, -1 if value < 0 else 0
    if kind in (11, 15, 19):
        raw &= np.uint64(0xFFFFFFFF)
    if kind in (15, 17):
        value = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
        return value, -1 if value < 0 else 0
    value = np.int64(raw)
    if value >= 0:
        return value, 0
    return value, -1 if kind in (9, 25) else 1


@inner
def fits(family: int, place: int) -> bool:
    """Return True if a number of that place (see `number`) fits a column of that family."""
    if family == UNSIGNED:
        return place == 0 or place == 1
    if family == KIND_BOOL:
        return place != 9
    return place == 0 or place == -1


@inner
def packed(buf: Bytes, pos: int, end: int, out: npt.NDArray[np.uint64], at: int, limit: int) -> int:
    """Read varints up to `end` into ``out[at:limit]`` as far as there is room.

    Returns:
        how many there are, or ``-1 - code``.
    """
    count = 0
    room = limit - at
    while pos < end:
        value, pos = read_varint(buf, pos, end)
        if pos < 0:
            return -1 + pos
        if count < room:
            out[at + count] = value
        count += 1
    return count


@inner
def walk_ids(buf: Bytes, pos: int, end: int, out: npt.NDArray[np.uint64], at: int, limit: int) -> tuple[int, int]:
    """Read a list message's values (packed or not) into ``out[at:limit]`` as far as there is room.

    Returns:
        how many there are; or ``-1 - code`` and the byte of the error; 1 as second value if the message holds anything
        else.
    """
    count = 0
    odd = 0
    while pos < end:
        here = pos
        field, wire, pos = read_tag(buf, pos, end)
        if pos < 0:
            return -1 + pos, here
        start, stop = skip(buf, pos, end, wire)
        if stop < 0:
            return -1 + stop, here
        if field != 1:
            odd = 1
        elif wire != 0 and wire != 2:
            return -1 - BAD_WIRE, here
        else:
            found = packed(buf, start, stop, out, at + count, limit)
            if found < 0:
                return found, here
            count += found
        pos = stop
    return count, odd


@inner
def takes(table: WireTable, buf: Bytes, found: int, kind: int, pos: int, end: int) -> bool:
    """Return True if column `found` can hold the value of an attribute of its name."""
    family = table.family[found]
    if family == STRING:
        return kind == 29
    if family == LIST:
        return kind in (8, 10, 12, 14)
    if kind == 0 or kind % 2 == 0:
        return False
    _, place = number(buf, kind, pos, end)
    return fits(family, place)
