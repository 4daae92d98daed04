"""Bruck's all-to-all: few rounds, more bytes.

In round i each member sends the blocks whose distance has bit i set to the member 2^i ahead: log2 N rounds, about half
of the vector in each (Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in
multiport message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8, 1997; Thakur et al., 2005).
"""

from __future__ import annotations

import numpy as np

from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.traffic import Cost, between, make_cost

__all__ = ["bruck"]


def bruck(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of Bruck's all-to-all.

    Args:
        shape: The group, of at least two.
        comm_type: All-to-all.
        root: Not used.

    Example:
        >>> from chakra_et.sim.network.topology import SWITCH, Grid
        >>> cost = bruck(Shape(Grid((SWITCH,), (8,), (500.0,)), np.arange(8)), CommType.ALL_TO_ALL, -1)
        >>> cost.latency_ns, max(cost.share.tolist())
        (1500.0, 1.5)
    """
    n = shape.size
    members = np.arange(n)
    latency, parts = 0.0, []
    distance = 1
    while distance < n:
        blocks = int(np.count_nonzero(members & distance))
        loads, took = between(shape, members, (members + distance) % n, np.full(n, blocks / n))
        parts.append(loads)
        latency += float(took.max())
        distance *= 2
    return make_cost(shape, latency, *parts)
