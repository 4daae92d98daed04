"""Whether communications give what they must: inputs that tell where they come from, and what must arrive.

The value of an element depends on who sends it, in which tensor or to whom, where in it, and in which call: small whole
numbers, exact in every element type, so that what arrives can be computed on each rank by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from chakra_et.replay.communications.call import CommCall

__all__ = ["expected_values", "fill_inputs", "first_difference"]

_MODULUS = 7
_REDUCE = {
    "sum": torch.add, "avg": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}  # fmt: skip


def fill_inputs(call: CommCall, inputs: Sequence[Any], *, place: int, turn: int, op: str) -> None:
    """Fill the tensors that a rank gives.

    Args:
        call: The communication.
        inputs: Its tensors.
        place: Place of the rank in the group.
        turn: How many calls the group (or the pair of ranks) has made before.
        op: Reduce operation; empty if nothing is reduced.
    """
    for index, tensor in enumerate(inputs):
        tensor.view(-1).copy_(_given(call, place, index, tensor.numel(), turn, op))


def expected_values(
    call: CommCall, outputs: Sequence[Any], *, place: int, turn: int, op: str
) -> Iterator[tuple[int, torch.Tensor]]:
    """Return what must be in the tensors that a rank gets: (place of the tensor, int64 or float64 values, flat).

    Nothing for what isn't told: results of a reduce on other ranks than the root, receives of what anybody sent.
    """
    ranks = call.ranks
    root = ranks.index(call.root) if call.root is not None else 0
    kind, members = call.kind, range(len(ranks))
    for index, tensor in enumerate(outputs):
        size = tensor.numel()
        if kind in ("allreduce_", "allreduce_coalesced_") or (kind == "reduce_" and place == root):
            yield index, _reduced((_given(call, other, index, size, turn, op) for other in members), op)
        elif kind == "broadcast_":
            yield index, _given(call, root, index, size, turn, op)
        elif kind in ("allgather_", "gather_", "alltoall_"):
            yield index, _value(index, place if kind == "alltoall_" else 0, size, turn)
        elif kind == "allgather_coalesced_":
            each = len(outputs) // len(ranks)
            yield index, _value(index // each, index % each, size, turn)
        elif kind in ("_allgather_base_", "allgather_into_tensor_coalesced_"):
            yield index, torch.cat([_value(other, index, size // len(ranks), turn) for other in members])
        elif kind in ("reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"):
            yield index, _reduced((_scattered(call, other, place, index, size, turn, op) for other in members), op)
        elif kind == "scatter_":
            yield index, _value(root, place, size, turn)
        elif kind == "alltoall_base_":
            sizes = call.out_split_elements or (size // len(ranks),) * len(ranks)
            yield index, torch.cat([_value(other, place, sizes[other], turn) for other in members])
        elif call.peer is not None and kind != "send" and not call.is_unordered:
            yield index, _value(ranks.index(call.peer), call.tag % _MODULUS, size, turn)


def first_difference(tensor: Any, expected: torch.Tensor, members: int) -> str:
    """Return the first element that isn't as expected, in words; empty if all are.

    Args:
        tensor: What arrived.
        expected: What must be there, flat.
        members: Ranks whose values were joined: sums round that often.
    """
    got = tensor.detach().reshape(-1).to("cpu", torch.float64)
    # Sums of small integers wrap.
    whole = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype != torch.bool
    wanted = (expected.to(tensor.dtype) if whole else expected).to(torch.float64)
    if tensor.dtype == torch.bool:
        wanted = (wanted != 0).to(torch.float64)
    exact = not tensor.dtype.is_floating_point
    slack = 0.0 if exact else torch.finfo(tensor.dtype).eps * members
    wrong = (got - wanted).abs() > slack * wanted.abs().clamp(min=1.0)
    if not bool(wrong.any()):
        return ""
    place = int(wrong.to(torch.uint8).argmax())
    return f"expected {wanted[place]:g} at element {place:,}, got {got[place]:g} ({int(wrong.sum()):,} elements differ)"


def _value(place: int, index: int, size: int, turn: int, begin: int = 0) -> torch.Tensor:
    return (torch.arange(begin, begin + size) + (3 * place + 5 * index + turn)) % _MODULUS


def _given(call: CommCall, place: int, index: int, size: int, turn: int, op: str, begin: int = 0) -> torch.Tensor:
    """Return what the rank at a place gives in one of its tensors, from an element on, int64 [size]."""
    if op == "product" and place:
        return torch.ones(size, dtype=torch.int64)
    if call.kind == "alltoall_base_":
        members = len(call.ranks)
        sizes = call.in_split_elements or (size // members,) * members
        return torch.cat([_value(place, other, sizes[other], turn) for other in range(members)])
    return _value(place, call.tag % _MODULUS if call.kind == "send" else index, size, turn, begin)


def _scattered(call: CommCall, other: int, place: int, index: int, size: int, turn: int, op: str) -> torch.Tensor:
    """Return what another rank adds to the part of a reduce-scatter that is for a place."""
    if call.kind == "reduce_scatter_":
        return _given(call, other, place, size, turn, op)
    return _given(call, other, index, size, turn, op, place * size)


def _reduced(parts: Iterator[torch.Tensor], op: str) -> torch.Tensor:
    total, count = next(parts), 1
    for part in parts:
        total, count = _REDUCE[op or "sum"](total, part), count + 1
    return total.to(torch.float64) / count if op == "avg" else total
