"""Aligning two sequences: the longest common subsequence, in time that grows with what differs.

The method is that of E. W. Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1 (1986): paths from
both ends meet in the middle, and each half is solved alike. Where much differs, the search for the middle is given up
after a number of steps, and the path is cut where it got furthest: the result is then long, but maybe not the longest.

Shape letters: N, M positions, P pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["common_subsequence"]

Int = npt.NDArray[np.int64]
_FAR = 1 << 60


@njit(cache=True, nogil=True)
def _cut(one: Int, two: Int, box: Int, ahead: Int, back: Int, patience: int) -> tuple[int, int]:
    """Return a point inside a box that a shortest path through it passes, or the furthest one of a long search.

    Diagonal d holds the points (x, y) with x - y = d; `ahead` and `back` hold the furthest x on each, from both ends.
    """
    left, right, top, bottom = box[0], box[1], box[2], box[3]
    zero = len(two) + 2
    least, most = left - bottom, right - top
    begin, end = left - top, right - bottom
    odd = (begin - end) % 2 != 0
    ahead[zero + least - 1] = ahead[zero + most + 1] = ahead[zero + begin - 1] = -_FAR
    back[zero + least - 1] = back[zero + most + 1] = back[zero + end + 1] = _FAR
    ahead[zero + begin + 1] = left
    back[zero + end - 1] = right
    for cost in range(right - left + bottom - top + 1):
        furthest, best = left + top, left
        low, high = begin - cost, begin + cost
        if low >= least:
            ahead[zero + low - 1] = -_FAR
        else:
            low += (least - low + 1) // 2 * 2
        if high > most:
            high -= (high - most + 1) // 2 * 2
        elif cost:
            ahead[zero + high + 1] = -_FAR
        for d in range(low, high + 1, 2):
            x = max(ahead[zero + d - 1] + 1, ahead[zero + d + 1])
            while x < right and x - d < bottom and one[x] == two[x - d]:
                x += 1
            ahead[zero + d] = x
            if odd and end - cost < d < end + cost and back[zero + d] <= x:
                x = min(x, right, bottom + d)
                return x, x - d
            if x <= right and x - d <= bottom and 2 * x - d > furthest:
                furthest, best = 2 * x - d, x
        low, high = end - cost, end + cost
        if low < least:
            low += (least - low + 1) // 2 * 2
        elif cost:
            back[zero + low - 1] = _FAR
        if high <= most:
            back[zero + high + 1] = _FAR
        else:
            high -= (high - most + 1) // 2 * 2
        for d in range(low, high + 1, 2):
            x = min(back[zero + d + 1] - 1, back[zero + d - 1])
            while x > left and x - d > top and one[x - 1] == two[x - d - 1]:
                x -= 1
            back[zero + d] = x
            if not odd and begin - cost <= d <= begin + cost and ahead[zero + d] >= x:
                x = max(x, left, top + d)
                return x, x - d
        if cost >= patience and furthest > left + top:
            return best, furthest - best
    return left, top


@njit(cache=True, nogil=True)
def common_subsequence(one: Int, two: Int, patience: int) -> Int:
    """Return pairs of positions of equal codes, both ascending.

    Args:
        one: int64 [N]: codes.
        two: int64 [M]: codes.
        patience: So many differences are searched for the best cut of a stretch; then a good one is taken.

    Returns:
        int64 [P, 2].
    """
    pairs = np.empty((min(len(one), len(two)), 2), np.int64)
    count = 0
    reach = len(one) + len(two) + 6
    ahead, back = np.empty(reach, np.int64), np.empty(reach, np.int64)
    boxes = np.empty((reach, 4), np.int64)
    boxes[0] = (0, len(one), 0, len(two))
    open_ = 1
    while open_:
        open_ -= 1
        box = boxes[open_].copy()
        while box[0] < box[1] and box[2] < box[3] and one[box[0]] == two[box[2]]:
            pairs[count, 0], pairs[count, 1] = box[0], box[2]
            count += 1
            box[0] += 1
            box[2] += 1
        while box[0] < box[1] and box[2] < box[3] and one[box[1] - 1] == two[box[3] - 1]:
            box[1] -= 1
            box[3] -= 1
            pairs[count, 0], pairs[count, 1] = box[1], box[3]
            count += 1
        if box[0] == box[1] or box[2] == box[3]:
            continue
        x, y = _cut(one, two, box, ahead, back, patience)
        if (x == box[0] and y == box[2]) or (x == box[1] and y == box[3]):
            continue
        boxes[open_] = (box[0], x, box[2], y)
        boxes[open_ + 1] = (x, box[1], y, box[3])
        open_ += 2
    found = pairs[:count]
    return found[np.argsort(found[:, 0])]
