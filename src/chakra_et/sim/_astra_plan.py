"""From a trace set to the one that ASTRA-sim runs.

Shape letters: N exported nodes of all ranks, E edges, C communications of a rank, P pieces of a rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.meetings import schedule_meetings
from chakra_et.errors import TraceError
from chakra_et.ir import NodeType, ProcessGroup, Trace, TraceMetadata, TraceSet
from chakra_et.ir.arrays import list_series
from chakra_et.sim._astra_lane import Lane, make_lane, starts_at_once
from chakra_et.sim._astra_match import COLLECTIVE, RECV, SEND, Substitution, match

__all__ = ["AstraSimPlan", "plan_astra_sim"]

Int = npt.NDArray[np.int64]
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class AstraSimPlan:
    """What `export_astra_sim` writes.

    Attributes:
        trace_set: Ranks from 0 without holes, ids from 0 in time order, groups with numbers as names.
        ranks: Rank in the original set of each exported rank, as text (``none`` for an idle one that was added).
        substitutions: Communications that are exported as something else.
        hidden: Compute nodes that are left out, since others cover them or they round to nothing.
    """

    trace_set: TraceSet
    ranks: tuple[str, ...]
    substitutions: tuple[Substitution, ...]
    hidden: int


def plan_astra_sim(trace_set: TraceSet, *, splits: int = 4) -> AstraSimPlan:
    """Make the trace set that ASTRA-sim runs.

    Args:
        trace_set: The ranks; their graphs are acyclic.
        splits: `preferred-dataset-splits` of the system: all-gathers are made at least that large.

    Raises:
        TraceError: The set is empty, or the graph of a rank has a cycle.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builders = [TraceBuilder(rank=rank) for rank in (0, 1)]
        >>> nodes = [b.add("r", NodeType.COMM_COLL_NODE, comm_type=0, comm_size=64, duration_ns=5000) for b in builders]
        >>> plan = plan_astra_sim(TraceSet(tuple(b.build() for b in builders)))
        >>> [trace.nodes["name"].to_list() for trace in plan.trace_set]
        [['host', 'r'], ['host', 'r']]
    """
    if len(trace_set) == 0:
        raise TraceError("trace set: expected traces of one rank or more, got none")
    if all(trace.rank is not None for trace in trace_set):
        ordered = sorted(trace_set, key=lambda trace: trace.rank or 0)
        trace_set = TraceSet(tuple(ordered), trace_set.process_groups)
    matched, substitutions = match(trace_set, splits)
    stuck: list[Substitution] = []
    for turn in range(_ROUNDS):
        lanes = _lanes(trace_set, matched)
        joint = _Joint(lanes, matched)
        hung = joint.hung(everything=turn == _ROUNDS - 2)
        if len(hung) == 0:
            break
        lost = matched.filter(pl.col("meeting").is_in(hung))
        for rank, node, kind in lost.select("rank", "id", "kind").iter_rows():
            reason = "ranks would wait for each other forever"
            stuck.append(Substitution(rank, node, NodeType(kind).name, "COMP_NODE of the measured time", reason))
        gone = pl.col("meeting").is_in(hung)
        matched = matched.with_columns(pl.when(~gone).then("meeting").alias("meeting"))
    groups = _groups(matched, trace_set)
    traces = [_trace(rank, trace, joint, matched, groups, trace_set) for rank, trace in enumerate(trace_set)]
    names = [str(rank) for rank in trace_set.ranks]
    if len(traces) == 1:
        # ASTRA-sim has no networks of one.
        traces.append(_idle(1, 2))
        names.append("none")
    members = {old: new for new, old in enumerate(trace_set.ranks)}
    process_groups = tuple(
        ProcessGroup(str(number), tuple(members[rank] for rank in ranks), len(ranks), description=name)
        for (name, ranks), number in groups.items()
    )
    traces = [Trace(trace.nodes, process_groups, trace.metadata) for trace in traces]
    done = TraceSet(tuple(traces), process_groups)
    return AstraSimPlan(done, tuple(names), (*substitutions, *stuck), sum(lane.hidden for lane in lanes))


def _lanes(trace_set: TraceSet, matched: pl.DataFrame) -> list[Lane]:
    """Project every rank; all start a microsecond late if a communication would come first anywhere."""
    parts = []
    for rank, trace in zip(trace_set.ranks, trace_set, strict=True):
        own = matched.filter(pl.col("rank") == rank)
        meets = own["meeting"].is_not_null().to_numpy()
        position = own["position"].to_numpy()
        parts.append((trace, rank, position[meets], position[~meets]))
    shift = int(any(starts_at_once(trace, meeting) for trace, _, meeting, _ in parts))
    return [make_lane(trace, rank, meeting, alone, shift) for trace, rank, meeting, alone in parts]


class _Joint:
    """The exported graph of all ranks: of each rank its pieces, then its communications.

    Attributes:
        first: int64 [R + 1]: where each rank's nodes begin.
        start, end: int64 [N]: the schedule in which the ranks wait for each other, us.
        place: int64 [N]: position in a topological order.
        edges: int64 [E, 2]: (later, earlier).
    """

    def __init__(self, lanes: list[Lane], matched: pl.DataFrame) -> None:
        sizes = [len(lane.start_us) + len(lane.communications) for lane in lanes]
        self.lanes = lanes
        self.first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        count = int(self.first[-1])
        self.meeting = np.full(count, -1, np.int64)
        self.row = np.full(count, -1, np.int64)
        self.waits = np.ones(count, np.bool_)
        self.takes_turn = np.zeros(count, np.bool_)
        duration = np.zeros(count, np.int64)
        edges = []
        own = matched.with_row_index("row").filter(pl.col("meeting").is_not_null())
        rows, kinds, meetings = (own[name].to_numpy() for name in ("row", "kind", "meeting"))
        offset = 0
        for lane, base in zip(lanes, self.first, strict=False):
            pieces, many = len(lane.start_us), len(lane.communications)
            nodes = base + pieces + np.arange(many)
            part = slice(offset, offset + many)
            offset += many
            self.meeting[nodes], self.row[nodes] = meetings[part], rows[part]
            self.waits[nodes] = kinds[part] != SEND
            self.takes_turn[nodes] = kinds[part] != RECV
            duration[base : base + pieces] = lane.end_us - lane.start_us
            duration[nodes] = lane.communication_us
            edges.append(_rank_edges(lane, int(base)))
        # The shortest measured time of a communication is what is left of it once nobody waits.
        lowest = np.full(int(meetings.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        known = self.meeting >= 0
        np.minimum.at(lowest, self.meeting[known], duration[known])
        duration[known] = lowest[self.meeting[known]]
        # Numbers of meetings without holes.
        self.room = np.full(count, -1, np.int64)
        self.room[known] = np.unique(self.meeting[known], return_inverse=True)[1]
        self.duration = duration
        self.edges = np.concatenate(edges) if edges else np.empty((0, 2), np.int64)
        self._schedule()
        if (self.end >= 0).all():
            self.edges = np.concatenate((self.edges, self._turns()))
            self._schedule()

    def _schedule(self) -> None:
        count = len(self.duration)
        order = np.lexsort((self.edges[:, 1], self.edges[:, 0]))
        indptr = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(self.edges[:, 0], minlength=count), out=indptr[1:])
        none = np.zeros(count, np.int64)
        preds = np.ascontiguousarray(self.edges[order, 1])
        self.start, self.end, visited = schedule_meetings(indptr, preds, self.duration, none, self.room, self.waits)
        self.place = np.full(count, count, np.int64)
        self.place[visited] = np.arange(len(visited))
        # All members of a meeting begin when the last one comes, and stand together in the order.
        together = (self.room >= 0) & self.waits
        self.begin = np.where(together, self.end - self.duration, self.start)
        last = np.full(int(self.room.max(initial=-1)) + 2, -1, np.int64)
        np.maximum.at(last, self.room[together], self.place[together])
        self.turn = np.where(together, last[self.room], self.place)

    def hung(self, *, everything: bool) -> Int:
        """Return the meetings that never end: those to which somebody came, or all of them."""
        lost = (self.end < 0) & (self.meeting >= 0)
        came = lost & (self.start >= 0)
        return np.unique(self.meeting[lost if everything or not came.any() else came])

    def _turns(self) -> Int:
        """Return edges that keep each rank's collectives and sends in one order over all ranks."""
        rank = np.repeat(np.arange(len(self.lanes)), np.diff(self.first))
        nodes = np.flatnonzero(self.takes_turn)
        nodes = nodes[np.lexsort((self.turn[nodes], self.begin[nodes], rank[nodes]))]
        same = rank[nodes[1:]] == rank[nodes[:-1]]
        return np.stack([nodes[1:][same], nodes[:-1][same]], axis=1)


