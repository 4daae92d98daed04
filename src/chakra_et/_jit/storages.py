"""Lives of storages: numbers that are used again are other storages.

Shape letters: K uses of storages by operators.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["number_lives"]

Int = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def number_lives(storage: Int, row: Int, begin: Int, end: Int, wrote: npt.NDArray[np.bool_]) -> Int:
    """Tell apart the storages that had one number after the other.

    One that an operator returns without having been given it, after all that used its number before have ended, is a
    new one.

    Args:
        storage: int64 [K], ascending: the number.
        row: int64 [K], ascending for each number: the operator; what it was given stands before what it returned.
        begin: int64 [K]: when the operator began.
        end: int64 [K]: when it ended.
        wrote: bool [K], true if the operator returned it, false if it was given it.

    Returns:
        int64 [K]: lives, counted from 0.
    """
    number = np.empty(len(storage), np.int64)
    life = np.int64(-1)
    until = np.int64(0)
    for use in range(len(storage)):
        if use == 0 or storage[use] != storage[use - 1]:
            life += 1
            until = end[use]
        elif row[use] != row[use - 1] and wrote[use] and begin[use] >= until:
            life += 1
        until = max(until, end[use])
        number[use] = life
    return number
