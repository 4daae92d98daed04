"""`Cost` of a collective, and the patterns of traffic that algorithms are made of.

Shape letters: N members, P messages, K loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et.errors import SimulationError
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.network.topology import FULLY_CONNECTED, SWITCH, add_up, route

__all__ = ["Cost", "Loads", "all_pairs", "along", "between", "make_cost"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Loads = tuple[Int, Float]

# Messages of one collective that are looked at one by one.
_MOST_MESSAGES = 1 << 24


@dataclass(frozen=True, eq=False)
class Cost:
    """What a collective costs on an idle network, for a group whose first member is at rank 0.

    Attributes:
        latency_ns: Rounds, each with the latency of its slowest message.
        links: int64 [K]: link numbers, ascending.
        share: float64 [K]: bytes over that link per byte of `comm_size`, above 0.
        own: True if all these links are the members' own.
    """

    latency_ns: float
    links: Int
    share: Float
    own: bool = True


def make_cost(shape: Shape, latency_ns: float, *loads: Loads) -> Cost:
    """Return a cost, with each link once."""
    links, share = add_up(np.concatenate([part[0] for part in loads]), np.concatenate([part[1] for part in loads]))
    return Cost(latency_ns, links, _equal(share), bool(np.isin(links // shape.grid.slots, shape.members).all()))


def _equal(share: Float) -> Float:
    """Make equal what differs only because it was added up in another order: folding compares loads exactly."""
    values, which = np.unique(share, return_inverse=True)
    first = np.concatenate([[True], np.diff(values) > 1e-12 * values[1:]]) if len(values) else np.empty(0, np.bool_)
    found: Float = values[first][np.cumsum(first)[which] - 1]
    return found


def between(shape: Shape, source: Int, target: Int, amount: Float) -> tuple[Loads, Float]:
    """Return the loads of single messages, and their latencies.

    Args:
        shape: The group.
        source: int64 [P]: indices of members.
        target: int64 [P]: indices of members.
        amount: float64 [P]: bytes.
    """
    links, loads, latency = route(shape.grid, shape.members[source], shape.members[target], amount)
    return (links, loads), latency


def along(shape: Shape, dimension: int, volume: float | Float, *, deaf: int = -1, mute: int = -1) -> Loads:
    """Return the loads of a pipeline along a dimension: each member sends, and receives, so many bytes.

    Through a switch, it doesn't matter who sends to whom. Where each pair has a link of its own, libraries lay as many
    rings as there are neighbors, so that all links carry the same: all ordered pairs of k ranks fall into k - 1 rings,
    but for k = 4 and 6 (Tillson, "A Hamiltonian decomposition of K*2m, 2m >= 8", J. Combin. Theory B 29, 1980). In a
    ring, half of the bytes goes each way round.

    Args:
        shape: The group.
        dimension: The dimension.
        volume: Bytes that each member sends, float64 [N] or one number for all.
        deaf: Index of a member that receives nothing.
        mute: Index of a member that sends nothing.
    """
    grid, amount = shape.grid, np.broadcast_to(np.asarray(volume, np.float64), shape.size)
    if grid.topologies[dimension] == SWITCH:
        up, down = amount.copy(), amount.copy()
        if deaf >= 0:
            _silence(shape, dimension, deaf, down, up)
        if mute >= 0:
            _silence(shape, dimension, mute, up, down)
        links = np.concatenate([grid.links(shape.members, dimension, which) for which in (0, 1)])
        return links, np.concatenate([up, down])
    if grid.topologies[dimension] == FULLY_CONNECTED:
        source, target = shape.line_pairs(dimension)
        part = amount[source] / (shape.count(dimension)[source] - 1)
    else:
        following = [np.empty((2, 0), np.int64)]
        for lines in shape.lines(dimension):
            following += [np.stack([lines.ravel(), np.roll(lines, turn, axis=1).ravel()]) for turn in (1, -1)]
        source, target = np.concatenate(following, axis=1)
        part = amount[source] / 2
    heard = (target != deaf) & (source != mute)
    return between(shape, source[heard], target[heard], part[heard])[0]


def _silence(shape: Shape, dimension: int, root: int, quiet: Float, other: Float) -> None:
    """Take a root out of one direction, and as much off the other direction of those around it.

    In each ring, another member is the one next to the root that has nothing to pass on: all do so a little less.
    """
    above = shape.grid.strides[dimension + 1]
    around = shape.members // above == shape.members[root] // above
    quiet[root] = 0.0
    around[root] = False
    total = float(other[around].sum())
    if total:
        other[around] *= max(float(quiet[around].sum()) - other[root], 0.0) / total


def all_pairs(shape: Shape, amount: float) -> list[Loads]:
    """Return the loads of a message from each member to each other one.

    Args:
        shape: The group.
        amount: Bytes of each message.

    Raises:
        SimulationError: The group is too large and too irregular.
    """
    outer = [d for d in shape.spans if d > 0]
    if all(shape.grid.topologies[d] == SWITCH for d in outer):
        return [_pairs_of_level(shape, d, amount) for d in shape.spans]
    if shape.even and shape.lined:
        return [_pairs_of_grid(shape, d, amount) for d in shape.spans]
    if shape.size**2 > _MOST_MESSAGES:
        raise SimulationError(
            f"a group of {shape.size:,} ranks: expected whole rows of a network without switches, got an irregular "
            "part of it; number the ranks so that each group covers whole rows"
        )
    source, target = np.nonzero(~np.eye(shape.size, dtype=np.bool_))
    return [between(shape, source, target, np.full(len(source), amount))[0]]


def _pairs_of_level(shape: Shape, d: int, amount: float) -> Loads:
    """Return the loads of pairs whose outermost difference is `d`, if all dimensions but the first are switches."""
    if shape.grid.topologies[d] == SWITCH:
        peers = _members_around(shape, d + 1) - _members_around(shape, d)
        return along(shape, d, peers.astype(np.float64) * amount)
    source, target = shape.line_pairs(d)
    return between(shape, source, target, np.full(len(source), amount))[0]


def _members_around(shape: Shape, level: int) -> Int:
    """Return how many members the block of each member has at a level, int64 [N]."""
    _, slot, number = np.unique(shape.members // shape.grid.strides[level], return_inverse=True, return_counts=True)
    return number[slot]


def _pairs_of_grid(shape: Shape, d: int, amount: float) -> Loads:
    """Return what all pairs put on the links of `d`, if the members form a grid.

    A message crosses `d` with the outer coordinates of its sender and the inner ones of its receiver, so each pair of a
    line carries the messages of all combinations of the others; those whose receiver a switch of an outer dimension
    reaches don't come here.
    """
    factor = 1
    for e in shape.spans:
        if e < d or (e > d and shape.grid.topologies[e] != SWITCH):
            factor *= int(shape.count(e)[0])
    if shape.grid.topologies[d] == SWITCH:
        return along(shape, d, amount * factor * (int(shape.count(d)[0]) - 1))
    source, target = shape.line_pairs(d)
    return between(shape, source, target, np.full(len(source), amount * factor))[0]
