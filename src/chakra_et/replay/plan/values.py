"""Which values the integer tensors that a replay draws may have: indices must lie inside what they index.

A rule looks at one call and says of its index tensors how far they may go. A rule holds for what the tensor was copied
or viewed from, too: targets are often reshaped first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import msgspec

from chakra_et.replay.plan.arguments import Recorded, tensors_in

__all__ = ["KEEPING", "bounds_of", "recorded_bounds"]

Values = Mapping[str, Any]
Bound = tuple[Recorded, int, int]
Rule = Callable[[Values], Iterator[Bound]]

_INTEGER = frozenset({"int64", "int32", "int16", "int8", "uint8"})

# Operators whose result has the values of its first tensors.
KEEPING = frozenset(
    "aten::" + name
    for name in (
        "to", "_to_copy", "clone", "contiguous", "reshape", "view", "flatten", "copy", "detach", "lift_fresh",
        "pin_memory", "_pin_memory", "index_select", "gather", "cat", "concat", "concatenate", "stack", "repeat",
        "flip", "roll", "select", "slice", "narrow", "expand", "expand_as", "unsqueeze", "squeeze", "transpose",
        "permute", "t", "split", "chunk", "unbind", "alias", "view_as", "_reshape_alias", "as_strided", "unfold",
        "index", "ravel", "broadcast_to", "clamp",
    )
)  # fmt: skip


def bounds_of(name: str, values: Values) -> Iterator[Bound]:
    """Return the integer tensors that a call uses as indices, each with the lowest and highest value it may have.

    Args:
        name: Name of the operator.
        values: Its arguments by name.

    Example:
        >>> weight = Recorded(1, 1, 0, (10, 4), (4, 1), "float32", 4, "cpu")
        >>> indices = Recorded(2, 2, 0, (6,), (1,), "int64", 8, "cpu")
        >>> [(low, high) for _, low, high in bounds_of("aten::embedding", {"weight": weight, "indices": indices})]
        [(0, 9)]
    """
    rule = _RULES.get(name.removeprefix("aten::").rstrip("_"))
    if rule is None or not name.startswith("aten::"):
        return
    for tensor, low, high in rule(values):
        if tensor.dtype in _INTEGER:
            yield tensor, low, max(high, low)


def recorded_bounds(text: Any, arguments: tuple[Any, ...]) -> Iterator[Bound]:
    """Return the recorded ranges of a call's integer tensors.

    Args:
        text: The node's attribute ``tensor_range``: JSON, place of the argument -> lowest and highest value.
        arguments: The call's arguments.
    """
    try:
        ranges = msgspec.json.decode(text or "{}", type=dict[str, list[int]])
    except (msgspec.DecodeError, TypeError):
        return
    for place, span in ranges.items():
        if place.isdecimal() and int(place) < len(arguments) and len(span) == 2:
            for tensor in tensors_in(arguments[int(place)]):
                yield tensor, span[0], span[1]


def _size(tensor: Any, dim: Any) -> int | None:
    fits = isinstance(tensor, Recorded) and isinstance(dim, int) and -len(tensor.shape) <= dim < len(tensor.shape)
    return tensor.shape[dim] if fits else None


def _along(index: str, of: str = "self", dim: str = "dim") -> Rule:
    """Return the rule of an index along a dimension of a tensor."""

    def rule(values: Values) -> Iterator[Bound]:
        size = _size(values.get(of), values.get(dim))
        if size is not None and isinstance(values.get(index), Recorded):
            yield values[index], 0, size - 1

    return rule


def _rows(index: str, of: str) -> Rule:
    """Return the rule of an index of rows: `of` is a tensor or their number."""

    def rule(values: Values) -> Iterator[Bound]:
        rows = values.get(of)
        size = rows if isinstance(rows, int) and not isinstance(rows, bool) else _size(rows, 0)
        if size is not None and size > 0 and isinstance(values.get(index), Recorded):
            yield values[index], 0, size - 1

    return rule


def _classes(values: Values) -> Iterator[Bound]:
    scores, target = values.get("self"), values.get("target")
    size = _size(scores, 1 if isinstance(scores, Recorded) and len(scores.shape) > 1 else 0)
    if size is not None and isinstance(target, Recorded):
        yield target, 0, size - 1


def _bags(values: Values) -> Iterator[Bound]:
    yield from _rows("indices", "weight")(values)
    if isinstance(values.get("offsets"), Recorded):
        # Offsets ascend from 0: one full bag is the only thing that a range can say.
        yield values["offsets"], 0, 0


def _each_dimension(values: Values) -> Iterator[Bound]:
    data, indices = values.get("self"), values.get("indices")
    if not isinstance(data, Recorded) or not isinstance(indices, tuple):
        return
    dim = 0
    for index in indices:
        masks = isinstance(index, Recorded) and index.dtype in ("bool", "uint8")
        if isinstance(index, Recorded) and not masks and dim < len(data.shape):
            yield index, 0, data.shape[dim] - 1
        dim += len(index.shape) if masks else 1


def _everywhere(index: str, of: str, dims: int = 0) -> Rule:
    """Return the rule of an index of elements, over the last `dims` dimensions (0: all)."""

    def rule(values: Values) -> Iterator[Bound]:
        data = values.get(of)
        if isinstance(data, Recorded) and isinstance(values.get(index), Recorded):
            yield values[index], 0, prod(data.shape[-dims:] if dims else data.shape) - 1

    return rule


_ALONG = (
    "index_select", "gather", "gather_backward", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy",
    "index_fill", "index_reduce",
)  # fmt: skip
_CLASSES = (
    "cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward", "nll_loss_backward",
    "nll_loss2d_forward", "nll_loss2d_backward", "multi_margin_loss",
)  # fmt: skip
_INDEXED = ("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put")
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_ALONG, _along("index")),
    **dict.fromkeys(_CLASSES, _classes),
    **dict.fromkeys(_INDEXED, _each_dimension),
    "take_along_dim": _along("indices"),
    "embedding": _rows("indices", "weight"),
    "embedding_renorm": _rows("indices", "self"),
    "embedding_dense_backward": _rows("indices", "num_weights"),
    "embedding_backward": _rows("indices", "num_weights"),
    "embedding_bag": _bags,
    "_embedding_bag": _bags,
    "_embedding_bag_forward_only": _bags,
    "_embedding_bag_backward": _rows("indices", "num_weights"),
    "_embedding_bag_dense_backward": _rows("indices", "num_weights"),
    "one_hot": _rows("self", "num_classes"),
    "take": _everywhere("index", "self"),
    "put": _everywhere("index", "self"),
    "max_pool2d_with_indices_backward": _everywhere("indices", "self", 2),
    "max_pool3d_with_indices_backward": _everywhere("indices", "self", 3),
    "adaptive_max_pool2d_backward": _everywhere("indices", "self", 2),
}
