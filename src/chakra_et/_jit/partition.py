"""How much of a stretch of time is covered by which kinds of activities.

Shape letters: A activities, W windows, C combinations of kinds, Q moments, I idle stretches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["idle_stretches", "partition"]

Int = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]


@njit(cache=True, nogil=True)
def partition(start: Int, end: Int, kind: Kinds, ends: Int, moments: Int) -> Int:
    """Add up the time in which each combination of kinds runs, up to each moment.

    Args:
        start: int64 [A], ascending, ns.
        end: int64 [A], ns.
        kind: int8 [A]: 0, 1 or 2.
        ends: int64 [A]: activities by end.
        moments: int64 [Q], ascending, ns.

    Returns:
        int64 [Q, 8]: time from the first moment on in which exactly those kinds run whose bits are set (0: none).
    """
    found = np.zeros((len(moments), 8), np.int64)
    total = np.zeros(8, np.int64)
    running = np.zeros(3, np.int64)
    came, went, asked = 0, 0, 0
    time = moments[0] if len(moments) else 0
    while asked < len(moments):
        step = moments[asked]
        if came < len(start):
            step = min(step, start[came])
        if went < len(ends):
            step = min(step, end[ends[went]])
        if step > time:
            mask = int(running[0] > 0) + 2 * int(running[1] > 0) + 4 * int(running[2] > 0)
            total[mask] += step - time
            time = step
        # Who begins before the first moment runs at it; those of no length neither begin nor end.
        while came < len(start) and start[came] <= step:
            if end[came] > start[came]:
                running[kind[came]] += 1
            came += 1
        while went < len(ends) and end[ends[went]] <= step:
            one = ends[went]
            if end[one] > start[one]:
                running[kind[one]] -= 1
            went += 1
        while asked < len(moments) and moments[asked] <= step:
            found[asked] = total
            asked += 1
    return found


@njit(cache=True, nogil=True)
def idle_stretches(start: Int, end: Int, begin: int, until: int) -> Int:
    """Return the stretches in which nothing runs.

    Args:
        start: int64 [A], ascending, ns.
        end: int64 [A], ns.
        begin: First ns.
        until: The ns after the last one.

    Returns:
        int64 [I, 3]: from, to, and the activity that ends the stretch (-1 where none does).
    """
    found = np.empty((len(start) + 1, 3), np.int64)
    count = 0
    time = begin
    for one in range(len(start)):
        if start[one] >= until:
            break
        if end[one] <= start[one]:
            continue
        if start[one] > time:
            found[count, 0], found[count, 1], found[count, 2] = time, start[one], one
            count += 1
        time = max(time, end[one])
    if time < until:
        follower = -1
        for one in range(len(start)):
            if start[one] >= until and end[one] > start[one]:
                follower = one
                break
        found[count, 0], found[count, 1], found[count, 2] = time, until, follower
        count += 1
    return found[:count].copy()
