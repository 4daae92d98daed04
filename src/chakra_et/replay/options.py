"""`ReplayOptions`: how a plan is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chakra_et.errors import ReplayError

__all__ = ["ReplayOptions"]


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
