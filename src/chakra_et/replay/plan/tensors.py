"""The tensor table of a plan: which tensor each number in a trace means, and what memory the tensors share.

A trace numbers tensor objects and storages, and uses a number again once its object is gone. So a number means what was
last made under it, as long as offset, shape and type agree; else a storage of that number that is still known has one
view more; else the tensor was there before (a parameter, a batch, something saved earlier).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from chakra_et.replay.plan.arguments import Recorded

__all__ = ["Memory", "TensorTable"]


@dataclass(slots=True)
class Memory:
    """A storage while the table grows.

    Attributes:
        size_bytes: Up to the last element of its tensors.
        device: Recorded device.
        before: True if it is there before the first step.
        slots: The tensors that lie in it.
    """

    size_bytes: int
    device: str
    before: bool
    slots: list[int] = field(default_factory=list)


class TensorTable:
    """Numbers of a trace -> slots of a plan.

    Attributes:
        records: The tensor in each slot.
        places: The place of its storage, for each slot.
        before: Whether it is there before the first step, for each slot.
        storages: What the tensors lie in.

    Example:
        >>> table = TensorTable()
        >>> tensor = Recorded(7, 8, 0, (2, 3), (3, 1), "float32", 4, "cpu")
        >>> table.read(tensor), table.read(tensor), table.before
        ((0, None), (0, None), [True])
    """

    def __init__(self) -> None:
        self.records: list[Recorded] = []
        self.places: list[int] = []
        self.before: list[bool] = []
        self.storages: list[Memory] = []
        self._by_tensor: dict[int, int] = {}
        self._by_storage: dict[int, int] = {}

    def read(self, record: Recorded) -> tuple[int, int | None]:
        """Return the slot of a tensor that a step uses.

        Returns:
            The slot, and the slot of a tensor in the same storage if this is a view that must be made first, else None.
        """
        slot = self._by_tensor.get(record.tensor)
        place = self._by_storage.get(record.storage)
        if slot is not None and self.places[slot] == place and _same(self.records[slot], record):
            return slot, None
        if place is None or not self._holds(place, record):
            return self._add(record, self._new_storage(record, before=True), before=True), None
        memory = self.storages[place]
        base = None if memory.before else self._alike(memory, record)
        return self._add(record, place, before=memory.before), base

    def write(self, record: Recorded, inputs: tuple[int, ...]) -> int | None:
        """Return the slot that a step's result goes to; None if it is a tensor that is there already.

        Args:
            record: The result.
            inputs: Slots of the step's own inputs: a result may share their storage.
        """
        slot = self._by_tensor.get(record.tensor)
        if slot is not None and slot in inputs and _same(self.records[slot], record):
            return None
        shared = {self.records[one].storage: self.places[one] for one in inputs}
        place = shared.get(record.storage)
        if place is None:
            place = self._new_storage(record, before=False)
        return self._add(record, place, before=False)

    def _add(self, record: Recorded, place: int, *, before: bool) -> int:
        slot = len(self.records)
        self.records.append(record)
        self.places.append(place)
        self.before.append(before)
        memory = self.storages[place]
        memory.slots.append(slot)
        memory.size_bytes = max(memory.size_bytes, record.extent_bytes)
        self._by_tensor[record.tensor] = slot
        self._by_storage[record.storage] = place
        return slot

    def _new_storage(self, record: Recorded, *, before: bool) -> int:
        self.storages.append(Memory(record.extent_bytes, record.device, before))
        return len(self.storages) - 1

    def _alike(self, memory: Memory, record: Recorded) -> int | None:
        """Return the last tensor of a storage that has the element type of another."""
        return next((slot for slot in reversed(memory.slots) if self.records[slot].dtype == record.dtype), None)

    def _holds(self, place: int, record: Recorded) -> bool:
        """Tell whether a tensor can lie in a storage.

        One that a step made is as large as it was then. Another element type speaks for another storage under the same
        number: views of another type are made by calls, which are recorded.
        """
        memory = self.storages[place]
        if memory.device != record.device or self._alike(memory, record) is None:
            return False
        return memory.before or (record.extent_bytes <= memory.size_bytes and prod(record.shape) > 0)


def _same(one: Recorded, other: Recorded) -> bool:
    """Tell whether two records are of one tensor."""
    strides = one.strides == other.strides or not (one.strides_told and other.strides_told) or prod(one.shape) < 2
    alike = one.storage == other.storage and one.offset == other.offset and one.shape == other.shape
    return alike and one.dtype == other.dtype and strides
