"""Attributes of nodes that have no column: kept as raw fields of the message, and decoded here when asked for."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.ir.trace import Trace

__all__ = ["attribute_values"]


def attribute_values(trace: Trace, name: str) -> dict[int, Any]:
    """Return the values of an attribute that has no column, by position of the node; lists come as Python lists.

    Args:
        trace: The trace.
        name: Name of the attribute; the first one of that name counts.

    Example:
        >>> from chakra_et.ir import TraceBuilder
        >>> attribute_values(TraceBuilder().build(), "involved_dim")
        {}
    """
    if "attr" not in trace.nodes.columns:
        return {}
    raw = trace.nodes["attr"]
    rows = raw.bin.contains(name.encode()).fill_null(False).arg_true().to_list()
    known: dict[bytes, Any] = {}
    values = {}
    for row in rows:
        data = raw[row]
        if data not in known:
            known[data] = _decode(data, name)
        if known[data] is not None:
            values[row] = known[data]
    return values


def _decode(data: bytes, name: str) -> Any:
    node = proto.Node()
    try:
        node.MergeFromString(data)
    except DecodeError:
        return None
    for attribute in node.attr:
        if attribute.name == name:
            kind = attribute.WhichOneof("value") or ""
            value: Any = getattr(attribute, kind) if kind else None
            return list(value.values) if kind.endswith("_list") else value
    return None
