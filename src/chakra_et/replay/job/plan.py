"""What all ranks of a replay do: their plans, what is left out, and that they meet.

Shape letters: R ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from chakra_et.errors import ReplayError
from chakra_et.ir import ProcessGroup, Trace, TraceSet
from chakra_et.ir.cut import iterations
from chakra_et.replay.communications.any_source import settle_sources
from chakra_et.replay.communications.find import Communications, SkippedCommunication, find_communications
from chakra_et.replay.communications.groups import used_groups
from chakra_et.replay.communications.rescale import Rescaled, rescale
from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.plan.check import check_plans, refuse_problems
from chakra_et.replay.plan.comms import CommFilter, calls_of, plan_communications, refuse_silence
from chakra_et.replay.plan.filters import filtered
from chakra_et.replay.plan.make import make_plan
from chakra_et.replay.plan.steps import Communicate, Plan
from chakra_et.replay.plan.tables import with_lifetimes
from chakra_et.units import format_list

__all__ = ["Job", "JobOptions", "plan_job"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What of a job is replayed, and by how many ranks.

    Attributes:
        only: ``all``; ``compute``: operators alone; ``comm``: communications alone.
        keep: Which communications are made.
        world_size: Ranks of the replay; 0: as recorded.
        sizes: With another number of ranks: ``keep`` what each rank gives, or ``scale`` it so that the whole is kept.
        check: Check across ranks before anything starts.
    """

    only: Literal["all", "compute", "comm"] = "all"
    keep: CommFilter = field(default_factory=CommFilter)
    world_size: int = 0
    sizes: Literal["keep", "scale"] = "keep"
    check: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """The plans of all ranks.

    Attributes:
        plans: [R] by rank.
        groups: The process groups that are used, in the order in which all ranks make them.
        skipped: Communications that can't be made again, by rank.
        recorded_world_size: Ranks of the recorded job.
        assumed_reduce_ops: Communications whose reduce operation the trace doesn't tell: a sum is taken.
        assumed_waits: Communications of which the trace doesn't tell where they are waited for.
    """

    plans: tuple[Plan, ...]
    groups: tuple[ProcessGroup, ...]
    skipped: Mapping[int, tuple[SkippedCommunication, ...]]
    recorded_world_size: int
    assumed_reduce_ops: int = 0
    assumed_waits: int = 0

    @property
    def world_size(self) -> int:
        """Ranks of the replay."""
        return len(self.plans)


def plan_job(
    traces: TraceSet, options: JobOptions | None = None, *, place: str = "", progress: Progress | None = None
) -> Job:
    """Plan a replay of all ranks, and check that they meet.

    Args:
        traces: The traces; one may stand for the other ranks, see `chakra_et.replay.communications.rescale`.
        options: What is replayed.
        place: Name of the input, for messages.
        progress: Called with a stage, how much of it is done, and how much there is.

    Raises:
        ReplayError: Communications don't meet, none of them can be made, or there is nothing to replay.
    """
    options = options or JobOptions()
    told = progress or (lambda stage, done, total: None)
    recorded = max(traces.world_size, *(1 + max(group.ranks, default=0) for group in _all_groups(traces)), 1)
    if options.only == "compute":
        # Nobody meets anybody: each trace is replayed by itself.
        ranks = traces.ranks[: options.world_size or len(traces)]
        job = Rescaled(
            {rank: find_communications(traces.trace(rank), rank, world_size=recorded) for rank in ranks},
            {rank: rank for rank in ranks},
        )
    else:
        job = _communications(traces, recorded, options)
    found = settle_sources(job.communications)
    _refuse_filters(options.keep, found, place)
    plans = []
    for done, rank in enumerate(found):
        told("plan", done, len(found))
        plans.append(_plan(traces.trace(job.sources[rank]), rank, len(found), found[rank], options))
    if options.only != "compute":
        if options.only == "comm" or any(one.skipped for one in found.values()):
            refuse_silence(found.values(), place)
        if options.check:
            refuse_problems(check_plans(plans), place)
    calls = [call for plan in plans for call in calls_of(plan)]
    if options.only == "comm" and not calls:
        if options.keep.iterations is not None:
            known = sorted({number for trace in traces for number in iterations(trace)})
            there = f"there are {format_list(known)}" if known else "there are no markers of iterations"
            wanted = "{} to {}".format(*options.keep.iterations)
            raise ReplayError(f"{place}: expected iterations with communications, got {wanted}; {there}")
        raise ReplayError(f"{place}: expected communications that the filters let through, got none; {_known(found)}")
    return Job(
        plans=tuple(plans),
        groups=used_groups(calls),
        skipped={rank: one.skipped for rank, one in found.items() if one.skipped and options.only != "compute"},
        recorded_world_size=recorded,
        assumed_reduce_ops=sum(call.reduce_op_assumed for call in calls),
        assumed_waits=sum(call.wait_assumed for call in calls),
    )


