"""Node table -> node messages.

Shape letters: N nodes, S string rows, B bytes, M ids.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit import wire, wire_write
from chakra_et._jit import wire_columns as rows
from chakra_et.errors import TraceError
from chakra_et.io._table import attributes, wire_table
from chakra_et.ir.arrays import list_values, string_bytes
from chakra_et.ir.trace import Trace

__all__ = ["encode_nodes"]

Bytes = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]

_CHUNK = 1 << 16
_IO_PARTS = ("values", "shapes", "types")


class _Source:
    """The columns of some nodes as arrays, and the table that says where each is."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._own = trace.metadata.typed_edges
        self._count = len(trace)
        self._texts: list[tuple[Int, Bytes, Bytes]] = []
        self._ints: list[tuple[Int, Bytes]] = []
        self._taken: dict[str, int] = {}

    def _add_text(self, series: pl.Series, valid: pl.Series | None = None) -> int:
        offsets, data = string_bytes(series)
        mask = (series.is_not_null() if valid is None else valid).to_numpy().astype(np.uint8)
        self._texts.append((offsets, data, mask))
        return len(self._texts) - 1

    def _add_io(self, name: str) -> None:
        series = self._trace.column(name)
        for part in _IO_PARTS:
            self._add_text(series.struct.field(part), series.is_not_null())

    def _add_integers(self, name: str) -> int:
        series = self._trace.column(name)
        values = series.fill_null(False) if series.dtype == pl.Boolean() else series.fill_null(0)
        bits = values.to_numpy().astype(np.uint64 if series.dtype == pl.UInt64() else np.int64).view(np.int64)
        self._ints.append((bits, series.is_not_null().to_numpy().astype(np.uint8)))
        return len(self._ints) - 1

    def build(self) -> tuple[wire.WireTable, rows.Sink]:
        """Return the name table and the arrays."""
        self._add_integers("id")
        self._add_integers("type")
        self._add_text(self._trace.column("name"))
        self._add_io("inputs")
        self._add_io("outputs")
        self._add_text(self._trace.column("attr"))
        taken = {"sync_deps": rows.SYNC, "tensor_deps": rows.TENSOR}
        for entry in attributes(own=self._own):
            if entry.family == wire.LIST or entry.column not in self._trace.nodes.columns:
                continue
            add = self._add_attribute_text if entry.family == wire.STRING else self._add_integers
            taken[entry.name] = add(entry.column)
        return wire_table(own=self._own, rows=taken), self._sink()

    def _add_attribute_text(self, name: str) -> int:
        return self._add_text(self._trace.column(name))

    def _sink(self) -> rows.Sink:
        empty = np.zeros(self._count + 1, np.int64), np.empty(0, np.uint64)
        data = list_values(self._trace.column("data_deps"))
        lists = [
            list_values(self._trace.column("ctrl_deps")),
            empty if self._own else data,
            list_values(self._trace.column("sync_deps")),
            data if self._own else empty,
        ]
        text = np.concatenate([data for _, data, _ in self._texts])
        text.setflags(write=False)
        return rows.Sink(
            ints=np.stack([bits for bits, _ in self._ints]),
            valid=np.stack([valid for _, valid in self._ints]),
            text=text,
            text_base=_bases([len(data) for _, data, _ in self._texts]),
            text_offsets=np.stack([offsets for offsets, _, _ in self._texts]),
            text_valid=np.stack([valid for _, _, valid in self._texts]),
            ids=np.concatenate([values.astype(np.uint64, copy=False) for _, values in lists]),
            id_base=_bases([len(values) for _, values in lists]),
            id_offsets=np.stack([offsets for offsets, _ in lists]),
            text_cursor=np.zeros(0, np.int64),
            text_next=np.zeros(0, np.int64),
            id_cursor=np.zeros(0, np.int64),
            used=np.zeros(0, np.int64),
        )


def _bases(sizes: list[int]) -> Int:
    return np.cumsum([0, *sizes[:-1]]).astype(np.int64)


def _bound(table: wire.WireTable, source: rows.Sink) -> tuple[int, int]:
    """Return upper bounds: bytes that the nodes take on the wire, and ids that one node's lists hold together."""
    count = source.ints.shape[1]
    names = int((np.diff(table.starts)[table.row >= 0] + 32).sum())
    blob = int(source.text_offsets[rows.BLOB, -1])
    lengths = np.diff(source.id_offsets, axis=1)
    size = count * (256 + names) + len(source.text) + 4 * blob + 20 * len(source.ids)
    return size, int(lengths.sum(axis=0).max(initial=0))


def _problem(trace: Trace, node: int, code: int, attribute: int) -> TraceError:
    ident, name = trace.nodes["id"][node], trace.nodes["name"][node]
    place = f"rank {trace.rank}: node {ident} ({name!r})"
    if code == wire_write.OUT_OF_RANGE:
        entry = attributes(own=trace.metadata.typed_edges)[attribute]
        value = trace.nodes[entry.column][node]
        return TraceError(f"{place}: {entry.column}: expected a value that {entry.kind} holds, got {value}; correct it")
    return TraceError(f"{place}: attr: expected raw fields of a Node message, got other bytes; drop or correct them")


def encode_nodes(trace: Trace) -> Iterator[bytes]:
    """Yield the nodes of a trace as length-delimited messages, some ten thousand nodes at a time.

    Raises:
        TraceError: A value doesn't fit its kind on the wire, or `attr` holds no Node fields.
    """
    for first in range(0, len(trace), _CHUNK):
        part = trace.with_nodes(trace.nodes.slice(first, _CHUNK))
        table, source = _Source(part).build()
        size, longest = _bound(table, source)
        out = np.empty(size, np.uint8)
        end, node, code, attribute = wire_write.encode(
            table,
            source,
            out,
            np.empty(longest + 1, np.uint64),
            np.zeros(7, np.int64),
            np.zeros(8, np.uint64),
            np.zeros((6, 2), np.int64),
        )
        if node >= 0:
            raise _problem(part, int(node), int(code), int(attribute))
        yield out[:end].tobytes()
