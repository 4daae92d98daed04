"""Communications as a table, and which of them meet across ranks.

Each rank's table can be made by itself; `meet` then joins them. Collectives meet by process group and position in it;
the k-th send from a to b with a tag meets the k-th such receive.

Shape letters: N nodes, C communication nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from chakra_et.ir.call_stack import parent_rows
from chakra_et.ir.enums import NodeType
from chakra_et.ir.process_group import ProcessGroup, groups_of
from chakra_et.ir.trace import Trace

__all__ = ["communications", "is_communication", "issued_ns", "meet"]

_COLL = int(NodeType.COMM_COLL_NODE)
_TYPES = [int(t) for t in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE)]
_COLUMNS = ("id", "name", "type", "is_cpu_op", "start_ns", "duration_ns", "pg_name", "comm_seq", "comm_type",
            "comm_size", "comm_src", "comm_dst", "comm_tag", "comm_root")  # fmt: skip
_ENDS = ("comm_src", "comm_dst", "comm_tag")


def is_communication() -> pl.Expr:
    """Return which rows of a node table are sends, receives or collectives."""
    return pl.col("type").is_in(_TYPES)


def issued_ns(trace: Trace) -> pl.Series:
    """Return when each node was asked for, ns: at its start, but communications of the host at their call's.

    The threads that make them take them in the order of the calls, but may begin in another one.
    """
    start = trace.nodes["start_ns"]
    if "parent" not in trace.nodes.columns:
        return start
    above = pl.Series("above", parent_rows(trace))
    call = start.gather(above.clip(0))
    table = trace.nodes.select("type", "start_ns", host=pl.col("is_cpu_op").fill_null(False))
    earlier = table["host"] & (above >= 0) & (call < start).fill_null(False)
    return table.select(
        issued_ns=pl.when(earlier & table.select(is_communication()).to_series()).then(call).otherwise("start_ns")
    ).to_series()


def communications(trace: Trace, rank: int, more: Iterable[str] = ()) -> pl.DataFrame:
    """Return the communications of one rank.

    Args:
        trace: The trace.
        rank: Its global rank.
        more: Further columns of the node table to keep.

    Returns:
        [C] rows in the trace's order: ``rank``, ``row`` (position of the node), the columns of the node table that
        tell a communication, ``comm_seq`` counted by `issued_ns` where the trace has none, ``ready_ns`` (from when on
        it could give data to others), ``ready_row`` (the node that starts then).
    """
    wanted = (*_COLUMNS, *more)
    rows = trace.nodes.select(is_communication().arg_true()).to_series()
    columns = [trace.column(name).gather(rows) for name in wanted]
    own = pl.Series("rank", [rank], pl.Int64).new_from_index(0, len(rows))
    table = pl.DataFrame([own, rows.cast(pl.Int64).alias("row"), *columns])
    return _with_ready(trace, _numbered(trace, table))


def _numbered(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """Count positions where the trace doesn't tell them."""
    if not table["comm_seq"].null_count():
        return table
    sent = pl.col("type") != _COLL
    line = pl.struct("type", pl.when(~sent).then("pg_name"), *(pl.when(sent).then(name).alias(name) for name in _ENDS))
    told = pl.col("comm_seq").is_not_null().all().over("line")
    place = pl.int_range(pl.len(), dtype=pl.Int64).over("line")
    table = table.with_columns(line=line, issued_ns=issued_ns(trace).gather(table["row"]))
    ordered = table.sort("issued_ns", "start_ns", "row", nulls_last=True)
    ordered = ordered.with_columns(comm_seq=pl.when(told).then("comm_seq").otherwise(place))
    return ordered.sort("row").drop("line", "issued_ns")


def _with_ready(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """Add when each was ready: at its start, but sends and receives of the host at their call's.

    c10d opens their range only after it has handed the data over: a receive may be over by then.
    """
    table = table.with_columns(ready_ns="start_ns", ready_row="row")
    own = table["is_cpu_op"].fill_null(False) & (table["type"] != _COLL)
    if not own.any() or "parent" not in trace.nodes.columns:
        return table
    above = pl.Series("above", parent_rows(trace)).gather(table["row"])
    call = trace.nodes["start_ns"].gather(above.clip(0))
    earlier = own & (above >= 0) & (call < table["start_ns"]).fill_null(False)
    return table.with_columns(
        ready_ns=pl.when(earlier).then(call).otherwise("start_ns"),
        ready_row=pl.when(earlier).then(above).otherwise("row"),
    )


def meet(table: pl.DataFrame, groups: Iterable[ProcessGroup]) -> pl.DataFrame:
    """Number the communications of all ranks: rows of one meeting are one communication.

    Args:
        table: [C] rows of all ranks, see `communications`.
        groups: The process groups of the job, see `merge_groups`.

    Returns:
        The rows with ``members`` (the ranks of the process group with commas between; empty if unknown) and
        ``meeting``: a number from 0, by group or ends, then by position.
    """
    groups = tuple(groups)
    used = table.select("rank", "pg_name").unique()
    known = {rank: groups_of(rank, groups) for rank in used["rank"].unique().to_list()}
    members = [
        ",".join(map(str, known[rank][name].ranks)) if name in known[rank] else "" for rank, name in used.iter_rows()
    ]
    used = used.with_columns(members=pl.Series(members, dtype=pl.String))
    table = table.join(used, on=["rank", "pg_name"], how="left", nulls_equal=True, maintain_order="left")
    sent = pl.col("type") != _COLL
    line = [
        sent.alias("sent"),
        *(pl.when(~sent).then(name).alias(f"of_{name}") for name in ("pg_name", "members")),
        *(pl.when(sent).then(name).alias(f"of_{name}") for name in _ENDS),
    ]
    line_of = _dense(table.select(line)).alias("line")
    return table.with_columns(meeting=_dense(pl.DataFrame([line_of, table["comm_seq"]])))


def _dense(table: pl.DataFrame) -> pl.Series:
    """Number rows so that equal ones have the same number, in order."""
    names = table.columns
    distinct = table.unique().sort(names)
    distinct = distinct.with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64))
    found = table.join(distinct, on=names, how="left", nulls_equal=True, maintain_order="left")
    numbers: pl.Series = found["number"]
    return numbers
