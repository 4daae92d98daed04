"""Which communication nodes meet: those of one collective, and a send with its receive.

Collectives meet by process group and position in it, sends and receives by source, destination, tag and position among
those. The position is `comm_seq`, or where that is absent the order of issue: by start, else by the trace's order.

With folded ranks, the nodes are those of the ranks that stand for others; of a group, each class meets once.

Shape letters: C communication nodes, M meetings, P participants, R ranks of the workload, G groups, H pairs of a rank
and a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.order import issue_order
from chakra_et.ir import CommType
from chakra_et.ir.arrays import list_series
from chakra_et.ir.columns import SCHEMA
from chakra_et.sim.communicators import COLLECTIVE, SEND, Communicators, communication_rows
from chakra_et.sim.fold import Fold
from chakra_et.sim.workload import Workload

__all__ = ["UNEVEN", "Meetings", "make_meetings", "match_nodes"]

Int = npt.NDArray[np.int64]

# Sizes of these may differ between ranks by nature (uneven splits, roots).
UNEVEN = [int(kind) for kind in (CommType.ALL_TO_ALL, CommType.GATHER, CommType.SCATTER, CommType.BARRIER)]
_COLUMNS = ("comm_type", "comm_size", "comm_dtype", "comm_seq", "comm_src", "comm_dst", "comm_tag", "comm_root",
            "pg_name", "in_split_sizes", "unknown_comm")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Meetings:
    """The communications that ranks take part in together.

    Attributes:
        table: [M] rows: ``kind`` (``collective`` or ``send``), ``comm_type`` (null for sends), ``size_bytes``
            (`comm_size`, the largest where ranks differ; null if unknown), ``members`` (global ranks in group order; of
            a send, source and destination), ``root`` (global rank or null), ``send_bytes`` (bytes from each member to
            each member, of an uneven all-to-all; else null), ``pg_name``, ``description``, ``comm_dtype``, ``seq``,
            ``group`` (its number among the groups; null for sends), ``pair`` (the kind of pair of a send).
        seats: int64 [M + 1]: where each one's participants begin.
        nodes: int64 [P]: positions of the nodes in the workload.
        single: int64: positions of communications of groups of one.
        unknown: int64: positions of communications whose partners or type are unknown.
    """

    table: pl.DataFrame
    seats: Int
    nodes: Int
    single: Int
    unknown: Int

    @property
    def rooms(self) -> Int:
        """The meeting of each participant, int64 [P]."""
        return np.repeat(np.arange(len(self.seats) - 1), np.diff(self.seats))


def match_nodes(workload: Workload, groups: Communicators, fold: Fold) -> pl.DataFrame:
    """Find which nodes meet; nothing is refused.

    Args:
        workload: The ranks that stand for all.
        groups: The groups of all ranks, see `find_communicators`.
        fold: Which ranks are alike; the workload has its leaders.

    Returns:
        [C] rows, those of one meeting together, sends before receives, members of a group in its order: ``owner``
        (index of the rank), ``id``, ``position`` (in the workload), ``kind`` (node type), the communication columns,
        ``unknown`` (type or group unknown), ``group`` (null for sends and receives), ``members`` (how many the group
        has; 2), ``src``, ``dst``, ``seq``, ``meeting`` (null where unknown), ``met`` (how many nodes meet), ``wanted``
        (how many should), ``owners`` (of how many ranks), ``types``, ``sizes`` (how many different ones there are).
    """
    rows = _rows(workload, groups.strict)
    rows = rows.join(_seats(workload, groups, fold), on=["owner", "used"], how="left", maintain_order="left")
    rows = rows.join(fold.pairs, on=["src", "dst"], how="left", maintain_order="left")
    sent = pl.col("kind") != COLLECTIVE
    rows = rows.with_columns(
        key=pl.when(sent).then("pair").otherwise("group_kind"),
        seat=pl.when(sent).then(pl.col("kind") - SEND).otherwise("seat"),
        members=pl.when(sent).then(2).otherwise("members"),
        wanted=pl.when(sent).then(2).otherwise("wanted"),
    )
    unknown = pl.col("unknown") | pl.col("key").is_null()
    rows = rows.with_columns(unknown=unknown).sort(
        sent, "key", "tag", "seq", "seat", "owner", nulls_last=True, maintain_order=True
    )
    meeting = pl.struct(sent, "key", "tag", "seq").rle_id().cast(pl.Int64)
    rows = rows.with_columns(meeting=pl.when(~pl.col("unknown")).then(meeting))
    even = ~pl.col("comm_type").is_in(UNEVEN).fill_null(False)
    return rows.with_columns(
        met=pl.len().over("meeting"),
        owners=pl.struct("owner", sent).n_unique().over("meeting"),
        types=pl.struct("kind", "comm_type").n_unique().over("meeting"),
        sizes=pl.when(even).then("comm_size").drop_nulls().n_unique().over("meeting"),
    )


def _rows(workload: Workload, strict: bool) -> pl.DataFrame:
    """Return the communication nodes in order of issue, with what tells whom they meet."""
    table = _columns(workload, strict)
    start = table["start_ns"]
    if (start.is_null() & table["comm_seq"].is_null()).any():
        table = table.with_columns(place=pl.Series(_places(workload)[table["position"].to_numpy()]))
    else:
        table = table.with_columns(place="position")
    collective = pl.col("kind") == COLLECTIVE
    table = table.sort("owner", "start_ns", "place", nulls_last=True).with_columns(
        # In a collected trace, nobody knows whom a collective without a group meets.
        used=pl.when(collective & ~pl.col("collected")).then(pl.col("pg_name").fill_null("")).otherwise("pg_name"),
        src=pl.when(pl.col("kind") == SEND).then("rank").when(~collective).then("comm_src"),
        dst=pl.when(~collective & (pl.col("kind") != SEND)).then("rank").when(~collective).then("comm_dst"),
        tag=pl.when(collective).then(0).otherwise(pl.col("comm_tag").fill_null(0)),
        unknown=pl.col("unknown_comm") | (collective & pl.col("comm_type").is_null()),
    )
    table = table.with_columns(used=pl.when(collective).then("used"))
    line = ["owner", "kind", "used", "src", "dst", "tag", "unknown"]
    told = pl.col("comm_seq").is_not_null().all().over(line)
    turn = pl.int_range(pl.len(), dtype=pl.Int64).over(line)
    return table.with_columns(seq=pl.when(told).then("comm_seq").otherwise(turn))


def _places(workload: Workload) -> Int:
    """Return each node's place in the order of issue, int64 [N]."""
    nodes = np.arange(workload.node_count, dtype=np.int64)
    if (workload.preds < np.repeat(nodes, np.diff(workload.indptr))).all():
        return nodes
    found: Int = issue_order(workload.indptr, workload.preds)
    return found


