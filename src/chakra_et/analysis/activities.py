"""The activities of a rank as one table: what ran when, of what kind, launched by whom.

On a rank with a device these are its kernels, copies and sets; on one without, the host's own work and communications.

Shape letters: N nodes, A activities.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import TraceError
from chakra_et.ir import NodeType, Trace
from chakra_et.ir.cut import timing_of
from chakra_et.specs import KernelClasses
from chakra_et.specs.kernels import OTHER

__all__ = ["CATEGORIES", "find_activities", "has_device", "launches_of", "real_nodes", "recorded_starts"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

CATEGORIES: tuple[str, ...] = ("compute", "communication", "memory")
CATEGORY = pl.Enum(CATEGORIES)
_COMPUTE, _COMMUNICATION, _MEMORY = CATEGORIES


def real_nodes(trace: Trace) -> Bool:
    """Return which nodes take time of their own: neither gaps nor METADATA nor INVALID ones, bool [N]."""
    kinds = trace.nodes["type"].fill_null(0).to_numpy()
    real: Bool = kinds > NodeType.METADATA_NODE
    if "gap_kind" in trace.nodes.columns:
        real &= trace.nodes["gap_kind"].is_null().to_numpy()
    return real


def on_device(trace: Trace) -> Bool:
    """Return which nodes are the device's, bool [N]."""
    return ~trace.nodes["is_cpu_op"].fill_null(False).to_numpy()


def has_device(trace: Trace) -> bool:
    """True if any node runs on a device."""
    return bool((real_nodes(trace) & on_device(trace)).any())


def recorded_starts(trace: Trace) -> tuple[Int, tuple[str, ...]]:
    """Return when nodes start, ns [N]: as recorded, else as rebuilt from the edges; and what is to be said of that."""
    start = trace.nodes["start_ns"]
    taken = real_nodes(trace)
    missing = start.is_null().to_numpy() & taken
    if not missing.any():
        return start.fill_null(0).to_numpy(), ()
    share = f"{int(missing.sum()):,} of {int(taken.sum()):,} nodes have no recorded start"
    try:
        timing = timing_of(trace)
    except TraceError:
        return start.fill_null(0).to_numpy(), (f"{share} and the graph has a cycle: they are taken to start at 0",)
    return timing.start + timing.origin, (f"{share}: theirs is rebuilt from edges and durations",)


def find_activities(trace: Trace, start: Int, classes: KernelClasses) -> pl.DataFrame:
    """Return the activities of a rank, [A], by start.

    Args:
        trace: The trace.
        start: int64 [N]: when nodes start, ns.
        classes: What kernels are called.

    Returns:
        Columns ``row`` (position of the node), ``name``, ``start_ns``, ``end_ns``, ``device``, ``stream`` (thread, on
        a rank without a device), ``category`` (one of `CATEGORIES`), ``kind`` (class of the kernel), ``bytes`` (of a
        copy or a communication).
    """
    device, real = on_device(trace), real_nodes(trace)
    chosen = real & device
    hosted = not chosen.any()
    if hosted:
        chosen = real
    rows = np.flatnonzero(chosen)
    end = start[rows] + np.maximum(trace.integers("duration_ns", 0)[rows], 0)
    order = np.lexsort((end, start[rows]))
    rows, end = rows[order], end[order]
    nodes = trace.nodes[rows]
    table = pl.DataFrame(
        {
            "row": rows,
            "name": nodes["name"].fill_null(""),
            "start_ns": start[rows],
            "end_ns": end,
            "device": _column(trace, nodes, "device").fill_null(0),
            "stream": _column(trace, nodes, "tid" if hosted else "stream").fill_null(0),
        }
    )
    kind = classes.classify_names(table["name"]).cast(pl.String)
    if hosted:
        # Operators of the host that start a communication are no communications themselves: their nodes tell.
        kind = kind.replace(_COMMUNICATION, OTHER)
    types = nodes["type"]
    communicates = (types >= int(NodeType.COMM_SEND_NODE)) | (kind == _COMMUNICATION)
    copy = _column(trace, nodes, "copy_kind")
    moves = (types < int(NodeType.COMP_NODE)) | copy.is_not_null()
    bytes_moved = pl.coalesce("size", "touched")
    return table.with_columns(
        kind=kind,
        size=_column(trace, nodes, "comm_size").cast(pl.Int64),
        touched=_column(trace, nodes, "tensor_size").cast(pl.Int64),
        communicates=communicates,
        moves=moves,
        sets=(copy == "memset").fill_null(False),
    ).select(
        *table.columns,
        pl.when("moves").then(pl.lit(_MEMORY)).when("communicates").then(pl.lit(_COMMUNICATION))
        .otherwise(pl.lit(_COMPUTE)).cast(CATEGORY).alias("category"),
        pl.when("sets").then(pl.lit("memset")).when("moves").then(pl.lit("copy"))
        .when("communicates").then(pl.lit(_COMMUNICATION)).otherwise("kind").alias("kind"),
        pl.when("communicates").then(bytes_moved).otherwise("touched").alias("bytes"),
    )  # fmt: skip


def _column(trace: Trace, nodes: pl.DataFrame, name: str) -> pl.Series:
    if name in nodes.columns:
        return nodes[name]
    return trace.column(name).clear(nodes.height)


def launches_of(trace: Trace, activities: pl.DataFrame, start: Int, parent: Int) -> pl.DataFrame:
    """Return the runtime call that launched each activity, [A].

    Args:
        trace: The trace.
        activities: Its activities.
        start: int64 [N]: when nodes start, ns.
        parent: int64 [N]: position of each node's parent.

    Returns:
        Columns ``call_row`` (position of its first node), ``call_start_ns``, ``call_end_ns``, ``call_tid``; null where
        it isn't known.
    """
    empty = pl.DataFrame(
        {name: pl.Series([None] * activities.height, dtype=pl.Int64)
         for name in ("call_row", "call_start_ns", "call_end_ns", "call_tid")}
    )  # fmt: skip
    if "correlation" not in trace.nodes.columns:
        return empty
    known = trace.nodes["correlation"].is_not_null().to_numpy() & trace.nodes["is_cpu_op"].fill_null(False).to_numpy()
    rows = np.flatnonzero(known & real_nodes(trace))
    if not len(rows):
        return empty
    end = start + np.maximum(trace.integers("duration_ns", 0), 0)
    _follow_segments(trace, parent, end)
    calls = pl.DataFrame(
        {
            "correlation": trace.nodes["correlation"].gather(rows),
            "call_row": rows,
            "call_start_ns": start[rows],
            "call_end_ns": end[rows],
            "call_tid": trace.integers("tid")[rows],
        }
    )
    calls = calls.group_by("correlation").agg(
        pl.col("call_row", "call_tid").first(), pl.col("call_start_ns").min(), pl.col("call_end_ns").max()
    )
    wanted = trace.nodes["correlation"].gather(activities["row"]).to_frame()
    return wanted.join(calls, on="correlation", how="left", maintain_order="left").select(empty.columns)


def _follow_segments(trace: Trace, parent: Int, end: Int) -> None:
    """Stretch the end of each operator that was cut over its later segments."""
    if "segment" not in trace.nodes.columns:
        return
    later = np.flatnonzero(trace.integers("segment", 0) > 0)
    later = later[parent[later] >= 0]
    np.maximum.at(end, parent[later], end[later])
