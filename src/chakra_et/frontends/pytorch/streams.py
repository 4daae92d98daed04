"""Which stream waited for which: event record -> wait, read from ``cuda_sync`` records or inferred from the calls.

Without records, a profile still has the ``EventRecord`` and ``StreamWaitEvent`` calls in host order, though not their
streams. Two habits fill the gap. ``stream.wait_stream(other)`` is a record on ``other`` straight before a wait on
``stream``. c10d records on the compute stream, lets the communication stream wait, launches, and records the end;
``work.wait()`` is a lone wait of the compute stream for the oldest such end. The waiting stream is the one that the
thread launches on next. The times decide between candidates, and an edge that they contradict is dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.frontends.pytorch.calls import RECORD, WAIT
from chakra_et.frontends.pytorch.device_view import DeviceView
from chakra_et.frontends.pytorch.timeline import HostTimeline

__all__ = ["StreamWaits", "find_stream_waits", "find_timed_waits", "order_graph_launches"]

Int = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class StreamWaits:
    """Edges between activities of different lanes: `source` ended before `target` could start.

    Attributes:
        source: Activities waited for.
        target: Activities that waited.
        inferred: True if the edges come from habits, not from records.
        graph_source: Activities that graph launches order, read off the launches.
        graph_target: Activities that follow those.
        timed_source: Activities waited for, as far as only the times tell.
        timed_target: Activities that waited for those.
        contradicting: Waits whose only candidates ended after the waiting activity started.
        by_lane: Waits that were read, by waiting lane: (time of the call, activity waited for), by time.
    """

    source: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    inferred: bool = False
    graph_source: list[int] = field(default_factory=list)
    graph_target: list[int] = field(default_factory=list)
    timed_source: list[int] = field(default_factory=list)
    timed_target: list[int] = field(default_factory=list)
    contradicting: int = 0
    by_lane: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def pending(self, lane: int, begin: int, until: int) -> list[int]:
        """Return what a lane was made to wait for from `begin` to `until` (ns), as far as that was read."""
        found = self.by_lane.get(lane, [])
        return [activity for _, activity in found[bisect_left(found, (begin, -1)) : bisect_left(found, (until, -1))]]


@dataclass(slots=True)
class _Record:
    time: int
    lane: int
    activity: int
    closes_work: bool
    waited: bool = False


def find_stream_waits(timeline: HostTimeline, device: DeviceView) -> StreamWaits:
    """Find the waits of streams for each other: read from records if the profile has any, else inferred."""
    records = device.syncs.filter(pl.col("sync_kind") == "Stream Wait Event")
    return _read(timeline, records, device) if records.height else _infer(timeline, device)


def _read(timeline: HostTimeline, records: pl.DataFrame, device: DeviceView) -> StreamWaits:
    waits = StreamWaits()
    roles, lanes = device.roles, device.lanes
    calls = np.flatnonzero((roles == WAIT) | (roles == RECORD))
    when = dict(
        zip(timeline.frame["correlation"].to_numpy()[calls].tolist(), timeline.start[calls].tolist(), strict=True)
    )
    record_times = np.sort(timeline.start[roles == RECORD])
    for row in records.iter_rows(named=True):
        waiting = lanes.get((row["device"], row["stream"]), -1)
        waited = lanes.get((row["device"], row["wait_on_stream"]), -1)
        time = when.get(row["correlation"])
        if time is None or waiting < 0 or waited < 0 or waiting == waited:
            continue
        recorded = when.get(row["wait_on_record"])
        if recorded is None:
            slot = int(np.searchsorted(record_times, time)) - 1
            recorded = int(record_times[slot]) if slot >= 0 else time
        source = device.log.last_before(waited, recorded)
        if source >= 0:
            waits.by_lane.setdefault(waiting, []).append((time, source))
        _add(waits, device, source, device.log.first_from(waiting, time))
    for found in waits.by_lane.values():
        found.sort()
    return waits


def _add(waits: StreamWaits, device: DeviceView, source: int, target: int) -> bool:
    if source < 0 or target < 0 or source == target:
        return False
    if device.end[source] > device.start[target] + device.resolution_ns:
        waits.contradicting += 1
        return False
    for one in (source, *device.mates.get(source, ())):
        if device.end[one] <= device.start[target] + device.resolution_ns:
            waits.source.append(one)
            waits.target.append(target)
    return True


def _infer(timeline: HostTimeline, device: DeviceView) -> StreamWaits:
    waits = StreamWaits(inferred=True)
    roles, launcher = device.roles, device.launcher
    if len(device.log.time) < 2:
        return waits
    launched = np.flatnonzero(launcher >= 0)
    first = {}
    for activity in launched[np.argsort(device.start[launched], kind="stable")][::-1].tolist():
        first[int(launcher[activity])] = activity
    launch_events = np.fromiter(first, np.int64, len(first))
    events = np.concatenate([launch_events, np.flatnonzero((roles == RECORD) | (roles == WAIT))])
    events = events[np.argsort(timeline.start[events], kind="stable")]
    threads: dict[int, _Thread] = {}
    open_works: list[_Record] = []
    for event in events.tolist():
        thread = threads.setdefault(int(timeline.thread[event]), _Thread())
        time = int(timeline.start[event])
        if event in first:
            thread.on_launch(first[event], device, waits, open_works)
        elif roles[event] == RECORD:
            thread.on_record(time, device, open_works)
        else:
            thread.on_wait(time)
    return waits


@dataclass(slots=True)
class _Thread:
    """What one host thread did to the streams so far."""

    last: int = -1
    fresh_record: _Record | None = None
    launched_since: bool = False
    pending: list[tuple[int, _Record | None]] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)

    def on_record(self, time: int, device: DeviceView, open_works: list[_Record]) -> None:
        lane = int(device.lane[self.last]) if self.last >= 0 else -1
        closes = self.last >= 0 and self.launched_since and bool(device.communication[self.last])
        self.fresh_record = _Record(time, lane, self.last, closes)
        self.launched_since = False
        if closes:
            open_works.append(self.fresh_record)

    def on_wait(self, time: int) -> None:
        fresh = None if self.launched_since else self.fresh_record
        if fresh is not None and fresh.closes_work:
            fresh = None
        self.pending.append((time, fresh))

    def on_launch(self, activity: int, device: DeviceView, waits: StreamWaits, open_works: list[_Record]) -> None:
        lane = int(device.lane[activity])
        for time, record in self.pending:
            if record is None:
                self._join_work(activity, time, device, waits, open_works)
            else:
                self._join_stream(activity, record, device, waits)
        self.pending.clear()
        self.last = activity
        self.launched_since = True
        self.counts[lane] = self.counts.get(lane, 0) + 1

    def _join_stream(self, activity: int, record: _Record, device: DeviceView, waits: StreamWaits) -> None:
        lane = int(device.lane[activity])
        source = device.log.last_before(record.lane, record.time) if record.lane >= 0 and record.lane != lane else -1
        fits = source >= 0 and device.end[source] <= device.start[activity] + device.resolution_ns
        if not fits:
            others = [other for other in device.log.time if other != lane and other != record.lane and other >= 0]
            others.sort(key=lambda other: -self.counts.get(other, 0))
            found = [device.log.last_before(other, record.time) for other in others if self.counts.get(other, 0)]
            good = [a for a in found if a >= 0 and device.end[a] <= device.start[activity] + device.resolution_ns]
            if good:
                source = good[0]
            elif source < 0:
                return
        _add(waits, device, source, activity)

    def _join_work(
        self, activity: int, time: int, device: DeviceView, waits: StreamWaits, open_works: list[_Record]
    ) -> None:
        lane = int(device.lane[activity])
        limit = device.start[activity] + device.resolution_ns
        candidates = [work for work in open_works if not work.waited and work.time < time and work.lane != lane]
        if candidates and device.receives[candidates[-1].activity]:
            # What was just received is about to be used; sends before it may never be waited for.
            candidates.insert(0, candidates.pop())
        for work in candidates:
            if device.end[work.activity] <= limit:
                work.waited = True
                open_works.remove(work)
                _add(waits, device, work.activity, activity)
                return
        if candidates:
            waits.contradicting += 1


def find_timed_waits(waits: StreamWaits, device: DeviceView, late: Int, unexplained: Int, *, tolerance_ns: int) -> None:
    """Explain late starts by times alone: work on another lane that ended right before was what they waited for.

    How soon before is a matter of proportion: an event wait takes some 20 us on AMD, so up to a twentieth of the time
    to explain is accepted, but no more than 50 us.

    Args:
        waits: Receives the edges.
        device: Device activities.
        late: int64 [K], activities whose start nothing explains so far.
        unexplained: int64 [A], ns, time to explain.
        tolerance_ns: What is accepted in any case.
    """
    lane, start = device.lane, device.start
    order = np.argsort(device.end, kind="stable")
    ends = device.end[order]
    for activity in late.tolist():
        reach = max(tolerance_ns, min(50_000, int(unexplained[activity]) // 20))
        slot = int(np.searchsorted(ends, start[activity], side="right")) - 1
        while slot >= 0 and start[activity] - ends[slot] <= reach:
            other = int(order[slot])
            if lane[other] != lane[activity] and lane[other] >= 0 and start[other] < start[activity]:
                waits.timed_source.append(other)
                waits.timed_target.append(activity)
                break
            slot -= 1


def order_graph_launches(waits: StreamWaits, timeline: HostTimeline, device: DeviceView) -> None:
    """Order graph launches that use several lanes.

    A graph begins after the work before it, and work after it waits for all of it.

    Args:
        waits: Receives the edges.
        timeline: Host events.
        device: Device activities.
    """
    for graph in device.graphs:
        launched, returned = int(timeline.start[graph.call]), int(timeline.end[graph.call])
        lanes = range(len(graph.firsts))
        for one, other in ((one, other) for one in lanes for other in lanes if one != other):
            before = device.log.last_before(int(device.lane[graph.firsts[other]]), launched)
            after = device.log.first_from(int(device.lane[graph.lasts[other]]), returned)
            _order(waits, before, graph.firsts[one], device)
            _order(waits, graph.lasts[one], after, device)


def _order(waits: StreamWaits, source: int, target: int, device: DeviceView) -> None:
    if source >= 0 and target >= 0 and device.end[source] <= device.start[target]:
        waits.graph_source.append(source)
        waits.graph_target.append(target)
