"""The loop that turns columns into `Node` messages.

What a blob (`attr` column) holds is told in `chakra_et._jit.wire_read`.

Shape letters: N nodes, A attribute names, B bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from chakra_et._jit.wire import (
    BAD_FIELD,
    KIND_BOOL,
    LIST,
    STRING,
    ZERO,
    Bytes,
    Int,
    WireTable,
    attribute,
    copy_bytes,
    equal_bytes,
    fits,
    folded,
    hot,
    inner,
    lookup,
    number,
    read_tag,
    read_varint,
    skip,
    takes,
    walk_ids,
)
from chakra_et._jit.wire_columns import (
    BLOB,
    CTRL,
    DATA,
    ID,
    INPUTS,
    MAX_MICROS,
    NAME,
    OUTPUTS,
    TYPE,
    Sink,
    sorted_union,
    to_micros,
)

__all__ = ["GAP", "OUT_OF_RANGE", "encode"]

OUT_OF_RANGE = np.int64(7)  # a value that the attribute's kind can't hold
GAP = 6  # room left in front of a record for its tag and length

# Tags (field number * 8 + wire type).
_NO_TAG = np.int64(0)
_VALUES_TAG = np.int64(10)
_ID_TAG, _NAME_TAG, _TYPE_TAG = np.int64(8), np.int64(18), np.int64(24)
_CTRL_TAG, _DATA_TAG, _ATTR_TAG = np.int64(34), np.int64(42), np.int64(82)
_STRING_TAG = np.int64(29 * 8 + 2)
_INPUTS_FIELD, _OUTPUTS_FIELD = np.int64(8), np.int64(9)
_FOUR, _EIGHT = np.int64(4), np.int64(8)


# Slots of the state of one node.
_ERROR, _WHERE, _NAMED, _SAME, _HAS, _TYPE, _SUPPRESS = 0, 1, 2, 3, 4, 5, 6

Ids = npt.NDArray[np.uint64]


@hot
def _put_varint(out: Bytes, at: int, value: np.uint64) -> int:
    while value >= np.uint64(128):
        out[at] = np.uint8(value & np.uint64(127)) | np.uint8(128)
        value >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(value)
    return at + 1


@hot
def _close(out: Bytes, mark: int, end: int, tag: int) -> int:
    """Put tag (0: none) and length in front of a payload that was written at ``mark + GAP``."""
    at = mark
    if tag:
        out[at] = tag
        at += 1
    at = _put_varint(out, at, np.uint64(end - mark - GAP))
    return copy_bytes(out, at, out, mark + GAP, end)


@hot
def _put_tag(out: Bytes, at: int, tag: int) -> int:
    return _put_varint(out, at, np.uint64(tag))


@hot
def _put_fixed(out: Bytes, at: int, bits: np.uint64, size: int) -> int:
    for step in range(size):
        out[at + step] = np.uint8((bits >> np.uint64(8 * step)) & np.uint64(255))
    return at + size


@hot
def _holds(kind: int, value: int, unsigned: bool) -> bool:
    """Return True if a numeric kind can hold a value exactly."""
    big = unsigned and value < 0
    if kind in (7, 15, 23):
        return not big and -(2**31) <= value < 2**31
    if kind in (11, 19):
        return 0 <= value < 2**32
    if kind in (13, 21):
        return unsigned or value >= 0
    if kind == 27:
        return value == 0 or value == 1
    if kind == 3:
        return -(2**53) <= value <= 2**53
    if kind == 5:
        return -(2**24) <= value <= 2**24
    return not big


@hot
def _put_number(out: Bytes, at: int, kind: int, value: int) -> int:
    if kind == 3:
        return _put_fixed(out, _put_tag(out, at, kind * 8 + 1), np.float64(value).view(np.uint64), _EIGHT)
    if kind == 5:
        return _put_fixed(out, _put_tag(out, at, kind * 8 + 5), np.uint64(np.float32(value).view(np.uint32)), _FOUR)
    bits = np.uint64(value)
    if kind in (21, 25):
        return _put_fixed(out, _put_tag(out, at, kind * 8 + 1), bits, _EIGHT)
    if kind in (19, 23):
        return _put_fixed(out, _put_tag(out, at, kind * 8 + 5), bits, _FOUR)
    if kind in (15, 17):
        bits = np.uint64((value << 1) ^ (value >> 63))
    return _put_varint(out, _put_tag(out, at, kind * 8), bits)


@hot
def _put_packed(out: Bytes, mark: int, tag: int, ids: Ids, start: int, stop: int) -> int:
    if start == stop:
        return mark
    at = mark + GAP
    for step in range(start, stop):
        at = _put_varint(out, at, ids[step])
    return _close(out, mark, at, tag)


@hot
def _present(table: WireTable, src: Sink, found: int, node: int) -> bool:
    row = table.row[found]
    if row < 0:
        return False
    family = table.family[found]
    if family == STRING:
        return src.text_valid[row, node] == 1
    if family == LIST:
        return src.id_offsets[row, node + 1] > src.id_offsets[row, node]
    return src.valid[row, node] == 1


@hot
def _put_value(out: Bytes, at: int, kind: int, table: WireTable, src: Sink, found: int, node: int, state: Int) -> int:
    """Write the value field of an attribute from its column, of kind `kind` if that holds it, else of the column's."""
    row = table.row[found]
    family = table.family[found]
    if family == STRING:
        base = src.text_base[row]
        start, stop = base + src.text_offsets[row, node], base + src.text_offsets[row, node + 1]
        at = _put_varint(out, _put_tag(out, at, _STRING_TAG), np.uint64(stop - start))
        return copy_bytes(out, at, src.text, start, stop)
    if family == LIST:
        base = src.id_base[row]
        start, stop = base + src.id_offsets[row, node], base + src.id_offsets[row, node + 1]
        end = _put_packed(out, at + GAP, _VALUES_TAG, src.ids, start, stop)
        return _close(out, at, end, (kind << 3) | 2)
    value = src.ints[row, node]
    unsigned = family > LIST
    if not _holds(kind, value, unsigned):
        kind = table.kind[found]
        if not _holds(kind, value, unsigned):
            state[_ERROR] = OUT_OF_RANGE
            state[_WHERE] = found
    return _put_number(out, at, kind, value)


