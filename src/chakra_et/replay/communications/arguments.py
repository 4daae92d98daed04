"""What the arguments of a recorded `c10d::*` call say: tensors, splits, root or peer, tag.

Arguments are known by the names in the operator's schema; where a trace lacks it, by the order that torch 2 has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from chakra_et.replay.communications.call import item_bytes

__all__ = ["Arguments", "assume_arguments", "decode_list", "parse_arguments", "torch_dtype"]

Shapes = tuple[tuple[int, ...], ...]

_NAMES = {
    "allreduce_": "tensors process_group reduce_op sparse_indices",
    "allreduce_coalesced_": "tensors process_group reduce_op",
    "broadcast_": "tensors process_group root_rank root_tensor",
    "reduce_": "tensors process_group reduce_op root_rank root_tensor",
    "allgather_": "output_tensors input_tensors process_group",
    "_allgather_base_": "output_tensor input_tensor process_group",
    "allgather_coalesced_": "output_lists input_list process_group",
    "allgather_into_tensor_coalesced_": "outputs inputs process_group",
    "reduce_scatter_": "output_tensors input_tensors process_group reduce_op",
    "_reduce_scatter_base_": "output_tensor input_tensor process_group reduce_op",
    "reduce_scatter_tensor_coalesced_": "outputs inputs process_group reduce_op",
    "gather_": "output_tensors input_tensors process_group root_rank",
    "scatter_": "output_tensors input_tensors process_group root_rank",
    "alltoall_": "output_tensors input_tensors process_group",
    "alltoall_base_": "output input process_group output_split_sizes input_split_sizes",
    "barrier": "tensor process_group device_ids",
    "send": "tensors process_group dst tag",
    "recv_": "tensors process_group src tag",
    "recv_any_source_": "tensors process_group tag",
}
_RECEIVES = ("recv_", "recv_any_source_")
_DTYPES = {
    "double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16", "long int": "int64",
    "long": "int64", "int": "int32", "short int": "int16", "short": "int16", "signed char": "int8", "char": "int8",
    "unsigned char": "uint8", "byte": "uint8", "bool": "bool", "complexfloat": "complex64",
    "complex<float>": "complex64", "complexdouble": "complex128", "complex<double>": "complex128",
    "complex<half>": "complex32", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
    "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz", "unsigned short": "uint16",
    "unsigned int": "uint32", "unsigned long": "uint64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call.

    Attributes:
        inputs: Shapes of the tensors that the rank gives.
        outputs: Shapes of the tensors that the rank gets.
        dtype: Torch's name of the element type; empty if unknown.
        in_splits: Rows for each rank, empty if even.
        out_splits: Rows from each rank, empty if even.
        root: Root as a rank of the group, or None.
        peer: Destination or source as a rank of the group, or None.
        tag: Tag, or None.
        asynchronous: False if the call waits; None if the arguments don't tell.
        storages: Ids of the tensors' storages.
    """

    inputs: Shapes
    outputs: Shapes
    dtype: str
    in_splits: tuple[int, ...]
    out_splits: tuple[int, ...]
    root: int | None
    peer: int | None
    tag: int | None
    asynchronous: bool | None
    storages: tuple[int, ...]


def parse_arguments(kind: str, schema: str | None, inputs: dict[str, str | None] | None) -> Arguments | None:
    """Parse a call.

    Args:
        kind: The operator's name without ``c10d::``.
        schema: Its schema, or None.
        inputs: Values, shapes and types, each a JSON list, as in the column `inputs`.

    Returns:
        The arguments; None if they don't tell the tensors (a profile without an execution trace).
    """
    fields = {name: decode_list((inputs or {}).get(name)) or [] for name in ("values", "shapes", "types")}
    values, shapes, types = fields["values"], fields["shapes"], fields["types"]
    names = _schema_names(schema) if schema else _NAMES.get(kind, "").split()
    if not values or len(shapes) != len(values) or len(types) != len(values) or len(names) > len(values) + 2:
        return None
    place = {name: index for index, name in enumerate(names[: len(values)])}
    given, taken = _tensor_places(kind, place)
    if given is None and taken is None:
        return None
    at = {name: values[index] for name, index in place.items()}
    both = [index for index in (given, taken) if index is not None]
    return Arguments(
        inputs=_shapes(values[given], shapes[given]) if given is not None else (),
        outputs=_shapes(values[taken], shapes[taken]) if taken is not None else (),
        dtype=next(filter(None, (torch_dtype(str(types[index])) for index in both)), ""),
        in_splits=_integers(at.get("input_split_sizes")),
        out_splits=_integers(at.get("output_split_sizes")),
        root=_integer(at.get("root_rank")),
        peer=_integer(at.get("dst", at.get("src"))),
        tag=_integer(at.get("tag")),
        asynchronous=next((value for value in values if isinstance(value, bool)), None),
        storages=tuple(dict.fromkeys(number for index in both for number in _storages(values[index]))),
    )


