"""`ConnectOptions`: how the ranks of a replay join each other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ConnectOptions"]


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How a rank joins the others.

    Attributes:
        backend: ``gloo`` or ``nccl`` (which RCCL calls itself, too).
        timeout_s: Longest time that a rank waits for others.
        check: Check what arrives.
        seed: Of what the replay's own tensors hold.
        init_method: Where ranks meet, such as ``file:///tmp/x``; None: as the environment says (``MASTER_ADDR``).
        device: Index of this rank's device, for ``nccl``.
    """

    backend: str = "gloo"
    timeout_s: float = 60.0
    check: bool = False
    seed: int = 0
    init_method: str | None = None
    device: int = 0