def _rank_edges(lane: Lane, base: int) -> Int:
    pieces, many = len(lane.start_us), len(lane.communications)
    chain = np.stack([np.arange(1, max(pieces, 1)), np.arange(max(pieces, 1) - 1)], axis=1)
    released = np.stack([pieces + np.arange(many), lane.piece_before], axis=1)[lane.piece_before >= 0]
    waits = lane.waits + np.array([[0, pieces]])
    return base + np.concatenate((chain, released, waits, lane.before + pieces)).astype(np.int64)


def _groups(matched: pl.DataFrame, trace_set: TraceSet) -> dict[tuple[str, tuple[int, ...]], int]:
    """Number the groups of collectives that meet, from 1: ASTRA-sim takes 0 for all ranks, and refuses it as a key."""
    used = (
        matched.filter((pl.col("kind") == COLLECTIVE) & pl.col("meeting").is_not_null())
        .select("pg_name", "members")
        .unique()
    )
    keys = sorted((str(name), tuple(members)) for name, members in used.iter_rows())
    return {key: number for number, key in enumerate(keys, 1)}


def _idle(rank: int, world_size: int) -> Trace:
    nodes = _table({"name": ["idle"], "type": [int(NodeType.COMP_NODE)], "start_us": [0], "end_us": [1]})
    empty = list_series("ctrl_deps", np.zeros(2, np.int64), np.empty(0, np.uint64))
    lists = [empty, empty.alias("data_deps"), empty.alias("sync_deps")]
    metadata = TraceMetadata(rank=rank, world_size=world_size, family="synthesized")
    return Trace(nodes.with_columns(lists), (), metadata)