@hot
def _put_columns(out: Bytes, at: int, table: WireTable, src: Sink, node: int, state: Int) -> int:
    """Write the attributes of the columns that the blob doesn't name, in the table's order."""
    left_out = state[_NAMED] | state[_SUPPRESS]
    for found in range(len(table.row)):
        if (left_out >> found) & 1 or not _present(table, src, found, node):
            continue
        start, stop = table.starts[found], table.starts[found + 1]
        payload = at + GAP
        out[payload] = 10
        out[payload + 1] = stop - start
        payload = copy_bytes(out, payload + 2, table.names, start, stop)
        at = _close(out, at, _put_value(out, payload, table.kind[found], table, src, found, node, state), _ATTR_TAG)
    return at


@inner
def _is_same(table: WireTable, src: Sink, found: int, node: int, kind: int, pos: int, end: int, scratch: Ids) -> bool:
    """Return True if the column still has the value of an attribute record of the blob."""
    buf = src.text
    row = table.row[found]
    if row < 0:
        return False
    family = table.family[found]
    if family == STRING:
        base = src.text_base[row]
        start, stop = base + src.text_offsets[row, node], base + src.text_offsets[row, node + 1]
        return src.text_valid[row, node] == 1 and equal_bytes(buf, pos, end, buf, start, stop)
    if family == LIST:
        first = src.id_base[row] + src.id_offsets[row, node]
        size = src.id_offsets[row, node + 1] - src.id_offsets[row, node]
        count, _ = walk_ids(buf, pos, end, scratch, ZERO, len(scratch))
        if count != size:
            return False
        for step in range(size):  # noqa: SIM110 (compiled code has no generators)
            if scratch[step] != src.ids[first + step]:
                return False
        return True
    bits, place = number(buf, kind, pos, end)
    if family == KIND_BOOL:
        bits = np.int64(bits != 0)
    return src.valid[row, node] == 1 and fits(family, place) and bits == src.ints[row, node]


@inner
def _scan_blob_io(buf: Bytes, pos: int, end: int, ranges: Int) -> int:
    while pos < end:
        part, wire, pos = read_tag(buf, pos, end)
        if pos < 0:
            return -pos
        start, pos = skip(buf, pos, end, wire)
        if pos < 0:
            return -pos
        if part <= 3:
            ranges[part - 1, 0] = start
            ranges[part - 1, 1] = pos
    return 0


