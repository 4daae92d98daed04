"""Passes over a plan: prepared once, run and measured as often as asked."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from chakra_et.replay.backends.program_ops import Program, Times
from chakra_et.replay.backends.torch_ops import Operators, import_modules
from chakra_et.replay.backends.trial_ops import Trial
from chakra_et.replay.backends.values import Values
from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.run import RankResult
from chakra_et.replay.steps import Communicator, Plan

__all__ = ["run_plan"]


def run_plan(plan: Plan, communicator: Communicator | None, options: ReplayOptions) -> RankResult:
    """Run a plan; see `chakra_et.replay.run.run_rank`."""
    import_modules(options.modules)
    if options.threads:
        torch.set_num_threads(options.threads)
    if communicator is not None:
        communicator.prepare(plan)
    # Below autograd: what it called was recorded, and is called as such. Denormals, which no real training step has,
    # would cost time.
    with torch.inference_mode(), _flushed_denormals():
        return _run(plan, communicator, options)


def _run(plan: Plan, communicator: Communicator | None, options: ReplayOptions) -> RankResult:
    issue, wait = (communicator.issue, communicator.wait) if communicator is not None else (_nobody, _nobody)
    values = Values(plan, options.device, options.seed)
    trial = Trial(plan, values, Operators(options.device), options.device, issue, wait)
    _begin(communicator, options)
    trial.run()
    kept = frozenset(trial.before)
    paced = options.host_time == "measured" and plan.has_times
    program = Program(plan, trial.calls, kept, issue, wait, _synchronizer(options.device), paced)
    passes: list[Times] = []
    told = []
    for number in range(max(options.warmup - 1, 0) + options.repeats):
        values.refill()
        slots: list[Any] = [trial.before.get(slot) for slot in range(len(plan.tensors))]
        if communicator is not None:
            communicator.collect()
        _begin(communicator, options)
        with _no_collection():
            times = program.run(slots)
        if number >= options.warmup - 1:
            passes.append(times)
            told.append(_collected(communicator))
    return RankResult(
        rank=plan.rank,
        plan=plan,
        starts=np.array([one.starts for one in passes], np.int64),
        ends=np.array([one.ends for one in passes], np.int64),
        iterations=np.array([one.iterations for one in passes], np.int64).reshape(len(passes), -1, 2),
        communications=tuple(told),
        skipped=dict(trial.skipped),
        replaced=dict(trial.replaced),
        peak_bytes=_peak(options.device),
    )


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
def _no_collection() -> Any:
    """Keep Python's garbage collector from running while time is taken."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _flushed_denormals() -> Any:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
