"""What is in a trace set, as plain data: the content of ``chakra info --json``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import polars as pl

from chakra_et.ir import CommType, NodeType, Trace, TraceSet
from chakra_et.passes.select import iterations

TYPE_NAMES = {int(entry): entry.name for entry in NodeType}
COMM_NAMES = {int(entry): entry.name for entry in CommType}
COMM_TYPES = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)


def summarize(traces: TraceSet) -> dict[str, Any]:
    """Return counts, spans, groups and communications of every rank."""
    ranks = zip(traces.ranks, traces, strict=True)
    return {"world_size": traces.world_size, "ranks": [_summarize_rank(rank, trace) for rank, trace in ranks]}


def _summarize_rank(rank: int, trace: Trace) -> dict[str, Any]:
    nodes = trace.nodes
    types = nodes["type"].value_counts(sort=True).rows()
    edges = {name: int(trace.column(name).list.len().sum()) for name in ("ctrl_deps", "data_deps", "sync_deps")}
    groups = trace.process_groups
    return {
        "rank": rank,
        "family": trace.metadata.family,
        "nodes": len(trace),
        "types": {TYPE_NAMES.get(number, str(number)): count for number, count in types},
        "edges": edges,
        "span_ns": _span_ns(nodes),
        "threads": _distinct(trace, "tid", host=True),
        "streams": _distinct(trace, "stream", host=False),
        "gap_total_ns": _gaps(trace),
        "iterations": list(iterations(trace)),
        "process_groups": [group.as_dict() for group in groups],
        "communications": _communications(trace),
    }


def _span_ns(nodes: pl.DataFrame) -> int | None:
    span = nodes.select((pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max() - pl.col("start_ns").min())
    value = span.item()
    return None if value is None else int(value)


def _distinct(trace: Trace, column: str, *, host: bool) -> int:
    if column not in trace.nodes.columns:
        return 0
    side = pl.col("is_cpu_op").fill_null(True) == host
    where = [name for name in ("device", column) if name in trace.nodes.columns and (name == column or not host)]
    return trace.nodes.filter(side & pl.col(column).is_not_null()).select(where).n_unique()


def _gaps(trace: Trace) -> dict[str, int]:
    if "gap_kind" not in trace.nodes.columns:
        return {}
    gaps = trace.nodes.filter(pl.col("gap_kind").is_not_null())
    return dict(gaps.group_by("gap_kind").agg(pl.col("duration_ns").sum()).sort("gap_kind").rows())


def _communications(trace: Trace) -> list[dict[str, Any]]:
    keys = ("type", "comm_type", "pg_name", "comm_size", "duration_ns")
    table = pl.DataFrame([trace.column(name).alias(name) for name in keys])
    table = table.filter(pl.col("type").is_in([int(kind) for kind in COMM_TYPES]))
    grouped = table.group_by("type", "comm_type", "pg_name").agg(
        pl.len().alias("count"), pl.col("comm_size").sum(), pl.col("duration_ns").sum()
    )
    return [
        {
            "kind": comm_kind(row["type"], row["comm_type"]),
            "pg_name": row["pg_name"],
            "count": row["count"],
            "comm_size": row["comm_size"],
            "duration_ns": row["duration_ns"],
        }
        for row in grouped.sort(
            "count", "type", "comm_type", "pg_name", descending=[True, False, False, False]
        ).to_dicts()
    ]


def comm_kind(node_type: int, comm_type: int | None) -> str:
    """Return what a communication is, in words: ``all_reduce``, ``send``, ``recv``."""
    if node_type == NodeType.COMM_COLL_NODE:
        return COMM_NAMES[comm_type].lower() if comm_type in COMM_NAMES else "unknown"
    return TYPE_NAMES[node_type].split("_")[1].lower()


def list_nodes(traces: TraceSet, *, limit: int, type_name: str | None, name: str | None) -> list[dict[str, Any]]:
    """Return the first nodes of every rank that fit, as dicts of their non-null columns.

    Args:
        traces: Where to look.
        limit: Most nodes to return over all ranks.
        type_name: Only nodes of this type, such as ``COMM_COLL_NODE``.
        name: Only nodes whose name fits this glob.
    """
    found: list[dict[str, Any]] = []
    for rank, trace in zip(traces.ranks, traces, strict=True):
        nodes = trace.nodes
        if type_name is not None:
            nodes = nodes.filter(pl.col("type") == int(NodeType[type_name]))
        if name is not None:
            # A glob over the distinct names, which are few; Polars' regular expressions know no fnmatch dialect.
            names = [text for text in nodes["name"].unique().to_list() if text is not None and fnmatchcase(text, name)]
            nodes = nodes.filter(pl.col("name").is_in(names))
        for row in nodes.head(limit - len(found)).drop("attr", strict=False).to_dicts():
            values = {key: value for key, value in row.items() if value is not None and value != []}
            found.append({"rank": rank, **values, "type": TYPE_NAMES.get(row["type"], str(row["type"]))})
    return found
