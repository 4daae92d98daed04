"""An accelerator that isn't there: what a program asks of ``torch.cuda`` is answered, and its tensors live on the CPU.

Fake tensors on a device that PyTorch was built without end the process inside autograd. So whatever names a device is
taken for the CPU while a fake capture runs, and the trace says the device that was asked for.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.accelerator
import torch.utils._device
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from chakra_et.capture.fake.streams import Streams
from chakra_et.capture.patches import replaced

__all__ = ["Relabel", "pretend_device"]

_MEMORY_BYTES = 80 << 30
_STAYS = ("cpu", "meta")
# Where these take a device that may be a number.
_DEVICE_AT = {torch.Tensor.to: 1, torch._C._nn._parse_to: 0, torch.device: 0}
_KEEP_TENSOR = {torch.Tensor.cuda, torch.Tensor.pin_memory}


def relabeled(device: Any) -> Any:
    """Return the CPU for another device (a name or a `torch.device`), and everything else as it is.

    Example:
        >>> relabeled("cuda:3"), relabeled(torch.device("meta")), relabeled(torch.float32)
        ('cpu', device(type='meta'), torch.float32)
    """
    if isinstance(device, torch.device):
        return device if device.type in _STAYS else torch.device("cpu")
    if isinstance(device, str):
        kind = device.partition(":")[0]
        return "cpu" if kind in ("cuda", "xpu", "hpu", "npu", "mtia", "musa") else device
    return device


class Relabel(TorchFunctionMode):
    """Takes every device that a call names for the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call on, with other devices."""
        if func in _KEEP_TENSOR:
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *map(relabeled, args[1:]))
        if func in _DEVICE_AT:
            place = _DEVICE_AT[func]
            if len(args) > place and type(args[place]) is int:
                args = (*args[:place], "cpu", *args[place + 1 :])
        if kwargs:
            if kwargs.get("device") is not None:
                device = kwargs["device"]
                kwargs = {**kwargs, "device": "cpu" if type(device) is int else relabeled(device)}
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def pretend_device(kind: str, local_rank: int, ranks_per_server: int, streams: Streams) -> Iterator[None]:
    """Answer for a device while the context is open.

    Args:
        kind: Type of the device, ``cuda`` or ``cpu``.
        local_rank: Its number.
        ranks_per_server: How many there are.
        streams: Its streams.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.cpu, _streams(streams)))
        stack.enter_context(replaced(torch, {"Generator": _Generator}))
        stack.enter_context(replaced(torch.Tensor, {"record_stream": _answer()}))
        context = torch.utils._device.DeviceContext
        stack.enter_context(replaced(context, {"__init__": _on_cpu(context.__init__)}))
        if kind != "cpu":
            stack.enter_context(
                replaced(torch.cuda, {**_streams(streams), **_cuda(local_rank, ranks_per_server, streams)})
            )
            accelerator = _accelerator(kind, local_rank, ranks_per_server, streams)
            stack.enter_context(replaced(torch.accelerator, accelerator))
            stack.enter_context(
                replaced(torch.cuda.nvtx, {name: _answer() for name in ("range_push", "range_pop", "mark")})
            )
            autocast, scaler = torch.amp.autocast_mode.autocast, torch.amp.GradScaler
            stack.enter_context(replaced(autocast, {"__init__": _of_an_accelerator(autocast.__init__)}))
            stack.enter_context(replaced(scaler, {"__init__": _on_cpu(scaler.__init__)}))
            stack.enter_context(replaced(torch, _autocast_state()))
        yield


def _answer(value: Any = None) -> Callable[..., Any]:
    # Each name needs a function of its own: torch._dynamo refuses to be imported where two of PyTorch's are the same.
    return lambda *_, **__: value


class _Generator(torch.Generator):
    """A generator of random numbers, on the CPU whatever device is named."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Make one."""
        return super().__new__(cls, relabeled(device))


def _on_cpu(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that takes any device's name for the CPU's."""

    def wrapped(self: Any, device: Any = "cpu", *args: Any, **kwargs: Any) -> None:
        for name in ("device", "device_type"):
            if name in kwargs:
                device = kwargs.pop(name)
        init(self, relabeled(device), *args, **kwargs)

    return wrapped


def _of_an_accelerator(init: Callable[..., None]) -> Callable[..., None]:
    """Return autocast's constructor: the CPU's, with the element type that an accelerator has where none is given."""

    def wrapped(self: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if dtype is None and relabeled(device_type) != device_type:
            dtype = torch.float16
        init(self, relabeled(device_type), dtype, *args, **kwargs)

    return wrapped


def _autocast_state() -> dict[str, Any]:
    is_enabled, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
    return {
        "is_autocast_enabled": lambda device_type="cpu": is_enabled(relabeled(device_type)),
        "get_autocast_dtype": lambda device_type="cpu": dtype_of(relabeled(device_type)),
        "get_autocast_gpu_dtype": lambda: dtype_of("cpu"),
    }


def _streams(streams: Streams) -> dict[str, Any]:
    return {
        "Stream": streams.Stream,
        "Event": streams.Event,
        "current_stream": lambda *_, **__: streams.current(),
        "stream": lambda stream=None: streams.use(stream),
        "synchronize": lambda *_, **__: streams.synchronize(),
    }


def _cuda(local_rank: int, count: int, streams: Streams) -> dict[str, Any]:
    state = _random_state()
    properties = SimpleNamespace(
        name="fake", total_memory=_MEMORY_BYTES, major=9, minor=0, multi_processor_count=132, warp_size=32
    )
    statistics = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "utilization")
    silent = (
        "set_device", "empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect",
        "manual_seed", "manual_seed_all", "seed", "seed_all", "init", "set_rng_state",
        "set_rng_state_all", "set_per_process_memory_fraction", "_lazy_init", "reset_accumulated_memory_stats",
    )  # fmt: skip
    return {
        **{name: _answer() for name in silent},
        **{name: _answer(0) for name in statistics},
        "is_available": _answer(True),
        "is_initialized": _answer(True),
        "is_bf16_supported": _answer(True),
        "is_current_stream_capturing": _answer(False),
        "device_count": _answer(count),
        "current_device": _answer(local_rank),
        "default_stream": _answer(streams.default),
        "device": lambda *_: contextlib.nullcontext(),
        "get_device_name": _answer("fake"),
        "get_device_capability": _answer((9, 0)),
        "get_device_properties": _answer(properties),
        "mem_get_info": _answer((_MEMORY_BYTES, _MEMORY_BYTES)),
        "memory_stats": lambda *_: defaultdict(int),
        "memory_summary": _answer(""),
        "get_rng_state": _answer(state),
        "get_rng_state_all": _answer([state]),
        "set_stream": lambda stream: streams.choose(stream),
    }


def _accelerator(kind: str, local_rank: int, count: int, streams: Streams) -> dict[str, Any]:
    return {
        "is_available": _answer(True),
        "device_count": _answer(count),
        "current_accelerator": _answer(torch.device(kind)),
        "current_device_index": _answer(local_rank),
        "set_device_index": _answer(),
        "set_device_idx": _answer(),
        "current_stream": lambda *_, **__: streams.current(),
        "set_stream": lambda stream: streams.choose(stream),
        "synchronize": lambda *_, **__: streams.synchronize(),
        "empty_cache": _answer(),
    }


def _random_state() -> torch.Tensor:
    with _disable_current_modes():
        return torch.zeros(16, dtype=torch.uint8)