def assume_arguments(kind: str, columns: Mapping[str, Any], members: int) -> Arguments | None:
    """Return flat tensors of the size that a communication's columns tell.

    Args:
        kind: The operator's name without ``c10d::``.
        columns: The columns of its node: ``comm_size`` and so on.
        members: Ranks in its group.

    Returns:
        The arguments; None if the columns don't tell the size.
    """
    dtype = torch_dtype(columns["comm_dtype"] or "") or "uint8"
    count = -(-(columns["comm_size"] or 0) // item_bytes(dtype))
    if not count and kind != "barrier":
        return None
    splits = [_split_list(columns[name], members) for name in ("in_split_sizes", "out_split_sizes")]
    if kind != "alltoall_base_" or not all(splits):
        splits = [(), ()]
    each = -(-count // members)
    even = each * members
    given, taken = {
        "_allgather_base_": ([count], [count * members]),
        "_reduce_scatter_base_": ([even], [each]),
        "gather_": ([count], [count] * members),
        "scatter_": ([count] * members, [count]),
        "alltoall_base_": ([sum(splits[0]) or even], [sum(splits[1]) or even]),
        "send": ([count], []),
        "recv_": ([], [count]),
    }.get(kind, ([count], [count]))
    shapes = [tuple((size,) for size in sizes) for sizes in (given, taken)]
    return Arguments(shapes[0], shapes[1], dtype, splits[0], splits[1], None, None, None, None, ())


def torch_dtype(text: str) -> str:
    """Return torch's name of an element type as profiles spell it; empty if unknown.

    Example:
        >>> torch_dtype("GenericList[Tensor(c10::BFloat16)]"), torch_dtype("Long"), torch_dtype("float")
        ('bfloat16', 'int64', 'float32')
    """
    inner = text.partition("Tensor(")[2].partition(")")[0] or text
    name = inner.removeprefix("c10::").lower()
    return _DTYPES.get(name, name if name in _DTYPES.values() else "")


def _tensor_places(kind: str, place: dict[str, int]) -> tuple[int | None, int | None]:
    """Return where the tensors stand that are given, and those that are filled."""
    for name in ("tensors", "tensor"):
        if name in place:
            # A send gives, a receive takes; all others work in place.
            return (None if kind in _RECEIVES else place[name]), (None if kind == "send" else place[name])
    given = next((place[name] for name in ("input_tensors", "input_tensor", "input_list", "inputs", "input")
                  if name in place), None)  # fmt: skip
    taken = next((place[name] for name in ("output_tensors", "output_tensor", "output_lists", "outputs", "output")
                  if name in place), None)  # fmt: skip
    return given, taken


def _schema_names(schema: str) -> list[str]:
    """Return the names of the arguments, in order.

    Example:
        >>> _schema_names("c10d::send(Tensor[] tensors, int dst=1, int tag) -> Work")
        ['tensors', 'dst', 'tag']
    """
    inside = schema.partition("(")[2].partition(") ->")[0]
    return [part.partition("=")[0].split()[-1] for part in inside.split(", ") if part.strip() not in ("", "*")]


def _shapes(value: Any, shape: Any) -> Shapes:
    """Return the shapes of the tensors in a value: one tensor, or a list of any depth, which may be empty."""
    if not isinstance(value, list) or not isinstance(shape, list):
        return ()
    if _is_tensor(value):
        return (tuple(shape),) if all(isinstance(size, int) for size in shape) else ()
    return tuple(found for one, size in zip(value, shape, strict=False) for found in _shapes(one, size))


def _is_tensor(value: list[Any]) -> bool:
    return len(value) == 6 and isinstance(value[5], str) and isinstance(value[1], int)


def _storages(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    if _is_tensor(value):
        return (value[1],)
    return tuple(number for part in value for number in _storages(part))


def _split_list(text: str | None, members: int) -> tuple[int, ...]:
    found = _integers(decode_list(text))
    return found if len(found) == members else ()


def _integers(value: Any) -> tuple[int, ...]:
    fits = isinstance(value, list) and all(isinstance(part, int) for part in value)
    return tuple(value) if fits else ()


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def decode_list(text: str | None) -> list[Any] | None:
    """Return a list that is written as JSON; None where there is none, or none that can be read.

    Example:
        >>> decode_list("[1, [2]]"), decode_list("[1,"), decode_list(None)
        ([1, [2]], None, None)
    """
    try:
        value = msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, list) else None
