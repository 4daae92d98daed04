"""Match communications across ranks, and split each one at the arrival of its last participant.

Collectives meet by process group and position in it; the k-th send from a to b with a tag meets the k-th such receive.
A collective's transfer can't begin before the last participant has come: what its recorded duration holds before that
is `wait_ns`, the rest `transfer_ns`. That needs one clock; see `chakra_et.ir.clocks`.

Shape letters: R ranks, C communication nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from chakra_et.ir.clocks import estimate_offsets
from chakra_et.ir.columns import SCHEMA
from chakra_et.ir.communications import communications, is_communication, issued_ns, meet
from chakra_et.ir.enums import CommType, NodeType
from chakra_et.ir.process_group import ProcessGroup, join_groups
from chakra_et.ir.trace import Trace
from chakra_et.ir.trace_set import TraceSet

__all__ = ["Matching", "match_comms", "merge_groups"]

_SEND, _RECV, _COLL = (int(t) for t in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE))
# Sizes of these may differ between ranks by nature (uneven splits, roots).
_UNEVEN = [int(t) for t in (CommType.ALL_TO_ALL, CommType.GATHER, CommType.SCATTER, CommType.BARRIER)]


@dataclass(frozen=True, slots=True)
class Matching:
    """What matching found.

    Attributes:
        collectives: Collectives, each counted once.
        complete: Collectives that every member rank took part in; one whose members are not all in the set is not.
        mismatched: Communications whose participants disagree in type or size.
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

    def as_dict(self) -> dict[str, Any]:
        """Return counts and findings, as in a quality report."""
        names = ("collectives", "complete", "mismatched", "sends", "receives", "paired")
        return {**{name: getattr(self, name) for name in names}, "findings": list(self.findings)}


def match_comms(trace_set: TraceSet) -> tuple[TraceSet, Matching]:
    """Match the communications of a set.

    Args:
        trace_set: Traces with `pg_name` on collectives and peers on sends and receives, where known.

    Returns:
        The set with merged process groups and the columns `comm_seq`, `wait_ns` and `transfer_ns`; and what was found.
    """
    groups = merge_groups(trace_set)
    by_group = all(map(_tells_groups, trace_set))
    numbered = trace_set.map(lambda trace: _number(trace, by_group=by_group))
    tables = [communications(trace, rank) for rank, trace in zip(numbered.ranks, numbered, strict=True)]
    if not any(table.height for table in tables):
        return replace(numbered, process_groups=groups), Matching()
    table = meet(pl.concat(tables), groups)
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
    return join_groups((group for trace in trace_set for group in trace.process_groups), trace_set.world_size)


def _tells_groups(trace: Trace) -> bool:
    """True if every send and receive names its process group."""
    sent = trace.nodes["type"].is_in([_SEND, _RECV])
    return not trace.column("pg_name").filter(sent).null_count()


def _number(trace: Trace, *, by_group: bool) -> Trace:
    """Set `comm_seq` in the order of issue, per group for collectives and per peers and tag for sends and receives.

    Sends of two groups between the same ranks may go out in another order than they come in: with `by_group`, they are
    numbered a group after the other, which both ends do alike.
    """
    nodes = trace.nodes
    if not nodes.select(is_communication().any()).item():
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
        .with_columns(issued=issued_ns(trace))
        .with_row_index("row")
        .filter(is_communication())
        .sort(pl.when(sent & by_group).then(keys["pg_name"]), "issued", "start_ns", "id")
        .select("row", comm_seq=pl.int_range(pl.len(), dtype=pl.Int64).over(key))
        .collect()
    )
    return trace.with_nodes(nodes.with_columns(_spread(rows["row"], rows["comm_seq"], nodes.height)))


def _spread(rows: pl.Series, values: pl.Series, count: int) -> pl.Series:
    """Return a column of `count` rows with the values at their rows, null elsewhere."""
    column: pl.Series = pl.Series(values.name, [None], values.dtype).new_from_index(0, count).scatter(rows, values)
    return column


def _with_waits(trace: Trace, table: pl.DataFrame, rank: int) -> Trace:
    found = table.filter(pl.col("rank") == rank).select("row", "wait_ns", "transfer_ns")
    if not found.height:
        return trace
    return trace.with_columns(_spread(found["row"], found[name], len(trace)) for name in ("wait_ns", "transfer_ns"))


