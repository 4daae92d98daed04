"""What communications say about the clocks of two ranks.

Shape letters: C communications, M meetings, R ranks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["NO_BOUND_NS", "clock_bounds"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# Further than any clock is off.
NO_BOUND_NS = 1 << 62


@njit(cache=True, nogil=True)
def clock_bounds(seats: Int, place: Int, ready: Int, end: Int, gives: Bool, takes: Bool, count: int) -> Int:
    """Return how far two ranks' clocks may be apart: nobody leaves before those are ready whose data it takes.

    Args:
        seats: int64 [M + 1]: where the communications of each meeting begin.
        place: int64 [C]: the rank of each, 0 .. R-1.
        ready: int64 [C]: when it could give data to others, on its own clock, ns.
        end: int64 [C].
        gives: bool [C]: others need its data.
        takes: bool [C]: it needs the data of others.
        count: Number of ranks, R.

    Returns:
        int64 [3, R, R]: for ranks a and b, the least and the most that is added to b's clock beyond what is added to
        a's (-+`NO_BOUND_NS` where nothing bounds it), and the number of pairs that tell.
    """
    found = np.zeros((3, count, count), np.int64)
    found[0] = -NO_BOUND_NS
    found[1] = NO_BOUND_NS
    for meeting in range(len(seats) - 1):
        for one in range(seats[meeting], seats[meeting + 1]):
            for two in range(seats[meeting], seats[meeting + 1]):
                a, b = place[one], place[two]
                after, before = gives[one] and takes[two], gives[two] and takes[one]
                if a == b or not (after or before):
                    continue
                if after:
                    found[0, a, b] = max(found[0, a, b], ready[one] - end[two])
                if before:
                    found[1, a, b] = min(found[1, a, b], end[one] - ready[two])
                found[2, a, b] += 1
    return found
