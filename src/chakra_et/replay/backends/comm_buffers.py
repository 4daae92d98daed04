"""Tensors of a replay's own, for communications whose tensors nothing else makes: lent to a call until its wait.

Calls in flight at once never share a tensor; calls that follow each other do, so memory is that of the most that is in
flight.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from chakra_et.replay.communications.call import REDUCING, CommCall

__all__ = ["Buffers", "Lent"]

# What a call works on: tensors it gives, tensors it gets, and the keys under which they go back.
Lent = tuple[list[Any], list[Any], list[tuple[tuple[int, str], Any]]]
_IN_PLACE = REDUCING - {"reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"} | {"broadcast_"}


class Buffers:
    """A pool of flat tensors by size and element type.

    Args:
        device: Where they are.
        seed: Of what is in them.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self._device = device
        self._random = torch.Generator().manual_seed(seed)
        self._free: dict[tuple[int, str], list[Any]] = {}

    def lend(self, call: CommCall) -> Lent:
        """Return tensors of the shapes of a call."""
        held: list[tuple[tuple[int, str], Any]] = []
        given = [self._one(shape, call.dtype, held) for shape in call.inputs]
        taken = given if call.kind in _IN_PLACE else [self._one(shape, call.dtype, held) for shape in call.outputs]
        return given, taken, held

    def take_back(self, held: list[tuple[tuple[int, str], Any]]) -> None:
        """Take back what a call was lent."""
        for key, tensor in held:
            self._free.setdefault(key, []).append(tensor)

    def _one(self, shape: tuple[int, ...], dtype: str, held: list[tuple[tuple[int, str], Any]]) -> Any:
        key = (prod(shape), dtype)
        free = self._free.get(key)
        flat = free.pop() if free else self._make(*key)
        held.append((key, flat))
        return flat.view(shape)

    def _make(self, count: int, dtype: str) -> Any:
        # Touched memory, so that a first call doesn't pay for it; small numbers, so that sums stay finite for long.
        values = torch.randint(0, 2, (min(count, 1 << 16),), generator=self._random, dtype=torch.uint8)
        flat = torch.empty(count, dtype=getattr(torch, dtype), device=self._device)
        for begin in range(0, count, 1 << 16):
            end = min(begin + (1 << 16), count)
            flat[begin:end] = values[: end - begin].to(self._device, flat.dtype)
        return flat
