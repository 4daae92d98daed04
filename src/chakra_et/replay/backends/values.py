"""The tensors that are there before the first step: storages of the recorded sizes, filled with tame values.

Floating-point values lie between -0.1 and 0.1: sums over some thousand of them neither overflow nor vanish. What goes
into a square root, a logarithm or a variance is positive (a root of what is negative takes ten times as long), and so
are single numbers. Integers lie in the range that the plan found, else in 0..1.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from chakra_et.replay.backends.torch_ops import target_device
from chakra_et.replay.plan.schema import parse_schema
from chakra_et.replay.plan.steps import OpCall, Plan, TensorSlot
from chakra_et.replay.plan.tables import slots_in, written_storages

__all__ = ["Values", "devices_of"]

_SPREAD = 0.1
# Numbers that reach operators as tensors: factors of optimizers and norms, of which a trace doesn't hold the value.
_NUMBERS = (0.5, 1.0)
_ALIGN = 16
_BLOCK = 1 << 20
_POSITIVE_ARGUMENTS = frozenset({
    "exp_avg_sq", "exp_avg_sqs", "max_exp_avg_sqs", "running_var", "save_var", "save_invstd", "rstd", "invstd", "var",
    "state_sums",
})  # fmt: skip
_POSITIVE_OPERATORS = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "_foreach_sqrt", "_foreach_rsqrt",
                                 "_foreach_log"})  # fmt: skip


def devices_of(plan: Plan, slots: Iterable[int], device: str) -> frozenset[str]:
    """Return the devices that some slots' tensors are on here."""
    return frozenset(target_device(plan.tensors[slot].device, device) for slot in slots)


class Values:
    """Makes tensors and fills them, always with the same values for the same seed.

    Args:
        plan: The plan.
        device: Where an accelerator's tensors go.
        seed: Seed of what is drawn.
    """

    def __init__(self, plan: Plan, device: str, seed: int) -> None:
        self._plan, self._device, self._seed = plan, device, seed
        self._positive = _positive_storages(plan)
        self._memory: dict[int, torch.Tensor] = {}
        self._drawn: dict[int, tuple[torch.Tensor, int]] = {}

    def prepare(self, slots: dict[int, torch.Tensor]) -> None:
        """Make all tensors that are there before the first step.

        Args:
            slots: They are put here.
        """
        for slot, tensor in enumerate(self._plan.tensors):
            if tensor.first < 0 <= tensor.last:
                slots[slot] = self._tensor(slot, tensor)
        written = written_storages(self._plan)
        self._drawn = {place: one for place, one in self._drawn.items() if place in written}

    def stand_in(self, slot: int) -> torch.Tensor:
        """Return a tensor in the place of one that no call makes here; it has a storage of its own."""
        tensor = self._plan.tensors[slot]
        memory = self._allocate(_extent(tensor), tensor)
        self._fill(memory, tensor, len(self._plan.storages) + slot)
        return _view(memory, tensor)

    def refill(self) -> None:
        """Give the values of the start back to all that a pass wrote to."""
        for place, (memory, slot) in self._drawn.items():
            self._fill(memory, self._plan.tensors[slot], place)

    def _tensor(self, slot: int, tensor: TensorSlot) -> torch.Tensor:
        place = tensor.storage
        if place not in self._memory:
            size = self._plan.storages[place].size_bytes
            self._memory[place] = self._allocate(size, tensor)
            self._fill(self._memory[place], tensor, place)
            self._drawn[place] = (self._memory[place], slot)
        return _view(self._memory[place], tensor)

    def _allocate(self, size_bytes: int, tensor: TensorSlot) -> torch.Tensor:
        rounded = -(-size_bytes // _ALIGN) * _ALIGN
        return torch.empty(rounded, dtype=torch.uint8, device=target_device(tensor.device, self._device))

    def _fill(self, memory: torch.Tensor, tensor: TensorSlot, place: int) -> None:
        if not memory.numel():
            return
        generator = torch.Generator(memory.device).manual_seed(self._seed * 1_000_003 + place)
        flat = memory.view(getattr(torch, tensor.dtype))
        if tensor.dtype.startswith("complex"):
            flat = torch.view_as_real(flat)
        flat = flat.view(-1)
        block = min(_BLOCK, flat.numel())
        if flat.dtype == torch.bool:
            # Through bytes: any other value than 0 and 1 isn't a bool.
            memory[:block].random_(0, 2, generator=generator)
        elif flat.dtype.is_floating_point:
            low = _SPREAD / 10 if place in self._positive else -_SPREAD
            _uniform(flat[:block], *(_NUMBERS if not tensor.shape else (low, _SPREAD)), generator)
        else:
            low, high = (0, 1) if tensor.low is None or tensor.high is None else (tensor.low, tensor.high)
            flat[:block].random_(low, high + 1, generator=generator)
        # Drawing takes longer than copying, and billions of values needn't differ.
        while block < flat.numel():
            more = min(block, flat.numel() - block)
            flat[block : block + more].copy_(flat[:more])
            block += more


def _uniform(flat: torch.Tensor, low: float, high: float, generator: torch.Generator) -> None:
    if flat.element_size() > 1:
        flat.uniform_(low, high, generator=generator)
        return
    # 8-bit floats can't be drawn.
    wide = torch.empty(flat.shape, dtype=torch.float32, device=flat.device)
    flat.copy_(wide.uniform_(low, high, generator=generator))


def _view(memory: torch.Tensor, tensor: TensorSlot) -> torch.Tensor:
    flat = memory.view(getattr(torch, tensor.dtype))
    return torch.as_strided(flat, tensor.shape, tensor.strides, tensor.offset)


def _extent(tensor: TensorSlot) -> int:
    if 0 in tensor.shape:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    return int((tensor.offset + last + 1) * torch.empty(0, dtype=getattr(torch, tensor.dtype)).element_size())


def _positive_storages(plan: Plan) -> frozenset[int]:
    """Return the storages whose values a call takes the root of, or the like."""
    found: set[int] = set()
    for step in plan.steps:
        schema = parse_schema(step.schema) if isinstance(step, OpCall) else None
        if schema is None or not isinstance(step, OpCall):
            continue
        rooted = schema.name.removeprefix("aten::").rstrip("_") in _POSITIVE_OPERATORS
        for place, (parameter, value) in enumerate(zip(schema.parameters, step.arguments, strict=False)):
            if parameter.name in _POSITIVE_ARGUMENTS or (rooted and not place):
                found.update(plan.tensors[slot].storage for slot in slots_in(value))
    return frozenset(found)
