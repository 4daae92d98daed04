"""A tensor argument: shape, element type, and how it lies in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from chakra_et.analysis.op_work.dtypes import ELEMENT_BYTES

__all__ = ["Shape", "Tensor", "broadcast"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as a trace records it.

    Attributes:
        shape: Sizes.
        kind: Element type, a key of `dtypes.ELEMENT_BYTES`; empty if unknown.
        strides: Elements from one position to the next along each dimension; None if not recorded.
        id: The trace's number for it; None if it has none.
    """

    shape: Shape
    kind: str
    strides: Shape | None = None
    id: int | None = None

    @property
    def numel(self) -> int:
        """Number of elements as the shape says."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of its distinct elements: a dimension of stride 0 repeats one. None if the type is unknown."""
        item = ELEMENT_BYTES.get(self.kind)
        if item is None:
            return 0 if self.numel == 0 else None
        if self.strides is None or len(self.strides) != len(self.shape) or self.numel == 0:
            return self.numel * item
        return item * math.prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride)


def broadcast(shapes: list[Shape]) -> Shape | None:
    """Return the shape of an elementwise result; None if the shapes don't go together.

    Example:
        >>> broadcast([(8, 1, 64), (16, 1)]), broadcast([(3,), (4,)])
        ((8, 16, 64), None)
    """
    result: list[int] = []
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))
