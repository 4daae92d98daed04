"""The plan of a replay that makes communications alone: calls and waits in recorded order, and the time between them.

The time from the end of one call or wait to the begin of the next, on the recording's clock, is held as a delay: it was
the host's work, and the device's as far as the host waited for it.

Shape letters: C communications, S steps, I iterations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chakra_et.errors import ReplayError
from chakra_et.ir import ProcessGroup, Trace
from chakra_et.ir.arrays import list_values
from chakra_et.ir.cut import iterations
from chakra_et.ir.graph import positions
from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.find import Communications, SkippedCommunication, find_communications
from chakra_et.replay.communications.waits import WAIT
from chakra_et.replay.plan.steps import Communicate, Delay, Iteration, Plan, Step, Wait

__all__ = ["CommFilter", "calls_of", "plan_communications", "refuse_silence"]

_LAST = 1 << 62


@dataclass(frozen=True, slots=True)
class CommFilter:
    """Which communications are made.

    Attributes:
        groups: Names of process groups; empty: all.
        kinds: Kinds, as c10d's operators are called with or without underscores (``allreduce``); empty: all.
        iterations: First and last iteration by number, both included; None: all.
    """

    groups: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    iterations: tuple[int, int] | None = None

    def wants(self, call: CommCall) -> bool:
        """Return whether a call is to be made, whenever it was."""
        plain = call.kind.strip("_")
        kinds = {kind.strip("_") for kind in self.kinds}
        return (not self.groups or call.group in self.groups) and (not kinds or plain in kinds)


@dataclass(frozen=True, slots=True)
class _Event:
    """Something of a call that takes place on its rank: (row, order inside it, what, begin and end on the clock)."""

    row: int
    order: int
    call: CommCall
    waits: bool
    begin_ns: int
    end_ns: int


def plan_communications(
    trace: Trace,
    rank: int,
    *,
    communications: Communications | None = None,
    groups: Iterable[ProcessGroup] = (),
    world_size: int = 0,
    keep: CommFilter | None = None,
) -> Plan:
    """Plan the communications of one rank.

    Args:
        trace: Its trace.
        rank: Its global rank.
        communications: Its communications, where the caller changed them; else as recorded.
        groups: Process groups of the job.
        world_size: Ranks of the job; 0: as the trace says.
        keep: What is made; None: all.
    """
    found = communications or find_communications(trace, rank, groups=groups, world_size=world_size)
    keep = keep or CommFilter()
    calls = tuple(call for call in found.calls if keep.wants(call))
    events = sorted(_events(trace, calls), key=lambda event: (event.row, event.order))
    steps: list[Step] = []
    stretches: list[Iteration] = []
    for number, window, part in _stretches(events, iterations(trace), keep.iterations):
        more, begin, end = _steps(part, window)
        stretches.append(Iteration(number, len(steps), len(steps) + len(more), begin, end - begin))
        steps += more
    used = {(call.group, call.ranks) for call in calls}
    return Plan(
        rank=rank,
        world_size=world_size or trace.metadata.world_size or 1 + max((max(ranks) for _, ranks in used), default=rank),
        steps=tuple(steps),
        iterations=tuple(stretches),
        tensors=(),
        storages=(),
        groups=tuple(ProcessGroup(name, ranks, len(ranks)) for name, ranks in sorted(used)),
        has_times=any(event.begin_ns for event in events),
    )


def refuse_silence(found: Iterable[Communications], place: str) -> None:
    """Refuse traces of which no communication can be made again: a replay that does nothing is no success.

    Raises:
        ReplayError: There are communications, and none can be replayed; or there are none at all.
    """
    made = 0
    skipped: list[SkippedCommunication] = []
    for one in found:
        made += len(one.calls)
        skipped += one.skipped
    if made:
        return
    if not skipped:
        raise ReplayError(f"{place}: expected communications to replay, got none")
    first = skipped[0]
    raise ReplayError(
        f"{place}: node {first.node} ('{first.name}'): expected communications that can be replayed, got none of "
        f"{len(skipped):,}: {first.reason}; convert from a capture that names process groups and sizes"
    )


def calls_of(plan: Plan) -> list[CommCall]:
    """Return the communications of a plan, in order."""
    return [step.call for step in plan.steps if isinstance(step, Communicate)]


def _events(trace: Trace, calls: Sequence[CommCall]) -> Iterator[_Event]:
    """Return the calls and the waits in the order of the trace."""
    waits = _wait_times(trace, [call for call in calls if call.asynchronous and call.wait_row is not None])
    for call in calls:
        done = max(call.end_ns, call.comm_start_ns + call.duration_ns)
        yield _Event(call.row, 1, call, False, call.start_ns, call.end_ns)
        if not call.asynchronous:
            yield _Event(call.row, 2, call, True, call.end_ns, done)
        elif call.wait_row is None:
            yield _Event(_LAST, 0, call, True, done, done)
        else:
            yield _Event(call.wait_row, 0, call, True, *waits[call.number])


def _wait_times(trace: Trace, calls: Sequence[CommCall]) -> dict[int, tuple[int, int]]:
    """Return when the waits for calls began and ended, as far as the trace tells, by `CommCall.number`."""
    rows = np.array([call.wait_row for call in calls], np.int64)
    nodes = trace.nodes
    start = trace.integers("start_ns", fill=0)
    ends = start + trace.integers("duration_ns", fill=0)
    # The node after a wait starts when it is over; its thread paused when what it did before ended.
    offsets, values = list_values(nodes["ctrl_deps"].gather(rows))
    before = positions(nodes["id"].to_numpy(), values)
    spans, named = trace.integers("span_ns", fill=0), (nodes["name"] == WAIT).fill_null(False).to_numpy()
    found = {}
    for place, (call, row) in enumerate(zip(calls, rows.tolist(), strict=True)):
        begin = end = int(start[row])
        if named[row] and call.comm_id is not None:
            end += int(spans[row])
        else:
            kept = before[offsets[place] : offsets[place + 1]]
            begin = min(int(ends[kept[kept >= 0]].max(initial=-1)), end) if (kept >= 0).any() else end
        found[call.number] = begin, end
    return found


def _stretches(
    events: Sequence[_Event], windows: dict[int, tuple[int, int]], wanted: tuple[int, int] | None
) -> Iterator[tuple[int | None, tuple[int, int] | None, list[_Event]]]:
    """Return the number, the recorded time and the events of each iteration: a wait belongs to that of its call."""
    numbers = list(windows)
    begins = [begin for begin, _ in windows.values()]
    parts: dict[int, list[_Event]] = {}
    for event in events:
        parts.setdefault(max(bisect_right(begins, event.call.start_ns) - 1, 0), []).append(event)
    for place in sorted(parts):
        number = numbers[place] if numbers else None
        if wanted is None or (number is not None and wanted[0] <= number <= wanted[1]):
            yield number, None if number is None else windows[number], parts[place]


def _steps(events: Sequence[_Event], window: tuple[int, int] | None) -> tuple[list[Step], int, int]:
    """Return the steps of one iteration, and its recorded begin and end."""
    begin = window[0] if window else events[0].begin_ns
    clock = begin
    steps: list[Step] = []
    for event in events:
        if event.begin_ns > clock:
            steps.append(_delay(event.call, f"before {event.call.kind}", event.begin_ns - clock))
        # Of waits that end together, only the first took time.
        took = max(event.end_ns - max(event.begin_ns, clock), 0)
        clock = max(clock, event.end_ns)
        step = Wait(event.call.number, duration_ns=took) if event.waits else Communicate(event.call, (), (), 0, took)
        steps.append(step)
    end = max(window[1], clock) if window else clock
    if end > clock:
        steps.append(_delay(events[-1].call, "end of the iteration", end - clock))
    return steps, begin, end


def _delay(call: CommCall, name: str, duration_ns: int) -> Delay:
    return Delay(call.node, name, "", duration_ns=duration_ns)
