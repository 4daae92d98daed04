"""Both of our observers behind the interface that PyTorch's profiler starts and stops with its window."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.profiler import ExecutionTraceObserver

from chakra_et.capture.notes import Notes

__all__ = ["Observer", "quietly"]

_RANGES = "ENABLE_PYTORCH_EXECUTION_TRACE_SAVE_INTEGRAL_TENSOR_RANGE"


class Observer:
    """PyTorch's execution trace observer with notes on communications.

    Pass it to any profiler as ``execution_trace_observer``; call `close` when the profiler is done.

    Args:
        path: Where the execution trace grows.
        index_ranges: Record the range of integer tensors.
    """

    def __init__(self, path: Path, *, index_ranges: bool = False) -> None:
        self.path = path
        self._notes = Notes()
        self._trace = ExecutionTraceObserver()
        self.works = not _another_is_registered()
        self.warnings = [] if self.works else ["another execution trace observer is at work: there is only a profile"]
        if self.works:
            with _variable(_RANGES, "1" if index_ranges else None):
                self._trace.register_callback(str(path))

    def start(self) -> None:
        """Begin to record."""
        if self.works:
            try:
                self._notes.start()
            except Exception as err:
                self.warnings.append(f"communications are recorded without their groups: {err}")
            self._trace.start()
            self._notes.announce_groups()

    def stop(self) -> None:
        """End to record."""
        if self.works:
            self._notes.stop()
            self._trace.stop()

    def cleanup(self) -> None:
        """Finish the file (the profiler's word for `close`)."""
        self.close()

    def close(self) -> None:
        """Finish the file; nothing is left behind in PyTorch."""
        if self.works:
            self.works = False
            self._notes.stop()
            with quietly():
                self._trace.unregister_callback()

    def leave_to_parent(self) -> None:
        """In a forked child: record no more, and don't touch the parent's file."""
        if not self.works:
            return
        self.works = False
        with contextlib.suppress(Exception):
            torch._C._profiler._disable_execution_trace_observer()
        with contextlib.suppress(OSError):
            _detach_file(self.path)


def _another_is_registered() -> bool:
    """Tell whether the process has an observer: PyTorch allows one, and lets a second one take the first one away."""
    # Not isinstance: that asks objects of all kinds, some of which answer by doing something.
    observers = [found for found in gc.get_objects() if type(found) is ExecutionTraceObserver]
    return any(getattr(observer, "_registered", False) for observer in observers)


def _detach_file(path: Path) -> None:
    """Point this process's descriptors of a file to nowhere: what is buffered must not be written twice."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.path.samefile(f"/proc/self/fd/{name}", path):
                os.dup2(nowhere, int(name))
    os.close(nowhere)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep PyTorch's warnings on how it is profiled to ourselves: a job may have made errors of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _variable(name: str, value: str | None) -> Iterator[None]:
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if value is not None:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
