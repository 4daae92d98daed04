"""Runtime calls by what they do, and which activity each launched.

Shape letters: C calls, A activities.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.frontends.pytorch.parse_kineto import RUNTIME
from chakra_et.frontends.pytorch.timeline import HostTimeline

__all__ = [
    "ASYNC_COPY",
    "BLOCKING_COPY",
    "DEVICE_SYNC",
    "EVENT_SYNC",
    "OTHER",
    "RECORD",
    "STREAM_SYNC",
    "WAIT",
    "GraphLaunch",
    "LaunchLog",
    "call_roles",
    "find_graph_launches",
    "find_launchers",
]

Int = npt.NDArray[np.int64]

OTHER, RECORD, WAIT, DEVICE_SYNC, STREAM_SYNC, EVENT_SYNC, BLOCKING_COPY, ASYNC_COPY = range(8)

_PREFIX = r"^(?:cuda|cu|hip|mu|musa|xpu|ze)"
_ROLES: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(_PREFIX + pattern), role)
    for pattern, role in (
        (r"EventRecord", RECORD),
        (r"StreamWaitEvent", WAIT),
        (r"(?:Device|Ctx)Synchronize", DEVICE_SYNC),
        (r"StreamSynchronize", STREAM_SYNC),
        (r"EventSynchronize", EVENT_SYNC),
        (r"Memcpy\w*Async", ASYNC_COPY),
        (r"Memcpy(?!\w*Async)", BLOCKING_COPY),
        (r"(?:Free|Malloc|MemAlloc|MemFree)(?!.*Async)(?!Host)", DEVICE_SYNC),
    )
)


def call_roles(timeline: HostTimeline) -> npt.NDArray[np.int8]:
    """Return what each host event does to streams, int8 [E]; `OTHER` for all but runtime calls."""
    names = (
        timeline.frame.lazy()
        .select("name", "kind")
        .filter(pl.col("kind") == RUNTIME)
        .select("name")
        .unique()
        .collect()["name"]
    )
    table = {name: role for name in names for pattern, role in reversed(_ROLES) if pattern.match(name)}
    if not table:
        return np.zeros(len(timeline.kind), np.int8)
    roles = timeline.frame["name"].replace_strict(
        list(table), list(table.values()), default=OTHER, return_dtype=pl.Int8
    )
    return np.where(timeline.kind == RUNTIME, roles.to_numpy(), OTHER).astype(np.int8)


def find_launchers(timeline: HostTimeline, correlation: Int) -> Int:
    """Return the runtime call of each activity's correlation id (-1: none), int64 [A].

    Of several calls with one id (a driver call inside a runtime call) the outermost, which is the first, is taken.
    """
    calls = np.flatnonzero(timeline.kind == RUNTIME)
    keys = timeline.frame["correlation"].to_numpy()[calls]
    good = keys >= 0
    calls, keys = calls[good], keys[good]
    order = np.lexsort((-timeline.end[calls], timeline.start[calls], keys))
    keys, calls = keys[order], calls[order]
    if not len(keys):
        return np.full(len(correlation), -1, np.int64)
    slot = np.minimum(np.searchsorted(keys, correlation, side="left"), len(keys) - 1)
    return np.where((keys[slot] == correlation) & (correlation >= 0), calls[slot], -1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchLog:
    """For every lane, its activities in order of launch.

    Attributes:
        time: Per lane int64 [n]: when each was launched (launches unknown count as the activity's own start), running
            maximum.
        activity: Per lane int64 [n].
    """

    time: dict[int, Int]
    activity: dict[int, Int]

    @staticmethod
    def build(lane: Int, start: Int, launch_time: Int) -> LaunchLog:
        """Build the log; lane (-1: left out), start (ns) and launch_time (ns, -1 unknown) are int64 [A]."""
        when = np.where(launch_time >= 0, launch_time, start)
        times: dict[int, Int] = {}
        activities: dict[int, Int] = {}
        for number in np.unique(lane[lane >= 0]):
            rows = np.flatnonzero(lane == number)
            rows = rows[np.lexsort((start[rows], when[rows]))]
            times[int(number)] = when[rows]
            activities[int(number)] = rows
        return LaunchLog(times, activities)

    def last_before(self, lane: int, time: int) -> int:
        """Return the last activity launched on a lane before `time`, or -1."""
        slot = int(np.searchsorted(self.time[lane], time, side="left")) - 1
        return int(self.activity[lane][slot]) if slot >= 0 else -1

    def first_from(self, lane: int, time: int) -> int:
        """Return the first activity launched on a lane at `time` or later, or -1."""
        slot = int(np.searchsorted(self.time[lane], time, side="left"))
        return int(self.activity[lane][slot]) if slot < len(self.time[lane]) else -1


@dataclass(frozen=True, slots=True)
class GraphLaunch:
    """A launch whose activities run on several lanes; it is one unit on its stream all the same.

    Attributes:
        call: The launch call.
        firsts: First activity on each lane.
        lasts: Last activity on each lane.
    """

    call: int
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]


def find_graph_launches(launcher: Int, lane: Int, start: Int) -> list[GraphLaunch]:
    """Return the launches that put activities on more than one lane.

    Args:
        launcher: int64 [A], the runtime call that launched each activity, -1 unknown.
        lane: int64 [A].
        start: int64 [A], ns.
    """
    known = np.flatnonzero(launcher >= 0)
    if not len(known):
        return []
    order = known[np.lexsort((start[known], lane[known], launcher[known]))]
    same = (launcher[order][1:] == launcher[order][:-1]) & (lane[order][1:] == lane[order][:-1])
    first = order[np.concatenate([[True], ~same])]
    last = order[np.concatenate([~same, [True]])]
    calls, begin, count = np.unique(launcher[first], return_index=True, return_counts=True)
    several = count > 1
    return [
        GraphLaunch(call, tuple(first[at : at + lanes].tolist()), tuple(last[at : at + lanes].tolist()))
        for call, at, lanes in zip(
            calls[several].tolist(), begin[several].tolist(), count[several].tolist(), strict=True
        )
    ]
