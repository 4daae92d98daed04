"""Where host threads wait: for the device, for each other, for communication workers.

A wait is a hole in a thread's timeline: it ends when what it waits for ends, so it has no length of its own, and a
what-if can shrink it. What can't be read from the profile is inferred from the times and marked so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chakra_et.frontends.pytorch.calls import ASYNC_COPY, BLOCKING_COPY, DEVICE_SYNC, EVENT_SYNC, RECORD, STREAM_SYNC
from chakra_et.frontends.pytorch.device_view import DeviceView
from chakra_et.frontends.pytorch.streams import StreamWaits
from chakra_et.frontends.pytorch.timeline import HostTimeline, Pauses, top_events

__all__ = [
    "Hole",
    "Holes",
    "find_handoffs",
    "find_host_waits",
    "find_work_waits",
    "take_told_waits",
    "tie_polling_threads",
    "tie_worker_operators",
]

Int = npt.NDArray[np.int64]
_MIN_PAUSE_NS = 20_000


@dataclass(slots=True, eq=False)
class Hole:
    """One wait of a host thread: time that is left out, and what ended it.

    Attributes:
        end: When the wait ended, ns.
        event: The host event that waited, -1 for a pause between events.
        activities: (activity, inferred): activities that it waited for.
        threads: (thread, time ns, inferred): other threads' work, up to that time.
    """

    end: int
    event: int
    activities: list[tuple[int, bool]] = field(default_factory=list)
    threads: list[tuple[int, int, bool]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Holes:
    """Waits of host threads by (thread, begin ns).

    Attributes:
        spans: The waits.
        contradicting: Waits for something that ended after the wait did.
    """

    spans: dict[tuple[int, int], Hole] = field(default_factory=dict)
    contradicting: int = 0

    def open(self, thread: int, begin: int, end: int, event: int = -1) -> Hole:
        """Leave out a thread's time from begin to end; an earlier hole that begins there grows."""
        hole = self.spans.setdefault((thread, begin), Hole(begin, event))
        hole.end = max(hole.end, end)
        return hole


def find_host_waits(holes: Holes, timeline: HostTimeline, device: DeviceView, waits: StreamWaits) -> None:
    """Find the waits of runtime calls for device work: synchronizations and blocking copies.

    Args:
        holes: Receives the waits.
        timeline: Host events.
        device: Device activities.
        waits: Waits of streams: who waits for a stream waits for what that stream waits for.
    """
    if not len(device.lane):
        return
    own = {int(event): activity for activity, event in enumerate(device.launcher.tolist()) if event >= 0}
    exact = {row["correlation"]: row for row in device.syncs.iter_rows(named=True)}
    correlation = timeline.frame["correlation"].to_numpy()
    history = _History(timeline, device)
    for event in np.flatnonzero(device.roles > RECORD).tolist():
        role = int(device.roles[event])
        begin, stop = int(timeline.start[event]), int(timeline.end[event])
        inferred = False
        if role in (BLOCKING_COPY, ASYNC_COPY):
            activity = own.get(event, -1)
            blocks = activity >= 0 and (role == BLOCKING_COPY or device.may_block[activity])
            targets = [activity] if blocks and device.ended_by(activity, stop) else []
        elif role == DEVICE_SYNC:
            targets = [device.log.last_before(number, begin) for number in device.log.time]
            if "Synchronize" not in history.name(event):
                inferred = True
                targets = [a for a in targets if a >= 0 and begin < device.end[a] and device.ended_by(a, stop)]
        elif role in (STREAM_SYNC, EVENT_SYNC):
            record = exact.get(int(correlation[event]))
            targets, inferred = _sync_targets(role, event, record, history, device, waits)
        else:
            continue
        _open(holes, timeline, event, [a for a in targets if a >= 0], device, inferred)


def _open(
    holes: Holes, timeline: HostTimeline, event: int, targets: list[int], device: DeviceView, inferred: bool
) -> None:
    thread, begin, stop = int(timeline.thread[event]), int(timeline.start[event]), int(timeline.end[event])
    if event + 1 < len(timeline.parent) and timeline.parent[event + 1] == event:
        stop = int(timeline.start[event + 1])  # what happens inside a call shows that it isn't waiting any more
    kept = [a for a in targets if device.ended_by(a, stop) and device.start[a] <= stop]
    holes.contradicting += len(targets) - len(kept)
    mates = [mate for activity in kept for mate in device.mates.get(activity, ()) if device.end[mate] <= stop]
    kept = list(dict.fromkeys([*kept, *mates]))
    if not kept:
        return
    # Within the clock's resolution the work ended when the call did.
    device.end[kept] = np.minimum(device.end[kept], stop)
    until = max(begin, *(int(device.end[a]) for a in kept))
    holes.open(thread, begin, until, event).activities.extend((activity, inferred) for activity in kept)


