"""Stretches in which a device idles, and what it waits for in them, step by step.

Shape letters: N nodes, A activities, W windows, I idle stretches, S steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.causes import COMMUNICATION, HOST_BOUND, LAUNCH_LATENCY, OTHER_STREAM, UNEXPLAINED, idle_steps
from chakra_et._jit.partition import idle_stretches
from chakra_et.analysis.windows import Window
from chakra_et.ir import Graph, NodeType, Trace

__all__ = ["Idle", "find_idle"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Idle:
    """Idle stretches of the chosen windows.

    Attributes:
        stretches: int64 [I, 3]: from, to (ns), the activity that ends the stretch (-1: none).
        window: int64 [I]: the window of each.
        steps: int64 [S, 4]: stretch, node (-1: none), cause, length (ns), as `idle_steps` returns them.
        resumed: int64 [I]: the host's node with which it went on when the device's work was done, -1 for none.
    """

    stretches: Int
    window: Int
    steps: Int
    resumed: Int


def find_idle(
    trace: Trace, graph: Graph, activities: pl.DataFrame, windows: Sequence[Window], start: Int, duration: Int
) -> Idle:
    """Find the idle stretches of a rank, and what was waited for in them.

    Args:
        trace: The trace.
        graph: Its graph.
        activities: Its activities by start, [A].
        windows: The chosen stretches of time, ascending.
        start: int64 [N]: when nodes start, ns.
        duration: int64 [N], ns.
    """
    stretches, window = _stretches(activities, windows)
    # The last place is that of no activity, -1.
    first = np.append(activities["row"].to_numpy(), -1)[stretches[:, 2]]
    steps, resumed = idle_steps(
        stretches[:, :2].copy(), first, graph.indptr, graph.preds, start, start + duration, *_node_causes(trace)
    )
    return Idle(stretches, window, steps, resumed)


def _stretches(activities: pl.DataFrame, windows: Sequence[Window]) -> tuple[Int, Int]:
    """Return the idle stretches of all windows as `idle_stretches` does, int64 [I, 3], and their windows, int64 [I]."""
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    latest = np.maximum.accumulate(end)
    found = [np.empty((0, 3), np.int64)]
    for window in windows:
        low = int(np.searchsorted(start, window.begin_ns))
        begin = max(window.begin_ns, int(latest[low - 1])) if low else window.begin_ns
        idle = idle_stretches(start[low:], end[low:], begin, window.end_ns)
        idle[:, 2] += np.where(idle[:, 2] >= 0, low, 0)
        found.append(idle)
    counts = [len(idle) for idle in found[1:]]
    return np.concatenate(found), np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def _node_causes(trace: Trace) -> tuple[npt.NDArray[np.int8], Int]:
    """Return what waiting for a node counts as, int8 [N], and the stream of the device's nodes, int64 [N]."""
    nodes = trace.nodes
    host = nodes["is_cpu_op"].fill_null(False).to_numpy()
    cause = np.where(host, HOST_BOUND, OTHER_STREAM).astype(np.int8)
    if "gap_kind" in nodes.columns:
        gap = nodes["gap_kind"]
        cause[(gap == "launch_latency").fill_null(False).to_numpy()] = LAUNCH_LATENCY
        cause[(gap == "unexplained").fill_null(False).to_numpy()] = UNEXPLAINED
    cause[nodes["type"].fill_null(0).to_numpy() >= NodeType.COMM_SEND_NODE] = COMMUNICATION
    lane = np.where(host, -1, trace.integers("device", 0) * (1 << 32) + trace.integers("stream", 0))
    return cause, lane
