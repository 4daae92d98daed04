"""Is a change more than noise? What steps of one set vary by among themselves says so.

With four steps or more in each set, the two-sided rank test of Mann and Whitney decides, at 5 %: it asks whether the
steps of one set are nearly always slower than those of the other, and a single strange step changes little. With fewer,
that test can't say anything; then Welch's t-test does, at 5 %: the change must be large beside the spread of both. One
step in one set is held against the spread of the other. One step in each: it can't be told.

Shape letters: R rows, B steps before, A steps after.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["ENOUGH", "significance"]

Float = npt.NDArray[np.float64]

ENOUGH = 4
# 97.5th percentile of Student's t by degrees of freedom, 1 to 30; and of the normal distribution.
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL = 1.960


def significance(before: Float, after: Float) -> list[bool | None]:
    """Tell of each row whether it changed by more than its steps vary.

    Args:
        before: float64 [R, B]: values of the steps.
        after: float64 [R, A].

    Returns:
        R times yes, no, or None where it can't be told.

    Example:
        >>> import numpy as np
        >>> before = np.array([[100.0, 101.0, 99.0, 102.0]] * 2)
        >>> after = np.array([[120.0, 130.0, 125.0, 127.0], [98.0, 103.0, 100.0, 101.0]])
        >>> significance(before, after)
        [True, False]
    """
    counts = before.shape[1], after.shape[1]
    if not min(counts) or max(counts) < 2:
        return [None] * len(before)
    if min(counts) >= ENOUGH:
        return [_ranks_differ(one, two) for one, two in zip(np.sort(before, axis=1), after, strict=True)]
    return [_means_differ(one, two) for one, two in zip(before, after, strict=True)]


def _ranks_differ(before: Float, after: Float) -> bool:
    """Apply the test of Mann and Whitney by its normal approximation, as strict as the exact one from 4 and 4 on."""
    count = len(before) * len(after)
    below = np.searchsorted(before, after, side="left").sum() + np.searchsorted(before, after, side="right").sum()
    distance = abs(below - count) / 2
    spread = math.sqrt(count * (len(before) + len(after) + 1) / 12)
    return bool(distance - 0.5 > _NORMAL * spread)


def _means_differ(before: Float, after: Float) -> bool:
    """Apply Welch's t-test; where one side has a single value, the other's spread stands for both."""
    parts = [float(np.var(side, ddof=1)) / len(side) if len(side) > 1 else None for side in (before, after)]
    change = abs(float(after.mean() - before.mean()))
    known = [part for part in parts if part is not None]
    if len(known) == 2:
        squares = sum(part**2 / (len(side) - 1) for part, side in zip(known, (before, after), strict=True))
        freedom = sum(known) ** 2 / squares if squares else math.inf
        variance = sum(known)
    else:
        several = before if len(before) > 1 else after
        freedom, variance = len(several) - 1, known[0] * (len(several) + 1)
    bound = _STUDENT[int(freedom) - 1] if freedom <= len(_STUDENT) else _NORMAL
    # Steps of the same length to the ns may come out of a mean apart by less.
    return change > max(bound * math.sqrt(variance), 0.5)