@inner
def _scan_blob(table: WireTable, src: Sink, node: int, state: Int, numbers: Ids, ranges: Int, scratch: Ids) -> int:
    """Find out what the blob names and what of that the columns still say; return an error code."""
    buf = src.text
    pos = src.text_base[BLOB] + src.text_offsets[BLOB, node]
    end = src.text_base[BLOB] + src.text_offsets[BLOB, node + 1]
    ranges[:] = 0
    while pos < end:
        field, wire, pos = read_tag(buf, pos, end)
        if pos < 0:
            return -pos
        start, stop = skip(buf, pos, end, wire)
        if stop < 0:
            return -stop
        pos = stop
        if field in (3, 6, 7):
            if wire != 0:
                return BAD_FIELD
            numbers[field], _ = read_varint(buf, start, stop)
            state[_HAS] |= 1 << field
        elif field == 8 or field == 9:
            if wire != 2:
                return BAD_FIELD
            state[_HAS] |= 1 << field
            code = _scan_blob_io(buf, start, stop, ranges[3 * (field - 8) : 3 * (field - 7)])
            if code:
                return code
        elif field == 10 and wire == 2:
            name, name_end, kind, value, value_end, _, _ = attribute(buf, start, stop)
            if name < 0:
                return -name
            found = lookup(table, buf, name, name_end)
            if found >= 0 and not (state[_NAMED] >> found) & 1 and takes(table, buf, found, kind, value, value_end):
                state[_NAMED] |= 1 << found
                if _is_same(table, src, found, node, kind, value, value_end, scratch):
                    state[_SAME] |= 1 << found
        elif field <= 10:
            return BAD_FIELD
    return 0


@inner
def _put_changed(
    out: Bytes, mark: int, table: WireTable, src: Sink, pos: int, end: int, found: int, node: int, state: Int
) -> int:
    """Write an attribute record of the blob again, with its column's value in place of its own."""
    buf = src.text
    at = mark + GAP
    kind = ZERO
    while pos < end:
        here = pos
        field, wire, pos = read_tag(buf, pos, end)
        _, pos = skip(buf, pos, end, wire)
        if field <= 2 or field > 32:
            at = copy_bytes(out, at, buf, here, pos)
        else:
            kind = field
    return _close(out, mark, _put_value(out, at, kind, table, src, found, node, state), _ATTR_TAG)


@inner
def _put_blob(out: Bytes, at: int, table: WireTable, src: Sink, node: int, state: Int) -> int:
    """Write the blob's attributes and unknown fields, column values updated."""
    buf = src.text
    pos = src.text_base[BLOB] + src.text_offsets[BLOB, node]
    end = src.text_base[BLOB] + src.text_offsets[BLOB, node + 1]
    done = 0
    while pos < end:
        here = pos
        field, wire, pos = read_tag(buf, pos, end)
        start, pos = skip(buf, pos, end, wire)
        if field < 10:
            continue
        if field == 10:
            name, name_end, kind, value, value_end, _, _ = attribute(buf, start, pos)
            found = lookup(table, buf, name, name_end)
            if found >= 0 and not (state[_SAME] >> found) & 1 and takes(table, buf, found, kind, value, value_end):
                if not (done >> found) & 1 and _present(table, src, found, node):
                    at = _put_changed(out, at, table, src, start, pos, found, node, state)
                done |= 1 << found
                continue
        at = copy_bytes(out, at, buf, here, pos)
    return at


@inner
def _put_io(out: Bytes, mark: int, src: Sink, node: int, field: int, state: Int, ranges: Int) -> int:
    first_row = INPUTS if field == 8 else OUTPUTS
    buf = src.text
    if (state[_HAS] >> field) & 1 and src.text_valid[first_row, node]:
        same = True
        for part in range(3):
            base = src.text_base[first_row + part]
            start = base + src.text_offsets[first_row + part, node]
            stop = base + src.text_offsets[first_row + part, node + 1]
            old = ranges[3 * (field - 8) + part]
            same = same and equal_bytes(buf, old[0], old[1], buf, start, stop)
        if same:
            return _repeat(out, mark, src, node, field)
    if not src.text_valid[first_row, node]:
        return mark
    at = mark + GAP
    for part in range(3):
        base = src.text_base[first_row + part]
        start = base + src.text_offsets[first_row + part, node]
        stop = base + src.text_offsets[first_row + part, node + 1]
        if stop > start:
            at = _put_varint(out, _put_tag(out, at, part * 8 + 10), np.uint64(stop - start))
            at = copy_bytes(out, at, buf, start, stop)
    return _close(out, mark, at, (field << 3) | 2)


@inner
def _repeat(out: Bytes, at: int, src: Sink, node: int, wanted: int) -> int:
    """Copy the blob's records of one field."""
    buf = src.text
    pos = src.text_base[BLOB] + src.text_offsets[BLOB, node]
    end = src.text_base[BLOB] + src.text_offsets[BLOB, node + 1]
    while pos < end:
        here = pos
        field, wire, pos = read_tag(buf, pos, end)
        _, pos = skip(buf, pos, end, wire)
        if field == wanted:
            at = copy_bytes(out, at, buf, here, pos)
    return at


