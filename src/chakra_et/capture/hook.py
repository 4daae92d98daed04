"""Capturing a job without a change of its code: what `chakra capture` has each of its processes do at its start.

The processes find ``startup/sitecustomize.py`` first, which calls `install`. That waits for PyTorch to be imported, and
counts the steps of the first optimizer that steps: only processes that train are captured, not launchers, and not data
loaders. With ``--seconds``, it is a clock that opens and closes the window, in every process that has PyTorch.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from chakra_et.capture.options import CaptureOptions
from chakra_et.capture.patches import after_import

if TYPE_CHECKING:
    from chakra_et.capture.torch import Recorder

__all__ = ["install"]

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch",
              "accelerate.commands.launch", "deepspeed.launcher.runner", "deepspeed.launcher.launch")  # fmt: skip


def install() -> None:
    """Prepare this process for a capture, if its environment asks for one.

    Raises:
        InputError: The environment holds no readable options.
    """
    options = CaptureOptions.from_environment(os.environ)
    if options is None:
        return
    if options.seconds > 0:
        after_import("torch", lambda _: _Clock(options).start())
    else:
        after_import("torch.optim.optimizer", lambda module: _count_steps(module, options))


def _count_steps(module: ModuleType, options: CaptureOptions) -> None:
    """Have every optimizer report its steps: around PyTorch's own hooks, whose range must be closed by then."""
    counter = _Steps(options)
    hook = module.Optimizer.profile_hook_step

    def hooked(function: Callable[..., Any]) -> Callable[..., Any]:
        inner = hook(function)

        @functools.wraps(inner)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = inner(optimizer, *args, **kwargs)
            counter.count(optimizer)
            return result

        return step

    module.Optimizer.profile_hook_step = staticmethod(hooked)


class _Steps:
    """Counts the steps of the first optimizer that steps: others step in the same iteration."""

    def __init__(self, options: CaptureOptions) -> None:
        # The first step is over when we hear of it.
        self._options = replace(options, wait=max(options.wait, 1))
        self._recorder: Recorder | None = None
        self._first: weakref.ref[Any] | None = None

    def count(self, optimizer: Any) -> None:
        if self._recorder is None:
            from chakra_et.capture.torch import Recorder

            self._recorder = Recorder(self._options)
        if self._first is None or self._first() is None:
            self._first = weakref.ref(optimizer)
        if self._first() is optimizer:
            self._recorder.step()


class _Clock:
    """Opens and closes a window by the clock."""

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._recorder: Recorder | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="chakra-capture-clock", daemon=True).start()

    def _run(self) -> None:
        time.sleep(max(self._options.after_seconds, 0.0))
        while not hasattr(sys.modules.get("torch"), "profiler"):
            time.sleep(0.01)
        if _is_launcher() or multiprocessing.current_process().daemon:
            return
        # A window begins when it is open: that takes a while itself.
        _on_main_thread(self._open).wait()
        time.sleep(self._options.seconds)
        _on_main_thread(self._close)

    def _open(self) -> None:
        from chakra_et.capture.torch import Recorder

        self._recorder = Recorder(replace(self._options, wait=0, warmup=0, active=1))

    def _close(self) -> None:
        if self._recorder is not None:
            self._recorder.step()


def _is_launcher() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return os.path.basename(sys.argv[0]) in _LAUNCHERS or getattr(spec, "name", "") in _LAUNCHERS


_PENDING: list[Any] = []


def _on_main_thread(function: Callable[[], None]) -> threading.Event:
    """Have the main thread call a function between two instructions: a profiler belongs to the thread it watches.

    Returns:
        What is set when that is done.
    """

    def call(_: Any) -> int:
        try:
            function()
        except Exception as err:
            print(f"chakra capture: {err}", file=sys.stderr)
        done.set()
        return 0

    done = threading.Event()
    pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
    _PENDING.append(pending)  # alive until it was called
    ctypes.pythonapi.Py_AddPendingCall(pending, None)
    return done