def _count(table: pl.DataFrame, groups: tuple[ProcessGroup, ...], present: set[int]) -> Matching:
    coll = table.filter(pl.col("type") == _COLL)
    meetings = coll.group_by("meeting").agg(
        pl.col("pg_name", "members", "comm_seq").first(),
        ranks=pl.col("rank").sort(),
        types=pl.col("comm_type").drop_nulls().n_unique(),
        sizes=pl.col("comm_size").filter(~_uneven()).drop_nulls().n_unique(),
    )
    members = {(group.name, ",".join(map(str, group.ranks))): sorted(group.ranks) for group in groups if group.ranks}
    findings: list[str] = []
    bad = meetings.filter((pl.col("types") > 1) | (pl.col("sizes") > 1))["meeting"]
    sides = _sides(coll.filter(pl.col("meeting").is_in(bad.implode())))
    absent: dict[tuple[str, tuple[int, ...]], int] = {}
    complete = mismatched = 0
    for row in meetings.sort("meeting").iter_rows(named=True):
        wanted = members.get((row["pg_name"], row["members"]), sorted(present))
        where = f"collective {row['comm_seq']} of group {row['pg_name'] or '(unknown)'}"
        lost = tuple(rank for rank in wanted if rank not in row["ranks"])
        complete += not lost
        if lost and present.isdisjoint(lost):
            absent[row["pg_name"], lost] = absent.get((row["pg_name"], lost), 0) + 1
        elif lost:
            findings.append(f"{where}: expected ranks {wanted}, got {row['ranks']}")
        if row["meeting"] in sides:
            mismatched += 1
            findings.append(f"{where}: {sides[row['meeting']]}")
    for (group, lost), count in absent.items():
        findings.append(f"ranks {list(lost)} of group {group} are not in the set: {count} collectives lack them")
    point = (
        table.filter(pl.col("type") != _COLL)
        .group_by("meeting")
        .agg(sides=pl.col("type").n_unique(), sizes=pl.col("comm_size").drop_nulls().n_unique())
    )
    uneven = point.filter(pl.col("sizes") > 1)["meeting"]
    sides = _sides(table.filter(pl.col("meeting").is_in(uneven.implode())))
    findings += [f"send and receive differ: {sides[meeting]}" for meeting in uneven.sort()]
    alone = table.filter(pl.col("meeting").is_in(point.filter(pl.col("sides") < 2)["meeting"].implode()))
    findings += _lonely(alone, present)
    return Matching(
        collectives=meetings.height,
        complete=complete,
        mismatched=mismatched + len(uneven),
        sends=table.filter(pl.col("type") == _SEND).height,
        receives=table.filter(pl.col("type") == _RECV).height,
        paired=point.filter(pl.col("sides") == 2).height,
        findings=tuple(findings),
    )


def _lonely(alone: pl.DataFrame, present: set[int]) -> list[str]:
    """Say how many sends met no receive, and how many receives no send, between two ranks."""
    words = []
    between = alone.group_by("type", "comm_src", "comm_dst").len().sort("type", "comm_src", "comm_dst")
    for node, source, target, count in between.iter_rows():
        what, other = ("sends", "receive") if node == _SEND else ("receives", "send")
        ends = ["an unknown rank" if rank is None else f"rank {rank}" for rank in (source, target)]
        text = f"{count} {what} from {ends[0]} to {ends[1]} met no {other}"
        absent = [rank for rank in (source, target) if rank is not None and rank not in present]
        words.append(f"{text}: rank {absent[0]} is not in the set" if absent else text)
    return words


def _uneven() -> pl.Expr:
    return pl.col("comm_type").is_in(_UNEVEN).fill_null(False)


def _sides(rows: pl.DataFrame) -> dict[int, str]:
    """Say what each rank brings to each meeting."""
    names = {int(kind): kind.name.lower() for kind in CommType}
    said: dict[int, list[str]] = {}
    wanted = ("meeting", "rank", "type", "comm_type", "comm_size")
    for meeting, rank, node, kind, size in rows.sort("rank").select(wanted).iter_rows():
        what = names.get(kind) or NodeType(node).name.removesuffix("_NODE").lower()
        amount = f"{size:,} bytes" if size is not None else "unknown size"
        said.setdefault(meeting, []).append(f"rank {rank} has {what} of {amount}")
    return {meeting: ", ".join(words) for meeting, words in said.items()}
