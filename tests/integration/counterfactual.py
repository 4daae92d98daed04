"""What-if on converted traces, to compare with the generator's own second run.

The ranks' graphs are scheduled together: a matched communication is an arrival on each rank, and a transfer that
begins when the last
one has arrived.

Shape letters: R ranks, N nodes of all ranks.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from chakra_et._jit.schedule import schedule
from chakra_et.ir import NodeType, TraceSet, build_graph
from chakra_et.testing import Edit

COMM = [int(t) for t in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE)]


def edited_makespan(traces: TraceSet, edit: Edit, offsets_ns: dict[int, int]) -> int:
    """Apply an edit to the traces' durations and return the makespan of their joint schedule, ns from machine time 0.

    Args:
        traces: Converted and matched traces.
        edit: What to change.
        offsets_ns: When each rank's window begins, on the machine's clock.
    """
    parts, before, after, durations, keys = [], [], [], [], []
    base = 0
    for rank, trace in zip(traces.ranks, traces, strict=True):
        count = len(trace)
        graph = build_graph(trace)
        duration = _edited(trace, edit)
        is_comm = trace.nodes["type"].is_in(COMM).to_numpy()
        delay = offsets_ns[rank] + edit.rank_delay_ns.get(rank, 0) if edit.rank_delay_ns else offsets_ns[rank]
        # Nodes: root, arrivals and everything else at base + 1 + position, transfers at base + 1 + count + position.
        done = np.arange(count) + base + 1 + np.where(is_comm, count, 0)
        node = np.repeat(np.arange(count), np.diff(graph.indptr)) + base + 1
        before += [done[graph.preds], np.full((np.diff(graph.indptr) == 0).sum(), base)]
        after += [node, np.flatnonzero(np.diff(graph.indptr) == 0) + base + 1]
        comm = np.flatnonzero(is_comm)
        durations += [np.array([delay]), np.where(is_comm, 0, duration), np.where(is_comm, duration, 0)]
        keys.append(
            _keys(trace, comm).with_columns(
                arrival=pl.Series(comm + base + 1), transfer=pl.Series(comm + base + 1 + count)
            )
        )
        parts.append(count)
        base += 1 + 2 * count
    meetings = pl.concat(keys)
    pairs = meetings.join(meetings, on="key")
    before.append(pairs["arrival"].to_numpy())
    after.append(pairs["transfer_right"].to_numpy())
    first, second = np.concatenate(before).astype(np.int64), np.concatenate(after).astype(np.int64)
    order = np.argsort(second, kind="stable")
    indptr = np.zeros(base + 1, np.int64)
    np.cumsum(np.bincount(second, minlength=base), out=indptr[1:])
    length = np.concatenate(durations).astype(np.int64)
    start, _, visited = schedule(indptr, first[order], length)
    assert len(visited) == base, "the joint graph has a cycle"
    return int((start + length).max())


def _keys(trace, comm):
    nodes = trace.nodes[comm]
    sent = pl.col("type") != int(NodeType.COMM_COLL_NODE)
    if not len(comm):
        return pl.DataFrame(schema={"key": pl.String})
    names = [n if n in nodes.columns else None for n in ("comm_src", "comm_dst", "comm_tag")]
    peers = [pl.col(n).cast(pl.String).fill_null("") if n else pl.lit("") for n in names]
    members = {g.name: str(g.ranks) for g in trace.process_groups}
    group = pl.col("pg_name").fill_null("").replace(members)
    return nodes.select(
        key=pl.when(sent)
        .then(pl.concat_str(pl.lit("p2p"), *peers, pl.col("comm_seq").cast(pl.String), separator="/"))
        .otherwise(pl.concat_str(pl.lit("coll"), group, pl.col("comm_seq").cast(pl.String), separator="/"))
    )


def _edited(trace, edit: Edit) -> np.ndarray:
    nodes = trace.nodes
    duration = trace.integers("duration_ns", 0).astype(np.float64)
    comm = nodes["type"].is_in(COMM).to_numpy()
    wait = trace.integers("wait_ns", 0)
    duration = np.where(comm, duration - wait, duration)
    gap = trace.column("gap_kind").is_not_null().to_numpy()
    host = trace.column("is_cpu_op").to_numpy()
    kernel = ~host & ~gap & ~comm & trace.column("copy_kind").is_null().to_numpy()
    duration = np.where(kernel, duration * edit.kernel_scale, duration)
    duration = np.where(comm, duration * edit.comm_scale, duration)
    stream = trace.integers("stream")
    for number, scale in (edit.stream_scale or {}).items():
        duration = np.where((stream == number) & ~gap, duration * scale, duration)
    tid = trace.integers("tid")
    idle = (trace.column("gap_kind") == "host_idle").fill_null(False).to_numpy()
    for number, scale in (edit.host_thread_scale or {}).items():
        duration = np.where((tid == number) & host & (~gap | idle), duration * scale, duration)
    return np.rint(duration).astype(np.int64)
