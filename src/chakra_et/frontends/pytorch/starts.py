"""Why each activity started when it did: its launch, earlier work, or a reason that the profile doesn't show.

An activity starts at the latest of two times: its launch plus a launch latency, and the end of the work that it
follows (its stream's order, awaited events) plus the device's own gap between two activities. The profile shows only
the later of the two exactly. Its latency or gap is measured; the other one gets the profile's typical value, or what
room there is. Latencies are bounded by what launches onto idle lanes show (their 95th percentile), the device's own gap
by what queued neighbors show: activities launched well before the work in front of them ended. Time beyond that is
`unexplained`.

Neighbors may overlap (programmatic dependent launch): the later one has no edge to the one that still ran, but waited
beside it. That time is no gap of the device's own, and such neighbors show a gap of 0.

Shape letters: A activities, E edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Latencies", "Starts", "explain_starts"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_FAR = np.int64(2**62)
# Of fewer, one that waited for something that nothing shows would pass for typical.
_FEWEST = 10


@dataclass(frozen=True, slots=True)
class Latencies:
    """Typical latencies of one kind of activity, ns.

    Attributes:
        launch_median: Launch onto an idle lane to start.
        launch_p95: The same, 95th percentile.
        gap_median: End of earlier work to start, launched well before that end.
        gap_p95: The same, 95th percentile.
    """

    launch_median: int
    launch_p95: int
    gap_median: int
    gap_p95: int


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """Gaps before each activity, int64 [A], ns.

    Attributes:
        launch: After the launch (`launch_latency`).
        follow: After earlier work (`launch_latency`: the device's own, and the wait beside a neighbor that still ran).
        unexplained: After both.
    """

    launch: Int
    follow: Int
    unexplained: Int


def explain_starts(
    start: Int,
    follows: Int,
    launched: Int,
    call_start: Int,
    first: Bool,
    busy_until: Int,
    held: Int,
    *,
    window_start_ns: int,
    default_ns: int,
) -> tuple[Starts, Latencies]:
    """Explain the starts of one kind of activity.

    Args:
        start: int64 [A], ns.
        follows: int64 [A], ns: latest end of the earlier work, -1 if there is none.
        launched: int64 [A], ns: when the launch let it start, -1 if unknown.
        call_start: int64 [A], ns: start of the launch call, -1 if unknown.
        first: bool [A], true for the first activity of its launch on its lane; the later ones of a graph launch only
            follow it.
        busy_until: int64 [A], ns: latest end of anything that started before it, on any lane, -1 if nothing did.
        held: int64 [A], ns: how long a neighbor of its lane had been running that still ran when it started, 0 if none.
        window_start_ns: Where activities with neither hang.
        default_ns: Latency to assume if the profile shows no launch onto an idle device.

    Returns:
        The gaps, and the typical values used.
    """
    has_follow, has_launch = follows >= 0, (launched >= 0) & (first | (follows < launched))
    idle_for = np.where(has_follow, start - follows, _FAR)
    since_launch = np.where(has_launch, start - launched, _FAR)
    beside = np.minimum(held, idle_for)
    typical = _typical(idle_for, idle_for - beside, since_launch, call_start, busy_until, default_ns)
    after_work = has_follow & (follows >= np.where(has_launch, launched, -1))
    work_bound = after_work & ((idle_for - beside <= typical.gap_p95) | (since_launch > typical.launch_p95))
    launch_bound = has_launch & ~work_bound
    nothing = ~(has_follow | has_launch)

    follow = np.where(work_bound, np.minimum(idle_for, typical.gap_p95 + beside), 0)
    unexplained = np.where(work_bound, idle_for - follow, 0)
    launch = np.where(launch_bound, np.minimum(since_launch, typical.launch_p95), 0)
    late = launch_bound & ~after_work
    launch = np.where(launch_bound & after_work, since_launch, launch)
    unexplained = np.where(late, since_launch - launch, unexplained)
    # The side that did not bind: typical, within the room that the recorded start leaves.
    room = np.where(work_bound & has_launch, since_launch - unexplained, 0)
    launch = np.where(work_bound & has_launch, np.clip(room, 0, typical.launch_median), launch)
    room = np.where(launch_bound & has_follow, idle_for - unexplained, 0)
    follow = np.where(launch_bound & has_follow, np.clip(room, 0, typical.gap_median), follow)
    unexplained = np.where(nothing, start - window_start_ns, unexplained)
    return Starts(launch, follow, unexplained), typical


def _typical(
    idle_for: Int, own_gap: Int, since_launch: Int, call_start: Int, busy_until: Int, default_ns: int
) -> Latencies:
    # Only a launch onto an idle device shows the latency: on a busy one, an activity may wait for room, or for events.
    # Whether the device was idle before the first activity that the window shows, nobody knows.
    idle = (since_launch < _FAR) & (busy_until >= 0) & (busy_until <= call_start)
    launch_median, launch_p95 = _quantiles(since_launch[idle], default_ns)
    # Enough to say that the launch had long been there when the earlier work ended.
    queued = (idle_for < _FAR) & ((since_launch == _FAR) | (since_launch - idle_for >= max(launch_p95, 1)))
    ceiling = launch_p95 if idle.sum() >= _FEWEST else max(launch_p95, default_ns)
    return Latencies(launch_median, launch_p95, *_device_gaps(own_gap[queued], ceiling, default_ns))


def _device_gaps(gaps: Int, ceiling_ns: int, default_ns: int) -> tuple[int, int]:
    """Return median and 95th percentile of the gaps between queued neighbors.

    The device needs no longer from one to the next than for a launch: where most gaps are longer, most neighbors waited
    for something else.
    """
    median, p95 = _quantiles(gaps, min(default_ns, 2000))
    if 0 < len(gaps) < _FEWEST:
        median = int(gaps.min())
    median = min(median, ceiling_ns)
    # The tail of these gaps is waits for events that nothing shows.
    return median, min(p95, 3 * median + 1000)


def _quantiles(values: Int, default: int) -> tuple[int, int]:
    """Return median and 95th percentile, without what is so far out that it waited for something."""
    if not len(values):
        return 0, default
    median = int(np.median(values))
    return median, int(np.quantile(values[values <= 5 * median + 2 * default], 0.95))
