"""Recorded operator calls bound to torch's operators: the exact overload, found before anything runs.

An overload is called through `OpOverload._op`, the function behind it: that takes 1.6 us where the overload itself
takes 2.0 (torch 2.13, `aten::add.Tensor` on 8 elements).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from chakra_et.errors import ReplayError
from chakra_et.replay.plan.steps import OpCall

__all__ = ["BoundCall", "Operator", "Operators", "import_modules", "target_device"]

# Modules that register the operators of a namespace, imported when one of them is met.
_MODULES = {
    "fsdp": "torch.distributed.fsdp",
    "_c10d_functional": "torch.distributed._functional_collectives",
    "symm_mem": "torch.distributed._symmetric_memory",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "fbgemm": "fbgemm_gpu",
    "torchao": "torchao",
    "vllm": "vllm",
    "xformers": "xformers.ops",
    "flash_attn": "flash_attn",
    "transformer_engine": "transformer_engine.pytorch",
}
_KEYS = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "hpu": "HPU"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a registered operator.

    Attributes:
        name: Its name.
        keyword_only: True behind the ``*``.
        is_device: True if it takes a device.
        optional: True if it has a default value.
        default: That value.
    """

    name: str
    keyword_only: bool
    is_device: bool
    optional: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Operator:
    """A registered operator.

    Attributes:
        call: What calls it.
        overload: Torch's name for it, such as ``aten.add.Tensor``.
        recorded: Names of the recorded schema's parameters, in order.
        parameters: Parameters of the schema that is registered here.
        results: Number of results.
    """

    call: Callable[..., Any]
    overload: str
    recorded: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    results: int


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call with all it takes; tensors are still slots.

    Attributes:
        call: What calls the operator.
        arguments: Positional arguments.
        keywords: Keyword arguments.
        results: As in `OpCall.results`, one for each result.
        single: True if the operator returns its only result itself, not a tuple of results.
    """

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    results: tuple[Any, ...]
    single: bool


def import_modules(names: tuple[str, ...]) -> None:
    """Import the modules that register custom operators.

    Raises:
        ReplayError: One can't be imported.
    """
    for name in names:
        try:
            import_module(name)
        except ImportError as err:
            raise ReplayError(
                f"module {name}: expected to import it, got {err}; install it here, or leave it out"
            ) from err


def target_device(recorded: str, target: str) -> str:
    """Return where a tensor goes that was recorded on a device: the host's memory stays, all else goes to the target.

    Example:
        >>> target_device("cuda:3", "cpu"), target_device("cpu", "cuda:0")
        ('cpu', 'cpu')
    """
    return "cpu" if recorded.partition(":")[0] == "cpu" else target


class Operators:
    """Finds operators by recorded schema, and binds calls to them.

    Args:
        device: Where an accelerator's tensors go.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._known: dict[str, Operator | str] = {}

    def bind(self, step: OpCall, devices: frozenset[str]) -> BoundCall | str:
        """Bind a call.

        Args:
            step: The call.
            devices: Devices that its tensors are on here.

        Returns:
            The bound call, or why there is none.
        """
        operator = self.find(step.schema)
        if isinstance(operator, str):
            return operator
        # An accelerator's operators take some tensors (numbers, steps) from the host's memory.
        for device in (self._device,) if self._device in devices else devices:
            key = _KEYS.get(device.partition(":")[0])
            name = operator.overload
            if key and not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key):
                return f"it has no implementation for {device.partition(':')[0]}"
        return self._bound(operator, step)

    def find(self, text: str) -> Operator | str:
        """Return the operator of a recorded schema, or why there is none."""
        if text not in self._known:
            self._known[text] = _find(text)
        return self._known[text]

    def _bound(self, operator: Operator, step: OpCall) -> BoundCall | str:
        given = dict(zip(operator.recorded, step.arguments, strict=False))
        positional: list[Any] = []
        needed = 0
        keywords: dict[str, Any] = {}
        for parameter in operator.parameters:
            if parameter.name not in given and not parameter.optional:
                return f"the operator registered here needs an argument '{parameter.name}' that wasn't recorded"
            value = given.pop(parameter.name, parameter.default)
            value = self._moved(value) if parameter.is_device else value
            if parameter.name == "pin_memory" and self._device == "cpu":
                value = parameter.default
            same = parameter.optional and _same(value, parameter.default)
            if not parameter.keyword_only:
                positional.append(value)
                needed = needed if same else len(positional)
            elif not same:
                keywords[parameter.name] = value
        lost = next((name for name, value in given.items() if value is not None), None)
        if lost is not None:
            return f"the operator registered here has no argument '{lost}'"
        single = operator.results == 1
        # Arguments that have their default value at the end cost time to pass, and mean nothing.
        return BoundCall(operator.call, tuple(positional[:needed]), keywords, step.results, single)

    def _moved(self, value: Any) -> Any:
        return torch.device(target_device(value, self._device)) if isinstance(value, str) else value


def _find(text: str) -> Operator | str:
    try:
        recorded = torch._C.parse_schema(text)
    except RuntimeError:
        return "its schema can't be read by this torch"
    name, overload = recorded.name, recorded.overload_name
    space, _, short = name.partition("::")
    found = torch._C._jit_get_schemas_for_operator(name)
    if not found and space in _MODULES:
        with suppress(Exception):  # a package may fail on import in any way; the operator is then not there
            import_module(_MODULES[space])
        found = torch._C._jit_get_schemas_for_operator(name)
    schema = next((one for one in found if one.overload_name == overload), None)
    if schema is None:
        return "no such operator is registered here" if not found else f"it has no overload '{overload}' here"
    try:
        operator = getattr(getattr(getattr(torch.ops, space), short), overload or "default")
    except AttributeError:
        return "no such operator is registered here"
    if any("file" in one.name for one in schema.arguments):
        return "it takes the name of a file: a trace, which may come from anybody, shall not open one"
    parameters = tuple(
        Parameter(
            one.name,
            one.kwarg_only,
            "Device" in str(one.real_type),
            one.has_default_value(),
            one.default_value if one.has_default_value() else None,
        )
        for one in schema.arguments
    )
    qualified = f"{name}.{overload}" if overload else name
    names = tuple(one.name for one in recorded.arguments)
    return Operator(operator._op, qualified, names, parameters, len(schema.returns))


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, tuple) and isinstance(default, list | tuple):
        return list(value) == list(default)
    return type(value) is type(default) and bool(value == default)
