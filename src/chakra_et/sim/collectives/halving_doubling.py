"""Recursive halving and doubling: partners at distance 1, 2, 4, ...

A reduce-scatter halves the vector round by round, an all-gather doubles it, an all-reduce does both (Rabenseifner):
log2 N rounds, 2 log2 N for an all-reduce, with no more bytes than a ring. Where N is no power of two, the members
beyond the largest one hand their data to a partner first and get the result afterwards (Thakur, Rabenseifner and
Gropp, "Optimization of collective communication operations in MPICH", 2005): two rounds more, and up to twice the
bytes.
"""

from __future__ import annotations

import numpy as np

from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.traffic import Cost, between, make_cost

__all__ = ["halving_doubling"]


def halving_doubling(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of recursive halving, doubling, or both.

    Args:
        shape: The group, of at least two.
        comm_type: All-reduce, reduce-scatter or all-gather.
        root: Not used.

    Example:
        >>> from chakra_et.sim.network.topology import SWITCH, Grid
        >>> cost = halving_doubling(Shape(Grid((SWITCH,), (8,), (500.0,)), np.arange(8)), CommType.ALL_REDUCE, -1)
        >>> cost.latency_ns, max(cost.share.tolist())
        (3000.0, 1.75)
    """
    n = shape.size
    core = 1 << (n.bit_length() - 1)
    whole = float(n) if comm_type == CommType.ALL_GATHER else 1.0  # the vector, in units of `comm_size`
    twice = comm_type == CommType.ALL_REDUCE
    # The first 2 (n - core) members pair up; the odd ones of them take part for both.
    extra = np.arange(0, 2 * (n - core), 2)
    inside = np.concatenate([extra + 1, np.arange(2 * (n - core), n)])
    latency, parts = 0.0, []
    distance = 1
    while distance < core:
        partner = inside[np.arange(core) ^ distance]
        loads, took = between(shape, inside, partner, np.full(core, (1 + twice) * whole / (2 * distance)))
        parts.append(loads)
        latency += float(took.max()) * (1 + twice)
        distance *= 2
    if len(extra):
        before, after = _handed_over(comm_type, n)
        for source, target, amount in ((extra, extra + 1, before), (extra + 1, extra, after)):
            loads, took = between(shape, source, target, np.full(len(extra), amount))
            parts.append(loads)
            latency += float(took.max())
    return make_cost(shape, latency, *parts)


def _handed_over(comm_type: CommType, n: int) -> tuple[float, float]:
    """Return what a member beyond the power of two gives and gets, in units of `comm_size`."""
    if comm_type == CommType.ALL_GATHER:
        return 1.0, float(n - 1)
    return 1.0, 1.0 if comm_type == CommType.ALL_REDUCE else 1.0 / n
