"""Join the operators of an execution trace with those of a Kineto profile.

By record function id where both files have it; else by the profile's ``External id`` at an offset found by voting;
else by name and order; else as a stretch of equal names on a thread. Every pair is checked by name.

Shape letters: E host events, N execution-trace nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import MismatchError
from chakra_et.frontends.pytorch.comm_records import parse_records
from chakra_et.frontends.pytorch.names import HOST_COMM, is_point_to_point
from chakra_et.frontends.pytorch.parse_et import HostTrace
from chakra_et.frontends.pytorch.parse_kineto import RUNTIME, KinetoProfile
from chakra_et.frontends.pytorch.timeline import HostTimeline

__all__ = ["Join", "join_hosts", "refuse_other_rank"]

Int = npt.NDArray[np.int64]
_ENOUGH = 0.5
_ENOUGH_TO_ACCEPT = 0.6
_NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """Pairs of host events and execution-trace nodes.

    Attributes:
        node: int64 [E], row of the execution trace, -1 if none.
        method: ``rf_id``, ``external_id = rf_id +K``, ``order`` or ``sequence``.
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
        MismatchError: The two files plainly come from different runs.
    """
    nodes = host.nodes.with_row_index("node").filter(~pl.col("name").str.starts_with("[pytorch|profiler|"))
    nodes = nodes.filter(pl.col("name") != "## process_group:init ##", ~pl.col("name").str.contains(HOST_COMM.pattern))
    nodes = nodes.select("node", "name", "rf_id", "tid", "id")
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
                best, method = candidate, f"external_id = rf_id {offset:+d}"
    # PyTorch 2.3 counts what it shows in the profile, and the offset drifts.
    if best.height < _NEARLY_ALL * min(nodes.height, events.height):
        candidate = _join_by_order(nodes, events)
        if candidate.height > best.height:
            best, method = candidate, "order"
    if best.height < _ENOUGH_TO_ACCEPT * min(nodes.height, events.height):
        candidate = _join_by_sequence(nodes, events)
        if candidate.height > best.height:
            best, method = candidate, "sequence"
    _check_share(host, profile, nodes, events, best.height)
    node = np.full(len(timeline.thread), -1, np.int64)
    node[best["event"].to_numpy()] = best["node"].to_numpy()
    return Join(node, method, best.height, nodes.height)


def _join_by_rf_id(nodes: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    left = events.filter(pl.col("rf_id") > 0).unique("rf_id", keep="first", maintain_order=True)
    right = nodes.filter(pl.col("rf_id") > 0).unique("rf_id", keep="first", maintain_order=True)
    return left.join(right, on=["rf_id", "name"], how="inner").select("event", "node")


def _vote(nodes: pl.DataFrame, events: pl.DataFrame) -> int | None:
    """Find the offset ``External id - rf_id`` under which most operators have equal names.

    Candidates are small offsets, and what pairs of operators with rare names vote for.
    """
    left = events.filter(pl.col("external_id") > 0)
    right = nodes.filter(pl.col("rf_id") > 0)
    if not left.height or not right.height:
        return None
    votes = _rare_pairs(left, right).select(offset=pl.col("external_id") - pl.col("rf_id")).to_series()
    frequent = votes.value_counts(sort=True)["offset"].head(8).to_list() if len(votes) else []
    most = int(max(left["external_id"].max(), right["rf_id"].max())) + 1  # type: ignore[arg-type, type-var]
    if most > 50_000_000:
        return int(frequent[0]) if frequent else None
    names = pl.concat([left["name"], right["name"]]).rank("dense").to_numpy().astype(np.int64)
    table = np.zeros(most + 64, np.int64)
    table[left["external_id"].to_numpy()[::-1]] = names[: left.height][::-1]
    ids, wanted = right["rf_id"].to_numpy(), names[left.height :]
    best, score = None, 0
    for offset in dict.fromkeys([*frequent, *range(33), *range(-32, 0)]):
        at = ids + offset
        inside = (at > 0) & (at < len(table))
        hits = int((table[at[inside]] == wanted[inside]).sum())
        if hits > score:
            best, score = int(offset), hits
    return best


def _rare_pairs(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Pair operators whose names are equally often, and rarely, in both files, in order."""
    parts = []
    for frame, key in ((left, "external_id"), (right, "rf_id")):
        ordered = frame.sort(key)
        parts.append(ordered.select("name", key, turn=pl.int_range(pl.len()).over("name"), times=pl.len().over("name")))
    return parts[0].filter(pl.col("times") <= 8).join(parts[1], on=["name", "turn", "times"], how="inner")


