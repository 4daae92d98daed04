"""`GlobalMetadata` <-> `TraceMetadata` and process groups."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from google.protobuf.message import DecodeError

from chakra_et.errors import FormatError, TraceError
from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.ir.process_group import ProcessGroup, groups_from_records
from chakra_et.ir.trace import Trace, TraceMetadata

__all__ = [
    "FileMetadata",
    "decode_metadata",
    "encode_metadata",
    "groups_from_json",
    "groups_from_nodes",
    "rank_from_name",
]

# What an empty GlobalMetadata is kept as: an explicit empty version, so that `raw` isn't empty.
_EMPTY = b"\x0a\x00"
_VERSION = "1.0.0"
_NAME = re.compile(r"\.(\d{1,9})\.(?:et|json|parquet)(?:\.gz)?$")
_GROUP_NODE = "## process_group:init ##"
_NOT_DATA = (ValueError, TypeError, SyntaxError, AttributeError, OverflowError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """What a `GlobalMetadata` message says.

    Attributes:
        metadata: As a trace keeps it.
        process_groups: From its attribute; empty if it has none.
    """

    metadata: TraceMetadata
    process_groups: tuple[ProcessGroup, ...]


def rank_from_name(path: str) -> int | None:
    """Return the rank of a file named ``<prefix>.<rank>.et`` (or ``.json``, ``.parquet``, ``.gz``), else None."""
    found = _NAME.search(path)
    return int(found.group(1)) if found else None


def groups_from_json(text: str) -> tuple[ProcessGroup, ...]:
    """Return the process groups of a JSON list of PyTorch's records; empty if it is anything else."""
    try:
        return groups_from_records(json.loads(text))
    except _NOT_DATA:
        return ()


def groups_from_nodes(nodes: pl.DataFrame) -> tuple[ProcessGroup, ...]:
    """Return the groups that nodes named ``## process_group:init ##`` list in their inputs' values.

    The value is a list that holds one string, written by Python's ``str`` or as JSON; the string is a JSON list of
    groups.
    """
    if "inputs" not in nodes.columns:
        return ()
    values = nodes["inputs"].filter(nodes["name"] == _GROUP_NODE).struct.field("values").drop_nulls()
    found: dict[str, ProcessGroup] = {}
    for text in values.to_list():
        for group in _init_groups(text):
            found.setdefault(group.name, group)
    return tuple(found.values())


def _init_groups(text: str) -> tuple[ProcessGroup, ...]:
    for parse in (json.loads, ast.literal_eval):
        try:
            outer = parse(text)
            inner = outer[0] if isinstance(outer, list) and outer and isinstance(outer[0], str) else None
            return groups_from_records(json.loads(inner) if inner is not None else outer)
        except _NOT_DATA:
            continue
    return ()


def _known(message: Any) -> dict[str, Any]:
    """Return the attributes that a trace keeps, decoded; those of an unexpected kind or content are left out."""
    values: dict[str, Any] = {}
    for attribute in message.attr:
        kind = attribute.WhichOneof("value") or ""
        value = getattr(attribute, kind) if kind else None
        if attribute.name in ("rank", "world_size"):
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
                values[attribute.name] = value
        elif attribute.name == "trace_family" and isinstance(value, str):
            values["trace_family"] = value
        elif attribute.name == "process_groups" and isinstance(value, str):
            values["process_groups"] = groups_from_json(value)
        elif attribute.name == "sources" and isinstance(value, str):
            values["sources"] = _sources(value)
    return values


def _sources(text: str) -> tuple[dict[str, Any], ...]:
    try:
        records = json.loads(text)
    except _NOT_DATA:
        return ()
    return tuple(record for record in records if isinstance(record, dict)) if isinstance(records, list) else ()


