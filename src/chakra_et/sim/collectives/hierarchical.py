"""Hierarchical collectives: a phase for each dimension, each among the members of a line.

An all-reduce scatters along the inner dimensions, reduces along the outermost, and gathers on the way back, so that an
outer dimension with n members below it carries 1 / n of the bytes (Cho, Finkler, Serrano, Kung and Hunter,
"BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", IBM J. Res. Dev. 63, 2019;
Rashidi et al., "Themis", ISCA 2022). Phases are rings, each with k - 1 rounds along a dimension with k members; an
all-to-all exchanges directly in each dimension. Chunks follow one another through the phases, so that all dimensions
work at the same time.

In a torus (all dimensions rings), the data is cut into as many parts as there are dimensions, and each part begins in
another one, so that all links are used (Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on
torus interconnects", ICS 2010).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.traffic import Cost, Loads, along, between, make_cost
from chakra_et.sim.network.topology import RING, SWITCH

__all__ = ["hierarchical"]


def hierarchical(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of a phase in each dimension; None for a group that isn't a grid.

    Args:
        shape: The group, of at least two.
        comm_type: All-reduce, reduce-scatter, all-gather or all-to-all.
        root: Not used.

    Example:
        >>> from chakra_et.sim.network.topology import Grid
        >>> shape = Shape(Grid((SWITCH, SWITCH), (8, 4), (600.0, 2700.0)), np.arange(32))
        >>> cost = hierarchical(shape, CommType.ALL_REDUCE, -1)
        >>> cost.latency_ns, sorted(set(cost.share.tolist()))
        (24600.0, [0.1875, 1.75])
    """
    if not (shape.even and shape.lined):
        return None
    counts = [int(shape.count(d)[0]) for d in shape.spans]
    if comm_type == CommType.ALL_TO_ALL:
        loads = [_exchange(shape, d, 1.0 / k) for d, k in zip(shape.spans, counts, strict=True)]
        return make_cost(shape, sum(shape.reach_ns[d] for d in shape.spans), *loads)
    factor = 2.0 if comm_type == CommType.ALL_REDUCE else 1.0
    whole = float(shape.size) if comm_type == CommType.ALL_GATHER else 1.0
    volumes = _volumes(counts, torus=all(shape.grid.topologies[d] == RING for d in shape.spans))
    loads = [along(shape, d, factor * whole * part) for d, part in zip(shape.spans, volumes, strict=True)]
    rounds = sum((k - 1) * shape.step_ns[d] for d, k in zip(shape.spans, counts, strict=True))
    return make_cost(shape, factor * rounds, *loads)


def _volumes(counts: Sequence[int], *, torus: bool) -> list[float]:
    """Return the share of the vector that each member sends along each dimension of a reduce-scatter.

    Args:
        counts: Members along each dimension, innermost first.
        torus: Whether each dimension comes first for an equal part of the data.
    """
    turns = range(len(counts)) if torus else (0,)
    volumes = [0.0] * len(counts)
    for turn in turns:
        inside = 1
        for step in range(len(counts)):
            d = (turn + step) % len(counts)
            volumes[d] += (counts[d] - 1) / counts[d] / inside / len(turns)
            inside *= counts[d]
    return volumes


def _exchange(shape: Shape, dimension: int, amount: float) -> Loads:
    """Return the loads of a message of `amount` from each member to each other one of its line."""
    if shape.grid.topologies[dimension] == SWITCH:
        return along(shape, dimension, amount * (int(shape.count(dimension)[0]) - 1))
    source, target = shape.line_pairs(dimension)
    return between(shape, source, target, np.full(len(source), amount))[0]
