"""Attributes of execution-trace nodes that have no column: kept as they are, for replay."""

from __future__ import annotations

import polars as pl

__all__ = ["extra_attributes"]

_NAMES = ("kernel_backend", "kernel_file", "tensor_range")
# Fields of the schema: Node.attr, AttributeProto.name, AttributeProto.string_val; all length-delimited.
_ATTR, _NAME, _STRING = (bytes([10 << 3 | 2]), bytes([1 << 3 | 2]), bytes([0xEA, 0x01]))


def extra_attributes(nodes: pl.DataFrame) -> pl.Series | None:
    """Return the `attr` column of an execution trace's nodes; None if no node has anything for it.

    Args:
        nodes: `HostTrace.nodes`.
    """
    present = [name for name in _NAMES if name in nodes.columns]
    if not present:
        return None
    some = nodes.with_row_index("row").filter(pl.any_horizontal(pl.col(present).is_not_null()))
    records: list[bytes | None] = [None] * nodes.height
    for row, *values in some.select("row", *present).iter_rows():
        records[row] = b"".join(_record(name, text) for name, text in zip(present, values, strict=True) if text)
    return pl.Series("attr", records, dtype=pl.Binary)


def _record(name: str, text: str) -> bytes:
    body = _NAME + _sized(name.encode()) + _STRING + _sized(text.encode())
    return _ATTR + _sized(body)


def _sized(data: bytes) -> bytes:
    """Prefix bytes with their length as a varint."""
    size, prefix = len(data), bytearray()
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes(prefix) + bytes([size]) + data
