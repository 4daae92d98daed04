"""Passes over a plan: prepared once, run and measured as often as asked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from chakra_et.replay.backends.program_ops import Program, Times
from chakra_et.replay.backends.torch_ops import Operators, import_modules
from chakra_et.replay.backends.trial_ops import Trial
from chakra_et.replay.backends.values import Values
from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.plan.steps import Communicator, Plan, Recording
from chakra_et.replay.run import RankResult

__all__ = ["run_plan"]


def run_plan(
    plan: Plan,
    communicator: Communicator | None,
    options: ReplayOptions,
    record: Callable[[], Recording] | None,
    progress: Callable[[int, int], None] | None,
) -> RankResult:
    """Run a plan; see `chakra_et.replay.run.run_rank`."""
    import_modules(options.modules)
    if options.threads:
        torch.set_num_threads(options.threads)
    if communicator is not None:
        communicator.prepare(plan)
    # Below autograd: what it called was recorded, and is called as such. Denormals, which no real training step has,
    # would cost time.
    with torch.inference_mode(), _flushed_denormals():
        return _run(plan, communicator, options, record, progress or _nobody)


def _run(
    plan: Plan,
    communicator: Communicator | None,
    options: ReplayOptions,
    record: Callable[[], Recording] | None,
    progress: Callable[[int, int], None],
) -> RankResult:
    issue, wait = (communicator.issue, communicator.wait) if communicator is not None else (_nobody, _nobody)
    values = Values(plan, options.device, options.seed)
    trial = Trial(plan, values, Operators(options.device), options.device, issue, wait)
    _begin(communicator, options)
    total = len(plan.steps) * (max(options.warmup, 1) + options.repeats)
    trial.run(lambda done: progress(done, total))
    made = 1
    host_time = _host_time(plan, options)
    kept = frozenset(trial.before)
    program = Program(plan, trial.calls, kept, issue, wait, _synchronizer(options.device), host_time == "measured")

    def prepare() -> None:
        progress(made * len(plan.steps), total)
        values.refill()
        _collected(communicator)
        _begin(communicator, options)

    def run_once(after: Callable[[], None] | None) -> tuple[Times, Any]:
        nonlocal made
        slots: list[Any] = [trial.before.get(slot) for slot in range(len(plan.tensors))]
        # What is recorded shall be the replay alone: its passes follow each other as a job's iterations do.
        if after is None:
            prepare()
        made += 1
        with _no_collection():
            times = program.run(slots, after)
        return times, _collected(communicator)

    for _ in range(options.warmup - 1):
        run_once(None)
    if record is not None:
        prepare()
    # Outside of what is recorded: a collection takes longer than many a pass.
    with _no_collection() if record is not None else nullcontext(), _recorded(record) as after:
        passes = [run_once(after) for _ in range(options.repeats)]
    return RankResult(
        rank=plan.rank,
        plan=plan,
        host_time=host_time,
        starts=np.array([one.starts for one, _ in passes], np.int64),
        ends=np.array([one.ends for one, _ in passes], np.int64),
        iterations=np.array([one.iterations for one, _ in passes], np.int64).reshape(len(passes), -1, 2),
        communications=tuple(told for _, told in passes),
        skipped=dict(trial.skipped),
        replaced=dict(trial.replaced),
        peak_bytes=_peak(options.device),
    )


def _host_time(plan: Plan, options: ReplayOptions) -> str:
    """Return what paces the calls: nothing, where no times are known or asked for."""
    unpaced = not plan.has_times or (options.only == "comm" and options.delays == "none")
    return "none" if unpaced else options.host_time


def _begin(communicator: Communicator | None, options: ReplayOptions) -> None:
    """Start a pass: the same random numbers each time, all ranks together."""
    torch.manual_seed(options.seed)
    if communicator is not None:
        communicator.barrier()


def _collected(communicator: Communicator | None) -> Any:
    rows = list(communicator.collect()) if communicator is not None else []
    return np.array(rows, np.int64).reshape(-1, 3)


def _nobody(*_: Any) -> None:
    """Stand for the communicator of a plan that communicates nothing."""


def _synchronizer(device: str) -> Callable[[], None] | None:
    kind = device.partition(":")[0]
    if kind == "cpu":
        return None
    synchronize: Callable[[], None] = torch.accelerator.synchronize
    return synchronize


def _peak(device: str) -> int:
    return int(torch.cuda.max_memory_allocated(device)) if device.startswith("cuda") else 0


@contextmanager
def _recorded(record: Callable[[], Recording] | None) -> Iterator[Callable[[], None] | None]:
    recording = record() if record is not None else None
    try:
        yield recording.step if recording is not None else None
    finally:
        if recording is not None:
            recording.stop()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector from running while time is taken; it runs before, where it is on."""
    if not gc.isenabled():
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
