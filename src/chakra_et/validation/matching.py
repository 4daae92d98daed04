"""Rules across ranks: collectives meet, and sends meet receives.

Shape letters: C communications of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from chakra_et.ir import CommType, TraceSet
from chakra_et.units import format_list
from chakra_et.validation.communication import COLLECTIVE, RECV, SEND, communications, known_groups
from chakra_et.validation.findings import Hits

__all__ = ["RankHits", "all_communications", "check_matching", "unpaired"]

# Collectives whose size is the same on every rank by definition; the others depend on the root or on split sizes.
_EVEN = (
    CommType.ALL_REDUCE,
    CommType.REDUCE,
    CommType.ALL_GATHER,
    CommType.BROADCAST,
    CommType.REDUCE_SCATTER,
    CommType.REDUCE_SCATTER_BLOCK,
)

# A rank (None: the whole set) and what was found there.
RankHits = tuple[int | None, Hits]


def all_communications(trace_set: TraceSet) -> pl.DataFrame:
    """Return the communications of all ranks, [C], with ``rank``, ``members`` (the group's ranks, as text) and ``seq``.

    ``seq`` is `comm_seq`, else the position among the rank's communications of the same group (or peers and tag), in
    time.
    """
    parts = []
    for rank, trace in zip(trace_set.ranks, trace_set, strict=True):
        groups = known_groups(trace, rank, trace_set)
        members = {name: ",".join(map(str, sorted(group.ranks))) for name, group in groups.items()}
        table = communications(trace).sort("issued_ns", "start_ns", "id", nulls_last=True)
        keys = ("type", "pg_name", "comm_src", "comm_dst", "comm_tag")
        position = pl.int_range(pl.len()).over(*keys)
        parts.append(
            table.with_columns(
                pl.lit(rank, pl.Int64).alias("rank"),
                pl.col("pg_name").fill_null(""),
                pl.col("pg_name")
                .fill_null("")
                .replace_strict(members, default="", return_dtype=pl.String)
                .alias("members"),
                pl.coalesce("comm_seq", position).cast(pl.Int64).alias("seq"),
            )
        )
    return pl.concat(parts) if parts else pl.DataFrame()


def check_matching(trace_set: TraceSet) -> Iterator[RankHits]:
    """Compare the communications of the ranks of a set."""
    yield from _missing_ranks(trace_set)
    table = all_communications(trace_set)
    if table.is_empty():
        return
    known = ~pl.col("unknown_comm").fill_null(False)
    yield from _collectives(table.filter((pl.col("type") == COLLECTIVE) & known), set(trace_set.ranks))
    yield from _pairs(table.filter(pl.col("type").is_in([SEND, RECV])), set(trace_set.ranks))


def _missing_ranks(trace_set: TraceSet) -> Iterator[RankHits]:
    present = set(trace_set.ranks)
    groups = [group for trace in trace_set for group in (*trace.process_groups, *trace_set.process_groups)]
    members = {member for group in groups for member in group.ranks}
    missing = sorted((members | set(range(trace_set.world_size))) - present)
    text = f"expected a trace of each of {len(present) + len(missing)} ranks, got none of {format_list(missing)}"
    yield None, Hits("match-missing-rank", [None] * bool(missing), lambda k: text)


def _collectives(table: pl.DataFrame, present: set[int]) -> Iterator[RankHits]:
    group = ("pg_name", "members")
    key = (*group, "seq")
    ordered = table.sort("rank", "issued_ns", "start_ns", "id", nulls_last=True)
    backward = ordered.filter((pl.col("seq") < pl.col("seq").shift(1)).over("rank", *group).fill_null(False))
    yield from _by_rank(
        "match-order", backward, "expected ascending comm_seq in group '{pg_name}', got {seq} after a later one"
    )
    shapes = table.with_columns(
        pl.when(pl.col("comm_type").is_in([int(kind) for kind in _EVEN])).then("comm_size").alias("even_size")
    )
    shuffled = _shuffled(shapes, group)
    yield from _by_rank(
        "match-order", shuffled, "expected the order of rank {first} in group '{pg_name}', got another one"
    )
    shapes = shapes.join(shuffled.select("rank", *group), on=["rank", *group], how="anti")
    for rule, column, what in (("match-type", "comm_type", "comm_type"), ("match-size", "even_size", "comm_size")):
        first = (
            shapes.sort("rank")
            .group_by(key)
            .agg(pl.col("rank").first().alias("first"), pl.col(column).first().alias("expected"))
        )
        joined = shapes.join(first, on=key)
        if rule == "match-size":
            # Of different collectives, the sizes mean different things.
            same = joined.group_by(key).agg((pl.col("comm_type").n_unique() == 1).alias("same")).filter("same")
            joined = joined.join(same, on=key, how="semi")
        odd = joined.filter(pl.col(column).ne_missing(pl.col("expected")))
        yield from _by_rank(
            rule,
            odd,
            f"expected {what} {{expected}} as on rank {{first}}, got {{{column}}}, "
            "in collective {seq} of group '{pg_name}'",
        )
    yield from _incomplete(table, present)


def _shuffled(shapes: pl.DataFrame, group: tuple[str, ...]) -> pl.DataFrame:
    """Return ranks that do the same collectives of a group as its first rank, in another order."""
    shape = pl.struct("comm_type", "even_size")
    lists = (
        shapes.sort("seq")
        .group_by("rank", *group)
        .agg(shape.hash().alias("sequence"), pl.col("id").first(), shape.hash().sort().alias("bag"))
        .sort("rank")
    )
    first = lists.group_by(group, maintain_order=True).agg(
        pl.col("rank").first().alias("first"),
        pl.col("sequence").first().alias("first_sequence"),
        pl.col("bag").first().alias("first_bag"),
    )
    both = lists.join(first, on=list(group))
    return both.filter((pl.col("bag") == pl.col("first_bag")) & (pl.col("sequence") != pl.col("first_sequence")))


def _incomplete(table: pl.DataFrame, present: set[int]) -> Iterator[RankHits]:
    """Report collectives that a present member of the group has not."""
    group = ("pg_name", "members")
    # Without a list of members, those that use the group are its members.
    users = table.select("rank", *group).unique()
    listed_members = (
        table.select(group)
        .unique()
        .filter(pl.col("members") != "")
        .with_columns(pl.col("members").str.split(",").cast(pl.List(pl.Int64)).alias("rank"))
        .explode("rank")
        .filter(pl.col("rank").is_in(list(present)))
        .select("rank", *group)
    )
    expected = pl.concat([users, listed_members]).unique()
    wanted = table.select(*group, "seq").unique().join(expected, on=list(group))
    missing = wanted.join(table, on=["rank", *group, "seq"], how="anti").sort("rank", *group, "seq")
    missing = missing.with_columns(pl.lit(None, pl.UInt64).alias("id"))
    yield from _by_rank(
        "match-unpaired", missing, "expected collective {seq} of group '{pg_name}' as on other ranks, got none"
    )


def unpaired(table: pl.DataFrame) -> pl.DataFrame:
    """Return sends without a receive of the same source, destination, tag and number, and the other way round.

    Args:
        table: Sends and receives, as made by `all_communications`.
    """
    ends = table.with_columns(
        pl.when(pl.col("type") == SEND).then("rank").otherwise("comm_src").cast(pl.Int64).alias("src"),
        pl.when(pl.col("type") == RECV).then("rank").otherwise("comm_dst").cast(pl.Int64).alias("dst"),
        pl.col("comm_tag").fill_null(0).alias("tag"),
    )
    key = ["src", "dst", "tag", "seq"]
    sends, receives = ends.filter(pl.col("type") == SEND), ends.filter(pl.col("type") == RECV)
    lonely = [sends.join(receives, on=key, how="anti"), receives.join(sends, on=key, how="anti")]
    return pl.concat(lonely).sort("rank", "id")


def _pairs(table: pl.DataFrame, present: set[int]) -> Iterator[RankHits]:
    lonely = unpaired(table)
    both = lonely.filter(pl.col("src").is_in(list(present)) & pl.col("dst").is_in(list(present)))
    for kind, other in ((SEND, "receive on rank {dst}"), (RECV, "send on rank {src}")):
        rows = both.filter(pl.col("type") == kind)
        yield from _by_rank("match-unpaired", rows, f"expected a {other} with tag {{tag}} and number {{seq}}, got none")
    sizes = table.with_columns(
        pl.when(pl.col("type") == SEND).then("rank").otherwise("comm_src").alias("src"),
        pl.when(pl.col("type") == RECV).then("rank").otherwise("comm_dst").alias("dst"),
        pl.col("comm_tag").fill_null(0).alias("tag"),
    )
    key = ["src", "dst", "tag", "seq"]
    sent = sizes.filter(pl.col("type") == SEND).select(*key, pl.col("comm_size").alias("expected"))
    odd = sizes.filter(pl.col("type") == RECV).join(sent, on=key)
    odd = odd.filter(pl.col("comm_size").ne_missing(pl.col("expected")))
    yield from _by_rank("match-size", odd, "expected comm_size {expected} as sent by rank {src}, got {comm_size}")


def _by_rank(rule: str, rows: pl.DataFrame, text: str) -> Iterator[RankHits]:
    """Yield the rows of each rank; `text` is filled with a row's columns."""
    for (rank,), part in rows.sort("rank", "seq" if "seq" in rows.columns else "rank").group_by(
        "rank", maintain_order=True
    ):
        dicts = part.select([name for name in part.columns if f"{{{name}}}" in text] or ["rank"])
        yield (
            int(str(rank)),
            Hits(rule, part["id"].to_list(), lambda k, dicts=dicts: text.format(**dicts.row(k, named=True))),  # type: ignore[misc]
        )
