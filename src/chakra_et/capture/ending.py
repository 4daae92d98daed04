"""Ends of a process in which a window may still be open: a signal, the interpreter's exit, a fork."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Ending"]

_watched: weakref.WeakSet[Ending] = weakref.WeakSet()


class Ending:
    """Calls `finish` when the process ends, and `forked` in its children.

    Args:
        finish: Called with ``"signal"`` or ``"exit"`` while a window is open.
        forked: Called in a forked child.
    """

    def __init__(self, finish: Callable[[str], None], forked: Callable[[], None]) -> None:
        self._finish = finish
        self._forked = forked
        self._before: Any = None
        self._watches = False

    def watch(self) -> None:
        """Begin to watch."""
        _register_fork()
        _watched.add(self)
        atexit.register(self._at_exit)
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGTERM)
            # A handler from outside Python can't be called from here: it stays.
            self._watches = self._before is not None and self._before is not signal.SIG_IGN
            if self._watches:
                signal.signal(signal.SIGTERM, self._on_signal)

    def leave(self) -> None:
        """End to watch, and put back what was there before."""
        _watched.discard(self)
        atexit.unregister(self._at_exit)
        if self._watches and threading.current_thread() is threading.main_thread():
            self._watches = False
            # `==`: every look at a method makes a new object.
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, self._before)

    def _at_exit(self) -> None:
        self._finish("exit")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        before = self._before
        self._finish("signal")
        self.leave()
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def in_child(self) -> None:
        """Leave everything to the parent."""
        with contextlib.suppress(Exception):
            self._forked()
        self.leave()


@functools.cache
def _register_fork() -> None:
    """Have children leave open windows alone: once a process, as Python takes no such function back."""
    os.register_at_fork(after_in_child=_leave_in_child)


def _leave_in_child() -> None:
    for ending in list(_watched):
        ending.in_child()
    with contextlib.suppress(Exception):
        _skip_destructors()


def _skip_destructors() -> None:
    """Have this process end without destructors of C++: Kineto's waits for a thread that no forked child has."""
    library = ctypes.CDLL(None)
    library.on_exit(ctypes.cast(library._exit, ctypes.c_void_p), None)
