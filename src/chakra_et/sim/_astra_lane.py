"""One rank as ASTRA-sim can run it: a chain of compute pieces, and communications that hang on it.

ASTRA-sim runs one compute node and one communication at a time on a rank. A trace with several threads and streams
would be serialized there, so its schedule is projected onto one lane first: kernels keep their time (of overlapping
ones, each keeps the part that no earlier one covers), and the time of host operators and gaps counts where it held up
the device. On a rank without a device, the host's operators are the compute.

Times are whole microseconds, as ASTRA-sim reads them. Starts and ends are rounded, not durations: rounding keeps
order, so the rounded schedule is still the schedule of its graph, and no error adds up.

Shape letters: N nodes, C communications, P pieces, D edges from a communication to a piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et._jit.project import COMMUNICATION, COMPUTE, OTHER, nearest, project
from chakra_et._jit.schedule import schedule
from chakra_et.errors import TraceError
from chakra_et.ir import NodeType, Trace, build_graph

__all__ = ["Lane", "make_lane", "starts_at_once"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """A rank's pieces and communications.

    Attributes:
        start_us: int64 [P].
        end_us: int64 [P].
        source: int64 [P]: position of the compute node, -1 for host time.
        communications: int64 [C], positions.
        communication_us: int64 [C], measured durations.
        piece_before: int64 [C]: piece that each communication waits for, -1 for none.
        before: int64 [K, 2]: pairs of communications (index of the later, index of the earlier) that wait for one
            another.
        waits: int64 [D, 2]: pairs (piece, communication index): the piece waits for the communication.
        hidden: Number of compute nodes that other ones cover, or that are shorter than half a microsecond.
    """

    start_us: Int
    end_us: Int
    source: Int
    communications: Int
    communication_us: Int
    piece_before: Int
    before: Int
    waits: Int
    hidden: int


@dataclass(frozen=True, slots=True, eq=False)
class _Schedule:
    """[N]: predecessor that bound each node, rounded start and end, kind; and a topological order."""

    binding: Int
    start: Int
    end: Int
    kind: Int
    order: Int
    compute_before: Int
    recent: Int


def starts_at_once(trace: Trace, communications: Int) -> bool:
    """Return whether a communication would be issued at tick 0, where ASTRA-sim aborts in some cases."""
    graph = build_graph(trace)
    start, _, _ = schedule(graph.indptr, graph.preds, _durations(trace))
    return bool((start[communications] < 500).any())


def _durations(trace: Trace) -> Int:
    durations: Int = np.maximum(trace.integers("duration_ns", 0), 0)
    return durations


def make_lane(trace: Trace, rank: int, communications: Int, measured: Int, shift_us: int) -> Lane:
    """Project one rank.

    Args:
        trace: The trace.
        rank: Its rank, for messages.
        communications: int64 [C]: positions of the nodes that stay communications.
        measured: Positions of communications that become compute of their measured time.
        shift_us: Time before the first node.

    Raises:
        TraceError: The graph has a cycle.
    """
    plan = _schedule(trace, rank, communications, measured, shift_us)
    anchors = np.flatnonzero(plan.kind != OTHER)
    place = np.empty(len(trace), np.int64)
    place[plan.order] = np.arange(len(trace))
    anchors = anchors[np.lexsort((place[anchors], plan.start[anchors]))]
    if len(trace):
        anchors = np.append(anchors, np.argmax(plan.end))
    begin, until, source, after = project(anchors.astype(np.int64), plan.binding, plan.kind, plan.start, plan.end)
    hidden = int((plan.kind == COMPUTE).sum()) - len(np.unique(source[source >= 0]))
    cut_at = _release_times(plan, communications)
    begin, until, source, after = _cut(begin, until, source, after, cut_at)
    index = np.full(len(trace), -1, np.int64)
    index[communications] = np.arange(len(communications))
    waits = _waits(plan, index, begin, after)
    begin, until, source, waits = _fuse(trace, plan, (begin, until, source, waits), cut_at)
    node, slot = np.nonzero(plan.recent[communications] >= 0)
    earlier = index[plan.recent[communications[node], slot]]
    return Lane(
        start_us=begin,
        end_us=until,
        source=source,
        communications=communications,
        communication_us=(plan.end - plan.start)[communications],
        piece_before=np.searchsorted(until, cut_at, side="right") - 1,
        before=np.stack([node, earlier], axis=1)[earlier >= 0].astype(np.int64),
        waits=waits,
        hidden=hidden,
    )


def _schedule(trace: Trace, rank: int, communications: Int, measured: Int, shift_us: int) -> _Schedule:
    graph = build_graph(trace)
    duration = _durations(trace)
    start, binding, order = schedule(graph.indptr, graph.preds, duration)
    if len(order) < len(trace):
        raise TraceError(
            f"rank {rank}: expected an acyclic graph, got {len(trace) - len(order)} nodes on or behind a cycle; "
            "repair the trace first"
        )
    kind = np.where(_is_compute(trace, communications, measured), COMPUTE, OTHER)
    kind[communications] = COMMUNICATION
    first, last = (start + 500) // 1000 + shift_us, (start + duration + 500) // 1000 + shift_us
    compute_before, recent = nearest(graph.indptr, graph.preds, order, kind, last)
    return _Schedule(binding, first, last, kind, order, compute_before, recent)


def _is_compute(trace: Trace, communications: Int, measured: Int) -> Bool:
    """Return the nodes that the lane shows: on the device, or of a rank without one, on the host."""
    real = trace.column("gap_kind").is_null().to_numpy()
    real &= trace.nodes["type"].fill_null(0).to_numpy() != NodeType.METADATA_NODE
    host = trace.nodes["is_cpu_op"].fill_null(False).to_numpy()
    device = real & ~host
    compute: Bool = (device if device.any() else real & host).copy()
    compute[measured] = True
    compute[communications] = False
    return compute


def _release_times(plan: _Schedule, communications: Int) -> Int:
    """Return the lane's time at which each communication may start, int64 [C].

    That is the end of the compute that it waited for, if that or another communication explains its start; else its
    start.
    """
    compute = plan.compute_before[communications]
    lane_end = np.where(compute >= 0, plan.end[compute], 0)
    recent = plan.recent[communications]
    explained = np.maximum(lane_end, np.where(recent >= 0, plan.end[recent], 0).max(axis=1, initial=0))
    start = plan.start[communications]
    return np.where(explained >= start, np.minimum(lane_end, start), start)


def _cut(begin: Int, until: Int, source: Int, after: Int, times: Int) -> tuple[Int, Int, Int, Int]:
    """Split pieces at the given times; a second part follows the first one."""
    times = np.unique(times)
    piece = np.searchsorted(begin, times, side="right") - 1
    inside = (
        (piece >= 0) & (begin[piece] < times) & (times < until[piece]) if len(begin) else np.zeros(len(times), bool)
    )
    times, piece = times[inside], piece[inside]
    starts = np.concatenate((begin, times))
    order = np.argsort(starts, kind="stable")
    origin = np.concatenate((np.arange(len(begin)), piece))[order]
    starts = starts[order]
    ends = until[origin]
    split = np.append(origin[1:] == origin[:-1], False) if len(origin) else np.empty(0, bool)
    ends[split] = starts[1:][split[:-1]]
    fresh = np.concatenate((after, np.full(len(times), -1, np.int64)))[order]
    return starts, ends, source[origin], fresh


def _waits(plan: _Schedule, index: Int, begin: Int, after: Int) -> Int:
    """Return pairs (piece, communication): of the pieces that wait for a communication, the first one."""
    node, slot = np.nonzero((plan.recent >= 0) & (plan.kind == COMPUTE)[:, None])
    piece = np.concatenate((np.searchsorted(begin, plan.start[node], side="left"), np.flatnonzero(after >= 0)))
    communication = index[np.concatenate((plan.recent[node, slot], after[after >= 0]))]
    valid = (piece < len(begin)) & (communication >= 0)
    piece, communication = piece[valid], communication[valid]
    order = np.lexsort((piece, communication))
    piece, communication = piece[order], communication[order]
    first = np.ones(len(piece), bool)
    first[1:] = communication[1:] != communication[:-1]
    return np.stack([piece[first], communication[first]], axis=1).astype(np.int64)


def _fuse(trace: Trace, plan: _Schedule, pieces: tuple[Int, Int, Int, Int], cut_at: Int) -> tuple[Int, Int, Int, Int]:
    """Put neighboring pieces of host time together where nothing hangs in between."""
    begin, until, source, waits = pieces
    if len(begin) == 0:
        return pieces
    host = (source < 0) | trace.nodes["is_cpu_op"].fill_null(False).to_numpy()[source]
    host &= (source < 0) | ~np.isin(trace.nodes["type"].to_numpy()[source], (5, 6, 7))
    head = np.ones(len(begin), bool)
    head[1:] = ~(host[1:] & host[:-1]) | (begin[1:] != until[:-1]) | np.isin(begin[1:], cut_at)
    head[waits[:, 0]] = True
    group = np.cumsum(head) - 1
    last = np.append(np.flatnonzero(head)[1:] - 1, len(begin) - 1)
    single = np.diff(np.append(np.flatnonzero(head), len(begin))) == 1
    fused = np.where(single, source[head], np.where(host[head], -1, source[head]))
    return begin[head], until[last], fused, np.stack([group[waits[:, 0]], waits[:, 1]], axis=1)
