"""Which communications ASTRA-sim can simulate: those that meet on every rank. The others keep their measured time.

Shape letters: C communications of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from chakra_et.ir import CommType, NodeType, Trace, TraceSet
from chakra_et.ir.process_group import groups_of
from chakra_et.units import format_number_of

__all__ = ["NEAREST", "Substitution", "match"]

COLLECTIVE = int(NodeType.COMM_COLL_NODE)
SEND = int(NodeType.COMM_SEND_NODE)
RECV = int(NodeType.COMM_RECV_NODE)

# Nearest form of what ASTRA-sim doesn't simulate, by the bytes that cross a ring: a reduce moves as much as a
# reduce-scatter, a gather or scatter as much as an all-gather; a barrier is the smallest all-reduce, as NCCL does it.
NEAREST: dict[CommType, CommType] = {
    CommType.REDUCE: CommType.REDUCE_SCATTER,
    CommType.REDUCE_SCATTER_BLOCK: CommType.REDUCE_SCATTER,
    CommType.GATHER: CommType.ALL_GATHER,
    CommType.SCATTER: CommType.ALL_GATHER,
    CommType.BARRIER: CommType.ALL_REDUCE,
}
_COLUMNS = ("comm_type", "comm_size", "pg_name", "comm_seq", "comm_src", "comm_dst", "comm_tag", "unknown_comm")


@dataclass(frozen=True, slots=True)
class Substitution:
    """A communication that is exported as something else.

    Attributes:
        rank: Rank in the trace set.
        node: Node id in the trace.
        before: What it was.
        after: What it is in the export.
        reason: Why.
    """

    rank: int
    node: int
    before: str
    after: str
    reason: str

    def as_dict(self) -> dict[str, object]:
        """Return the substitution as plain data."""
        return {
            "rank": self.rank,
            "node": self.node,
            "before": self.before,
            "after": self.after,
            "reason": self.reason,
        }


def match(trace_set: TraceSet, splits: int) -> tuple[pl.DataFrame, tuple[Substitution, ...]]:
    """Match the communications of all ranks.

    Args:
        trace_set: The ranks.
        splits: `preferred-dataset-splits`: smaller all-gathers never end.

    Returns:
        [C] rows: ``rank``, ``position`` (row in the rank's trace), ``kind`` (node type), ``meeting`` (null: doesn't
        meet; keeps its measured time), ``new_type``, ``new_size``, ``members`` (ranks, in group order), ``pg_name``,
        ``src``, ``dst``, ``reason`` (why it doesn't meet); and what is exported in another form.
    """
    parts = [_of_rank(rank, trace, trace_set) for rank, trace in zip(trace_set.ranks, trace_set, strict=True)]
    table = pl.concat(parts)
    collectives = _collectives(table.filter(pl.col("kind") == COLLECTIVE), list(trace_set.ranks), splits)
    messages = _messages(table.filter(pl.col("kind") != COLLECTIVE))
    first = int(str(collectives["meeting"].max() if collectives["meeting"].max() is not None else -1)) + 1
    messages = messages.with_columns(pl.col("meeting") + first)
    matched = pl.concat([collectives, messages], how="diagonal").sort("rank", "position")
    return matched, tuple(_substitutions(matched))


def _of_rank(rank: int, trace: Trace, trace_set: TraceSet) -> pl.DataFrame:
    known = groups_of(rank, (*trace.process_groups, *trace_set.process_groups))
    groups = {name: list(group.ranks) for name, group in known.items()}
    nodes = trace.nodes.select("id", "name", "type", "is_cpu_op", "start_ns", "duration_ns")
    nodes = nodes.with_columns(*(trace.column(name) for name in _COLUMNS), trace.column("gap_kind")).with_row_index(
        "position"
    )
    table = nodes.filter(pl.col("type").is_in([COLLECTIVE, SEND, RECV]) & pl.col("gap_kind").is_null())
    host = pl.col("is_cpu_op").fill_null(False)
    if not table.filter(~host).is_empty():
        # Beside communications on the device, those on the host are the calls that started them.
        table = table.filter(~host)
    table = table.sort("start_ns", "id", nulls_last=True)
    turn = pl.int_range(pl.len()).over("type", "pg_name", "comm_src", "comm_dst", "comm_tag")
    members = pl.Series("members", [groups.get(name or "", []) for name in table["pg_name"]], dtype=pl.List(pl.Int64))
    return table.with_columns(
        members,
        pl.lit(rank, pl.Int64).alias("rank"),
        pl.col("pg_name").fill_null(""),
        pl.col("type").cast(pl.Int64).alias("kind"),
        pl.col("position").cast(pl.Int64),
        pl.coalesce("comm_seq", turn).cast(pl.Int64).alias("seq"),
    )


def _collectives(table: pl.DataFrame, ranks: list[int], splits: int) -> pl.DataFrame:
    nearest = {int(kind): int(NEAREST.get(kind, kind)) for kind in CommType}
    usual = table.group_by("pg_name").agg(pl.col("rank").unique().sort().alias("users"))
    table = table.join(usual, on="pg_name", how="left", maintain_order="left").with_columns(
        pl.when(pl.col("members").list.len() > 0)
        .then("members")
        .when(pl.col("pg_name") == "")
        .then(pl.lit(ranks, pl.List(pl.Int64)))
        .otherwise("users")
        .alias("members"),
        pl.col("comm_type").replace_strict(nearest, default=None, return_dtype=pl.Int64).alias("new_type"),
    )
    key = ["pg_name", "members", "seq"]
    facts = table.group_by(key).agg(
        pl.len().alias("count"),
        pl.col("rank").n_unique().alias("ranks"),
        pl.col("rank").sort().alias("present"),
        pl.col("new_type").n_unique().alias("types"),
        pl.col("new_type").is_null().any().alias("unknown"),
        pl.col("comm_size").is_null().all().alias("sizeless"),
        pl.col("comm_size").max().fill_null(0).alias("new_size"),
    )
    facts = facts.sort("pg_name", "seq").with_row_index("meeting").with_columns(pl.col("meeting").cast(pl.Int64))
    least = pl.when(pl.col("new_type") == int(CommType.ALL_GATHER)).then(splits).otherwise(1)
    reason = (
        pl.when(pl.col("unknown") | pl.col("unknown_comm").fill_null(False))
        .then(pl.lit("its type is unknown"))
        .when(pl.col("members").list.len() < 2)
        .then(pl.lit("its group has one member"))
        .when((pl.col("count") != pl.col("ranks")) | (pl.col("members").list.sort() != pl.col("present")))
        .then(pl.lit("not every member of its group has it"))
        .when(pl.col("types") > 1)
        .then(pl.lit("its type differs between ranks"))
        .when(pl.col("sizeless") & (pl.col("comm_type") != int(CommType.BARRIER)))
        .then(pl.lit("its size is unknown"))
        .alias("reason")
    )
    joined = table.join(facts, on=key, how="left", maintain_order="left").with_columns(reason)
    good = pl.col("reason").is_null()
    return joined.with_columns(
        pl.when(good).then("meeting").alias("meeting"),
        pl.max_horizontal("new_size", least).cast(pl.Int64).alias("new_size"),
    ).drop("users", "count", "ranks", "present", "types", "unknown", "sizeless")


def _messages(table: pl.DataFrame) -> pl.DataFrame:
    table = table.with_columns(
        pl.when(pl.col("kind") == SEND).then("rank").otherwise("comm_src").cast(pl.Int64).alias("src"),
        pl.when(pl.col("kind") == RECV).then("rank").otherwise("comm_dst").cast(pl.Int64).alias("dst"),
        pl.col("comm_tag").fill_null(0).alias("tag"),
    )
    key = ["src", "dst", "tag", "seq"]
    facts = table.group_by(key).agg(
        ((pl.len() == 2) & (pl.col("kind").n_unique() == 2)).alias("paired"),
        pl.col("comm_size").is_null().all().alias("sizeless"),
        pl.coalesce(pl.col("comm_size").filter(pl.col("kind") == SEND).max(), pl.col("comm_size").max(), 0).alias(
            "new_size"
        ),
    )
    facts = facts.sort(key, nulls_last=True).with_row_index("meeting").with_columns(pl.col("meeting").cast(pl.Int64))
    joined = table.join(facts, on=key, how="left", nulls_equal=True, maintain_order="left")
    reason = (
        pl.when(~(pl.col("paired") & (pl.col("src") != pl.col("dst"))).fill_null(False))
        .then(pl.lit("no other rank has its counterpart"))
        .when("sizeless")
        .then(pl.lit("its size is unknown"))
        .alias("reason")
    )
    good = reason.is_null()
    return joined.with_columns(
        pl.when(good).then("meeting").alias("meeting"),
        pl.max_horizontal("new_size", pl.lit(1)).cast(pl.Int64).alias("new_size"),
        reason,
        pl.col("kind").alias("new_type"),
    ).drop("paired", "sizeless", "tag")


def _substitutions(matched: pl.DataFrame) -> list[Substitution]:
    names = {int(kind): kind.name for kind in CommType}
    found = []
    columns = ["rank", "id", "kind", "comm_type", "new_type", "comm_size", "new_size", "reason"]
    for rank, node, kind, old, new, size, new_size, reason in matched.select(columns).iter_rows():
        before = names.get(old, "unknown communication") if kind == COLLECTIVE else NodeType(kind).name
        if reason is not None:
            found.append(Substitution(rank, node, before, "COMP_NODE of the measured time", reason))
        elif kind == COLLECTIVE and old != new:
            found.append(
                Substitution(rank, node, before, names[new], "ASTRA-sim doesn't simulate it; this is the nearest")
            )
        if reason is None and size != new_size:
            before = f"{before} of {'unknown size' if size is None else format_number_of(size, 'byte')}"
            after = format_number_of(new_size, "byte")
            found.append(Substitution(rank, node, before, after, "sizes must be equal and large enough"))
    return found