class _History:
    """Launches and records of each thread, to look up what came last before a call."""

    def __init__(self, timeline: HostTimeline, device: DeviceView) -> None:
        launcher = device.launcher
        self._timeline, self._device = timeline, device
        self._names = timeline.frame["name"]
        launched = np.flatnonzero(launcher >= 0)
        order = launched[np.argsort(timeline.start[launcher[launched]], kind="stable")]
        self._launch_time: dict[int, Int] = {}
        self._launch_lane: dict[int, Int] = {}
        self._record_time: dict[int, Int] = {}
        threads = timeline.thread[launcher[order]] if len(order) else order
        records = np.flatnonzero(device.roles == RECORD)
        for thread in range(len(timeline.tids)):
            rows = order[threads == thread] if len(order) else order
            self._launch_time[thread] = timeline.start[launcher[rows]] if len(rows) else rows
            self._launch_lane[thread] = device.lane[rows]
            self._record_time[thread] = timeline.start[records[timeline.thread[records] == thread]]

    def name(self, event: int) -> str:
        return str(self._names[event])

    def call(self, event: int) -> tuple[int, int, int]:
        timeline = self._timeline
        return int(timeline.thread[event]), int(timeline.start[event]), int(timeline.end[event])

    def launched(self, activity: int) -> int:
        call = int(self._device.launcher[activity])
        return int(self._timeline.start[call] if call >= 0 else self._device.start[activity])

    def last_lane(self, thread: int, time: int) -> int:
        slot = int(np.searchsorted(self._launch_time[thread], time)) - 1
        return int(self._launch_lane[thread][slot]) if slot >= 0 else -1

    def last_record(self, thread: int, time: int) -> int:
        slot = int(np.searchsorted(self._record_time[thread], time)) - 1
        return int(self._record_time[thread][slot]) if slot >= 0 else -1

    def record_time(self, correlation: int, default: int) -> int:
        found = self._timeline.frame["correlation"].to_numpy() == correlation
        rows = np.flatnonzero(found)
        return int(self._timeline.start[rows[0]]) if len(rows) else default


def _sync_targets(
    role: int,
    event: int,
    record: dict[str, int] | None,
    history: _History,
    device: DeviceView,
    waits: StreamWaits,
) -> tuple[list[int], bool]:
    """Return the activities that a stream or event synchronization waits for, and whether that is inferred."""
    thread, begin, stop = history.call(event)
    until = begin
    if role == EVENT_SYNC:
        recorded = history.last_record(thread, begin)
        until = recorded if recorded >= 0 else begin
    if record is not None:
        stream = record["wait_on_stream"] if role == EVENT_SYNC else record["stream"]
        found = device.lanes.get((record["device"], stream), -1)
        if found >= 0:
            if role == EVENT_SYNC and record["wait_on_record"] >= 0:
                until = history.record_time(record["wait_on_record"], until)
            last = device.log.last_before(found, until)
            launched = history.launched(last) if last >= 0 else 0
            return [last, *waits.pending(found, launched, until)], False
    candidates = [a for a in (device.log.last_before(number, until) for number in device.log.time) if a >= 0]
    seen = [a for a in candidates if begin < device.end[a] and device.ended_by(a, stop)]
    if seen:
        return [max(seen, key=lambda a: int(device.end[a]))], True
    lane = history.last_lane(thread, begin)
    return ([device.log.last_before(lane, until)] if lane >= 0 else []), True


