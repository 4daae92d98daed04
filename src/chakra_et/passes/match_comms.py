"""Match communications across ranks, and split each one at the arrival of its last participant.

Collectives meet by process group and position in it; the k-th send from a to b with a tag meets the k-th such receive.
A collective's transfer can't begin before the last participant has come: what its recorded duration holds before that
is `wait_ns`, the rest `transfer_ns`. That needs one clock; see `chakra_et.passes.align_clocks`.

Shape letters: R ranks, C communication nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from chakra_et.ir.columns import SCHEMA
from chakra_et.ir.enums import CommType, NodeType
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace
from chakra_et.ir.trace_set import TraceSet
from chakra_et.passes.align_clocks import estimate_offsets

__all__ = ["Matching", "match_comms", "merge_groups"]

_SEND, _RECV, _COLL = (int(t) for t in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE))
# Sizes of these may differ between ranks by nature (uneven splits, roots).
_UNEVEN = [int(t) for t in (CommType.ALL_TO_ALL, CommType.GATHER, CommType.SCATTER, CommType.BARRIER)]


@dataclass(frozen=True, slots=True)
class Matching:
    """What matching found.

    Attributes:
        collectives: Collectives, each counted once.
        complete: Collectives that every member rank in the set took part in.
        mismatched: Collectives whose participants disagree in type or size.
        sends: Send nodes.
        receives: Receive nodes.
        paired: Sends that met a receive.
        clock_offsets_ns: Added to each rank's clock, by rank.
        findings: What doesn't match, in words.
    """

    collectives: int = 0
    complete: int = 0
    mismatched: int = 0
    sends: int = 0
    receives: int = 0
    paired: int = 0
    clock_offsets_ns: dict[int, int] | None = None
    findings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, int]:
        """Return the counts, as in a quality report."""
        names = ("collectives", "complete", "mismatched", "sends", "receives", "paired")
        return {name: getattr(self, name) for name in names}


def match_comms(trace_set: TraceSet) -> tuple[TraceSet, Matching]:
    """Match the communications of a set.

    Args:
        trace_set: Traces with `pg_name` on collectives and peers on sends and receives, where known.

    Returns:
        The set with merged process groups and the columns `comm_seq`, `wait_ns` and `transfer_ns`; and what was found.
    """
    groups = merge_groups(trace_set)
    numbered = trace_set.map(_number)
    table = _table(numbered)
    if table.height == 0:
        return replace(numbered, process_groups=groups), Matching()
    offsets = estimate_offsets(table)
    offset = pl.col("rank").replace_strict(offsets, default=0, return_dtype=pl.Int64)
    table = table.with_columns(
        arrival=(pl.col("ready_ns") + offset).max().over("meeting"), met=pl.len().over("meeting")
    )
    several = (pl.col("met") > 1) & pl.col("start_ns").is_not_null()
    wait = pl.min_horizontal(pl.col("arrival") - pl.col("start_ns") - offset, "duration_ns").clip(0)
    table = table.with_columns(wait_ns=pl.when(several).then(wait))
    table = table.with_columns(transfer_ns=pl.col("duration_ns") - pl.col("wait_ns"))
    traces = tuple(_with_waits(trace, table, rank) for rank, trace in zip(numbered.ranks, numbered, strict=True))
    matching = _count(table, groups, set(trace_set.ranks))
    return TraceSet(traces, groups), replace(matching, clock_offsets_ns=offsets)


def merge_groups(trace_set: TraceSet) -> tuple[ProcessGroup, ...]:
    """Merge the process groups of all ranks; one name may stand for several disjoint groups.

    A group without ranks that is as big as the job is the whole job.
    """
    merged: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    world = tuple(range(trace_set.world_size))
    for trace in trace_set:
        for group in trace.process_groups:
            if not group.ranks and group.size == len(world):
                group = replace(group, ranks=world)
            merged.setdefault((group.name, group.ranks), group)
    ranked = {name for name, ranks in merged if ranks}
    return tuple(group for (name, ranks), group in merged.items() if ranks or name not in ranked)


def _number(trace: Trace) -> Trace:
    """Set `comm_seq` by start, per group for collectives and per peers and tag for sends and receives."""
    nodes = trace.nodes
    if not nodes["type"].is_in([_SEND, _RECV, _COLL]).any():
        return trace
    keys = {
        name: pl.col(name) if name in nodes.columns else pl.lit(None, SCHEMA[name])
        for name in ("pg_name", "comm_src", "comm_dst", "comm_tag")
    }
    sent = pl.col("type") != _COLL
    key = pl.struct(
        "type",
        pl.when(~sent).then(keys["pg_name"]).alias("group"),
        *(pl.when(sent).then(keys[name]).alias(name) for name in ("comm_src", "comm_dst", "comm_tag")),
    )
    rows = (
        nodes.lazy()
        .with_row_index("row")
        .filter(pl.col("type").is_in([_SEND, _RECV, _COLL]))
        .sort("start_ns", "id")
        .select("row", comm_seq=pl.int_range(pl.len(), dtype=pl.Int64).over(key))
        .collect()
    )
    joined = (
        nodes.drop("comm_seq", strict=False)
        .with_row_index("row")
        .join(rows, on="row", how="left", maintain_order="left")
    )
    return trace.with_nodes(joined.drop("row"))


def _table(trace_set: TraceSet) -> pl.DataFrame:
    """Return all communications with a number of their meeting: rows of one meeting are one communication."""
    wanted = ("id", "name", "type", "start_ns", "duration_ns", "pg_name", "comm_seq", "comm_type", "comm_size",
              "comm_src", "comm_dst", "comm_tag", "comm_root")  # fmt: skip
    parts = []
    for rank, trace in zip(trace_set.ranks, trace_set, strict=True):
        rows = trace.nodes["type"].is_in([_SEND, _RECV, _COLL])
        if not rows.any():
            continue
        nodes = trace.nodes.filter(rows)
        ready = _ready(trace, nodes)
        columns = [
            nodes[name] if name in nodes.columns else pl.Series(name, [None] * nodes.height, SCHEMA[name])
            for name in wanted
        ]
        members = {group.name: ",".join(map(str, group.ranks)) for group in trace.process_groups}
        part = pl.DataFrame(columns).with_columns(
            rank=pl.lit(rank, pl.Int64),
            ready_ns=ready,
            members=pl.col("pg_name").replace_strict(members, default="", return_dtype=pl.String),
        )
        parts.append(part)
    if not parts:
        return pl.DataFrame()
    table = pl.concat(parts)
    sent = pl.col("type") != _COLL
    meeting = pl.struct(
        sent.alias("sent"),
        pl.when(~sent).then(pl.struct("pg_name", "members")).alias("group"),
        *(pl.when(sent).then(pl.col(name)).alias(name) for name in ("comm_src", "comm_dst", "comm_tag")),
        "comm_seq",
    )
    return table.with_columns(meeting=meeting.rank("dense"))


def _ready(trace: Trace, nodes: pl.DataFrame) -> pl.Series:
    """Return when each communication was ready: its start, but for sends and receives of the host their call's.

    c10d opens their range only after it has handed the data over: a receive may be over by then.
    """
    if "parent" not in nodes.columns:
        return nodes["start_ns"]
    calls = trace.nodes.select(pl.col("id").cast(pl.Int64).alias("parent"), pl.col("start_ns").alias("call_ns"))
    own = pl.col("is_cpu_op") & (pl.col("type") != _COLL) & (pl.col("call_ns") < pl.col("start_ns"))
    found = nodes.join(calls, on="parent", how="left", maintain_order="left")
    return found.select(pl.when(own).then("call_ns").otherwise("start_ns").alias("ready_ns")).to_series()


def _with_waits(trace: Trace, table: pl.DataFrame, rank: int) -> Trace:
    rows = table.filter(pl.col("rank") == rank).select("id", "wait_ns", "transfer_ns")
    nodes = trace.nodes.drop("wait_ns", "transfer_ns", strict=False)
    return trace.with_nodes(nodes.join(rows, on="id", how="left", maintain_order="left")) if rows.height else trace


def _count(table: pl.DataFrame, groups: tuple[ProcessGroup, ...], present: set[int]) -> Matching:
    coll = table.filter(pl.col("type") == _COLL)
    even = ~pl.col("comm_type").is_in(_UNEVEN).fill_null(False)
    meetings = coll.group_by("meeting").agg(
        pl.col("pg_name", "members", "comm_seq").first(),
        ranks=pl.col("rank").sort(),
        types=pl.col("comm_type").n_unique(),
        sizes=pl.col("comm_size").filter(even).n_unique(),
    )
    members = {
        (group.name, ",".join(map(str, group.ranks))): sorted(set(group.ranks) & present)
        for group in groups
        if group.ranks
    }
    findings: list[str] = []
    complete = mismatched = 0
    for row in meetings.sort("meeting").iter_rows(named=True):
        wanted = members.get((row["pg_name"], row["members"]), sorted(present))
        where = f"collective {row['comm_seq']} of group {row['pg_name'] or '(unknown)'}"
        if row["ranks"] == wanted:
            complete += 1
        else:
            findings.append(f"{where}: expected ranks {wanted}, got {row['ranks']}")
        if row["types"] > 1 or row["sizes"] > 1:
            mismatched += 1
            findings.append(f"{where}: ranks {row['ranks']} disagree in type or size")
    point = table.filter(pl.col("type") != _COLL).group_by("meeting").agg(sides=pl.col("type").n_unique())
    return Matching(
        collectives=meetings.height,
        complete=complete,
        mismatched=mismatched,
        sends=table.filter(pl.col("type") == _SEND).height,
        receives=table.filter(pl.col("type") == _RECV).height,
        paired=point.filter(pl.col("sides") == 2).height,
        findings=tuple(findings),
    )
