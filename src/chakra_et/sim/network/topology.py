"""Links of a system, and the way that messages take over them.

A rank's place is its coordinate in each dimension: rank = a0 + n0 * (a1 + n1 * a2 ...).

A ``switch`` gives each rank one link up and one down; it joins all ranks of the level, whatever their coordinates in
the dimensions below. So a message between two servers leaves by the sender's own port and comes in by the receiver's,
as in a cluster where each GPU has a network card beside it (GPUDirect RDMA). Relaying it over a neighbor's card (PXN:
NVIDIA, "Doubling all2all Performance with NVIDIA Collective Communication Library 2.12", 2022) would take the same
bytes over as many ports. ``fully_connected`` dimensions have a link for each ordered pair of neighbors, ``ring``
dimensions one to the next rank and one to the last. These two join ranks that differ in this dimension only, so that a
message first corrects its coordinates in the dimensions below: dimension-ordered routing (Dally and Towles, Principles
and Practices of Interconnection Networks, 2004). In a ring it takes the shorter way; where both are equally long, half
of it takes each.

A link is a number: owner * slots + slot. The owner is the rank that it begins at; of a port down, the rank at its end.

Shape letters: P messages, Q loads, D dimensions, R ranks, L links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from chakra_et.errors import SimulationError
from chakra_et.specs.system import System

__all__ = ["FULLY_CONNECTED", "RING", "SWITCH", "Grid", "Network", "add_up", "make_network", "route"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

SWITCH, FULLY_CONNECTED, RING = "switch", "fully_connected", "ring"


@dataclass(frozen=True)
class Grid:
    """What of a network decides which way messages take, and their latency; not the bandwidths.

    Attributes:
        topologies: [D]: `SWITCH`, `FULLY_CONNECTED` or `RING`; innermost dimension first.
        sizes: [D]: ranks along each dimension.
        latency_ns: [D]: of one message, or one hop in a ring.

    Example:
        >>> Grid((SWITCH, SWITCH), (8, 4), (600.0, 2700.0)).coordinate(np.array([0, 9]), 0).tolist()
        [0, 1]
    """

    topologies: tuple[str, ...]
    sizes: tuple[int, ...]
    latency_ns: tuple[float, ...]

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbors in each dimension, in rank numbers; and the number of places, [D + 1]."""
        strides = [1]
        for size in self.sizes:
            strides.append(strides[-1] * size)
        return tuple(strides)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """First slot of each dimension's links, and the number of slots of a rank, [D + 1]."""
        offsets = [0]
        for topology, size in zip(self.topologies, self.sizes, strict=True):
            offsets.append(offsets[-1] + (size if topology == FULLY_CONNECTED else 2))
        return tuple(offsets)

    @property
    def slots(self) -> int:
        """Number of link numbers of each rank."""
        return self.offsets[-1]

    def coordinate(self, ranks: Int, dimension: int) -> Int:
        """Return the coordinates of ranks in a dimension."""
        found: Int = ranks // self.strides[dimension] % self.sizes[dimension]
        return found

    def shifted(self, ranks: Int, base: Int) -> Int:
        """Return the ranks that lie as `ranks` do when `base` is in the place of rank 0; shapes broadcast."""
        moved: Int = np.zeros(np.broadcast_shapes(np.shape(ranks), np.shape(base)), np.int64)
        for d, size in enumerate(self.sizes):
            moved = moved + (self.coordinate(ranks, d) + self.coordinate(base, d)) % size * self.strides[d]
        return moved

    def relative(self, ranks: Int, base: Int) -> Int:
        """Return how `ranks` lie as seen from `base`, the inverse of `shifted`; shapes broadcast."""
        seen: Int = np.zeros(np.broadcast_shapes(np.shape(ranks), np.shape(base)), np.int64)
        for d, size in enumerate(self.sizes):
            seen = seen + (self.coordinate(ranks, d) - self.coordinate(base, d)) % size * self.strides[d]
        return seen

    def hops(self, one: Int, other: Int, dimension: int) -> Int:
        """Return how many links lie between coordinates in a dimension, the shorter way."""
        ahead: Int = (other - one) % self.sizes[dimension]
        most = self.sizes[dimension] if self.topologies[dimension] == RING else 2
        count: Int = np.minimum(np.minimum(ahead, self.sizes[dimension] - ahead), most - 1)
        return count

    def links(self, owners: Int, dimension: int, which: int | Int) -> Int:
        """Return link numbers.

        Args:
            owners: int64: ranks.
            dimension: The dimension.
            which: Of a switch, 0 for up and 1 for down; of a ring, 0 for clockwise (to the next) and 1 for the other
                way; of a fully connected dimension, how far ahead the neighbor is (modulo the size).
        """
        found: Int = owners * self.slots + (self.offsets[dimension] + which)
        return found


