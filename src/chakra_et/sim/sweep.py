"""`sweep`: how long a job takes on many machines, or under many assumptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chakra_et.errors import InputError
from chakra_et.ir import TraceSet
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.simulate import prepare
from chakra_et.sim.sweep_log import SweepLog, open_log, point_key, trace_digest
from chakra_et.sim.sweep_points import Base, Point, grid_points, resolve_points
from chakra_et.sim.sweep_result import SweepResult, make_result, write_tables
from chakra_et.sim.sweep_run import Job, in_layout_order, run_points
from chakra_et.specs import System

__all__ = ["sweep"]

Progress = Callable[[str, int, int], None]


def sweep(
    traces: TraceSet,
    system: System | None = None,
    *,
    grid: Mapping[str, str | Iterable[Any]] | None = None,
    points: Iterable[Mapping[str, Any]] = (),
    options: SimulateOptions | None = None,
    overrides: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    jobs: int = 0,
    force: bool = False,
    progress: Progress | None = None,
    **changes: Any,
) -> SweepResult:
    """Simulate a job at many points.

    A point gives values to keys: of the system (``scale_up.bandwidth``, as in `chakra_et.specs.with_overrides`), of the
    options (``comm_scale``, ``compute_scale.gemm``, ``rank_delay.3``), or ``system``. All points are checked before the
    first runs. One that then can't be simulated (a job larger than the system, say) has a row that says why.

    Args:
        traces: The traces of all ranks.
        system: The machine that points change; needed unless communications keep their measured times, or points name
            systems.
        grid: Values by key, also as text (``"4,8,16"``, ``"150..3600x2"``); all combinations are points.
        points: More points, each with values by key.
        options: How to simulate, where points say nothing else.
        overrides: Changes of each system, where points say nothing else.
        out: Folder for ``sweep.parquet`` and ``sweep.csv``; the same call again goes on where one was interrupted.
        jobs: Processes; 0 for one a core, where that is worth it. Inside ``joblib.parallel_config``, its backend runs
            the points: a Dask or Ray cluster, say.
        force: True to begin anew, and to overwrite another sweep in the folder.
        progress: Called now and then with what is done, the number of points that are, and of all.
        **changes: Options by name, instead of or on top of `options`.

    Raises:
        InputError: A key or a value is wrong; the text names it.
        SimulationError: The traces can't be simulated at all: a rank is missing, a process group unknown.
        OutputError: The folder holds another sweep, or can't be written to.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1000)
        >>> result = sweep(TraceSet((builder.build(),)), grid={"compute_scale.gemm": [1, 0.5]})
        >>> result.table.select("compute_scale.gemm", "finish_ns", "speedup", "bound_by").rows()
        [(1.0, 1000, 1.0, 'compute'), (0.5, 500, 2.0, 'compute')]
    """
    base = _base(system, replace(options or SimulateOptions(), **changes), overrides or {})
    folder = Path(out) if out is not None else None
    return _sweep(traces, base, [*grid_points(grid or {}), *points], folder, jobs, force, progress)


def _sweep(
    traces: TraceSet,
    start: Base,
    wanted: Sequence[Mapping[str, Any]],
    folder: Path | None,
    jobs: int,
    force: bool,
    progress: Progress | None,
) -> SweepResult:
    begin = time.monotonic()
    parameters, base, points = resolve_points(wanted, start)
    if any(point.options.comm == "calibrated" and point.options.measured_system is None for point in points):
        raise InputError(
            "calibrated: expected the system that was measured, got none; name it, or a system of the base"
        )
    digest = trace_digest(traces)
    keys = [point_key(digest, point) for point in (base, *points)]
    keyed = dict(zip(keys, (base, *points), strict=True))
    with open_log(folder, digest, list(keyed), force=force) as log:
        reused = sum(key in log.rows for key in keys[1:])
        todo = {key: point for key, point in keyed.items() if key not in log.rows}
        _simulate(traces, start.options, todo, log, jobs, progress)
        rows = [(point, log.rows[key]) for key, point in zip(keys, (base, *points), strict=True)]
        seconds = time.monotonic() - begin
        result = make_result(parameters, rows[0], rows[1:], reused=reused, seconds=seconds)
        if folder is not None:
            write_tables(result, folder)
    return result


def _base(system: System | None, options: SimulateOptions, overrides: Mapping[str, str]) -> Base:
    """Return the base; what was measured was measured on its system, not on the one of a point."""
    base = Base(system, options, overrides)
    if options.measured_system is not None:
        return base
    return replace(base, options=replace(options, measured_system=base.machine))


def _simulate(
    traces: TraceSet,
    options: SimulateOptions,
    todo: Mapping[str, Point],
    log: SweepLog,
    jobs: int,
    progress: Progress | None,
) -> None:
    """Simulate the points that aren't done, the base before all others."""
    if not todo:
        return
    total = len(todo) + len(log.rows)

    def save(rows: Mapping[str, dict[str, Any]]) -> None:
        log.add(rows)
        if progress is not None:
            progress("sweep", len(log.rows), total)

    if progress is not None:
        progress("sweep", len(log.rows), total)
    prepared = prepare(traces, options)
    ranks = tuple(range(traces.world_size)) if options.mirror_missing else traces.ranks
    first, *others = todo.items()
    items = [first, *in_layout_order(others, prepared.world_size)]
    run_points(Job(prepared, ranks), items, jobs, save)
