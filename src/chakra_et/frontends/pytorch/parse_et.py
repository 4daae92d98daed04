"""PyTorch execution traces (``ExecutionTraceObserver``'s JSON) as columns: host operators with tensors, shapes, arguments; no times.

Schemas 1.0.1 (arguments beside the node) and 1.0.2 to 1.1.1 (``inputs``/``outputs`` objects and an ``attrs`` list), with or without
the ``-chakra.0.0.4`` suffix. Nodes stand in completion order in the file; here they are sorted by id, which is the order of starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import polars as pl

from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.json_array import open_array
from chakra_et.ir.process_group import ProcessGroup

__all__ = ["SCHEMAS", "HostTrace", "parse_et"]

SCHEMAS = ("1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.1.0", "1.1.1")
_GROUPS = "## process_group:init ##"
_EMPTY = msgspec.Raw(b"")


class _Io(msgspec.Struct):
    values: msgspec.Raw = _EMPTY
    shapes: msgspec.Raw = _EMPTY
    types: msgspec.Raw = _EMPTY
    strides: msgspec.Raw = _EMPTY


class _Attr(msgspec.Struct):
    name: str
    value: Any = None


class _Node(msgspec.Struct):
    id: int
    name: str
    ctrl_deps: int | list[int] | None = None
    inputs: _Io = msgspec.field(default_factory=_Io)
    outputs: _Io = msgspec.field(default_factory=_Io)
    attrs: list[_Attr] = msgspec.field(default_factory=list)


class _OldNode(msgspec.Struct):
    id: int
    name: str
    parent: int = 0
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0
    op_schema: str = ""
    inputs: msgspec.Raw = _EMPTY
    input_shapes: msgspec.Raw = _EMPTY
    input_types: msgspec.Raw = _EMPTY
    outputs: msgspec.Raw = _EMPTY
    output_shapes: msgspec.Raw = _EMPTY
    output_types: msgspec.Raw = _EMPTY


_NUMBERS = ("id", "parent", "rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
_IO = tuple(f"{side}_{part}" for side in ("input", "output") for part in ("values", "shapes", "types", "strides"))
_EXTRA = (
    "kernel_backend",
    "kernel_file",
    "tensor_range",
    "collective_name",
    "dtype",
    "in_msg_nelems",
    "out_msg_nelems",
    "in_split_size",
    "out_split_size",
    "pg_name",
    "pg_desc",
    "pg_size",
)


@dataclass(frozen=True, slots=True, eq=False)
class HostTrace:
    """One execution trace as a table, sorted by node id.

    Attributes:
        path: Name for messages.
        schema: Schema string in the file.
        nodes: id, name, parent, rf_id, fw_parent, seq_id, scope, tid, fw_tid, op_schema; ``input_*`` and ``output_*`` JSON texts
            (values, shapes, types, strides); further attributes as strings, null where a node lacks them.
        process_groups: Groups of the ``process_group:init`` record; an empty rank list there means all ranks.
        repairs: What was wrong with the file.
        header: Other top-level keys.
    """

    path: str
    schema: str
    nodes: pl.DataFrame
    process_groups: tuple[ProcessGroup, ...]
    repairs: tuple[str, ...]
    header: dict[str, Any]


def parse_et(path: str, text: bytes) -> HostTrace:
    """Parse an execution trace.

    Args:
        path: Name for messages.
        text: The file, decompressed.

    Raises:
        FormatError: Not an execution trace, or of an unknown schema.
    """
    file = open_array(path, text, "nodes")
    schema = str(file.header.get("schema", ""))
    version = schema.split("-")[0]
    if version not in SCHEMAS:
        raise FormatError(f"{path}: expected a PyTorch execution trace of schema {', '.join(SCHEMAS)}, got {schema or 'none'!r}")
    old = version == "1.0.1"
    kind: Any = _OldNode if old else _Node
    frame_of: Callable[[list[Any]], pl.DataFrame] = _old_frame if old else _frame
    many, one = msgspec.json.Decoder(list[kind]), msgspec.json.Decoder(kind)
    frames = [frame_of(nodes) for nodes in file.chunks(many, one) if nodes]
    if not frames:
        raise FormatError(f"{path}: expected nodes, got none; did the observer record anything?")
    nodes = pl.concat(frames, how="diagonal", rechunk=True).sort("id", maintain_order=True)
    doubled = nodes.height - nodes["id"].n_unique()
    if doubled:
        file.repairs.append(f"{doubled} nodes repeat an id; the first of each was kept")
        nodes = nodes.unique("id", keep="first", maintain_order=True)
    return HostTrace(path, schema, nodes, _groups(nodes), tuple(file.repairs), file.header)


def _text(raws: list[msgspec.Raw]) -> pl.Series:
    return pl.Series([bytes(raw) for raw in raws], dtype=pl.Binary).cast(pl.String, strict=False)


def _parent(value: int | list[int] | None) -> int:
    if isinstance(value, int):
        return value
    return value[0] if value else 0


def _frame(nodes: list[_Node]) -> pl.DataFrame:
    columns: dict[str, list[Any]] = {name: [] for name in _NUMBERS[2:]}
    columns["op_schema"] = []
    known = set(columns)
    extra: dict[str, dict[int, str]] = {}
    for row, node in enumerate(nodes):
        found: dict[str, Any] = {attr.name: attr.value for attr in node.attrs}
        for name in known:
            columns[name].append(found.pop(name, None))
        for name in found.keys() & _EXTRA:
            if found[name] not in ("", None):
                extra.setdefault(name, {})[row] = str(found[name])
    missing = {"seq_id": -1}
    data: dict[str, Any] = {
        "id": [node.id for node in nodes],
        "parent": [_parent(node.ctrl_deps) for node in nodes],
        **{name: [missing.get(name, 0) if v is None else v for v in columns[name]] for name in _NUMBERS[2:]},
    }
    return pl.DataFrame(
        {
            **{name: pl.Series(_fit(values), dtype=pl.Int64) for name, values in data.items()},
            "name": pl.Series([node.name for node in nodes], dtype=pl.String),
            "op_schema": pl.Series([str(v or "") for v in columns["op_schema"]], dtype=pl.String),
            **{
                f"{side}_{part}": _text([getattr(getattr(node, f"{side}s"), part) for node in nodes])
                for side in ("input", "output")
                for part in ("values", "shapes", "types", "strides")
            },
            **{
                name: pl.Series([rows.get(row) for row in range(len(nodes))], dtype=pl.String) for name, rows in extra.items()
            },
        }
    )


def _fit(values: list[Any]) -> list[int]:
    """Wrap what doesn't fit int64 (uint64 thread ids, -1 written as 2^64-1)."""
    return [value if -(2**63) <= value < 2**63 else value - 2**64 for value in map(int, values)]