@dataclass(frozen=True)
class Network:
    """The network of a job: dimensions with the sizes that the job has along them.

    Attributes:
        grid: Places, routes and latencies.
        names: [D]: names of the dimensions.
        link_bytes_per_ns: [D]: capacity of one link.
        world_size: Number of ranks.
    """

    grid: Grid
    names: tuple[str, ...]
    link_bytes_per_ns: tuple[float, ...]
    world_size: int

    @cached_property
    def slot_capacity(self) -> Float:
        """Capacity of each of a rank's links, float64 [slots], bytes per ns."""
        return np.repeat(np.array(self.link_bytes_per_ns), np.diff(self.grid.offsets))

    def link_name(self, link: int) -> str:
        """Return what a link is, for people: the dimension is its first word.

        Example:
            >>> grid = Grid((SWITCH, RING), (2, 4), (1.0, 1.0))
            >>> Network(grid, ("scale_up", "torus"), (1.0, 1.0), 8).link_name(4 * 3 + 1)
            'scale_up down of rank 3'
        """
        owner, slot = divmod(link, self.grid.slots)
        dimension = next(d for d in range(len(self.names)) if slot < self.grid.offsets[d + 1])
        which = slot - self.grid.offsets[dimension]
        topology, size, stride = (
            self.grid.topologies[dimension],
            self.grid.sizes[dimension],
            self.grid.strides[dimension],
        )
        if topology == FULLY_CONNECTED:
            place = owner // stride % size
            part = f"to rank {owner + ((place + which) % size - place) * stride}"
        else:
            part = (("up", "down") if topology == SWITCH else ("clockwise", "anticlockwise"))[which]
        return f"{self.names[dimension]} {part} of rank {owner}"

    def link_names(self, links: Int) -> tuple[str, ...]:
        """Return the names of links."""
        slots = self.grid.slots
        begin = [self.link_name(slot).removesuffix("0") for slot in range(slots)]
        pairs = np.repeat(
            [topology == FULLY_CONNECTED for topology in self.grid.topologies], np.diff(self.grid.offsets)
        )
        owners, which = (part.tolist() for part in np.divmod(links, slots))
        if not pairs.any():
            return tuple([f"{begin[slot]}{owner}" for owner, slot in zip(owners, which, strict=True)])
        pair = pairs.tolist()
        return tuple(
            self.link_name(owner * slots + slot) if pair[slot] else f"{begin[slot]}{owner}"
            for owner, slot in zip(owners, which, strict=True)
        )


def make_network(system: System | None, world_size: int) -> Network:
    """Return the network of a job on a system.

    Args:
        system: The system; without one, a single switch called ``network``, with 1 byte per ns and no latency.
        world_size: Number of ranks.

    Raises:
        InputError: The job is larger than the system.

    Example:
        >>> make_network(None, 4).link_name(3)
        'network down of rank 1'
    """
    if system is None:
        return Network(Grid((SWITCH,), (world_size,), (0.0,)), ("network",), (1.0,), world_size)
    sizes = system.sizes(world_size)
    grid = Grid(
        tuple(dimension.topology for dimension in system.dimensions),
        sizes,
        tuple(float(dimension.latency_ns) for dimension in system.dimensions),
    )
    for topology in grid.topologies:
        if topology not in (SWITCH, FULLY_CONNECTED, RING):
            raise SimulationError(
                f"system {system.name}: expected {SWITCH}, {FULLY_CONNECTED} or {RING}, got {topology}"
            )
    capacity = (d.link_bytes_per_s(size) / 1e9 for d, size in zip(system.dimensions, sizes, strict=True))
    return Network(grid, tuple(d.name for d in system.dimensions), tuple(capacity), world_size)


