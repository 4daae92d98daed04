"""`Shape`: how the members of a group lie in the network; groups that lie alike share one.

Members come in rank order, which is the order of the network: neighbors of the innermost dimension first. The order
that a framework lists them in plays no part, as NCCL builds its rings and trees from the topology.

A *block* of level d are the ranks that agree in all dimensions from d on: level 0 a rank, level 1 a server. A *line*
of dimension d are members that differ in d only.

Shape letters: N members, D dimensions, P ordered pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from chakra_et.sim.network.topology import RING, SWITCH, Grid, route

__all__ = ["Shape"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

# Members of an irregular group of which each pair is looked at.
_MOST_MEMBERS = 1024


@dataclass(frozen=True, eq=False)
class Shape:
    """The places of a group's members, moved so that the first is at rank 0.

    Attributes:
        grid: Where places are.
        members: int64 [N]: distinct places, in rank order before they were moved.

    Example:
        >>> grid = Grid((SWITCH, SWITCH), (8, 4), (600.0, 2700.0))
        >>> shape = Shape(grid, np.array([0, 1, 8, 9, 16, 17]))
        >>> shape.spans, shape.count(0).tolist(), shape.count(1).tolist()
        ((0, 1), [2, 2, 2, 2, 2, 2], [3, 3, 3, 3, 3, 3])
    """

    grid: Grid
    members: Int

    @property
    def size(self) -> int:
        """Number of members, N."""
        return len(self.members)

    @cached_property
    def _counts(self) -> tuple[Int, ...]:
        counts = []
        for stride, above in zip(self.grid.strides, self.grid.strides[1:], strict=False):
            blocks = np.unique(self.members // stride)
            parents, number = np.unique(blocks // (above // stride), return_counts=True)
            counts.append(number[np.searchsorted(parents, self.members // above)])
        return tuple(counts)

    def count(self, dimension: int) -> Int:
        """Blocks with members that a member's block has around it along a dimension, itself included, int64 [N]."""
        return self._counts[dimension]

    def inner(self, dimension: int) -> Int:
        """Members that share the work of a member in the blocks below a dimension, itself included, int64 [N]."""
        product = np.ones(self.size, np.int64)
        for d in range(dimension):
            product *= self.count(d)
        return product

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """Dimensions along which the group extends, innermost first."""
        return tuple(d for d in range(len(self.grid.sizes)) if self.count(d).max() > 1)

    @cached_property
    def even(self) -> bool:
        """True if every block of a level has as many members as the others."""
        return all((self.count(d) == self.count(d)[0]).all() for d in self.spans)

    @cached_property
    def lined(self) -> bool:
        """True if in dimensions that aren't switches, each member has its counterpart in each neighboring block."""
        return all(
            self.grid.topologies[d] == SWITCH or (self.line_length(d) == self.count(d)).all() for d in self.spans
        )

    @cached_property
    def has_ring(self) -> bool:
        """True if it extends along a ring."""
        return any(self.grid.topologies[d] == RING for d in self.spans)

    def line_length(self, dimension: int) -> Int:
        """Return how many members each member's line has, int64 [N]."""
        _, slot, number = np.unique(self._line(dimension), return_inverse=True, return_counts=True)
        return number[slot]

    def _line(self, dimension: int) -> Int:
        """Return a number of each member's line, int64 [N]."""
        place = self.grid.coordinate(self.members, dimension)
        line: Int = self.members - place * self.grid.strides[dimension]
        return line

    def lines(self, dimension: int) -> list[Int]:
        """Return the lines of a dimension as indices of members, in ring order: int64 [lines, length] a length."""
        place = self.grid.coordinate(self.members, dimension)
        order = np.lexsort((place, self._line(dimension)))
        length = self.line_length(dimension)[order]
        return [order[length == k].reshape(-1, k) for k in np.unique(length).tolist() if k > 1]

    def line_pairs(self, dimension: int) -> tuple[Int, Int]:
        """Return all ordered pairs of members of one line, as indices, int64 [P] each."""
        sources, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for lines in self.lines(dimension):
            k = lines.shape[1]
            one, other = np.nonzero(~np.eye(k, dtype=np.bool_))
            sources.append(lines[:, one].ravel())
            targets.append(lines[:, other].ravel())
        return np.concatenate(sources), np.concatenate(targets)

    @cached_property
    def step_ns(self) -> tuple[float, ...]:
        """Latency between neighbors of a line in each dimension, the longest, [D]."""
        steps = []
        for d, latency in enumerate(self.grid.latency_ns):
            hops = 1
            if self.grid.topologies[d] == RING and d in self.spans:
                place = self.grid.coordinate(self.members, d)
                for lines in self.lines(d):
                    hops = max(hops, int(self.grid.hops(place[lines], np.roll(place[lines], -1, axis=1), d).max()))
            steps.append(latency * hops)
        return tuple(steps)

    @cached_property
    def reach_ns(self) -> tuple[float, ...]:
        """Latency between the two members of a line that lie farthest apart in each dimension, [D]."""
        reaches = []
        for d, latency in enumerate(self.grid.latency_ns):
            hops = 1
            if self.grid.topologies[d] == RING and d in self.spans:
                place = self.grid.coordinate(self.members, d)
                source, target = self.line_pairs(d)
                hops = max(hops, int(self.grid.hops(place[source], place[target], d).max(initial=1)))
            reaches.append(latency * hops)
        return tuple(reaches)

    @cached_property
    def worst_ns(self) -> float:
        """Latency of the slowest message between two members."""
        worst = 0.0
        plain = all(self.grid.topologies[d] == SWITCH for d in self.spans if d > 0) or (self.even and self.lined)
        if not plain and self.size <= _MOST_MEMBERS:
            source, target = (part.ravel() for part in np.meshgrid(self.members, self.members))
            return float(route(self.grid, source, target, np.ones(len(source)))[2].max())
        for d in self.spans:
            crossing = self.reach_ns[d]
            worst = max(worst, crossing) if self.grid.topologies[d] == SWITCH else worst + crossing
        return worst

    @cached_property
    def around_ns(self) -> Float:
        """Latency of each hop of a ring through all members, in their order, float64 [N]."""
        following = np.roll(self.members, -1)
        latency = np.zeros(self.size)
        for d, stride in enumerate(self.grid.strides[:-1]):  # the outermost difference is the last to be written
            one, other = self.grid.coordinate(self.members, d), self.grid.coordinate(following, d)
            hops = self.grid.hops(one, other, d)
            apart = self.members // stride != following // stride
            latency = np.where(apart, np.maximum(hops, 1) * self.grid.latency_ns[d], latency)
        return latency
