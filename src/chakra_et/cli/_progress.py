"""A progress bar on stderr, for work that passes a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_S = 1.0

Report = Callable[[str, int, int], None]


@contextmanager
def progress_bar() -> Iterator[Report | None]:
    """Yield a callback ``(stage, done, total)`` that feeds a bar; None where stderr is no terminal.

    The bar appears after a second, so that quick work stays quiet, and disappears at the end.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = _LateBar()
    try:
        yield bar.update
    finally:
        bar.close()


class _LateBar:
    """Holds the latest state; a timer shows it when the work turns out to be long."""

    def __init__(self) -> None:
        self._state = ("", 0, 0)
        self._shown: tuple[Progress, TaskID] | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(QUIET_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def update(self, stage: str, done: int, total: int) -> None:
        """Take over the state of the work."""
        with self._lock:
            self._state = (stage, done, total)
            self._draw()

    def close(self) -> None:
        """Remove the bar."""
        self._timer.cancel()
        with self._lock:
            if self._shown is not None:
                self._shown[0].stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        with self._lock:
            self._shown = (progress, progress.add_task("working", total=None))
            progress.start()
            self._draw()

    def _draw(self) -> None:
        if self._shown is None:
            return
        stage, done, total = self._state
        progress, task = self._shown
        progress.update(task, description=stage or "working", completed=done, total=total or None)
