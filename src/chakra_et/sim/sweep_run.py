"""Simulating many points: here, in other processes, or on a cluster.

A job that was prepared once goes to each process once: as bytes in an array, which joblib's own processes map into
their memory, and which Dask spreads over its workers; what a process has unpacked, it keeps. Points go out in batches
of about a second, those with the same layout of ranks together, since folded ranks and plans are made once a layout.
"""

from __future__ import annotations

import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from chakra_et.errors import ChakraError, InputError, SimulationError
from chakra_et.sim.result import SimResult
from chakra_et.sim.simulate import Prepared
from chakra_et.sim.sweep_points import Point

__all__ = ["Job", "in_layout_order", "measure", "run_points"]

Row = dict[str, Any]
Item = tuple[str, Point]
Save = Callable[[dict[str, Row]], None]
Bytes = npt.NDArray[np.uint8]

# Until processes have started and read the compiled loops, many points can be simulated here.
_TRY_S = 1.0
_START_S = 4.0
_BATCH_S = 1.0
_SAVE_S = 1.0

_TIMES = ("compute_ns", "communication_ns", "exposed_communication_ns")
_unpacked = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What all points simulate.

    Attributes:
        prepared: The job.
        ranks: The ranks that each result must cover.
    """

    prepared: Prepared
    ranks: tuple[int, ...]

    def row(self, point: Point) -> Row:
        """Simulate a point; where that can't be done, the row says why."""
        try:
            return measure(self.prepared.run(point.system, point.options), self.ranks)
        except ChakraError as err:
            return {"error": " ".join(str(err).split())}
        except MemoryError:
            return {"error": "expected to fit in memory, did not; give it fewer processes (--jobs 1)"}


def measure(result: SimResult, ranks: Sequence[int]) -> Row:
    """Return what a table holds of a result; where it has several iterations, their mean.

    Args:
        result: The result.
        ranks: The ranks that it must cover.

    Raises:
        SimulationError: It doesn't.

    Example:
        >>> from chakra_et.sim.result import RankTimes
        >>> result = SimResult(lambda: None, (RankTimes(0, 9, 5, 4, 3), RankTimes(1, 8, 5, 3, 1)), (), 2)
        >>> row = measure(result, (0, 1))
        >>> row["finish_ns"], row["exposed_communication_mean_ns"], row["exposed_communication_max_ns"]
        (9, 2, 3)
    """
    parts = result.iterations or (result,)
    for part in parts:
        covered = [rank.rank for rank in part.ranks if rank.finish_ns >= 0]
        if covered != list(ranks):
            raise SimulationError(f"expected the times of {len(ranks)} ranks, got those of {len(covered)}; report this")
    row: Row = {"finish_ns": round(result.mean_ns), "spread_ns": result.spread_ns}
    for name in _TIMES:
        times = np.array([[getattr(rank, name) for rank in part.ranks] for part in parts]).mean(axis=0)
        row[name.replace("_ns", "_mean_ns")] = round(float(times.mean()))
        row[name.replace("_ns", "_max_ns")] = round(float(times.max()))
    bounds: dict[str, int] = {}
    for part in parts:
        for resource, spent in part.bounds.items():
            bounds[resource] = bounds.get(resource, 0) + spent
    ordered = sorted(bounds.items(), key=lambda item: -item[1])
    return {
        **row,
        "bounds": {resource: round(spent / len(parts)) for resource, spent in ordered},
        "iterations": len(parts),
        "ranks": len(ranks),
        "folded_classes": max(part.folded_classes for part in parts),
        "notes": list(result.notes),
    }


def in_layout_order(items: Iterable[Item], world_size: int) -> list[Item]:
    """Return points so that those with the same layout of ranks follow each other, else in their order."""

    def layout(item: Item) -> str:
        system = item[1].system
        if system is None:
            return ""
        try:
            return repr((system.sizes(world_size), [(one.topology, one.latency_ns) for one in system.dimensions]))
        except InputError:  # the job is larger than the system
            return ""

    return sorted(items, key=layout)


def run_points(job: Job, items: Sequence[Item], jobs: int, save: Save) -> None:
    """Simulate points.

    Args:
        job: What they simulate.
        items: Key and point. The first ones are simulated here; they tell whether other processes are worth starting,
            unless the caller has asked for them.
        jobs: Processes; 0 for what joblib is configured for, or else one a core.
        save: Called with rows by key as they are done, about once a second.
    """
    number, workers, wanted = _workers(jobs)
    begin = time.monotonic()
    took, rows, saved = 0.0, {}, begin
    for done, (key, point) in enumerate(items, start=1):
        rows[key] = job.row(point)
        now = time.monotonic()
        took = (now - begin) / done
        gain = (len(items) - done) * took * (1 - 1 / workers)
        elsewhere = workers > 1 and (wanted or (now - begin > _TRY_S and gain > _START_S))
        if now - saved > _SAVE_S or elsewhere or done == len(items):
            save(rows)
            rows, saved = {}, now
        if elsewhere:
            _run_elsewhere(job, items[done:], number, workers, took, save)
            return


def _workers(jobs: int) -> tuple[int, int, bool]:
    """Return joblib's number of jobs, how many these are, and whether the caller has asked for them."""
    from joblib import effective_n_jobs
    from joblib.parallel import get_active_backend

    backend, configured = get_active_backend()
    number = jobs or configured or -1
    # A backend other than joblib's default was chosen on purpose: a cluster, say.
    wanted = jobs > 1 or configured is not None or type(backend).__name__ != "LokyBackend"
    return number, effective_n_jobs(number), wanted


def _run_elsewhere(job: Job, items: Sequence[Item], number: int, workers: int, took: float, save: Save) -> None:
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    if not items:
        return
    size = max(1, min(round(_BATCH_S / max(took, 1e-6)), -(-len(items) // (2 * workers))))
    batches = [list(items[first : first + size]) for first in range(0, len(items), size)]
    packed = np.frombuffer(pickle.dumps(job, protocol=5), np.uint8)
    name = uuid4().hex
    if get_active_backend()[0].supports_return_generator:
        pool = Parallel(n_jobs=number, return_as="generator_unordered", batch_size=1)
        with _deaf_to_interrupts():
            done = pool(delayed(_run_batch)(name, packed, batch) for batch in batches)
        try:
            for rows in done:
                save(rows)
        finally:
            with warnings.catch_warnings():
                # After an interruption: of tasks that nobody will ask for.
                warnings.simplefilter("ignore")
                done.close()
        return
    # Other backends return lists: a few batches at a time, so that what is done is kept.
    pool = Parallel(n_jobs=number, batch_size=1)
    for some in _chunks(batches, 4 * workers):
        for rows in pool(delayed(_run_batch)(name, packed, batch) for batch in some):
            save(rows)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Inside, processes are started that ignore Ctrl-C: this one ends them, without a traceback from each."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def _chunks(batches: list[list[Item]], size: int) -> Iterator[list[list[Item]]]:
    for first in range(0, len(batches), size):
        yield batches[first : first + size]


def _run_batch(name: str, packed: Bytes, items: list[Item]) -> dict[str, Row]:
    """Simulate points in a process of its own, or in a thread; each unpacks the job once."""
    if getattr(_unpacked, "name", None) != name:
        _unpacked.job, _unpacked.name = pickle.loads(packed.data), name
    job: Job = _unpacked.job
    return {key: job.row(point) for key, point in items}
