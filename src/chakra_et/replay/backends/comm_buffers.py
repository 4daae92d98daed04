"""Tensors of a replay's own, for communications whose tensors nothing else makes: lent to a call until its wait.

Calls in flight at once never share memory; calls that follow each other do, whatever their sizes: there are as many
tensors as were ever in flight at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import prod
from typing import Any

import torch

from chakra_et.replay.communications.call import REDUCING, CommCall

__all__ = ["Buffers", "Lent"]

# What a call works on: tensors it gives, tensors it gets, and the memory that goes back.
Lent = tuple[list[Any], list[Any], list[Any]]
_IN_PLACE = REDUCING - {"reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"} | {"broadcast_"}


class Buffers:
    """A pool of flat tensors by element type.

    Args:
        device: Where they are.
        seed: Of what is in them.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self._device = device
        self._random = torch.Generator().manual_seed(seed)
        # Those that nobody has, shortest first.
        self._free: dict[str, list[Any]] = {}

    def lend(self, call: CommCall) -> Lent:
        """Return tensors of the shapes of a call."""
        held: list[Any] = []
        given = [self._one(shape, call.dtype, held) for shape in call.inputs]
        taken = given if call.kind in _IN_PLACE else [self._one(shape, call.dtype, held) for shape in call.outputs]
        return given, taken, held

    def take_back(self, held: list[Any]) -> None:
        """Take back what a call was lent."""
        for flat in held:
            insort(self._free.setdefault(str(flat.dtype).removeprefix("torch."), []), flat, key=len)

    def _one(self, shape: tuple[int, ...], dtype: str, held: list[Any]) -> Any:
        count, free = prod(shape), self._free.setdefault(dtype, [])
        place = bisect_left(free, count, key=len)
        if place < len(free):
            flat = free.pop(place)
        else:
            # The longest that is free makes room for a longer one.
            del free[-1:]
            flat = self._make(count, dtype)
        held.append(flat)
        return flat[:count].view(shape)

    def _make(self, count: int, dtype: str) -> Any:
        # Touched memory, so that a first call doesn't pay for it; small numbers, so that sums stay finite for long.
        values = torch.randint(0, 2, (min(count, 1 << 16),), generator=self._random, dtype=torch.uint8)
        flat = torch.empty(count, dtype=getattr(torch, dtype), device=self._device)
        for begin in range(0, count, 1 << 16):
            end = min(begin + (1 << 16), count)
            flat[begin:end] = values[: end - begin].to(self._device, flat.dtype)
        return flat
