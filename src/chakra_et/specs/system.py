"""`System`: a machine as simulations and analyses see it: one device, and the network in dimensions.

Ranks are numbered with the innermost dimension fastest: rank = a0 + n0 * (a1 + n1 * a2 ...).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from chakra_et.errors import InputError

__all__ = ["DTYPES", "REST", "TOPOLOGIES", "Device", "Dimension", "System"]

TOPOLOGIES = ("switch", "fully_connected", "ring")
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "any")
REST = "rest"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True)
class Device:
    """The accelerator of one rank.

    Attributes:
        name: What its vendor calls it.
        memory_bytes: Capacity of its memory; None if unknown.
        memory_bytes_per_s: Bandwidth of its memory; None if unknown.
        peak_flop_per_s: Pairs of a dtype (of `DTYPES`; ``any`` stands for those that aren't there) and the peak of
            dense arithmetic in it, FLOP/s; multiplying and adding are two, and operations on integers count too.
    """

    name: str
    memory_bytes: int | None = None
    memory_bytes_per_s: float | None = None
    peak_flop_per_s: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for key, value in (("memory", self.memory_bytes), ("memory_bandwidth", self.memory_bytes_per_s)):
            if value is not None:
                _check_positive(f"device.{key}", value)
        for dtype, peak in self.peak_flop_per_s:
            if dtype not in DTYPES:
                raise InputError(f"device.peak: expected one of {', '.join(DTYPES)}, got '{dtype}'; rename it")
            _check_positive(f"device.peak.{dtype}", peak)

    def peak(self, dtype: str) -> float:
        """Return the peak of dense arithmetic in a dtype, FLOP/s.

        Raises:
            InputError: The device has none for it.

        Example:
            >>> Device("H100", peak_flop_per_s=(("bf16", 989.4e12),)).peak("bf16")
            989400000000000.0
        """
        peaks = dict(self.peak_flop_per_s)
        peak = peaks.get(dtype, peaks.get("any"))
        if peak is None:
            known = ", ".join(peaks) or "none at all"
            raise InputError(f"device {self.name}: expected a dtype with a known peak ({known}), got '{dtype}'")
        return peak


@dataclass(frozen=True, slots=True)
class Dimension:
    """One level of the network: groups of ranks that it joins with each other.

    Attributes:
        name: Such as ``scale_up`` or ``scale_out``; lower case.
        topology: ``switch``: each rank has one port to a switch that is never in the way. ``fully_connected``: each
            rank has a link of its own to each other one. ``ring``: each rank has a link to the next and one to the
            last; a torus is several rings, a dimension each.
        size: Ranks along it; None for as many as the job needs.
        bandwidth_bytes_per_s: In one direction. Of ``switch``: of a rank's port. Of ``fully_connected``: of all of a
            rank's links together, when the dimension has its full size. Of ``ring``: of one link; a rank sends twice
            that when it uses both.
        latency_ns: Of one message between two ranks, one way, wire and software, without the time that its bytes
            take. Of ``ring``: of one hop.
    """

    name: str
    topology: str
    size: int | None
    bandwidth_bytes_per_s: float
    latency_ns: float

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name == "device":
            raise InputError(
                f"dimension: expected a name in lower case such as scale_up, got '{self.name}'; choose another"
            )
        if self.topology not in TOPOLOGIES:
            raise InputError(
                f"{self.name}.topology: expected one of {', '.join(TOPOLOGIES)}, got '{self.topology}'; "
                "a torus is several rings, a dimension each"
            )
        if self.size is not None:
            _check_positive(f"{self.name}.size", self.size)
        _check_positive(f"{self.name}.bandwidth", self.bandwidth_bytes_per_s)
        if not 0 <= self.latency_ns < math.inf:
            raise InputError(
                f"{self.name}.latency: expected a time of 0 or more, got {self.latency_ns}; check the value"
            )

    def link_bytes_per_s(self, size: int) -> float:
        """Return the bandwidth of one link in one direction, where a job has `size` ranks along the dimension.

        Links don't move: a job on half of a fully connected server leaves the links to the other half idle.

        Example:
            >>> Dimension("scale_up", "fully_connected", 8, 448e9, 800).link_bytes_per_s(4)
            64000000000.0
        """
        if self.topology != "fully_connected":
            return self.bandwidth_bytes_per_s
        return self.bandwidth_bytes_per_s / max((self.size or size) - 1, 1)

    def rank_bytes_per_s(self, size: int) -> float:
        """Return what one rank can send in all, where a job has `size` ranks along the dimension.

        Example:
            >>> Dimension("x", "ring", 16, 50e9, 1000).rank_bytes_per_s(16)
            100000000000.0
        """
        links = {"switch": 1, "ring": min(size - 1, 2), "fully_connected": size - 1}[self.topology]
        return links * self.link_bytes_per_s(size) if size > 1 else 0.0


@dataclass(frozen=True, slots=True)
class System:
    """A machine: devices of one kind, and the network that joins them.

    Attributes:
        name: Such as ``h100-dgx``.
        description: One line.
        device: The accelerator of each rank.
        dimensions: The network, innermost (fastest) first; only the last may have the size ``rest``.
    """

    name: str
    description: str
    device: Device
    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        names = [dimension.name for dimension in self.dimensions]
        if not names:
            raise InputError("dimensions: expected one or more, got none; describe the network")
        if len(set(names)) < len(names):
            raise InputError(f"dimensions: expected different names, got {', '.join(names)}; rename one")
        for dimension in self.dimensions[:-1]:
            if dimension.size is None:
                raise InputError(
                    f"{dimension.name}.size: expected a number, got '{REST}'; only the last dimension may have it"
                )

    def sizes(self, world_size: int) -> tuple[int, ...]:
        """Return how many ranks a job has along each dimension.

        Dimensions fill from the innermost on: one that the job doesn't fill shrinks, and the ones beyond it have size
        1. Where the job's ranks fill no whole number of groups, places stay idle.

        Args:
            world_size: Ranks of the job.

        Raises:
            InputError: The job is larger than the system, or has no rank.

        Example:
            >>> dgx = System("dgx", "", Device("H100"), (
            ...     Dimension("scale_up", "switch", 8, 450e9, 600), Dimension("scale_out", "switch", None, 50e9, 2700)))
            >>> dgx.sizes(64), dgx.sizes(4), dgx.sizes(12)
            ((8, 8), (4, 1), (8, 2))
        """
        if world_size < 1:
            raise InputError(f"system {self.name}: expected a job with 1 rank or more, got {world_size}")
        sizes = []
        groups = world_size
        for dimension in self.dimensions:
            sizes.append(groups if dimension.size is None else min(dimension.size, groups))
            groups = -(-groups // sizes[-1])
        if groups > 1:
            room = math.prod(dimension.size or 1 for dimension in self.dimensions)
            raise InputError(
                f"system {self.name}: expected a job of {room:,} ranks at most, got {world_size:,}; "
                f"override {self.dimensions[-1].name}.size"
            )
        return tuple(sizes)


def _check_positive(key: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(f"{key}: expected a number above 0, got {value}; check the value")
