"""Allocations and frees as nodes outside the graph.

A profile taken with ``profile_memory`` has an instant event for each block that an allocator gives or takes back. It
says how much, on which device, and what the allocator holds afterwards, but not who asked: that is the innermost
operator which was running on the event's thread.

Shape letters: M memory events, E host events, T threads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.frontends.pytorch.parse_kineto import RUNTIME
from chakra_et.frontends.pytorch.timeline import HostTimeline
from chakra_et.ir.enums import NodeType

__all__ = ["enclosing_events", "memory_nodes"]

Int = npt.NDArray[np.int64]


def enclosing_events(pid: Int, tid: Int, time: Int, timeline: HostTimeline) -> Int:
    """Return the innermost operator or annotation around each instant, int64 [M], -1 outside of all.

    Args:
        pid: int64 [M].
        tid: int64 [M].
        time: int64 [M], ns.
        timeline: Host events. An instant at an event's end still counts as inside.
    """
    found = np.full(len(time), -1, np.int64)
    for thread, place in enumerate(zip(timeline.pids.tolist(), timeline.tids.tolist(), strict=True)):
        mine = np.flatnonzero((pid == place[0]) & (tid == place[1]))
        if len(mine):
            low, high = timeline.bounds[thread], timeline.bounds[thread + 1]
            last = low + np.searchsorted(timeline.start[low:high], time[mine], side="right") - 1
            found[mine] = np.where(last >= low, last, -1)
    # What encloses an instant is the last event that began before it, or one around that.
    while True:
        up = (found >= 0) & ((timeline.end[found] < time) | (timeline.kind[found] == RUNTIME))
        if not up.any():
            return found
        found[up] = timeline.parent[found[up]]


def memory_nodes(memory: pl.DataFrame, timeline: HostTimeline, event_id: Int) -> pl.DataFrame:
    """Return the columns of the nodes of memory events.

    Args:
        memory: `KinetoProfile.memory`.
        timeline: Host events.
        event_id: int64 [E], node id of each host event, -1 if it has none.

    Returns:
        M rows: METADATA nodes without edges and without length.
    """
    pid, tid, time = (memory[name].to_numpy() for name in ("pid", "tid", "start_ns"))
    event = enclosing_events(pid, tid, time, timeline) if len(timeline.start) else np.full(len(time), -1, np.int64)
    parent = np.where(event >= 0, event_id[event], -1) if len(event_id) else event
    return memory.select(
        "name",
        pl.lit(int(NodeType.METADATA_NODE), pl.UInt8).alias("type"),
        pl.lit(True).alias("is_cpu_op"),
        pl.Series("parent", parent).replace(-1, None),
        "tid",
        "device",
        "alloc_bytes",
        "alloc_address",
        "alloc_total_bytes",
        "alloc_reserved_bytes",
    )
