"""Hypothesis strategies for traces: valid tables with every column, in every state that the data model allows.

Needs hypothesis (``pip install 'chakra-et[test]'``).
"""

from __future__ import annotations

from typing import Any

import polars as pl

from chakra_et.errors import MissingExtraError
from chakra_et.ir.columns import COLUMNS, IO_DTYPE, SCHEMA, Column
from chakra_et.ir.enums import NodeType
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace, TraceMetadata
from chakra_et.ir.trace_set import TraceSet

try:
    from hypothesis import strategies as st
except ImportError as err:
    raise MissingExtraError("expected hypothesis, got none; run: pip install 'chakra-et[test]'") from err

__all__ = ["process_groups", "texts", "trace_sets", "traces"]

_INT64 = st.integers(-(2**63), 2**63 - 1)
_BY_WIRE = {"int32": st.integers(-(2**31), 2**31 - 1), "int64": _INT64, "uint64": st.integers(0, 2**64 - 1)}
_IDS = st.integers(0, 2**64 - 1) | st.integers(0, 20)
_TIMES = st.integers(0, 2**53) | st.integers(0, 20).map(lambda micros: micros * 1000) | _INT64


def texts() -> st.SearchStrategy[str]:
    """Return strings that UTF-8 can hold: any planes, no lone surrogates."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def process_groups() -> st.SearchStrategy[ProcessGroup]:
    """Return communicators of up to five ranks."""
    ranks = st.lists(st.integers(0, 2**20), max_size=5, unique=True).map(tuple)
    return st.builds(
        lambda name, members, description, backend: ProcessGroup(name, members, len(members), description, backend),
        texts(),
        ranks,
        texts(),
        texts(),
    )


def _values(column: Column) -> st.SearchStrategy[Any]:
    """Return the values of a column that isn't a list of ids, nulls left out."""
    if column.name in ("start_ns", "duration_ns"):
        return _TIMES
    if column.dtype == IO_DTYPE:
        return st.fixed_dictionaries({"values": texts(), "shapes": texts(), "types": texts()})
    if column.dtype == pl.Boolean():
        return st.booleans()
    if column.dtype == pl.String():
        return texts()
    return _BY_WIRE[column.wire]


@st.composite
def _nodes(draw: st.DrawFn, *, max_nodes: int) -> pl.DataFrame:
    count = draw(st.integers(0, max_nodes))
    optional = [column for column in COLUMNS if not column.core and column.name != "attr"]
    used = draw(st.sets(st.sampled_from([column.name for column in optional]), max_size=8))
    ids = draw(st.lists(_IDS, min_size=count, max_size=count, unique=True))
    id_lists = st.lists(st.sampled_from(ids) | _IDS if ids else _IDS, max_size=4)
    rows: dict[str, list[Any]] = {"id": ids}
    for column in COLUMNS:
        if column.name == "id" or (not column.core and column.name not in used):
            continue
        if column.name.endswith("_deps"):
            values: st.SearchStrategy[Any] = id_lists
        elif column.name == "type":
            values = st.sampled_from(NodeType).map(int)
        elif column.name in ("name", "duration_ns"):
            values = _values(column)
        else:
            values = st.none() | _values(column)
        rows[column.name] = draw(st.lists(values, min_size=count, max_size=count))
    # A column is there because some node has a value.
    kept = {name: values for name, values in rows.items() if _is_core(name) or any(v is not None for v in values)}
    return pl.DataFrame(kept, schema={name: dtype for name, dtype in SCHEMA.items() if name in kept})


def _is_core(name: str) -> bool:
    return any(column.core for column in COLUMNS if column.name == name)


@st.composite
def traces(draw: st.DrawFn, *, max_nodes: int = 6, rank: int | None = 0) -> Trace:
    """Return traces as this package makes them: typed edges, no raw messages.

    Ids are unique; dependencies may be dangling, cyclic or repeated, as a validator must expect them.

    Args:
        draw: Given by hypothesis.
        max_nodes: Largest number of nodes.
        rank: Rank that the metadata names.

    Example:
        >>> from hypothesis import given
        >>> @given(traces(max_nodes=3))
        ... def test_size(trace):
        ...     assert len(trace) <= 3
        >>> test_size()
    """
    metadata = TraceMetadata(
        version=draw(st.sampled_from(["1.0.0", "0.0.4", ""])),
        rank=rank,
        world_size=draw(st.none() | st.integers(1, 2**20)),
        family=draw(st.sampled_from(["collected", "compiled", "synthesized", ""])),
        sources=tuple(draw(st.lists(st.dictionaries(texts(), texts() | st.integers(), max_size=2), max_size=2))),
    )
    groups = tuple(draw(st.lists(process_groups(), max_size=2)))
    return Trace(draw(_nodes(max_nodes=max_nodes)), groups, metadata)


@st.composite
def trace_sets(draw: st.DrawFn, *, max_ranks: int = 3, max_nodes: int = 4) -> TraceSet:
    """Return trace sets with ranks 0, 1, ...

    Args:
        draw: Given by hypothesis.
        max_ranks: Largest number of ranks.
        max_nodes: Largest number of nodes a rank.

    Example:
        >>> from hypothesis import given
        >>> @given(trace_sets(max_ranks=2))
        ... def test_ranks(trace_set):
        ...     assert trace_set.ranks == tuple(range(len(trace_set)))
        >>> test_ranks()
    """
    count = draw(st.integers(1, max_ranks))
    return TraceSet(tuple(draw(traces(max_nodes=max_nodes, rank=rank)) for rank in range(count)))