def decode_metadata(path: str, raw: bytes) -> FileMetadata:
    """Read a `GlobalMetadata` message.

    `TraceMetadata.raw` is left empty where the message can be written again from the rest.

    Raises:
        FormatError: The message can't be parsed.
    """
    try:
        message = proto.GlobalMetadata.FromString(raw)
    except DecodeError as err:
        raise FormatError(
            f"{path}: message 0 at byte 0: expected GlobalMetadata, got other bytes ({err}); "
            "the file is corrupt or no Chakra trace: copy or convert it again"
        ) from err
    values = _known(message)
    metadata = TraceMetadata(
        version=message.version,
        rank=values.get("rank"),
        world_size=values.get("world_size"),
        family=values.get("trace_family", ""),
        typed_edges="trace_family" in values,
        sources=values.get("sources", ()),
    )
    groups = values.get("process_groups", ())
    if not metadata.typed_edges or _fresh(metadata, groups) != message:
        metadata = replace(metadata, raw=raw or _EMPTY)
    return FileMetadata(metadata, groups)


def _attribute_values(metadata: TraceMetadata, groups: Sequence[ProcessGroup]) -> dict[str, int | str | None]:
    return {
        "rank": metadata.rank,
        "world_size": metadata.world_size,
        "trace_family": metadata.family,
        "process_groups": json.dumps([group.as_dict() for group in groups]),
        "sources": _json(list(metadata.sources)),
    }


def _json(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as err:
        raise TraceError(
            f"metadata.sources: expected plain data, got what JSON can't hold ({err}); correct it"
        ) from err


def _fresh(metadata: TraceMetadata, groups: Sequence[ProcessGroup]) -> Any:
    """Build the message of a trace made here; the presence of `trace_family` says that its edges are typed."""
    message = proto.GlobalMetadata(version=metadata.version)
    _add(message, _attribute_values(metadata, groups))
    return message


def _updated(trace: Trace) -> Any:
    """Return the kept message, its own attributes brought up to date; none is added unless the trace was adopted."""
    metadata = trace.metadata
    try:
        message = proto.GlobalMetadata.FromString(metadata.raw)
    except DecodeError as err:
        raise TraceError(
            f"rank {trace.rank}: metadata.raw: expected a GlobalMetadata message, got other bytes ({err}); empty it"
        ) from err
    old = _known(message)
    now = {
        "rank": metadata.rank,
        "world_size": metadata.world_size,
        "trace_family": metadata.family,
        "process_groups": trace.process_groups,
        "sources": metadata.sources,
    }
    written = _attribute_values(metadata, trace.process_groups)
    message.version = metadata.version
    for attribute in list(message.attr):
        name = attribute.name
        if name not in old or old[name] == now[name]:
            continue
        value = written[name]
        if value is None:
            message.attr.remove(attribute)
        elif isinstance(value, int):
            attribute.int64_val = value
        else:
            attribute.string_val = value
    if metadata.typed_edges and "trace_family" not in old:
        _add(message, {name: value for name, value in written.items() if name not in old})
    return message


def _add(message: Any, values: Mapping[str, int | str | None]) -> None:
    for name, value in values.items():
        if isinstance(value, int):
            message.attr.add(name=name, int64_val=value)
        elif value is not None:
            message.attr.add(name=name, string_val=value)


def encode_metadata(trace: Trace) -> bytes:
    """Return the `GlobalMetadata` message of a trace.

    A trace that others wrote keeps its own message, except for attributes of it whose value the trace has changed. One
    without any gets the version, since every reader takes the first message for metadata.

    Raises:
        TraceError: `raw` isn't a `GlobalMetadata` message, or `sources` isn't plain data.
    """
    metadata = trace.metadata
    if metadata.raw:
        updated: bytes = _updated(trace).SerializeToString()
        return updated if updated else _EMPTY
    if not metadata.typed_edges:
        bare: bytes = proto.GlobalMetadata(version=metadata.version or _VERSION).SerializeToString()
        return bare
    fresh: bytes = _fresh(metadata, trace.process_groups).SerializeToString()
    return fresh
