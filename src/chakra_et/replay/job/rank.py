"""One rank of a replay: it joins the others, runs its plan, and tells what it measured.

`launch` starts `serve` in a process; under another launcher, `python -m chakra_et.replay` calls `run_task` itself.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from chakra_et.errors import ChakraError, MissingExtraError
from chakra_et.ir import ProcessGroup
from chakra_et.replay.options import ConnectOptions, ReplayOptions
from chakra_et.replay.plan.steps import Plan, Recording
from chakra_et.replay.run import RankResult, run_rank

if TYPE_CHECKING:
    from chakra_et.replay.backends.comm_torch import TorchCommunicator

__all__ = ["RankReport", "Task", "run_task", "serve"]


@dataclass(frozen=True, slots=True)
class Task:
    """What one process has to do.

    Attributes:
        plan: Its plan.
        place: Its rank among the processes.
        count: Processes of the replay.
        active: Ranks that communicate.
        groups: The process groups that any rank uses, in the order in which all make them.
        replay: How the plan is run.
        connect: How it joins the others.
        record: Folder to record the replay into; None: don't.
        gather: Bring all reports to the first rank that communicates.
    """

    plan: Plan
    place: int
    count: int
    active: tuple[int, ...]
    groups: tuple[ProcessGroup, ...]
    replay: ReplayOptions
    connect: ConnectOptions
    record: Path | None = None
    gather: bool = False


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a rank measured, and what it found in results.

    Attributes:
        result: What it measured.
        checked: Results of communications that were checked.
        unchecked: Results that could not be checked.
        wrong: What was wrong with results, in words.
        notes: What was done in another way than recorded.
        machine: Which machine, in one run of it, so that ranks on one know that they share a clock; empty if unknown.
    """

    result: RankResult
    checked: int = 0
    unchecked: int = 0
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    machine: str = ""


def run_task(
    task: Task, *, report: Callable[[str], None] | None = None, progress: Callable[[int, int], None] | None = None
) -> list[RankReport]:
    """Run one rank in this process.

    Args:
        task: What it has to do.
        report: Called once, on another thread, if this rank waits too long for others.
        progress: Called with how many steps were made, of how many.

    Returns:
        This rank's report; all ranks' where they are gathered, and none elsewhere.

    Raises:
        MissingExtraError: Torch is not installed.
        ReplayError: It failed.
    """
    communicates = task.replay.only != "compute" and bool(task.groups)
    communicator = _connect(task, report) if communicates else None
    record = None if task.record is None else lambda: _recording(task)
    if communicator is None:
        return [RankReport(run_rank(task.plan, None, task.replay, record, progress))]
    if not task.plan.steps:
        communicator.stand_by(task.active)
        return [] if task.gather else [RankReport(_nothing(task.plan))]
    result = run_rank(task.plan, communicator, task.replay, record, progress)
    own = RankReport(
        result,
        communicator.checked,
        communicator.unchecked,
        tuple(communicator.wrong),
        tuple(sorted(communicator.notes)),
        _machine(),
    )
    reports: list[RankReport] = communicator.gather(own, task.active) if task.gather else [own]
    communicator.close()
    return reports


def _connect(task: Task, report: Callable[[str], None] | None) -> TorchCommunicator:
    try:
        from chakra_et.replay.backends.comm_torch import connect
    except ImportError as err:
        if err.name != "torch":
            raise
        raise MissingExtraError("replay needs torch; install it: pip install 'chakra-et[torch]'") from err
    return connect(
        task.connect,
        rank=task.place,
        world_size=task.count,
        groups=task.groups,
        active=task.active,
        report=report,
    )


def _machine() -> str:
    """Return what tells one run of a machine from all others; where the system doesn't say, its name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _nothing(plan: Plan) -> RankResult:
    none = np.zeros((0, 0), np.int64)
    return RankResult(plan.rank, plan, "none", none, none, none.reshape(0, 0, 2))


def _recording(task: Task) -> Recording:
    """Record all passes that are measured, an iteration of the replay a step."""
    from chakra_et.capture.torch import record

    return record(str(task.record), active=len(task.plan.iterations) * task.replay.repeats)


def serve(folder: Path, place: int) -> None:
    """Do what is in a folder for a place, and leave the report there."""
    # The process that started this one holds the other end: when it is gone, nobody wants the result.
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def fail(text: str) -> NoReturn:
        _leave(folder / f"error.{place}", text.encode())
        os._exit(1)

    def progress(done: int, total: int) -> None:
        _leave(folder / "progress", f"{done} {total}".encode())

    task: Task = pickle.loads((folder / f"task.{place}").read_bytes())
    connect_options = task.connect
    if connect_options.init_method is None:
        task = replace(task, connect=replace(connect_options, init_method=f"file://{folder / 'store'}", device=place))
    try:
        (done,) = run_task(task, report=fail, progress=progress if place == 0 else None)
    except ChakraError as err:
        kind = "MissingExtraError: " if isinstance(err, MissingExtraError) else ""
        fail(f"{kind}{err}")
    _leave(folder / f"report.{place}", pickle.dumps(done))


def _end_with_parent() -> None:
    # Not through Python's own stream: its lock would be held when the interpreter ends.
    while os.read(0, 1):
        pass
    os._exit(1)


def _leave(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_bytes(content)
    temporary.replace(path)
