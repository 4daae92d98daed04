"""Host events as nested, thread-ordered arrays.

Shape letters: E events, T threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.timeline import nest
from chakra_et.frontends.pytorch.parse_kineto import ANNOTATION, OPERATOR, RUNTIME

__all__ = ["HostTimeline", "Pauses", "build_timeline", "find_pauses"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class HostTimeline:
    """Host events, sorted by thread and start, enclosing ones first.

    Attributes:
        frame: The events' other columns, in this order.
        kind: int8 [E]: operator, annotation or runtime call.
        thread: int64 [E], index of the thread.
        parent: int64 [E], the enclosing event, -1 at the top.
        start: int64 [E], ns, after clipping.
        end: int64 [E], ns, after clipping.
        bounds: int64 [T + 1], events of each thread.
        pids: int64 [T].
        tids: int64 [T].
        overlaps: Events that stuck out of the event before by more than the clock's noise.
    """

    frame: pl.DataFrame
    kind: npt.NDArray[np.int8]
    thread: Int
    parent: Int
    start: Int
    end: Int
    bounds: Int
    pids: Int
    tids: Int
    overlaps: int

    def operator_of(self, events: Int) -> Int:
        """Return the innermost operator that encloses each event (-1: none), shape as `events`."""
        found = np.where(events >= 0, self.parent[events], -1)
        while True:
            up = (found >= 0) & (self.kind[found] != OPERATOR)
            if not up.any():
                return found
            found[up] = self.parent[found[up]]

    @property
    def op_threads(self) -> Bool:
        """True for threads that run operators, bool [T]; the others only poll the driver."""
        runs = np.zeros(len(self.tids), np.bool_)
        runs[self.thread[self.kind == OPERATOR]] = True
        return runs


def build_timeline(host: pl.DataFrame, *, resolution_ns: int) -> HostTimeline:
    """Sort and nest host events.

    Args:
        host: `KinetoProfile.host`, without communication ranges.
        resolution_ns: Clock resolution.
    """
    rank = pl.col("kind").replace_strict({0: 1, ANNOTATION: 0, 2: 2}, return_dtype=pl.Int8)
    threads = host.select("pid", "tid").unique().sort("pid", "tid").with_row_index("thread")
    frame = (
        host.with_row_index("row")
        .join(threads, on=["pid", "tid"], how="left")
        .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"), rank=rank)
        .sort(
            "thread",
            "start_ns",
            "end_ns",
            "rank",
            "external_id",
            "row",
            descending=[False, False, True, False, False, False],
        )
        .drop("rank", "row")
    )
    frame = frame[_instants_in_turn(frame)]
    thread = frame["thread"].cast(pl.Int64).to_numpy()
    parent, low, high, overlaps = nest(
        thread, frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy(), max(resolution_ns, 1000)
    )
    bounds = np.searchsorted(thread, np.arange(threads.height + 1))
    return HostTimeline(
        frame=frame.drop("thread"),
        kind=frame["kind"].to_numpy(),
        thread=thread,
        parent=parent,
        start=low,
        end=high,
        bounds=bounds.astype(np.int64),
        pids=threads["pid"].to_numpy(),
        tids=threads["tid"].to_numpy(),
        overlaps=int(overlaps),
    )


def _instants_in_turn(frame: pl.DataFrame) -> Int:
    """Return the order of events in which those without length stand where their ids put them.

    On a clock of whole microseconds, a call may begin and end when the next one begins: it comes before that one, not
    inside it. Ids of operators, and of calls, count up.
    """
    thread, start = frame["thread"].to_numpy(), frame["start_ns"].to_numpy()
    instant = frame["end_ns"].to_numpy() == start
    kind = frame["kind"].to_numpy()
    number = np.where(kind == RUNTIME, frame["correlation"].to_numpy(), frame["external_id"].to_numpy())
    order = np.arange(len(start))
    fresh = np.ones(len(start), np.bool_)
    fresh[1:] = (thread[1:] != thread[:-1]) | (start[1:] != start[:-1])
    begins = np.flatnonzero(fresh)
    ends = np.append(begins[1:], len(start))
    mixed = np.add.reduceat(instant.astype(np.int64), begins) if len(begins) else begins
    for begin, end in zip(begins[mixed > 0].tolist(), ends[mixed > 0].tolist(), strict=True):
        if end - begin == 1:
            continue
        line = [row for row in range(begin, end) if not instant[row]]
        for row in (row for row in range(begin, end) if instant[row]):
            later = (
                at for at, other in enumerate(line) if kind[other] == kind[row] and number[other] > number[row] >= 0
            )
            line.insert(next(later, len(line)), row)
        order[begin:end] = line
    return order


@dataclass(frozen=True, slots=True, eq=False)
class Pauses:
    """Times in which a thread ran nothing that the profile shows.

    An annotation that begins or ends shows that the thread was running, so it ends a pause and begins another.

    Attributes:
        begin: int64 [P], ns: the end of what ran before (or the window's start).
        end: int64 [P], ns: the start of what runs next.
        leading: bool [P], true for the pause before a thread's first event.
        bounds: int64 [T + 1], pauses of each thread.
    """

    begin: Int
    end: Int
    leading: Bool
    bounds: Int

    def containing(self, thread: int, time: int) -> int:
        """Return the pause of a thread with begin < time <= end, or -1."""
        low, high = self.bounds[thread], self.bounds[thread + 1]
        found = low + int(np.searchsorted(self.end[low:high], time, side="left"))
        return int(found) if found < high and self.begin[found] < time else -1

    def following(self, thread: int, time: int) -> int:
        """Return the first pause of a thread that begins at `time` or later, or -1."""
        low, high = self.bounds[thread], self.bounds[thread + 1]
        found = low + int(np.searchsorted(self.begin[low:high], time, side="left"))
        return int(found) if found < high else -1


def find_pauses(timeline: HostTimeline, *, window_start_ns: int) -> Pauses:
    """Find the pauses of every thread; each thread has one before its first event, maybe of length zero."""
    top = top_events(timeline)
    free = np.flatnonzero((timeline.kind == ANNOTATION) & (_work_around(timeline) < 0))
    thread = np.concatenate([timeline.thread[part] for part in (top, free, free)])
    start = np.concatenate([timeline.start[top], timeline.start[free], timeline.end[free]])
    end = np.concatenate([timeline.end[top], timeline.start[free], timeline.end[free]])
    order = np.lexsort((end, start, thread))
    thread, start, end = thread[order], start[order], end[order]
    leading = np.ones(len(thread), np.bool_)
    leading[1:] = thread[1:] != thread[:-1]
    begin = np.where(leading, window_start_ns, np.concatenate([[window_start_ns], end[:-1]]) if len(end) else end)
    bounds = np.searchsorted(thread, np.arange(len(timeline.tids) + 1)).astype(np.int64)
    return Pauses(np.minimum(begin, start), start, leading, bounds)


def _work_around(timeline: HostTimeline) -> Int:
    """Return the operator or runtime call that encloses each event, annotations skipped, -1 if none, int64 [E]."""
    work = timeline.kind != ANNOTATION
    enclosing: Int = timeline.parent.copy()
    while True:
        up = (enclosing >= 0) & ~work[enclosing]
        if not up.any():
            return enclosing
        enclosing[up] = timeline.parent[enclosing[up]]


def top_events(timeline: HostTimeline) -> Int:
    """Return the events that no operator or runtime call encloses, annotations left out."""
    return np.flatnonzero((timeline.kind != ANNOTATION) & (_work_around(timeline) < 0)).astype(np.int64)
