"""The arguments of a call, from the JSON texts of the node table.

Three dialects are read: profiles (``"float"`` beside ``[8, 16]``; a scalar or list of numbers only among the values,
as text; a list of tensors as ``"TensorList"`` with nested shapes and no element type), old profiles (no values, and
``[]`` for the shapes of a list), and execution traces (``"Tensor(float)"``, ``"GenericList[Tensor(float),Int]"``,
values with tensor numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import msgspec

from chakra_et.analysis.op_work.dtypes import KINDS, SCALAR_TYPES
from chakra_et.analysis.op_work.tensor import Shape, Tensor
from chakra_et.analysis.op_work.work import NoModelError

__all__ = ["Argument", "Call", "parse_call"]

# A tensor, a list of them (None inside: an absent one), or what the trace recorded as a value.
Argument = Any

_WORDS = {"True": True, "False": False, "": None, "None": None, "<None>": None}
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator.

    Attributes:
        name: Operator.
        arguments: Each a `Tensor`, a tuple of tensors, a number, a text, a list of numbers, or None: absent, or not
            recorded.
        outputs: Tensors that it returned; empty if not recorded.
    """

    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[Tensor, ...] = ()

    def optional(self, index: int) -> Tensor | None:
        """Return the tensor at a position, or None if there is none."""
        value = self.arguments[index] if index < len(self.arguments) else None
        return value if isinstance(value, Tensor) else None

    def tensor(self, index: int, *dimensions: int) -> Tensor:
        """Return the tensor at a position.

        Args:
            index: Position.
            dimensions: How many dimensions it may have; any number if empty.

        Raises:
            NoModelError: There is no such tensor.
        """
        tensor = self.optional(index)
        if tensor is None or (dimensions and len(tensor.shape) not in dimensions):
            raise NoModelError
        return tensor

    def tensors(self, index: int) -> tuple[Tensor, ...]:
        """Return the tensors of the list at a position.

        Raises:
            NoModelError: There is no list, or its tensors weren't recorded.
        """
        value = self.arguments[index] if index < len(self.arguments) else None
        found = tuple(item for item in value if isinstance(item, Tensor)) if isinstance(value, tuple) else ()
        if not found:
            raise NoModelError
        return found

    def flat(self) -> tuple[Tensor, ...]:
        """Return all tensors, those in lists included, in order."""
        found: list[Tensor] = []
        for value in self.arguments:
            items = value if isinstance(value, tuple) else (value,)
            found.extend(item for item in items if isinstance(item, Tensor))
        return tuple(found)

    def value(self, index: int) -> Argument:
        """Return the value at a position that isn't a tensor's; None if absent or not recorded."""
        value = self.arguments[index] if index < len(self.arguments) else None
        return None if isinstance(value, Tensor | tuple) else value

    def flag(self, index: int) -> bool | None:
        """Return the truth value at a position; None if not recorded."""
        value = self.value(index)
        return bool(value) if isinstance(value, bool | int) else None

    def number(self, index: int) -> float | None:
        """Return the number at a position; None if not recorded."""
        value = self.value(index)
        return value if isinstance(value, int | float) else None

    def integers(self, index: int) -> Shape | None:
        """Return the list of whole numbers at a position (a single one as a list); None if not recorded."""
        value = self.value(index)
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,)
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            return None
        return tuple(value)

    def kind(self, index: int) -> str | None:
        """Return the element type that a `dtype` argument asks for; None if not recorded."""
        value = self.value(index)
        return SCALAR_TYPES.get(value) if isinstance(value, int) else None

    def result(self, arity: int, inferred: Tensor) -> Tensor:
        """Return the tensor that the call writes.

        Args:
            arity: Number of arguments in the operator's schema: an `out=` tensor is recorded after them.
            inferred: What follows from the inputs, for a trace that doesn't record outputs.
        """
        given = self.optional(arity)
        return given or (self.outputs[0] if self.outputs else inferred)


