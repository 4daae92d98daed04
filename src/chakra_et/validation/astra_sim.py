"""What ASTRA-sim 2.0 needs of a trace set, so that it neither aborts nor hangs silently."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from chakra_et.ir import CommType, NodeType, Trace, TraceSet, build_graph
from chakra_et.units import format_list
from chakra_et.validation.communication import COLLECTIVE, RECV, SEND, communications, known_groups
from chakra_et.validation.findings import Hits, one
from chakra_et.validation.matching import RankHits, all_communications

__all__ = ["check_astra_rank", "check_astra_set"]

SUPPORTED = (
    CommType.ALL_REDUCE,
    CommType.ALL_GATHER,
    CommType.BROADCAST,
    CommType.ALL_TO_ALL,
    CommType.REDUCE_SCATTER,
)
# `preferred-dataset-splits` that ASTRA-sim's own examples and `chakra export` use: smaller all-gathers never end.
SPLITS = 4
_LARGEST_TAG = 500_000_000


def check_astra_rank(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """Check one rank's nodes."""
    graph = build_graph(trace)
    if not (graph.indptr[1:] == graph.indptr[:-1]).any():
        yield one("astra-root", "expected a node without dependencies, got none")
    types = trace.nodes["type"].fill_null(0)
    bad = (
        trace.nodes.filter(types.is_in([int(NodeType.INVALID_NODE), int(NodeType.METADATA_NODE)]))
        .select("id", "type")
        .rows()
    )
    yield Hits(
        "astra-type",
        [row[0] for row in bad],
        lambda k: f"expected a compute, memory or communication node, got {NodeType(bad[k][1] or 0).name}",
    )
    host = trace.nodes["is_cpu_op"].fill_null(False)
    table = communications(trace)
    on_host = table.filter(pl.col("is_cpu_op").fill_null(False))["id"].to_list()
    yield Hits("astra-comm-cpu", on_host, lambda k: "expected is_cpu_op false on a communication, got true")
    count = int((host & ~types.is_in([COLLECTIVE, SEND, RECV])).sum())
    if count:
        yield one("astra-cpu-op", f"expected no host operators if statistics are wanted, got {count} of them")
    yield from _priorities(trace)
    yield from _collectives(table)
    yield from _ends(table, rank, trace_set.world_size)
    yield from _groups(table, trace, rank, trace_set)
    lacking = _without_work(trace, host, types)
    if lacking:
        yield one(
            "astra-roofline",
            f"expected num_ops and tensor_size on compute nodes for the roofline model, got {lacking} without",
        )


def _without_work(trace: Trace, host: pl.Series, types: pl.Series) -> int:
    work = (trace.column("num_ops").fill_null(0) > 0) & (trace.column("tensor_size").fill_null(0) > 0)
    return int(((types == int(NodeType.COMP_NODE)) & ~host & ~work).sum())


def _priorities(trace: Trace) -> Iterator[Hits]:
    """ASTRA-sim issues free nodes by ascending id: ids should follow time."""
    nodes = trace.nodes.select("id", "start_ns").drop_nulls().sort("id")
    back = nodes.filter((pl.col("start_ns") < pl.col("start_ns").cum_max().shift(1)).fill_null(False))
    if back.height:
        first = int(back["id"][0])
        yield one(
            "astra-id-order",
            f"expected ids that ascend with time, got {back.height} nodes that start before a lower id",
            first,
        )


def _collectives(table: pl.DataFrame) -> Iterator[Hits]:
    rows = table.filter(pl.col("type") == COLLECTIVE)
    supported = pl.col("comm_type").is_in([int(kind) for kind in SUPPORTED]).fill_null(False)
    bad = rows.filter(~supported).select("id", "comm_type").rows()
    names = {int(kind): kind.name for kind in CommType}
    yield Hits(
        "astra-collective",
        [row[0] for row in bad],
        lambda k: (
            f"expected one of {format_list(kind.name for kind in SUPPORTED)}, got {names.get(bad[k][1], bad[k][1])}"
        ),
    )
    least = pl.when(pl.col("comm_type") == int(CommType.ALL_GATHER)).then(SPLITS).otherwise(1).alias("least")
    small = (
        rows.with_columns(least)
        .filter(pl.col("comm_size").fill_null(0) < pl.col("least"))
        .select("id", "least", "comm_size")
        .rows()
    )
    yield Hits(
        "astra-size",
        [row[0] for row in small],
        lambda k: (
            f"expected comm_size of at least {small[k][1]} bytes, got {'none' if small[k][2] is None else small[k][2]}"
        ),
    )


