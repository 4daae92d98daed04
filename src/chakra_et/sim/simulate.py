"""`simulate`: how long a job takes, and why.

Shape letters: N nodes, M meetings, P participants, R ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import InputError
from chakra_et.ir import TraceSet
from chakra_et.sim.costs import Costs, calibrated_costs, measured_costs, native_costs, node_times
from chakra_et.sim.deadlock import refuse_deadlock
from chakra_et.sim.expand import expand_traces
from chakra_et.sim.iterations import cut_iterations
from chakra_et.sim.mirror import mirror_ranks
from chakra_et.sim.network.calibrate import Calibration, calibrate
from chakra_et.sim.network.topology import make_network
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.plan import Outcome, run_plan, timed_plan
from chakra_et.sim.plan import Progress as EngineProgress
from chakra_et.sim.resources import choose_model
from chakra_et.sim.result import SimResult
from chakra_et.sim.scene import Cast, Scene
from chakra_et.sim.totals import critical_bounds, group_times, rank_times, split_meetings
from chakra_et.specs.system import System

__all__ = ["Prepared", "prepare", "simulate"]

Int = npt.NDArray[np.int64]
Progress = Callable[[str, int, int], None]


def simulate(
    traces: TraceSet,
    system: System | None = None,
    *,
    options: SimulateOptions | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> SimResult:
    """Simulate a job.

    Args:
        traces: The traces of all ranks: converted, generated, or read from files that others wrote.
        system: The machine; needed unless communications keep their measured times.
        options: How to simulate.
        progress: Called now and then with what is simulated, how much of it is done, and how much there is.
        **changes: Options by name, instead of or on top of `options`.

    Returns:
        The result; it covers all ranks.

    Raises:
        SimulationError: The job can't end: a rank is missing, communications don't meet or don't agree, ranks wait for
            one another.
        InputError: Something is asked for that the system or the traces don't tell.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> traces = []
        >>> for rank in (0, 1):
        ...     builder = TraceBuilder(rank=rank)
        ...     gemm = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1000 * (rank + 1))
        ...     size = {"comm_type": 0, "comm_size": 4096, "duration_ns": 500}
        ...     _ = builder.add("all_reduce", NodeType.COMM_COLL_NODE, data_deps=[gemm], **size)
        ...     traces.append(builder.build())
        >>> result = simulate(TraceSet(tuple(traces)), comm="measured", compute_scale={"gemm": 2.0})
        >>> result.finish_ns, result.groups[0].wait_ns
        (4500, 2000)
    """
    options = replace(options or SimulateOptions(), **changes)
    return prepare(traces, options).run(system, options, progress=progress)


def prepare(traces: TraceSet, options: SimulateOptions | None = None, **changes: Any) -> Prepared:
    """Find all that doesn't depend on the machine, to simulate a job several times.

    Args:
        traces: The traces of all ranks.
        options: Of these, `iteration`, `mirror_missing` and `clock_offsets_ns` are fixed here.
        **changes: Options by name, instead of or on top of `options`.

    Raises:
        SimulationError: A rank is missing, or a process group is unknown.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1000)
        >>> prepared = prepare(TraceSet((builder.build(),)))
        >>> [prepared.run(options=SimulateOptions(compute_scale=scale)).finish_ns for scale in (1, 2, 3)]
        [1000, 2000, 3000]
    """
    options = replace(options or SimulateOptions(), **changes)
    notes: tuple[str, ...] = ()
    if options.mirror_missing:
        traces, notes = mirror_ranks(traces)
    windows, said = cut_iterations(traces, options.iteration)
    scenes = [Scene(window, options.clock_offsets_ns, number) for number, window in windows]
    return Prepared(scenes, (*notes, *said), traces.world_size)


class Prepared:
    """A job that can be simulated on one machine after the other."""

    def __init__(self, scenes: list[Scene], notes: tuple[str, ...], world_size: int) -> None:
        self._scenes, self._notes, self._world_size = scenes, notes, world_size
        self._calibrations: dict[tuple[str, System | None], Calibration] = {}

    def run(
        self,
        system: System | None = None,
        options: SimulateOptions | None = None,
        *,
        progress: Progress | None = None,
    ) -> SimResult:
        """Simulate.

        Args:
            system: The machine.
            options: How to simulate; `iteration`, `mirror_missing` and `clock_offsets_ns` are those of `prepare`.
            progress: As in `simulate`.

        Raises:
            SimulationError: As in `simulate`.
            InputError: As in `simulate`.
        """
        options = options or SimulateOptions()
        if options.comm == "auto":
            options = replace(options, comm="measured" if system is None else "native")
        if options.comm == "native" and system is None:
            raise InputError(f"communications ({options.comm}): expected a system to run on, got none; name one")
        results = []
        for scene in self._scenes:
            label = "simulate" if scene.iteration is None else f"simulate iteration {scene.iteration}"
            told = partial(progress, label) if progress is not None else None
            results.append(self._simulate(scene, system, options, told))
        if len(results) == 1:
            return replace(results[0], notes=(*self._notes, *results[0].notes))
        middle = sorted(results, key=lambda one: one.finish_ns)[(len(results) - 1) // 2]
        notes = dict.fromkeys((*self._notes, *(note for one in results for note in one.notes)))
        return replace(middle, iterations=tuple(results), notes=tuple(notes))

    @property
    def world_size(self) -> int:
        """Number of ranks of the job."""
        return self._world_size

    def _simulate(
        self, scene: Scene, system: System | None, options: SimulateOptions, progress: EngineProgress | None
    ) -> SimResult:
        """Simulate one scene."""
        cast, costs = self._priced(scene, system, options)
        usual = choose_model(cast.workload)
        model = usual if options.resources == "auto" else options.resources
        plan = cast.plan(costs.exchange, model, channels=options.channels, slowdown=options.overlap_slowdown)
        duration, notes = node_times(cast, costs, system, options)
        late = np.array([options.rank_delay_ns.get(rank, 0) for rank in cast.workload.ranks.tolist()], np.int64)
        begin = cast.begin + late
        plan = timed_plan(plan, cast.workload, duration, begin, costs.flows, costs.of_meeting)
        outcome = run_plan(plan, progress)
        if (outcome.end_ns < 0).any():
            refuse_deadlock(cast.workload, cast.meetings, costs.exchange, outcome)
        return _result(scene, cast, costs, begin, outcome, notes)

    def _priced(self, scene: Scene, system: System | None, options: SimulateOptions) -> tuple[Cast, Costs]:
        """Return the ranks to simulate, and what their communications cost."""
        fold = options.fold == "auto" and scene.may_fold
        if options.comm == "measured":
            cast = scene.cast(None, options.rank_delay_ns, fold=fold)
            return cast, measured_costs(cast, options)
        if options.comm == "calibrated":
            cast = scene.cast(None, {}, fold=False)
            base = options.measured_system or system
            return cast, calibrated_costs(cast, self._calibration(base, options), system, options)
        network = make_network(system, self._world_size)
        cast = scene.cast(network.grid, options.rank_delay_ns, fold=fold)
        costs = native_costs(cast, network, options)
        if costs is None:
            cast = scene.cast(None, {}, fold=False)
            costs = native_costs(cast, network, options)
        return cast, costs  # type: ignore[return-value]  # ranks that stand for themselves always load links alike

    def _calibration(self, system: System | None, options: SimulateOptions) -> Calibration:
        """Fit the network model to the transfers of all iterations."""
        key = (str(options.algorithm), system)
        if key not in self._calibrations:
            tables = [scene.cast(None, {}, fold=False).measured_table for scene in self._scenes]
            self._calibrations[key] = calibrate(
                pl.concat(tables), system, self._world_size, algorithm=options.algorithm
            )
        return self._calibrations[key]


def _result(scene: Scene, cast: Cast, costs: Costs, begin: Int, outcome: Outcome, notes: tuple[str, ...]) -> SimResult:
    meetings, owners = cast.meetings, cast.workload.owners
    transfer, wait = split_meetings(meetings, costs.exchange, outcome)
    split = (meetings.nodes, wait, outcome.end_ns[meetings.nodes] - outcome.start_ns[meetings.nodes] - wait)
    return SimResult(
        source=partial(expand_traces, scene.traces, cast.workload, cast.fold, outcome.start_ns, outcome.end_ns, split),
        ranks=rank_times(cast, begin, outcome),
        groups=group_times(meetings, transfer, wait, scene.peers, cast.fold, owners[meetings.nodes]),
        folded_classes=len(cast.fold.leaders),
        notes=(*costs.notes, *notes),
        iteration=scene.iteration,
        bounds=critical_bounds(cast.workload, outcome, meetings, costs),
    )
