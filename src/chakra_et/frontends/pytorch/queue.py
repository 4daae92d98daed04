"""Launches that block because the device's queue is full.

A launch call that takes far longer than usual, and returns right after a launch some places before it was done, waited
for a slot. The distance to that launch is the queue's length. If the long calls agree on one length, every launch
waits for the one that far before it.

Shape letters: C launch calls, A activities.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chakra_et.frontends.pytorch.device_view import DeviceView
from chakra_et.frontends.pytorch.timeline import HostTimeline
from chakra_et.frontends.pytorch.waits import Holes

__all__ = ["find_queue_waits"]

Int = npt.NDArray[np.int64]
_MARGIN_NS = 10_000
# A distance of a launch or two is a call that waits for its own kind of work, not for room.
_SHORTEST = 4
_FEWEST_VOTES = 3


def find_queue_waits(holes: Holes, timeline: HostTimeline, device: DeviceView) -> int:
    """Find the waits of launches for room in the queue, all of them inferred.

    Args:
        holes: Receives the waits.
        timeline: Host events.
        device: Device activities.

    Returns:
        The queue's length in launches, 0 if no call shows it.
    """
    launcher, end = device.launcher, device.end
    known = np.flatnonzero(launcher >= 0)
    if not len(known):
        return 0
    ordered = known[np.lexsort((end[known], launcher[known]))]
    final = np.ones(len(ordered), np.bool_)
    final[:-1] = launcher[ordered][1:] != launcher[ordered][:-1]
    last = ordered[final]
    last = last[np.argsort(timeline.start[launcher[last]], kind="stable")]
    calls = launcher[last]
    begin, stop = timeline.start[calls], timeline.end[calls]
    length = _queue_length(begin, stop, end[last])
    if not length:
        return 0
    for call, activity in zip(calls[length:].tolist(), last[:-length].tolist(), strict=True):
        done = int(end[activity])
        if done <= timeline.end[call]:
            thread, start = int(timeline.thread[call]), int(timeline.start[call])
            holes.open(thread, start, max(start, done), call).activities.append((activity, True))
    return length


def _queue_length(begin: Int, stop: Int, done: Int) -> int:
    """Return the distance that most long calls agree on: launches between the one that was done and theirs.

    Where most launches wait, the median is no usual call but a wait: then the shortest ones tell what is usual.
    """
    taken = stop - begin
    usual = int(np.median(taken))
    shortest = min(int(np.quantile(taken, 0.05)), _MARGIN_NS)
    return _vote(begin, stop, done, usual, _FEWEST_VOTES) or _vote(begin, stop, done, shortest, 3 * _FEWEST_VOTES)


def _vote(begin: Int, stop: Int, done: Int, usual: int, fewest: int) -> int:
    """Let the calls vote that take far longer than usual; 0 if they don't agree, or are too few."""
    long = np.flatnonzero(stop - begin > 3 * usual + _MARGIN_NS)
    order = np.argsort(done, kind="stable")
    ends = done[order]
    votes = []
    for call in long.tolist():
        low, high = (int(at) for at in np.searchsorted(ends, (begin[call], stop[call]), side="right"))
        inside = order[low:high]
        inside = inside[inside < call]
        if len(inside):
            rest = np.abs(stop[call] - done[inside] - usual)
            votes.append(call - int(inside[np.argmin(rest)]))
    if len(votes) < fewest:
        return 0
    lengths, counts = np.unique(votes, return_counts=True)
    best = int(np.argmax(counts))
    agreed = 2 * counts[best] > len(votes) and lengths[best] >= _SHORTEST
    return int(lengths[best]) if agreed else 0
