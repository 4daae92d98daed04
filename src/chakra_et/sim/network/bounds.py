"""What bounds communications: their latency, or which link.

Shape letters: C communications, K loads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chakra_et.sim.network.flows import Flows
from chakra_et.units import format_bytes, format_ns

__all__ = ["LATENCY", "bottlenecks", "bound_by", "describe"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

LATENCY = "latency"


def bottlenecks(flows: Flows) -> tuple[Float, Int]:
    """Return how long each communication would use links if it were alone, and its most loaded link.

    Returns:
        float64 [C], ns, 0 without loads; int64 [C]: link number, -1 without loads.

    Example:
        >>> flows = Flows(np.zeros(1), np.array([0, 2]), np.array([0, 1]), np.array([9.0, 8.0]), np.array([3.0, 2.0]),
        ...               ("scale_up up of rank 0", "scale_out up of rank 0"), ("direct",), True)
        >>> [part.tolist() for part in bottlenecks(flows)]
        [[4.0], [1]]
    """
    transfer, link = np.zeros(len(flows.latency_ns)), np.full(len(flows.latency_ns), -1, np.int64)
    loaded = np.nonzero(np.diff(flows.indptr))[0]
    if len(loaded):
        time = flows.bytes / flows.capacity[flows.links]
        begin = flows.indptr[loaded]
        longest = np.maximum.reduceat(time, begin)
        slot = np.where(time == np.repeat(longest, np.diff(flows.indptr)[loaded]), np.arange(len(time)), len(time))
        transfer[loaded], link[loaded] = longest, flows.links[np.minimum.reduceat(slot, begin)]
    return transfer, link


def bound_by(flows: Flows, communications: Int | None = None) -> dict[str, float]:
    """Return how much time each resource costs: ``latency``, or the dimension of each one's most loaded link.

    Times are those on an idle network.

    Args:
        flows: The communications.
        communications: int64: those that count, such as the exposed ones, or those of one rank; all by default.

    Returns:
        Time in ns by resource, the longest first.

    Example:
        >>> flows = Flows(np.array([5.0]), np.array([0, 1]), np.array([0]), np.array([9.0]), np.array([3.0]),
        ...               ("scale_out up of rank 0",), ("direct",), True)
        >>> bound_by(flows)
        {'latency': 5.0, 'scale_out': 3.0}
    """
    chosen = np.arange(len(flows.latency_ns)) if communications is None else communications
    transfer, link = (part[chosen] for part in bottlenecks(flows))
    times = {LATENCY: float(flows.latency_ns[chosen].sum())}
    busy = np.bincount(link[link >= 0], transfer[link >= 0], len(flows.link_names))
    for name, time in zip(flows.link_names, busy.tolist(), strict=True):
        resource = name.partition(" ")[0]
        times[resource] = times.get(resource, 0.0) + time
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def describe(flows: Flows, index: int) -> str:
    """Return in words what one communication costs on an idle network, and which link bounds it.

    Args:
        flows: The communications.
        index: Which one.

    Example:
        >>> flows = Flows(np.array([5.0]), np.array([0, 1]), np.array([0]), np.array([9000.0]), np.array([3.0]),
        ...               ("scale_out up of rank 0",), ("ring",), True)
        >>> describe(flows, 0)
        'ring: 5 ns of latency, then 3.000 us for 8.8 KiB at 3 GB/s over scale_out up of rank 0'
    """
    transfer, link = bottlenecks(flows)
    text = f"{flows.algorithm[index]}: {format_ns(float(flows.latency_ns[index]))} of latency"
    if link[index] < 0:
        return text
    capacity = float(flows.capacity[link[index]])
    return (
        f"{text}, then {format_ns(float(transfer[index]))} for {format_bytes(float(transfer[index] * capacity))} "
        f"at {capacity:.4g} GB/s over {flows.link_names[link[index]]}"
    )
