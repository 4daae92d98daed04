"""`SimResult`: what a simulation says, as a trace set with simulated times and as totals.

Shape letters: N nodes of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import TraceSet
from chakra_et.sim.workload import Workload

__all__ = ["GroupTimes", "RankTimes", "SimResult", "timed_traces"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Where one rank's time goes.

    Attributes:
        rank: Global rank.
        finish_ns: End of its last node.
        compute_ns: Time in which it computes on the device (on a rank without one: on the host).
        communication_ns: Time in which at least one of its communications runs.
        exposed_communication_ns: Communication without compute beside it (ASTRA-sim: any time without compute).
        start_ns: When it begins; 0 for the first rank.
        measured_finish_ns: End of its last node as it was recorded, on the same clock; None where nothing was.
    """

    rank: int
    finish_ns: int
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    start_ns: int = 0
    measured_finish_ns: int | None = None

    def as_dict(self) -> dict[str, int | None]:
        """Return the times as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The communications of one process group and type, over all simulated ranks.

    Attributes:
        pg_name: Process group; ``SRC->DST`` ranks of sends.
        description: What the framework calls it.
        comm_type: Type, in lower case: ``all_reduce``, ``send``, ...
        size: Ranks in the group.
        count: Number of communications (a collective counts once, not once a rank).
        bytes: `comm_size`, summed over them.
        transfer_ns: Time from the last arrival to the end, summed over them.
        wait_ns: Time that ranks spent waiting for the last arrival, summed over them and their ranks.
    """

    pg_name: str
    description: str
    comm_type: str
    size: int
    count: int
    bytes: int
    transfer_ns: int
    wait_ns: int

    def as_dict(self) -> dict[str, Any]:
        """Return the times as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, eq=False)
class SimResult:
    """A simulated job. It covers all ranks, or there is none.

    Where several iterations were simulated, each on its own, this is the one whose time is the median of theirs.

    Attributes:
        source: The simulated traces, or what makes them when they are first asked for.
        ranks: Times of each rank, in rank order.
        groups: Times of each process group and type.
        folded_classes: Number of ranks that were simulated, of which the others are copies.
        notes: What limits the result: guesses, ranges left, communications kept as measured.
        iteration: Which iteration this is; None for everything that the traces hold.
        iterations: Every simulated iteration, in order; empty where there is only this one.
        bounds: What the time of the last rank to end goes to, along the chain of nodes that it waited for: ns by
            resource, the largest first.
    """

    source: TraceSet | Callable[[], TraceSet]
    ranks: tuple[RankTimes, ...]
    groups: tuple[GroupTimes, ...]
    folded_classes: int
    notes: tuple[str, ...] = ()
    iteration: int | None = None
    iterations: tuple[SimResult, ...] = ()
    bounds: dict[str, int] = field(default_factory=dict)

    @cached_property
    def traces(self) -> TraceSet:
        """The traces with simulated `start_ns` and `duration_ns`; everything else as it was."""
        return self.source() if callable(self.source) else self.source

    @property
    def finish_ns(self) -> int:
        """End of the last rank."""
        return max(rank.finish_ns for rank in self.ranks)

    @property
    def measured_ns(self) -> int | None:
        """Recorded time of what was simulated, from the first rank's begin to the last one's end; None if unknown."""
        times = [rank.measured_finish_ns for rank in self.ranks if rank.measured_finish_ns is not None]
        return max(times) if len(times) == len(self.ranks) else None

    @property
    def mean_ns(self) -> float:
        """Mean of the iterations' times."""
        times = [one.finish_ns for one in self.iterations or (self,)]
        return sum(times) / len(times)

    @property
    def spread_ns(self) -> int:
        """Difference of the longest and the shortest iteration."""
        times = [one.finish_ns for one in self.iterations or (self,)]
        return max(times) - min(times)

    def as_dict(self) -> dict[str, Any]:
        """Return the totals as plain data."""
        several = {
            "iterations": [
                {"iteration": one.iteration, "finish_ns": one.finish_ns, "measured_ns": one.measured_ns}
                for one in self.iterations
            ],
            "mean_ns": self.mean_ns,
            "spread_ns": self.spread_ns,
        }
        return {
            "finish_ns": self.finish_ns,
            "measured_ns": self.measured_ns,
            "ranks": [rank.as_dict() for rank in self.ranks],
            "groups": [group.as_dict() for group in self.groups],
            "folded_classes": self.folded_classes,
            "notes": list(self.notes),
            **({"iteration": self.iteration} if self.iteration is not None else {}),
            **(several if self.iterations else {}),
            **({"bounds": self.bounds} if self.bounds else {}),
        }


def timed_traces(workload: Workload, start_ns: Int, end_ns: Int) -> TraceSet:
    """Return the workload's traces with simulated times.

    Args:
        workload: What was simulated.
        start_ns: int64 [N].
        end_ns: int64 [N].
    """
    traces = []
    for index, trace in enumerate(workload.traces):
        rows = slice(workload.offsets[index], workload.offsets[index + 1])
        start: pl.Series = pl.Series("start_ns", start_ns[rows])
        duration: pl.Series = pl.Series("duration_ns", end_ns[rows] - start_ns[rows])
        traces.append(trace.with_columns([start, duration]))
    return replace(workload.traces, traces=tuple(traces))
