"""The attribute names that are columns, as the compiled loops want them.

Shape letters: A attribute names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from chakra_et._jit.wire import KIND_BOOL, LIST, NUMBER, STRING, UNSIGNED, WireTable
from chakra_et.ir.columns import ATTRIBUTE_COLUMNS, SCHEMA

__all__ = ["ATTRIBUTES_OWN", "KINDS", "WireAttribute", "attributes", "wire_table"]

# Field numbers of the oneof in AttributeProto.
KINDS = {"int32": 7, "int64": 9, "uint64": 13, "uint64_list": 14, "bool": 27, "string": 29}

# Wire names that differ from the column's.
_WIRE_NAMES = {"start_ns": "start_time_ns"}
_SLOTS = 256


@dataclass(frozen=True, slots=True)
class WireAttribute:
    """An attribute that is a column.

    Attributes:
        name: Name on the wire.
        column: Column name.
        kind: Name of the oneof kind that is written.
        family: What the column takes; see `chakra_et._jit.wire`.
    """

    name: str
    column: str
    kind: str
    family: int


def _family(column: str, kind: str) -> int:
    if kind == "string":
        return int(STRING)
    if kind == "uint64_list":
        return int(LIST)
    if kind == "bool":
        return int(KIND_BOOL)
    return int(UNSIGNED) if str(SCHEMA[column]) == "UInt64" else int(NUMBER)


def _attributes() -> tuple[WireAttribute, ...]:
    found = []
    for column in ATTRIBUTE_COLUMNS:
        name = _WIRE_NAMES.get(column.name, column.name)
        found.append(WireAttribute(name, column.name, column.wire, _family(column.name, column.wire)))
        if column.name == "sync_deps":
            found.append(WireAttribute("tensor_deps", "data_deps", column.wire, LIST))
    return tuple(found)


# In traces made here, in the order of writing; other traces have no `tensor_deps`.
ATTRIBUTES_OWN: tuple[WireAttribute, ...] = _attributes()


def attributes(*, own: bool) -> tuple[WireAttribute, ...]:
    """Return the attributes that are columns, in the order of writing."""
    return tuple(a for a in ATTRIBUTES_OWN if own or a.name != "tensor_deps")


def _hash(name: bytes) -> int:
    return name[0] * 5 + name[-1] * 11 + len(name) * 23


@lru_cache(maxsize=2)
def _fixed_part(own: bool) -> WireTable:
    wire = attributes(own=own)
    names = [a.name.encode() for a in wire]
    slots = np.full(_SLOTS, -1, np.int64)
    for number, name in enumerate(names):
        slot = _hash(name) % _SLOTS
        while slots[slot] >= 0:
            slot = (slot + 1) % _SLOTS
        slots[slot] = number
    columns = [a.column for a in wire]
    return WireTable(
        slots=slots,
        names=np.frombuffer(b"".join(names), np.uint8),
        starts=np.cumsum([0, *map(len, names)]).astype(np.int64),
        family=np.array([a.family for a in wire], np.int64),
        kind=np.array([KINDS[a.kind] for a in wire], np.int64),
        row=np.full(len(wire), -1, np.int64),
        mode=np.array([own, columns.index("start_ns"), columns.index("duration_ns")], np.int64),
    )


def wire_table(*, own: bool, rows: Mapping[str, int]) -> WireTable:
    """Return the table for one trace.

    Args:
        own: True if the trace types its edges.
        rows: Wire name -> row of its values in the arrays of its family; a name that is missing has no values.
    """
    row = np.array([rows.get(a.name, -1) for a in attributes(own=own)], np.int64)
    return _fixed_part(own)._replace(row=row)
