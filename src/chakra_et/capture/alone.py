"""One profiler in a process, the job's own first: over two, PyTorch loses records or ends the process."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

import torch.autograd.profiler
import torch.profiler
from torch.profiler import ExecutionTraceObserver

from chakra_et.capture.patches import replaced

__all__ = ["Alone"]

_one = threading.Lock()
# Where PyTorch's profiler begins its warm-up and its records, and an observer of the execution graph begins.
_BEGINNINGS = (
    (torch.autograd.profiler.profile, "_prepare_trace"),
    (torch.autograd.profiler.profile, "_start_trace"),
    (ExecutionTraceObserver, "register_callback"),
)


def _is_profiled() -> bool:
    """Tell whether a profiler is at work in this process, or warming up."""
    if torch.autograd.profiler._is_profiler_enabled:
        return True
    # Not isinstance: that asks objects of all kinds, some of which answer by doing something.
    profilers = [found for found in gc.get_objects() if issubclass(type(found), torch.profiler.profile)]
    return any(map(_is_warming_up, profilers))


def _is_warming_up(profiler: torch.profiler.profile) -> bool:
    # Its action stays what it was after it was stopped.
    inner = getattr(profiler, "profiler", None)
    waits = profiler.current_action == torch.profiler.ProfilerAction.WARMUP
    return waits and inner is not None and inner.kineto_results is None


class Alone:
    """Holds the process's place for a profiler between `enter` and `leave`.

    Args:
        give_way: Called before another one begins.
    """

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._undo: contextlib.ExitStack | None = None

    def enter(self) -> None:
        """Take the place.

        Raises:
            RuntimeError: It is taken.
        """
        if _is_profiled() or not _one.acquire(blocking=False):
            raise RuntimeError("expected no other profiler at work in the process, found one")
        self._undo = contextlib.ExitStack()
        self._undo.callback(_one.release)

    def watch(self, is_ours: Callable[[Any], bool]) -> None:
        """Begin to give way.

        Args:
            is_ours: Tells of a profiler that is about to begin whether it is the window's.
        """
        if self._undo is not None:
            for owner, name in _BEGINNINGS:
                begins = _preceding(getattr(owner, name), is_ours, self._give_way)
                self._undo.enter_context(replaced(owner, {name: begins}))

    def leave(self) -> None:
        """Give the place back."""
        if self._undo is not None:
            undo, self._undo = self._undo, None
            undo.close()


def _preceding(
    begin: Callable[..., Any], is_ours: Callable[[Any], bool], give_way: Callable[[], None]
) -> Callable[..., Any]:
    """Return what gives way before a profiler begins that isn't ours."""

    @functools.wraps(begin)
    def begins(profiler: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            if not is_ours(profiler):
                give_way()
        return begin(profiler, *args, **kwargs)

    return begins
