"""How much time intervals cover up to any moment: the sum of a union, asked for as often as wanted.

Shape letters: N intervals, B blocks (disjoint stretches of their union), Q moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Cover", "cover_of"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """A union of intervals.

    Attributes:
        begin: int64 [B], ascending, ns.
        length: int64 [B], ns.
        before: int64 [B]: what the blocks before cover, ns.
    """

    begin: Int
    length: Int
    before: Int

    def until(self, moments: Int) -> Int:
        """Return how much is covered before each moment, int64 [Q], ns."""
        if not len(self.begin):
            return np.zeros(len(moments), np.int64)
        place = np.searchsorted(self.begin, moments, side="right") - 1
        inside = np.clip(moments - self.begin[place], 0, self.length[place])
        found: Int = np.where(place < 0, 0, self.before[place] + inside)
        return found

    def between(self, begin: Int, end: Int) -> Int:
        """Return how much of each stretch is covered, int64 [Q], ns; 0 where it ends before it begins."""
        found: Int = np.maximum(self.until(end) - self.until(begin), 0)
        return found


def cover_of(start: Int, end: Int) -> Cover:
    """Return the union of intervals.

    Args:
        start: int64 [N], ascending, ns.
        end: int64 [N], ns.

    Example:
        >>> cover = cover_of(np.array([0, 3, 10]), np.array([5, 7, 12]))
        >>> cover.until(np.array([4, 8, 11, 20])).tolist()
        [4, 7, 8, 9]
    """
    if not len(start):
        none = np.empty(0, np.int64)
        return Cover(none, none, none)
    latest = np.maximum.accumulate(np.maximum(end, start))
    fresh = np.ones(len(start), np.bool_)
    fresh[1:] = start[1:] > latest[:-1]
    first = np.flatnonzero(fresh)
    begin = start[first]
    length = latest[np.append(first[1:] - 1, len(start) - 1)] - begin
    return Cover(begin, length, np.cumsum(length) - length)
