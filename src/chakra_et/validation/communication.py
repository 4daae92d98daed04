"""Rules about the communications of one rank, and the groups that they name."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceSet
from chakra_et.ir.communications import issued_ns
from chakra_et.ir.process_group import groups_of
from chakra_et.units import format_list
from chakra_et.validation.findings import Hits

__all__ = ["check_communications", "check_groups", "check_host", "communications", "known_groups"]

COLLECTIVE = int(NodeType.COMM_COLL_NODE)
SEND = int(NodeType.COMM_SEND_NODE)
RECV = int(NodeType.COMM_RECV_NODE)
_LARGEST_RANK = 2**31
_COLUMNS = (
    "comm_type",
    "comm_size",
    "pg_name",
    "comm_seq",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "unknown_comm",
    "in_split_sizes",
    "out_split_sizes",
)


def communications(trace: Trace) -> pl.DataFrame:
    """Return the communication nodes, one row each, with all columns that describe one, and when it was issued."""
    columns = ["id", "name", "type", "is_cpu_op", "start_ns", "duration_ns"]
    table = trace.nodes.select(columns).with_columns(
        *(trace.column(name) for name in _COLUMNS), issued_ns=issued_ns(trace)
    )
    return table.filter(pl.col("type").is_in([COLLECTIVE, SEND, RECV]))


def known_groups(trace: Trace, rank: int, trace_set: TraceSet) -> dict[str, ProcessGroup]:
    """Return the groups that a rank knows, by name; its own records come before the set's."""
    return groups_of(rank, (*trace.process_groups, *trace_set.process_groups))


def check_groups(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """Communications name groups that exist and have this rank as a member."""
    groups = known_groups(trace, rank, trace_set)
    table = communications(trace).filter(pl.col("pg_name").is_not_null() & (pl.col("pg_name") != ""))
    unknown = table.filter(~pl.col("pg_name").is_in(list(groups))).select("id", "pg_name").rows()
    yield Hits(
        "group-unknown",
        [row[0] for row in unknown],
        lambda k: (
            f"expected a process group of the trace ({format_list(sorted(groups)) or 'it has none'}), "
            f"got '{unknown[k][1]}'"
        ),
    )
    foreign = [name for name, group in groups.items() if group.ranks and rank not in group.ranks]
    outside = table.filter(pl.col("pg_name").is_in(foreign)).select("id", "pg_name").rows()
    yield Hits(
        "group-member",
        [row[0] for row in outside],
        lambda k: (
            f"expected a group that rank {rank} is a member of, got '{outside[k][1]}' of the ranks "
            f"{format_list(groups[outside[k][1]].ranks)}"
        ),
    )


def check_communications(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """Communications say what they do, to how many bytes, and with whom."""
    table = communications(trace)
    nameless = pl.col("unknown_comm").fill_null(False)
    unknown = table.filter(nameless).select("id", "name").rows()
    yield Hits(
        "comm-unknown", [row[0] for row in unknown], lambda k: f"expected a known communication, got '{unknown[k][1]}'"
    )
    table = table.filter(~nameless)
    high = max(CommType)
    typed = pl.col("comm_type").is_between(0, int(high)).fill_null(False)
    bad_type = table.filter((pl.col("type") == COLLECTIVE) & ~typed).select("id", "comm_type").rows()
    yield Hits(
        "comm-type",
        [row[0] for row in bad_type],
        lambda k: f"expected a comm_type from 0 to {int(high)}, got {_or_none(bad_type[k][1])}",
    )
    negative = table.filter((pl.col("comm_size") < 0).fill_null(False)).select("id", "comm_size").rows()
    yield Hits(
        "comm-size",
        [row[0] for row in negative],
        lambda k: f"expected comm_size in bytes, 0 or more, got {negative[k][1]}",
    )
    barrier = (pl.col("comm_type") == int(CommType.BARRIER)).fill_null(False)
    unknown_size = table.filter(pl.col("comm_size").is_null() & ~barrier)["id"].to_list()
    yield Hits("comm-size-unknown", unknown_size, lambda k: "expected comm_size in bytes, got none")
    told = any(trace.metadata.world_size for trace in trace_set)
    yield from _peers(table, rank, trace_set.world_size if told else _LARGEST_RANK)


def _peers(table: pl.DataFrame, rank: int, world_size: int) -> Iterator[Hits]:
    for kind, other, own in ((SEND, "comm_dst", "comm_src"), (RECV, "comm_src", "comm_dst")):
        ends = table.filter(pl.col("type") == kind)
        silent = ends.filter(pl.col(other).is_null())["id"].to_list()
        yield Hits("comm-peer-unknown", silent, lambda k, other=other: f"expected {other}, got none")  # type: ignore[misc]
        good = pl.col(other).is_between(0, world_size - 1) & (pl.col(other) != rank)
        bad = ends.filter(~good).select("id", other).rows()
        yield Hits(
            "comm-peer",
            [row[0] for row in bad],
            lambda k, bad=bad, other=other: (  # type: ignore[misc]
                f"expected {other} to be another of {world_size} ranks, got {bad[k][1]}"
            ),
        )
        wrong = ends.filter((pl.col(own) != rank).fill_null(False)).select("id", own).rows()
        yield Hits(
            "comm-peer",
            [row[0] for row in wrong],
            lambda k, wrong=wrong, own=own: f"expected {own} to be the own rank {rank}, got {wrong[k][1]}",  # type: ignore[misc]
        )


def check_host(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """On a rank with a device, no host call is taken for the communication that it starts."""
    real = trace.nodes.filter(
        trace.column("gap_kind").is_null() & (pl.col("type") != int(NodeType.METADATA_NODE)).fill_null(True)
    )
    if not (~real["is_cpu_op"].fill_null(False)).any():
        return
    bad = communications(trace).filter(pl.col("is_cpu_op").fill_null(False))["id"].to_list()
    yield Hits(
        "comm-cpu", bad, lambda k: "expected communications on the device (is_cpu_op false), got one on the host"
    )


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)