def _join_by_order(nodes: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Pair the k-th operator of a name with the k-th of that name, where both files have equally many."""
    left = events.with_columns(turn=pl.int_range(pl.len()).over("name"), times=pl.len().over("name"))
    right = nodes.sort("id").with_columns(turn=pl.int_range(pl.len()).over("name"), times=pl.len().over("name"))
    return left.join(right, on=["name", "turn", "times"], how="inner").select("event", "node")


def _join_by_sequence(nodes: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Find the operators of each thread of the execution trace, in order, as a stretch of a thread of the profile.

    That is how an execution trace of one step belongs to a profile of many: to the first stretch that is the same.
    """
    codes = pl.concat([nodes["name"], events["name"]]).rank("dense").cast(pl.UInt32)
    nodes = nodes.with_columns(code=codes.head(nodes.height)).sort("id")
    events = events.with_columns(code=codes.tail(events.height))
    threads = {number: part for (number,), part in events.partition_by("thread", as_dict=True).items()}
    found: list[pl.DataFrame] = []
    for part in nodes.partition_by("tid", maintain_order=True):
        wanted = part["code"].to_numpy().tobytes()
        for number, stretch in list(threads.items()):
            at = _find_aligned(stretch["code"].to_numpy().tobytes(), wanted)
            if at >= 0:
                found.append(pl.DataFrame({"event": stretch["event"].slice(at, part.height), "node": part["node"]}))
                del threads[number]
                break
    return pl.concat(found) if found else pl.DataFrame(schema={"event": pl.UInt32, "node": pl.UInt32})


def _find_aligned(text: bytes, wanted: bytes) -> int:
    """Return the position of the codes `wanted` in `text`, in codes (four bytes each), -1 if they aren't there."""
    at = text.find(wanted)
    while at >= 0 and at % 4:
        at = text.find(wanted, at + 1)
    return at // 4 if at >= 0 else -1


def refuse_other_rank(
    host: HostTrace, profile: KinetoProfile, timeline: HostTimeline, named: tuple[int | None, int | None]
) -> None:
    """Refuse an execution trace and a profile of two ranks.

    What the files say about their ranks decides. Where one of them says nothing, their names do, if they are of
    different processes too: ranks of one program look alike, operator by operator.

    Args:
        host: Execution trace.
        profile: Kineto profile.
        timeline: Host side of the profile.
        named: Ranks that the names of the two files tell, None where they don't.

    Raises:
        MismatchError: The files are of different ranks.
    """
    told, rank = host_rank(host), profile.rank
    if told is None or rank is None:
        pid = host.header.get("pid")
        if not isinstance(pid, int) or pid in timeline.pids:
            return
        told, rank = named[0] if told is None else told, named[1] if rank is None else rank
    if told is not None and rank is not None and told != rank:
        raise MismatchError(
            f"{host.path}: expected the execution trace of rank {rank}, like {profile.path}, got rank {told}'s; "
            "pair each rank's files"
        )


def host_rank(host: HostTrace) -> int | None:
    """Return the global rank that the trace's collectives name, or None.

    A record tells the caller's rank in its group. Where it doesn't tell the group's members, the biggest group is taken
    for the whole job. Sends and receives name their peer instead, rooted collectives their root.
    """
    records = [
        record
        for record in parse_records(host.nodes).values()
        if record.rank is not None and record.root is None and record.name not in ("wait", "init")
        if is_point_to_point(record.name) is None
    ]
    members = {group.name: group.ranks for group in host.process_groups}
    biggest = max((record.size for record in records), default=0)
    ranks: set[int] = set()
    for record in records:
        local, group = record.rank or 0, members.get(record.group, ())
        if 0 <= local < len(group):
            ranks.add(group[local])
        elif record.start_rank >= 0 and record.stride > 0:
            ranks.add(record.start_rank + local * record.stride)
        elif record.size == biggest:
            ranks.add(local)
    return ranks.pop() if len(ranks) == 1 else None


def _check_share(
    host: HostTrace, profile: KinetoProfile, nodes: pl.DataFrame, events: pl.DataFrame, matched: int
) -> None:
    """Refuse files of which too little is the same; one may cover more steps than the other."""
    fewer = min(nodes.height, events.height)
    if matched >= _ENOUGH_TO_ACCEPT * fewer:
        return
    raise MismatchError(
        f"{host.path}: expected the host side of the same run as {profile.path}, got another run's: "
        f"by id or order and name, only "
        f"{matched} operators are the same, of {nodes.height} in the one and {events.height} in the other; "
        "convert each file alone, or capture both over the same steps"
    )
