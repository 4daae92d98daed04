"""Flows for the engine: what each distinct communication costs, on links of the ranks that stand for others.

Shape letters: F flows, K loads, L links, M meetings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from chakra_et.sim.fold import Fold
from chakra_et.sim.network.communications import SEND, Communications
from chakra_et.sim.network.flows import Flows
from chakra_et.sim.network.native import Prices, price
from chakra_et.sim.network.topology import Network

__all__ = ["FlowTable", "from_flows", "no_flows", "price_flows"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class FlowTable:
    """What communications cost, as the engine takes it; meetings that are alike share a flow.

    Attributes:
        latency_ns: float64 [F].
        indptr: int64 [F + 1]: where each flow's loads begin.
        links: int64 [K].
        bytes: float64 [K].
        capacity: float64 [L]: bytes per ns.
        algorithm: [F]: which algorithm was chosen.
        dimension: [L]: which part of the network a link belongs to: ``scale_up``, ``scale_out``.
    """

    latency_ns: Float
    indptr: Int
    links: Int
    bytes: Float
    capacity: Float
    algorithm: tuple[str, ...]
    dimension: tuple[str, ...]

    def as_plan(self) -> dict[str, Any]:
        """Return the fields of the engine's plan."""
        return {
            "latency": self.latency_ns,
            "indptr": self.indptr,
            "links": self.links,
            "bytes": self.bytes,
            "capacity": self.capacity,
        }

    def scaled(self, factor: float) -> FlowTable:
        """Return the flows with all times multiplied."""
        if factor == 1.0:
            return self
        return replace(self, latency_ns=self.latency_ns * factor, capacity=self.capacity / factor)


def no_flows() -> FlowTable:
    """Return an empty table.

    Example:
        >>> len(no_flows().latency_ns)
        0
    """
    return FlowTable(np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0), (), ())


def from_flows(flows: Flows) -> FlowTable:
    """Return the flows of a network model as they are, one a communication."""
    return FlowTable(
        flows.latency_ns,
        flows.indptr,
        flows.links,
        flows.bytes,
        flows.capacity,
        flows.algorithm,
        tuple(name.split(" ", 1)[0] for name in flows.link_names),
    )


def price_flows(
    communications: Communications, network: Network, fold: Fold, *, algorithm: str | Mapping[str, str]
) -> FlowTable | None:
    """Return the flows of the native model, one for each distinct communication.

    Args:
        communications: What `group_communications` made of the meetings.
        network: The network.
        fold: Which ranks are alike.
        algorithm: As in `plan_flows` of the native model.

    Returns:
        None where ranks that are folded don't load their links alike.
    """
    prices = price(communications, network, algorithm=algorithm)
    if len(fold.leaders) < len(fold.classes):
        folded = _folded(communications, prices, network, fold)
        if folded is None:
            return None
        prices = folded
    used, links = np.unique(prices.links, return_inverse=True)
    slot = used % network.grid.slots
    names = np.repeat(np.array(network.names, dtype=object), np.diff(network.grid.offsets))
    return FlowTable(
        latency_ns=prices.latency_ns,
        indptr=prices.indptr,
        links=links.astype(np.int64),
        bytes=prices.bytes,
        capacity=network.slot_capacity[slot],
        algorithm=prices.algorithm,
        dimension=tuple(names[slot].tolist()),
    )


def _folded(communications: Communications, prices: Prices, network: Network, fold: Fold) -> Prices | None:
    """Move loads to the links of the ranks that stand for their owners.

    Of a collective, all members of a class must load each of their links alike; then one of them counts. A message
    loads the sender's links and the receiver's: where these are of one class, each such rank sends and receives.
    """
    if not prices.own_links:
        return None
    slots, classes = network.grid.slots, len(fold.leaders)
    owner, slot = np.divmod(prices.links, slots)
    flow = np.repeat(np.arange(len(prices.latency_ns)), np.diff(prices.indptr))
    kind = fold.classes_of(owner)
    keys = (flow * classes + kind) * slots + slot
    unique, first, inverse, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    message = communications.kind[flow] == SEND
    same = prices.bytes == prices.bytes[first][inverse]
    members = _members_of_class(communications, fold)
    pair = flow * classes + kind
    whole = count[inverse] == members[0][np.searchsorted(members[1], pair)]
    if not (message | (same & whole)).all():
        return None
    # A class that sends to itself over one of its links loads it with both.
    total = np.bincount(inverse, prices.bytes, len(unique))
    loads = np.where(message[first], total, prices.bytes[first])
    flows = unique // (classes * slots)
    indptr = np.zeros(len(prices.latency_ns) + 1, np.int64)
    np.cumsum(np.bincount(flows, minlength=len(prices.latency_ns)), out=indptr[1:])
    leader = fold.ranks[fold.leaders][unique // slots % classes]
    return replace(prices, indptr=indptr, links=leader * slots + unique % slots, bytes=loads)


def _members_of_class(communications: Communications, fold: Fold) -> tuple[Int, Int]:
    """Return how many members of each class each distinct communication has, and flow * classes + class, ascending."""
    sizes = np.array([len(group) for group in communications.groups], np.int64)[communications.group]
    flow = np.repeat(np.arange(len(sizes)), sizes)
    ranks = [communications.groups[group] for group in communications.group.tolist()]
    kind = fold.classes_of(np.concatenate(ranks)) if ranks else np.empty(0, np.int64)
    keys, count = np.unique(flow * len(fold.leaders) + kind, return_counts=True)
    return count.astype(np.int64), keys