def _columns(workload: Workload, strict: bool) -> pl.DataFrame:
    """Return the columns that matter, of communication nodes only."""
    tables = workload.tables
    rows = communication_rows(tables)
    absent = (pl.lit(None, SCHEMA[name]).alias(name) for name in _COLUMNS if name not in rows.columns)
    collected = [number for number, trace in enumerate(tables.traces) if trace.metadata.family == "collected"]
    rows = rows.with_columns(absent).select(
        "table",
        "id",
        pl.col("row").alias("position"),
        pl.col("type").cast(pl.Int64).alias("kind"),
        "start_ns",
        *_COLUMNS,
        pl.col("table").is_in(collected if strict else []).alias("collected"),
    )
    ranks = pl.DataFrame(
        {
            "table": tables.use,
            "owner": np.arange(len(tables.use), dtype=np.int64),
            "rank": workload.ranks,
            "first": workload.offsets[:-1],
        }
    )
    rows = ranks.join(rows, on="table", maintain_order="left_right")
    return rows.with_columns(pl.col("position") + pl.col("first"), pl.col("unknown_comm").fill_null(False))


def _seats(workload: Workload, groups: Communicators, fold: Fold) -> pl.DataFrame:
    """Return for each leader and name: the group, its kind, number of members and of classes, and the leader's seat."""
    leaders = fold.leaders
    count = np.diff(groups.offsets)[leaders]
    owner = np.repeat(np.arange(len(leaders)), count)
    pair = np.arange(len(owner)) + np.repeat(groups.offsets[leaders] - np.cumsum(count) + count, count)
    group = groups.groups[pair]
    sizes = np.diff(groups.seats)
    room = np.repeat(np.arange(len(sizes)), sizes)
    # Group and member as one number; first seats win where a member is listed twice.
    top = int(max(groups.members.max(initial=0), workload.ranks.max())) + 1
    keys = room * top + groups.members
    order = np.argsort(keys, kind="stable")
    wanted = group * top + workload.ranks[owner]
    slot = np.minimum(np.searchsorted(keys, wanted, sorter=order), max(len(keys) - 1, 0))
    seat = (order[slot] if len(keys) else slot) - groups.seats[group]
    return pl.DataFrame(
        {
            "owner": owner,
            "used": [groups.used[number] for number in pair.tolist()],
            "group": group,
            "group_kind": fold.kinds[group],
            "members": sizes[group],
            "wanted": _classes(groups, fold)[group],
            "seat": seat,
        },
        schema_overrides={"used": pl.String},
    )


