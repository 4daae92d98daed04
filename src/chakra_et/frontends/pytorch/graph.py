"""The graph of one rank: host items, activities, gaps and annotations, and the edges between them.

Shape letters: E host events, A activities, G gap nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chakra_et._jit.lanes import lane_order
from chakra_et.frontends.pytorch.activities import HOST_COMMUNICATION, Activities
from chakra_et.frontends.pytorch.calls import ASYNC_COPY, BLOCKING_COPY
from chakra_et.frontends.pytorch.device_view import DeviceView, view_device
from chakra_et.frontends.pytorch.edges import ACTIVITY, CTRL, GAP, ITEM, SYNC, EdgeBuffer
from chakra_et.frontends.pytorch.host_items import HostItems, split_host_items
from chakra_et.frontends.pytorch.parse_kineto import KinetoProfile
from chakra_et.frontends.pytorch.queue import find_queue_waits
from chakra_et.frontends.pytorch.starts import Latencies, Starts, explain_starts
from chakra_et.frontends.pytorch.streams import StreamWaits, find_stream_waits, find_timed_waits, order_graph_launches
from chakra_et.frontends.pytorch.timeline import HostTimeline, find_pauses
from chakra_et.frontends.pytorch.waits import (
    Holes,
    find_handoffs,
    find_host_waits,
    find_work_waits,
    take_told_waits,
    tie_polling_threads,
    tie_worker_operators,
)

__all__ = ["Gaps", "RankGraph", "build_rank_graph"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Gap nodes before activities.

    Attributes:
        activity: int64 [G].
        start: int64 [G], ns.
        end: int64 [G], ns.
        unexplained: bool [G]; the others are launch latencies.
    """

    activity: Int
    start: Int
    end: Int
    unexplained: Bool


@dataclass(frozen=True, slots=True, eq=False)
class RankGraph:
    """Everything that becomes a node, and the edges.

    Attributes:
        items: The host side.
        activity_end: int64 [A], ns, after snapping.
        gaps: Gap nodes before activities.
        edges: The edges.
        window: Start and end of the measured window, ns.
        counts: What was snapped, contradicted, not found.
    """

    items: HostItems
    activity_end: Int
    gaps: Gaps
    edges: EdgeBuffer
    window: tuple[int, int]
    counts: dict[str, int] = field(default_factory=dict)


def build_rank_graph(
    profile: KinetoProfile,
    timeline: HostTimeline,
    activities: Activities,
    *,
    is_async: Bool,
    receives: Bool,
    data_pairs: tuple[Int, Int],
    told_waits: Mapping[int, list[int]],
) -> RankGraph:
    """Build the graph of one rank.

    Args:
        profile: The profile, for its synchronization records and resolution.
        timeline: Host events.
        activities: What runs beside the host.
        is_async: bool [A], false for host communications whose call waits by itself.
        receives: bool [A], true for receives.
        data_pairs: Host events whose data others use, and those others: int64 [E] each.
        told_waits: Host events that wait for a host communication, by its activity, as far as the observer noted them.
    """
    window = _window(timeline, activities)
    indptr, preds, end, beside, snapped, overlapping = lane_order(
        activities.lane, activities.start, activities.end, profile.resolution_ns
    )
    device = view_device(profile, timeline, activities, end, receives)
    waits = find_stream_waits(timeline, device)
    order_graph_launches(waits, timeline, device)
    # Within the clock's resolution, what was waited for ended when the waiting began.
    np.minimum.at(end, np.array(waits.source, np.int64), activities.start[np.array(waits.target, np.int64)])
    holes = Holes()
    find_host_waits(holes, timeline, device, waits)
    queue_length = find_queue_waits(holes, timeline, device)
    unseen = _find_pauses_for(holes, timeline, activities, window, end, (indptr, preds), is_async, told_waits)
    follows = _follow_ends(len(activities), (indptr, preds), waits, end)
    launch = _launch_points(timeline, activities, device, holes, follows)
    edges = EdgeBuffer()
    items = split_host_items(
        timeline, holes, data_pairs, edges, launcher=activities.launcher, launch=launch, window=window
    )
    held = np.where(beside >= 0, activities.start - activities.start[beside], 0)
    starts, latencies = _explain(timeline, activities, items, follows, held, window)
    if _find_more_waits(waits, device, starts, follows, latencies):
        starts, latencies = _explain(timeline, activities, items, follows, held, window)
    gaps = _tie_activities(edges, activities, items, starts, follows, (indptr, preds), waits)
    counts = {
        "snapped": int(snapped),
        "overlapping_activities": int(overlapping),
        "overlapping_host_events": timeline.overlaps,
        "contradicting": waits.contradicting + holes.contradicting,
        "late_launches": int(((activities.launcher >= 0) & (launch < 0)).sum()),
        "communications_without_wait": unseen,
        "queue_length": queue_length,
    }
    return RankGraph(items, end, gaps, edges, window, counts)


