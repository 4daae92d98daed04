"""When what nodes wait for ended, gaps looked through.

Shape letters: N nodes, E edges, A activities.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["latest_ends"]

Int = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def latest_ends(
    rows: Int, indptr: Int, preds: Int, end: Int, gap: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]
) -> Int:
    """Return when the last of the chosen nodes that each node waits for ended, straight or through gaps.

    Args:
        rows: int64 [A]: nodes to ask for.
        indptr: int64 [N + 1]: predecessor lists.
        preds: int64 [E].
        end: int64 [N], ns.
        gap: bool [N]: nodes to look through.
        chosen: bool [N]: nodes that count.

    Returns:
        int64 [A], ns; the smallest int64 where there is none.
    """
    found = np.full(len(rows), np.iinfo(np.int64).min, np.int64)
    seen = np.full(len(end), -1, np.int64)
    stack = np.empty(len(end) + 1, np.int64)
    for one in range(len(rows)):
        stack[0], size = rows[one], 1
        while size > 0:
            size -= 1
            node = stack[size]
            for edge in range(indptr[node], indptr[node + 1]):
                pred = preds[edge]
                if chosen[pred]:
                    found[one] = max(found[one], end[pred])
                elif gap[pred] and seen[pred] != one:
                    seen[pred] = one
                    stack[size] = pred
                    size += 1
    return found
