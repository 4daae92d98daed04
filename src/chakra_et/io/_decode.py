"""Node messages -> node table.

Shape letters: N nodes, A attributes, S string rows, B bytes, M ids.
"""

from __future__ import annotations

import nanoarrow as na
import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit import wire, wire_read
from chakra_et._jit import wire_columns as rows
from chakra_et.errors import FormatError
from chakra_et.io._table import WireAttribute, attributes, wire_table
from chakra_et.ir.arrays import binary_series, list_series, string_series
from chakra_et.ir.columns import SCHEMA

__all__ = ["decode_nodes", "message_error"]

Bytes = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]

_LEAST = 1 << 12
_CORE = {"start_ns", "duration_ns", "is_cpu_op"}

_WORDS = {
    wire.TRUNCATED: "expected a value, got the end of what holds it",
    wire.LONG_VARINT: "expected a varint of at most 64 bits, got a longer one",
    wire.PAST_END: "expected a length that fits into what holds it, got a longer one",
    wire.BAD_WIRE: "expected the wire type that the schema gives this field, got another one",
    wire.BAD_FIELD: "expected a field number from 1 to 536870911, got another one",
    wire.BAD_UTF8: "expected UTF-8 text, got other bytes",
}


def message_error(path: str, message: int, byte: int, code: int) -> FormatError:
    """Return the error for a message that can't be read.

    Args:
        path: File.
        message: Number of the message, from 0.
        byte: Offset in the (decompressed) file.
        code: Error code of `chakra_et._jit.wire`.
    """
    return FormatError(
        f"{path}: message {message} at byte {byte}: {_WORDS[code]}; "
        "the file is corrupt, truncated or no Chakra trace: copy or convert it again"
    )


class _Columns:
    """The arrays of one reading, and the Series made of them."""

    def __init__(self, buf: Bytes, spans: Int, *, own: bool) -> None:
        self._buf, self._spans, self._own = buf, spans, own
        self._wire = attributes(own=own)
        self._count = len(spans)
        self.taken, ints, texts = self._rows()
        self.sink = _sink(self._count, ints, texts, len(self._wire))

    def _rows(self) -> tuple[dict[str, int], int, int]:
        """Give each attribute a row; return the rows, and how many integer and string rows there are."""
        taken: dict[str, int] = {}
        ints, texts = rows.TYPE + 1, rows.FIRST_STRING
        for entry in self._wire:
            if entry.family == wire.LIST:
                taken[entry.name] = rows.SYNC if entry.column == "sync_deps" else rows.TENSOR
            elif entry.family == wire.STRING:
                taken[entry.name] = texts
                texts += 1
            else:
                taken[entry.name] = ints
                ints += 1
        return taken, ints, texts

    def read(self) -> tuple[int, int, int]:
        """Fill the arrays; return the node that couldn't be read (-1: none), the error code and its byte."""
        table = wire_table(own=self._own, rows=self.taken)
        state = np.zeros(wire_read.STATE_SIZE, np.int64)
        node = 0
        while True:
            at, code, place = wire_read.scan(self._buf, self._spans, node, table, self.sink, state)
            if code not in (wire_read.NO_TEXT_ROOM, wire_read.NO_ID_ROOM):
                return int(at), int(code), int(place)
            node = int(at)
            left = len(self._buf) - int(self._spans[node, 0])
            texts = _room(self.sink.text_cursor, np.diff(self.sink.text_base), node, self._count, left)
            ids = _room(self.sink.id_offsets[:, node], np.diff(self.sink.id_base), node, self._count, left)
            size = int(self._spans[node, 1] - self._spans[node, 0]) + 4
            (texts if code == wire_read.NO_TEXT_ROOM else ids)[place] += size
            self.sink = _grown(self.sink, texts, ids)

    def edges_agree(self) -> bool:
        """Return True if the wire's data_deps are the union of the three kinds, as in every file written here."""
        lengths = np.diff(self.sink.id_offsets, axis=1)
        longest = int((lengths[rows.CTRL] + lengths[rows.SYNC] + lengths[rows.TENSOR]).max(initial=0))
        return bool(rows.edges_are_union(self.sink, np.empty(longest, np.uint64)))

    def _integers(self, name: str, row: int, *, nulls: bool = True) -> pl.Series:
        values, valid = self.sink.ints[row], self.sink.valid[row] if nulls else None
        dtype = SCHEMA[name]
        bitmap = None if valid is None or valid.all() else np.packbits(valid, bitorder="little")
        missing = 0 if bitmap is None or valid is None else int(self._count - np.count_nonzero(valid))
        if dtype == pl.Boolean():
            bits = np.packbits(values != 0, bitorder="little")
            return pl.Series(
                na.c_array_from_buffers(na.bool_(), self._count, [bitmap, bits], null_count=missing)
            ).alias(name)
        if dtype == pl.UInt8():
            return pl.Series(name, values.astype(np.uint8))
        kind = na.uint64() if dtype == pl.UInt64() else na.int64()
        return pl.Series(na.c_array_from_buffers(kind, self._count, [bitmap, values], null_count=missing)).alias(name)

    def _text_buffers(self, row: int) -> tuple[Int, Bytes]:
        base = self.sink.text_base[row]
        offsets = self.sink.text_offsets[row]
        return offsets, self.sink.text[base : base + offsets[-1]]

    def _text(self, name: str, row: int, *, nulls: bool = True) -> pl.Series:
        valid = self.sink.text_valid[row].astype(bool) if nulls else None
        return string_series(name, *self._text_buffers(row), valid)

    def _blob(self) -> pl.Series:
        return binary_series("attr", *self._text_buffers(rows.BLOB), self.sink.text_valid[rows.BLOB].astype(bool))

    def _ids(self, name: str, row: int) -> pl.Series:
        base = self.sink.id_base[row]
        offsets = self.sink.id_offsets[row]
        return list_series(name, offsets, self.sink.ids[base : base + offsets[-1]])

    def _io(self, name: str, row: int) -> pl.Series:
        parts = [self._text(part, row + i, nulls=False) for i, part in enumerate(("values", "shapes", "types"))]
        present = pl.Series("present", self.sink.text_valid[row].astype(bool))
        frame = pl.DataFrame([*parts, present])
        struct = pl.struct("values", "shapes", "types")
        return frame.select(pl.when("present").then(struct).alias(name)).to_series()

    def _attribute(self, entry: WireAttribute) -> pl.Series:
        row = self.taken[entry.name]
        return self._text(entry.column, row) if entry.family == wire.STRING else self._integers(entry.column, row)

    def frame(self) -> pl.DataFrame:
        """Return the node table, columns in the order of the table of columns."""
        series = {
            "id": self._integers("id", rows.ID, nulls=False),
            "name": self._text("name", rows.NAME, nulls=False),
            "type": self._integers("type", rows.TYPE, nulls=False),
            "ctrl_deps": self._ids("ctrl_deps", rows.CTRL),
            "data_deps": self._ids("data_deps", rows.TENSOR if self._own else rows.DATA),
            "sync_deps": self._ids("sync_deps", rows.SYNC),
        }
        for number, entry in enumerate(self._wire):
            if entry.family != wire.LIST and (self.sink.used[number] or entry.column in _CORE):
                series[entry.column] = self._attribute(entry)
        extra = len(self._wire)
        if self.sink.used[extra]:
            series["inputs"] = self._io("inputs", rows.INPUTS)
        if self.sink.used[extra + 1]:
            series["outputs"] = self._io("outputs", rows.OUTPUTS)
        if self.sink.used[extra + 2]:
            series["attr"] = self._blob()
        return pl.DataFrame([series[name] for name in SCHEMA if name in series])


