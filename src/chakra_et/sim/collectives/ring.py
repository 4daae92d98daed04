"""Rings: each member passes data on to the next.

The bytes of a ring are the fewest that any algorithm can do with (Patarasu and Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69, 2009): with N members and a vector of S
bytes, 2 (N - 1) / N * S are sent by each for an all-reduce, (N - 1) / N * S for a reduce-scatter, (N - 1) * S for an
all-gather of S each. Broadcast and reduce are pipelines of S along the ring (Chan, Heimlich, Purkayastha and van de
Geijn, "Collective communication: theory, practice, and experience", Concurrency Computat.: Pract. Exper. 19, 2007).

A group over several servers runs a ring for each of its members in a server, as NCCL does with one channel a network
card: each ring leaves the server over another card. So a card carries 1 / members of the bytes, and the other hops
stay inside. Hops add up as in NCCL's tuning model (src/graph/tuning.cc): 2 (N - 1) in an all-reduce, of which those
between servers cost the outer latency.
"""

from __future__ import annotations

import numpy as np

from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.traffic import Cost, Loads, along, between, make_cost

__all__ = ["ring"]

_ROOTED = (CommType.BROADCAST, CommType.REDUCE)


def ring(shape: Shape, comm_type: CommType, root: int) -> Cost | None:
    """Return the cost of a ring.

    Args:
        shape: The group, of at least two.
        comm_type: All-reduce, reduce-scatter, all-gather, broadcast or reduce.
        root: Index of the root; -1 for none.

    Example:
        >>> from chakra_et.sim.network.topology import SWITCH, Grid
        >>> cost = ring(Shape(Grid((SWITCH,), (4,), (500.0,)), np.arange(4)), CommType.ALL_REDUCE, -1)
        >>> cost.latency_ns, cost.share.tolist()
        (3000.0, [1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5])
    """
    n = shape.size
    rounds, volume = n - 1, 1.0
    if comm_type == CommType.ALL_REDUCE:
        rounds, volume = 2 * (n - 1), 2 * (n - 1) / n
    elif comm_type == CommType.ALL_GATHER:
        volume = float(n - 1)
    elif comm_type not in _ROOTED:
        volume = (n - 1) / n
    deaf = root if comm_type == CommType.BROADCAST else -1
    mute = root if comm_type == CommType.REDUCE else -1
    return make_cost(shape, _latency(shape, rounds), *_loads(shape, volume, deaf, mute))


def _latency(shape: Shape, rounds: int) -> float:
    """Return the latency of the slowest chain of so many consecutive hops."""
    hops = shape.around_ns
    turns, rest = divmod(rounds, shape.size)
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([hops, hops]))])
    return float(turns * total[shape.size] + np.max(total[rest : rest + shape.size] - total[: shape.size]))


def _loads(shape: Shape, volume: float, deaf: int, mute: int) -> list[Loads]:
    if not shape.lined:  # one ring, wherever it leads
        source = np.arange(shape.size)
        target = np.roll(source, -1)
        heard = (target != deaf) & (source != mute)
        return [between(shape, source[heard], target[heard], np.full(int(heard.sum()), volume))[0]]
    loads = []
    for d in shape.spans:
        part = volume / shape.inner(d)
        if d != shape.spans[-1]:
            part = part * (shape.count(d) - 1) / shape.count(d)
        loads.append(along(shape, d, part, deaf=deaf, mute=mute))
    return loads
