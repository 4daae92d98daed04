"""The Chakra `.et` format: length-delimited protobuf, one `GlobalMetadata`, then `Node`s; plain or gzip.

Reading and writing a file keeps every message equal, whoever wrote it. A file without its `GlobalMetadata` gets one,
since every reader takes the first message for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from chakra_et._jit import wire
from chakra_et.errors import FormatError
from chakra_et.io._decode import decode_nodes, message_error
from chakra_et.io._files import Source, gzip_chunks, read_bytes, write_atomic
from chakra_et.io._metadata import decode_metadata, encode_metadata, groups_from_nodes, rank_from_name
from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.ir.columns import empty_nodes
from chakra_et.ir.trace import Trace

__all__ = ["build_trace", "delimited", "et_chunks", "message_spans", "parse_et", "read_et", "write_et"]

_DEFAULT_METADATA = b"\x0a\x051.0.0"


def _is_node(raw: bytes) -> bool:
    """Return True if a file's first message is a `Node`, not `GlobalMetadata`.

    Fields 1 and 2 are in both. Field 1 decides by its wire type (id: varint; version: string). Without it, a field that
    only a `Node` has decides. Field 2 alone is a metadata attribute if it repeats or parses as one with a name, else a
    node's name. An empty message is metadata.
    """
    try:
        node = proto.Node.FromString(raw)
    except DecodeError:
        return False
    try:
        metadata = proto.GlobalMetadata.FromString(raw)
    except DecodeError:
        return True
    if node.id or metadata.version:
        return bool(node.id)
    fields = {field.name for field, _ in node.ListFields()}
    if fields - {"name"} or len(metadata.attr) != 1:
        return bool(fields - {"name"})
    return not metadata.attr[0].name


def message_spans(buf: npt.NDArray[np.uint8], path: str) -> npt.NDArray[np.int64]:
    """Find the messages of a file.

    Args:
        buf: uint8, read-only: the content.
        path: For messages.

    Returns:
        Start and end of each message, int64 [messages, 2]; at least one.

    Raises:
        FormatError: A length is damaged, or there is no message.
    """
    spans = np.empty((len(buf) // 128 + 64, 2), np.int64)
    count = 0
    while True:
        count, code, byte = (int(value) for value in wire.split(buf, spans, count))
        if code:
            raise message_error(path, count, byte, code)
        if count < len(spans):
            break
        spans = np.concatenate([spans, np.empty_like(spans)])
    if count == 0:
        raise FormatError(f"{path}: expected a Chakra trace, got an empty file; copy or convert it again")
    return spans[:count]


def build_trace(data: bytes, path: str, spans: npt.NDArray[np.int64], *, metadata_first: bool) -> Trace:
    """Build a trace from messages.

    Args:
        data: What holds them.
        path: For messages, and for the rank where the metadata has none.
        spans: int64 [messages, 2], start and end of each.
        metadata_first: True if the first one is `GlobalMetadata`.

    Raises:
        FormatError: A message can't be parsed.
    """
    raw = data[spans[0, 0] : spans[0, 1]] if metadata_first else _DEFAULT_METADATA
    first = 1 if metadata_first else 0
    found = decode_metadata(path, raw)
    metadata = found.metadata
    nodes, typed = empty_nodes(), metadata.typed_edges
    if len(spans) > first:
        buf = np.frombuffer(data, np.uint8)
        nodes, typed = decode_nodes(path, buf, spans[first:], own=typed, first_message=first)
    if typed != metadata.typed_edges:
        metadata = replace(metadata, typed_edges=typed, raw=raw)
    if metadata.rank is None:
        metadata = replace(metadata, rank=rank_from_name(path))
    return Trace(nodes, found.process_groups or groups_from_nodes(nodes), metadata)


def parse_et(data: bytes, path: str) -> Trace:
    """Build a trace from the decompressed content of an `.et` file.

    Args:
        data: The content.
        path: For messages, and for the rank where the metadata has none.

    Raises:
        FormatError: The bytes don't follow the format.
    """
    spans = message_spans(np.frombuffer(data, np.uint8), path)
    metadata_first = not _is_node(data[spans[0, 0] : spans[0, 1]])
    return build_trace(data, path, spans, metadata_first=metadata_first)


def read_et(source: Source) -> Trace:
    """Read an `.et` file, plain or gzip, local or remote.

    Args:
        source: Path or URL.

    Raises:
        InputError: The file can't be read.
        FormatError: Its bytes don't follow the format.

    Example:
        >>> import tempfile
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1500)
        >>> path = write_et(builder.build(), f"{tempfile.mkdtemp()}/trace.0.et")
        >>> read_et(path).nodes["duration_ns"].to_list()
        [1500]
    """
    return parse_et(read_bytes(source), str(source))


def et_chunks(trace: Trace) -> Iterator[bytes]:
    """Yield the content of a trace's `.et` file.

    Raises:
        TraceError: A value doesn't fit its kind on the wire.
    """
    # Compiled loops that only writing needs.
    from chakra_et.io._encode import encode_nodes

    metadata = encode_metadata(trace)
    yield delimited(metadata)
    yield from encode_nodes(trace)


def delimited(message: bytes) -> bytes:
    """Return a message behind its length."""
    size = len(message)
    out = bytearray()
    while size >= 128:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out) + message


def write_et(trace: Trace, path: Source, *, force: bool = False) -> Path:
    """Write a trace as `.et`; gzip if the path ends in ``.gz``.

    A null `duration_ns` is written as 0.

    Args:
        trace: The trace.
        path: Local path.
        force: True to overwrite.

    Raises:
        TraceError: A value doesn't fit its kind on the wire.
        OutputError: The file exists and `force` is False, or it can't be written.
    """
    chunks = et_chunks(trace)
    return write_atomic(path, gzip_chunks(chunks) if str(path).endswith(".gz") else chunks, force=force)