def _old_frame(nodes: list[_OldNode]) -> pl.DataFrame:
    names = {"values": "{}s", "shapes": "{}_shapes", "types": "{}_types"}
    return pl.DataFrame(
        {
            **{
                name: pl.Series(_fit([getattr(node, name) for node in nodes]), dtype=pl.Int64) for name in _NUMBERS
            },
            "name": pl.Series([node.name for node in nodes], dtype=pl.String),
            "op_schema": pl.Series([node.op_schema for node in nodes], dtype=pl.String),
            **{
                f"{side}_{part}": _text([getattr(node, pattern.format(side)) for node in nodes])
                for side in ("input", "output")
                for part, pattern in names.items()
            },
            "input_strides": pl.Series([""] * len(nodes), dtype=pl.String),
            "output_strides": pl.Series([""] * len(nodes), dtype=pl.String),
        }
    )


def _groups(nodes: pl.DataFrame) -> tuple[ProcessGroup, ...]:
    """Read the process groups; a record that a crash cut off gives none."""
    groups: dict[str, ProcessGroup] = {}
    for text in nodes.filter(pl.col("name") == _GROUPS)["input_values"]:
        try:
            values = msgspec.json.decode(text)
            records = msgspec.json.decode(values[0]) if isinstance(values[0], str) else values[0]
        except (msgspec.DecodeError, IndexError, TypeError):
            continue
        for record in records if isinstance(records, list) else []:
            if isinstance(record, dict):
                group = ProcessGroup.from_dict(record)
                groups.setdefault(group.name, group)
    return tuple(groups.values())
