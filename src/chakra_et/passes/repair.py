"""Make a valid trace of one that somebody else wrote.

Requires: nothing. Ensures: ids are unique, every edge leads to another node, the graph of all dependencies is
    acyclic, every node has a type, and a host call is not taken for the communication that it started. Every change
    is listed; nothing else is touched, not even the order inside a dependency list.

Which edge of a cycle goes: edges are taken in the order of certainty, and one that would close a cycle with those
taken before is refused. Most certain are tensor edges (`data_deps`), then synchronization that was read from the
profile, then control edges, then synchronization that was inferred; among equals, edges that agree with the recorded
times come first. So each refused edge stands on a cycle of edges that are at least as certain, and no refused edge
could be put back.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.cycles import accept_acyclic, components
from chakra_et.errors import TraceError
from chakra_et.ir import NodeType, Trace, build_graph
from chakra_et.ir.arrays import list_series
from chakra_et.ir.graph import DEPENDENCY_COLUMNS, edge_list, positions

__all__ = ["Change", "repair"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_COMM_TYPES = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE)
_LARGEST_ID = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that `repair` changed.

    Attributes:
        rule: Id of the rule that the trace broke, as in `chakra_et.validation`.
        node: Id of the node, as it is after the repair.
        what: Column that changed.
        before: What was.
        after: What is.
    """

    rule: str
    node: int
    what: str
    before: str
    after: str

    def as_dict(self) -> dict[str, object]:
        """Return the change as plain data."""
        return {"rule": self.rule, "node": self.node, "what": self.what, "before": self.before, "after": self.after}


def repair(trace: Trace) -> tuple[Trace, tuple[Change, ...]]:
    """Return a valid version of a trace, and every change that it took.

    Args:
        trace: The trace; times are left as they are, right or wrong.

    Raises:
        TraceError: Ids repeat, and there is no room for new ones above the highest.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder()
        >>> node = builder.add("a", NodeType.COMP_NODE, ctrl_deps=[7])
        >>> repair(builder.build())[1][0].rule
        'edge-dangling'
    """
    changes: list[Change] = []
    for step in (_repair_ids, _repair_types, _repair_host_communications, _repair_edges):
        trace, made = step(trace)
        changes.extend(made)
    return trace, tuple(changes)


def _repair_ids(trace: Trace) -> tuple[Trace, list[Change]]:
    """Renumber all but the first node of each id; edges to that id keep meaning the first."""
    ids = trace.nodes["id"].to_numpy().copy()
    first = positions(ids, ids)
    again = np.flatnonzero(first != np.arange(len(ids)))
    if len(again) == 0:
        return trace, []
    highest = int(ids.max())
    if highest + len(again) > _LARGEST_ID:
        raise TraceError(
            f"node {highest}: expected room for {len(again)} new ids above it, got the largest id there is"
        )
    old = ids[again]
    ids[again] = np.arange(highest + 1, highest + 1 + len(again), dtype=np.uint64)
    pairs = zip(old.tolist(), ids[again].tolist(), strict=True)
    changes = [Change("id-unique", new, "id", str(was), str(new)) for was, new in pairs]
    return trace.with_columns([pl.Series("id", ids)]), changes


def _repair_types(trace: Trace) -> tuple[Trace, list[Change]]:
    """Infer missing, INVALID and unknown types from what the node carries."""
    types = trace.nodes["type"]
    valid = types.is_between(int(NodeType.METADATA_NODE), int(NodeType.COMM_COLL_NODE)).fill_null(False)
    if valid.all():
        return trace, []
    table = trace.nodes.with_columns(
        trace.column(name) for name in ("comm_type", "comm_src", "comm_dst", "comm_size", "copy_kind")
    )
    named = pl.col("name").fill_null("").str.to_lowercase()
    own = trace.rank if trace.rank is not None else -1
    sends = pl.col("comm_dst").is_not_null() & (pl.col("comm_src").is_null() | (pl.col("comm_src") == own))
    receives = pl.col("comm_src").is_not_null()
    guess = (
        pl.when(pl.col("comm_type").is_not_null())
        .then(int(NodeType.COMM_COLL_NODE))
        .when(sends | (pl.col("comm_size").is_not_null() & named.str.contains("send")))
        .then(int(NodeType.COMM_SEND_NODE))
        .when(receives | (pl.col("comm_size").is_not_null() & named.str.contains("recv")))
        .then(int(NodeType.COMM_RECV_NODE))
        .when((pl.col("copy_kind") == "HtoD") | named.str.starts_with("memcpy htod"))
        .then(int(NodeType.MEM_LOAD_NODE))
        .when((pl.col("copy_kind") == "DtoH") | named.str.starts_with("memcpy dtoh"))
        .then(int(NodeType.MEM_STORE_NODE))
        .otherwise(int(NodeType.COMP_NODE))
    )
    inferred = table.select(pl.when(valid).then(pl.col("type")).otherwise(guess).cast(pl.UInt8).alias("type"))["type"]
    rows = np.flatnonzero(~valid.to_numpy())
    triples = zip(trace.nodes["id"].gather(rows), types.gather(rows), inferred.gather(rows), strict=True)
    changes = [Change("type-invalid", node, "type", _type_name(was), _type_name(now)) for node, was, now in triples]
    return trace.with_columns([inferred]), changes