def _follow_ends(count: int, lane_preds: tuple[Int, Int], waits: StreamWaits, end: Int) -> Int:
    """Return the latest end of what each activity follows, -1 if it follows nothing, int64 [A]."""
    follows = np.full(count, -1, np.int64)
    indptr, preds = lane_preds
    np.maximum.at(follows, np.repeat(np.arange(count), np.diff(indptr)), end[preds])
    for source, target in ((waits.source, waits.target), (waits.graph_source, waits.graph_target)):
        np.maximum.at(follows, np.array(target, np.int64), end[np.array(source, np.int64)])
    return follows


def _at(values: Int, index: Int) -> Int:
    """Return values[index], -1 where the index is."""
    if not len(values):
        return np.full(len(index), -1, np.int64)
    return np.where(index >= 0, values[index], -1)


def _window(timeline: HostTimeline, activities: Activities) -> tuple[int, int]:
    starts = [int(part.min()) for part in (timeline.start, activities.start) if len(part)]
    ends = [int(part.max()) for part in (timeline.end, activities.end) if len(part)]
    return (min(starts), max(ends)) if starts else (0, 0)


def _find_pauses_for(
    holes: Holes,
    timeline: HostTimeline,
    activities: Activities,
    window: tuple[int, int],
    end: Int,
    lane_preds: tuple[Int, Int],
    is_async: Bool,
    told_waits: Mapping[int, list[int]],
) -> int:
    """Find waits in pauses; return how many host communications no pause waited for."""
    pauses = find_pauses(timeline, window_start_ns=window[0])
    find_handoffs(holes, timeline, pauses)
    tie_polling_threads(holes, timeline, pauses)
    communications = np.flatnonzero(activities.kind == HOST_COMMUNICATION)
    communications = communications[np.argsort(activities.start[communications], kind="stable")]
    tie_worker_operators(
        holes, timeline, pauses, communications=communications[activities.lane[communications] >= 0],
        worker_tid=activities.frame["worker"].to_numpy(), launcher=activities.launcher, start=activities.start, end=end,
        lane_preds=lane_preds,
    )  # fmt: skip
    told = take_told_waits(holes, timeline, told_waits, end)
    communications = communications[~np.isin(communications, told)]
    return find_work_waits(
        holes, timeline, pauses, communications=communications, launcher=activities.launcher, end=end, is_async=is_async
    )


def _launch_points(
    timeline: HostTimeline, activities: Activities, device: DeviceView, holes: Holes, follows: Int
) -> Int:
    """Return when each activity's launch let it start, int64 [A], -1 unknown; holes of blocking copies are moved there.

    A call that starts after its activity did, by more than the clock's resolution, is no cause of it: unknown.

    A call that its activity outran is split where the activity started. A blocking copy behind other work is launched
    early in its call: after as long as other launches take, so that the latency after it isn't host time.
    """
    launcher = activities.launcher
    known = np.flatnonzero(launcher >= 0)
    known = known[activities.start[known] >= timeline.start[launcher[known]] - device.resolution_ns]
    point = np.full(len(activities), -1, np.int64)
    calls = launcher[known]
    first_start = np.full(len(timeline.start), np.iinfo(np.int64).max)
    np.minimum.at(first_start, calls, activities.start[known])
    point[known] = np.minimum(first_start[calls], timeline.end[calls])
    copies = np.isin(device.roles[calls], (BLOCKING_COPY, ASYNC_COPY))
    leads = (point[known] - timeline.start[calls])[~copies]
    lead = int(np.median(leads)) if len(leads) else 5000
    order = np.argsort(calls, kind="stable")
    for call in np.unique(calls[copies]).tolist():
        thread, begin = int(timeline.thread[call]), int(timeline.start[call])
        hole = holes.spans.get((thread, begin))
        if hole is None or hole.event != call:
            continue
        at = min(int(first_start[call]), begin + lead, hole.end)
        low, high = np.searchsorted(calls, (call, call + 1), sorter=order)
        point[known[order[low:high]]] = at
        holes.spans[thread, at] = holes.spans.pop((thread, begin))
    return point


def _explain(
    timeline: HostTimeline,
    activities: Activities,
    items: HostItems,
    follows: Int,
    held: Int,
    window: tuple[int, int],
) -> tuple[Starts, dict[str, Latencies]]:
    """Explain the starts of device activities and of host communications, each by their own latencies."""
    launched = _at(items.end, items.launch_item)
    call_start = _at(timeline.start, activities.launcher)
    first = _first_of_launch(activities)
    busy = _busy_until(activities)
    parts = [np.zeros(len(activities), np.int64) for _ in range(3)]
    latencies: dict[str, Latencies] = {}
    host = activities.kind == HOST_COMMUNICATION
    for name, chosen, default in (("device", ~host, 10_000), ("host_communication", host, 100_000)):
        if not chosen.any():
            continue
        starts, latencies[name] = explain_starts(
            activities.start[chosen], follows[chosen], launched[chosen], call_start[chosen], first[chosen],
            busy[chosen], held[chosen],
            window_start_ns=window[0], default_ns=default,
        )  # fmt: skip
        for part, found in zip(parts, (starts.launch, starts.follow, starts.unexplained), strict=True):
            part[chosen] = found
    return Starts(parts[0], parts[1], parts[2]), latencies


