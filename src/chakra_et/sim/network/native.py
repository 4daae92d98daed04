"""The native network model: latencies and loads of collectives on a hierarchy of dimensions.

A communication costs a latency, and then as much time as its most loaded link needs for its bytes, unless it shares
links with others (`chakra_et.sim.network.flows`): the alpha-beta model (Hockney, "The communication challenge for MPP:
Intel Paragon and Meiko CS-2", Parallel Computing 20, 1994) with a beta for each link. Rounds and bytes come from the
algorithm (`chakra_et.sim.collectives`), links from the topology (`chakra_et.sim.network.topology`).

Sizes are `comm_size`: of an all-gather or gather, the bytes that each rank contributes; of a scatter, those that each
rank receives; of all others, the whole vector that each rank holds.

Shape letters: C communications, U distinct ones, B of one cost, G groups, K loads, L links, N members of one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.shape import Shape
from chakra_et.sim.collectives.table import AUTO, candidates, forced_algorithms
from chakra_et.sim.collectives.traffic import Cost
from chakra_et.sim.network.communications import MEASURED, SEND, Communications, group_communications
from chakra_et.sim.network.flows import Flows
from chakra_et.sim.network.topology import Network, add_up, make_network, route
from chakra_et.specs.system import System

__all__ = ["Prices", "plan_flows", "price", "to_flows"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Block = tuple[Int, Int, Float]  # distinct communications [B], their links [B, K] and bytes [B, K]

_ROOTED = (CommType.BROADCAST, CommType.REDUCE, CommType.GATHER, CommType.SCATTER)


@dataclass(frozen=True, eq=False)
class Prices:
    """What each distinct communication costs on an idle network.

    Attributes:
        latency_ns: float64 [U].
        indptr: int64 [U + 1]: where each one's loads begin.
        links: int64 [K]: link numbers of the network, unique inside one communication.
        bytes: float64 [K], above 0.
        algorithm: [U]: names; ``none`` for what stays inside one rank.
        spans: [U]: names of the dimensions that its group extends along, such as ``scale_up+scale_out``.
        own_links: True if every communication uses only links of its own members.
    """

    latency_ns: Float
    indptr: Int
    links: Int
    bytes: Float
    algorithm: tuple[str, ...]
    spans: tuple[str, ...]
    own_links: bool


def plan_flows(
    communications: pl.DataFrame | Communications,
    system: System | None,
    world_size: int,
    *,
    algorithm: str | Mapping[str, str] = AUTO,
) -> Flows:
    """Return latency and loads of each communication.

    Args:
        communications: One row a communication (`group_communications` lists the columns), or what that function
            made of them, which saves time when several systems are tried.
        system: The machine; None for a single switch with 1 byte per ns and no latency.
        world_size: Number of ranks of the job.
        algorithm: ``auto`` for the cheapest of those that NCCL-like libraries have; the name of one, for all types
            that it can do; or a name for each type, such as ``{"all_reduce": "tree"}``. Where a group's places rule
            out the wanted one, the choice is as with ``auto``; `Flows.algorithm` tells.

    Raises:
        SimulationError: A communication that can't be planned, or no such algorithm.
        InputError: The job is larger than the system.

    Example:
        >>> from chakra_et.specs.system import Device, Dimension
        >>> system = System("one", "", Device("gpu"), (Dimension("scale_up", "switch", None, 450e9, 600.0),))
        >>> row = {"kind": "collective", "comm_type": 0, "size_bytes": 16 << 20, "members": list(range(8))}
        >>> flows = plan_flows(pl.DataFrame([row]), system, 8)
        >>> flows.algorithm, flows.latency_ns.tolist(), flows.bytes.tolist()[:2]
        (('ring',), [8400.0], [29360128.0, 29360128.0])
    """
    if isinstance(communications, pl.DataFrame):
        communications = group_communications(communications)
    network = make_network(system, world_size)
    return to_flows(communications, price(communications, network, algorithm=algorithm), network)


def price(communications: Communications, network: Network, *, algorithm: str | Mapping[str, str] = AUTO) -> Prices:
    """Return what each distinct communication costs on an idle network.

    Args:
        communications: The communications.
        network: The network.
        algorithm: As in `plan_flows`.

    Example:
        >>> table = pl.DataFrame([{"kind": "send", "members": [0, 1], "size_bytes": 10}])
        >>> price(group_communications(table), make_network(None, 2)).bytes.tolist()
        [10.0, 10.0]
    """
    places = _Places.of(communications, network)
    count = len(communications.kind)
    latency, names, own = np.zeros(count), ["none"] * count, True
    blocks: list[Block] = []
    forced = forced_algorithms(algorithm)
    for kind, shape, root, rows in _like_ones(communications, places):
        if kind == MEASURED:
            latency[rows] = communications.measured_ns[rows]
            chosen = {"measured": rows}
        else:
            wanted = forced.get(CommType(kind)) if kind != SEND else None
            found = candidates(
                network.grid, places.shapes[shape], None if kind == SEND else CommType(kind), root, wanted
            )
            chosen = _cheapest(found, network, communications.size_bytes[rows], rows)
            for name, taken in chosen.items():
                latency[taken] = found[name].latency_ns
                own &= found[name].own
                blocks += _loads(found[name], network, taken, places.base[communications.group[taken]], communications)
        for name, taken in chosen.items():
            for row in taken.tolist():
                names[row] = name
    for row in communications.sent:
        if len(communications.sent[row]) > 1:
            block, latency[row], inside = _uneven(communications, network, row, places)
            blocks.append(block)
            names[row] = "direct"
            own &= inside
    indptr, links, loads = _joined(blocks, count)
    spans = tuple(places.spans[shape] for shape in places.shape[communications.group].tolist())
    return Prices(latency, indptr, links, loads, tuple(names), spans, own)


@dataclass(frozen=True, eq=False)
class _Places:
    """Where groups lie.

    Attributes:
        base: int64 [G]: first rank of each group.
        shape: int64 [G]: index of its shape.
        shapes: Places of the members as seen from the first, as bytes of int64, in rank order.
        spans: Names of the dimensions that each shape extends along.
        ranks: [G]: members in rank order.
    """

    base: Int
    shape: Int
    shapes: tuple[bytes, ...]
    spans: tuple[str, ...]
    ranks: tuple[Int, ...]

    @staticmethod
    def of(communications: Communications, network: Network) -> _Places:
        """Find the shapes of all groups."""
        groups = communications.groups
        lengths = np.array([len(ranks) for ranks in groups], np.int64)
        base, shape = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
        shapes: dict[bytes, int] = {}
        ordered: list[Int] = [np.empty(0, np.int64)] * len(groups)
        for length in np.unique(lengths).tolist():
            rows = np.nonzero(lengths == length)[0]
            ranks = np.sort(np.stack([groups[row] for row in rows]), axis=1)
            _check_ranks(communications, network, rows, ranks)
            base[rows] = ranks[:, 0]
            seen = network.grid.relative(ranks, ranks[:, :1])
            for row, members, places in zip(rows.tolist(), ranks, seen, strict=True):
                shape[row] = shapes.setdefault(places.tobytes(), len(shapes))
                ordered[row] = members
        spans = tuple(
            "+".join(network.names[d] for d in Shape(network.grid, np.frombuffer(key, np.int64)).spans)
            for key in shapes
        )
        return _Places(base, shape, tuple(shapes), spans, tuple(ordered))


def _check_ranks(communications: Communications, network: Network, rows: Int, ranks: Int) -> None:
    """Refuse groups with a rank twice, or with one that the job doesn't have."""
    double = (np.diff(ranks, axis=1) == 0).any(axis=1)
    beyond = (ranks[:, 0] < 0) | (ranks[:, -1] >= network.world_size)
    for index in np.nonzero(double | beyond)[0][:1].tolist():
        row = int(np.argmax(communications.group == rows[index]))
        got = "a rank twice" if double[index] else f"ranks {ranks[index, 0]} to {ranks[index, -1]}"
        raise SimulationError(
            f"communication {communications.first[row]}: expected different ranks below {network.world_size}, "
            f"got {got}; check the process group and the number of ranks"
        )


