"""Distinct collectives as the engine's arrays.

Shape letters: R ranks, P plans, F phases, G groups, M members of groups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chakra_et._jit.astra.state import (
    DIRECT,
    DOUBLE_BINARY_TREE,
    HALVING_DOUBLING,
    NONE,
    RING,
    Records,
    make_records,
)
from chakra_et.ir import CommType
from chakra_et.sim.astra.options import AstraOptions
from chakra_et.sim.astra.phases import Phase
from chakra_et.specs import AstraConfig

__all__ = ["PlanTable", "PlanTables", "bus_ns", "reduce_ns"]

Int = npt.NDArray[np.int64]


def bus_ns(config: AstraConfig, options: AstraOptions) -> int:
    """Return the delay before each message of the whole job's collectives."""
    return int(config.endpoint_delay * options.injection_scale)


def reduce_ns(config: AstraConfig, size: int) -> int:
    """Return the time of a reduction: two reads and a write of local memory, each rounded down to ns."""
    return 3 * int(size / (config.local_mem_bw * 1e9) * 1e9)


@dataclass(frozen=True, slots=True, eq=False)
class PlanTables:
    """Plans as the engine's tables; see `chakra_et._jit.astra.state.FIELDS`.

    Attributes:
        groups: [G].
        members: [M].
        plans: [P].
        phases: [F].
        steps: Steps of halving-doubling phases.
    """

    groups: Records
    members: Records
    plans: Records
    phases: Records
    steps: Records


@dataclass(slots=True, eq=False)
class PlanTable:
    """Plans, gathered one by one.

    Attributes:
        config: Machine and algorithms.
        options: How it is called.
        groups: Ranks of each group, in the order listed; the whole job is group 0.
        plans: Group, number of chunks, and phases of each plan.
    """

    config: AstraConfig
    options: AstraOptions
    groups: list[tuple[int, ...]]
    plans: list[tuple[int, int, list[Phase]]] = field(default_factory=list)

    def add(self, group: int, chunks: int, phases: list[Phase]) -> int:
        """Add a plan and return its number."""
        self.plans.append((group, chunks, phases))
        return len(self.plans) - 1

    @property
    def phases(self) -> list[Phase]:
        """All phases, plan after plan."""
        return [phase for _, _, phases in self.plans for phase in phases]

    def is_uniform(self, plan: int) -> bool:
        """True if members that start such a collective together also end it together."""
        group, _, phases = self.plans[plan]
        return all(self._is_uniform(phase, self.groups[group]) for phase in phases)

    def _is_uniform(self, phase: Phase, members: tuple[int, ...]) -> bool:
        if phase.algorithm == DOUBLE_BINARY_TREE:
            return False
        flat = len(self.config.npus_count) == 1
        if flat and self.config.topology[0] != "Ring":
            return True
        if phase.stride > 0 and not phase.name.startswith("one"):
            return True
        if phase.stride > 0:
            return flat
        return phase.algorithm == RING and flat and _same_hops(members, self.config.npus_count[0])

    @property
    def is_solvable(self) -> bool:
        """True if the ends of all collectives follow from their members' starts alone."""
        if self.options.backend == "aware" or self.options.rendezvous:
            return False
        plans = ((self.groups[group], phases) for group, _, phases in self.plans)
        return all(map(_is_solvable, self.phases)) and all(_meets_all(len(group), phases) for group, phases in plans)

    def tables(self, *, folded: bool, solve: bool) -> PlanTables:
        """Return the plans as the engine's tables.

        Args:
            folded: True if rank 0 stands for all.
            solve: True if collectives are computed without their messages.
        """
        phases, steps = self.phases, self._steps()
        last = np.cumsum([len(phases) for _, _, phases in self.plans], dtype=np.int64)
        first = last - np.array([len(phases) for _, _, phases in self.plans], np.int64)
        before = _offsets([_mailbox(phase) for phase in phases])
        starts = np.repeat(before[first], last - first)
        reduce = [reduce_ns(self.config, phase.message_bytes) if _reduces(phase) else 0 for phase in phases]
        numbers = range(len(self.plans))
        groups = [(0,)] if folded else self.groups
        ends = _offsets([len(group) for group in groups])
        columns = {
            name: [getattr(phase, name) for phase in phases]
            for name in ("members", "stride", "level", "rotation", "sends", "window", "reduced", "cycle", "bus_ns")
        }
        return PlanTables(
            groups=make_records("groups", len(groups), first=ends[:-1], last=ends[1:], head=NONE),
            members=make_records("members", ends[-1], rank=[rank for group in groups for rank in group]),
            plans=make_records(
                "plans", len(self.plans), group=[group for group, _, _ in self.plans],
                chunks=[chunks for _, chunks, _ in self.plans], first=first, last=last,
                mail=before[last] - before[first], solve=solve,
                uniform=[self.is_uniform(plan) for plan in numbers], free=NONE,
            ),
            phases=make_records(
                "phases", len(phases), **columns, kind=[phase.algorithm for phase in phases],
                bytes=[phase.message_bytes for phase in phases], reduce_ns=reduce, mailbox=before[:-1] - starts,
                step=_offsets([len(steps.get(phase, ())) for phase in phases])[:-1],
                gate=[_gate(phase) for phase in phases], tree=self._trees(),
            ),
            steps=_step_table([step for phase in phases for step in steps.get(phase, ())]),
        )  # fmt: skip

    def _trees(self) -> list[int]:
        """Return the counter of alternating trees of each phase: one a collective type and dimension."""
        numbers: dict[tuple[CommType, int], int] = {}
        return [
            numbers.setdefault((_whole(phases), phase.level), len(numbers))
            if phase.algorithm == DOUBLE_BINARY_TREE
            else -1
            for _, _, phases in self.plans
            for phase in phases
        ]

    def _steps(self) -> dict[Phase, list[tuple[int, int, int]]]:
        """Return the steps of halving-doubling phases; a reduction takes as long as the next message's would."""
        found = {}
        for phase in self.phases:
            if phase.algorithm == HALVING_DOUBLING:
                steps = phase.steps()
                sizes = [size for _, size in steps[1:]] + [0]
                found[phase] = [
                    (distance, size, reduce_ns(self.config, after) if number < phase.reduced else 0)
                    for number, ((distance, size), after) in enumerate(zip(steps, sizes, strict=True))
                ]
        return found


