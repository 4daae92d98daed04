"""The tensor table as a plan shows it, with lifetimes, and what memory a plan needs.

Shape letters: S steps, T tensor slots, M storages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chakra_et.replay.plan.schema import parse_schema
from chakra_et.replay.plan.steps import Communicate, OpCall, Plan, Slot, Step, Storage, TensorSlot, View, Wait
from chakra_et.replay.plan.tensors import TensorTable

__all__ = ["peak_bytes", "slots_in", "slots_made", "slots_used", "tensor_slots", "with_lifetimes", "written_storages"]


def slots_in(value: Any) -> Iterator[int]:
    """Return the slots in an argument or a result, in order."""
    if isinstance(value, Slot):
        yield value.index
    elif isinstance(value, tuple):
        for part in value:
            yield from slots_in(part)


def slots_used(step: Step) -> tuple[int, ...]:
    """Return the slots that a step reads."""
    if isinstance(step, OpCall):
        return tuple(slots_in(step.arguments))
    if isinstance(step, View):
        return (step.base,)
    return (*step.inputs, *step.outputs) if isinstance(step, Communicate) else ()


def slots_made(step: Step) -> tuple[int, ...]:
    """Return the slots that a step fills."""
    if isinstance(step, OpCall):
        return tuple(slots_in(step.results))
    return (step.result,) if isinstance(step, View) else ()


def tensor_slots(
    table: TensorTable, steps: Sequence[Step], ranges: Mapping[int, tuple[int, int]]
) -> tuple[tuple[TensorSlot, ...], tuple[Storage, ...]]:
    """Return tensors [T] and storages [M] with their lifetimes.

    Args:
        table: The tensors.
        steps: [S] the steps.
        ranges: Lowest and highest value by place of the storage.
    """
    first, last = _lifetimes(steps, len(table.records))
    tensors = tuple(
        TensorSlot(
            table.places[slot], one.offset, one.shape, one.strides, one.dtype, one.device, first[slot], last[slot],
            *ranges.get(table.places[slot], (None, None)),
        )
        for slot, one in enumerate(table.records)
    )  # fmt: skip
    storages = []
    for memory in table.storages:
        begin = -1 if memory.before else min(first[slot] for slot in memory.slots)
        storages.append(Storage(memory.size_bytes, memory.device, begin, max(last[slot] for slot in memory.slots)))
    return tensors, tuple(storages)


def with_lifetimes(plan: Plan) -> Plan:
    """Return a plan whose tensors and storages have the lifetimes that its steps give them.

    Needed after a change of steps. What no step uses any more has none: -1 for its first and last step.
    """
    first, last = _lifetimes(plan.steps, len(plan.tensors))
    begins, ends = [len(plan.steps)] * len(plan.storages), [-1] * len(plan.storages)
    for slot, tensor in enumerate(plan.tensors):
        if last[slot] >= 0:
            begins[tensor.storage] = min(begins[tensor.storage], first[slot])
            ends[tensor.storage] = max(ends[tensor.storage], last[slot])
    storages = [
        replace(one, first=-1 if one.first < 0 or end < 0 else begin, last=end)
        for one, begin, end in zip(plan.storages, begins, ends, strict=True)
    ]
    tensors = [replace(one, first=begin, last=end) for one, begin, end in zip(plan.tensors, first, last, strict=True)]
    return replace(plan, tensors=tuple(tensors), storages=tuple(storages))


def _lifetimes(steps: Sequence[Step], count: int) -> tuple[list[int], list[int]]:
    """Return the first and the last step of each slot; -1 for the first of one that no step makes."""
    first, last = [-1] * count, [-1] * count
    for place, step in enumerate(steps):
        for slot in slots_made(step):
            first[slot] = last[slot] = place
        for slot in slots_used(step):
            last[slot] = place
    # The wait for a communication ends its use of a tensor.
    for place, end in _ends_of_communications(steps).items():
        for slot in slots_used(steps[place]):
            last[slot] = max(last[slot], end)
    return first, last


def _ends_of_communications(steps: Sequence[Step]) -> dict[int, int]:
    """Return the position of the wait for each communication, by its position."""
    started: dict[int, int] = {}
    ends: dict[int, int] = {}
    for place, step in enumerate(steps):
        if isinstance(step, Communicate):
            started[step.call.number] = place
        elif isinstance(step, Wait) and step.number in started:
            ends[started[step.number]] = place
    return ends


def peak_bytes(plan: Plan) -> int:
    """Return the most memory that a plan's tensors take at once: those there from the start stay to the end."""
    change = [0] * (len(plan.steps) + 2)
    for storage in plan.storages:
        if storage.last < 0:
            continue
        begin, end = (0, len(plan.steps)) if storage.first < 0 else (storage.first, storage.last)
        change[begin] += storage.size_bytes
        change[end + 1] -= storage.size_bytes
    peak = now = 0
    for delta in change:
        now += delta
        peak = max(peak, now)
    return peak


def written_storages(plan: Plan) -> frozenset[int]:
    """Return the storages that are there from the start and that a step writes to, by the schemas."""
    found: set[int] = set()
    for step in plan.steps:
        slots: tuple[int, ...] = ()
        if isinstance(step, OpCall):
            schema = parse_schema(step.schema)
            written = [one.written for one in schema.parameters] if schema else []
            slots = tuple(slots_in(tuple(a for a, does in zip(step.arguments, written, strict=False) if does)))
        elif isinstance(step, Communicate):
            slots = step.outputs
        found.update(plan.tensors[slot].storage for slot in slots)
    return frozenset(place for place in found if plan.storages[place].first < 0)
