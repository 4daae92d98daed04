"""How close a replay came: recorded against replayed, per iteration, operator and communication, and what was left out.

Shape letters: P passes, S steps, I iterations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chakra_et.replay.plan.steps import Communicate, Delay, OpCall, Step, View
from chakra_et.replay.run import RankResult
from chakra_et.units import format_ns, format_number_of

__all__ = ["Accuracy", "CommunicationTime", "IterationTime", "LeftOut", "OperatorTime", "accuracy"]

Int = npt.NDArray[np.int64]
_COMMUNICATIONS = ("c10d::", "_c10d_functional::", "c10d_functional::", "record_param_comms", "nccl:", "gloo:", "nccl")


@dataclass(frozen=True, slots=True)
class IterationTime:
    """One iteration.

    Attributes:
        number: Its number; None: the trace has no markers.
        recorded_ns: What the replayed part of it took when it was recorded.
        replayed_ns: What it took, on average.
        fastest_ns, slowest_ns: Of all passes.
        error: Replayed less recorded, as a share of recorded; None without recorded times.
    """

    number: int | None
    recorded_ns: int
    replayed_ns: int
    fastest_ns: int
    slowest_ns: int
    error: float | None


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """All calls of one operator.

    Attributes:
        name: Its name.
        count: Calls in a pass.
        recorded_ns: Their recorded time, in all.
        replayed_ns: Their time in a pass, on average.
        p50_ns, p95_ns, p99_ns: Of the calls of all passes.
    """

    name: str
    count: int
    recorded_ns: int
    replayed_ns: int
    p50_ns: int
    p95_ns: int
    p99_ns: int


@dataclass(frozen=True, slots=True)
class CommunicationTime:
    """One communication.

    Attributes:
        number: Its place among those of the rank's trace.
        kind: Kind, as c10d's operator is called.
        group: Process group.
        recorded_ns: Recorded duration.
        replayed_ns: Duration, on average.
        fastest_ns, slowest_ns: Of all passes.
    """

    number: int
    kind: str
    group: str
    recorded_ns: int
    replayed_ns: int
    fastest_ns: int
    slowest_ns: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Calls that were not made as recorded.

    Attributes:
        name: Name of the operator or kernel.
        reason: Why it was not called, or what it returned instead.
        count: How many in a pass.
        recorded_ns: Their recorded time, which was held in their place.
        nodes: Ids of the first of them.
    """

    name: str
    reason: str
    count: int
    recorded_ns: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How close the replay of one rank came.

    Attributes:
        rank: Global rank.
        recorded_ns: Recorded time of an iteration, on average.
        replayed_ns: Replayed time of an iteration, on average.
        error: Replayed less recorded, as a share of recorded; None without recorded times.
        job_step_ns: What a step of the job took just before it was recorded, where the capture tells: a recorded step
            is slowed down by its profilers.
        host_time: What paced the calls, as in `ReplayOptions`: with ``measured``, the step can't be shorter than
            recorded, and the time of its operators tells what it would take without the recorded host.
        operators_recorded_ns: Recorded time of the calls of operators in a pass.
        operators_replayed_ns: Their time in a pass, on average.
        operators_called: Calls of operators that were made, in a pass.
        operators: Calls of operators in the trace.
        coverage: Share of the operators that was called.
        coverage_of_time: The same, weighted with recorded time; None without recorded times.
        coverage_of_device_time: The same, weighted with the time of kernels; None without kernels.
        iterations: Each iteration.
        by_operator: Each operator, longest recorded first.
        communications: Each communication.
        skipped: What was not called: its recorded time was held.
        replaced: What returned something else than recorded: those after it got a tensor as recorded.
    """

    rank: int
    recorded_ns: int
    replayed_ns: int
    error: float | None
    job_step_ns: int | None
    host_time: str
    operators_recorded_ns: int
    operators_replayed_ns: int
    operators_called: int
    operators: int
    coverage: float
    coverage_of_time: float | None
    coverage_of_device_time: float | None
    iterations: tuple[IterationTime, ...]
    by_operator: tuple[OperatorTime, ...]
    communications: tuple[CommunicationTime, ...]
    skipped: tuple[LeftOut, ...]
    replaced: tuple[LeftOut, ...]

    @property
    def headline(self) -> str:
        """One sentence: the step, the operators, what was called."""
        step = f"a step takes {format_ns(self.replayed_ns)}"
        if self.error is not None:
            step += f" where {format_ns(self.recorded_ns)} were recorded ({self.error:+.1%})"
        if self.job_step_ns:
            step += f", and {format_ns(self.job_step_ns)} in the job before it was recorded"
            step += f" ({self.replayed_ns / self.job_step_ns - 1:+.1%})"
        if self.host_time == "measured":
            step += ", its calls paced as recorded"
        parts = [step]
        if self.operators:
            called = f"{self.operators_called:,} of {format_number_of(self.operators, 'operator')} called"
            if self.coverage_of_time is not None:
                covered = self.operators_recorded_ns
                called += f" ({self.coverage_of_time:.1%} of their recorded time)"
                called += f", in {format_ns(self.operators_replayed_ns)} instead of {format_ns(covered)}"
            parts.append(called)
        return f"rank {self.rank}: {'; '.join(parts)}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"headline": self.headline}


def accuracy(result: RankResult) -> Accuracy:
    """Compare what one rank measured with what its trace recorded.

    Args:
        result: What it did and measured.
    """
    steps = result.plan.steps
    took = result.ends - result.starts
    called = [place for place, step in enumerate(steps) if isinstance(step, OpCall) and place not in result.skipped]
    held = [place for place, step in enumerate(steps) if _is_left_out(step) or place in result.skipped]
    own = [place for place in held if not _name(steps[place]).startswith(_COMMUNICATIONS)]
    iterations = _iterations(result)
    recorded = sum(one.recorded_ns for one in iterations) // max(len(iterations), 1)
    replayed = sum(one.replayed_ns for one in iterations) // max(len(iterations), 1)
    timed = result.plan.has_times
    return Accuracy(
        rank=result.rank,
        recorded_ns=recorded,
        replayed_ns=replayed,
        error=_error(recorded, replayed) if timed else None,
        job_step_ns=result.plan.job_step_ns,
        host_time=result.host_time,
        operators_recorded_ns=sum(_recorded(steps[place]) for place in called),
        operators_replayed_ns=int(took[:, called].sum(axis=1).mean()) if called and len(took) else 0,
        operators_called=len(called),
        operators=len(called) + len(own),
        coverage=len(called) / (len(called) + len(own)) if called or own else 1.0,
        coverage_of_time=_share(steps, called, own, "duration_ns"),
        coverage_of_device_time=_share(steps, called, own, "device_ns"),
        iterations=iterations,
        by_operator=_by_operator(steps, called, took),
        communications=_communications(result),
        skipped=_left_out(steps, {place: result.skipped.get(place) or _reason(steps[place]) for place in held}),
        replaced=_left_out(steps, result.replaced),
    )


def _is_left_out(step: Step) -> bool:
    return isinstance(step, Delay) and bool(step.reason)


def _name(step: Step) -> str:
    return step.name if isinstance(step, OpCall | Delay) else ""


def _reason(step: Step) -> str:
    return step.reason if isinstance(step, Delay) else ""


def _recorded(step: Step) -> int:
    return 0 if isinstance(step, View) else step.duration_ns


def _error(recorded: int, replayed: int) -> float | None:
    return (replayed - recorded) / recorded if recorded else None


def _iterations(result: RankResult) -> tuple[IterationTime, ...]:
    """Compare iterations: recorded is what the steps that are in the plan took, with the gaps that it keeps."""
    spans = result.iterations[:, :, 1] - result.iterations[:, :, 0]
    found = []
    for place, one in enumerate(result.plan.iterations):
        inside = result.plan.steps[one.begin : one.end]
        recorded = one.tail_ns + sum(step.gap_ns + step.duration_ns for step in inside if not isinstance(step, View))
        own = spans[:, place]
        mean = int(own.mean()) if len(own) else 0
        error = _error(recorded, mean) if result.plan.has_times else None
        found.append(IterationTime(one.number, recorded, mean, int(own.min()), int(own.max()), error))
    return tuple(found)


def _by_operator(steps: tuple[Step, ...], called: list[int], took: Int) -> tuple[OperatorTime, ...]:
    places: dict[str, list[int]] = {}
    for place in called:
        places.setdefault(_name(steps[place]), []).append(place)
    rows = []
    for name, own in places.items():
        each = took[:, own]
        p50, p95, p99 = (int(value) for value in np.percentile(each, (50, 95, 99)))
        recorded = sum(_recorded(steps[place]) for place in own)
        rows.append(OperatorTime(name, len(own), recorded, int(each.sum(axis=1).mean()), p50, p95, p99))
    return tuple(sorted(rows, key=lambda row: (-row.recorded_ns, -row.replayed_ns, row.name)))


def _communications(result: RankResult) -> tuple[CommunicationTime, ...]:
    measured: dict[int, list[int]] = {}
    for told in result.communications:
        for number, start, end in told.tolist():
            measured.setdefault(number, []).append(end - start)
    rows = []
    for step in result.plan.steps:
        own = measured.get(step.call.number) if isinstance(step, Communicate) else None
        if own and isinstance(step, Communicate):
            call = step.call
            mean = sum(own) // len(own)
            rows.append(
                CommunicationTime(call.number, call.kind, call.group, call.duration_ns, mean, min(own), max(own))
            )
    return tuple(rows)


def _share(steps: tuple[Step, ...], called: list[int], own: list[int], column: str) -> float | None:
    """Return the share of what was called in a sum over all operators; None where the sum is 0."""
    made, not_made = (sum(getattr(steps[place], column) for place in part) for part in (called, own))
    return made / (made + not_made) if made + not_made else None


def _left_out(steps: tuple[Step, ...], reasons: dict[int, str]) -> tuple[LeftOut, ...]:
    places: dict[tuple[str, str], list[int]] = {}
    for place, reason in reasons.items():
        places.setdefault((_name(steps[place]), reason), []).append(place)
    rows = [
        LeftOut(name, reason, len(own), sum(_recorded(steps[place]) for place in own), tuple(_nodes(steps, own[:5])))
        for (name, reason), own in places.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.recorded_ns, -row.count, row.name)))


def _nodes(steps: tuple[Step, ...], places: Iterable[int]) -> Iterable[int]:
    for place in places:
        step = steps[place]
        if isinstance(step, OpCall | Delay):
            yield step.node
