"""`SimulateOptions`: what a simulation may be told beside the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from chakra_et.errors import InputError
from chakra_et.specs.system import Device, System

__all__ = ["CommModel", "ComputeModel", "Iterations", "SimulateOptions"]

CommModel = Literal["auto", "native", "measured", "calibrated"]
ComputeModel = Literal["measured", "roofline", "scaled"]
Iterations = int | Literal["inner", "all"]


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """How to simulate.

    Attributes:
        comm: What communications cost. ``measured``: their measured transfers, after the last participant has come;
            ``native``: the network model on the system; ``calibrated``: that model, fitted to the measured transfers;
            ``auto``: native where there is a system, else measured.
        compute: How long other nodes take. ``measured``: their durations; ``roofline``: from `num_ops` and
            `tensor_size`; ``scaled``: their durations, carried over from one device to another.
        resources: What nodes compete for: ``streams``, ``engines``, or ``auto`` for what fits the traces' family; see
            `chakra_et.sim.resources`.
        fold: ``auto`` to simulate ranks that do the same once, where the network allows it; ``off`` for never.
        iteration: ``inner``: each training step on its own, without the first and the last if there are more than two;
            a number: that one; ``all``: everything that the traces hold, at once.
        mirror_missing: True to copy traces for ranks that the set lacks.
        comm_scale: Factor on what communications cost: 2 for links half as fast.
        compute_scale: Factor on compute and copies of the device (on a rank without one: compute of the host), or one
            by kind (`chakra_et.sim.compute.KINDS`), with ``*`` for those that aren't named.
        host_scale: Factor on the work of host threads, or one by thread id.
        rank_delay_ns: By how much ranks begin late.
        channels: Communications of one process group at once, with ``engines``.
        overlap_slowdown: Factor on compute while a communication of its rank is in transfer, with ``engines``; infinite
            where compute stands still then.
        sends: Whether a send waits for its receive: ``eager`` (no), ``rendezvous`` (yes), or ``auto``: as recorded, and
            where nothing is recorded, no.
        algorithm: Algorithm of collectives, ``auto`` for the cheapest; or one by type.
        dtype: Element type of compute whose name doesn't tell it, for peaks of the device.
        from_device: The device that was measured, for ``scaled``.
        measured_system: The system that was measured, for ``calibrated``; the simulated one by default.
        clock_offsets_ns: Added to each rank's clock; by default what matching has found.

    Example:
        >>> SimulateOptions(comm="measured", compute_scale={"gemm": 1.8, "*": 1.2}).channels
        1
    """

    comm: CommModel = "auto"
    compute: ComputeModel = "measured"
    resources: Literal["auto", "streams", "engines"] = "auto"
    fold: Literal["auto", "off"] = "auto"
    iteration: Iterations = "inner"
    mirror_missing: bool = False
    comm_scale: float = 1.0
    compute_scale: float | Mapping[str, float] = 1.0
    host_scale: float | Mapping[int, float] = 1.0
    rank_delay_ns: Mapping[int, int] = field(default_factory=dict)
    channels: int = 1
    overlap_slowdown: float = 1.0
    sends: Literal["auto", "eager", "rendezvous"] = "auto"
    algorithm: str | Mapping[str, str] = "auto"
    dtype: str = "bf16"
    from_device: Device | None = None
    measured_system: System | None = None
    clock_offsets_ns: Mapping[int, int] | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("comm", ("auto", "native", "measured", "calibrated")),
            ("compute", ("measured", "roofline", "scaled")),
            ("resources", ("auto", "streams", "engines")),
            ("fold", ("auto", "off")),
            ("sends", ("auto", "eager", "rendezvous")),
        ):
            if getattr(self, name) not in known:
                raise InputError(f"{name}: expected one of {', '.join(known)}, got '{getattr(self, name)}'")
        if not isinstance(self.iteration, int) and self.iteration not in ("inner", "all"):
            raise InputError(f"iteration: expected a number, inner or all, got '{self.iteration}'")
        if not 0 <= self.comm_scale < math.inf:
            raise InputError(f"comm_scale: expected a factor of 0 or more, got {self.comm_scale}")
        if self.channels < 1:
            raise InputError(f"channels: expected 1 or more, got {self.channels}")
        if not self.overlap_slowdown >= 1:
            raise InputError(f"overlap_slowdown: expected a factor of 1 or more, got {self.overlap_slowdown}")
        least = min(self.rank_delay_ns.values(), default=0)
        if least < 0:
            raise InputError(f"rank_delay_ns: expected 0 ns or more, got {least}; delay the other ranks instead")
