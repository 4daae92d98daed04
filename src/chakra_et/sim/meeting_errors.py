"""Why communications can't meet: who is missing, and whose types or sizes differ.

Shape letters: C communication nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from chakra_et.errors import SimulationError, Waiting
from chakra_et.ir import CommType, NodeType
from chakra_et.sim.communicators import COLLECTIVE, RECV, SEND, Communicators
from chakra_et.sim.fold import Fold
from chakra_et.sim.workload import Workload

__all__ = ["check_meetings", "refuse_missing", "some", "what_it_is", "whose"]

# Rows of a table of what waits; ranks in a message.
_ROWS, _FEW = 20, 8
_NAMES = {int(kind): kind.name.lower() for kind in CommType}


def refuse_missing(workload: Workload, rows: pl.DataFrame, groups: Communicators, missing: list[int]) -> None:
    """Refuse a set that lacks ranks which others communicate with.

    Args:
        workload: All ranks of the set.
        rows: From `match_nodes`.
        groups: The groups.
        missing: The ranks that have no trace; there is at least one.

    Raises:
        SimulationError: Always.
    """
    lost = np.isin(groups.members, missing)
    short = np.unique(np.repeat(np.arange(len(groups.names)), np.diff(groups.seats))[lost])
    waits = pl.col("group").is_in(short.tolist()) | pl.col("src").is_in(missing) | pl.col("dst").is_in(missing)
    first = rows.filter(waits.fill_null(False)).group_by("owner", maintain_order=True).first().sort("owner")
    waiting = [
        _waiting(workload, row, f"rank {some(_absent(row, groups, missing))}, which the set lacks")
        for row in first.head(_ROWS).iter_rows(named=True)
    ]
    raise SimulationError(
        f"expected the traces of all ranks that communicate, got none of rank {some(missing)}; "
        "add them, or mirror missing ranks (--mirror-missing)",
        waiting,
    )


def _absent(row: dict[str, Any], groups: Communicators, missing: list[int]) -> list[int]:
    members = groups.ranks_of(int(row["group"])) if row["group"] is not None else (row["src"], row["dst"])
    return [rank for rank in missing if rank in members]


def check_meetings(workload: Workload, rows: pl.DataFrame, groups: Communicators, fold: Fold) -> None:
    """Refuse meetings that lack participants, or whose participants disagree.

    Args:
        workload: The ranks that stand for all.
        rows: From `match_nodes`.
        groups: The groups of all ranks.
        fold: Which ranks are alike.

    Raises:
        SimulationError: A message has no counterpart, a collective lacks members, or types or sizes differ.
    """
    known = rows.filter(pl.col("meeting").is_not_null())
    sent = pl.col("kind") != COLLECTIVE
    nowhere = rows.filter(sent & pl.col("meeting").is_null())
    lonely = known.filter(sent & ((pl.col("met") != 2) | (pl.col("types") != 2)))
    if not (nowhere.is_empty() and lonely.is_empty()):
        _refuse_messages(workload, pl.concat([nowhere, lonely]))
    short = known.filter(~sent & ((pl.col("met") != pl.col("wanted")) | (pl.col("owners") != pl.col("wanted"))))
    if not short.is_empty():
        _refuse_short(workload, short, groups, fold)
    uneven = known.filter((~sent & (pl.col("types") > 1)) | (pl.col("sizes") > 1))
    if not uneven.is_empty():
        _refuse_uneven(workload, uneven)


def _refuse_messages(workload: Workload, rows: pl.DataFrame) -> None:
    """Refuse sends and receives that meet nothing."""
    waiting = []
    for row in rows.sort("owner", "position").head(_ROWS).iter_rows(named=True):
        peer = row["dst"] if row["kind"] == SEND else row["src"]
        verb = "receive" if row["kind"] == SEND else "send"
        tag = f" and tag {row['tag']}" if row["tag"] else ""
        where = f"rank {peer}" if peer is not None else "a rank that it doesn't name"
        words = f"{verb} {row['seq']} on {where} with peer {row['rank']}{tag}, which isn't there"
        waiting.append(_waiting(workload, row, words))
    sends = rows.filter(pl.col("kind") == SEND).height
    first = waiting[0]
    raise SimulationError(
        f"rank {first.rank}: node {first.node} ('{first.name}'): expected its counterpart, got none "
        f"({first.waits_for}); {sends} sends and {rows.height - sends} receives met nothing: repair the traces",
        waiting,
    )


def _refuse_short(workload: Workload, rows: pl.DataFrame, groups: Communicators, fold: Fold) -> None:
    """Refuse collectives that not every member of the group has once."""
    one = rows.filter(pl.col("meeting") == rows["meeting"].min())
    group = int(one["group"][0])
    members = groups.ranks_of(group)
    classes = fold.classes_of(np.array(members, np.int64))
    there = np.isin(classes, one["owner"].to_numpy())
    lost = [rank for rank, found in zip(members, there.tolist(), strict=True) if not found]
    name, seq = groups.names[group], one["seq"][0]
    where = f"collective {seq} of group '{name}'" if name else f"collective {seq} of all ranks"
    if not lost:
        raise SimulationError(f"{where}: expected it once on each rank, got it twice on rank {one['rank'][0]}")
    words = f"rank {some(lost)}, which has no {where}"
    waiting = [_waiting(workload, row, words) for row in one.head(_ROWS).iter_rows(named=True)]
    present = [rank for rank, found in zip(members, there.tolist(), strict=True) if found]
    raise SimulationError(
        f"{where}: expected it on ranks {some(members)}, got it on {some(present)} only; "
        "the traces must be of the same iterations",
        waiting,
    )


def _refuse_uneven(workload: Workload, rows: pl.DataFrame) -> None:
    """Refuse communications whose participants disagree in type or size."""
    one = rows.filter(pl.col("meeting") == rows["meeting"].min()).sort("owner")
    told = one.filter(pl.col("comm_size").is_not_null()) if (one["sizes"] > 1).any() else one
    first, *others = told.iter_rows(named=True)
    what = ("comm_type", "comm_size") if (one["sizes"] > 1).any() else ("comm_type",)
    other = next(row for row in others if any(row[name] != first[name] for name in what))
    waiting = [_waiting(workload, row, what_it_is(row)) for row in one.head(_ROWS).iter_rows(named=True)]
    raise SimulationError(
        f"{whose(first)}: expected the same type and size on all ranks, got {what_it_is(first)} on rank "
        f"{first['rank']} and {what_it_is(other)} on rank {other['rank']}; repair the traces",
        waiting,
    )


def what_it_is(row: dict[str, Any]) -> str:
    """Say type and size of a row of `match_nodes`."""
    kind = row["kind"]
    name = str(_NAMES.get(row["comm_type"])) if kind == COLLECTIVE else NodeType(kind).name[5:9].lower()
    size = f"{row['comm_size']:,} bytes" if row["comm_size"] is not None else "unknown size"
    return f"{name} of {size}"


def whose(row: dict[str, Any]) -> str:
    """Say which communication a row of `match_nodes` belongs to."""
    if row["kind"] in (SEND, RECV):
        return f"send {row['seq']} from rank {row['src']} to rank {row['dst']}"
    return f"collective {row['seq']} of {group_label(row)}"


def group_label(row: dict[str, Any]) -> str:
    """Name the group of a row of `match_nodes`."""
    return f"group '{row['used']}'" if row["used"] else "all ranks"


def some(ranks: Iterable[int]) -> str:
    """List ranks, the first ones of many."""
    listed = list(ranks)
    text = ", ".join(map(str, listed[:_FEW]))
    return text if len(listed) <= _FEW else f"{text}, ... ({len(listed)} in all)"


def _waiting(workload: Workload, row: dict[str, Any], waits_for: str) -> Waiting:
    rank, node, name = workload.place(int(row["position"]))
    group = str(row["used"] or "") if row["kind"] == COLLECTIVE else f"{row['src']}->{row['dst']}"
    return Waiting(rank, node, name, group, waits_for)