def route(grid: Grid, source: Int, target: Int, amount: Float) -> tuple[Int, Float, Float]:
    """Return the loads and latencies of messages.

    Args:
        grid: Places of the ranks.
        source: int64 [P]: sending ranks.
        target: int64 [P]: receiving ranks; a message to oneself loads nothing.
        amount: float64 [P]: bytes.

    Returns:
        Link numbers int64 [Q] (a link may come several times), bytes float64 [Q], latencies float64 [P].

    Example:
        >>> grid = Grid((SWITCH, RING), (2, 5), (1.0, 10.0))
        >>> links, amount, latency = route(grid, np.array([0]), np.array([9]), np.array([8.0]))
        >>> links.tolist(), amount.tolist(), latency.tolist()  # one place back in the ring, from rank 1 to rank 9
        ([7, 0, 5], [8.0, 8.0, 8.0], [11.0])
    """
    latency = np.zeros(len(source))
    left, goal = np.ones(len(source), np.bool_), target.copy()
    links: list[Int] = [np.empty(0, np.int64)]
    loads: list[Float] = [np.empty(0)]
    for d in reversed(range(len(grid.sizes))):
        here, there = grid.coordinate(source, d), grid.coordinate(goal, d)
        rows = np.nonzero(left & (here != there))[0]
        if not len(rows):
            continue
        latency[rows] += grid.latency_ns[d] * grid.hops(here[rows], there[rows], d)
        if grid.topologies[d] == SWITCH:
            links += [grid.links(source[rows], d, 0), grid.links(goal[rows], d, 1)]
            loads += [amount[rows], amount[rows]]
            left[rows] = False
            continue
        goal[rows] += (here[rows] - there[rows]) * grid.strides[d]
        ahead = (there[rows] - here[rows]) % grid.sizes[d]
        if grid.topologies[d] == FULLY_CONNECTED:
            links.append(grid.links(goal[rows], d, ahead))
            loads.append(amount[rows])
        else:
            found, load = _around(grid, d, goal[rows], ahead, amount[rows])
            links.append(found)
            loads.append(load)
    return np.concatenate(links), np.concatenate(loads), latency


def _around(grid: Grid, d: int, start: Int, ahead: Int, amount: Float) -> tuple[Int, Float]:
    """Return the loads of messages inside the rings of a dimension.

    Args:
        grid: Places of the ranks.
        d: The dimension.
        start: int64 [P]: where they begin.
        ahead: int64 [P]: how far they go clockwise, 1 .. size - 1.
        amount: float64 [P].
    """
    size = grid.sizes[d]
    links, loads = [], []
    for which, distance, taken in ((0, ahead, ahead * 2 <= size), (1, size - ahead, ahead * 2 >= size)):
        count = np.where(taken, distance, 0)
        message = np.repeat(np.arange(len(start)), count)
        hop = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count)
        place = grid.coordinate(start, d)[message]
        at = (place + (hop if which == 0 else -hop)) % size
        links.append(grid.links(start[message] + (at - place) * grid.strides[d], d, which))
        loads.append(np.where(ahead * 2 == size, amount / 2, amount)[message])
    return np.concatenate(links), np.concatenate(loads)


def add_up(links: Int, amount: Float) -> tuple[Int, Float]:
    """Return each link once, ascending, with the sum of its loads; links without load are left out.

    Example:
        >>> links, amount = add_up(np.array([5, 2, 5]), np.array([1.0, 2.0, 3.0]))
        >>> links.tolist(), amount.tolist()
        ([2, 5], [2.0, 4.0])
    """
    unique, slot = np.unique(links, return_inverse=True)
    total = np.bincount(slot, amount, len(unique)).astype(np.float64)
    return unique[total > 0], total[total > 0]