def _like_ones(communications: Communications, places: _Places) -> list[tuple[int, int, int, Int]]:
    """Return kind, shape, index of the root, and rows of distinct communications whose costs differ by size only."""
    shape = places.shape[communications.group]
    size = np.array([len(ranks) for ranks in places.ranks], np.int64)[communications.group]
    root = np.full(len(shape), -1, np.int64)
    needed = np.isin(communications.kind, [int(kind) for kind in _ROOTED] + [SEND])
    for row in np.nonzero(needed)[0].tolist():
        # A root that nobody recorded is the group's first rank: the usual one.
        rank = communications.root[row]
        ranks = places.ranks[communications.group[row]]
        root[row] = np.searchsorted(ranks, rank if rank >= 0 else communications.groups[communications.group[row]][0])
    several = (size > 1) | (communications.kind == MEASURED)
    several[list(communications.sent)] &= size[list(communications.sent)] < 2
    rows = np.nonzero(several)[0]
    if not len(rows):
        return []
    keys = np.stack([communications.kind[rows], shape[rows], root[rows]])
    order = np.lexsort(keys)
    edges = np.nonzero((np.diff(keys[:, order], axis=1) != 0).any(axis=0))[0] + 1
    parts = np.split(order, edges)
    return [(*map(int, keys[:, part[0]]), rows[np.sort(part)]) for part in parts]  # type: ignore[misc]


