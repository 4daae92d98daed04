"""A trace as slices on tracks, and arrows between them: what a timeline shows.

Shape letters: N nodes, S slices, A arrows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.bridge import bridge
from chakra_et._jit.paths import lanes, widen
from chakra_et._jit.schedule import schedule
from chakra_et.ir import NodeType, Trace, build_graph
from chakra_et.ir.graph import positions

__all__ = ["Timeline", "timeline"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_STAND_INS = 64
_COMMUNICATIONS = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE)
ARROWS = ("launch", "wait", "event", "thread")


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One rank's timeline.

    Attributes:
        slices: [S] rows: ``node`` (position), ``start`` and ``end`` (ns, the trace's clock), ``track`` (row of
            `tracks`), sorted by track and start; slices of a track are apart or one inside the other.
        tracks: ``device_side`` (False: host), ``device``, ``number`` (thread or stream, null if unknown), ``gaps``
            (the track holds gap nodes), ``lane`` (0, or more where slices of one thread or stream overlap).
        arrows: [A] rows: ``kind`` (`launch`, `wait`, `event`, `thread`), ``source``, ``target`` (rows of `slices`),
            ``begin`` and ``end`` (ns), each inside its slice.
    """

    slices: pl.DataFrame
    tracks: pl.DataFrame
    arrows: pl.DataFrame


def timeline(trace: Trace) -> Timeline:
    """Lay a trace out.

    Segments of one operator are put together again, and operators stretched over their children, so that they nest as
    in the profile. Nodes without a recorded start stand where the rebuilt schedule puts them; annotations without a
    range and nodes on a cycle without a start are left out.
    """
    graph = build_graph(trace)
    duration = np.maximum(trace.integers("duration_ns", 0), 0)
    rebuilt, _, order = schedule(graph.indptr, graph.preds, duration)
    known = trace.nodes["start_ns"].is_not_null().to_numpy()
    start = np.where(known, trace.integers("start_ns", 0), rebuilt)
    metadata = trace.nodes["type"].fill_null(0).to_numpy() == NodeType.METADATA_NODE
    gap = trace.column("gap_kind").is_not_null().to_numpy()
    host = trace.nodes["is_cpu_op"].fill_null(False).to_numpy() | metadata
    ranged = metadata & known & trace.column("span_ns").is_not_null().to_numpy()
    shown = np.where(metadata, ranged, known | (rebuilt >= 0))
    end = start + np.where(metadata, np.maximum(trace.integers("span_ns", 0), 0), duration)
    owner, end = _operators(trace, start, end, host & shown & ~gap)
    slices, tracks = _place(
        trace, np.flatnonzero(shown & (owner == np.arange(len(trace)))), start, end, host, gap, metadata
    )
    keep = shown & ~gap & ~metadata
    line = tracks.select(pl.struct(pl.all().exclude("lane")).rle_id().cast(pl.Int64)).to_series().to_numpy()
    places = slices.with_columns(pl.Series("line", line[slices["track"].to_numpy()]))
    arrows = _arrows(trace, order, places, _Layout(owner, start, start + duration, host, keep, gap))
    return Timeline(slices, tracks, arrows)


def _operators(trace: Trace, start: Int, end: Int, host: Bool) -> tuple[Int, Int]:
    """Return the first segment of each node's operator, int64 [N], and ends that reach over segments and children."""
    ids = trace.nodes["id"].to_numpy()
    value = trace.integers("parent")
    parent = np.where(value >= 0, positions(ids, np.maximum(value, 0).astype(np.uint64)), -1)
    tid = trace.integers("tid")
    operator = host & (trace.nodes["type"].to_numpy() != NodeType.METADATA_NODE)
    # A communication may outlive the call that started it, even on the same thread.
    child = operator & ~trace.nodes["type"].is_in([int(kind) for kind in _COMMUNICATIONS]).fill_null(False).to_numpy()
    inside = child & (parent >= 0) & operator[parent] & (tid == tid[parent]) & (start >= start[parent])
    later = (trace.integers("segment", 0) > 0) & inside
    owner = np.where(later, parent, np.arange(len(ids)))
    order = np.lexsort((-np.arange(len(ids)), -start))
    return owner, widen(np.where(inside, parent, -1), order, end)


