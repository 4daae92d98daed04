"""PyTorch execution traces (``ExecutionTraceObserver``'s JSON) as columns.

They hold host operators with tensors, shapes and arguments, but no times.

Schemas 1.0.1 (arguments beside the node) and 1.0.2 to 1.1.1 (``inputs``/``outputs`` objects and an ``attrs`` list),
with or without the ``-chakra.0.0.4`` suffix. Nodes stand in completion order in the file; here they are sorted by id,
which is the order of starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.comm_notes import CommNote, take_notes
from chakra_et.frontends.pytorch.json_array import ArrayFile, open_array
from chakra_et.ir.process_group import ProcessGroup, groups_from_records

__all__ = ["SCHEMAS", "HostTrace", "comm_numbers", "parse_et"]

SCHEMAS = ("1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.1.0", "1.1.1")
_GROUPS = "## process_group:init ##"
_NUMBERS = ("id", "parent", "rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
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
        nodes: id, name, parent, rf_id, fw_parent, seq_id, scope, tid, fw_tid, op_schema; ``input_*`` and ``output_*``
            JSON texts (values, shapes, types, strides); further attributes as strings, null where a node lacks them.
        process_groups: Groups of the ``process_group:init`` record; an empty rank list there means all ranks.
        repairs: What was wrong with the file.
        header: Other top-level keys.
        notes: What our observer says of calls, by their node ids.
        waits: Number of the call that a node waits for, by its node id.
    """

    path: str
    schema: str
    nodes: pl.DataFrame
    process_groups: tuple[ProcessGroup, ...]
    repairs: tuple[str, ...]
    header: dict[str, Any]
    notes: dict[int, CommNote] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)


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
        raise FormatError(
            f"{path}: expected a PyTorch execution trace of schema {', '.join(SCHEMAS)}, got {schema or 'none'!r}"
        )
    nodes = _old_nodes(file) if version == "1.0.1" else _nodes(file)
    lost = int((nodes["id"] < 0).sum())
    if lost:
        file.repairs.append(f"{lost} of {nodes.height} nodes have no id and were dropped")
        nodes = nodes.filter(pl.col("id") >= 0)
    if not nodes.height:
        raise FormatError(f"{path}: expected nodes, got none; did the observer record anything?")
    nodes = _truly_nested(nodes).sort("id", maintain_order=True)
    doubled = nodes.height - nodes["id"].n_unique()
    if doubled:
        file.repairs.append(f"{doubled} nodes repeat an id; the first of each was kept")
        nodes = nodes.unique("id", keep="first", maintain_order=True)
    nodes, notes, waits = take_notes(nodes)
    return HostTrace(path, schema, nodes, _groups(nodes), tuple(file.repairs), file.header, notes, waits)


def comm_numbers(host: HostTrace | None, joined: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of the communication that each event calls or waits for, int64 [E], -1 none.

    Args:
        host: The execution trace, or None.
        joined: int64 [E], row of the execution trace of each host event, -1 none.
    """
    numbers = np.full(len(joined), -1, np.int64)
    if host is None or not (host.notes or host.waits):
        return numbers
    known = {**{node: note.id for node, note in host.notes.items()}, **host.waits}
    of_row = np.array([known.get(node, -1) for node in host.nodes["id"].to_list()], np.int64)
    numbers[joined >= 0] = of_row[joined[joined >= 0]]
    return numbers


def _truly_nested(nodes: pl.DataFrame) -> pl.DataFrame:
    """Take nodes out of parents that had ended before they began; rows in the file's order.

    Nodes are written when they end. What gloo opens on the caller's thread a worker closes later, and until then it
    and the call around it pass for the parents of all that the thread does.
    """
    place = nodes.select("id", place=pl.int_range(pl.len(), dtype=pl.Int64)).unique("id", keep="first")
    parent = nodes.select("parent").join(place, left_on="parent", right_on="id", how="left", maintain_order="left")
    above = parent["place"].fill_null(-1).to_numpy().copy()
    rows = np.arange(nodes.height)
    # A thread's own node is written when its first operator begins; older files are sorted by id.
    above[nodes["name"].str.starts_with("[pytorch|profiler|").to_numpy()] = -1
    root = nodes["name"].str.starts_with("[pytorch|profiler|").to_numpy()
    early = (above >= 0) & (above < rows) & ~root[above]
    if not early.any() or early.sum() > (above > rows).sum():
        return nodes
    given = nodes["parent"].to_numpy()
    parents = given.copy()
    for row in np.flatnonzero(early).tolist():
        at, steps = int(above[row]), 0
        while 0 <= at < row and not root[at] and steps < nodes.height:
            parents[row], at, steps = given[at], int(above[at]), steps + 1
    return nodes.with_columns(parent=pl.Series(parents))


_SIDES = ("input", "output")
_PARTS = ("values", "shapes", "types", "strides")
_MISSING = {"seq_id": -1, "id": -1}


def _nodes(file: ArrayFile) -> pl.DataFrame:
    objects = file.objects()
    top = objects.fields(("id", "name", "ctrl_deps", "inputs", "outputs", "attrs"))
    attributes = objects.attributes(top["attrs"], (*_NUMBERS[2:], "op_schema", *_EXTRA))
    spans = {"id": top["id"], "parent": top["ctrl_deps"], **attributes}
    columns = {name: objects.integers(spans[name], _MISSING.get(name, 0)) for name in _NUMBERS}
    columns["name"] = objects.texts(top["name"], plain=True)
    columns["op_schema"] = objects.texts(attributes["op_schema"], plain=True)
    for side in _SIDES:
        parts = objects.inside(top[f"{side}s"], _PARTS)
        columns |= {f"{side}_{part}": objects.texts(parts[part], plain=False) for part in _PARTS}
    for name in _EXTRA:
        if (attributes[name][0] >= 0).any():
            texts = objects.texts(attributes[name], plain=True)
            columns[name] = pl.select(pl.when(texts.str.len_bytes() > 0).then(texts)).to_series()
    return pl.DataFrame(columns)


def _old_nodes(file: ArrayFile) -> pl.DataFrame:
    objects = file.objects()
    patterns = {"values": "{}s", "shapes": "{}_shapes", "types": "{}_types"}
    keys = {f"{side}_{part}": pattern.format(side) for side in _SIDES for part, pattern in patterns.items()}
    top = objects.fields((*_NUMBERS, "name", "op_schema", *keys.values()))
    columns = {name: objects.integers(top[name], _MISSING.get(name, 0)) for name in _NUMBERS}
    columns["name"] = objects.texts(top["name"], plain=True)
    columns["op_schema"] = objects.texts(top["op_schema"], plain=True)
    columns |= {column: objects.texts(top[key], plain=False) for column, key in keys.items()}
    empty = pl.Series("", [""], dtype=pl.String).new_from_index(0, len(columns["id"]))
    return pl.DataFrame({**columns, "input_strides": empty, "output_strides": empty})


def _groups(nodes: pl.DataFrame) -> tuple[ProcessGroup, ...]:
    """Read the process groups; a record that a crash cut off gives none."""
    groups: dict[str, ProcessGroup] = {}
    for text in nodes.filter(pl.col("name") == _GROUPS)["input_values"]:
        try:
            values = msgspec.json.decode(text)
            records = msgspec.json.decode(values[0]) if isinstance(values[0], str) else values[0]
        except (msgspec.DecodeError, IndexError, TypeError):
            continue
        for group in groups_from_records(records):
            if group.name not in groups or not groups[group.name].ranks:
                groups[group.name] = group
    return tuple(groups.values())
