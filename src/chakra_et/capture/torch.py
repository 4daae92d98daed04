"""Record a PyTorch job: both of its profilers over the same steps, with process groups, in three lines.

    import chakra_et.capture.torch as chakra_capture
    with chakra_capture.record("out/", wait=10, warmup=2, active=1) as rec:
        for batch in loader:
            train(batch)
            rec.step()

Outside the window, a step costs a comparison. Nothing here raises into the job: what fails is said on standard error,
and the job goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from chakra_et.capture.alone import Alone
from chakra_et.capture.ending import Ending
from chakra_et.capture.groups import rank_and_size
from chakra_et.capture.options import CaptureOptions
from chakra_et.capture.session import Session, log, log_failure

__all__ = ["Recorder", "record"]

# Of the steps before the window, the last ones tell how long a step takes.
_STEPS_BEFORE = 32


def record(
    out: str | Path,
    *,
    wait: int = 0,
    warmup: int = 0,
    active: int = 1,
    ranks: Sequence[int] = (),
    stacks: bool = False,
    memory: bool = False,
    index_ranges: bool = False,
    anonymous: bool = False,
) -> Recorder:
    """Record a window of this process's steps; call it on every rank.

    Use it as a context manager, or keep what it returns and call its `step` and `stop`.

    Args:
        out: Folder for ``host.<rank>.json.gz``, ``device.<rank>.json.gz`` and ``manifest.<rank>.json``.
        wait: Steps before the window.
        warmup: Steps in which the profiler runs and its records are thrown away.
        active: Steps that are recorded.
        ranks: Global ranks to capture; empty: all.
        stacks: Record Python stacks and modules.
        memory: Record allocations and frees.
        index_ranges: Record the range of integer tensors, for replay.
        anonymous: Write host names as hashes, and no paths.

    Raises:
        InputError: An option is out of its range.

    Example:
        >>> import tempfile, torch
        >>> folder = tempfile.mkdtemp()
        >>> with record(folder) as rec:
        ...     _ = torch.ones(8) * 2
        >>> sorted(path.name for path in Path(folder).iterdir())
        ['device.0.json.gz', 'host.0.json.gz', 'manifest.0.json']
    """
    return Recorder(
        CaptureOptions(
            out=os.path.abspath(out),
            wait=wait,
            warmup=warmup,
            active=active,
            ranks=tuple(ranks),
            stacks=stacks,
            memory=memory,
            index_ranges=index_ranges,
            anonymous=anonymous,
        )
    )


class Recorder:
    """Counts steps, and records those in the window.

    Args:
        options: What to capture.
    """

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._steps = 0
        self._opens_at = options.wait
        self._session: Session | None = None
        self._writer: threading.Thread | None = None
        self._marks: deque[int] = deque(maxlen=_STEPS_BEFORE + 1)
        self._ending = Ending(self._finish_at_end, self._leave_to_parent)
        self._alone = Alone(self._give_way)
        if options.wait == 0:
            self._open()

    def step(self) -> None:
        """Say that a step is over, and the next one begins."""
        self._steps += 1
        if self._session is not None:
            self._step_inside(self._session)
        elif self._steps <= self._opens_at:
            self._marks.append(time.perf_counter_ns())
            if self._steps == self._opens_at:
                self._open()

    def stop(self) -> None:
        """End the window, if it is open, and wait until all files are written."""
        self._stop("stop")

    def __enter__(self) -> Recorder:
        """Return itself: recording is on its way already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; an exception in the window passes, and what was recorded up to it is written."""
        self._stop("exception" if kind is not None else "stop")

    @property
    def is_recording(self) -> bool:
        """True while the window is open."""
        return self._session is not None

    def _open(self) -> None:
        self._opens_at = -1
        try:
            if not self._options.wants(rank_and_size()[0]):
                return
            self._alone.enter()
            session = Session(self._options, self._steps)
        except Exception as err:
            self._alone.leave()
            log_failure("could not begin", err)
            return
        try:
            session.start()
        except Exception as err:
            session.abandon()
            self._alone.leave()
            log_failure("could not begin", err)
            return
        self._session = session
        self._ending.watch()
        self._alone.watch(session.has)

    def _step_inside(self, session: Session) -> None:
        try:
            if session.step():
                self._close(session, "window", at_once=False)
        except Exception as err:
            self._fail(session, err)

    def _stop(self, reason: str) -> None:
        session = self._session
        if session is not None:
            try:
                self._close(session, reason, at_once=True)
            except Exception as err:
                self._fail(session, err)
        elif self._opens_at > self._steps:
            log(f"nothing was captured: there were {self._steps} steps, and the window opens after {self._opens_at}")
            self._opens_at = -1
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _close(self, session: Session, reason: str, *, at_once: bool) -> None:
        self._session = None
        self._ending.leave()
        self._alone.leave()
        self._writer = session.stop(reason, self._step_before_ns(), at_once=at_once)

    def _fail(self, session: Session, err: Exception) -> None:
        self._session = None
        self._ending.leave()
        self._alone.leave()
        session.abandon()
        log_failure("the capture failed", err)

    def _step_before_ns(self) -> float | None:
        """Return the mean length of the steps before the window; the first one, often a slow one, doesn't count."""
        marks = list(self._marks)
        return (marks[-1] - marks[0]) / (len(marks) - 1) if len(marks) > 1 else None

    def _give_way(self) -> None:
        """End the window before another profiler begins; its own thread does, if that is another one."""
        session = self._session
        if session is not None and not session.is_lost:
            log("another profiler begins: the window ends")
            if session.is_on_this_thread:
                self._stop("profiler")
            else:
                session.lose()

    def _finish_at_end(self, reason: str) -> None:
        self._stop(reason)

    def _leave_to_parent(self) -> None:
        if self._session is not None:
            self._session.leave_to_parent()
            self._session = None
            self._alone.leave()
