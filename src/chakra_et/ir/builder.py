"""`TraceBuilder`: make a small trace node by node (tests, generators, examples); big ones are made from columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from chakra_et.errors import TraceError
from chakra_et.ir.columns import CORE_COLUMNS, SCHEMA
from chakra_et.ir.enums import NodeType
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace, TraceMetadata

__all__ = ["TraceBuilder"]


class TraceBuilder:
    """Collects nodes and builds a `Trace`.

    Example:
        >>> builder = TraceBuilder(rank=0)
        >>> first = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1000)
        >>> second = builder.add("all_reduce", NodeType.COMM_COLL_NODE, sync_deps=[first], comm_size=64)
        >>> len(builder.build())
        2
    """

    def __init__(
        self,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        family: str = "synthesized",
        process_groups: Sequence[ProcessGroup] = (),
    ) -> None:
        self._rows: list[dict[str, Any]] = []
        self._groups = tuple(process_groups)
        self._metadata = TraceMetadata(rank=rank, world_size=world_size, family=family)

    def add(self, name: str, type: NodeType, **columns: Any) -> int:
        """Add a node and return its id.

        Args:
            name: Node name.
            type: Node type.
            **columns: Values of other columns; ``id`` may be given, else ids count up from 0.

        Raises:
            TraceError: A column is unknown.
        """
        unknown = [key for key in columns if key not in SCHEMA]
        if unknown:
            raise TraceError(f"node '{name}': unknown columns {', '.join(unknown)}; see chakra_et.ir.columns")
        row: dict[str, Any] = {
            "id": len(self._rows),
            "name": name,
            "type": int(type),
            "ctrl_deps": [],
            "data_deps": [],
            "sync_deps": [],
            "start_ns": None,
            "duration_ns": 0,
            "is_cpu_op": False,
        }
        row.update(columns)
        self._rows.append(row)
        return int(row["id"])

    def build(self) -> Trace:
        """Return the trace; columns that no node uses are left out."""
        used = {key for row in self._rows for key in row} | {column.name for column in CORE_COLUMNS}
        schema = {name: dtype for name, dtype in SCHEMA.items() if name in used}
        return Trace(pl.DataFrame(self._rows, schema=schema), self._groups, self._metadata)