def _place(
    trace: Trace, nodes: npt.NDArray[np.intp], start: Int, end: Int, host: Bool, gap: Bool, metadata: Bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    number = np.where(host, trace.integers("tid"), trace.integers("stream"))
    unknown = np.where(host, trace.column("tid").is_null().to_numpy(), trace.column("stream").is_null().to_numpy())
    keys = ["device_side", "device", "number", "gaps"]
    table = pl.DataFrame(
        {
            "node": nodes,
            "start": start[nodes],
            "end": end[nodes],
            "device_side": ~host[nodes],
            "device": np.where(host, 0, trace.integers("device", 0))[nodes],
            "number": pl.Series(number[nodes]).set(pl.Series(unknown[nodes]), None),
            "gaps": gap[nodes],
            "late": ~metadata[nodes],
        }
    )
    table = table.sort(*keys, "start", pl.col("end") * -1, "late", "node")
    track = table.select(pl.struct(keys).rle_id().cast(pl.Int64)).to_series().to_numpy()
    lane = lanes(track, table["start"].to_numpy(), table["end"].to_numpy())
    table = table.with_columns(pl.Series("lane", lane))
    tracks = table.select(*keys, "lane").unique().sort(*keys, "lane").with_row_index("track")
    slices = table.join(tracks, on=[*keys, "lane"], nulls_equal=True).select("node", "start", "end", "track", "late")
    slices = slices.sort("track", "start", pl.col("end") * -1, "late", "node").drop("late")
    return slices, tracks.drop("track")


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Per node, [N]: its operator's first segment, times (ns), whether it is on the host, carries arrows, is a gap."""

    owner: Int
    start: Int
    end: Int
    host: Bool
    keep: Bool
    gap: Bool


def _arrows(trace: Trace, order: Int, slices: pl.DataFrame, layout: _Layout) -> pl.DataFrame:
    """Return edges that lead from one thread or stream (`line`) to another; gaps in between are left out."""
    graph = build_graph(trace, ("ctrl_deps", "sync_deps") if trace.metadata.typed_edges else ("ctrl_deps", "data_deps"))
    offsets, stand_ins, _ = bridge(graph.indptr, graph.preds, order, ~layout.gap, _STAND_INS)
    target = np.repeat(np.arange(len(trace), dtype=np.int64), np.diff(graph.indptr))
    source = graph.preds
    through = layout.gap[source]
    sizes = np.diff(offsets)[source[through]]
    first = np.repeat(offsets[source[through]] - (np.cumsum(sizes) - sizes), sizes)
    source = np.concatenate((source[~through], stand_ins[first + np.arange(sizes.sum())]))
    target = np.concatenate((target[~through], np.repeat(target[through], sizes)))
    row = np.full(len(trace), -1, np.int64)
    row[slices["node"].to_numpy()] = np.arange(slices.height)
    kept = (
        layout.keep[source] & layout.keep[target] & (row[layout.owner[source]] >= 0) & (row[layout.owner[target]] >= 0)
    )
    source, target = source[kept], target[kept]
    kind = np.select(
        [layout.host[source] & ~layout.host[target], ~layout.host[source] & layout.host[target], ~layout.host[source]],
        [0, 1, 2],
        3,
    )
    begin = np.where(kind == 0, layout.start[source], np.maximum(layout.start[source], layout.end[source] - 1))
    line = slices["line"].to_numpy()
    source_row, target_row = row[layout.owner[source]], row[layout.owner[target]]
    table = pl.DataFrame(
        {
            "kind": pl.Series(np.array(ARROWS, dtype=object)[kind].tolist(), dtype=pl.String),
            "source": source_row,
            "target": target_row,
            "begin": begin,
            "end": layout.start[target],
        }
    )
    across = line[source_row] != line[target_row]
    return table.filter(pl.Series(across) & (pl.col("begin") <= pl.col("end"))).unique(maintain_order=True)
