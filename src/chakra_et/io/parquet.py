"""Traces as Parquet: the node table as it is; metadata and process groups in the key-value metadata (`chakra_et`)."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from chakra_et.errors import FormatError, TraceError
from chakra_et.io._files import Source, read_bytes, write_atomic
from chakra_et.io._metadata import rank_from_name
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace, TraceMetadata

__all__ = ["parse_parquet", "read_parquet", "write_parquet"]

_KEY = "chakra_et"
_MAGIC = b"PAR1"
# Between the last page and the footer, where readers don't look: this, and the CRC-32 of all else in the file.
_SEAL = b"CHAKRA-CRC32"
_SEAL_BYTES = len(_SEAL) + 4
_TAIL_BYTES = 8
# A damaged file makes Polars raise its own errors, or panic.
_POLARS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, OverflowError, MemoryError)


def _facts(trace: Trace) -> str:
    metadata = trace.metadata
    facts = {
        "version": metadata.version,
        "rank": metadata.rank,
        "world_size": metadata.world_size,
        "family": metadata.family,
        "typed_edges": metadata.typed_edges,
        "sources": list(metadata.sources),
        "raw": base64.b64encode(metadata.raw).decode(),
        "process_groups": [group.as_dict() for group in trace.process_groups],
    }
    try:
        return json.dumps(facts)
    except (TypeError, ValueError) as err:
        raise TraceError(
            f"metadata.sources: expected plain data, got what JSON can't hold ({err}); correct it"
        ) from err


def _parse_facts(text: str) -> tuple[TraceMetadata, tuple[ProcessGroup, ...]]:
    facts: dict[str, Any] = json.loads(text)
    metadata = TraceMetadata(
        version=str(facts["version"]),
        rank=None if facts["rank"] is None else int(facts["rank"]),
        world_size=None if facts["world_size"] is None else int(facts["world_size"]),
        family=str(facts["family"]),
        typed_edges=bool(facts["typed_edges"]),
        sources=tuple(facts["sources"]),
        raw=base64.b64decode(facts["raw"]),
    )
    return metadata, tuple(ProcessGroup.from_dict(record) for record in facts["process_groups"])


def _footer_start(data: bytes) -> int | None:
    """Return where a Parquet file's footer begins, or None if its frame is damaged."""
    if len(data) < len(_MAGIC) + _TAIL_BYTES or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        return None
    (length,) = struct.unpack("<I", data[-_TAIL_BYTES:-4])
    start = len(data) - _TAIL_BYTES - int(length)
    return start if length and start >= len(_MAGIC) else None


def _checksum(data: bytes, start: int, end: int) -> bytes:
    """Return the CRC-32 of `data` without the bytes from `start` to `end`."""
    view = memoryview(data)
    return struct.pack("<I", zlib.crc32(view[end:], zlib.crc32(view[:start])))


def _sealed(data: bytes) -> list[bytes]:
    """Return the parts of a Parquet file with a seal; offsets in its footer count from the front and still hold."""
    start = _footer_start(data) or len(data)
    return [data[:start], _SEAL + _checksum(data, start, start), data[start:]]


def _damage(data: bytes) -> str | None:
    """Return what is wrong with a Parquet file: Polars' decoder panics on some damage, and prints that itself."""
    start = _footer_start(data)
    if start is None:
        return "no Parquet, or not all of one"
    seal = data[max(start - _SEAL_BYTES, 0) : start]
    if seal.startswith(_SEAL) and seal[len(_SEAL) :] != _checksum(data, start - _SEAL_BYTES, start):
        return "the checksum is another"
    return None


def parse_parquet(data: bytes, path: str) -> Trace:
    """Build a trace from the content of a Parquet file.

    Args:
        data: The content.
        path: For messages, and for the rank where the metadata has none.

    Raises:
        FormatError: The bytes are no Parquet, or its columns are none of a trace.
    """
    advice = "the file is corrupt or no Chakra trace: copy or convert it again"
    damage = _damage(data)
    if damage is not None:
        raise FormatError(f"{path}: expected Parquet, got other bytes ({damage}); {advice}")
    try:
        text = pl.read_parquet_metadata(io.BytesIO(data)).get(_KEY)
        nodes = pl.read_parquet(io.BytesIO(data))
    except _POLARS as err:
        raise FormatError(
            f"{path}: expected Parquet, got other bytes ({' '.join(str(err).split())}); {advice}"
        ) from err
    if text is None:
        raise FormatError(f"{path}: expected the metadata entry '{_KEY}', got Parquet without it; {advice}")
    try:
        metadata, groups = _parse_facts(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as err:
        raise FormatError(
            f"{path}: expected a trace's facts in '{_KEY}', got something else ({err}); {advice}"
        ) from err
    if metadata.rank is None:
        metadata = replace(metadata, rank=rank_from_name(path))
    try:
        return Trace(nodes, groups, metadata)
    except TraceError as err:
        raise FormatError(f"{path}: {err}; {advice}") from err


def read_parquet(source: Source) -> Trace:
    """Read a trace from Parquet, local or remote.

    Args:
        source: Path or URL.

    Raises:
        InputError: The file can't be read.
        FormatError: It is no trace in Parquet.
    """
    return parse_parquet(read_bytes(source), str(source))


def write_parquet(trace: Trace, path: Source, *, force: bool = False) -> Path:
    """Write a trace as Parquet.

    Args:
        trace: The trace.
        path: Local path.
        force: True to overwrite.

    Raises:
        OutputError: The file exists and `force` is False, or it can't be written.

    Example:
        >>> import tempfile
        >>> from chakra_et.ir import TraceBuilder
        >>> path = write_parquet(TraceBuilder(rank=3).build(), f"{tempfile.mkdtemp()}/trace.3.parquet")
        >>> read_parquet(path).rank
        3
    """
    buffer = io.BytesIO()
    trace.nodes.write_parquet(buffer, metadata={_KEY: _facts(trace)})
    return write_atomic(path, _sealed(buffer.getvalue()), force=force)
