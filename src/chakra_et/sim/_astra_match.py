"""Which communications ASTRA-sim can simulate: those that meet on every rank. The others keep their measured time.

Shape letters: C communications of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from chakra_et.ir import CommType, NodeType, TraceSet
from chakra_et.sim.communicators import COLLECTIVE, RECV, SEND, find_communicators, find_peers
from chakra_et.sim.fold import no_fold
from chakra_et.sim.meetings import match_nodes
from chakra_et.sim.workload import make_workload
from chakra_et.units import format_number_of

__all__ = ["COLLECTIVE", "NEAREST", "RECV", "SEND", "Substitution", "match"]

# Nearest form of what ASTRA-sim doesn't simulate, by the bytes that cross a ring: a reduce moves as much as a
# reduce-scatter, a gather or scatter as much as an all-gather; a barrier is the smallest all-reduce, as NCCL does it.
NEAREST: dict[CommType, CommType] = {
    CommType.REDUCE: CommType.REDUCE_SCATTER,
    CommType.REDUCE_SCATTER_BLOCK: CommType.REDUCE_SCATTER,
    CommType.GATHER: CommType.ALL_GATHER,
    CommType.SCATTER: CommType.ALL_GATHER,
    CommType.BARRIER: CommType.ALL_REDUCE,
}


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
    workload = make_workload(trace_set, strict=False)
    groups = find_communicators(trace_set, workload.tables, strict=False)
    rows = match_nodes(workload, groups, no_fold(trace_set, groups, find_peers(trace_set, workload.tables)))
    rows = rows.with_columns(
        pl.col("position") - pl.Series(workload.offsets).gather(rows["owner"]),
        size=pl.col("members"),
        members=pl.Series(
            [list(groups.ranks_of(group)) for group in range(len(groups.names))], dtype=pl.List(pl.Int64)
        ).gather(rows["group"].fill_null(0))
        if groups.names
        else pl.lit(None, pl.List(pl.Int64)),
        pg_name=pl.col("used").fill_null(""),
    )
    collective = pl.col("kind") == COLLECTIVE
    sent, collectives = _messages(rows.filter(~collective)), _collectives(rows.filter(collective), splits)
    matched = pl.concat([collectives, sent], how="diagonal").sort("rank", "position")
    matched = matched.with_columns(meeting=pl.when(pl.col("reason").is_null()).then("meeting"))
    return matched, tuple(_substitutions(matched))


def _collectives(rows: pl.DataFrame, splits: int) -> pl.DataFrame:
    nearest = {int(kind): int(NEAREST.get(kind, kind)) for kind in CommType}
    rows = rows.with_columns(
        new_type=pl.col("comm_type").replace_strict(nearest, default=None, return_dtype=pl.Int64),
        new_size=pl.col("comm_size").max().over("meeting").fill_null(0),
    )
    least = pl.when(pl.col("new_type") == int(CommType.ALL_GATHER)).then(splits).otherwise(1)
    sizeless = pl.col("comm_size").is_null().all().over("meeting")
    return rows.with_columns(
        new_size=pl.max_horizontal("new_size", least).cast(pl.Int64),
        reason=pl.when("unknown")
        .then(pl.lit("its type is unknown"))
        .when(pl.col("size") < 2)
        .then(pl.lit("its group has one member"))
        .when((pl.col("met") != pl.col("wanted")) | (pl.col("owners") != pl.col("wanted")))
        .then(pl.lit("not every member of its group has it"))
        .when(pl.col("new_type").n_unique().over("meeting") > 1)
        .then(pl.lit("its type differs between ranks"))
        .when(sizeless & (pl.col("comm_type") != int(CommType.BARRIER)))
        .then(pl.lit("its size is unknown")),
    )


def _messages(rows: pl.DataFrame) -> pl.DataFrame:
    paired = (pl.col("met") == 2) & (pl.col("types") == 2) & (pl.col("src") != pl.col("dst"))
    sent = pl.col("comm_size").filter(pl.col("kind") == SEND).max().over("meeting")
    size = pl.coalesce(sent, pl.col("comm_size").max().over("meeting"), 0)
    return rows.with_columns(
        new_type="kind",
        new_size=pl.max_horizontal(size, pl.lit(1)).cast(pl.Int64),
        reason=pl.when(~(paired & pl.col("meeting").is_not_null()).fill_null(False))
        .then(pl.lit("no other rank has its counterpart"))
        .when(pl.col("comm_size").is_null().all().over("meeting"))
        .then(pl.lit("its size is unknown")),
    )


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
