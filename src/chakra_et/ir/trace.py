"""`Trace`: the execution trace of one rank, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import TraceError
from chakra_et.ir.columns import CORE_COLUMNS, SCHEMA
from chakra_et.ir.process_group import ProcessGroup

__all__ = ["Trace", "TraceMetadata"]


@dataclass(frozen=True, slots=True)
class TraceMetadata:
    """What a trace says of itself (``GlobalMetadata`` on the wire).

    Attributes:
        version: Schema version written in the file.
        rank: Global rank, or None if the file doesn't tell.
        world_size: Number of ranks of the job, or None.
        family: ``collected``, ``compiled``, ``synthesized``, or empty if unknown.
        typed_edges: True if the three dependency columns hold the edges by kind (traces made here); False if they are
            a foreign file's two lists, kept as they are.
        sources: Facts about the files that the trace was made from.
        raw: The foreign file's ``GlobalMetadata`` message, kept byte for byte; empty for traces made here.
    """

    version: str = "1.0.0"
    rank: int | None = None
    world_size: int | None = None
    family: str = ""
    typed_edges: bool = True
    sources: tuple[dict[str, Any], ...] = ()
    raw: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The trace of one rank: a node table, its process groups and its metadata.

    Attributes:
        nodes: One row a node; columns as in `chakra_et.ir.columns`.
        process_groups: The communicators that this rank knows.
        metadata: Rank, world size, family, sources.

    Raises:
        TraceError: A core column is missing, or a column has a wrong dtype.

    Example:
        >>> from chakra_et.ir.columns import empty_nodes
        >>> len(Trace(empty_nodes()))
        0
    """

    nodes: pl.DataFrame
    process_groups: tuple[ProcessGroup, ...] = ()
    metadata: TraceMetadata = field(default_factory=TraceMetadata)

    def __post_init__(self) -> None:
        schema = self.nodes.schema
        missing = [column.name for column in CORE_COLUMNS if column.name not in schema]
        if missing:
            raise TraceError(f"node table: expected the core columns, got none named {', '.join(missing)}")
        wrong = [f"{n} {schema[n]} (expected {SCHEMA[n]})" for n in schema if n in SCHEMA and schema[n] != SCHEMA[n]]
        if wrong:
            raise TraceError(f"node table: wrong column types: {', '.join(wrong)}")
        unknown = [n for n in schema if n not in SCHEMA]
        if unknown:
            raise TraceError(f"node table: unknown columns {', '.join(unknown)}; see chakra_et.ir.columns")

    def __len__(self) -> int:
        return self.nodes.height

    @property
    def rank(self) -> int | None:
        """Global rank, or None if unknown."""
        return self.metadata.rank

    def column(self, name: str) -> pl.Series:
        """Return a column, all null where the trace lacks it.

        Args:
            name: A name from `chakra_et.ir.columns.COLUMNS`.
        """
        if name in self.nodes.columns:
            return self.nodes[name]
        nulls: pl.Series = pl.Series(name, [None], dtype=SCHEMA[name]).new_from_index(0, self.nodes.height)
        return nulls

    def integers(self, name: str, fill: int = -1) -> npt.NDArray[np.int64]:
        """Return an integer column as int64, shape [N], nulls as `fill`."""
        values: npt.NDArray[np.int64] = self.column(name).cast(pl.Int64).fill_null(fill).to_numpy()
        return values

    def with_nodes(self, nodes: pl.DataFrame) -> Trace:
        """Return the trace with another node table."""
        return replace(self, nodes=nodes)

    def with_columns(self, columns: Iterable[pl.Series]) -> Trace:
        """Return the trace with columns replaced or added."""
        return replace(self, nodes=self.nodes.with_columns(columns))
