"""Trees: few rounds, for short messages.

All-reduce, broadcast and reduce run on two binary trees at once, each with half of the data, where who is inner in one
is a leaf in the other: full bandwidth in logarithmic time (Sanders, Speck and Träff, "Two-tree algorithms for full
bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009), as in NCCL. Per dimension with k members, a
broadcast of S bytes makes a member send S at most; an all-reduce 2 S (k - 1 edges a tree: 3/2 S for k = 3, S for k =
2), which is more than the 2 (k - 1) / k * S of a ring. It goes up and down in the innermost dimension, and between
servers with a tree for each member of a server, as NCCL's tree does. NCCL passes data along a chain inside a server, k
- 1 hops; here it is a tree there too, log2 k rounds. Along a ring dimension, data comes in from both sides: k / 2
hops.

Gather and scatter run on a binomial tree: log2 N rounds, in which the root still sends or receives everything (Thakur,
Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", Int. J. High Performance
Computing Applications 19, 2005).
"""

from __future__ import annotations

import numpy as np

from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.traffic import Cost, along, between, make_cost
from chakra_et.sim.network.topology import RING

__all__ = ["binomial_tree", "climb_ns", "double_tree"]


def climb_ns(shape: Shape, dimension: int) -> float:
    """Return the latency of a way from the leaves of a tree along a dimension to its root."""
    if shape.grid.topologies[dimension] == RING:
        return shape.reach_ns[dimension]
    return int(np.max(shape.count(dimension)) - 1).bit_length() * shape.grid.latency_ns[dimension]


def double_tree(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of two binary trees; None for a group that has no counterparts in neighboring blocks.

    Args:
        shape: The group, of at least two.
        comm_type: All-reduce, broadcast or reduce.
        root: Index of the root; -1 for none.

    Example:
        >>> from chakra_et.sim.network.topology import SWITCH, Grid
        >>> cost = double_tree(Shape(Grid((SWITCH,), (8,), (500.0,)), np.arange(8)), CommType.ALL_REDUCE, -1)
        >>> cost.latency_ns, max(cost.share.tolist())
        (3000.0, 2.0)
    """
    if not shape.lined:
        return None
    twice = comm_type == CommType.ALL_REDUCE
    deaf = root if comm_type == CommType.BROADCAST else -1
    mute = root if comm_type == CommType.REDUCE else -1
    loads = []
    for d in shape.spans:
        each = np.minimum(shape.count(d) / 2, 2.0) if twice else np.ones(shape.size)
        loads.append(along(shape, d, np.where(shape.count(d) > 1, each, 0.0) / shape.inner(d), deaf=deaf, mute=mute))
    return make_cost(shape, (1 + twice) * sum(climb_ns(shape, d) for d in shape.spans), *loads)


def binomial_tree(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of a gather or scatter on a binomial tree.

    Args:
        shape: The group, of at least two.
        comm_type: Gather or scatter.
        root: Index of the root.

    Example:
        >>> from chakra_et.sim.network.topology import SWITCH, Grid
        >>> cost = binomial_tree(Shape(Grid((SWITCH,), (8,), (500.0,)), np.arange(8)), CommType.SCATTER, 0)
        >>> cost.latency_ns, max(cost.share.tolist())
        (1500.0, 7.0)
    """
    n = shape.size
    latency, parts = 0.0, []
    distance = 1 << (n - 1).bit_length() >> 1
    while distance:
        parent = np.arange(0, n - distance, 2 * distance)
        below = np.minimum(distance, n - parent - distance).astype(np.float64)
        ends = ((parent + root) % n, (parent + distance + root) % n)
        source, target = ends if comm_type == CommType.SCATTER else ends[::-1]
        loads, took = between(shape, source, target, below)
        parts.append(loads)
        latency += float(took.max())
        distance >>= 1
    return make_cost(shape, latency, *parts)
