"""All-reduce inside the switch: it adds up what its ports send, and sends the sum to all.

With N members each port carries S (N + 1) / N bytes in each direction: every member's data is read once by the switch,
and each of them stores its Nth of the sum, which the switch spreads (NVIDIA's NVLink SHARP; Klenk, Jiang, Thorson and
Dennison, "An in-network architecture for accelerating shared-memory multiprocessor collectives", ISCA 2020). Between
servers, trees follow, one for each member of a server (NCCL's NVLSTree).

Whether switches can do that, a system's description doesn't say: this algorithm is there by name only.
"""

from __future__ import annotations

import numpy as np

from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.traffic import Cost, along, make_cost
from chakra_et.sim.collectives.tree import climb_ns
from chakra_et.sim.network.topology import SWITCH

__all__ = ["in_network"]


def in_network(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of an all-reduce in the innermost switch; None where there is none.

    Args:
        shape: The group, of at least two.
        comm_type: All-reduce.
        root: Not used.

    Example:
        >>> from chakra_et.sim.network.topology import Grid
        >>> cost = in_network(Shape(Grid((SWITCH,), (8,), (500.0,)), np.arange(8)), CommType.ALL_REDUCE, -1)
        >>> cost.latency_ns, max(cost.share.tolist())
        (1000.0, 1.125)
    """
    first, outer = shape.spans[0], shape.spans[1:]
    if shape.grid.topologies[first] != SWITCH or not shape.lined:
        return None
    count = shape.count(first)
    loads = [along(shape, first, np.where(count > 1, (count + 1) / count, 0.0))]
    for d in outer:
        loads.append(
            along(shape, d, np.where(shape.count(d) > 1, np.minimum(shape.count(d) / 2, 2.0), 0.0) / shape.inner(d))
        )
    latency = 2 * shape.grid.latency_ns[first] + 2 * sum(climb_ns(shape, d) for d in outer)
    return make_cost(shape, latency, *loads)
