"""How a plan is run, and how the ranks of a replay join each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chakra_et.errors import ReplayError

__all__ = ["ConnectOptions", "ReplayOptions"]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a plan is run.

    Attributes:
        only: ``all``; ``compute``: operators without communications; ``comm``: communications without operators.
        delays: With ``comm``, what stands in the place of operators: ``measured``: their recorded time; ``none``.
        host_time: What paces the calls. ``measured``: the recorded host, whose time is its program's own and its
            profiler's: calls come no sooner than recorded since the last wait for a communication, or the begin of the
            iteration; those that take longer eat into the pauses behind them. ``gaps``: the recorded pauses between
            calls, each in full, while calls take what they take. ``none``: calls follow each other at once.
        device: Where tensors of an accelerator go, such as ``cpu`` or ``cuda:0``; those of the host's memory stay.
        warmup: Passes before those that are measured; the first pass tries each call, and is always made.
        repeats: Passes that are measured.
        seed: Seed of all that is drawn: tensors, random operators.
        threads: Threads of an operator on the CPU; 0: torch's own choice.
        modules: Python modules to import first: those that register custom operators.

    Raises:
        ReplayError: A value that isn't allowed.

    Example:
        >>> ReplayOptions(only="comm", delays="none").repeats
        3
    """

    only: Literal["all", "compute", "comm"] = "all"
    delays: Literal["measured", "none"] = "measured"
    host_time: Literal["measured", "gaps", "none"] = "measured"
    device: str = "cpu"
    warmup: int = 1
    repeats: int = 3
    seed: int = 0
    threads: int = 0
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choices = {
            "only": ("all", "compute", "comm"),
            "delays": ("measured", "none"),
            "host_time": ("measured", "gaps", "none"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ReplayError(f"{name}: expected one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name, least in (("warmup", 0), ("repeats", 1), ("threads", 0)):
            if getattr(self, name) < least:
                raise ReplayError(f"{name}: expected a number from {least} up, got {getattr(self, name)}")


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
