"""Make a trace smaller: fuse host segments between launches, waits and communications.

Requires: ids ascend in time (traces made by `chakra_et.conversion`). Ensures: the same device timeline when rebuilt.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.chains import chain_heads
from chakra_et._jit.schedule import invert
from chakra_et.ir.arrays import list_series
from chakra_et.ir.enums import NodeType
from chakra_et.ir.graph import build_graph, edge_list
from chakra_et.ir.trace import Trace

__all__ = ["fuse"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def fuse(trace: Trace, *, detail: Literal["launch", "device"]) -> Trace:
    """Fuse host segments that follow each other and that nothing else ties to.

    Args:
        trace: A trace of detail ``op``.
        detail: ``launch``: host segments between launches, waits and communications become one node, annotations
            inside operators go, memory events stay; ``device``: what is left of the host becomes gap nodes
            (``host_work``), and only iteration marks stay of the annotations.

    Returns:
        A trace whose rebuilt device timeline is the same. Tensor edges between host operators are left out: program
        order implies them.
    """
    trace = _without_annotations(trace, detail)
    host = _fusible(trace)
    order_only = trace.with_columns([_without_host_data(trace, host)])
    graph = build_graph(order_only)
    out, _ = invert(graph.indptr, graph.preds)
    single = np.diff(graph.indptr) == 1
    before = np.full(len(trace), -1, np.int64)
    before[single] = graph.preds[graph.indptr[:-1][single]]
    alone = np.diff(out) == 1
    thread = trace.integers("tid")
    joined = single & host & host[before] & alone[before] & (thread == thread[before])
    head = chain_heads(np.where(joined, before, -1))
    return _merged(order_only, head, host, detail)


def _fusible(trace: Trace) -> Bool:
    return (trace.column("is_cpu_op").fill_null(False) & (trace.nodes["type"] == int(NodeType.COMP_NODE))).to_numpy()


def _without_annotations(trace: Trace, detail: str) -> Trace:
    """Leave out annotations: no other node waits for them."""
    nodes = trace.nodes
    label = nodes["type"] == int(NodeType.METADATA_NODE)
    if detail == "device":
        gone = label & ~nodes["name"].str.starts_with("ProfilerStep#")
    else:
        inside = (
            trace.column("parent")
            .cast(pl.UInt64)
            .is_in(nodes.filter(nodes["type"] == int(NodeType.COMP_NODE))["id"].implode())
        )
        gone = label & inside.fill_null(False) & trace.column("alloc_bytes").is_null()
    if not gone.any():
        return trace
    removed = nodes.filter(gone)["id"]
    kept = nodes.filter(~gone)
    if "parent" in kept.columns:
        lost = pl.col("parent").cast(pl.UInt64).is_in(removed.implode())
        kept = kept.with_columns(parent=pl.when(~lost).then("parent"))
    return trace.with_nodes(kept)


def _without_host_data(trace: Trace, host: Bool) -> pl.Series:
    edges = edge_list(trace, "data_deps")
    keep = (edges.dep >= 0) & ~(host[edges.node] & host[edges.dep])
    offsets = np.zeros(len(trace) + 1, np.int64)
    np.cumsum(np.bincount(edges.node[keep], minlength=len(trace)), out=offsets[1:])
    return list_series("data_deps", offsets, edges.dep_id[keep])


def _merged(trace: Trace, head: Int, host: Bool, detail: str) -> Trace:
    """Merge each chain into its head, and number the nodes anew."""
    count = len(trace)
    first = head == np.arange(count)
    place = np.cumsum(first) - 1
    group = place[head]
    duration = np.bincount(group, weights=None, minlength=int(first.sum())).astype(np.int64)
    members = duration.copy()
    duration[:] = 0
    np.add.at(duration, group, trace.integers("duration_ns", 0))
    idle = trace.column("gap_kind").is_not_null().to_numpy()
    busy = np.zeros(len(duration), np.bool_)
    np.logical_or.at(busy, group, host & ~idle)
    nodes = trace.nodes.filter(first).with_columns(
        pl.Series("id", np.arange(len(duration), dtype=np.uint64)), pl.Series("duration_ns", duration)
    )
    on_host = pl.Series(host[first])
    fused = pl.Series(busy & (members > 1)) & on_host
    kind = pl.when(pl.Series(busy) & on_host).then(pl.lit("host_work" if detail == "device" else None, pl.String))
    columns = [
        pl.when(fused).then(pl.lit("host")).otherwise(pl.col("name")).alias("name"),
        *([kind.otherwise(pl.col("gap_kind")).alias("gap_kind")] if "gap_kind" in nodes.columns else []),
    ]
    single = (
        "inputs",
        "outputs",
        "op_schema",
        "input_strides",
        "output_strides",
        "rf_id",
        "seq_id",
        "correlation",
        "segment",
        "parent",
    )
    columns += [pl.when(~fused).then(pl.col(name)).alias(name) for name in single if name in nodes.columns]
    nodes = nodes.with_columns(columns).with_columns(
        _dependencies(trace, group, column) for column in ("ctrl_deps", "data_deps", "sync_deps")
    )
    for name in ("parent", "fw_parent"):
        if name in nodes.columns:
            ids = trace.nodes["id"].cast(pl.Int64)
            nodes = nodes.with_columns(
                pl.col(name).replace_strict(ids, pl.Series(group), default=None, return_dtype=pl.Int64)
            )
    empty = [
        name
        for name in nodes.columns
        if name not in ("start_ns",) and nodes[name].null_count() == nodes.height and nodes.height
    ]
    return trace.with_nodes(nodes.drop(empty))


def _dependencies(trace: Trace, group: Int, column: str) -> pl.Series:
    """Translate one dependency column to the new numbers; edges inside a chain go."""
    edges = edge_list(trace, column)
    known = edges.dep >= 0
    node, dep = group[edges.node[known]], group[edges.dep[known]]
    count = int(group.max(initial=-1)) + 1
    keys = np.unique((node * count + dep)[node != dep])
    rows = keys // max(count, 1)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return list_series(column, offsets, (keys - rows * count).astype(np.uint64))
