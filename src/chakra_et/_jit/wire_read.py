"""The loop that turns `Node` messages into columns.

A node's attributes are *canonical* if the writer would write them the same from the columns alone: column attributes in
the table's order, each of its own kind and without a doc string, before all others, and times that agree with the
microsecond fields. The blob of such a node (`attr` column) holds only what no column carries. Any other node keeps all
its attribute records in the blob, so that the writer can repeat them.

How large the columns get is known only when all is read. The caller guesses; where a row of the string or id arrays is
too short, the loop stops at the node, and goes on from there in larger arrays. That is cheaper than reading twice.

Shape letters: N nodes, I integer rows, S string rows, B bytes, M ids.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from chakra_et._jit.wire import (
    BAD_UTF8,
    BAD_WIRE,
    KIND_BOOL,
    LIST,
    STRING,
    WIRE_OF_KIND,
    Bytes,
    Int,
    WireTable,
    attribute,
    copy_bytes,
    folded,
    hot,
    is_utf8,
    lookup,
    number,
    packed,
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
    DURATION_FIELD,
    ID,
    INPUTS,
    MAX_MICROS,
    NAME,
    OUTPUTS,
    START_FIELD,
    TYPE,
    Sink,
    to_micros,
)

__all__ = ["NO_ID_ROOM", "NO_TEXT_ROOM", "STATE_SIZE", "scan"]

# Wire type of each field of a node.
WIRE_OF_FIELD = np.array([9, 0, 2, 0, 9, 9, 0, 0, 2, 2, 2], np.int64)

# Slots of the state.
_ERROR, _WHERE, _SEEN, _LAST, _OTHER, _ODD, _KEEP, _START, _DURATION = 0, 1, 2, 3, 4, 5, 6, 7, 8
STATE_SIZE = 9

# "Error" codes that ask for more room; `_WHERE` is then the row.
NO_TEXT_ROOM, NO_ID_ROOM = np.int64(100), np.int64(101)


@hot
def _fail(state: Int, code: int, where: int) -> None:
    state[_ERROR] = code
    state[_WHERE] = where


@hot
def _begin_text(row: int, node: int, size: int, sink: Sink, state: Int) -> int:
    """Return where a string of the node goes in `text`; -1 if there is no room. A second one replaces the first."""
    first = sink.text_cursor[row]
    if sink.text_next[row] > node:
        first = sink.text_offsets[row, node]
    at = sink.text_base[row] + first
    if at + size > sink.text_base[row + 1]:
        _fail(state, NO_TEXT_ROOM, row)
        return -1
    for skipped in range(sink.text_next[row], node + 1):
        sink.text_offsets[row, skipped] = first
    sink.text_next[row] = node + 1
    sink.text_valid[row, node] = 1
    sink.text_cursor[row] = first + size
    return at


@hot
def _put_text(buf: Bytes, pos: int, end: int, row: int, node: int, sink: Sink, state: Int) -> None:
    at = _begin_text(row, node, end - pos, sink, state)
    if at >= 0:
        copy_bytes(sink.text, at, buf, pos, end)


@hot
def _put_blob(
    buf: Bytes, first: int, end: int, everything: bool, keep: int, node: int, table: WireTable, sink: Sink, state: Int
) -> None:
    """Copy the records of a node that its columns don't carry.

    Args:
        buf: The file.
        first: Start of the node message.
        end: Its end.
        everything: True to copy all attributes, False for those without a column.
        keep: Bit f set: copy field f too.
        node: Number of the node.
        table: Attribute names.
        sink: Destination.
        state: State of the node.
    """
    begin = _begin_text(BLOB, node, end - first + 4, sink, state)
    if begin < 0:
        return
    at = begin
    met = 0
    pos = first
    while pos < end:
        here = pos
        field, wire, pos = read_tag(buf, pos, end)
        start, pos = skip(buf, pos, end, wire)
        wanted = field > 10 or (keep >> field) & 1 == 1
        if field == 10:
            wanted = everything
            if not everything:
                name, name_end, kind, value, value_end, _, _ = attribute(buf, start, pos)
                found = lookup(table, buf, name, name_end)
                wanted = found < 0 or not takes(table, buf, found, kind, value, value_end)
        if wanted:
            if field < 10:
                met |= 1 << field
            at = copy_bytes(sink.text, at, buf, here, pos)
    for field in (6, 7):
        if (keep & ~met) >> field & 1:  # a zero that the file leaves out, but the writer wouldn't
            sink.text[at] = field << 3
            sink.text[at + 1] = 0
            at += 2
    sink.text_cursor[BLOB] = sink.text_offsets[BLOB, node] + at - begin
    sink.used[len(sink.used) - 1] = 1


@hot
def _scan_io(buf: Bytes, pos: int, end: int, field: int, node: int, sink: Sink, state: Int) -> None:
    first_row = INPUTS if field == 8 else OUTPUTS
    sink.used[len(sink.used) - (3 if field == 8 else 2)] = 1
    sink.text_valid[first_row, node] = 1
    while pos < end:
        here = pos
        part, wire, pos = read_tag(buf, pos, end)
        if pos < 0:
            return _fail(state, -pos, here)
        start, stop = skip(buf, pos, end, wire)
        if stop < 0:
            return _fail(state, -stop, here)
        if part > 3:
            state[_KEEP] |= 1 << field
            state[_ODD] = 1
        elif wire != 2:
            return _fail(state, BAD_WIRE, here)
        elif not is_utf8(buf, start, stop):
            return _fail(state, BAD_UTF8, here)
        else:
            _put_text(buf, start, stop, first_row + part - 1, node, sink, state)
        pos = stop
    return None


@hot
def _plain(buf: Bytes, pos: int, end: int, table: WireTable) -> tuple[int, int, int, np.int64]:
    """Parse the usual attribute fast: name, then one value of the column's own kind, and nothing else.

    Returns:
        attribute number (-1: it is not of that form, or no column), value start and end, and the value if it is a
        number.
    """
    none = np.int64(0)
    if end - pos < 4 or buf[pos] != 10 or buf[pos + 1] > 127:
        return -1, 0, 0, none
    name = pos + 2
    value = name + np.int64(buf[pos + 1])
    if value >= end:
        return -1, 0, 0, none
    found = lookup(table, buf, name, value)
    if found < 0:
        return -1, 0, 0, none
    kind, wire, value = read_tag(buf, value, end)
    if value < 0 or kind != table.kind[found] or wire != WIRE_OF_KIND[kind]:
        return -1, 0, 0, none
    if wire == 0:
        raw, stop = read_varint(buf, value, end)
        bits = np.int64(raw)
        if kind == 7:
            bits = np.int64(np.int32(raw & np.uint64(0xFFFFFFFF)))
        elif kind == 27:
            bits = np.int64(raw != np.uint64(0))
        return found if stop == end else -1, value, stop, bits
    start, stop = skip(buf, value, end, wire)
    if stop != end or (kind == 29 and not is_utf8(buf, start, stop)):
        return -1, 0, 0, none
    return found, start, stop, none


@hot
def _scan_attribute(buf: Bytes, pos: int, end: int, node: int, table: WireTable, sink: Sink, state: Int) -> None:
    found, value, value_end, bits = _plain(buf, pos, end, table)
    if found < 0:
        name, name_end, kind, value, value_end, odd, where = attribute(buf, pos, end)
        if name < 0:
            return _fail(state, -name, where)
        found = lookup(table, buf, name, name_end)
        if found < 0 or not takes(table, buf, found, kind, value, value_end):
            state[_OTHER] = 1
            return None
        if odd or kind != table.kind[found]:
            state[_ODD] = 1
        bits, _ = number(buf, kind, value, value_end)
        if table.family[found] == KIND_BOOL:
            bits = np.int64(bits != 0)
    if (state[_SEEN] >> found) & 1:
        state[_ODD] = 1
        return None
    state[_SEEN] |= 1 << found
    if found < state[_LAST] or state[_OTHER]:
        state[_ODD] = 1
    state[_LAST] = found
    sink.used[found] = 1
    family = table.family[found]
    row = table.row[found]
    if family == STRING:
        _put_text(buf, value, value_end, row, node, sink, state)
    elif family == LIST:
        _put_list(buf, value, value_end, row, sink, state)
    else:
        if found == table.mode[1]:
            state[_START] = bits
        if found == table.mode[2]:
            state[_DURATION] = bits
        sink.ints[row, node] = bits
        sink.valid[row, node] = 1
    return None


@hot
def _put_list(buf: Bytes, pos: int, end: int, row: int, sink: Sink, state: Int) -> None:
    at = sink.id_base[row] + sink.id_cursor[row]
    count, note = walk_ids(buf, pos, end, sink.ids, at, sink.id_base[row + 1])
    if count < 0:
        return _fail(state, -1 - count, note)
    if at + count > sink.id_base[row + 1]:
        return _fail(state, NO_ID_ROOM, row)
    if count == 0 or note == 1:
        state[_ODD] = 1
    sink.id_cursor[row] += count
    return None


@hot
def _put_ids(buf: Bytes, start: int, stop: int, field: int, wire: int, here: int, sink: Sink, state: Int) -> None:
    if wire != 0 and wire != 2:
        return _fail(state, BAD_WIRE, here)
    row = CTRL if field == 4 else DATA
    at = sink.id_base[row] + sink.id_cursor[row]
    count = packed(buf, start, stop, sink.ids, at, sink.id_base[row + 1])
    if count < 0:
        return _fail(state, -1 - count, here)
    if at + count > sink.id_base[row + 1]:
        return _fail(state, NO_ID_ROOM, row)
    sink.id_cursor[row] += count
    return None


@hot
def _time(micros: np.uint64, field: int, node: int, table: WireTable, sink: Sink, state: Int) -> None:
    """Settle one time column: from its attribute, else from the field in microseconds (see the module's docstring)."""
    found = table.mode[1] if field == 6 else table.mode[2]
    row = table.row[found]
    own = table.mode[0] == 1
    if (state[_SEEN] >> found) & 1:
        value = state[_START] if field == 6 else state[_DURATION]
        if np.uint64(to_micros(value)) != micros:
            state[_KEEP] |= 1 << field
            state[_ODD] = 1
        elif not own and value >= 0 and value % 1000 == 0:
            state[_ODD] = 1  # the writer would leave the attribute out
        return
    fit = micros <= MAX_MICROS
    if fit and (micros > np.uint64(0) or field == 7):
        sink.ints[row, node] = np.int64(micros) * 1000
        sink.valid[row, node] = 1
        if own:  # the writer would add the attribute
            state[_ODD] = 1
            state[_KEEP] |= 1 << field
    elif not fit:
        state[_ODD] = 1
        state[_KEEP] |= 1 << field


@folded
def _scan_node(buf: Bytes, first: int, end: int, node: int, table: WireTable, sink: Sink, state: Int) -> None:
    state[:] = 0
    state[_LAST] = -1
    ident, kind, start_us, duration_us = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    rest = False
    pos = first
    while pos < end and state[_ERROR] == 0:
        here = pos
        field, wire, pos = read_tag(buf, pos, end)
        if pos < 0:
            return _fail(state, -pos, here)
        start, stop = skip(buf, pos, end, wire)
        if stop < 0:
            return _fail(state, -stop, here)
        pos = stop
        if field == 10 and wire == 2:
            _scan_attribute(buf, start, stop, node, table, sink, state)
        elif field == 4 or field == 5:
            _put_ids(buf, start, stop, field, wire, here, sink, state)
        elif field > 10:
            rest = True
        elif wire != WIRE_OF_FIELD[field]:
            return _fail(state, BAD_WIRE, here)
        elif field == 2:
            if not is_utf8(buf, start, stop):
                return _fail(state, BAD_UTF8, here)
            _put_text(buf, start, stop, NAME, node, sink, state)
        elif field >= 8:
            _scan_io(buf, start, stop, field, node, sink, state)
        else:
            value, _ = read_varint(buf, start, stop)
            if field == 1:
                ident = value
            elif field == 3:
                kind = value & np.uint64(0xFFFFFFFF)
            elif field == 6:
                start_us = value
            else:
                duration_us = value
    if state[_ERROR]:
        return None
    if kind > np.uint64(255):
        kind = np.uint64(0)
        state[_ODD] = 1
        state[_KEEP] |= 1 << 3
    sink.ints[ID, node] = np.int64(ident)
    sink.ints[TYPE, node] = np.int64(kind)
    _time(start_us, START_FIELD, node, table, sink, state)
    _time(duration_us, DURATION_FIELD, node, table, sink, state)
    if state[_ODD] or state[_OTHER] or rest:
        _put_blob(buf, first, end, state[_ODD] == 1, state[_KEEP], node, table, sink, state)
    return None


@njit(cache=True, nogil=True, _nrt=False)
def scan(buf: Bytes, spans: Int, first: int, table: WireTable, sink: Sink, state: Int) -> tuple[int, int, int]:
    """Read nodes into columns.

    Args:
        buf: uint8 [B], read-only: the file.
        spans: int64 [N, 2], start and end of each node message.
        first: The node to begin with; 0, or where an earlier call stopped for lack of room.
        table: Attribute names and their rows.
        sink: Destination.
        state: int64 [STATE_SIZE], scratch.

    Returns:
        the node that couldn't be read (-1: none), the error code, and its byte (or, if there is no room, the row).
    """
    for node in range(first, len(spans)):
        for row in range(len(sink.id_cursor)):
            sink.id_cursor[row] = sink.id_offsets[row, node]
        _scan_node(buf, spans[node, 0], spans[node, 1], node, table, sink, state)
        if state[_ERROR]:
            return node, state[_ERROR], state[_WHERE]
        for row in range(len(sink.id_cursor)):
            sink.id_offsets[row, node + 1] = sink.id_cursor[row]
    for row in range(len(sink.text_cursor)):
        for skipped in range(sink.text_next[row], len(spans) + 1):
            sink.text_offsets[row, skipped] = sink.text_cursor[row]
        sink.text_next[row] = len(spans) + 1
    return -1, 0, 0