def _room(used: Int, room: Int, done: int, count: int, left: int) -> Int:
    """Guess how long rows get: in proportion to the nodes done, at least twice, but by no more than the bytes left.

    No row gets shorter: the node at which the loop stopped may need several of them.
    """
    share = used.astype(np.float64) * max(1.1 * count / max(done, 1), 2.0) + _LEAST
    guess: Int = np.minimum(share, used + float(left)).astype(np.int64)
    return np.maximum(room, guess)


def _bases(sizes: Int) -> Int:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _grown(sink: rows.Sink, text_sizes: Int, id_sizes: Int) -> rows.Sink:
    """Return the sink with longer string and id rows."""
    text_base, id_base = _bases(text_sizes), _bases(id_sizes)
    text, ids = np.empty(int(text_base[-1]), np.uint8), np.empty(int(id_base[-1]), np.uint64)
    for row, size in enumerate(np.minimum(sink.text_cursor, text_sizes).tolist()):
        old = int(sink.text_base[row])
        text[text_base[row] : text_base[row] + size] = sink.text[old : old + size]
    for row, size in enumerate(np.minimum(sink.id_cursor, id_sizes).tolist()):
        old = int(sink.id_base[row])
        ids[id_base[row] : id_base[row] + size] = sink.ids[old : old + size]
    return sink._replace(text=text, text_base=text_base, ids=ids, id_base=id_base)


def _sink(count: int, ints: int, texts: int, names: int) -> rows.Sink:
    """Allocate arrays for `count` nodes. Rows that no node uses stay untouched memory, which costs nothing."""
    return rows.Sink(
        ints=np.zeros((ints, count), np.int64),
        valid=np.zeros((ints, count), np.uint8),
        text=np.empty(_LEAST * texts, np.uint8),
        text_base=_LEAST * np.arange(texts + 1, dtype=np.int64),
        text_offsets=np.zeros((texts, count + 1), np.int64),
        text_valid=np.zeros((texts, count), np.uint8),
        text_cursor=np.zeros(texts, np.int64),
        text_next=np.zeros(texts, np.int64),
        ids=np.empty(_LEAST * 4, np.uint64),
        id_base=_LEAST * np.arange(5, dtype=np.int64),
        id_offsets=np.zeros((4, count + 1), np.int64),
        id_cursor=np.zeros(4, np.int64),
        used=np.zeros(names + 3, np.int64),
    )


def decode_nodes(path: str, buf: Bytes, spans: Int, *, own: bool, first_message: int) -> tuple[pl.DataFrame, bool]:
    """Read node messages into a node table.

    Args:
        path: For messages.
        buf: uint8 [B], read-only: the file.
        spans: int64 [N, 2], start and end of each node message.
        own: True if the file claims to type its edges.
        first_message: Number of the first node's message in the file.

    Returns:
        The table, and whether its edges are typed: a file that claims so, but whose `data_deps` aren't the union of the
        three kinds, was changed by another tool; its two lists are kept as they are.

    Raises:
        FormatError: A message can't be read.
    """
    columns = _Columns(buf, spans, own=own)
    node, code, byte = columns.read()
    if node >= 0:
        raise message_error(path, first_message + node, byte, code)
    if own and not columns.edges_agree():
        return decode_nodes(path, buf, spans, own=False, first_message=first_message)
    return columns.frame(), own
