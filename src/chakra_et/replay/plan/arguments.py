"""The arguments and results of a recorded call, parsed: tensors as `Recorded`, all else as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chakra_et.replay.communications.arguments import decode_list, torch_dtype

__all__ = ["Opaque", "Recorded", "parse_values", "tensors_in"]

Texts = dict[str, "str | None"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A tensor as a trace tells it.

    Attributes:
        tensor: Number of the tensor object; numbers are used again when objects are gone.
        storage: Number of its storage; used again likewise.
        offset: First element in the storage.
        shape: Its shape.
        strides: Strides in elements; contiguous where the trace doesn't tell.
        dtype: Torch's name of the element type.
        item_bytes: Bytes of an element.
        device: Device, such as ``cuda:0``.
        strides_told: False if the strides are a guess.
    """

    tensor: int
    storage: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    item_bytes: int
    device: str
    strides_told: bool = True

    @property
    def extent_bytes(self) -> int:
        """Bytes of the storage up to the tensor's last element."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (self.offset + last + 1) * self.item_bytes


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that the trace doesn't hold: an object of the process, a random number generator that isn't the default.

    Attributes:
        type: What the trace calls it.
    """

    type: str


def parse_values(texts: Texts | None, strides: str | None) -> tuple[Any, ...] | None:
    """Parse the inputs or outputs of a call.

    Args:
        texts: Values, shapes and types, each a JSON list, as in the columns `inputs` and `outputs`.
        strides: JSON list of strides, or None.

    Returns:
        A value for each: `Recorded`, `Opaque`, None, a number, a text, or tuples of such; None if they can't be read.

    Example:
        >>> texts = {"values": '[[7,8,0,6,4,"cpu"],1]', "shapes": "[[2,3],[]]", "types": '["Tensor(float)","Int"]'}
        >>> tensor, number = parse_values(texts, None)
        >>> tensor.dtype, tensor.strides, number
        ('float32', (3, 1), 1)
    """
    if texts is None:
        return ()
    values, shapes, types = (decode_list(texts.get(name)) for name in ("values", "shapes", "types"))
    steps = decode_list(strides)
    if values is None or shapes is None or types is None or not len(values) == len(shapes) == len(types):
        return None
    steps = steps if steps is not None and len(steps) == len(values) else [None] * len(values)
    try:
        return tuple(_value(*each) for each in zip(values, shapes, types, steps, strict=True))
    except (AttributeError, TypeError, ValueError, IndexError):
        return None


def tensors_in(value: Any) -> Iterator[Recorded]:
    """Return all tensors in a value, in order."""
    if isinstance(value, Recorded):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from tensors_in(part)


def _value(value: Any, shape: Any, kind: str, strides: Any) -> Any:
    if kind.startswith("GenericList[") or kind.startswith("Tuple["):
        inner = kinds_in(kind)
        told = strides if isinstance(strides, list) and len(strides) == len(value) else [None] * len(value)
        shapes = shape if isinstance(shape, list) and len(shape) == len(value) else [[]] * len(value)
        return tuple(_value(*each) for each in zip(value, shapes, inner, told, strict=True))
    if kind.startswith("Tensor("):
        return _tensor(value, shape, kind, strides)
    if kind == "None" or (value == "<None>" and kind != "String"):
        return None
    if kind in ("Object", "PyObject", "Generator", "Stream", "Capsule") or _is_opaque(value, kind):
        return Opaque(kind)
    if kind == "Double":
        return float(value)
    return value


def _is_opaque(value: Any, kind: str) -> bool:
    return isinstance(value, str) and kind != "String" and value.startswith("<") and value.endswith(">")


def _tensor(value: Any, shape: Any, kind: str, strides: Any) -> Recorded | None:
    dtype = torch_dtype(kind)
    tensor, storage, offset, _, item_bytes, device = value
    if not dtype or not device:
        return None
    sizes = tuple(map(int, shape))
    told = isinstance(strides, list) and len(strides) == len(sizes)
    steps = tuple(map(int, strides)) if told else _contiguous(sizes)
    return Recorded(tensor, storage, offset, sizes, steps, dtype, item_bytes, device, told or not sizes)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def kinds_in(kind: str) -> list[str]:
    """Cut the types in a list's type apart.

    Example:
        >>> kinds_in("GenericList[GenericList[Tensor(float)],Int]")
        ['GenericList[Tensor(float)]', 'Int']
    """
    inside = kind[kind.index("[") + 1 : -1]
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(inside):
        if char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
        elif char == "," and not depth:
            parts.append(inside[begin:at])
            begin = at + 1
    return [*parts, inside[begin:]] if inside else []
