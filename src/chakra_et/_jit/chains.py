"""Chains in a graph: runs of nodes that can be taken together.

Shape letters: N nodes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["chain_heads"]

Int = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def chain_heads(before: Int) -> Int:
    """Return the first node of each node's chain.

    Args:
        before: int64 [N]: the node that each one continues, -1 if it begins a chain; always an earlier position.

    Returns:
        int64 [N].
    """
    head = np.empty(len(before), np.int64)
    for node in range(len(before)):
        head[node] = node if before[node] < 0 else head[before[node]]
    return head
