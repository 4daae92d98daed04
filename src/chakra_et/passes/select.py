"""Cut a part out of a trace that still rebuilds to its own timeline.

Requires: an acyclic graph. Ensures: of two kept nodes, one waits for the other in the slice exactly if it did in the
    trace; kept nodes keep their ids, and start when they did, relative to the slice's first node.

How edges to removed nodes are bridged: `chakra_et.ir.cut`.

Shape letters: N nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from chakra_et._jit.paths import cone as with_causes
from chakra_et.errors import TraceError
from chakra_et.ir import Trace
from chakra_et.ir.cut import cut, enclosing, iterations, select_iteration, timing_of
from chakra_et.ir.graph import positions
from chakra_et.units import format_ns

__all__ = ["iterations", "select_ids", "select_iteration", "select_time"]

_IDS = range(2**64)


def select_ids(trace: Trace, ids: Iterable[int], *, cone: bool = True) -> Trace:
    """Keep some nodes, and what they depend on.

    Args:
        trace: The trace.
        ids: Node ids.
        cone: True to keep everything that the nodes depend on, directly or not; False to bridge over it.

    Raises:
        TraceError: The trace has no node with such an id, or its graph has a cycle.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder()
        >>> first = builder.add("a", NodeType.COMP_NODE, duration_ns=5)
        >>> second = builder.add("b", NodeType.COMP_NODE, duration_ns=2, ctrl_deps=[first])
        >>> third = builder.add("c", NodeType.COMP_NODE, duration_ns=1, ctrl_deps=[first])
        >>> select_ids(builder.build(), [second]).nodes["name"].to_list()
        ['a', 'b']
    """
    asked = sorted(set(ids))
    wanted = np.array([number for number in asked if number in _IDS], np.uint64)
    found = positions(trace.nodes["id"].to_numpy(), wanted)
    missing = [*(number for number in asked if number not in _IDS), *wanted[found < 0].tolist()]
    if missing:
        raise TraceError(
            f"rank {trace.rank}: expected ids of nodes, got {', '.join(map(str, missing[:5]))}"
            f"{' and others' if len(missing) > 5 else ''}, which no node has; list nodes with `chakra info --nodes`"
        )
    timing = timing_of(trace)
    keep = np.zeros(len(trace), np.bool_)
    keep[found] = True
    if cone:
        keep = with_causes(timing.graph.indptr, timing.graph.preds, keep)
    return cut(trace, timing, keep | enclosing(trace, timing, keep))


def select_time(trace: Trace, begin_ns: int | None = None, end_ns: int | None = None) -> Trace:
    """Keep the nodes that start in a stretch of time, and the annotations around them.

    Args:
        trace: The trace. Nodes without a recorded start count with their rebuilt one.
        begin_ns: First ns of the stretch, relative to the window's start; None: from the first node on.
        end_ns: The ns after its last one; None: to the last node.

    Raises:
        TraceError: No node starts in the stretch, or the graph has a cycle.
    """
    timing = timing_of(trace)
    keep = ~timing.ranges
    if begin_ns is not None:
        keep &= timing.start >= begin_ns
    if end_ns is not None:
        keep &= timing.start < end_ns
    if not keep.any():
        last = int(timing.start.max(initial=0))
        raise TraceError(
            f"rank {trace.rank}: expected a stretch of time in which nodes start (0 ns to {format_ns(last)} after the "
            f"first one), got {format_ns(begin_ns or 0)} to {'the end' if end_ns is None else format_ns(end_ns)}"
        )
    return cut(trace, timing, keep | enclosing(trace, timing, keep))