def _cheapest(found: Mapping[str, Cost], network: Network, size: Int, rows: Int) -> dict[str, Int]:
    """Return which rows take which algorithm: the one with the shortest time on an idle network."""
    if len(found) == 1:
        return dict.fromkeys(found, rows)
    capacity, slots = network.slot_capacity, network.grid.slots
    per_byte = [float(np.max(cost.share / capacity[cost.links % slots], initial=0.0)) for cost in found.values()]
    latency = np.array([cost.latency_ns for cost in found.values()])
    best = np.argmin(latency[:, None] + np.array(per_byte)[:, None] * size, axis=0)
    chosen = {name: rows[best == index] for index, name in enumerate(found)}
    return {name: taken for name, taken in chosen.items() if len(taken)}


def _loads(cost: Cost, network: Network, rows: Int, base: Int, communications: Communications) -> list[Block]:
    """Return the loads of communications with one cost, moved to where their groups are."""
    size = communications.size_bytes[rows]
    rows, base, size = rows[size > 0], base[size > 0], size[size > 0]
    if not len(rows) or not len(cost.links):
        return []
    owner, slot = np.divmod(cost.links, network.grid.slots)
    starts, which = np.unique(base, return_inverse=True)
    links = (network.grid.shifted(owner, starts[:, None]) * network.grid.slots + slot)[which]
    return [(rows, links, np.outer(size, cost.share))]


def _uneven(communications: Communications, network: Network, row: int, places: _Places) -> tuple[Block, float, bool]:
    """Return loads, latency and whether all links are the members' own, of an uneven all-to-all.

    It lasts as long as the slowest of its messages, or if there is none, as an all-to-all of nothing.
    """
    group, sent = communications.group[row], communications.sent[row]
    ranks = communications.groups[group]
    source, target = np.nonzero(sent)
    links, amount, took = route(network.grid, ranks[source], ranks[target], sent[source, target])
    if not len(took):
        shape = places.shapes[places.shape[group]]
        took = np.array(
            [cost.latency_ns for cost in candidates(network.grid, shape, CommType.ALL_TO_ALL, -1, None).values()]
        )
    links, amount = add_up(links, amount)
    own = bool(np.isin(links // network.grid.slots, ranks).all())
    return (np.array([row]), links[None], amount[None]), float(took.max()), own


def _joined(blocks: list[Block], count: int) -> tuple[Int, Int, Float]:
    """Return loads in the order of their communications: indptr [count + 1], links [K], bytes [K]."""
    lengths = np.zeros(count, np.int64)
    for rows, block, _ in blocks:
        lengths[rows] = block.shape[1]
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    links, loads = np.empty(indptr[-1], np.int64), np.empty(indptr[-1])
    for rows, block, amount in blocks:
        place = indptr[rows][:, None] + np.arange(block.shape[1])
        links[place], loads[place] = block, amount
    return indptr, links, loads


def to_flows(communications: Communications, prices: Prices, network: Network) -> Flows:
    """Return the flows of all communications, with compact link numbers.

    Example:
        >>> table = group_communications(pl.DataFrame([{"kind": "send", "members": [1, 0], "size_bytes": 10}] * 2))
        >>> network = make_network(None, 2)
        >>> to_flows(table, price(table, network), network).link_names
        ('network down of rank 0', 'network up of rank 1')
    """
    number = np.zeros(network.grid.strides[-1] * network.grid.slots + 1, np.int64)
    number[prices.links + 1] = 1
    used = np.nonzero(number[1:])[0]
    np.cumsum(number, out=number)
    distinct = communications.distinct
    lengths = np.diff(prices.indptr)[distinct]
    indptr = np.zeros(len(distinct) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    loads = np.arange(indptr[-1]) + np.repeat(prices.indptr[distinct] - indptr[:-1], lengths)
    return Flows(
        latency_ns=prices.latency_ns[distinct],
        indptr=indptr,
        links=number[prices.links][loads],
        bytes=prices.bytes[loads],
        capacity=network.slot_capacity[used % network.grid.slots],
        link_names=network.link_names(used),
        algorithm=tuple(np.array(prices.algorithm, dtype=object)[distinct].tolist()),
        own_links=prices.own_links,
    )
