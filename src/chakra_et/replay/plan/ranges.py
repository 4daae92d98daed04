"""Collecting what a plan asks of the integers that are drawn for it, storage by storage."""

from __future__ import annotations

from typing import Any

from chakra_et.replay.plan.arguments import Recorded
from chakra_et.replay.plan.steps import Slot
from chakra_et.replay.plan.tensors import TensorTable
from chakra_et.replay.plan.values import KEEPING, Values, bounds_of, recorded_bounds

__all__ = ["Ranges"]

_FLOATING = ("float", "bfloat", "complex")


class Ranges:
    """The ranges of the integer tensors of a plan, found call by call in order.

    Args:
        table: The tensors.
    """

    def __init__(self, table: TensorTable) -> None:
        self._table = table
        self._sources: dict[int, set[int]] = {}
        self._ranges: dict[int, tuple[int, int]] = {}

    def at(self, name: str, values: Values, recorded: Any, arguments: tuple[Any, ...], bound: tuple[Any, ...]) -> None:
        """Take in one call: what it indexes with, and the range that the trace recorded for its arguments."""
        bounds = [*bounds_of(name, values), *recorded_bounds(recorded, arguments)]
        if not bounds:
            return
        slots = _slots_of(arguments, bound)
        for record, low, high in bounds:
            slot = slots.get(id(record))
            if slot is not None and not record.dtype.startswith(_FLOATING):
                self._narrow(self._table.places[slot], low, high)

    def link(self, name: str, inputs: tuple[int, ...], results: tuple[int, ...]) -> None:
        """Take in that a call's results have the values of its inputs."""
        copies = name == "aten::copy_" and len(inputs) > 1
        if name not in KEEPING and not copies:
            return
        places = [self._table.places[slot] for slot in (inputs[1:] if copies else inputs) if self._is_integer(slot)]
        for slot in inputs[:1] if copies else results:
            into = self._table.places[slot]
            if self._is_integer(slot):
                self._sources.setdefault(into, set()).update(place for place in places if place != into)

    def found(self) -> dict[int, tuple[int, int]]:
        """Return lowest and highest value by place of the storage."""
        return self._ranges

    def _narrow(self, place: int, low: int, high: int) -> None:
        """Narrow the range of a storage and of those that its values came from."""
        todo, seen = [place], set()
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            was = self._ranges.get(one, (low, high))
            both = (max(was[0], low), min(was[1], high))
            # Two users that nothing suits: the lower one's highest value is the safer guess.
            self._ranges[one] = both if both[0] <= both[1] else (both[1], both[1])
            todo.extend(self._sources.get(one, ()))

    def _is_integer(self, slot: int) -> bool:
        return not self._table.records[slot].dtype.startswith(_FLOATING)


def _slots_of(recorded: Any, bound: Any) -> dict[int, int]:
    """Return the slot of each recorded tensor object among a call's arguments."""
    if isinstance(recorded, Recorded) and isinstance(bound, Slot):
        return {id(recorded): bound.index}
    found: dict[int, int] = {}
    if isinstance(recorded, tuple):
        for one, other in zip(recorded, bound, strict=True):
            found |= _slots_of(one, other)
    return found
