"""A plan as one straight piece of Python: what a step costs beside its operator is a few list accesses and a clock.

Tensors live in one list, each at its slot. Values that don't change are written into the text or are names in it; a
tensor is dropped from the list after its last use. Longer plans are cut into functions of some hundred steps, since
Python's compiler takes time that grows faster than a function.

    s[9] = o4(s[1], s[7], 2)       # aten::add.Tensor
    s[7] = None                    # its last use
    e = t[3] = now()               # this step's end, which is the next one's start
    b[4] = hold(p + 60100)         # step 4 starts no sooner than recorded
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from chakra_et.errors import ChakraError, ReplayError
from chakra_et.replay.backends.torch_ops import BoundCall
from chakra_et.replay.plan.steps import Communicate, Delay, OpCall, Plan, Slot, View, Wait
from chakra_et.replay.plan.tables import slots_made, slots_used

__all__ = ["Program", "Times", "hold", "make_view"]

_CHUNK = 400
# Shorter gaps than the clock takes to read can't be held.
_SHORTEST_NS = 150
_LONG_NS = 500_000
# What a sleep may last longer than asked for.
_WAKING_NS = 200_000
_SIMPLE = (int, float, bool, str, type(None))


def hold(until: int) -> int:
    """Wait until a time of `time.perf_counter_ns`, and return the time then.

    A short pause keeps the processor busy, as the recorded host did. In a long one the recorded host waited for
    something, and others had the processor: communications make progress on it.
    """
    now = time.perf_counter_ns
    at = now()
    while at < until:
        left = until - at
        if left > _LONG_NS:
            time.sleep((left - _WAKING_NS) * 1e-9)
        at = now()
    return at


def make_view(base: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: Any) -> Any:
    """Return a tensor that lies in the storage of another."""
    if base.dtype == dtype:
        return torch.as_strided(base, shape, strides, offset)
    return torch.empty(0, dtype=dtype, device=base.device).set_(base.untyped_storage(), offset, shape, strides)


@dataclass(frozen=True, slots=True)
class Times:
    """What one pass measured, ns on `time.perf_counter_ns`.

    Attributes:
        starts: Start of each step, [S].
        ends: End of each step, [S].
        iterations: Start and end of each iteration, [I, 2].
    """

    starts: list[int]
    ends: list[int]
    iterations: list[tuple[int, int]]


class Program:
    """A plan, compiled.

    Args:
        plan: The plan.
        calls: The bound call of each step that calls an operator; a step without one is held as long as recorded.
        kept: Slots that are never dropped: those there before the first step.
        issue: Starts a communication.
        wait: Waits for one.
        synchronize: Waits for the device at the end of an iteration; None: nothing to wait for.
        paced: True if a call follows the one before no sooner than recorded; else the gap between them is held in full.
    """

    def __init__(
        self,
        plan: Plan,
        calls: Mapping[int, BoundCall],
        kept: frozenset[int],
        issue: Callable[..., Any],
        wait: Callable[[Any], None],
        synchronize: Callable[[], None] | None,
        paced: bool,
    ) -> None:
        self._plan, self._calls, self._kept = plan, calls, kept
        self._synchronize, self._paced = synchronize, paced
        self._names: dict[str, Any] = {
            "now": time.perf_counter_ns, "hold": hold, "view": make_view, "issue": issue, "wait": wait,
        }  # fmt: skip
        self._handles: dict[int, int] = {}
        self._places: dict[tuple[str, int], int] = {}
        self._due, self._ends = _due(plan)
        self._functions = [
            (iteration, [self._compile(begin, min(begin + _CHUNK, iteration.end))
                         for begin in range(iteration.begin, iteration.end, _CHUNK)])
            for iteration in plan.iterations
        ]  # fmt: skip

    def run(self, slots: list[Any], after: Callable[[], None] | None = None) -> Times:
        """Run all steps.

        Args:
            slots: Tensors by slot; those there before the first step are set.
            after: Called after each iteration.

        Raises:
            ReplayError: An operator fails, which didn't in the first pass.
        """
        try:
            return self._run(slots, after)
        except ChakraError:
            raise
        except Exception as err:
            raise ReplayError(f"rank {self._plan.rank}: {self._where(err)}: it fails in a later pass: {err}") from err

    def _where(self, err: Exception) -> str:
        """Name the step that an error comes from."""
        frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(err.__traceback__)]
        place = next((self._places[frame] for frame in frames if frame in self._places), None)
        step = None if place is None else self._plan.steps[place]
        return f"node {step.node} ('{step.name}')" if isinstance(step, OpCall | Delay) else "a step"

    def _run(self, slots: list[Any], after: Callable[[], None] | None) -> Times:
        count = len(self._plan.steps)
        starts, ends, spans = [0] * count, [0] * count, []
        handles = [None] * len(self._handles)
        for iteration, functions in self._functions:
            at = base = begin = time.perf_counter_ns()
            for function in functions:
                at, base = function(slots, starts, ends, handles, at, base)
            if self._synchronize is not None:
                self._synchronize()
                at = time.perf_counter_ns()
            until = base + self._ends[iteration.end] if self._paced else at
            spans.append((begin, hold(until + iteration.tail_ns)))
            if after is not None:
                after()
        return Times(starts, ends, spans)

    def _compile(self, begin: int, end: int) -> Callable[..., tuple[int, int]]:
        lines, name = ["def run(s, b, t, h, e, p):"], f"<steps {begin} to {end}>"
        for place in range(begin, end):
            own = ["    " + line for line in self._lines(place)]
            self._places.update({(name, len(lines) + at): place for at in range(1, len(own) + 1)})
            lines += own
        lines.append("    return e, p")
        names = self._names
        # The text is made of slots, numbers and names given here: nothing in it comes from the trace.
        exec(compile("\n".join(lines), name, "exec"), names)
        function: Callable[..., tuple[int, int]] = names.pop("run")
        return function

    def _lines(self, place: int) -> Iterator[str]:
        step = self._plan.steps[place]
        yield self._start(place)
        if isinstance(step, OpCall) and place in self._calls:
            yield from self._call(self._calls[place])
        elif isinstance(step, OpCall | Delay):
            yield f"hold(b[{place}] + {step.duration_ns})"
        elif isinstance(step, View):
            if step.result not in self._kept:
                yield self._view(step)
        elif isinstance(step, Communicate):
            self._handles[step.call.number] = len(self._handles)
            inputs, outputs = ([f"s[{slot}]" for slot in side] for side in (step.inputs, step.outputs))
            handle = self._handles[step.call.number]
            yield f"h[{handle}] = issue({self._name(step.call)}, [{', '.join(inputs)}], [{', '.join(outputs)}])"
        elif isinstance(step, Wait) and step.number in self._handles:
            yield f"wait(h[{self._handles[step.number]}])"
        yield from self._drops(place)
        # The time of a wait is the communication's: what follows is told from its end.
        yield f"p = e = t[{place}] = now()" if isinstance(step, Wait) else f"e = t[{place}] = now()"

    def _start(self, place: int) -> str:
        """Write the start of a step: when what is before it has ended and the host's time has passed."""
        step = self._plan.steps[place]
        if isinstance(step, View):
            return f"b[{place}] = e"
        if self._paced:
            return f"b[{place}] = hold(p + {self._due[place]})"
        return f"b[{place}] = hold(e + {step.gap_ns})" if step.gap_ns > _SHORTEST_NS else f"b[{place}] = e"

    def _call(self, bound: BoundCall) -> Iterator[str]:
        arguments = [self._text(value) for value in bound.arguments]
        arguments += [f"{name}={self._text(value)}" for name, value in bound.keywords.items()]
        text = f"{self._name(bound.call)}({', '.join(arguments)})"
        if bound.single:
            target = bound.results[0] if bound.results else None
            if isinstance(target, Slot):
                yield f"s[{target.index}] = {text}"
                return
            parts = list(_targets(target, "r"))
        else:
            parts = [line for index, one in enumerate(bound.results) for line in _targets(one, f"r[{index}]")]
        yield f"r = {text}" if parts else text
        yield from parts
        if parts:
            yield "r = None"

    def _view(self, step: View) -> str:
        tensor = self._plan.tensors[step.result]
        dtype = self._name(getattr(torch, tensor.dtype))
        return f"s[{step.result}] = view(s[{step.base}], {tensor.shape}, {tensor.strides}, {tensor.offset}, {dtype})"

    def _drops(self, place: int) -> Iterator[str]:
        """Drop what is used for the last time, and what is made for nothing."""
        step = self._plan.steps[place]
        used = dict.fromkeys((*slots_used(step), *slots_made(step)))
        if isinstance(step, Wait):
            used = self._communicated(place)
        gone = [slot for slot in used if slot not in self._kept and self._plan.tensors[slot].last <= place]
        if gone:
            yield " = ".join(f"s[{slot}]" for slot in gone) + " = None"

    def _communicated(self, place: int) -> dict[int, None]:
        number = getattr(self._plan.steps[place], "number", None)
        for step in reversed(self._plan.steps[:place]):
            if isinstance(step, Communicate) and step.call.number == number:
                return dict.fromkeys(slots_used(step))
        return {}

    def _text(self, value: Any) -> str:
        """Write an argument."""
        if isinstance(value, Slot):
            return f"s[{value.index}]"
        if isinstance(value, tuple | list):
            inner = [self._text(part) for part in value]
            # A tuple of constants is made once; a list of tensors at each call.
            plain = all(isinstance(part, _SIMPLE) for part in value)
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})" if plain else f"[{', '.join(inner)}]"
        if isinstance(value, int | bool) or value is None:
            return repr(value)
        return self._name(value)

    def _name(self, value: Any) -> str:
        name = f"k{id(value)}"
        self._names[name] = value
        return name


def _due(plan: Plan) -> tuple[dict[int, int], dict[int, int]]:
    """Return how long after the last wait, or the begin of its iteration, each step was due when it was recorded.

    Returns:
        By step, when it was due; by the position behind an iteration, when its last step had ended.
    """
    due: dict[int, int] = {}
    ends: dict[int, int] = {}
    for iteration in plan.iterations:
        clock = 0
        for place in range(iteration.begin, iteration.end):
            step = plan.steps[place]
            if not isinstance(step, View):
                clock += step.gap_ns
            due[place] = clock
            if isinstance(step, Wait):
                clock = 0
            elif not isinstance(step, View):
                clock += step.duration_ns
        ends[iteration.end] = clock
    return due, ends


def _targets(result: Any, source: str) -> Iterator[str]:
    if isinstance(result, Slot):
        yield f"s[{result.index}] = {source}"
    elif isinstance(result, tuple):
        for index, part in enumerate(result):
            yield from _targets(part, f"{source}[{index}]")