def _ends(table: pl.DataFrame, rank: int, world_size: int) -> Iterator[Hits]:
    for kind, other, own in ((SEND, "comm_dst", "comm_src"), (RECV, "comm_src", "comm_dst")):
        ends = table.filter(pl.col("type") == kind)
        for column, good, expected in (
            (
                other,
                pl.col(other).is_between(0, world_size - 1) & (pl.col(other) != rank),
                f"another rank below {world_size}",
            ),
            (own, pl.col(own).is_null() | (pl.col(own) == rank), f"{rank} or nothing"),
            ("comm_tag", pl.col("comm_tag").is_between(0, _LARGEST_TAG - 1), f"a number below {_LARGEST_TAG}"),
            ("comm_size", pl.col("comm_size") >= 1, "at least 1 byte"),
        ):
            bad = ends.filter(~good.fill_null(False)).select("id", column).rows()
            yield Hits(
                "astra-peer",
                [row[0] for row in bad],
                lambda k, bad=bad, column=column, expected=expected: (  # type: ignore[misc]
                    f"expected {column} to be {expected}, got {'none' if bad[k][1] is None else bad[k][1]}"
                ),
            )


def _groups(table: pl.DataFrame, trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    groups = known_groups(trace, rank, trace_set)
    rows = table.filter((pl.col("type") == COLLECTIVE) & ~pl.col("pg_name").fill_null("").is_in(["", "0"]))
    texts: dict[str, str] = {}
    for name in rows["pg_name"].unique().to_list():
        group = groups.get(name)
        if not (name.isascii() and name.isdigit()) or len(name) > 18:
            texts[name] = f"expected a number as pg_name, got '{name}'"
        elif group is None or not group.ranks:
            texts[name] = f"expected a group with known ranks, got '{name}' without"
        elif len(group.ranks) < 2:
            texts[name] = f"expected a group of 2 or more ranks, got '{name}' of {len(group.ranks)}"
        elif rank not in group.ranks:
            texts[name] = (
                f"expected a group with rank {rank} in it, got '{name}' of the ranks {format_list(group.ranks)}"
            )
    bad = rows.filter(pl.col("pg_name").is_in(list(texts))).select("id", "pg_name").rows()
    yield Hits("astra-group", [row[0] for row in bad], lambda k: texts[bad[k][1]])


def check_astra_set(trace_set: TraceSet) -> Iterator[RankHits]:
    """Check that the ranks fit together: one trace a rank, equal orders and sizes, sends with receives."""
    ranks = sorted(trace_set.ranks)
    if ranks != list(range(trace_set.world_size)) or len(ranks) < 2:
        text = f"expected traces of 2 or more ranks, numbered from 0 without holes, got {format_list(ranks) or 'none'}"
        yield None, one("astra-rank", text)
    table = all_communications(trace_set)
    if table.is_empty():
        return
    # ASTRA-sim matches collectives by their order on each rank, whatever their numbers: "0" is the default group.
    table = table.with_columns(pl.col("pg_name").replace("0", "").alias("group")).sort(
        "rank", "start_ns", "id", nulls_last=True
    )
    yield from _orders(table.filter(pl.col("type") == COLLECTIVE), set(ranks))
    yield from _messages(table.filter(pl.col("type").is_in([SEND, RECV])))


def _orders(table: pl.DataFrame, ranks: set[int]) -> Iterator[RankHits]:
    shape = pl.struct("comm_type", "comm_size")
    lists = table.group_by("group", "members", "rank", maintain_order=True).agg(
        shape.hash().alias("shapes"), pl.len().alias("count")
    )
    for (group, members), part in lists.sort("rank").group_by("group", "members", maintain_order=True):
        wanted = {int(member) for member in str(members).split(",") if member} or (
            ranks if group == "" else set(part["rank"])
        )
        first, shapes = int(part["rank"][0]), part["shapes"][0].to_list()
        for rank, own, count in part.select("rank", "shapes", "count").iter_rows():
            if own != shapes:
                wanted_text = (
                    f"the types, sizes and order of rank {first} ({len(shapes)} collectives) in group '{group}'"
                )
                text = f"expected {wanted_text}, got {count} others"
                yield int(rank), one("astra-order", text)
        for rank in sorted(wanted & ranks - set(part["rank"])):
            yield (
                rank,
                one(
                    "astra-order", f"expected the {len(shapes)} collectives of group '{group}' on each member, got none"
                ),
            )


def _messages(table: pl.DataFrame) -> Iterator[RankHits]:
    """Match by tag, source, destination and size, in whatever order, as ASTRA-sim does."""
    key = ["comm_tag", "src", "dst", "comm_size"]
    ends = table.with_columns(
        pl.when(pl.col("type") == SEND).then("rank").otherwise("comm_src").alias("src"),
        pl.when(pl.col("type") == RECV).then("rank").otherwise("comm_dst").alias("dst"),
    )
    counts = ends.group_by(key).agg(
        (pl.col("type") == SEND).sum().cast(pl.Int64).alias("sends"),
        (pl.col("type") == RECV).sum().cast(pl.Int64).alias("receives"),
    )
    for tag, src, dst, size, sends, receives in (
        counts.filter(pl.col("sends") != pl.col("receives")).sort(key).iter_rows()
    ):
        what = f"of {size} bytes from rank {src} to rank {dst} with tag {tag}"
        text = f"expected as many sends as receives {what}, got {sends} and {receives}"
        yield (src if sends > receives else dst), one("astra-message", text)