def _whole(phases: list[Phase]) -> CommType:
    """Return the type of the collective that phases belong to."""
    types = {phase.type for phase in phases}
    return CommType.ALL_REDUCE if CommType.ALL_REDUCE in types else types.pop()


def _reduces(phase: Phase) -> bool:
    return phase.algorithm == DOUBLE_BINARY_TREE or (phase.algorithm != HALVING_DOUBLING and phase.reduced > 0)


def _gate(phase: Phase) -> int:
    return phase.members - 1 if phase.algorithm == DIRECT and phase.type == CommType.ALL_REDUCE else 0


def _mailbox(phase: Phase) -> int:
    if phase.algorithm in (RING, DIRECT):
        return 1 if phase.algorithm == RING else phase.members - 1
    return 3 if phase.algorithm == DOUBLE_BINARY_TREE else phase.sends


def _is_solvable(phase: Phase) -> bool:
    if phase.algorithm == DIRECT:
        return phase.type != CommType.ALL_REDUCE and phase.window == phase.members - 1
    return phase.algorithm in (RING, HALVING_DOUBLING)


def _meets_all(members: int, phases: list[Phase]) -> bool:
    """True if nobody leaves a collective before all have come: its dimensions join all members."""
    return not phases or math.prod({phase.stride: phase.members for phase in phases}.values()) == members


def _same_hops(members: Sequence[int], count: int) -> bool:
    """True if neighbors in the list are all equally far from one another on a ring of `count` ranks."""
    around = [*members, members[0]]
    ways = [(after - before) % count for before, after in itertools.pairwise(around)]
    return len({min(way, count - way) for way in ways}) == 1


def _step_table(steps: list[tuple[int, int, int]]) -> Records:
    distance, size, reduce = zip(*steps, strict=True) if steps else ((), (), ())
    return make_records("steps", len(steps), distance=distance, bytes=size, reduce_ns=reduce)


def _offsets(counts: Sequence[int]) -> Int:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