def find_handoffs(holes: Holes, timeline: HostTimeline, pauses: Pauses) -> None:
    """Find where a thread paused while another one worked for it: a call to that thread, and its return.

    The autograd thread starts because the thread that called ``backward`` paused. That one goes on because of what the
    autograd thread did last, be it the end of its work or a task that it handed back. A pause in which no other thread
    was busy for half of the time is the thread's own.

    Args:
        holes: Receives the waits, all of them inferred.
        timeline: Host events.
        pauses: Pauses of all threads.
    """
    workers = np.flatnonzero(timeline.op_threads).tolist()
    if len(workers) < 2:
        return
    top = top_events(timeline)
    busy = {thread: _Busy.of(timeline, top, thread) for thread in workers}
    for thread in workers:
        low, high = pauses.bounds[thread], pauses.bounds[thread + 1]
        long = np.flatnonzero(
            (pauses.end[low:high] - pauses.begin[low:high] >= _MIN_PAUSE_NS) & ~pauses.leading[low:high]
        )
        best = np.full(len(long), -1, np.int64)
        begin, stop = pauses.begin[low + long], pauses.end[low + long]
        source = np.full(len(long), -1, np.int64)
        for other in workers:
            if other == thread:
                continue
            done = busy[other].last_boundary(stop)
            worked = busy[other].worked(begin, stop)
            _add_calls(holes, pauses, busy[other], begin, stop, thread, other)
            better = (done > begin) & (2 * worked >= stop - begin) & (done > best)
            best, source = np.where(better, done, best), np.where(better, other, source)
        for row in np.flatnonzero(source >= 0).tolist():
            hole = holes.open(thread, int(begin[row]), int(best[row]))
            hole.threads.append((int(source[row]), int(best[row]), True))


@dataclass(frozen=True, slots=True, eq=False)
class _Busy:
    """When one thread worked: its top events, time worked before each, and boundaries of all its events."""

    starts: Int
    ends: Int
    before: Int
    boundaries: Int

    @staticmethod
    def of(timeline: HostTimeline, top: Int, thread: int) -> _Busy:
        own = top[timeline.thread[top] == thread]
        starts, ends = timeline.start[own], timeline.end[own]
        low, high = timeline.bounds[thread], timeline.bounds[thread + 1]
        return _Busy(starts, ends, np.concatenate([[0], np.cumsum(ends - starts)]), np.sort(timeline.end[low:high]))

    def last_boundary(self, time: Int) -> Int:
        slot = np.searchsorted(self.boundaries, time, side="right") - 1
        return np.where(slot >= 0, self.boundaries[slot], -1)

    def worked(self, begin: Int, stop: Int) -> Int:
        return self._until(stop) - self._until(begin)

    def _until(self, time: Int) -> Int:
        slot = np.searchsorted(self.starts, time, side="right") - 1
        inside = np.minimum(time, self.ends[slot]) - self.starts[slot]
        return np.where(slot >= 0, self.before[slot] + inside, 0)


def _add_calls(holes: Holes, pauses: Pauses, busy: _Busy, begin: Int, stop: Int, caller: int, other: int) -> None:
    """Let the other thread's work start because the caller paused, where it was idle when that happened."""
    first = np.searchsorted(busy.starts, begin, side="left")
    idle = (first == 0) | (busy.ends[np.maximum(first - 1, 0)] <= begin)
    starts = busy.starts[np.minimum(first, len(busy.starts) - 1)]
    for row in np.flatnonzero(idle & (first < len(busy.starts)) & (starts < stop)).tolist():
        pause = pauses.containing(other, int(starts[row]))
        if pause >= 0 and pauses.begin[pause] <= begin[row]:
            hole = holes.open(other, int(pauses.begin[pause]), int(begin[row]))
            hole.threads.append((caller, int(begin[row]), True))


def tie_polling_threads(holes: Holes, timeline: HostTimeline, pauses: Pauses) -> None:
    """Let threads that only poll the driver ride on the threads that run operators.

    A watchdog's calls would otherwise be a chain of constants as long as the profile, which no what-if could make
    shorter.

    Args:
        holes: Receives the waits, all of them inferred.
        timeline: Host events.
        pauses: Pauses of all threads.
    """
    top = top_events(timeline)
    works = top[timeline.op_threads[timeline.thread[top]]]
    works = works[np.argsort(timeline.end[works], kind="stable")]
    ends = timeline.end[works]
    if not len(ends):
        return
    for thread in np.flatnonzero(~timeline.op_threads).tolist():
        low, high = pauses.bounds[thread], pauses.bounds[thread + 1]
        for pause in range(low, high):
            begin, stop = int(pauses.begin[pause]), int(pauses.end[pause])
            slot = int(np.searchsorted(ends, stop, side="right")) - 1
            if stop - begin >= _MIN_PAUSE_NS and slot >= 0 and ends[slot] >= begin:
                hole = holes.open(thread, begin, int(ends[slot]))
                hole.threads.append((int(timeline.thread[works[slot]]), int(ends[slot]), True))