def _refuse_filters(keep: CommFilter, found: Mapping[int, Communications], place: str) -> None:
    """Refuse filters that name what isn't there: all that they leave out would be held as delays."""
    calls = [call for one in found.values() for call in one.calls]
    unknown = sorted(set(keep.groups) - {call.group for call in calls})
    if unknown:
        raise ReplayError(f"{place}: expected a process group that communicates, got '{unknown[0]}'; {_known(found)}")
    if (keep.groups or keep.kinds) and not any(map(keep.wants, calls)):
        raise ReplayError(f"{place}: expected communications that the filters let through, got none; {_known(found)}")


def _known(found: Mapping[int, Communications]) -> str:
    calls = [call for one in found.values() for call in one.calls]
    groups, kinds = sorted({call.group for call in calls}), sorted({call.kind.strip("_") for call in calls})
    return f"groups: {format_list(groups)}; types: {format_list(kinds, 20)}"


def _all_groups(traces: TraceSet) -> list[ProcessGroup]:
    return [*traces.process_groups, *(group for trace in traces for group in trace.process_groups)]


def _communications(traces: TraceSet, recorded: int, options: JobOptions) -> Rescaled:
    """Return the communications of all ranks of the replay."""
    found = {
        rank: find_communications(trace, rank, groups=traces.process_groups, world_size=recorded)
        for rank, trace in zip(traces.ranks, traces, strict=True)
    }
    size = options.world_size or recorded
    if size == len(found) == recorded:
        return Rescaled(found, {rank: rank for rank in found})
    groups = {rank: (*traces.process_groups, *traces.trace(rank).process_groups) for rank in found}
    return rescale(found, groups, recorded=recorded, world_size=size, sizes=options.sizes)


def _plan(trace: Trace, rank: int, size: int, found: Communications, options: JobOptions) -> Plan:
    """Plan one rank."""
    if options.only == "comm":
        return plan_communications(trace, rank, communications=found, world_size=size, keep=options.keep)
    wanted = tuple(call for call in found.calls if options.keep.wants(call))
    left_out = tuple(
        SkippedCommunication(call.node, call.row, call.kind, "left out on request")
        for call in found.calls
        if not options.keep.wants(call)
    )
    chosen = Communications(wanted, (*found.skipped, *left_out))
    plan = make_plan(trace, communications=chosen, rank=rank, world_size=size, iterations=_numbers(trace, options))
    if options.only == "compute":
        return filtered(plan, ReplayOptions(only="compute"))
    if trace.rank == rank and size == (trace.metadata.world_size or size):
        return plan
    # Another rank's trace, or another number of ranks: recorded tensors don't fit, the communicator brings its own.
    steps = [replace(step, inputs=(), outputs=()) if isinstance(step, Communicate) else step for step in plan.steps]
    return with_lifetimes(replace(plan, steps=tuple(steps)))


def _numbers(trace: Trace, options: JobOptions) -> tuple[int, ...]:
    wanted = options.keep.iterations
    if wanted is None:
        return ()
    numbers = tuple(number for number in iterations(trace) if wanted[0] <= number <= wanted[1])
    return numbers or wanted[:1]
