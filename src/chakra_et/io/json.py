"""The JSON dialects of Chakra traces.

* Protobuf JSON (read, written): the messages of an `.et` file in protobuf's JSON mapping, one object after the other
  with nothing in between: `GlobalMetadata`, then `Node`s; 64-bit integers as strings, enums as names. It has no place
  for unknown fields: those are lost.
* ``workload_graph`` (read): one object with a list of flat nodes, as the public C++ feeder takes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from chakra_et.errors import FormatError, TraceError
from chakra_et.io._files import Source, gzip_chunks, read_bytes, write_atomic
from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.io.et import build_trace, delimited, et_chunks, message_spans
from chakra_et.ir.trace import Trace

__all__ = ["json_chunks", "parse_json", "read_json", "write_json"]

_SPACE = re.compile(r"\s*")
_NOT_DATA = (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError)
_ADVICE = "expected a Chakra trace as JSON, got {}; {}"


def _keys(message: Any) -> frozenset[str]:
    """Return the names of a message's fields, in both spellings that the mapping allows."""
    fields = message.DESCRIPTOR.fields
    return frozenset(name for field in fields for name in (field.name, field.json_name))


_METADATA_KEYS, _NODE_KEYS = _keys(proto.GlobalMetadata), _keys(proto.Node)
_NODE_TYPES = tuple(proto.NodeType.keys())
_MOST_KEYS, _KEY_LENGTH = 5, 40

# Attributes of the `workload_graph` dialect by the kind that the public feeder reads; keys not named here go by their
# value.
_ATTRIBUTES = {
    "is_cpu_op": "bool_val",
    "tensor_size": "uint64_val",
    "num_ops": "int64_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_priority": "int32_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "pg_name": "string_val",
}


def _objects(text: str, path: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a text, one after the other."""
    decoder = json.JSONDecoder()
    pos = _SPACE.match(text, 0).end()  # type: ignore[union-attr]
    while pos < len(text):
        try:
            value, end = decoder.raw_decode(text, pos)
        except (ValueError, RecursionError) as err:
            raise FormatError(
                f"{path}: character {pos}: expected a JSON object, got something else ({err}); "
                "the file is corrupt, truncated or no Chakra trace: copy or convert it again"
            ) from err
        if not isinstance(value, dict):
            raise FormatError(
                f"{path}: character {pos}: expected a JSON object, got {type(value).__name__}; name a Chakra trace"
            )
        yield value
        pos = _SPACE.match(text, end).end()  # type: ignore[union-attr]


def _refuse_others(first: dict[str, Any], path: str) -> None:
    if "traceEvents" in first:
        raise FormatError(f"{path}: " + _ADVICE.format("a profile (traceEvents)", "run `chakra convert` on it first"))
    if "nodes" in first and "schema" in first:
        raise FormatError(f"{path}: " + _ADVICE.format("a PyTorch execution trace", "run `chakra convert` on it first"))
    if {"ranks", "matching", "failed"} <= set(first):
        raise FormatError(f"{path}: " + _ADVICE.format("a quality report", "name the traces beside it"))


def _refuse_no_node(record: dict[str, Any], place: str) -> None:
    """Raise for an object that isn't plainly a node: keys of later schemas may be there, but not alone."""
    if set(record) <= _NODE_KEYS or "id" in record or record.get("type") in _NODE_TYPES:
        return
    keys = [f"'{key[:_KEY_LENGTH]}'" for key in record]
    listed = ", ".join(keys[:_MOST_KEYS]) + (", ..." if len(keys) > _MOST_KEYS else "")
    raise FormatError(
        f"{place}: expected a Node in protobuf's JSON mapping, got an object with other keys ({listed}); "
        "name a Chakra trace"
    )


def _message(record: dict[str, Any], message: Any, place: str) -> bytes:
    # Loaded here, since reading and writing other formats does without.
    from google.protobuf import json_format

    try:
        parsed: bytes = json_format.ParseDict(record, message, ignore_unknown_fields=True).SerializeToString()
    except (*_NOT_DATA, json_format.Error) as err:
        raise FormatError(
            f"{place}: expected a {message.DESCRIPTOR.name} in protobuf's JSON mapping, got something else "
            f"({' '.join(str(err).split())}); correct it or convert the trace again"
        ) from err
    return parsed


def _protobuf_messages(records: list[dict[str, Any]], path: str) -> tuple[list[bytes], bool]:
    metadata_first = set(records[0]) <= _METADATA_KEYS
    kinds = [proto.GlobalMetadata if metadata_first and i == 0 else proto.Node for i in range(len(records))]
    for i, record in enumerate(records[metadata_first:], int(metadata_first)):
        _refuse_no_node(record, f"{path}: message {i}")
    messages = [
        _message(record, kind(), f"{path}: message {i}")
        for i, (record, kind) in enumerate(zip(records, kinds, strict=True))
    ]
    return messages, metadata_first


def _workload_node(record: dict[str, Any], place: str) -> bytes:
    rest = dict(record)
    try:
        node = proto.Node(
            id=rest.pop("Id"),
            name=rest.pop("Name", ""),
            type=rest.pop("NodeType", 0),
            ctrl_deps=rest.pop("ctrlDeps", rest.pop("ctrl_deps", [])),
            data_deps=rest.pop("data_deps", []),
            duration_micros=rest.pop("runtime", 0),
        )
        for name, value in rest.items():
            node.attr.add(name=name, **{_ATTRIBUTES.get(name) or _kind(value): _plain(value)})
        message: bytes = node.SerializeToString()
    except _NOT_DATA as err:
        raise FormatError(
            f"{place}: expected Id, Name, NodeType, data_deps and numbers that fit, got something else "
            f"({' '.join(str(err).split())}); correct it"
        ) from err
    return message


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool_val"
    if isinstance(value, int):
        return "int64_val"
    return "double_val" if isinstance(value, float) else "string_val"


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) or value is None else value


