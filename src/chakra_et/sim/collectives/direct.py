"""Direct exchange: everybody sends to everybody, without going through others.

All messages of a round are posted at once and share the links; a round costs the latency of the slowest one. An
all-reduce is a direct reduce-scatter and a direct all-gather. The bytes are those of a ring, the rounds one or two
(ASTRA-sim calls this direct, too). `pairwise` is the all-to-all that waits for each message before the next, N - 1
rounds (Thakur, Rabenseifner and Gropp, 2005).
"""

from __future__ import annotations

import numpy as np

from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.traffic import Cost, all_pairs, between, make_cost

__all__ = ["direct", "message", "pairwise"]

_FROM_ROOT = (CommType.BROADCAST, CommType.SCATTER)
_TO_ROOT = (CommType.REDUCE, CommType.GATHER)


def direct(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of sending everything directly.

    Args:
        shape: The group, of at least two.
        comm_type: Any but a barrier.
        root: Index of the root; -1 for none.

    Example:
        >>> from chakra_et.sim.network.topology import SWITCH, Grid
        >>> cost = direct(Shape(Grid((SWITCH,), (4,), (500.0,)), np.arange(4)), CommType.ALL_TO_ALL, -1)
        >>> cost.latency_ns, max(cost.share.tolist())
        (500.0, 0.75)
    """
    n = shape.size
    if comm_type in _FROM_ROOT or comm_type in _TO_ROOT:
        others = np.delete(np.arange(n), root)
        ends = (np.full(n - 1, root), others)
        source, target = ends if comm_type in _FROM_ROOT else ends[::-1]
        loads, took = between(shape, source, target, np.ones(n - 1))
        return make_cost(shape, float(took.max()), loads)
    amount = 1.0 if comm_type == CommType.ALL_GATHER else 1.0 / n
    if comm_type == CommType.ALL_REDUCE:
        return make_cost(shape, 2 * shape.worst_ns, *all_pairs(shape, 2 * amount))
    return make_cost(shape, shape.worst_ns, *all_pairs(shape, amount))


def pairwise(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of an all-to-all with one message at a time.

    Args:
        shape: The group, of at least two.
        comm_type: All-to-all.
        root: Not used.

    Example:
        >>> from chakra_et.sim.network.topology import SWITCH, Grid
        >>> pairwise(Shape(Grid((SWITCH,), (4,), (500.0,)), np.arange(4)), CommType.ALL_TO_ALL, -1).latency_ns
        1500.0
    """
    latency, inside = 0.0, 1
    for d in shape.spans:
        around = inside * int(np.max(shape.count(d)))
        latency += (around - inside) * shape.reach_ns[d]
        inside = around
    return make_cost(shape, latency, *all_pairs(shape, 1.0 / shape.size))


def message(shape: Shape, source: int) -> Cost:
    """Return the cost of a send.

    Args:
        shape: Sender and receiver.
        source: Index of the sender, 0 or 1.

    Example:
        >>> from chakra_et.sim.network.topology import SWITCH, Grid
        >>> cost = message(Shape(Grid((SWITCH,), (4,), (500.0,)), np.array([0, 2])), 1)
        >>> cost.latency_ns, cost.links.tolist()  # up of rank 2, down of rank 0
        (500.0, [1, 4])
    """
    loads, took = between(shape, np.array([source]), np.array([1 - source]), np.ones(1))
    return make_cost(shape, float(took[0]), loads)
