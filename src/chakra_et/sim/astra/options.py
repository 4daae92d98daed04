"""Options of a simulation by ASTRA-sim's rules: the counterparts of its command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["AstraOptions"]


@dataclass(frozen=True, slots=True)
class AstraOptions:
    """How ASTRA-sim would be called.

    Attributes:
        backend: ``unaware``: messages don't get in one another's way; ``aware``: a link takes one message at a time.
        queues_per_dim: Queues of each dimension (``--num-queues-per-dim``).
        injection_scale: Factor of the endpoint delay (``--injection-scale``).
        rendezvous: A message leaves when its receiver has asked for it (``--rendezvous-protocol``).
        fold: ``auto``: ranks that do the same at the same time are simulated once, where that changes nothing.
        solve: False looks at every message even where times follow from the starts alone; the result is the same.
    """

    backend: Literal["unaware", "aware"] = "unaware"
    queues_per_dim: int = 1
    injection_scale: float = 1.0
    rendezvous: bool = False
    fold: Literal["auto", "off"] = "auto"
    solve: bool = True
