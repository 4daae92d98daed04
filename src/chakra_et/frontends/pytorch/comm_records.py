"""Communication arguments on the host side: ``record_param_comms`` in every version's order, and ``c10d::`` calls.

``record_param_comms`` lists its arguments by position, and the positions changed: tensors (absent for waits and
barriers), a sequence number (alone, or with a point-to-point flag), the group (a pointer up to 1.0.2, then name and
description), the rank, the collective's name, the split sizes in and out, then up to 1.0.2 the world size, later the
group's first global rank, stride and size. What a value is follows from its type and from which side of the name it
stands, so one reader serves all versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from chakra_et.frontends.pytorch.names import collective_of, dtype_bytes
from chakra_et.ir.enums import CommType

__all__ = ["CommRecord", "parse_c10d", "parse_records", "range_bytes", "tensor_bytes"]


@dataclass(frozen=True, slots=True)
class CommRecord:
    """The arguments of one communication on the host side.

    Attributes:
        name: Collective name as recorded.
        in_bytes: Bytes of the input tensors, 0 if unknown.
        out_bytes: Bytes of the output tensors, 0 if unknown.
        dtype: Element type as recorded.
        group: Group name, or its pointer as text; empty if unknown.
        description: Group description.
        size: Group size, 0 if unknown.
        rank: Rank in the group, the peer of a point-to-point call, or the root of a rooted collective; None if unknown.
        seq: Sequence number, -1 if unknown.
        start_rank: First global rank of the group, -1 if unknown.
        stride: Stride of the group's global ranks, -1 if unknown.
        in_split: Split sizes in, JSON; empty for even.
        out_split: Split sizes out, JSON; empty for even.
        peer: Destination or source (group rank) of a point-to-point call, None else.
        tag: Tag of a point-to-point call, None else.
        root: Root (group rank) of a rooted collective, None else.
        is_async: False if the call waits by itself; None if unknown.
    """

    name: str
    in_bytes: int = 0
    out_bytes: int = 0
    dtype: str = ""
    group: str = ""
    description: str = ""
    size: int = 0
    rank: int | None = None
    seq: int = -1
    start_rank: int = -1
    stride: int = -1
    in_split: str = ""
    out_split: str = ""
    peer: int | None = None
    tag: int | None = None
    root: int | None = None
    is_async: bool | None = None


_ROOTED = (CommType.BROADCAST, CommType.REDUCE, CommType.GATHER, CommType.SCATTER)


def parse_records(nodes: pl.DataFrame) -> dict[int, CommRecord]:
    """Parse every ``record_param_comms`` row of `HostTrace.nodes`; keys are row numbers."""
    rows = nodes.with_row_index("row").filter(pl.col("name") == "record_param_comms")
    found: dict[int, CommRecord] = {}
    for row in rows.iter_rows(named=True):
        record = _parse_record(row)
        if record is not None:
            found[row["row"]] = record
    return found


def _decode(text: str | None) -> list[Any]:
    try:
        value = msgspec.json.decode(text) if text else []
    except msgspec.DecodeError:
        return []
    return value if isinstance(value, list) else []


def _parse_record(row: dict[str, Any]) -> CommRecord | None:
    values, types = _decode(row["input_values"]), _decode(row["input_types"])
    if len(values) != len(types):
        return None
    name_at = next((i for i, kind in enumerate(types) if kind == "String" and isinstance(values[i], str)), -1)
    if name_at < 0:
        return None
    before, after = range(name_at), range(name_at + 1, len(values))
    tensors = next((i for i in before if "Tensor(" in str(types[i])), -1)
    numbers = [values[i] for i in before if types[i] == "Int" and _fits(values[i])]
    group, description = "", ""
    for i in before:
        if str(types[i]).startswith("Tuple") and len(values[i]) == 2:
            if all(isinstance(part, str) for part in values[i]):
                group, description = values[i]
            elif isinstance(values[i][0], int):
                numbers.insert(0, values[i][0])
    named = any(str(types[i]).startswith("Tuple[String") for i in before)
    if not named and len(numbers) >= 3:
        group = str(numbers[1])
    splits = [_split_text(values[i]) for i in after if isinstance(values[i], list)]
    tail = [values[i] for i in after if types[i] == "Int"]
    size = tail[-1] if tail else 0
    return CommRecord(
        name=values[name_at],
        in_bytes=tensor_bytes(values[tensors]) if tensors >= 0 else 0,
        out_bytes=tensor_bytes(_decode(row["output_values"])),
        dtype=_first_dtype(str(types[tensors])) if tensors >= 0 else "",
        group=group if group not in ("0", "") or named else "",
        description=description,
        size=int(size) if named or len(tail) == 1 else 0,
        rank=numbers[-1] if numbers else None,
        seq=numbers[0] if numbers else -1,
        start_rank=tail[0] if named and len(tail) >= 3 else -1,
        stride=tail[1] if named and len(tail) >= 3 else -1,
        in_split=splits[0] if splits else "",
        out_split=splits[1] if len(splits) > 1 else "",
        root=numbers[-1] if numbers and collective_of(values[name_at]) in _ROOTED else None,
    )


def _fits(value: Any) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _split_text(value: list[Any]) -> str:
    return msgspec.json.encode(value).decode() if value else ""


def tensor_bytes(value: Any) -> int:
    """Return the bytes of all tensor records in a nested list."""
    if not isinstance(value, list):
        return 0
    if len(value) == 6 and isinstance(value[5], str) and all(isinstance(part, int) for part in value[:5]):
        return _plausible(int(value[3]) * int(value[4]))
    return _plausible(sum(tensor_bytes(part) for part in value))


def _plausible(size: int) -> int:
    """Return a size in bytes, 0 (unknown) for one that no tensor has."""
    return size if 0 <= size < 2**62 else 0


def _first_dtype(kind: str) -> str:
    start = kind.find("Tensor(")
    return kind[start + 7 : kind.find(")", start)] if start >= 0 else ""


# c10d operator -> (input argument, output argument): positions of the tensors that a rank sends and receives.
_C10D: dict[str, tuple[int, int]] = {
    "allreduce_": (0, 0),
    "allreduce_coalesced_": (0, 0),
    "broadcast_": (0, 0),
    "reduce_": (0, 0),
    "allgather_": (1, 0),
    "_allgather_base_": (1, 0),
    "allgather_coalesced_": (1, 0),
    "allgather_into_tensor_coalesced_": (1, 0),
    "reduce_scatter_": (1, 0),
    "_reduce_scatter_base_": (1, 0),
    "reduce_scatter_tensor_coalesced_": (1, 0),
    "gather_": (1, 0),
    "scatter_": (1, 0),
    "alltoall_": (1, 0),
    "alltoall_base_": (1, 0),
    "barrier": (-1, -1),
    "send": (0, 0),
    "recv_": (0, 0),
    "recv_any_source_": (0, 0),
}
# Positions of (root or peer, tag, async flag); None: no such argument.
_C10D_ARGUMENTS: dict[str, tuple[int | None, int | None, int | None]] = {
    "allreduce_": (None, None, 4),
    "broadcast_": (2, None, 4),
    "reduce_": (3, None, 5),
    "allgather_": (None, None, 3),
    "_allgather_base_": (None, None, 3),
    "reduce_scatter_": (None, None, 4),
    "_reduce_scatter_base_": (None, None, 4),
    "gather_": (3, None, 4),
    "scatter_": (3, None, 4),
    "alltoall_": (None, None, 3),
    "alltoall_base_": (None, None, 5),
    "barrier": (None, None, 3),
    "send": (2, 3, None),
    "recv_": (2, 3, None),
}


def parse_c10d(
    name: str, *, dims: str, types: str, values: str, et_values: str, et_types: str, dtype: str = ""
) -> CommRecord:
    """Parse one ``c10d::`` call.

    Args:
        name: Operator name.
        dims: JSON of the profile's ``Input Dims``.
        types: JSON of the profile's ``Input type``.
        values: JSON of the profile's ``Concrete Inputs``.
        et_values: JSON of the execution trace's input values; empty if there is none.
        et_types: JSON of the execution trace's input types.
        dtype: Element type to take where the profile only says ``TensorList``.
    """
    short = name.removeprefix("c10d::")
    source, target = _C10D.get(short, (0, 0))
    spot, tag_at, async_at = _C10D_ARGUMENTS.get(short, (None, None, None))
    plain, kinds = _decode(et_values), _decode(et_types)
    concrete = plain or _decode(values)
    sizes = [0, 0]
    fallback, dtype = dtype, ""
    for index, position in enumerate((source, target)):
        if 0 <= position < len(plain):
            sizes[index] = tensor_bytes(plain[position])
            dtype = dtype or _first_dtype(str(kinds[position]) if position < len(kinds) else "")
        elif position >= 0:
            sizes[index], found = _dims_bytes(_decode(dims), _decode(types), position, fallback)
            dtype = dtype or found
    number = _number(concrete, spot)
    point = short in ("send", "recv_", "recv_any_source_")
    return CommRecord(
        name=short,
        in_bytes=sizes[0],
        out_bytes=sizes[1],
        dtype=dtype,
        size=_group_size(short, plain),
        in_split=_splits(concrete, 4) if short == "alltoall_base_" else "",
        out_split=_splits(concrete, 3) if short == "alltoall_base_" else "",
        peer=number if point else None,
        tag=_number(concrete, tag_at) if point else None,
        root=None if point else number,
        is_async=_flag(concrete, async_at),
    )


def _dims_bytes(dims: list[Any], types: list[Any], position: int, fallback: str) -> tuple[int, str]:
    if position >= len(dims):
        return 0, ""
    kind = str(types[position]) if position < len(types) else ""
    # The profile doesn't tell the element type of a tensor list.
    kind = fallback if kind in ("TensorList", "") else kind
    return _plausible(_elements(dims[position]) * dtype_bytes(kind)), kind


def _elements(shape: Any) -> int:
    if not isinstance(shape, list):
        return 0
    if shape and isinstance(shape[0], list):
        return sum(_elements(part) for part in shape)
    total = 1
    for size in shape:
        total *= int(size) if isinstance(size, int) else 0
    return total


def range_bytes(dims: str, types: str) -> tuple[int, str]:
    """Return bytes and element type of the arguments of a ``gloo:*`` or ``nccl:*`` annotation."""
    shapes, kinds = _decode(dims), _decode(types)
    total, dtype = 0, ""
    for shape, kind in zip(shapes, kinds, strict=False):
        if dtype_bytes(str(kind)):
            total += _elements(shape) * dtype_bytes(str(kind))
            dtype = dtype or str(kind)
    return _plausible(total), dtype


def _number(values: list[Any], position: int | None) -> int | None:
    if position is None or position >= len(values):
        return None
    try:
        number = int(values[position])
    except (TypeError, ValueError, OverflowError):
        return None
    return number if -(2**31) <= number < 2**31 else None


def _flag(values: list[Any], position: int | None) -> bool | None:
    if position is None or position >= len(values):
        return None
    return {"true": True, "false": False}.get(str(values[position]).lower())


def _splits(values: list[Any], position: int) -> str:
    if position >= len(values):
        return ""
    value = values[position]
    if isinstance(value, str):
        value = _decode(value)
    return _split_text(value) if isinstance(value, list) else ""


def _group_size(short: str, plain: list[Any]) -> int:
    """Read the group's size off lists that hold one tensor a member."""
    if short in ("allgather_", "gather_", "scatter_", "reduce_scatter_", "alltoall_") and plain:
        for position in (0, 1):
            value = plain[position] if position < len(plain) else None
            if short == "alltoall_":
                return len(value) if isinstance(value, list) else 0
            if (
                isinstance(value, list)
                and value
                and isinstance(value[0], list)
                and value[0]
                and isinstance(value[0][0], list)
            ):
                return len(value[0])
    if short in ("_allgather_base_", "_reduce_scatter_base_") and len(plain) > 1:
        small, large = sorted((tensor_bytes(plain[0]), tensor_bytes(plain[1])))
        return large // small if small else 0
    return 0
