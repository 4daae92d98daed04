"""What a replay would do, and what it did: plain data for tables and JSON.

Shape letters: R ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chakra_et.ir import ProcessGroup
from chakra_et.replay.bandwidth import CommSpeed, comm_speeds, size_bytes
from chakra_et.replay.comparison import Accuracy, accuracy
from chakra_et.replay.job.plan import Job
from chakra_et.replay.job.rank import RankReport
from chakra_et.replay.plan.comms import calls_of
from chakra_et.replay.plan.steps import Communicate, Delay, OpCall, Plan, Wait
from chakra_et.replay.plan.tables import peak_bytes

__all__ = ["JobSummary", "NotReplayed", "RankSummary", "ReplaySummary", "summarize_job", "summarize_replay"]


@dataclass(frozen=True, slots=True)
class RankSummary:
    """What one rank would do.

    Attributes:
        rank: Global rank.
        iterations: Recorded iterations.
        operators: Calls of operators.
        distinct_operators: Different operators among them.
        communications: Communications.
        communication_bytes: What it gives in them.
        tensors: Tensors, those of communications included.
        peak_bytes: The most that tensors hold at once.
        delays: Calls that are held as a delay, because they can't be made again.
    """

    rank: int
    iterations: int
    operators: int
    distinct_operators: int
    communications: int
    communication_bytes: int
    tensors: int
    peak_bytes: int
    delays: int


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """Calls that can't be made again.

    Attributes:
        name: Operator or communication.
        reason: Why.
        count: How many, of all ranks.
        rank: The first rank that has one.
        node: Its id there.
    """

    name: str
    reason: str
    count: int
    rank: int
    node: int


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What a replay would do.

    Attributes:
        recorded_world_size: Ranks of the recorded job.
        ranks: [R] each rank.
        groups: Process groups, and how many communications of how many bytes (by their first rank) each has.
        not_replayed: What can't be made again.
        assumed_reduce_ops: Communications whose reduce operation the trace doesn't tell: a sum is taken.
        assumed_waits: Communications of which the trace doesn't tell where they are waited for.
    """

    recorded_world_size: int
    ranks: tuple[RankSummary, ...]
    groups: tuple[tuple[ProcessGroup, int, int], ...]
    not_replayed: tuple[NotReplayed, ...]
    assumed_reduce_ops: int
    assumed_waits: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "recorded_world_size": self.recorded_world_size,
            "ranks": [asdict(rank) for rank in self.ranks],
            "groups": [
                {"pg_name": group.name, "ranks": list(group.ranks), "count": count, "bytes": size}
                for group, count, size in self.groups
            ],
            "not_replayed": [asdict(one) for one in self.not_replayed],
            "assumed_reduce_ops": self.assumed_reduce_ops,
            "assumed_waits": self.assumed_waits,
        }


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """What a replay measured.

    Attributes:
        accuracies: [R] each rank against its recording.
        speeds: Latency and bandwidth of communications.
        checked: Results that were checked.
        unchecked: Results that could not be checked.
        wrong: What was wrong with results.
        notes: What was done in another way than recorded.
    """

    accuracies: tuple[Accuracy, ...]
    speeds: tuple[CommSpeed, ...]
    checked: int
    unchecked: int
    wrong: tuple[str, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "ranks": [one.as_dict() for one in self.accuracies],
            "communications": [speed.as_dict() for speed in self.speeds],
            "checked": self.checked,
            "unchecked": self.unchecked,
            "wrong": list(self.wrong),
            "notes": list(self.notes),
        }


def summarize_job(job: Job) -> JobSummary:
    """Say what a replay would do."""
    counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
    sizes: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for plan in job.plans:
        for call in calls_of(plan):
            # Each communication once: by the first rank of a group, by the sender of a message.
            if call.kind == "send" or (call.is_collective and plan.rank == call.ranks[0]):
                counts[call.group, call.ranks] += 1
                sizes[call.group, call.ranks] += size_bytes(call)
    keys = [(group.name, group.ranks) for group in job.groups]
    return JobSummary(
        recorded_world_size=job.recorded_world_size,
        ranks=tuple(map(_rank, job.plans)),
        groups=tuple((group, counts[key], sizes[key]) for group, key in zip(job.groups, keys, strict=True)),
        not_replayed=_not_replayed(job),
        assumed_reduce_ops=job.assumed_reduce_ops,
        assumed_waits=job.assumed_waits,
    )


def summarize_replay(job: Job, reports: Sequence[RankReport]) -> ReplaySummary:
    """Say what a replay measured."""
    notes = {note for report in reports for note in report.notes}
    if job.assumed_reduce_ops:
        notes.add(f"{job.assumed_reduce_ops:,} communications don't tell what they reduce with: a sum was taken")
    if job.assumed_waits:
        notes.add(f"of {job.assumed_waits:,} communications the trace doesn't tell where they are waited for: before "
                  "the first use of their tensors, else at the end of the iteration")  # fmt: skip
    left_out = sum(map(len, job.skipped.values()))
    if left_out:
        first = next(iter(job.skipped.values()))[0]
        notes.add(f"{left_out:,} communications were not made; the first: node {first.node} ('{first.name}'): "
                  f"{first.reason}")  # fmt: skip
    done = [report.result for report in reports if len(report.result.iterations)]
    return ReplaySummary(
        accuracies=tuple(accuracy(result) for result in done),
        speeds=comm_speeds(done, one_clock=len({report.machine for report in reports if report.machine}) <= 1),
        checked=sum(report.checked for report in reports),
        unchecked=sum(report.unchecked for report in reports),
        wrong=tuple(text for report in reports for text in report.wrong),
        notes=tuple(sorted(notes)),
    )


def _rank(plan: Plan) -> RankSummary:
    operators = [step for step in plan.steps if isinstance(step, OpCall)]
    calls = calls_of(plan)
    own = [step.call for step in plan.steps if isinstance(step, Communicate) and not (step.inputs or step.outputs)]
    return RankSummary(
        rank=plan.rank,
        iterations=len(plan.iterations),
        operators=len(operators),
        distinct_operators=len({step.schema or step.name for step in operators}),
        communications=len(calls),
        communication_bytes=sum(call.in_elements * call.item_bytes for call in calls),
        tensors=len(plan.tensors) + sum(len(call.inputs) + len(call.outputs) for call in own),
        peak_bytes=peak_bytes(plan) + _own_bytes(plan),
        delays=sum(isinstance(step, Delay) and bool(step.reason) for step in plan.steps),
    )


def _own_bytes(plan: Plan) -> int:
    """Return the most that the communicator's own tensors hold at once."""
    held: dict[int, int] = {}
    peak = 0
    for step in plan.steps:
        if isinstance(step, Communicate) and not (step.inputs or step.outputs):
            call = step.call
            held[call.number] = (call.in_elements + call.out_elements) * call.item_bytes
            peak = max(peak, sum(held.values()))
        elif isinstance(step, Wait):
            held.pop(step.number, None)
    return peak


def _not_replayed(job: Job) -> tuple[NotReplayed, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], tuple[int, int]] = {}
    for plan in job.plans:
        held = [(step.name, step.reason, step.node) for step in plan.steps if isinstance(step, Delay) and step.reason]
        known = {node for _, _, node in held}
        skipped = [(one.name, one.reason, one.node) for one in job.skipped.get(plan.rank, ()) if one.node not in known]
        for name, reason, node in (*held, *skipped):
            counts[name, reason] += 1
            first.setdefault((name, reason), (plan.rank, node))
    return tuple(NotReplayed(*key, count, *first[key]) for key, count in counts.most_common())