def take_told_waits(holes: Holes, timeline: HostTimeline, told: Mapping[int, list[int]], end: Int) -> list[int]:
    """Take the waits for host communications that our observer noted.

    Args:
        holes: Receives the waits.
        timeline: Host events.
        told: Waits (events) by what they wait for (activity).
        end: int64 [A], ns.

    Returns:
        The communications that somebody is known to wait for.
    """
    taken = []
    for activity, events in told.items():
        first = min(events, key=lambda event: int(timeline.end[event]))
        if end[activity] > timeline.end[first]:
            continue
        taken.append(activity)
        for event in events:
            begin = int(timeline.start[event])
            hole = holes.open(int(timeline.thread[event]), begin, max(begin, int(end[activity])))
            hole.activities.append((activity, False))
    return taken


def find_work_waits(
    holes: Holes,
    timeline: HostTimeline,
    pauses: Pauses,
    *,
    communications: Int,
    launcher: Int,
    end: Int,
    is_async: npt.NDArray[np.bool_],
) -> int:
    """Find where callers wait for host communications (gloo workers).

    A call that isn't async waits straight after it returns. The wait for an async one is a pause that ends soon after
    it.

    Args:
        holes: Receives the waits.
        timeline: Host events.
        pauses: Pauses of all threads.
        communications: int64 [W], the host communications among the activities.
        launcher: int64 [A], the call of each activity, -1 unknown.
        end: int64 [A], ns.
        is_async: bool [A], false if the call waits by itself.

    Returns:
        How many communications no pause waited for.
    """
    unseen: dict[int, list[int]] = {}
    seen: dict[int, list[tuple[int, int]]] = {}
    for activity in communications[launcher[communications] >= 0].tolist():
        call, done = int(launcher[activity]), int(end[activity])
        thread = int(timeline.thread[call])
        pause = pauses.containing(thread, done)
        if not is_async[activity]:
            if pause < 0:
                pause = pauses.following(thread, int(timeline.end[call]))
            if pause >= 0 and pauses.end[pause] < done:
                pause = -1
        elif pause >= 0:
            begin, stop = int(pauses.begin[pause]), int(pauses.end[pause])
            if stop - done > max(200_000, (stop - begin) // 4):
                pause = -1
        if pause < 0:
            unseen.setdefault(thread, []).append(activity)
            continue
        begin = int(pauses.begin[pause])
        holes.open(thread, begin, done).activities.append((activity, bool(is_async[activity])))
        seen.setdefault(thread, []).append((done, begin))
    return sum(
        _join_next_wait(holes, thread, late, sorted(seen.get(thread, [])), end) for thread, late in unseen.items()
    )


def _join_next_wait(holes: Holes, thread: int, unseen: list[int], seen: list[tuple[int, int]], end: Int) -> int:
    """Let what was done before anybody waited belong to the next wait; return how many have none.

    DDP waits for all buckets at the end of the backward pass: only the wait for the last one takes time.
    """
    left = 0
    for activity in unseen:
        done = int(end[activity])
        begin = next((begin for ended, begin in seen if ended >= done), None)
        if begin is None:
            left += 1
        else:
            holes.spans[thread, begin].activities.append((activity, True))
    return left


def tie_worker_operators(
    holes: Holes,
    timeline: HostTimeline,
    pauses: Pauses,
    *,
    communications: Int,
    worker_tid: Int,
    launcher: Int,
    start: Int,
    end: Int,
    lane_preds: tuple[Int, Int],
) -> None:
    """Tie operators inside a communication, on its worker thread, to what let the communication start.

    Args:
        holes: Receives the waits.
        timeline: Host events.
        pauses: Pauses of all threads.
        communications: int64 [W], host communications on lanes of their own.
        worker_tid: int64 [A], thread id that each ran on.
        launcher: int64 [A], the call of each activity, -1 unknown.
        start: int64 [A], ns.
        end: int64 [A], ns.
        lane_preds: CSR of what each activity follows on its lane.
    """
    index = {int(tid): number for number, tid in enumerate(timeline.tids.tolist())}
    indptr, preds = lane_preds
    for activity in communications.tolist():
        thread = index.get(int(worker_tid[activity]), -1)
        pause = pauses.containing(thread, int(start[activity])) if thread >= 0 else -1
        if pause < 0 or pauses.end[pause] >= end[activity]:
            continue
        begin = int(pauses.begin[pause])
        before = preds[indptr[activity] : indptr[activity + 1]].tolist()
        hole = holes.open(thread, begin, max([begin, *(int(end[other]) for other in before)]))
        hole.activities.extend((other, False) for other in before)
        call = int(launcher[activity])
        if call >= 0:
            point = min(int(timeline.end[call]), int(start[activity]))
            hole.end = max(hole.end, point)
            hole.threads.append((int(timeline.thread[call]), point, False))
