"""Where the time of a simulation goes: by rank, by process group, and along the critical path.

Shape letters: N nodes, M meetings, P participants, R ranks, K classes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.cover import cover
from chakra_et._jit.critical import critical_steps
from chakra_et.ir import CommType, NodeType
from chakra_et.sim.communicators import Peers
from chakra_et.sim.costs import Costs
from chakra_et.sim.flow_table import FlowTable
from chakra_et.sim.fold import Fold
from chakra_et.sim.measured import Exchange
from chakra_et.sim.meetings import Meetings
from chakra_et.sim.plan import Outcome
from chakra_et.sim.result import GroupTimes, RankTimes
from chakra_et.sim.scene import Cast
from chakra_et.sim.workload import Workload

__all__ = ["critical_bounds", "group_times", "rank_times", "split_meetings"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def rank_times(cast: Cast, begin: Int, outcome: Outcome) -> tuple[RankTimes, ...]:
    """Add up the times of each rank.

    Args:
        cast: The ranks that stand for all.
        begin: int64 [R]: when they begin, ns.
        outcome: When everything happened.
    """
    offsets, fold = cast.workload.offsets, cast.fold
    order = _by_start(outcome.start_ns, cast.workload)
    parts = cover(offsets, order, outcome.start_ns, outcome.end_ns, cast.compute, cast.communicates)
    finish = np.maximum.reduceat(outcome.end_ns, offsets[:-1])
    rows = np.column_stack([finish, parts, begin])[fold.classes].tolist()
    measured = [end if end >= 0 else None for end in cast.recorded_end[fold.classes].tolist()]
    return tuple(
        RankTimes(rank, last, compute, communication, exposed, first, end)
        for rank, (last, compute, communication, exposed, first), end in zip(
            fold.ranks.tolist(), rows, measured, strict=True
        )
    )


def _by_start(start: Int, workload: Workload) -> Int:
    """Return the nodes of each rank by start, int64 [N]; mostly they are already."""
    ascends = np.append(True, start[1:] >= start[:-1])
    ascends[workload.offsets[:-1]] = True
    if ascends.all():
        return np.arange(len(start), dtype=np.int64)
    return np.lexsort((start, workload.owners)).astype(np.int64)


def split_meetings(meetings: Meetings, exchange: Exchange, outcome: Outcome) -> tuple[Int, Int]:
    """Return how long each transfer took, int64 [M], and how long each participant waited for it, int64 [P]."""
    rooms = meetings.rooms
    came = outcome.came_ns[rooms]
    end = np.where(exchange.waits, outcome.end_ns[meetings.nodes], came)
    transfer = np.zeros(len(meetings.seats) - 1, np.int64)
    np.maximum.at(transfer, rooms, end - came)
    wait = np.where(exchange.waits, np.maximum(came - outcome.start_ns[meetings.nodes], 0), 0)
    return transfer, wait


def group_times(
    meetings: Meetings, transfer: Int, wait: Int, peers: Peers, fold: Fold, owners: Int
) -> tuple[GroupTimes, ...]:
    """Add up the times of each process group and type, over all ranks.

    Args:
        meetings: Who meets.
        transfer: int64 [M], ns.
        wait: int64 [P], ns.
        peers: Who sends to whom.
        fold: Which ranks are alike.
        owners: int64 [P]: class of each participant.
    """
    rooms = meetings.rooms
    lost = np.bincount(rooms, wait * fold.counts[owners], len(transfer)).astype(np.int64)
    table = meetings.table.with_columns(
        transfer=pl.Series(transfer), wait=pl.Series(lost), size=pl.col("members").list.len()
    )
    kinds = np.bincount(fold.kinds, minlength=int(fold.kinds.max(initial=-1)) + 1) if len(fold.kinds) else fold.kinds
    collectives = table.filter(pl.col("kind") == "collective")
    copies = pl.Series(kinds[fold.kinds[collectives["group"].to_numpy()]] if collectives.height else [], dtype=pl.Int64)
    words = {int(kind): kind.name.lower() for kind in CommType}
    collectives = collectives.with_columns(
        copies=copies,
        pg_name=pl.col("pg_name").fill_null(""),
        what=pl.col("comm_type").replace_strict(words, default="unknown", return_dtype=pl.String),
    )
    messages = table.filter(pl.col("kind") == "send")
    if messages.height:
        pairs = _senders(peers).join(fold.pairs, on=["src", "dst"], maintain_order="left")
        shared = pairs.group_by("pair").agg(pl.len().alias("alike"))
        messages = messages.join(shared, on="pair").join(pairs, on="pair", maintain_order="left").with_columns(
            copies=pl.lit(1, pl.Int64),
            pg_name=pl.format("{}->{}", "src", "dst"),
            wait=pl.col("wait") // pl.col("alike"),
            what=pl.lit("send"),
        )  # fmt: skip
    else:
        messages = collectives.head(0)
    names = ["pg_name", "description", "what", "size"]
    columns = [*names, "copies", "size_bytes", "transfer", "wait"]
    found = pl.concat([collectives.select(columns), messages.select(columns)])
    total = found.group_by(names, maintain_order=True).agg(
        pl.col("copies").sum(),
        (pl.col("size_bytes").fill_null(0) * pl.col("copies")).sum(),
        (pl.col("transfer") * pl.col("copies")).sum(),
        pl.col("wait").sum(),
    )
    return tuple(GroupTimes(*row) for row in total.sort(names).iter_rows())


def _senders(peers: Peers) -> pl.DataFrame:
    sends = [(rank, peer) for rank, peer, sent in peers.directed if sent]
    return pl.DataFrame(sends, schema={"src": pl.Int64, "dst": pl.Int64}, orient="row")


def critical_bounds(workload: Workload, outcome: Outcome, meetings: Meetings, costs: Costs) -> dict[str, int]:
    """Return what the last node to end waited for, ns by resource, the largest first.

    Resources are ``compute``, ``memory`` (copies), ``host``, gaps by kind, ``late start`` (of a rank), ``latency`` of
    the network, its dimensions by name, and ``communication`` where its time is a measured one.
    """
    exchange, flows, of_meeting = costs.exchange, costs.flows, costs.of_meeting
    waits = np.full(workload.node_count, -1, np.int64)
    waits[meetings.nodes[exchange.waits]] = meetings.rooms[exchange.waits]
    steps = critical_steps(
        int(np.argmax(outcome.end_ns)), outcome.start_ns, outcome.end_ns, outcome.bound, waits, outcome.came_ns,
        outcome.last,
    )  # fmt: skip
    node, length = steps[:, 0], steps[:, 2] - steps[:, 1]
    met = node < 0
    total: dict[str, int] = {"late start": int(steps[-1, 1])}
    kinds = _kinds(workload, np.where(met, -1 - node, node))
    kinds[met] = "communication"
    flow = np.where(met, of_meeting[waits[np.where(met, -1 - node, 0)]] if len(of_meeting) else -1, -1)
    latency = np.where(flow >= 0, np.minimum(length, flows.latency_ns[flow] if len(flows.latency_ns) else 0), 0)
    total["latency"] = int(latency.sum())
    rest = length - latency.astype(np.int64)
    slowest = _slowest(flows)
    kinds = np.where(flow >= 0, slowest[flow] if len(slowest) else kinds, kinds)
    for kind in np.unique(kinds.astype(str)).tolist():
        total[kind] = total.get(kind, 0) + int(rest[kinds == kind].sum())
    return {kind: time for kind, time in sorted(total.items(), key=lambda item: -item[1]) if time > 0}


def _kinds(workload: Workload, nodes: Int) -> npt.NDArray[np.object_]:
    """Return what nodes occupy."""
    words = {NodeType.MEM_LOAD_NODE: "memory", NodeType.MEM_STORE_NODE: "memory"}
    words |= dict.fromkeys((NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE), "communication")
    types = workload.integers("type")[nodes].tolist()
    host = workload.flags("is_cpu_op")[nodes].tolist()
    gaps = workload.series("gap_kind").gather(nodes).to_list()
    return np.array(
        [
            gap or words.get(kind) or ("host" if own else "compute")
            for kind, own, gap in zip(types, host, gaps, strict=True)
        ],
        dtype=object,
    )


def _slowest(flows: FlowTable) -> npt.NDArray[np.object_]:
    """Return the dimension of each flow's most loaded link."""
    found = np.full(len(flows.latency_ns), "latency", dtype=object)
    loaded = np.flatnonzero(np.diff(flows.indptr))
    if len(loaded):
        time = flows.bytes / flows.capacity[flows.links]
        order = np.lexsort((-time, np.repeat(np.arange(len(found)), np.diff(flows.indptr))))
        found[loaded] = np.array(flows.dimension, dtype=object)[flows.links[order[flows.indptr[:-1][loaded]]]]
    return found