@hot
def _micros(table: WireTable, src: Sink, node: int, field: int, state: Int, numbers: Ids) -> np.uint64:
    """Return a time field's microseconds; mark its attribute as suppressed where only the field is to be written."""
    found = table.mode[1] if field == 6 else table.mode[2]
    row = table.row[found]
    valid = row >= 0 and src.valid[row, node] == 1
    value = src.ints[row, node] if valid else np.int64(0)
    named = (state[_NAMED] >> found) & 1
    if (state[_HAS] >> field) & 1:
        micros = numbers[field]
        if named:
            same = (state[_SAME] >> found) & 1 == 1
        elif micros <= MAX_MICROS:
            same = valid and value == np.int64(micros) * 1000
        else:
            same = not valid
        if same:
            state[_SUPPRESS] |= 1 << found
            return micros
    if not valid:
        return np.uint64(0)
    if table.mode[0] == 0 and value >= 0 and value % 1000 == 0:
        state[_SUPPRESS] |= 1 << found
    return np.uint64(to_micros(value))


@folded
def _put_fields(
    out: Bytes, at: int, table: WireTable, src: Sink, node: int, state: Int, numbers: Ids, scratch: Ids
) -> int:
    ident = np.uint64(src.ints[ID, node])
    if ident:
        at = _put_varint(out, _put_tag(out, at, _ID_TAG), ident)
    start = src.text_base[NAME] + src.text_offsets[NAME, node]
    stop = src.text_base[NAME] + src.text_offsets[NAME, node + 1]
    if stop > start:
        at = _put_varint(out, _put_tag(out, at, _NAME_TAG), np.uint64(stop - start))
        at = copy_bytes(out, at, src.text, start, stop)
    kind = np.uint64(src.ints[TYPE, node])
    if (state[_HAS] >> 3) & 1 and kind == np.uint64(0):
        kind = numbers[3]
    if kind:
        at = _put_varint(out, _put_tag(out, at, _TYPE_TAG), kind)
    base = src.id_base[CTRL]
    at = _put_packed(
        out, at, _CTRL_TAG, src.ids, base + src.id_offsets[CTRL, node], base + src.id_offsets[CTRL, node + 1]
    )
    if table.mode[0] == 1:
        at = _put_packed(out, at, _DATA_TAG, scratch, ZERO, sorted_union(src, node, scratch))
    else:
        base = src.id_base[DATA]
        at = _put_packed(
            out, at, _DATA_TAG, src.ids, base + src.id_offsets[DATA, node], base + src.id_offsets[DATA, node + 1]
        )
    for field in (6, 7):
        micros = _micros(table, src, node, field, state, numbers)
        if micros:
            at = _put_varint(out, _put_tag(out, at, field * 8), micros)
    return at


@njit(cache=True, nogil=True, _nrt=False)
def encode(
    table: WireTable, src: Sink, out: Bytes, scratch: Ids, state: Int, numbers: Ids, ranges: Int
) -> tuple[int, int, int, int]:
    """Write nodes as length-delimited messages.

    Args:
        table: Attribute names and the rows of their columns.
        src: Columns [N].
        out: uint8 [B], large enough (`chakra_et.io._encode` bounds it).
        scratch: uint64, as long as the lists of a node together can be.
        state: int64 [7], scratch.
        numbers: uint64 [8], scratch.
        ranges: int64 [6, 2], scratch.

    Returns:
        bytes written; the node that can't be written (-1: none), the error code, and the attribute number it concerns.
    """
    at = ZERO
    for node in range(src.ints.shape[1]):
        state[:] = 0
        blob = src.text_valid[BLOB, node] == 1
        if blob:
            code = _scan_blob(table, src, node, state, numbers, ranges, scratch)
            if code:
                return at, node, code, -1
        mark = at
        at = _put_fields(out, mark + GAP, table, src, node, state, numbers, scratch)
        at = _put_io(out, at, src, node, _INPUTS_FIELD, state, ranges)
        at = _put_io(out, at, src, node, _OUTPUTS_FIELD, state, ranges)
        if state[_NAMED] == 0:
            at = _put_columns(out, at, table, src, node, state)
        if blob:
            at = _put_blob(out, at, table, src, node, state)
        if state[_NAMED]:
            at = _put_columns(out, at, table, src, node, state)
        if state[_ERROR]:
            return at, node, state[_ERROR], state[_WHERE]
        at = _close(out, mark, at, _NO_TAG)
    return at, -1, 0, 0
