"""How the command ends when something stops it: one line at most, and an exit code."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from chakra_et.errors import ChakraError, SimulationError

__all__ = ["end_process", "open_streams", "report_ending", "sigterm_raises"]

USER_ERROR = 1
MOST_ROWS = 16
INTERRUPTED, TERMINATED = 130, 143


class _Terminated(KeyboardInterrupt):
    """The process was asked to end; libraries clean up as they do after Ctrl-C."""


def open_streams() -> None:
    """Open standard streams that the caller has closed: Python has None for them, and files would take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Nobody closes it: it serves for as long as the process lives.
            descriptor = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Inside, SIGTERM raises an exception, so that temporary files are removed as after any other."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


def report_ending(err: BaseException) -> int:
    """Say in one line what stopped the command, and return its exit code.

    Raises:
        BaseException: `err`, if it is none that a user can cause.
    """
    stop = _interruption(err)
    if isinstance(stop, _Terminated):
        return TERMINATED
    if stop is not None:
        sys.stderr.write("\n")
        return INTERRUPTED
    if isinstance(err, ChakraError):
        code = _fail(str(err))
        if isinstance(err, SimulationError):
            _print_waiting(err)
        return code
    if isinstance(err, BrokenPipeError):
        # The reader (head, less) has gone: say nothing.
        _drop_stdout()
        return USER_ERROR
    if isinstance(err, OSError):
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            return _fail(_os_error(err))
        _drop_stdout()
        return _fail(_os_error(err))
    if isinstance(err, MemoryError):
        return _fail("expected more memory than there is; give it fewer ranks at once, or --jobs 1")
    raise err


def end_process(code: int) -> NoReturn:
    """End the process when its exit handlers have run, without taking apart what the system takes back anyway.

    Compiled loops and columns would cost a fifth of a second. With processes of its own, the process ends in the usual
    way, which knows in what order to end them.
    """
    if "joblib" in sys.modules:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def _print_waiting(err: SimulationError) -> None:
    """Say who waits for what, as far as that fits a screen."""
    for row in err.waiting[:MOST_ROWS]:
        group = f" of {row.group}" if row.group else ""
        sys.stderr.write(f"  rank {row.rank}: node {row.node} ('{row.name}'){group} waits for {row.waits_for}\n")
    if len(err.waiting) > MOST_ROWS:
        sys.stderr.write(f"  ({len(err.waiting) - MOST_ROWS:,} more)\n")


def _interruption(err: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interruption that an error is or came from: extension modules raise others in its place."""
    seen: list[BaseException] = []
    while err is not None and err not in seen:
        if isinstance(err, KeyboardInterrupt):
            return err
        seen.append(err)
        err = err.__cause__ or err.__context__
    return None


def _os_error(err: OSError) -> str:
    place = f"{err.filename}: " if err.filename else ""
    return f"{place}{err.strerror or err}"


def _drop_stdout() -> None:
    """Send what stdout still holds to nowhere, or the interpreter complains when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str) -> int:
    sys.stderr.write(f"chakra: error: {' '.join(text.split())}\n")
    return USER_ERROR