def _busy_until(activities: Activities) -> Int:
    """Return the latest end of what started before each activity, hosts and devices apart, int64 [A]."""
    busy = np.full(len(activities), -1, np.int64)
    host = activities.kind == HOST_COMMUNICATION
    for chosen in (np.flatnonzero(host), np.flatnonzero(~host)):
        order = chosen[np.argsort(activities.start[chosen], kind="stable")]
        if len(order):
            busy[order[1:]] = np.maximum.accumulate(activities.end[order])[:-1]
    return busy


def _find_more_waits(
    waits: StreamWaits, device: DeviceView, starts: Starts, follows: Int, latencies: dict[str, Latencies]
) -> bool:
    """Explain late starts of device activities by other lanes' ends; `follows` is updated where that worked."""
    typical = latencies.get("device")
    if typical is None:
        return False
    tolerance = max(typical.gap_p95, 1000)
    late = np.flatnonzero((device.lane >= 0) & (starts.unexplained > tolerance))
    find_timed_waits(waits, device, late, starts.unexplained, tolerance_ns=tolerance)
    source, target = np.array(waits.timed_source, np.int64), np.array(waits.timed_target, np.int64)
    np.maximum.at(follows, target, device.end[source])
    return len(source) > 0


def _first_of_launch(activities: Activities) -> Bool:
    """Return whether each activity, in lane order, is the first of its launch call on its lane, bool [A]."""
    key = activities.launcher * (len(activities.lanes) + 2) + activities.lane + 1
    first = np.zeros(len(activities), np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    return first | (activities.launcher < 0)


def _tie_activities(
    edges: EdgeBuffer,
    activities: Activities,
    items: HostItems,
    starts: Starts,
    follows: Int,
    lane_preds: tuple[Int, Int],
    waits: StreamWaits,
) -> Gaps:
    """Add the edges into activities, through gap nodes where time passes.

    launch item -> [launch gap] -+
                                 +-> [unexplained gap] -> activity
    earlier work -> [follow gap] +
    """
    count = len(activities)
    rows = np.arange(count)
    wanted = [np.flatnonzero(part > 0) for part in (starts.launch, starts.follow, starts.unexplained)]
    first = np.cumsum([0, *(len(part) for part in wanted)])
    gap_of = [np.full(count, -1, np.int64) for _ in wanted]
    for part, chosen, begin in zip(gap_of, wanted, first, strict=False):
        part[chosen] = GAP + begin + np.arange(len(chosen))
    launch_gap, follow_gap, last_gap = gap_of
    node = ACTIVITY + rows
    into = np.where(last_gap >= 0, last_gap, node)
    item = np.where(items.launch_item >= 0, ITEM + items.launch_item, -1)
    edges.add(item, node, CTRL)
    edges.add(item, np.where(launch_gap >= 0, launch_gap, into), CTRL)
    edges.add(launch_gap, into, CTRL)
    edges.add(follow_gap, into, SYNC)
    edges.add(last_gap, node, CTRL)
    follower = np.where(follow_gap >= 0, follow_gap, into)
    indptr, preds = lane_preds
    edges.add(ACTIVITY + preds, np.repeat(follower, np.diff(indptr)), SYNC)
    target = np.array(waits.target, np.int64)
    edges.add(ACTIVITY + np.array(waits.source, np.int64), follower[target], SYNC, inferred=waits.inferred)
    target = np.array(waits.graph_target, np.int64)
    edges.add(ACTIVITY + np.array(waits.graph_source, np.int64), follower[target], SYNC)
    target = np.array(waits.timed_target, np.int64)
    edges.add(ACTIVITY + np.array(waits.timed_source, np.int64), follower[target], SYNC, inferred=True)

    launched = _at(items.end, items.launch_item)
    begins = (launched, follows, activities.start - starts.unexplained)
    lengths = (starts.launch, starts.follow, starts.unexplained)
    activity = np.concatenate(wanted)
    start = np.concatenate([begin[chosen] for begin, chosen in zip(begins, wanted, strict=True)])
    length = np.concatenate([size[chosen] for size, chosen in zip(lengths, wanted, strict=True)])
    unexplained = np.arange(len(activity)) >= first[2]
    return Gaps(activity, start, start + length, unexplained)
