"""Values that a program asks of tensors that have none.

A fake tensor has a shape and no values. Programs ask for some all the same: a loss to print, a flag to test, and in
mixtures of experts how many tokens go where. The former get a plausible constant; the latter come from a routing model:
counts of tokens by expert (``bincount``, ``histc``) are made up, kept beside the fake tensor, and followed through
views, sums and exchanges of counts, so that the splits of an all-to-all come out as the model says, alike on all ranks.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from chakra_et.capture.fake.options import Routing

__all__ = ["Values", "expert_counts"]

# Tensors of counts are small; larger ones hold data.
_LARGEST = 1 << 16
_MADE_UP = "values of tensors that were asked for (.item(), .tolist(), .numpy()): made up"
_aten = torch.ops.aten
_COUNTS = (_aten.bincount.default, _aten.histc.default)
_FALSE = (_aten.isnan.default, _aten.isinf.default)
_ANY = (_aten.any.default, _aten._is_any_true.default)
_SUMS = (_aten.sum.default, _aten.sum.dim_IntList)
_LITERALS = (_aten.lift_fresh.default, _aten.lift_fresh_copy.default)
_RANGES = (
    _aten.arange.default, _aten.arange.start, _aten.arange.start_step, _aten.randperm.default, _aten.randperm.generator,
)  # fmt: skip
# Their results hold whatever was in memory before, or are drawn.
_UNTOLD = ("empty", "new_empty", "rand", "normal", "uniform", "bernoulli", "multinomial", "exponential", "dropout")


def expert_counts(tokens: int, experts: int, routing: Routing) -> list[int]:
    """Return how many of some tokens go to each expert.

    Args:
        tokens: Tokens, each counted as often as it is routed.
        experts: Experts.
        routing: ``balanced``: as evenly as possible; ``zipf``: in proportion to 1, 1/2, 1/3, ...

    Example:
        >>> expert_counts(10, 4, "balanced"), expert_counts(25, 3, "zipf")
        ([3, 3, 2, 2], [14, 7, 4])
    """
    shares = [1.0 / (place + 1) if routing == "zipf" else 1.0 for place in range(experts)]
    total = sum(shares)
    counts = [int(tokens * share / total) for share in shares]
    for place in range(tokens - sum(counts)):
        counts[place % experts] += 1
    return counts


class Values:
    """What is known of the values of fake tensors.

    Args:
        routing: How tokens choose experts.
        warnings: Counts what was made up.
    """

    def __init__(self, routing: Routing, warnings: Counter[str]) -> None:
        self._routing = routing
        self._warnings = warnings
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def of(self, tensor: Any) -> torch.Tensor | None:
        """Return the values of a tensor, or None if they aren't known."""
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def set(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Say what a tensor holds."""
        key = id(tensor)
        self._known[key] = (weakref.ref(tensor, lambda _: self._known.pop(key, None)), values)

    @property
    def sources(self) -> dict[Any, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]]:
        """Operators that ask for values, or whose results have some, and what answers in their place."""
        return {
            _aten._local_scalar_dense.default: self._item,
            _aten.equal.default: self._equal,
            **dict.fromkeys(_COUNTS, self._count),
            **dict.fromkeys(_FALSE, self._false),
            **dict.fromkeys(_ANY, self._any),
            **dict.fromkeys(_SUMS, self._sum),
            **dict.fromkeys(_LITERALS, self._literal),
            **dict.fromkeys(_RANGES, self._range),
            _aten._amp_foreach_non_finite_check_and_unscale_.default: self._unscale,
            _aten.nonzero.default: self._nonzero,
            _aten.masked_select.default: self._masked_select,
            _aten.index.Tensor: self._index,
            _aten.repeat_interleave.Tensor: self._repeat,
        }

    def follow(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Work out the values of an operator's result, where those of all its tensors are known."""
        if not self._known:
            return
        tensors = [item for item in _flat((*args, *kwargs.values())) if isinstance(item, torch.Tensor)]
        values = [self.of(item) for item in tensors]
        if all(item is None for item in values):
            return
        small = all(item.numel() <= _LARGEST for item in _flat((result,)) if isinstance(item, torch.Tensor))
        name = function._schema.name.partition("::")[2].lstrip("_")
        told = function.namespace == "aten" and not name.startswith(_UNTOLD)
        if any(item is None for item in values) or not small or not told:
            if function._schema.is_mutable:
                self._forget(_written(function, args, kwargs))
            return
        try:
            with _disable_current_modes():
                real = function(*map(self._real, args), **{name: self._real(value) for name, value in kwargs.items()})
        except (RuntimeError, IndexError):
            # What was made up needn't fit, such as an index: then nothing is known.
            self._forget(_written(function, args, kwargs))
            return
        for fake, found in zip(_flat((result,)), _flat((real,)), strict=False):
            if isinstance(fake, torch.Tensor) and isinstance(found, torch.Tensor):
                self.set(fake, found)

    def exchanged(
        self, result: torch.Tensor, source: torch.Tensor, kind: str, size: int, rank: int, op: str | None = None
    ) -> None:
        """Say what a communication leaves in a tensor, where what this rank gives is known and others give the same.

        Args:
            result: The tensor that is filled.
            source: What this rank gives.
            kind: ``all_to_all``, ``all_gather`` or ``all_reduce``.
            size: Ranks of the group.
            rank: This rank's place in it.
            op: What is reduced with; None: a sum.
        """
        given = self.of(source)
        if given is None:
            return
        with _disable_current_modes():
            if kind == "all_to_all" and given.numel() % size == 0 and result.numel() == given.numel():
                mine = given.reshape(size, -1)[rank]
                self.set(result, mine.repeat(size).reshape(result.shape))
            elif kind == "all_gather":
                self.set(result, given.reshape(-1).repeat(size).reshape(result.shape))
            elif kind == "all_reduce":
                self.set(result, given * size if op in (None, "sum") else given.clone())

    def real(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the values of a fake tensor: those that are known, else made up."""
        known = self.of(tensor)
        if known is None:
            self._warnings[_MADE_UP] += 1
            with _disable_current_modes():
                known = torch.full(tuple(tensor.shape), _plausible(tensor.dtype), dtype=tensor.dtype)
        return known

    def _forget(self, tensors: list[torch.Tensor]) -> None:
        """Forget what tensors held, and what others held that lie in the same memory."""
        storages = {tensor.untyped_storage()._cdata for tensor in tensors}
        for key, (known, _) in list(self._known.items()):
            tensor = known()
            if tensor is not None and tensor.untyped_storage()._cdata in storages:
                del self._known[key]

    def _real(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self._real, value))
        return value

    def _item(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor = args[0]
        values = self.of(tensor)
        constant = getattr(tensor, "constant", None)
        if not hasattr(tensor, "fake_mode"):
            values = tensor
        if values is None:
            values = constant
        if values is not None:
            with _disable_current_modes():
                return values.item()
        self._warnings[_MADE_UP] += 1
        return _plausible(tensor.dtype)

    def _equal(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return bool(args[0].shape == args[1].shape)

    def _count(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0]
        if function is _COUNTS[0]:
            bins = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
            dtype = torch.float32 if kwargs.get("weights", args[1] if len(args) > 1 else None) is not None else None
        else:
            bins, dtype = kwargs.get("bins", args[1] if len(args) > 1 else 100), source.dtype
        result = source.new_empty((max(bins, 1),), dtype=dtype or torch.int64)
        counts = expert_counts(source.numel(), max(bins, 1), self._routing)
        self._warnings[f"counts of values (bincount, histc): taken to be {self._routing}"] += 1
        with _disable_current_modes():
            self.set(result, torch.tensor(counts, dtype=result.dtype))
        return result

    def _false(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = function(*args, **kwargs)
        with _disable_current_modes():
            one = torch.zeros((), dtype=torch.bool).expand(result.shape)
            # Of a large tensor, one element stands for all.
            self.set(result, one.clone() if one.numel() <= _LARGEST else one)
        return result

    def _any(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = function(*args, **kwargs)
        known = self.of(args[0])
        if known is not None and known.numel():
            with _disable_current_modes():
                one = not any(known.stride()) or known.numel() == 1
                self.set(result, (known[(0,) * known.dim()] if one else known).any())
        return result

    def _sum(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a sum; one of flags that aren't known counts them all, as `nonzero` does."""
        result = function(*args, **kwargs)
        source = args[0]
        if source.dtype == torch.bool and self.of(source) is None and 0 < result.numel() <= _LARGEST:
            with _disable_current_modes():
                self.set(result, torch.full(tuple(result.shape), source.numel() // result.numel(), dtype=result.dtype))
        else:
            self.follow(function, args, kwargs, result)
        return result

    def _literal(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0]
        known = self.of(source) if hasattr(source, "fake_mode") else source
        result = function(*args, **kwargs)
        if known is not None and known.numel() <= _LARGEST and known.device.type == "cpu":
            with _disable_current_modes():
                self.set(result, known.detach().clone())
        return result

    def _range(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = function(*args, **kwargs)
        if result.numel() <= _LARGEST:
            with _disable_current_modes():
                self.set(result, function(*args, **{**kwargs, "device": "cpu", "pin_memory": False}))
        return result

    def _unscale(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = function(*args, **kwargs)
        with _disable_current_modes():
            self.set(args[1], torch.zeros(args[1].shape))
        return result

    def _nonzero(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0].new_empty((self._nonzeros(args[0]), args[0].dim()), dtype=torch.int64)

    def _nonzeros(self, tensor: torch.Tensor) -> int:
        known = self.of(tensor)
        if known is None:
            self._warnings["non-zero values (nonzero, masks as indices): all were taken to be so"] += 1
            return int(tensor.numel())
        with _disable_current_modes():
            return int(known.count_nonzero())

    def _masked_select(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source, mask = args[:2]
        size = torch.broadcast_shapes(source.shape, mask.shape)
        each = math.prod(size) // max(mask.numel(), 1)
        return source.new_empty((self._nonzeros(mask) * each,))

    def _index(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        indices: list[Any] = []
        for index in args[1]:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                indices += [index.new_empty((self._nonzeros(index),), dtype=torch.int64)] * index.dim()
            else:
                indices.append(index)
        result = function(args[0], indices, **kwargs)
        if all(given is index for given, index in zip(args[1], indices, strict=False)):
            self.follow(function, args, kwargs, result)
        return result

    def _repeat(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = self.of(args[0])
        if known is None or kwargs.get("output_size") is not None:
            return function(*args, **kwargs)
        with _disable_current_modes():
            total = int(known.sum())
            places = torch.repeat_interleave(known)
        result = args[0].new_empty((total,), dtype=torch.int64)
        if total <= _LARGEST:
            self.set(result, places)
        return result


def _written(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operator writes to."""
    arguments = function._schema.arguments
    values = [kwargs.get(one.name, args[place] if place < len(args) else None) for place, one in enumerate(arguments)]
    changed = [
        value for one, value in zip(arguments, values, strict=True) if one.alias_info and one.alias_info.is_write
    ]
    return [item for item in _flat(changed) if isinstance(item, torch.Tensor)]


def _plausible(dtype: torch.dtype) -> bool | int | float:
    """Return what an unknown element is taken to be: a loss of 1, an index of 0, a flag that is set."""
    if dtype == torch.bool:
        return True
    return 1.0 if dtype.is_floating_point or dtype.is_complex else 0


def _flat(values: Any) -> list[Any]:
    found = []
    for value in values:
        found += _flat(value) if isinstance(value, list | tuple) else [value]
    return found
