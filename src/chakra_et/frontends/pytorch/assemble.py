"""From the graph of one rank to its node table.

Shape letters: E host events, A activities, I items, G gap nodes, M annotations, R memory events,
N = I + A + G + M + R nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.cycles import components
from chakra_et._jit.schedule import schedule
from chakra_et.frontends.pytorch.activities import HOST_COMMUNICATION, Activities
from chakra_et.frontends.pytorch.comm_notes import WAIT, WAIT_NOTE
from chakra_et.frontends.pytorch.communication import CommColumns
from chakra_et.frontends.pytorch.edges import DATA, SYNC, dependency_columns
from chakra_et.frontends.pytorch.extras import extra_attributes
from chakra_et.frontends.pytorch.graph import RankGraph
from chakra_et.frontends.pytorch.memory_events import memory_nodes
from chakra_et.frontends.pytorch.names import copy_kind
from chakra_et.frontends.pytorch.parse_kineto import OPERATOR
from chakra_et.frontends.pytorch.tensors import filled, io_struct
from chakra_et.frontends.pytorch.timeline import HostTimeline
from chakra_et.ir.columns import COLUMNS, SCHEMA
from chakra_et.ir.enums import NodeType

__all__ = ["assemble"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def assemble(
    timeline: HostTimeline,
    activities: Activities,
    graph: RankGraph,
    communications: Mapping[int, CommColumns],
    host_nodes: pl.DataFrame | None,
    joined: Int,
    memory: pl.DataFrame,
    numbers: Int,
) -> tuple[pl.DataFrame, int]:
    """Build the node table, ids in time order.

    Args:
        timeline: Host events.
        activities: What runs beside the host.
        graph: Nodes and edges.
        communications: Columns of the activities that communicate.
        host_nodes: `HostTrace.nodes`, or None.
        joined: int64 [E], row of `host_nodes` of each host event, -1 none.
        memory: `KinetoProfile.memory`.
        numbers: int64 [E], number of the communication that each host event calls or waits for, -1 none.

    Returns:
        The node table, and how many of its edges were inferred.
    """
    items, gaps = graph.items, graph.gaps
    sizes = (len(items.owner), len(activities), len(gaps.activity), len(items.annotations), memory.height)
    count = sum(sizes)
    instants = (timeline.start[items.annotations], memory["start_ns"].to_numpy())
    start = np.concatenate([items.start, activities.start, gaps.start, *instants])
    end = np.concatenate([items.end, graph.activity_end, gaps.end, *instants])
    before, after, kind, inferred = _acyclic(*graph.edges.numbered(sizes), end - start)
    order = _time_order(before, after, start, end)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    event_node = items.event_item.copy()
    event_node[items.annotations] = sum(sizes[:3]) + np.arange(sizes[3])
    event_id = np.where(event_node >= 0, place[event_node], -1)
    parts = [
        _item_columns(timeline, graph, event_id, host_nodes, joined, numbers),
        _activity_columns(timeline, activities, communications, event_id),
        _gap_columns(activities, graph),
        _annotation_columns(timeline, graph, event_id, numbers),
        memory_nodes(memory, timeline, event_id),
    ]
    columns = _merged([part.to_dict() for part in parts], sizes, order)
    del parts
    nodes = pl.DataFrame(
        [
            pl.int_range(count, dtype=pl.UInt64, eager=True).alias("id"),
            pl.Series("start_ns", start[order]),
            pl.Series("duration_ns", (end - start)[order]),
            *_marked(after[inferred], order),
            *columns,
            *dependency_columns(place[before], place[after], kind, count=count),
        ]
    )
    nodes = _fw_parents(nodes, host_nodes, joined, event_id)
    present = [column.name for column in COLUMNS if column.name in nodes.columns]
    return nodes.select(present), int(inferred.sum())


def _marked(nodes: Int, order: Int) -> list[pl.Series]:
    """Return the column that marks nodes with inferred edges, in order; none, if there are none."""
    marked = np.zeros(len(order), np.bool_)
    marked[nodes] = True
    return [pl.Series("inferred", marked[order]).replace(False, None)] if marked.any() else []


def _merged(parts: list[dict[str, pl.Series]], sizes: tuple[int, ...], order: Int) -> list[pl.Series]:
    """Put the columns of the parts one after the other and in order; each is freed once it is done."""
    columns = []
    index = pl.Series(order)
    for name in dict.fromkeys(name for part in parts for name in part):
        found = [part.pop(name, None) for part in parts]
        if all(piece is None or piece.null_count() == len(piece) for piece in found):
            continue
        pieces = [
            pl.Series(name, [None], SCHEMA[name]).new_from_index(0, size) if piece is None else piece
            for piece, size in zip(found, sizes, strict=True)
        ]
        del found
        whole = pl.concat([piece.cast(SCHEMA[name]).alias(name) for piece in pieces])
        del pieces
        columns.append(whole.gather(index))
    return columns


def _lists(before: Int, after: Int, count: int) -> tuple[Int, Int]:
    """Return edges as predecessor lists: int64 [N + 1] and int64 [E]."""
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(after, minlength=count), out=indptr[1:])
    return indptr, before[np.argsort(after, kind="stable")]


def _topological(before: Int, after: Int, duration: Int) -> Int:
    """Return the nodes in dependency order; those on or behind a cycle are left out."""
    topological: Int = schedule(*_lists(before, after, len(duration)), duration)[2]
    return topological


def _acyclic(
    before: Int, after: Int, kind: npt.NDArray[np.int8], inferred: Bool, duration: Int
) -> tuple[Int, Int, npt.NDArray[np.int8], Bool]:
    """Take edges out of cycles: data edges first, then inferred ones, then waits.

    Every edge points forward in time, so only nodes without length, at one instant of a coarse clock, can form a cycle;
    what remains, order on threads and launches, can't.
    """
    for doubtful in ("data", "inferred", "waits"):
        if len(_topological(before, after, duration)) == len(duration):
            break
        component = components(*_lists(before, after, len(duration)))
        chosen = {"data": kind == DATA, "inferred": inferred, "waits": kind == SYNC}[doubtful]
        keep = (component[before] != component[after]) | ~chosen
        before, after, kind, inferred = before[keep], after[keep], kind[keep], inferred[keep]
    return before, after, kind, inferred


def _time_order(before: Int, after: Int, start: Int, end: Int) -> Int:
    """Return the nodes by recorded start, and where those are equal in dependency order."""
    count = len(start)
    topological = _topological(before, after, end - start)
    rank = np.full(count, count, np.int64)
    rank[topological] = np.arange(len(topological))
    return np.lexsort((rank, start))


def _take(series: pl.Series, index: Int) -> pl.Series:
    """Gather with -1 as null."""
    taken: pl.Series = series.gather(pl.Series(index).replace(-1, None))
    return taken


def _known(values: Int, missing: int = -1) -> pl.Series:
    known: pl.Series = pl.Series(values).replace(missing, None)
    return known


def _item_columns(
    timeline: HostTimeline,
    graph: RankGraph,
    event_id: Int,
    host_nodes: pl.DataFrame | None,
    joined: Int,
    numbers: Int,
) -> pl.DataFrame:
    items = graph.items
    owner, count = items.owner, len(items.owner)
    owned = owner >= 0
    turn = _turns(owner)
    first = owned & (turn == 0)
    parent = np.where(first, np.where(timeline.parent[owner] >= 0, event_id[timeline.parent[owner]], -1), -1)
    parent = np.where(owned & ~first, event_id[owner], parent) if len(timeline.parent) else np.full(count, -1)
    frame = timeline.frame
    event = np.where(first, owner, -1)
    columns = {
        "name": _take(frame["name"], owner).fill_null("host_idle"),
        "type": pl.Series(np.full(count, int(NodeType.COMP_NODE)), dtype=pl.UInt8),
        "is_cpu_op": pl.Series(np.ones(count, np.bool_)),
        "gap_kind": pl.select(pl.when(pl.Series(~owned)).then(pl.lit("host_idle"))).to_series(),
        "parent": _known(parent),
        "segment": _known(np.where(turn > 0, turn, -1)),
        "tid": pl.Series(timeline.tids[items.thread] if count else items.thread),
        "correlation": _take(_known(frame["correlation"].to_numpy()), event),
        "rf_id": _take(_known(frame["rf_id"].to_numpy(), 0), event),
        "seq_id": _take(_known(frame["seq_id"].to_numpy()), event),
        "fw_tid": _take(_known(frame["fw_tid"].to_numpy(), 0), event),
        "comm_id": _take(_known(numbers), event),
    }
    if "module" in frame.columns:
        columns["module"] = _take(frame["module"], event)
    columns |= _arguments(frame, event, host_nodes, joined)
    return pl.DataFrame(columns)


def _turns(owner: Int) -> Int:
    """Return for each item how many earlier ones its owner has (idle items: 0)."""
    order = np.argsort(owner, kind="stable")
    ordered = owner[order]
    fresh = np.ones(len(owner), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    begin = np.maximum.accumulate(np.where(fresh, np.arange(len(owner)), 0))
    turn = np.empty(len(owner), np.int64)
    turn[order] = np.arange(len(owner)) - begin
    return np.where(owner >= 0, turn, 0)


def _arguments(frame: pl.DataFrame, event: Int, host_nodes: pl.DataFrame | None, joined: Int) -> dict[str, pl.Series]:
    """Return operator arguments: from the execution trace where the operator is joined, else from the profile."""
    is_op = (
        np.where(event >= 0, frame["kind"].to_numpy()[event] == OPERATOR, False)
        if len(event)
        else np.empty(0, np.bool_)
    )
    event = np.where(is_op, event, -1)
    own = {part: _take(frame[part], event) for part in ("values", "dims", "types", "strides")}
    if host_nodes is None:
        return {
            "inputs": io_struct(own["values"], own["dims"], own["types"]),
            "input_strides": filled(own["strides"]),
        }
    node = np.where(event >= 0, joined[event], -1)
    other = {
        name: _take(host_nodes[name], node) for name in host_nodes.columns if name.startswith(("input_", "output_"))
    }
    extras = extra_attributes(host_nodes)
    return {
        **({} if extras is None else {"attr": _take(extras, node)}),
        "op_schema": filled(_take(host_nodes["op_schema"], node), 0),
        "inputs": io_struct(
            _either(other["input_values"], own["values"]),
            _either(other["input_shapes"], own["dims"]),
            _either(other["input_types"], own["types"]),
        ),
        "outputs": io_struct(other["output_values"], other["output_shapes"], other["output_types"]),
        "input_strides": filled(_either(other["input_strides"], own["strides"])),
        "output_strides": filled(other["output_strides"]),
    }


def _either(first: pl.Series, second: pl.Series) -> pl.Series:
    return pl.select(pl.coalesce(first, second)).to_series()


def _activity_columns(
    timeline: HostTimeline, activities: Activities, communications: Mapping[int, CommColumns], event_id: Int
) -> pl.DataFrame:
    frame, count = activities.frame, len(activities)
    host = activities.kind == HOST_COMMUNICATION
    enclosing = timeline.operator_of(activities.launcher) if len(timeline.parent) else activities.launcher
    enclosing = np.where(host, activities.launcher, enclosing)
    copies = [
        copy_kind(name, kind or "") if what == 1 else "memset" if what == 2 else None
        for name, kind, what in zip(frame["name"], frame["copy"], activities.kind.tolist(), strict=True)
    ]
    store = {"DtoH": NodeType.MEM_STORE_NODE, "HtoD": NodeType.MEM_LOAD_NODE}
    types = [
        int(communications[row].type) if row in communications else int(store.get(copy or "", NodeType.COMP_NODE))
        for row, copy in enumerate(copies)
    ]
    size = frame["bytes"].to_numpy()
    if len(event_id):
        # AMD's profiler tells a copy's bytes at its call.
        size = np.where(
            (size < 0) & (activities.launcher >= 0), timeline.frame["bytes"].to_numpy()[activities.launcher], size
        )
    size = np.where(np.isin(activities.kind, (1, 2)), size, -1)
    names = ("comm_type", "comm_size", "comm_dtype", "pg_name", "comm_src", "comm_dst", "comm_tag", "comm_root",
             "reduce_op", "comm_async", "comm_id", "in_split_sizes", "out_split_sizes", "unknown_comm")  # fmt: skip
    comm = {
        name: pl.Series(
            [getattr(communications[row], name) if row in communications else None for row in range(count)],
            dtype=SCHEMA[name],
        )
        for name in names
    }
    several = frame.filter(pl.col("device") >= 0)["device"].n_unique() > 1
    return pl.DataFrame(
        {
            "name": frame["name"],
            "type": pl.Series(types, dtype=pl.UInt8),
            "is_cpu_op": pl.Series(host),
            "parent": _known(np.where(enclosing >= 0, event_id[enclosing], -1) if len(event_id) else enclosing),
            "tid": _known(frame["worker"].to_numpy()),
            "device": _known(frame["device"].to_numpy()) if several else pl.Series([None] * count, dtype=pl.Int64),
            "stream": _known(np.where(host, -1, frame["stream"].to_numpy())),
            "correlation": _known(frame["correlation"].to_numpy()),
            "tensor_size": pl.Series(size).replace(-1, None).cast(pl.UInt64),
            "copy_kind": pl.Series([copy or None for copy in copies], dtype=pl.String),
            **comm,
        }
    )


def _gap_columns(activities: Activities, graph: RankGraph) -> pl.DataFrame:
    gaps = graph.gaps
    kind = np.where(gaps.unexplained, "unexplained", "launch_latency")
    host = activities.kind[gaps.activity] == HOST_COMMUNICATION
    stream = np.where(host, -1, activities.frame["stream"].to_numpy()[gaps.activity])
    worker = activities.frame["worker"].to_numpy()[gaps.activity]
    return pl.DataFrame(
        {
            "name": pl.Series(kind, dtype=pl.String),
            "type": pl.Series(np.full(len(kind), int(NodeType.COMP_NODE)), dtype=pl.UInt8),
            "is_cpu_op": pl.Series(host),
            "gap_kind": pl.Series(kind, dtype=pl.String),
            "tid": _known(np.where(host, worker, -1)),
            "stream": _known(stream),
        }
    )


def _annotation_columns(timeline: HostTimeline, graph: RankGraph, event_id: Int, numbers: Int) -> pl.DataFrame:
    events = graph.items.annotations
    parent = timeline.parent[events]
    return pl.DataFrame(
        {
            "name": timeline.frame["name"].gather(events).replace(WAIT_NOTE, WAIT),
            "comm_id": _known(numbers[events]),
            "type": pl.Series(np.full(len(events), int(NodeType.METADATA_NODE)), dtype=pl.UInt8),
            "is_cpu_op": pl.Series(np.ones(len(events), np.bool_)),
            "parent": _known(np.where(parent >= 0, event_id[parent], -1)),
            "tid": pl.Series(timeline.tids[timeline.thread[events]] if len(events) else events),
            "rf_id": _known(timeline.frame["rf_id"].to_numpy()[events], 0),
            "span_ns": pl.Series(timeline.end[events] - timeline.start[events]),
        }
    )


def _fw_parents(nodes: pl.DataFrame, host_nodes: pl.DataFrame | None, joined: Int, event_id: Int) -> pl.DataFrame:
    """Translate the execution trace's ``fw_parent`` (its own node ids) to ids of this table."""
    if host_nodes is None or not (host_nodes["fw_parent"] != 0).any():
        return nodes
    events = np.flatnonzero(joined >= 0)
    rows = joined[events]
    translate = pl.DataFrame({"fw_parent": host_nodes["id"].to_numpy()[rows], "target": event_id[events]}).unique(
        "fw_parent"
    )
    pairs = pl.DataFrame(
        {"id": event_id[events].astype(np.uint64), "fw_parent": host_nodes["fw_parent"].to_numpy()[rows]}
    )
    found = pairs.join(translate, on="fw_parent").filter(pl.col("target") >= 0).unique("id")
    return nodes.join(found.select("id", fw_parent=pl.col("target")), on="id", how="left", maintain_order="left")
