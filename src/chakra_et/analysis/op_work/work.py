"""What a formula returns, and how one says that it can't tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chakra_et.analysis.op_work.dtypes import ARITHMETIC
from chakra_et.analysis.op_work.tensor import Tensor

__all__ = ["NoModelError", "OpWork", "distinct_bytes", "made"]


class NoModelError(Exception):
    """The arguments of a call don't tell what a formula needs; never leaves this package."""


@dataclass(frozen=True, slots=True)
class OpWork:
    """Arithmetic and memory traffic of one call of an operator.

    Attributes:
        flop_count: Floating-point operations (of integers where the elements are); a multiply-add is 2.
        read_bytes: Every input once.
        write_bytes: Every output once. With `read_bytes` the least that any kernel moves to and from a cold cache.
        dtype: Element type of the arithmetic as device descriptions spell it (``bf16``, ``fp32``, ``int8``); None
            where they have no word for it (wide integers, booleans), or nothing is computed.
        model: Name of the formula, and what it assumed where arguments were not recorded.
        is_exact: False where something that the counts depend on was not recorded.
    """

    flop_count: int
    read_bytes: int
    write_bytes: int
    dtype: str | None
    model: str
    is_exact: bool = True


def distinct_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Return the bytes of tensors, each counted once even if a call names it twice (where traces tell).

    Raises:
        NoModelError: The element type of one isn't known.
    """
    total = 0
    seen: set[int] = set()
    for tensor in tensors:
        if tensor is None or (tensor.id is not None and tensor.id in seen):
            continue
        if tensor.id is not None:
            seen.add(tensor.id)
        size = tensor.size_bytes
        if size is None:
            raise NoModelError
        total += size
    return total


def made(
    model: str,
    flop_count: int,
    *,
    reads: Iterable[Tensor | None],
    writes: Iterable[Tensor | None],
    kind: str | None = None,
    is_exact: bool = True,
) -> OpWork:
    """Return the work of a call that reads and writes whole tensors.

    Args:
        model: Name of the formula.
        flop_count: Operations.
        reads: Tensors that it reads; None stands for an argument that is absent.
        writes: Tensors that it writes.
        kind: Element type of the arithmetic, of `dtypes.ELEMENT_BYTES`.
        is_exact: As in `OpWork`.
    """
    dtype = ARITHMETIC.get(kind) if kind and flop_count else None
    return OpWork(flop_count, distinct_bytes(reads), distinct_bytes(writes), dtype, model, is_exact)