def _table(columns: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame(columns).select(
        pl.int_range(pl.len(), dtype=pl.UInt64).alias("id"),
        pl.col("name").cast(pl.String),
        pl.col("type").cast(pl.UInt8),
        (pl.col("start_us") * 1000).cast(pl.Int64).alias("start_ns"),
        ((pl.col("end_us") - pl.col("start_us")) * 1000).cast(pl.Int64).alias("duration_ns"),
        pl.lit(False).alias("is_cpu_op"),
        *(pl.col(name) for name in columns if name.startswith(("comm_", "pg_name"))),
    )


def _trace(
    index: int,
    trace: Trace,
    joint: _Joint,
    matched: pl.DataFrame,
    groups: dict[tuple[str, tuple[int, ...]], int],
    trace_set: TraceSet,
) -> Trace:
    """Build the exported trace of one rank, ids in time order."""
    world_size = max(2, len(trace_set))
    begin, end = int(joint.first[index]), int(joint.first[index + 1])
    if begin == end:
        return _idle(index, world_size)
    lane = joint.lanes[index]
    order = begin + np.lexsort((joint.place[begin:end], joint.start[begin:end]))
    number = np.empty(end - begin, np.int64)
    number[order - begin] = np.arange(end - begin)
    sources = np.concatenate((lane.source, lane.communications))
    names = trace.nodes["name"].gather(pl.Series(sources).replace(-1, None)).fill_null("host")
    facts = _communication_columns(joint.row[begin:end], matched, groups, trace_set)
    columns = {"name": names, "start_us": joint.start[begin:end], "end_us": joint.end[begin:end], **facts}
    nodes = _table({key: pl.Series(value)[order - begin] for key, value in columns.items()})
    inside = (joint.edges[:, 0] >= begin) & (joint.edges[:, 0] < end)
    pairs = number[joint.edges[inside] - begin]
    piece = joint.row[joint.edges[inside]] < 0
    control = piece.all(axis=1)
    lists = [
        _lists("ctrl_deps", pairs[control], len(nodes)),
        _lists("data_deps", pairs[:0], len(nodes)),
        _lists("sync_deps", pairs[~control], len(nodes)),
    ]
    metadata = TraceMetadata(rank=index, world_size=world_size, family=trace.metadata.family)
    return Trace(nodes.with_columns(lists), (), metadata)


def _communication_columns(
    rows: Int, matched: pl.DataFrame, groups: dict[tuple[str, tuple[int, ...]], int], trace_set: TraceSet
) -> dict[str, pl.Series]:
    """Return type and communication columns of exported nodes; `rows` int64 are rows of `matched`, -1 for compute."""
    renamed = {old: new for new, old in enumerate(trace_set.ranks)}
    taken = matched[np.where(rows >= 0, rows, 0)] if len(matched) else matched
    communicates = pl.Series(rows >= 0)
    if taken.is_empty():
        return {"type": pl.Series(np.full(len(rows), int(NodeType.COMP_NODE)))}
    kind = pl.Series(np.where(rows >= 0, taken["kind"].to_numpy(), int(NodeType.COMP_NODE)))
    collective = communicates & (kind == COLLECTIVE)
    message = communicates & kind.is_in([SEND, RECV])
    names = [
        groups.get((name, tuple(members or ()))) for name, members in taken.select("pg_name", "members").iter_rows()
    ]
    ends = {
        f"comm_{name}": taken[name].replace_strict(renamed, default=None, return_dtype=pl.Int64).set(~message, None)
        for name in ("src", "dst")
    }
    return {
        "type": kind,
        "comm_type": taken["new_type"].set(~collective, None),
        "comm_size": taken["new_size"].set(~communicates, None),
        "pg_name": pl.Series(names, dtype=pl.Int64).cast(pl.String).set(~collective, None),
        # Each message has a tag of its own, so that none can be taken for another.
        "comm_tag": (taken["meeting"] % 500_000_000).set(~message, None),
        **ends,
    }


def _lists(name: str, pairs: Int, count: int) -> pl.Series:
    keys = np.unique(pairs[:, 0] * max(count, 1) + pairs[:, 1])
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys // max(count, 1), minlength=count), out=offsets[1:])
    return list_series(name, offsets, (keys % max(count, 1)).astype(np.uint64))