def parse_call(
    name: str,
    inputs: tuple[str | None, str | None, str | None],
    outputs: tuple[str | None, str | None],
    *,
    strides: str | None = None,
    list_kind: str | None = None,
) -> Call:
    """Read one call.

    Args:
        name: Operator.
        inputs: JSON texts of shapes, types and values; null or empty where not recorded.
        outputs: JSON texts of shapes and types.
        strides: JSON text of the inputs' strides.
        list_kind: Element type to take for tensors in lists, whose types profiles don't record.
    """
    shapes, types, values = map(_array, inputs)
    arguments = _arguments(shapes, types, values, _array(strides), list_kind)
    out_shapes, out_types = map(_array, outputs)
    results = _arguments(out_shapes, out_types, [], [], list_kind)
    return Call(name, arguments, Call("", results).flat())


def _array(text: str | None) -> list[Any]:
    if not text:
        return []
    try:
        value = _decode(text)
    except msgspec.DecodeError:
        return []
    return value if isinstance(value, list) else []


def _arguments(
    shapes: list[Any], types: list[Any], values: list[Any], strides: list[Any], list_kind: str | None
) -> tuple[Argument, ...]:
    return tuple(
        _argument(
            str(name),
            shapes[index] if index < len(shapes) else [],
            values[index] if index < len(values) else None,
            strides[index] if index < len(strides) else None,
            list_kind,
        )
        for index, name in enumerate(types)
    )


def _argument(name: str, shape: Any, value: Any, strides: Any, list_kind: str | None) -> Argument:
    if name in KINDS:
        return _tensor(KINDS[name], shape, value, strides)
    if name.startswith("Tensor("):
        inner = name[7:-1]
        return None if inner.startswith("nullptr") else _tensor(KINDS.get(inner, ""), shape, value, strides)
    if name.startswith(("GenericList[Tensor(", "GenericList[None,Tensor(", "TensorList", "Tuple[Tensor(")):
        return _tensor_list(name, shape, value, strides, list_kind)
    if name.startswith("c10::") and _is_shape(shape):
        return _tensor("", shape, value, strides)
    return _plain(value)


def _tensor_list(name: str, shapes: Any, values: Any, strides: Any, list_kind: str | None) -> tuple[Argument, ...]:
    if not isinstance(shapes, list):
        return ()
    types = [""] * len(shapes) if name == "TensorList" else _split(name[name.index("[") + 1 : -1])
    values = values if isinstance(values, list) else []
    strides = strides if isinstance(strides, list) else []
    items = []
    for index, shape in enumerate(shapes[: len(types)]):
        value = values[index] if index < len(values) else None
        own = strides[index] if index < len(strides) else None
        if types[index]:
            items.append(_argument(types[index], shape, value, own, list_kind))
        else:
            items.append(_tensor(list_kind or "", shape, value, own))
    return tuple(items)


def _split(text: str) -> list[str]:
    """Split a list of types at its top-level commas."""
    if "[" not in text:
        return text.split(",")
    parts, depth, begin = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append(text[begin:position])
            begin = position + 1
    return [*parts, text[begin:]]


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _tensor(kind: str, shape: Any, value: Any, strides: Any) -> Tensor | None:
    if not _is_shape(shape):
        return None
    is_record = isinstance(value, list) and len(value) >= 6 and isinstance(value[0], int)
    own = tuple(strides) if isinstance(strides, list) and all(type(item) is int for item in strides) else None
    return Tensor(tuple(shape), kind, own, value[0] if is_record else None)


def _plain(value: Any) -> Argument:
    """Read a number, list or text, which profiles write as text in Python's spelling."""
    if not isinstance(value, str):
        return value
    if value in _WORDS:
        return cast(object, _WORDS[value])
    if value[0] in "-0123456789[":
        text = value.replace("True", "true").replace("False", "false")
        try:
            return _decode(text + "0" if text.endswith(".") else text)
        except msgspec.DecodeError:
            return value
    return value
