"""Where host threads wait: for the device, for each other, for communication workers.

A wait is a hole in a thread's timeline: it ends when what it waits for ends, so it has no length of its own, and a what-if can shrink
it. What can't be read from the profile is inferred from the times and marked so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.frontends.pytorch.calls import BLOCKING_COPY, DEVICE_SYNC, EVENT_SYNC, RECORD, STREAM_SYNC, LaunchLog
from chakra_et.frontends.pytorch.timeline import HostTimeline, Pauses, top_events

__all__ = ["Hole", "Holes", "find_handoffs", "find_host_waits", "find_work_waits", "tie_worker_operators"]

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


@dataclass(frozen=True, slots=True, eq=False)
class _Device:
    lane: Int
    start: Int
    end: Int
    log: LaunchLog
    resolution_ns: int


def find_host_waits(
    holes: Holes,
    timeline: HostTimeline,
    roles: npt.NDArray[np.int8],
    launcher: Int,
    *,
    lane: Int,
    start: Int,
    end: Int,
    log: LaunchLog,
    syncs: pl.DataFrame,
    lanes: dict[tuple[int, int], int],
    resolution_ns: int,
) -> None:
    """Find the waits of runtime calls for device work: synchronizations and blocking copies.

    Args:
        holes: Receives the waits.
        timeline: Host events.
        roles: int8 [E], from `call_roles`.
        launcher: int64 [A], the runtime call that launched each activity, -1 unknown.
        lane: int64 [A].
        start: int64 [A], ns.
        end: int64 [A], ns, snapped.
        log: Launch order of the lanes.
        syncs: `KinetoProfile.syncs`.
        lanes: Lane of each (device, stream).
        resolution_ns: Clock resolution.
    """
    if not len(lane):
        return
    device = _Device(lane, start, end, log, resolution_ns)
    own = {int(event): activity for activity, event in enumerate(launcher.tolist()) if event >= 0}
    exact = {row["correlation"]: row for row in syncs.iter_rows(named=True)}
    correlation = timeline.frame["correlation"].to_numpy()
    history = _History(timeline, roles, launcher, lane)
    for event in np.flatnonzero(roles > RECORD).tolist():
        role = int(roles[event])
        begin, stop = int(timeline.start[event]), int(timeline.end[event])
        inferred = False
        if role == BLOCKING_COPY:
            activity = own.get(event, -1)
            targets = [activity] if activity >= 0 and end[activity] <= stop + resolution_ns else []
        elif role == DEVICE_SYNC:
            targets = [log.last_before(number, begin) for number in log.time]
            if "Synchronize" not in history.name(event):
                inferred = True
                targets = [a for a in targets if a >= 0 and begin < end[a] <= stop + resolution_ns]
        elif role in (STREAM_SYNC, EVENT_SYNC):
            record = exact.get(int(correlation[event]))
            targets, inferred = _sync_targets(role, event, record, history, device, lanes)
        else:
            continue
        _open(holes, timeline, event, [a for a in targets if a >= 0], device, inferred)


def _open(holes: Holes, timeline: HostTimeline, event: int, targets: list[int], device: _Device, inferred: bool) -> None:
    thread, begin, stop = int(timeline.thread[event]), int(timeline.start[event]), int(timeline.end[event])
    kept = [a for a in targets if device.end[a] <= stop + device.resolution_ns]
    holes.contradicting += len(targets) - len(kept)
    if not kept:
        return
    until = max(begin, *(min(int(device.end[a]), stop) for a in kept))
    holes.open(thread, begin, until, event).activities.extend((activity, inferred) for activity in kept)


class _History:
    """Launches and records of each thread, to look up what came last before a call."""

    def __init__(self, timeline: HostTimeline, roles: npt.NDArray[np.int8], launcher: Int, lane: Int) -> None:
        self._timeline = timeline
        self._names = timeline.frame["name"]
        launched = np.flatnonzero(launcher >= 0)
        order = launched[np.argsort(timeline.start[launcher[launched]], kind="stable")]
        self._launch_time: dict[int, Int] = {}
        self._launch_lane: dict[int, Int] = {}
        self._record_time: dict[int, Int] = {}
        threads = timeline.thread[launcher[order]] if len(order) else order
        records = np.flatnonzero(roles == RECORD)
        for thread in range(len(timeline.tids)):
            rows = order[threads == thread] if len(order) else order
            self._launch_time[thread] = timeline.start[launcher[rows]] if len(rows) else rows
            self._launch_lane[thread] = lane[rows]
            self._record_time[thread] = timeline.start[records[timeline.thread[records] == thread]]

    def name(self, event: int) -> str:
        return str(self._names[event])

    def call(self, event: int) -> tuple[int, int, int]:
        timeline = self._timeline
        return int(timeline.thread[event]), int(timeline.start[event]), int(timeline.end[event])

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
    device: _Device,
    lanes: dict[tuple[int, int], int],
) -> tuple[list[int], bool]:
    """Return the activities that a stream or event synchronization waits for, and whether that is inferred."""
    thread, begin, stop = history.call(event)
    until = begin
    if role == EVENT_SYNC:
        recorded = history.last_record(thread, begin)
        until = recorded if recorded >= 0 else begin
    if record is not None:
        stream = record["wait_on_stream"] if role == EVENT_SYNC else record["stream"]
        found = lanes.get((record["device"], stream), -1)
        if found >= 0:
            if role == EVENT_SYNC and record["wait_on_record"] >= 0:
                until = history.record_time(record["wait_on_record"], until)
            return [device.log.last_before(found, until)], False
    candidates = [a for a in (device.log.last_before(number, until) for number in device.log.time) if a >= 0]
    seen = [a for a in candidates if begin < device.end[a] <= stop + device.resolution_ns]
    if seen:
        return [max(seen, key=lambda a: int(device.end[a]))], True
    lane = history.last_lane(thread, begin)
    return ([device.log.last_before(lane, until)] if lane >= 0 else []), True


def find_handoffs(holes: Holes, timeline: HostTimeline, pauses: Pauses) -> None:
    """Find where a thread's pause holds a whole burst of another thread's work: a call to that thread and its return.

    The autograd thread starts because the thread that called ``backward`` paused, and that one goes on because the burst ended.

    Args:
        holes: Receives the waits, all of them inferred.
        timeline: Host events.
        pauses: Pauses of all threads.
    """
    workers = np.flatnonzero(timeline.op_threads)
    if len(workers) < 2:
        return
    top = top_events(timeline)
    for caller in workers.tolist():
        low, high = pauses.bounds[caller], pauses.bounds[caller + 1]
        long = np.flatnonzero((pauses.end[low:high] - pauses.begin[low:high] >= _MIN_PAUSE_NS) & (pauses.before[low:high] >= 0)) + low
        for other in workers.tolist():
            if other != caller:
                _handoffs(holes, timeline, pauses, top[timeline.thread[top] == other], long, caller, other)


def _handoffs(holes: Holes, timeline: HostTimeline, pauses: Pauses, busy: Int, long: Int, caller: int, other: int) -> None:
    starts, ends = timeline.start[busy], timeline.end[busy]
    begin, stop = pauses.begin[long], pauses.end[long]
    first = np.searchsorted(starts, begin, side="left")
    last = np.searchsorted(ends, stop, side="right")
    quiet_before = (first == 0) | (ends[np.maximum(first - 1, 0)] <= begin)
    quiet_after = (last == len(ends)) | (starts[np.minimum(last, len(starts) - 1)] >= stop)
    for row in np.flatnonzero((last > first) & quiet_before & quiet_after).tolist():
        paused, resumed = int(begin[row]), int(stop[row])
        done = int(ends[last[row] - 1])
        pause = pauses.bounds[other] + int(first[row])
        if pauses.begin[pause] <= paused <= pauses.end[pause]:
            holes.open(other, int(pauses.begin[pause]), paused).threads.append((caller, paused, True))
        if done <= resumed:
            holes.open(caller, paused, done).threads.append((other, done, True))


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

    A call that isn't async waits straight after it returns. The wait for an async one is a pause that ends soon after it.

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
    unseen = 0
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
            unseen += 1
            continue
        holes.open(thread, int(pauses.begin[pause]), done).activities.append((activity, bool(is_async[activity])))
    return unseen


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
