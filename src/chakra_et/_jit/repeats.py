"""Following a sequence one period back.

Shape letters: N positions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["follow", "longest_run"]

Int = npt.NDArray[np.int64]
# So many equal codes in a row say that two places correspond again; more if they are further off.
_NEAR = 4
_FAR = 16
_FARTHEST = 4096
_ENOUGH = 16


@njit(cache=True, nogil=True)
def _agree(codes: Int, i: int, j: int, wanted: int) -> bool:
    """True if `wanted` codes from `i` equal those from `j`, or all up to the end of the sequence."""
    count = len(codes)
    if i >= count:
        return False
    for step in range(wanted):
        if i + step >= count:
            return True
        if codes[i + step] != codes[j + step]:
            return False
    return True


@njit(cache=True, nogil=True)
def _resume(codes: Int, i: int, j: int, reach: int, far: int) -> tuple[int, int]:
    """Return how many to skip at `i` and at `j` until the sequence agrees with itself again; (-1, -1) if nowhere."""
    for total in range(1, 2 * reach + 1):
        for skip in range(max(0, total - reach), min(total, reach) + 1):
            back = total - skip
            if j + back < i + skip and _agree(codes, i + skip, j + back, _NEAR + total // 8):
                return skip, back
    for skip in range(reach + 1, far):
        if _agree(codes, i + skip, j, _FAR):
            return skip, 0
        if j + skip < i and _agree(codes, i, j + skip, _FAR):
            return 0, skip
    return -1, -1


@njit(cache=True, nogil=True)
def follow(codes: Int, begin: int, lag: int, reach: int, patience: int) -> Int:
    """Align a sequence from some position on with itself one period earlier, where things may be missing or added.

    Args:
        codes: int64 [N].
        begin: First position to look at.
        lag: Period to begin with; it shifts where something was added or is missing.
        reach: So many positions may be added and missing at one place.
        patience: Give up after so many positions without a counterpart.

    Returns:
        int64 [N]: the position one period earlier; -1 where there is none.
    """
    count = len(codes)
    before = np.full(count, -1, np.int64)
    i, j, lost, failed = begin, begin - lag, 0, 0
    # The last position with a counterpart, and that: what was skipped since may fit from its end.
    last, theirs = i - 1, j - 1
    while i < count and lost <= patience:
        if codes[i] == codes[j]:
            step = 1
            while i - step > last and j - step > theirs and codes[i - step] == codes[j - step]:
                before[i - step] = j - step
                step += 1
            before[i] = j
            last, theirs = i, j
            i += 1
            j += 1
            continue
        skip, back = _resume(codes, i, j, reach, min(2 * lag, _FARTHEST))
        if skip < 0:
            skip, back = _NEAR, _NEAR
            failed += 1
            # Nothing fits here, so the rest isn't looked at.
            if failed > _ENOUGH and failed * _NEAR * 4 > i - begin:
                break
        lost += max(skip, back)
        i += skip
        j += back
    return before


@njit(cache=True, nogil=True)
def longest_run(codes: Int, lag: int, slack: int) -> tuple[int, int]:
    """Return where the longest stretch begins and ends in which codes equal those `lag` positions later.

    Args:
        codes: int64 [N].
        lag: Distance.
        slack: So many unequal ones in a row don't end a stretch.

    Returns:
        First position, and the one after the last that has its counterpart in the stretch.
    """
    best_begin, best_end = 0, 0
    begin, odd, equal = 0, slack + 1, 0
    for node in range(len(codes) - lag):
        if codes[node] != codes[node + lag]:
            odd += 1
            continue
        if odd > slack:
            begin, equal = node, 0
        odd = 0
        equal += 1
        end = node + lag + 1
        # Mostly equal, or else chance matches would join.
        if 10 * equal >= 9 * (node + 1 - begin) and end - begin > best_end - best_begin:
            best_begin, best_end = begin, end
    return best_begin, best_end
