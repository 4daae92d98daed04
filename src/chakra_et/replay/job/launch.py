"""Starting the ranks of a replay as processes on this machine, and collecting what they measured.

Ranks meet through a file. Whatever happens, no process is left behind: a rank that fails ends the others, and ranks end
by themselves when the process that started them is gone.

Shape letters: R ranks.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chakra_et.errors import MissingExtraError, ReplayError
from chakra_et.replay.job.plan import Job
from chakra_et.replay.job.rank import RankReport, Task
from chakra_et.replay.options import ConnectOptions, ReplayOptions

__all__ = ["LaunchOptions", "launch"]

Progress = Callable[[str, int, int], None]

_POLL_S = 0.05
# After the first rank has failed, the others have so long to say what they saw.
_GRACE_S = 2.0
_LAST_WORDS = 300
# Not run as a module: what it pickles would belong to `__main__`.
_RANK = """import pathlib, sys
from chakra_et.replay.job.rank import serve
serve(pathlib.Path(sys.argv[1]), int(sys.argv[2]))"""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How ranks are started.

    Attributes:
        replay: How each rank runs its plan.
        connect: How ranks join each other.
        record: Folder to record the replay into, as a capture; None: don't.
    """

    replay: ReplayOptions = field(default_factory=ReplayOptions)
    connect: ConnectOptions = field(default_factory=ConnectOptions)
    record: Path | None = None


def launch(job: Job, options: LaunchOptions, *, progress: Progress | None = None) -> tuple[RankReport, ...]:
    """Run a job on this machine, a process a rank.

    Args:
        job: The plans.
        options: How they are run.
        progress: Called with a stage, how many steps of the first rank are done, and how many there are.

    Returns:
        [R] what each rank measured.

    Raises:
        MissingExtraError: Torch is not installed.
        ReplayError: A rank failed, or waited too long for others.
    """
    with tempfile.TemporaryDirectory(prefix="chakra-replay-") as name, _ranks(job, options, Path(name)) as processes:
        _watch(processes, Path(name), progress)
        return tuple(_report(Path(name), rank) for rank in range(len(job.plans)))


@contextmanager
def _ranks(job: Job, options: LaunchOptions, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start all ranks; at the end, none of them is there any more."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        active = tuple(place for place, plan in enumerate(job.plans) if plan.steps)
        for place, plan in enumerate(job.plans):
            rest = (job.groups, options.replay, options.connect, options.record)
            task = Task(plan, place, len(job.plans), active, *rest)
            (folder / f"task.{place}").write_bytes(pickle.dumps(task))
            processes.append(_start(folder, place, len(job.plans)))
        yield processes
    finally:
        _end(processes)


def _start(folder: Path, place: int, count: int) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    # Ranks of one machine meet on its loopback, whatever its name resolves to; and they share its cores.
    if Path("/sys/class/net/lo").exists():
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if count > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    environment["LOCAL_RANK"] = str(place)
    with (folder / f"log.{place}").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", _RANK, str(folder), str(place)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
        )


def _watch(processes: list[subprocess.Popen[bytes]], folder: Path, progress: Progress | None) -> None:
    """Wait until all ranks are done.

    Raises:
        ReplayError: One of them failed.
    """
    failed_at: float | None = None
    while True:
        codes = [process.poll() for process in processes]
        if progress is not None:
            progress("replay", *_progress(folder))
        if any(codes) and failed_at is None:
            failed_at = time.monotonic()
        if all(code == 0 for code in codes):
            return
        late = failed_at is not None and time.monotonic() - failed_at > _GRACE_S
        if late or (any(codes) and None not in codes):
            raise _error(codes, folder)
        time.sleep(_POLL_S)


def _progress(folder: Path) -> tuple[int, int]:
    """Return how many steps the first rank has made, and how many it will make."""
    try:
        done, total = (folder / "progress").read_text().split()
    except (OSError, ValueError):
        return 0, 0
    return int(done), int(total)


def _error(codes: list[int | None], folder: Path) -> Exception:
    """Return what the rank that failed first said: the others lost the connection to it."""
    told: list[tuple[int, str]] = []
    for rank, code in enumerate(codes):
        path = folder / f"error.{rank}"
        if path.is_file():
            told.append((path.stat().st_mtime_ns, path.read_text()))
        elif code:
            # It couldn't say anything: it is the cause.
            told.append((0, _last_words(rank, code, folder)))
    first = min(told)[1]
    if first.startswith("MissingExtraError: "):
        return MissingExtraError(first.partition(": ")[2])
    others = len(told) - 1
    return ReplayError(f"{first} ({others:,} other {'ranks' if others > 1 else 'rank'} failed)" if others else first)


def _last_words(rank: int, code: int, folder: Path) -> str:
    """Return how a rank ended that couldn't say it itself."""
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    log = (folder / f"log.{rank}").read_text(errors="replace").strip()
    said = f"; its last words: {log[-_LAST_WORDS:]}" if log else ""
    return f"rank {rank}: expected it to end by itself, got {how}{said}"


def _report(folder: Path, rank: int) -> RankReport:
    report: RankReport = pickle.loads((folder / f"report.{rank}").read_bytes())
    return report


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
