"""How much time intervals cover.

Shape letters: N intervals of all ranks, R ranks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["cover"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@njit(cache=True, nogil=True)
def _merge(
    start: Int, end: Int, order: Int, low: int, high: int, chosen: Bool, begin: Int, until: Int
) -> tuple[int, int]:
    """Write disjoint intervals that cover the same time, ascending; return their number, and how long that is."""
    count = 0
    total = 0
    for slot in range(low, high):
        one = order[slot]
        if not chosen[one] or end[one] <= start[one]:
            continue
        if count > 0 and start[one] <= until[count - 1]:
            total += max(end[one] - until[count - 1], 0)
            until[count - 1] = max(until[count - 1], end[one])
        else:
            begin[count], until[count] = start[one], end[one]
            total += end[one] - start[one]
            count += 1
    return count, total


@njit(cache=True, nogil=True)
def cover(offsets: Int, order: Int, start: Int, end: Int, first: Bool, second: Bool) -> Int:
    """Return how much time two kinds of intervals cover on each rank.

    Args:
        offsets: int64 [R + 1]: where each rank's intervals begin.
        order: int64 [N]: the intervals, those of each rank by start.
        start: int64 [N].
        end: int64 [N].
        first: bool [N]: intervals of the first kind.
        second: bool [N]: intervals of the second kind.

    Returns:
        int64 [R, 3]: time that the first kind covers, the second, and the second without the first.
    """
    found = np.zeros((len(offsets) - 1, 3), np.int64)
    one_begin, one_end = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    begin, until = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    for rank in range(len(offsets) - 1):
        low, high = offsets[rank], offsets[rank + 1]
        ones, found[rank, 0] = _merge(start, end, order, low, high, first, one_begin, one_end)
        others, found[rank, 1] = _merge(start, end, order, low, high, second, begin, until)
        both, slot = 0, 0
        for other in range(others):
            while slot < ones and one_end[slot] <= begin[other]:
                slot += 1
            near = slot
            while near < ones and one_begin[near] < until[other]:
                both += min(one_end[near], until[other]) - max(one_begin[near], begin[other])
                near += 1
        found[rank, 2] = found[rank, 1] - both
    return found
