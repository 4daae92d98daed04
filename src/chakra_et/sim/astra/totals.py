"""Totals of a simulation by ASTRA-sim's definitions.

Shape letters: N nodes of all ranks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import CommType, NodeType, TraceSet
from chakra_et.sim.result import GroupTimes, RankTimes, SimResult, timed_traces
from chakra_et.sim.workload import Workload

__all__ = ["make_result"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_COMMUNICATION = [NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE]


def make_result(
    workload: Workload, start: Int, end: Int, compute: Bool, *, traces: TraceSet, replay: bool, notes: tuple[str, ...]
) -> SimResult:
    """Add up where the time goes.

    Args:
        workload: The ranks that were simulated; if that is one, it stands for all.
        start: int64 [N], ns.
        end: int64 [N], ns.
        compute: bool [N]: compute of the device.
        traces: All ranks.
        replay: True if all times are the traces': then ASTRA-sim takes no communication for exposed.
        notes: What limits the result.
    """
    kinds = workload.integers("type", 0)
    table = pl.DataFrame(
        {
            "rank": workload.ranks[workload.owners],
            "type": kinds,
            "start": start,
            "end": end,
            "compute": compute,
            "communication": np.isin(kinds, _COMMUNICATION),
        }
    )
    # The union of intervals: of each, the part after all earlier ones.
    earlier = pl.col("end").cum_max().shift(1).over("rank").fill_null(0)
    union = (
        table.filter("communication")
        .sort("rank", "start", "end")
        .with_columns(part=(pl.col("end") - pl.max_horizontal("start", earlier)).clip(0))
        .group_by("rank")
        .agg(communication_ns=pl.col("part").sum())
    )
    totals = (
        table.group_by("rank")
        .agg(
            finish_ns=pl.col("end").max(),
            compute_ns=(pl.col("end") - pl.col("start")).filter("compute").sum(),
            covered_ns=(pl.col("end") - pl.col("start")).sum(),
        )
        .join(union, on="rank", how="left")
        .sort("rank")
    )
    found = [
        RankTimes(rank, finish, busy, communication or 0, finish - (covered if replay else busy))
        for rank, finish, busy, covered, communication in totals.iter_rows()
    ]
    copies = len(traces) // len(found)
    ranks = [replace(found[0], rank=rank) for rank in traces.ranks] if copies > 1 else found
    source = partial(_timed, traces, workload, start, end)
    return SimResult(source, tuple(ranks), _groups(workload, table, copies), len(found), notes)


def _timed(traces: TraceSet, workload: Workload, start: Int, end: Int) -> TraceSet:
    """Return all traces with simulated times; copies share their nodes."""
    simulated = timed_traces(workload, start, end)
    if len(simulated) == len(traces):
        return simulated
    nodes = simulated.traces[0].nodes
    return replace(traces, traces=tuple(trace.with_nodes(nodes) for trace in traces))


def _groups(workload: Workload, table: pl.DataFrame, copies: int) -> tuple[GroupTimes, ...]:
    columns = [workload.series(name) for name in ("pg_name", "comm_type", "comm_size", "comm_dst")]
    rows = table.with_columns(columns).filter("communication", pl.col("type") != NodeType.COMM_RECV_NODE)
    names = {int(kind): kind.name.lower() for kind in CommType}
    sent = pl.col("type") == NodeType.COMM_SEND_NODE
    group = pl.when(sent).then(pl.format("{}->{}", "rank", "comm_dst")).otherwise(pl.col("pg_name").fill_null(""))
    found = (
        rows.sort("rank", "start", maintain_order=True)
        .with_columns(
            group=group,
            kind=pl.when(sent)
            .then(pl.lit("send"))
            .otherwise(pl.col("comm_type").replace_strict(names, default="unknown", return_dtype=pl.String)),
        )
        .with_columns(turn=pl.int_range(pl.len()).over("rank", "group"))
        .group_by("group", "kind", "turn")
        .agg(
            size=pl.len(),
            bytes=pl.col("comm_size").first(),
            transfer=pl.col("end").max() - pl.col("start").max(),
            wait=(pl.col("start").max() - pl.col("start")).sum(),
        )
        .group_by("group", "kind")
        .agg(pl.col("size").max(), pl.len(), pl.col("bytes", "transfer", "wait").sum())
        .sort("group", "kind")
    )
    return tuple(
        GroupTimes(group, "", kind, 2 if kind == "send" else size * copies, count, bytes_ or 0, transfer, wait)
        for group, kind, size, count, bytes_, transfer, wait in found.iter_rows()
    )