def _workload_messages(first: dict[str, Any], path: str) -> list[bytes]:
    graph = first["workload_graph"]
    if not isinstance(graph, list) or not all(isinstance(record, dict) for record in graph):
        raise FormatError(f"{path}: workload_graph: expected a list of nodes, got something else; correct it")
    return [_workload_node(record, f"{path}: workload_graph[{i}]") for i, record in enumerate(graph)]


def parse_json(data: bytes, path: str) -> Trace:
    """Build a trace from JSON text of either dialect.

    Args:
        data: The content, UTF-8.
        path: For messages, and for the rank where the metadata has none.

    Raises:
        FormatError: It is no Chakra trace.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise FormatError(
            f"{path}: byte {err.start}: expected UTF-8 text, got other bytes; copy the file again"
        ) from err
    records = list(_objects(text, path))
    if not records:
        raise FormatError(f"{path}: " + _ADVICE.format("an empty file", "copy or convert it again"))
    _refuse_others(records[0], path)
    if "workload_graph" in records[0]:
        default = proto.GlobalMetadata(version="1.0.0").SerializeToString()
        messages, metadata_first = [default, *_workload_messages(records[0], path)], True
    else:
        messages, metadata_first = _protobuf_messages(records, path)
    content = b"".join(delimited(message) for message in messages)
    spans = message_spans(np.frombuffer(content, np.uint8), path)
    return build_trace(content, path, spans, metadata_first=metadata_first)


def read_json(source: Source) -> Trace:
    """Read a trace from JSON of either dialect, plain or gzip, local or remote.

    Args:
        source: Path or URL.

    Raises:
        InputError: The file can't be read.
        FormatError: It is no Chakra trace.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "chakra.0.json"
        >>> text = '{"workload_graph": [{"Id": 1, "Name": "gemm", "NodeType": 4, "data_deps": [], "runtime": 5}]}'
        >>> _ = path.write_text(text)
        >>> read_json(path).nodes["duration_ns"].to_list()
        [5000]
    """
    return parse_json(read_bytes(source), str(source))


def json_chunks(trace: Trace) -> Iterator[bytes]:
    """Yield the protobuf JSON of a trace.

    Raises:
        TraceError: A value doesn't fit its kind on the wire.
    """
    from google.protobuf import json_format

    kind = proto.GlobalMetadata
    for chunk in et_chunks(trace):
        parts = []
        for start, end in message_spans(np.frombuffer(chunk, np.uint8), "").tolist():
            try:
                message = kind.FromString(chunk[start:end])
            except DecodeError as err:
                raise TraceError(
                    f"rank {trace.rank}: attr: expected raw fields of Node messages, got other bytes ({err}); "
                    "correct them"
                ) from err
            parts.append(json_format.MessageToJson(message))
            kind = proto.Node
        yield "".join(parts).encode()


def write_json(trace: Trace, path: Source, *, force: bool = False) -> Path:
    """Write a trace as protobuf JSON; gzip if the path ends in ``.gz``. Fields that the schema doesn't know are lost.

    Args:
        trace: The trace.
        path: Local path.
        force: True to overwrite.

    Raises:
        TraceError: A value doesn't fit its kind on the wire.
        OutputError: The file exists and `force` is False, or it can't be written.
    """
    chunks = json_chunks(trace)
    return write_atomic(path, gzip_chunks(chunks) if str(path).endswith(".gz") else chunks, force=force)
