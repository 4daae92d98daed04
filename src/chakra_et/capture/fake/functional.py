"""Functional collectives (DTensor's, ``torch.distributed._functional_collectives``), recorded as what they run.

On a device, ``_c10d_functional::all_reduce`` copies its input and all-reduces the copy in place through ``c10d``. Under
fake tensors it returns at once; the records say what it would have done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from chakra_et.capture.fake.log import OBJECT, Log, Op
from chakra_et.capture.fake.values import Values

__all__ = ["Functional"]

_Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Functional:
    """Records functional collectives.

    Args:
        log: The records.
        values: What is known of values.
    """

    def __init__(self, log: Log, values: Values) -> None:
        self._log, self._values = log, values
        self._kinds: dict[str, Callable[..., None]] = {
            "all_reduce": self._all_reduce,
            "all_gather_into_tensor": self._all_gather,
            "reduce_scatter_tensor": self._reduce_scatter,
            "all_to_all_single": self._all_to_all,
            "broadcast": self._broadcast,
        }
        self._in_place = (self._all_reduce, self._broadcast)

    def handler(self, function: Any) -> _Handler | None:
        """Return what records an operator, or None if it isn't known."""
        name = function._schema.name.rpartition("::")[2]
        if name == "wait_tensor":
            return self._wait
        base = name.removesuffix("_out").removesuffix("_")
        kind = self._kinds.get(base.removesuffix("_coalesced"))
        if kind is None:
            self._log.warnings[f"{function._schema.name}: not known as a communication, recorded as an operator"] += 1
            return None
        return self._recorded(kind, several=base.endswith("_coalesced"), fresh=base == name)

    def _recorded(self, kind: Callable[..., None], *, several: bool, fresh: bool) -> _Handler:
        def collective(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = function(*args, **kwargs)
            given = [*args, *(value for name, value in kwargs.items() if name != "out")]
            group = dist.distributed_c10d._resolve_process_group(given[-1])
            if not fresh:
                result = kwargs.get("out", args[0])
            for source, target in zip(*((args[0], result) if several else ((args[0],), (result,))), strict=True):
                if fresh:
                    self._make(source, target, copy=kind in self._in_place)
                kind(source, target, group, given)
            return result

        return collective

    def _make(self, source: Any, target: Any, *, copy: bool) -> None:
        """Record where the result comes from: in-place collectives begin with a copy, others with empty memory."""
        if copy:
            self._add("aten::clone", [source], [target])
        else:
            self._add("aten::empty", [list(target.shape), target.dtype], [target])

    def _wait(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The tensor that was waited for is what comes back; under fake tensors it would be another one.
        self._log.wait_for(self._log.filling(args[0]))
        return args[0]

    def _add(self, name: str, args: list[Any], outputs: list[Any], note: dict[str, Any] | None = None) -> None:
        log = self._log
        space, _, short = name.partition("::")
        function = getattr(getattr(torch.ops, space), short)
        function = function.memory_format if short == "empty" else function.default
        in_backward = torch._C._current_autograd_node() is not None
        log.add(Op(function, tuple(map(log.freeze, args)), {}, log.freeze(outputs), log.stream, in_backward, note))

    def _communicate(
        self, name: str, args: list[Any], outputs: list[Any], group: Any, target: Any, reduce_op: str = ""
    ) -> None:
        number = self._log.next_communication()
        note = {"id": number, "pg": group.group_name, "async": True}
        if reduce_op:
            note["reduce_op"] = reduce_op.lower()
        self._add(f"c10d::{name}", args, [*outputs, OBJECT], note)
        self._log.issued(number, [self._log.ref(target)], is_async=True)

    def _all_reduce(self, source: Any, target: Any, group: Any, given: list[Any]) -> None:
        args = [[target], OBJECT, OBJECT, None, True, -1]
        self._communicate("allreduce_", args, [[target]], group, target, given[1])
        self._values.exchanged(target, source, "all_reduce", group.size(), group.rank())

    def _all_gather(self, source: Any, target: Any, group: Any, given: list[Any]) -> None:
        self._communicate("_allgather_base_", [target, source, OBJECT, True, -1], [target], group, target)
        self._values.exchanged(target, source, "all_gather", group.size(), group.rank())

    def _reduce_scatter(self, source: Any, target: Any, group: Any, given: list[Any]) -> None:
        args = [target, source, OBJECT, OBJECT, True, -1]
        self._communicate("_reduce_scatter_base_", args, [target], group, target, given[1])

    def _all_to_all(self, source: Any, target: Any, group: Any, given: list[Any]) -> None:
        args = [target, source, OBJECT, given[1], given[2], True, -1]
        self._communicate("alltoall_base_", args, [], group, target)
        self._values.exchanged(target, source, "all_to_all", group.size(), group.rank())

    def _broadcast(self, source: Any, target: Any, group: Any, given: list[Any]) -> None:
        args = [[target], OBJECT, given[1], 0, True, -1]
        self._communicate("broadcast_", args, [[target]], group, target)
