"""The first pass: each step is tried by itself, so that what can't run here is known, and has a stand-in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from chakra_et.replay.backends.program_ops import make_view
from chakra_et.replay.backends.torch_ops import BoundCall, Operators
from chakra_et.replay.backends.values import Values, devices_of
from chakra_et.replay.plan.steps import Communicate, OpCall, Plan, Slot, View, Wait
from chakra_et.replay.plan.tables import slots_in, slots_made, slots_used

__all__ = ["Trial"]


@dataclass(slots=True)
class Trial:
    """The first pass over a plan.

    Attributes:
        plan: The plan.
        values: Makes tensors.
        operators: Finds operators.
        device: Where an accelerator's tensors go.
        issue: Starts a communication.
        wait: Waits for one.
        before: Tensors that are there before the first step, stand-ins included, by slot.
        calls: Bound calls, by step.
        skipped: Why a step can't be called, by step.
        replaced: What a step returned instead of what was recorded, in words, by step: later steps get a stand-in.
    """

    plan: Plan
    values: Values
    operators: Operators
    device: str
    issue: Callable[..., Any]
    wait: Callable[[Any], None]
    before: dict[int, torch.Tensor] = field(default_factory=dict)
    calls: dict[int, BoundCall] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)
    replaced: dict[int, str] = field(default_factory=dict)

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Try each step in order.

        Args:
            progress: Called once a second with how many steps were tried.
        """
        told = time.monotonic()
        self.values.prepare(self.before)
        slots: list[Any] = [self.before.get(slot) for slot in range(len(self.plan.tensors))]
        handles: dict[int, Any] = {}
        awaited: dict[int, tuple[int, ...]] = {}
        for place, step in enumerate(self.plan.steps):
            used: tuple[int, ...] = (*slots_used(step), *slots_made(step))
            if isinstance(step, OpCall):
                self._try(place, step, slots)
            elif isinstance(step, View):
                self._view(step, slots)
            elif isinstance(step, Communicate):
                given, taken = ([slots[slot] for slot in side] for side in (step.inputs, step.outputs))
                handles[step.call.number] = self.issue(step.call, given, taken)
                awaited[step.call.number] = used
            elif isinstance(step, Wait) and step.number in handles:
                self.wait(handles.pop(step.number))
                used = awaited.pop(step.number)
            for slot in used:
                if slot not in self.before and self.plan.tensors[slot].last <= place:
                    slots[slot] = None
            if progress is not None and time.monotonic() - told >= 1:
                told = time.monotonic()
                progress(place + 1)

    def _try(self, place: int, step: OpCall, slots: list[Any]) -> None:
        bound = self.operators.bind(step, devices_of(self.plan, slots_in(step.arguments), self.device))
        if isinstance(bound, str):
            self._skip(place, step, slots, bound)
            return
        returned, failure = _attempt(bound, slots)
        fault = failure or self._fault(bound.results, returned)
        if fault:
            # Numbers reach an operator as tensors that give way to other element types: made from numbers again.
            numbers = replace(bound, arguments=tuple(map(self._as_number, bound.arguments)))
            again, failed = _attempt(numbers, slots) if numbers != bound else (None, fault)
            if not failed and not self._fault(bound.results, again):
                bound, returned, failure, fault = numbers, again, "", ""
        if failure:
            self._skip(place, step, slots, f"it fails here: {failure}")
            return
        if fault:
            self.replaced[place] = fault
            for slot in slots_in(bound.results):
                self._stand_in(slot, slots)
            bound = replace(bound, results=())
        else:
            _store(bound.results, returned, slots)
        self.calls[place] = bound

    def _as_number(self, value: Any) -> Any:
        """Return a number in the place of a tensor that can be one: made by no step, without dimensions."""
        if not isinstance(value, Slot) or value.index not in self.before:
            return value
        tensor = self.plan.tensors[value.index]
        number = not tensor.shape and tensor.dtype in ("float64", "int64", "bool", "complex128")
        return self.before[value.index].item() if number else value

    def _view(self, step: View, slots: list[Any]) -> None:
        tensor = self.plan.tensors[step.result]
        try:
            dtype = getattr(torch, tensor.dtype)
            slots[step.result] = make_view(slots[step.base], tensor.shape, tensor.strides, tensor.offset, dtype)
        except RuntimeError:
            # A call made a smaller storage than the recorded one.
            self._stand_in(step.result, slots)

    def _skip(self, place: int, step: OpCall, slots: list[Any], reason: str) -> None:
        self.skipped[place] = reason
        for slot in slots_made(step):
            self._stand_in(slot, slots)

    def _stand_in(self, slot: int, slots: list[Any]) -> None:
        self.before[slot] = slots[slot] = self.values.stand_in(slot)

    def _fault(self, results: Any, returned: Any) -> str:
        """Say how what came back differs from what was recorded: shapes that depend on values do."""
        if isinstance(results, Slot):
            tensor = self.plan.tensors[results.index]
            if not isinstance(returned, torch.Tensor):
                return "it returned no tensor"
            shape, dtype = tuple(returned.shape), str(returned.dtype).removeprefix("torch.")
            if shape != tensor.shape:
                return f"it returned a tensor of shape {list(shape)}, not {list(tensor.shape)}"
            return "" if dtype == tensor.dtype else f"it returned a tensor of {dtype}, not {tensor.dtype}"
        if isinstance(results, tuple) and results:
            if not isinstance(returned, tuple | list) or len(returned) < len(results):
                return "it returned fewer tensors"
            return next(filter(None, map(self._fault, results, returned)), "")
        return ""


def _attempt(bound: BoundCall, slots: list[Any]) -> tuple[Any, str]:
    """Make a call; return its results, and why it failed."""
    arguments = [_filled(value, slots) for value in bound.arguments]
    keywords = {name: _filled(value, slots) for name, value in bound.keywords.items()}
    try:
        returned = bound.call(*arguments, **keywords)
    # Operators raise whatever they like: one that can't run here must not end the replay.
    except Exception as err:
        return None, _first_line(err)
    return (returned,) if bound.single else returned, ""


def _filled(value: Any, slots: list[Any]) -> Any:
    if isinstance(value, Slot):
        return slots[value.index]
    return [_filled(part, slots) for part in value] if isinstance(value, tuple) else value


def _store(results: Any, returned: Any, slots: list[Any]) -> None:
    if isinstance(results, Slot):
        slots[results.index] = returned
    elif isinstance(results, tuple) and results:
        for one, other in zip(results, returned, strict=False):
            _store(one, other, slots)


def _first_line(err: Exception) -> str:
    text = str(err).strip().partition("\n")[0] or type(err).__name__
    return text if len(text) <= 160 else text[:157] + "..."
