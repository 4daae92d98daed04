"""Rules about times.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from chakra_et._jit.schedule import schedule
from chakra_et.ir import NodeType, Trace, TraceSet, build_graph
from chakra_et.validation.findings import Hits

__all__ = ["check_order", "check_rebuild", "check_signs"]

# Older profiles have microsecond clocks: within 1 us, order is not known.
_RESOLUTION_NS = 1000


def check_signs(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """Starts and durations are not negative."""
    for column in ("start_ns", "duration_ns"):
        bad = trace.nodes.filter((trace.nodes[column] < 0).fill_null(False)).select("id", column).rows()
        yield Hits(
            "time-negative",
            [row[0] for row in bad],
            lambda k, bad=bad, column=column: f"expected {column} >= 0, got {bad[k][1]}",  # type: ignore[misc]
        )


def check_order(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """No node starts before what it depends on has ended."""
    graph = build_graph(trace)
    node = np.repeat(np.arange(len(trace), dtype=np.int64), np.diff(graph.indptr))
    start = trace.integers("start_ns", 0)
    end = start + np.maximum(trace.integers("duration_ns", 0), 0)
    known = trace.nodes["start_ns"].is_not_null().to_numpy()
    known &= trace.nodes["type"].fill_null(0).to_numpy() != NodeType.METADATA_NODE
    early = end[graph.preds] - start[node]
    bad = np.flatnonzero(known[node] & known[graph.preds] & (early > _RESOLUTION_NS))
    ids = trace.nodes["id"].to_numpy()
    late_ids = ids[graph.preds[bad]]
    yield Hits(
        "time-order",
        ids[node[bad]].tolist(),
        lambda k: f"expected a start after node {late_ids[k]} ends, got one {early[bad[k]]} ns before",
    )


def check_rebuild(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """The schedule rebuilt from edges and durations starts each node when it was recorded."""
    graph = build_graph(trace)
    duration = np.maximum(trace.integers("duration_ns", 0), 0)
    rebuilt, _, _ = schedule(graph.indptr, graph.preds, duration)
    recorded = trace.integers("start_ns", 0)
    known = trace.nodes["start_ns"].is_not_null().to_numpy()
    known &= trace.nodes["type"].fill_null(0).to_numpy() != NodeType.METADATA_NODE
    if not known.any():
        return
    recorded = recorded - recorded[known].min()
    real = known & (rebuilt >= 0) & trace.column("gap_kind").is_null().to_numpy()
    bad = np.flatnonzero(real & (np.abs(rebuilt - recorded) > _RESOLUTION_NS))
    ids = trace.nodes["id"].to_numpy()
    yield Hits(
        "rebuild-error",
        ids[bad].tolist(),
        lambda k: f"expected a rebuilt start at {recorded[bad[k]]} ns as recorded, got {rebuilt[bad[k]]} ns",
    )
