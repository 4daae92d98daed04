"""Join the operators of an execution trace with those of a Kineto profile.

By record function id where both files have it; else by the profile's ``External id`` at an offset found by voting; else by thread,
name and order. Every pair is checked by name.

Shape letters: E host events, N execution-trace nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import MismatchError
from chakra_et.frontends.pytorch.comm_records import parse_records
from chakra_et.frontends.pytorch.parse_et import HostTrace
from chakra_et.frontends.pytorch.parse_kineto import RUNTIME, KinetoProfile
from chakra_et.frontends.pytorch.timeline import HostTimeline

__all__ = ["Join", "join_hosts"]

Int = npt.NDArray[np.int64]
_ENOUGH = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """Pairs of host events and execution-trace nodes.

    Attributes:
        node: int64 [E], row of the execution trace, -1 if none.
        method: ``rf_id``, ``external_id+K`` or ``order``.
        matched: Joined operators.
        operators: Operators of the execution trace that could be joined.
    """

    node: Int
    method: str
    matched: int
    operators: int


def join_hosts(host: HostTrace, profile: KinetoProfile, timeline: HostTimeline) -> Join:
    """Join two host sides and check that they belong together.

    Raises:
        MismatchError: The two files plainly come from different runs, or from different ranks.
    """
    _check_ranks(host, profile)
    nodes = host.nodes.with_row_index("node").filter(~pl.col("name").str.starts_with("[pytorch|profiler|"))
    nodes = nodes.filter(pl.col("name") != "## process_group:init ##").select("node", "name", "rf_id", "tid", "id")
    events = (
        timeline.frame.select("name", "rf_id", "external_id", "kind")
        .with_row_index("event")
        .with_columns(thread=pl.Series(timeline.thread))
        .filter(pl.col("kind") != RUNTIME)
    )
    best = _join_by_rf_id(nodes, events)
    method = "rf_id"
    if best.height < _ENOUGH * min(nodes.height, events.height):
        offset = _vote(nodes, events)
        if offset is not None:
            shifted = events.with_columns(rf_id=pl.col("external_id") - offset)
            candidate = _join_by_rf_id(nodes, shifted)
            if candidate.height > best.height:
                best, method = candidate, f"external_id{-offset:+d}"
    if best.height < _ENOUGH * min(nodes.height, events.height):
        candidate = _join_by_order(nodes, events)
        if candidate.height > best.height:
            best, method = candidate, "order"
    _check_share(host, profile, nodes, events, best.height)
    node = np.full(len(timeline.thread), -1, np.int64)
    node[best["event"].to_numpy()] = best["node"].to_numpy()
    return Join(node, method, best.height, nodes.height)


def _join_by_rf_id(nodes: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    left = events.filter(pl.col("rf_id") > 0).unique("rf_id", keep="first", maintain_order=True)
    right = nodes.filter(pl.col("rf_id") > 0).unique("rf_id", keep="first", maintain_order=True)
    return left.join(right, on=["rf_id", "name"], how="inner").select("event", "node")


def _vote(nodes: pl.DataFrame, events: pl.DataFrame) -> int | None:
    """Find the most common ``External id - rf_id`` among operators whose names are equally often, and rarely, in both."""
    left = events.filter(pl.col("external_id") > 0).sort("external_id")
    left = left.with_columns(turn=pl.int_range(pl.len()).over("name"), times=pl.len().over("name"))
    right = nodes.filter(pl.col("rf_id") > 0).sort("rf_id")
    right = right.with_columns(turn=pl.int_range(pl.len()).over("name"), times=pl.len().over("name"))
    pairs = left.join(right, on=["name", "turn", "times"], how="inner")
    rare = pairs.filter(pl.col("times") <= 8)
    votes = (pairs if rare.height < 3 else rare).select((pl.col("external_id") - pl.col("rf_id_right")).alias("offset"))
    if not votes.height:
        return None
    return int(votes["offset"].value_counts(sort=True)["offset"][0])


def _join_by_order(nodes: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Pair the k-th operator of a name with the k-th of that name; names that are not equally often in both are left out."""
    left = events.with_columns(turn=pl.int_range(pl.len()).over("name"), times=pl.len().over("name"))
    right = nodes.sort("id").with_columns(turn=pl.int_range(pl.len()).over("name"), times=pl.len().over("name"))
    return left.join(right, on=["name", "turn", "times"], how="inner").select("event", "node")


def _check_ranks(host: HostTrace, profile: KinetoProfile) -> None:
    rank = host_rank(host)
    if rank is not None and profile.rank is not None and rank != profile.rank:
        raise MismatchError(
            f"{host.path}: expected the execution trace of rank {profile.rank}, like {profile.path}, got rank {rank}'s; "
            "pair each rank's files"
        )


def host_rank(host: HostTrace) -> int | None:
    """Return the rank that the trace's communication records name, or None."""
    ranks = {record.rank for record in parse_records(host.nodes).values() if record.name not in ("wait", "init")}
    ranks.discard(None)
    return ranks.pop() if len(ranks) == 1 else None


def _check_share(
    host: HostTrace, profile: KinetoProfile, nodes: pl.DataFrame, events: pl.DataFrame, matched: int
) -> None:
    fewer = min(nodes.height, events.height)
    if fewer == 0:
        return
    why = ""
    if matched < 0.6 * max(nodes.height, events.height):
        why = (
            f"only {matched} of {nodes.height} operators of the one and {events.height} of the other are the same "
            f"({100 * matched / fewer:.0f} % by id or order, and name)"
        )
    if why:
        raise MismatchError(
            f"{host.path}: expected the host side of the same run as {profile.path}, got another run: {why}; "
            "convert each file alone, or capture both over the same steps"
        )
