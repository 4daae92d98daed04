"""From ASTRA-sim's configuration to a `System` and back: the nearest equivalent, an error where there is none.

What differs: ASTRA-sim counts bandwidth in GiB/s, and that of a link also in fully connected dimensions, where a system
has the sum of a rank's links; crossing its switch takes its latency twice; and it delays each message of a collective
by an endpoint's share, which is part of a system's latency.
"""

from __future__ import annotations

import math

from chakra_et.errors import InputError
from chakra_et.specs.astra import AstraConfig
from chakra_et.specs.system import Device, Dimension, System

__all__ = ["system_from_astra", "system_to_astra"]

_GIB = 1 << 30
_FROM_ASTRA = {"Ring": "ring", "FullyConnected": "fully_connected", "Switch": "switch"}
_TO_ASTRA = {topology: name for name, topology in _FROM_ASTRA.items()}
_HOPS = {"Ring": 1, "FullyConnected": 1, "Switch": 2}


def system_from_astra(config: AstraConfig, name: str = "astra-sim") -> System:
    """Return the system that ASTRA-sim's configuration describes; how its collectives are cut is no part of it.

    Args:
        config: The configuration.
        name: Name of the system.

    Example:
        >>> config = AstraConfig(("Switch",), (8,), (50.0,), (500.0,))
        >>> system_from_astra(config).dimensions[0].latency_ns
        1010.0
    """
    rows = zip(config.topology, config.npus_count, config.bandwidth, config.latency_ns, strict=True)
    dimensions = tuple(
        Dimension(
            f"dim{index}",
            _FROM_ASTRA[topology],
            size,
            bandwidth * _GIB * (size - 1 if topology == "FullyConnected" else 1),
            latency_ns * _HOPS[topology] + config.endpoint_delay,
        )
        for index, (topology, size, bandwidth, latency_ns) in enumerate(rows)
    )
    device = Device(
        "ASTRA-sim NPU",
        memory_bytes_per_s=config.local_mem_bw * 1e9 or None,
        peak_flop_per_s=(("any", config.peak_perf * 1e12),) if config.peak_perf else (),
    )
    return System(name, f"{config.npus} ranks, from ASTRA-sim's configuration", device, dimensions)


def system_to_astra(
    system: System, world_size: int, *, splits: int = 4, endpoint_delay: int = 10, dtype: str = "bf16"
) -> AstraConfig:
    """Return ASTRA-sim's configuration of a system, for a job.

    Collectives take ASTRA-sim's ring algorithm in rings and switches, ``direct`` in fully connected dimensions. Use
    `dataclasses.replace` on the result to change what a system doesn't say.

    Args:
        system: The system.
        world_size: Ranks of the job.
        splits: Chunks that a collective is cut into.
        endpoint_delay: Part of each latency that ASTRA-sim takes as its delay before each message, ns; at most the
            smallest latency.
        dtype: Dtype whose peak becomes `peak_perf`.

    Raises:
        InputError: The job doesn't fill the system's dimensions, has one rank, or a latency or the memory's bandwidth
            is nothing that ASTRA-sim can run with.

    Example:
        >>> from chakra_et.specs import load_system
        >>> config = system_to_astra(load_system("h100-dgx"), 32)
        >>> config.topology, config.npus_count
        (('Switch', 'Switch'), (8, 4))
    """
    used = _used_dimensions(system, world_size)
    if system.device.memory_bytes_per_s is None:
        raise InputError(
            f"system {system.name}: expected device.memory_bandwidth, which ASTRA-sim divides by, got none; add it"
        )
    delay = min(endpoint_delay, *(math.floor(dimension.latency_ns) for dimension, _ in used))
    if delay < 1:
        raise InputError(
            f"system {system.name}: expected latencies and an endpoint delay of 1 ns or more, got less; "
            "ASTRA-sim can't send without delay"
        )
    # Two ranks are connected fully by their one link; ASTRA-sim's second network refuses rings of two.
    topology = ["FullyConnected" if size == 2 else _TO_ASTRA[dimension.topology] for dimension, size in used]
    algorithms = tuple("direct" if name == "FullyConnected" else "ring" for name in topology)
    return AstraConfig(
        tuple(topology),
        tuple(size for _, size in used),
        tuple(dimension.link_bytes_per_s(size) / _GIB for dimension, size in used),
        tuple(
            (dimension.latency_ns - delay) / _HOPS[name] for name, (dimension, _) in zip(topology, used, strict=True)
        ),
        all_reduce=algorithms,
        all_gather=algorithms,
        reduce_scatter=algorithms,
        all_to_all=algorithms,
        collective_optimization="localBWAware",
        endpoint_delay=delay,
        splits=splits,
        local_mem_bw=system.device.memory_bytes_per_s / 1e9,
        peak_perf=system.device.peak(dtype) / 1e12 if system.device.peak_flop_per_s else 0.0,
        scheduling_policy="LIFO",
    )


def _used_dimensions(system: System, world_size: int) -> list[tuple[Dimension, int]]:
    """Return the dimensions along which a job has several ranks, with their number."""
    sizes = system.sizes(world_size)
    if world_size < 2 or math.prod(sizes) != world_size:
        raise InputError(
            f"system {system.name}: expected a job of two ranks or more that leaves no place idle in ASTRA-sim, "
            f"got {world_size:,} ranks in {' x '.join(map(str, sizes))} places; choose another number"
        )
    return [(dimension, size) for dimension, size in zip(system.dimensions, sizes, strict=True) if size > 1]
