"""Another program, run to its end: its output line by line, a time limit, and nothing of it left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chakra_et.errors import InputError

__all__ = ["Ended", "launch"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended.

    Attributes:
        exit_code: What it returned; below 0: the signal that ended it.
        timed_out: True if it was stopped, since it took longer than it was given.
        stderr: What it wrote there.
        wall_s: Time that it took.
        user_s: Time that it computed.
    """

    exit_code: int
    timed_out: bool
    stderr: str
    wall_s: float
    user_s: float


def launch(
    command: Sequence[str], *, folder: Path | None, timeout_s: float | None, on_line: Callable[[str], None]
) -> Ended:
    """Run a program and hand on each line that it prints.

    Args:
        command: Program and arguments.
        folder: Its working directory; None for this one.
        timeout_s: When to stop it; None for never.
        on_line: Called with each line of its standard output.

    Raises:
        InputError: It can't be started.
    """
    begin, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryFile() as errors:
        try:
            # A session of its own: what a wrapper starts is stopped with it.
            process = subprocess.Popen(
                list(command), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                text=True, encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as err:
            raise InputError(
                f"{command[0]}: expected a program that runs here, got an error: {err.strerror}; build it on this "
                "machine"
            ) from err
        late = threading.Event()
        timer = threading.Timer(timeout_s or 0, _stop, (process, late))
        timer.daemon = True
        try:
            if timeout_s is not None:
                timer.start()
            for line in process.stdout or ():
                on_line(line)
            code = process.wait()
        finally:
            timer.cancel()
            if process.stdout is not None:
                process.stdout.close()
            if process.poll() is None:
                _stop(process)
                process.wait()
        errors.seek(0)
        text = errors.read().decode("utf-8", "replace")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used
    return Ended(code, late.is_set(), text, time.monotonic() - begin, spent)


def _stop(process: subprocess.Popen[str], late: threading.Event | None = None) -> None:
    if late is not None:
        late.set()
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, signal.SIGKILL)