def _type_name(number: int | None) -> str:
    if number is None:
        return "none"
    return NodeType(number).name if number <= NodeType.COMM_COLL_NODE else str(number)


def _repair_host_communications(trace: Trace) -> tuple[Trace, list[Change]]:
    """Settle communication nodes that are marked as host operators on ranks that have a device.

    Beside communications on the device, such a node is the call that started one of them, hence compute. Where there
    is none, it is the communication itself, and only its mark is wrong. A rank without a device communicates on its
    host: no change.
    """
    types = trace.nodes["type"]
    communicates = types.is_in([int(kind) for kind in _COMM_TYPES]).fill_null(False).to_numpy()
    host = trace.nodes["is_cpu_op"].fill_null(False).to_numpy()
    real = trace.column("gap_kind").is_null().to_numpy() & (types.to_numpy() != NodeType.METADATA_NODE)
    wrong = np.flatnonzero(communicates & host)
    if len(wrong) == 0 or not (real & ~host).any():
        return trace, []
    ids = trace.nodes["id"].gather(wrong)
    if (communicates & ~host).any():
        old = types.gather(wrong).to_list()
        comp = int(NodeType.COMP_NODE)
        changed = _set(types, wrong, comp)
        pairs = zip(ids, old, strict=True)
        changes = [Change("comm-cpu", node, "type", _type_name(was), _type_name(comp)) for node, was in pairs]
        return trace.with_columns([changed]), changes
    changed = _set(trace.nodes["is_cpu_op"], wrong, False)
    return trace.with_columns([changed]), [Change("comm-cpu", node, "is_cpu_op", "true", "false") for node in ids]


def _set(column: pl.Series, rows: npt.NDArray[np.intp], value: int | bool) -> pl.Series:
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    return column.set(pl.Series(mask), value)


def _repair_edges(trace: Trace) -> tuple[Trace, list[Change]]:
    """Remove dangling and self edges, then the least certain edges of cycles."""
    ids = trace.nodes["id"].to_numpy()
    refused = _refused_edges(trace)
    changes: list[Change] = []
    columns = []
    for column in DEPENDENCY_COLUMNS:
        edges = edge_list(trace, column)
        dangling = edges.dep < 0
        loops = edges.dep == edges.node
        cyclic = ~dangling & np.isin(edges.node * max(len(ids), 1) + edges.dep, refused)
        lost = dangling | loops | cyclic
        if not lost.any():
            continue
        for rule, mask in (("edge-dangling", dangling), ("edge-self", loops), ("edge-cycle", cyclic)):
            pairs = zip(ids[edges.node[mask]].tolist(), edges.dep_id[mask].tolist(), strict=True)
            changes += [Change(rule, node, column, str(dep), "removed") for node, dep in pairs]
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(np.bincount(edges.node[~lost], minlength=len(ids)), out=offsets[1:])
        columns.append(list_series(column, offsets, edges.dep_id[~lost]))
    return (trace.with_columns(columns) if columns else trace), changes


def _refused_edges(trace: Trace) -> Int:
    """Return the edges that must go for the graph to be acyclic, as sorted keys ``node * N + dep``."""
    graph = build_graph(trace)
    component = components(graph.indptr, graph.preds)
    count = len(trace)
    node = np.repeat(np.arange(count, dtype=np.int64), np.diff(graph.indptr))
    inside = component[node] == component[graph.preds]
    if not inside.any():
        return np.empty(0, np.int64)
    node, dep = node[inside], graph.preds[inside]
    members = np.unique(np.concatenate((node, dep)))
    start = trace.integers("start_ns", 0)
    place = np.empty(len(members), np.int64)
    place[np.lexsort((members, start[members]))] = np.arange(len(members))
    keys = node * count + dep
    late = start[dep] + trace.integers("duration_ns", 0)[dep] > start[node]
    order = np.lexsort((keys, late, _doubt(trace, keys)))
    taken = accept_acyclic(place, np.searchsorted(members, dep[order]), np.searchsorted(members, node[order]))
    return np.sort(keys[order][taken == 0])


def _doubt(trace: Trace, keys: Int) -> Int:
    """Return how doubtful each edge is, int64 [E], by the most certain list that has it; 0 is certain."""
    inferred = trace.column("inferred").fill_null(False).to_numpy()
    doubt = np.full(len(keys), 9, np.int64)
    for column in DEPENDENCY_COLUMNS:
        edges = edge_list(trace, column)
        level = np.full(len(edges.node), {"data_deps": 0, "sync_deps": 1, "ctrl_deps": 2}[column], np.int64)
        if column == "sync_deps":
            level[inferred[edges.node]] = 3
        own = edges.node * len(trace) + edges.dep
        known = (edges.dep >= 0) & np.isin(own, keys)
        slot = np.searchsorted(keys, own[known])
        np.minimum.at(doubt, slot, level[known])
    return doubt
