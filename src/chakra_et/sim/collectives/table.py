"""Which algorithms there are for which type of collective, and which of them a library would choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from chakra_et.errors import SimulationError
from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.bruck import bruck
from chakra_et.sim.collectives.direct import direct, message, pairwise
from chakra_et.sim.collectives.halving_doubling import halving_doubling
from chakra_et.sim.collectives.hierarchical import hierarchical
from chakra_et.sim.collectives.in_network import in_network
from chakra_et.sim.collectives.ring import ring
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.traffic import Cost
from chakra_et.sim.collectives.tree import binomial_tree, double_tree
from chakra_et.sim.network.topology import Grid

__all__ = ["ALGORITHMS", "AUTO", "Algorithm", "candidates", "cost_of", "forced_algorithms"]

AUTO = "auto"
CostFunction = Callable[[Shape, CommType, int], Cost | None]

_REDUCE_SCATTER = (CommType.REDUCE_SCATTER, CommType.REDUCE_SCATTER_BLOCK)
_SYMMETRIC = (CommType.ALL_REDUCE, CommType.ALL_GATHER, *_REDUCE_SCATTER)
_PASSED_ON = (CommType.BROADCAST, CommType.REDUCE)
_PARTED = (CommType.GATHER, CommType.SCATTER)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm, and what it is for.

    Attributes:
        cost: Function that returns its cost for a group, a type and a root.
        types: Types that it can do.
        auto: Types for which it is chosen where it is the cheapest.
        auto_on_rings: Types for which it is chosen so on groups that extend along a ring dimension.
    """

    cost: CostFunction
    types: tuple[CommType, ...]
    auto: tuple[CommType, ...] = ()
    auto_on_rings: tuple[CommType, ...] = ()


# NCCL and its kin have rings for all types but those that they build of sends and receives, trees for all-reduce, and
# nothing else for groups over several servers; libraries of machines with a torus go along its dimensions.
# Of equally cheap ones, the first is taken.
ALGORITHMS: Mapping[str, tuple[Algorithm, ...]] = {
    "ring": (Algorithm(ring, (*_SYMMETRIC, *_PASSED_ON), (*_SYMMETRIC, *_PASSED_ON)),),
    "tree": (
        Algorithm(double_tree, (CommType.ALL_REDUCE, *_PASSED_ON), (CommType.ALL_REDUCE,)),
        Algorithm(binomial_tree, _PARTED),
    ),
    "direct": (
        Algorithm(
            direct,
            (*_SYMMETRIC, *_PASSED_ON, *_PARTED, CommType.ALL_TO_ALL),
            (*_PARTED, CommType.ALL_TO_ALL),
        ),
    ),
    "hierarchical": (Algorithm(hierarchical, (*_SYMMETRIC, CommType.ALL_TO_ALL), auto_on_rings=_SYMMETRIC),),
    "halving_doubling": (Algorithm(halving_doubling, _SYMMETRIC),),
    "pairwise": (Algorithm(pairwise, (CommType.ALL_TO_ALL,)),),
    "bruck": (Algorithm(bruck, (CommType.ALL_TO_ALL,)),),
    "in_network": (Algorithm(in_network, (CommType.ALL_REDUCE,)),),
}


def forced_algorithms(algorithm: str | Mapping[str, str]) -> dict[CommType, str]:
    """Return the algorithm that is wanted for each type; types that may choose are left out.

    Args:
        algorithm: ``auto``, a name for all types that it can do, or a name for each type (``{"all_reduce": "tree"}``).

    Raises:
        SimulationError: No such algorithm, no such type, or the algorithm can't do the type.

    Example:
        >>> forced_algorithms({"all_to_all": "bruck", "all_reduce": "auto"})
        {<CommType.ALL_TO_ALL: 6>: 'bruck'}
    """
    if isinstance(algorithm, str):
        _check_name(algorithm)
        return {} if algorithm == AUTO else {kind: algorithm for kind in CommType if _can(algorithm, kind)}
    forced = {}
    types = {kind.name.lower(): kind for kind in CommType}
    for type_name, name in algorithm.items():
        _check_name(name)
        kind = types.get(type_name.lower())
        if kind is None:
            raise SimulationError(f"algorithm: expected a type of {', '.join(types)}, got '{type_name}'; rename it")
        if name == AUTO:
            continue
        if not _can(name, kind):
            able = [other for other in ALGORITHMS if _can(other, kind)]
            raise SimulationError(f"algorithm of {type_name}: expected {', '.join(able)} or {AUTO}, got '{name}'")
        forced[kind] = name
    return forced


def _check_name(name: str) -> None:
    if name != AUTO and name not in ALGORITHMS:
        raise SimulationError(f"algorithm: expected {', '.join(ALGORITHMS)} or {AUTO}, got '{name}'; choose one")


def _can(name: str, kind: CommType) -> bool:
    like = CommType.ALL_REDUCE if kind == CommType.BARRIER else kind
    return any(like in entry.types for entry in ALGORITHMS[name])


def candidates(grid: Grid, places: bytes, kind: CommType | None, root: int, forced: str | None) -> dict[str, Cost]:
    """Return the costs of the algorithms that may be chosen, by name.

    Args:
        grid: Places of the network.
        places: The members of a `Shape`, int64, as bytes.
        kind: Type of collective; None for a send.
        root: Index of the root, or of the sender; -1 for none.
        forced: The algorithm that is wanted; where a group's places don't allow it, the others are returned.
    """
    if kind is None:
        return {"direct": _message(grid, places, root)}
    shape = _shape(grid, places)
    like = CommType.ALL_REDUCE if kind == CommType.BARRIER else kind
    if forced is not None:
        wanted = cost_of(grid, places, kind, root, forced)
        if wanted is not None:
            return {forced: wanted}
    found = {}
    for name, entries in ALGORITHMS.items():
        if any(like in entry.auto or (shape.has_ring and like in entry.auto_on_rings) for entry in entries):
            cost = cost_of(grid, places, kind, root, name)
            if cost is not None:
                found[name] = cost
    return found


@lru_cache(maxsize=256)
def _shape(grid: Grid, places: bytes) -> Shape:
    return Shape(grid, np.frombuffer(places, np.int64))


@lru_cache(maxsize=1024)
def _message(grid: Grid, places: bytes, source: int) -> Cost:
    return message(_shape(grid, places), source)


@lru_cache(maxsize=1024)
def cost_of(grid: Grid, places: bytes, kind: CommType, root: int, name: str) -> Cost | None:
    """Return the cost of an algorithm; None if the group's places don't allow it.

    Costs don't depend on bandwidths, so that the points of a sweep share them: they are kept.

    Args:
        grid: Places of the network.
        places: The members of a `Shape`, int64, as bytes.
        kind: Type of collective.
        root: Index of the root; -1 for none.
        name: Algorithm that can do the type.

    Example:
        >>> cost_of(Grid(("switch",), (2,), (500.0,)), np.arange(2).tobytes(), CommType.BARRIER, -1, "ring").latency_ns
        1000.0
    """
    like = CommType.ALL_REDUCE if kind == CommType.BARRIER else kind
    entry = next(entry for entry in ALGORITHMS[name] if like in entry.types)
    cost = entry.cost(_shape(grid, places), like, root)
    if kind == CommType.BARRIER and cost is not None:
        return replace(cost, links=cost.links[:0], share=cost.share[:0])
    return cost
