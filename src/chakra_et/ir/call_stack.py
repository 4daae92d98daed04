"""Who called whom: the column `parent` as positions, and the nearest caller of some kind.

Shape letters: N nodes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chakra_et.ir.graph import positions
from chakra_et.ir.trace import Trace

__all__ = ["nearest", "parent_rows"]

Int = npt.NDArray[np.int64]


def parent_rows(trace: Trace, column: str = "parent") -> Int:
    """Return the position of each node's parent in the call stack, int64 [N]; -1 for none.

    Args:
        trace: The trace.
        column: ``parent``, or another column that names one node.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> op = builder.add("aten::mm", NodeType.COMP_NODE)
        >>> _ = builder.add("cudaLaunchKernel", NodeType.COMP_NODE, parent=op)
        >>> parent_rows(builder.build()).tolist()
        [-1, 0]
    """
    if column not in trace.nodes.columns:
        return np.full(len(trace), -1, np.int64)
    parent = trace.integers(column)
    found = positions(trace.nodes["id"].to_numpy(), np.maximum(parent, 0).astype(np.uint64))
    return np.where(parent >= 0, found, -1)


def nearest(parent: Int, wanted: npt.NDArray[np.bool_]) -> Int:
    """Return each node itself if it is wanted, else the nearest of those above it that is, int64 [N]; -1 for none.

    Args:
        parent: int64 [N]: position of the parent, -1 for none.
        wanted: bool [N].

    Example:
        >>> nearest(np.array([-1, 0, 1, 2]), np.array([False, True, False, False])).tolist()
        [-1, 1, 1, 1]
    """
    count = len(parent)
    # The root -1 becomes one node more, count; pointers double, so a stack of depth D takes log D rounds.
    pointer = np.append(np.where(wanted, np.arange(count), np.where(parent < 0, count, parent)), count)
    for _ in range(count.bit_length()):
        following = pointer[pointer]
        if np.array_equal(following, pointer):
            break
        pointer = following
    ends = pointer[:-1]
    # A cycle of parents has no end.
    reached = np.append(wanted, False)[ends]
    return np.where(reached, ends, -1)