def _classes(groups: Communicators, fold: Fold) -> Int:
    """Return the number of classes among each group's members, int64 [G]."""
    sizes = np.diff(groups.seats)
    if len(fold.leaders) == len(fold.classes) or not len(sizes):
        return sizes
    room = np.repeat(np.arange(len(sizes)), sizes)
    return np.bincount(np.unique(room * len(fold.leaders) + fold.classes_of(groups.members)) // len(fold.leaders))


def make_meetings(rows: pl.DataFrame, groups: Communicators, fold: Fold) -> Meetings:
    """Put the rows of one meeting together.

    Args:
        rows: What `match_nodes` found, with every meeting complete.
        groups: The groups of all ranks.
        fold: Which ranks are alike.
    """
    known = pl.col("meeting").is_not_null()
    several = (pl.col("members") > 1) | (pl.col("kind") != COLLECTIVE)
    met, single = rows.filter(known & several), rows.filter(known & ~several)
    met = met.with_columns(meeting=pl.col("meeting").rle_id().cast(pl.Int64))
    first = met.group_by("meeting", maintain_order=True).agg(
        pl.len().alias("count"),
        pl.col("kind", "comm_type", "group", "src", "dst", "seq", "pg_name", "pair").first(),
        pl.col("comm_root", "comm_dtype").drop_nulls().first(),
        pl.col("comm_size").max().alias("size_bytes"),
    )
    seats = np.zeros(first.height + 1, np.int64)
    np.cumsum(first["count"].to_numpy(), out=seats[1:])
    collective = pl.col("kind") == COLLECTIVE
    table = first.select(
        pl.when(collective).then(pl.lit("collective")).otherwise(pl.lit("send")).alias("kind"),
        pl.when(collective).then("comm_type").alias("comm_type"),
        "size_bytes",
        _members(first, groups),
        pl.col("comm_root").alias("root"),
        _sent(met, first.height, groups, fold),
        pl.col("pg_name"),
        pl.Series("description", [groups.descriptions[g] if g is not None else "" for g in first["group"]], pl.String),
        "comm_dtype",
        "seq",
        "group",
        "pair",
    )
    unknown = rows.filter(~known)["position"]
    positions = (part.to_numpy().copy() for part in (met["position"], single["position"], unknown))
    return Meetings(table, seats, *positions)


def _members(first: pl.DataFrame, groups: Communicators) -> pl.Series:
    """Return the members of each meeting, in group order; of a send, source and destination."""
    group = first["group"].fill_null(-1).to_numpy()
    pairs = np.stack([first["src"].fill_null(0).to_numpy(), first["dst"].fill_null(0).to_numpy()], axis=1)
    sizes = np.where(group >= 0, np.diff(groups.seats)[group] if len(groups.names) else 0, 2)
    offsets = np.zeros(len(group) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    # Groups stand behind one another, then the pairs.
    begin = np.where(group >= 0, groups.seats[group], len(groups.members) + 2 * np.arange(len(group)))
    values = np.concatenate((groups.members, pairs.ravel()))
    index = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], sizes)
    return list_series("members", offsets, values[index])


def _sent(met: pl.DataFrame, count: int, groups: Communicators, fold: Fold) -> pl.Series:
    """Return the bytes from each member to each member, where splits are uneven; null elsewhere."""
    uneven = met.filter((pl.col("comm_type") == int(CommType.ALL_TO_ALL)) & (pl.col("kind") == COLLECTIVE))
    uneven = uneven.filter(pl.col("in_split_sizes").is_not_null().any().over("meeting"))
    kind = pl.List(pl.Int64)
    if uneven.is_empty():
        none: pl.Series = pl.Series("send_bytes", [None], pl.List(kind)).new_from_index(0, count)
        return none
    uneven = uneven.with_columns(
        split=pl.col("in_split_sizes").str.json_decode(pl.List(pl.Float64)),
        even=pl.lit(1.0).repeat_by("members"),
    )
    told = (pl.col("split").list.len() == pl.col("members")) & (pl.col("split").list.sum() > 0)
    uneven = uneven.with_columns(share=pl.when(told).then("split").otherwise("even"))
    amount = pl.col("share") * (pl.col("comm_size").fill_null(0) / pl.col("share").list.sum())
    uneven = uneven.with_columns(sent=amount).with_columns(pl.col("sent").list.eval(pl.element().round()).cast(kind))
    lists = uneven.group_by("meeting", maintain_order=True).agg("sent", "owner", pl.col("group").first())
    sent = [
        # Of a class of ranks, one has brought its splits for all.
        [rows[owners.index(owner)] for owner in fold.classes_of(np.array(groups.ranks_of(group))).tolist()]
        for rows, owners, group in lists.select("sent", "owner", "group").iter_rows()
    ]
    table = pl.DataFrame({"meeting": lists["meeting"], "send_bytes": pl.Series(sent, dtype=pl.List(kind))})
    every = pl.DataFrame({"meeting": pl.int_range(count, dtype=pl.Int64, eager=True)})
    return every.join(table, on="meeting", how="left", maintain_order="left")["send_bytes"]
