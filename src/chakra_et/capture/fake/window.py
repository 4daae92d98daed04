"""Which part of a program is recorded: some optimizer steps."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from chakra_et.capture.fake.log import Log

__all__ = ["Window", "WindowOver"]


class WindowOver(BaseException):
    """All has been recorded: ends the program, past its own handlers of exceptions."""


class Window:
    """Counts optimizer steps; what came before the window is forgotten, and its end ends the program.

    A program with several optimizers is counted by the first that takes a step.

    Args:
        log: The records.
        wait: Steps before the window.
        active: Steps in the window.
    """

    def __init__(self, log: Log, *, wait: int, active: int) -> None:
        self._log, self._wait, self._active = log, wait, active
        self._optimizer: Any = None
        self._handle: Any = None
        self.steps = 0

    def __enter__(self) -> Window:
        """Begin to count."""
        self._handle = register_optimizer_step_post_hook(self._stepped)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End to count."""
        self._handle.remove()

    @property
    def is_over(self) -> bool:
        """True if all steps of the window were taken."""
        return self.steps >= self._wait + self._active

    def shortfall(self) -> str:
        """Say that the program ended before its window did."""
        wanted = self._wait + self._active
        begin = "its begin" if self.steps == 0 else f"its step {min(self.steps, self._wait)}"
        return f"the program ended after {self.steps} of {wanted} optimizer steps: recorded from {begin} to its end"

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is not self._optimizer:
            return
        self.steps += 1
        if self.steps <= self._wait:
            self._log.clear()
        elif self.steps == self._wait + self._active:
            self._log.is_open = False
            raise WindowOver
