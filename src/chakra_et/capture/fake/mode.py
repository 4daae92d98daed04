"""The dispatch mode that sees every operator of a program under fake tensors, and records it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from chakra_et.capture.fake.functional import Functional
from chakra_et.capture.fake.groups import World
from chakra_et.capture.fake.log import Log, Op, Ref
from chakra_et.capture.fake.values import Values

__all__ = ["Recorder"]

_Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_EXCHANGES = {
    "alltoall_base_": "all_to_all",
    "_allgather_base_": "all_gather",
    "allreduce_": "all_reduce",
}


class Recorder(TorchDispatchMode):
    """Records operators as they reach the device's level: below autograd, tensor subclasses and composite operators.

    Args:
        log: The records.
        world: The job.
        values: What is known of values.
    """

    def __init__(self, log: Log, world: World, values: Values) -> None:
        super().__init__()
        self._log, self._world, self._values = log, world, values
        self._handlers: dict[Any, _Handler] = dict.fromkeys(values.sources, self._answered)
        self._answers = values.sources
        self._functional = Functional(log, values)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one call; what other tensor subclasses do inside comes back here by itself."""
        for kind in types:
            if kind is not FakeTensor:
                return NotImplemented
        handler = self._handlers.get(func)
        if handler is None:
            handler = self._handlers[func] = self._choose(func)
        with torch._C.DisableTorchFunction():
            return handler(func, args, kwargs or {})

    def _choose(self, function: Any) -> _Handler:
        if function.namespace in ("prim", "profiler"):
            return _pass
        if function.namespace == "c10d":
            places = [str(argument.type).rpartition(".")[2] for argument in function._schema.arguments]
            if "ProcessGroup" in places:
                return self._communication(function, places.index("ProcessGroup"))
        if function.namespace in ("_c10d_functional", "_c10d_functional_autograd"):
            return self._functional.handler(function) or self._operator
        return self._operator

    def _operator(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        log = self._log
        frozen, named = _frozen(log, args, kwargs)
        result = function(*args, **kwargs)
        self._values.follow(function, args, kwargs, result)
        log.add(Op(function, frozen, named, log.outputs(result), log.stream, _in_backward()))
        return result

    def _answered(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call whose result depends on values."""
        log = self._log
        frozen, named = _frozen(log, args, kwargs)
        result = self._answers[function](function, args, kwargs)
        log.add(Op(function, frozen, named, log.outputs(result), log.stream, _in_backward()))
        return result

    def _communication(self, function: Any, group_at: int) -> _Handler:
        arguments = function._schema.arguments
        async_at = next((place for place, argument in enumerate(arguments) if argument.name == "async_op"), -1)
        exchange = _EXCHANGES.get(function._schema.name.rpartition("::")[2])
        # PyTorch has no stand-ins for these.
        makes_work = "coalesced" in function._schema.name

        def communicate(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            log, world = self._log, self._world
            frozen, named = _frozen(log, args, kwargs)
            result = _work() if makes_work else function(*args, **kwargs)
            group = dist.ProcessGroup.unbox(args[group_at])
            is_async = bool(args[async_at]) if 0 <= async_at < len(args) else True
            note = {"id": log.next_communication(), "pg": group.group_name, "async": is_async}
            if "reduce" in function._schema.name:
                note["reduce_op"] = world.reduce_op or "sum"
            outputs = log.outputs(result)
            log.add(Op(function, frozen, named, outputs, log.stream, _in_backward(), note))
            log.issued(note["id"], _refs((frozen[0], outputs)), is_async=is_async)
            if exchange:
                source = args[0] if exchange == "all_reduce" else args[1]
                targets = args[0] if isinstance(args[0], list) else [args[0]]
                source = source[0] if isinstance(source, list) else source
                self._values.exchanged(targets[0], source, exchange, group.size(), group.rank(), world.reduce_op)
            work = result[-1] if isinstance(result, tuple) else result
            if isinstance(work, torch.ScriptObject):
                world.issued(work, note["id"])
            return result

        return communicate


def _work() -> Any:
    return torch._C._distributed_c10d.FakeWork().boxed()


def _pass(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _frozen(log: Log, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    freeze = log.freeze
    return tuple(map(freeze, args)), {name: freeze(value) for name, value in kwargs.items()} if kwargs else {}


def _in_backward() -> bool:
    return torch._C._current_autograd_node() is not None


def _refs(values: Any) -> list[Ref]:
    found: list[Ref] = []
    for value in values:
        if isinstance(value, Ref):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _refs(value)
    return found
