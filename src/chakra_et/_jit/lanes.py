"""Order on device streams and on communication workers ("lanes").

Shape letters: A activities, E edges, L lanes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["lane_order"]

Int = npt.NDArray[np.int64]
_OPEN = 64


@njit(cache=True, nogil=True)
def lane_order(lane: Int, start: Int, end: Int, resolution: int) -> tuple[Int, Int, Int, Int, int, int]:
    """Find what each activity follows on its own lane.

    An activity follows every earlier one that ended before it and that nothing else follows yet. One that starts while
    all of those still run (programmatic dependent launch, concurrent graph branches) follows what the first of them
    followed.

    Args:
        lane: int64 [A]; activities of a lane stand together; -1: the activity is on no lane.
        start: int64 [A], ascending in each lane.
        end: int64 [A].
        resolution: Ends that stick out by up to this much are moved to the next start.

    Returns:
        indptr int64 [A + 1] and predecessors int64 [E]; ends after snapping int64 [A]; the first earlier activity that
        still ran when each one started, int64 [A], -1 if none did; how many ends were snapped; and how many activities
        follow nothing that they overlap.
    """
    count = len(lane)
    snapped_end = end.copy()
    indptr = np.zeros(count + 1, np.int64)
    preds = np.empty(max(16, 2 * count), np.int64)
    open_ = np.empty(_OPEN, np.int64)
    beside = np.full(count, -1, np.int64)
    edges, opened, snapped, overlapping = 0, 0, 0, 0
    for here in range(count):
        indptr[here] = edges
        if here == 0 or lane[here] != lane[here - 1] or lane[here] < 0:
            opened = 0
        if edges + _OPEN + 1 >= len(preds):
            grown = np.empty(2 * len(preds) + 2 * _OPEN, np.int64)
            grown[:edges] = preds[:edges]
            preds = grown
        kept = 0
        for slot in range(opened):
            other = open_[slot]
            if snapped_end[other] <= start[here] + resolution:
                if snapped_end[other] > start[here]:
                    snapped_end[other] = start[here]
                    snapped += 1
                preds[edges] = other
                edges += 1
            else:
                open_[kept] = other
                kept += 1
        if kept > 0:
            beside[here] = open_[0]
        if edges == indptr[here] and opened > 0:
            overlapping += 1
            first = open_[0]
            for edge in range(indptr[first], min(indptr[first + 1], indptr[first] + _OPEN)):
                preds[edges] = preds[edge]
                edges += 1
        if kept == _OPEN:
            open_[: _OPEN - 1] = open_[1:].copy()
            kept -= 1
        open_[kept] = here
        opened = kept + 1
        indptr[here + 1] = edges
    return indptr, preds[:edges].copy(), snapped_end, beside, snapped, overlapping
