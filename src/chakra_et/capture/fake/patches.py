"""What PyTorch's own libraries and users' programs do that can't work without other ranks, devices or values."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.utils.data
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from chakra_et.capture.fake.ddp import pretend_ddp
from chakra_et.capture.fake.groups import World, replaced_everywhere
from chakra_et.capture.fake.log import Log
from chakra_et.capture.fake.values import Values
from chakra_et.capture.patches import after_import, replaced

__all__ = ["patched_libraries"]

# Methods of a device mesh that compute with its tensor of ranks; the others are quick, and often called.
_MESH = (
    "__init__", "__getitem__", "_flatten", "_unflatten", "_create_flatten_mesh", "_create_unflatten_mesh",
    "_create_sub_mesh", "_get_mesh_tensor_from_full_mesh", "_get_slice_mesh_layout", "_get_all_submeshes",
    "__repr__", "get_all_groups",
)  # fmt: skip
_FSDP = "torch.distributed.fsdp._fully_shard._fsdp_param"
_SHARDING = "torch.distributed.tensor._sharding_prop"
_COLLECTIVES = "torch.distributed.tensor._collective_utils"
_CHECKPOINT = "torch.distributed.checkpoint.state_dict_saver"
_CONVERTED = "_chakra_fake_converted"


@contextlib.contextmanager
def patched_libraries(world: World, log: Log, values: Values, *, foreach: bool) -> Iterator[None]:
    """Change what can't work, while the context is open.

    Args:
        world: The job.
        log: Counts what was changed.
        values: What is known of values.
        foreach: Optimizers use their multi-tensor implementation, as on an accelerator.
    """
    with contextlib.ExitStack() as stack:
        for owner, changes in _methods(world, values):
            stack.enter_context(replaced(owner, changes))
        for owner, changes in _functions(world, log.warnings):
            stack.enter_context(replaced_everywhere(owner, changes))
        if foreach:
            stack.enter_context(_many_tensors_at_once())
        stack.enter_context(pretend_ddp(log.warnings))

        def patch(module: Any) -> None:
            stack.enter_context(replaced(module, {"_chunk_with_empty": _Chunks}))

        def leave_out(module: Any) -> None:
            stack.enter_context(replaced(module.Recorder, {"_open": _unrecorded(log.warnings)}))

        def propagate(module: Any) -> None:
            kind = module.ShardingPropagator
            names = [name for name in vars(kind) if name.startswith("_propagate_tensor_meta")]
            tried = {name: _unrecorded_method(log, getattr(kind, name)) for name in names}
            stack.enter_context(replaced(kind, tried))

        def exchange(module: Any) -> None:
            stack.enter_context(replaced_everywhere(module, {"shard_dim_alltoall": _exchanged(module)}))

        def checkpoint(module: Any) -> None:
            left_out = _unsaved(log.warnings)
            stack.enter_context(replaced_everywhere(module, {"save": left_out, "async_save": left_out}))

        stack.callback(after_import(_FSDP, patch))
        stack.callback(after_import(_SHARDING, propagate))
        stack.callback(after_import(_COLLECTIVES, exchange))
        stack.callback(after_import(_CHECKPOINT, checkpoint))
        stack.callback(after_import("chakra_et.capture.torch", leave_out))
        yield


@contextlib.contextmanager
def _many_tensors_at_once() -> Iterator[None]:
    """Let optimizers and gradient clipping work on lists of fake tensors, as they do on lists of a device's."""
    modules = [import_module("torch.optim.optimizer"), import_module("torch.utils._foreach_utils")]
    with contextlib.ExitStack() as stack:
        for module in modules:
            name = "_get_foreach_kernels_supported_devices"
            stack.enter_context(replaced(module, {name: lambda: ["cpu", "cuda"]}))
            # Changed in place: DTensor appends itself when it is imported.
            module._foreach_supported_types.append(FakeTensor)
            stack.callback(module._foreach_supported_types.remove, FakeTensor)
        yield


def _functions(world: World, warnings: Counter[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    meshes = torch.distributed.device_mesh
    yield meshes, {"init_device_mesh": _on_cpu_mesh(meshes.init_device_mesh)}
    yield dist.distributed_c10d, _object_collectives(world)
    yield torch.multiprocessing, {"spawn": _spawn(world)}
    yield torch, {"compile": _uncompiled(warnings), "save": _unsaved(warnings)}


def _methods(world: World, values: Values) -> Iterator[tuple[Any, dict[str, Any]]]:
    def listed(tensor: torch.Tensor) -> Any:
        return values.real(tensor).tolist()

    @_outside
    def array(tensor: torch.Tensor, **_: Any) -> Any:
        return values.real(tensor).numpy()

    yield torch.distributed.device_mesh.DeviceMesh, _mesh_methods(world.serial, values)
    loader = torch.utils.data.DataLoader
    yield loader, {"__init__": _without_workers(loader.__init__), "__iter__": _outside(loader.__iter__)}
    batches = torch.utils.data.dataloader._BaseDataLoaderIter
    yield batches, {"__next__": _outside(batches.__next__)}
    yield torch.nn.Module, {"_apply": _apply}
    yield torch.profiler.profile, {"__init__": _of_the_host(torch.profiler.profile.__init__)}
    yield torch.profiler.ExecutionTraceObserver, {"register_callback": lambda observer, *_: observer}
    yield FakeTensor, {"tolist": listed, "numpy": array, "__format__": _format}


def _mesh_methods(serial: int, values: Values) -> dict[str, Any]:
    kind = torch.distributed.device_mesh.DeviceMesh
    methods: dict[str, Any] = {name: _outside(getattr(kind, name)) for name in _MESH if name in vars(kind)}
    for name, method in methods.items():
        if isinstance(vars(kind)[name], staticmethod):
            methods[name] = staticmethod(method)
    methods["__init__"] = _relabeling_mesh(methods["__init__"], serial, values)
    methods["mesh"] = property(_outside(vars(kind)["mesh"].fget))
    return methods


def _outside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes with real tensors, unrecorded."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return wrapped


def _relabeling_mesh(init: Callable[..., None], serial: int, values: Values) -> Callable[..., None]:
    def real(value: Any) -> Any:
        return values.real(value) if isinstance(value, FakeTensor) else value

    def wrapped(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        args, kwargs = tuple(map(real, args)), {name: real(value) for name, value in kwargs.items()}
        init(self, "cpu" if device_type != "meta" else device_type, *args, **kwargs)
        # DTensor's caches hold meshes by value. One of an earlier capture, whose groups are gone, is not the same.
        self._thread_id = serial

    return wrapped


def _unrecorded_method(log: Log, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that tries an operator on whole tensors, to learn the shapes of their shards."""

    @functools.wraps(method)
    def tried(*args: Any, **kwargs: Any) -> Any:
        with log.unrecorded():
            return method(*args, **kwargs)

    return tried


def _exchanged(module: Any) -> Callable[..., Any]:
    """Return how shards of one dimension become those of another: on an accelerator, an all-to-all."""
    on_cpu = module.shard_dim_alltoall

    def exchange(input: Any, gather_dim: int, shard_dim: int, mesh: Any, mesh_dim: int) -> Any:
        size = mesh.size(mesh_dim)
        if input.size(shard_dim) % size:
            return on_cpu(input, gather_dim, shard_dim, mesh, mesh_dim)
        collectives = import_module("torch.distributed._functional_collectives")
        parts = torch.stack(input.chunk(size, shard_dim)).contiguous()
        found = collectives.wait_tensor(collectives.all_to_all_single(parts, None, None, (mesh, mesh_dim)))
        return torch.cat(found.unbind(0), gather_dim)

    return exchange


def _on_cpu_mesh(make: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(device_type: str, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("backend_override", None)
        with _disable_current_modes():
            return make("cpu", *args, **kwargs)

    return wrapped


def _object_collectives(world: World) -> dict[str, Any]:
    """Return exchanges of Python objects in which every rank has what this one has."""

    # Arguments are called as PyTorch calls them.
    def all_gather(object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * len(object_list)

    def gather(obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any) -> None:
        if object_gather_list:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter(
        scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, *_: Any, **__: Any
    ) -> None:
        if scatter_object_input_list:
            given = scatter_object_input_list
            scatter_object_output_list[0] = given[world.rank % len(given)]

    return {
        "all_gather_object": all_gather,
        "gather_object": gather,
        "scatter_object_list": scatter,
        "broadcast_object_list": lambda *_, **__: None,
        "send_object_list": lambda *_, **__: None,
        "recv_object_list": lambda *_, **__: None,
        "monitored_barrier": lambda *_, **__: None,
    }


def _without_workers(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "pin_memory", "timeout"):
            given.pop(name, None)
        init(**{**given, "num_workers": 0})

    return wrapped


def _apply(module: torch.nn.Module, function: Callable[[Any], Any], recurse: bool = True) -> torch.nn.Module:
    """Convert a module's tensors (``Module._apply``): PyTorch swaps fake ones, which weak references forbid."""
    for child in module.children() if recurse else ():
        child._apply(function)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = _converted(parameter, function)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module


def _converted(parameter: Any, function: Callable[[Any], Any]) -> Any:
    # One parameter of several modules stays one.
    known = parameter.__dict__.get(_CONVERTED)
    if known is not None and known[0] is function:
        return known[1]
    with torch.no_grad():
        result = function(parameter)
        plain = type(result) is type(parameter) is FakeTensor
        if result is not parameter and plain and torch._has_compatible_shallow_copy_type(parameter, result):
            # It stays the object that optimizers and hooks know.
            parameter.data = result
            if parameter.grad is not None:
                parameter.grad = function(parameter.grad)
            return parameter
        if result is not parameter:
            result = torch.nn.Parameter(result, parameter.requires_grad)
            result.grad = function(parameter.grad) if parameter.grad is not None else None
            parameter.__dict__[_CONVERTED] = (function, result)
    return result


def _format(tensor: torch.Tensor, text: str) -> str:
    return format(tensor.item(), text) if text and tensor.dim() == 0 else object.__format__(tensor, "")


class _Chunks:
    """Parts of a parameter, made when they are asked for: FSDP looks at two, and a job may have thousands of ranks."""

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._dim = tensor, dim
        self._length = max(-(-tensor.size(dim) // num_chunks), 1)

    def __getitem__(self, place: int) -> torch.Tensor:
        size = self._tensor.size(self._dim)
        begin = place * self._length
        if begin >= size and place:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, begin, min(self._length, size - begin))


def _of_the_host(init: Callable[..., None]) -> Callable[..., None]:
    """Return a profiler's constructor that asks for no records of a device."""

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "activities": [torch.profiler.ProfilerActivity.CPU]})

    return wrapped


def _spawn(world: World) -> Callable[..., None]:
    def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        fn(world.rank % max(nprocs, 1), *args)

    return spawn


def _uncompiled(warnings: Counter[str]) -> Callable[..., Any]:
    def compile(model: Any = None, *_: Any, **__: Any) -> Any:
        warnings["torch.compile: left out, operators are recorded as they run without it"] += 1
        return model if model is not None else (lambda function: function)

    return compile


def _unsaved(warnings: Counter[str]) -> Callable[..., None]:
    def save(*_: Any, **__: Any) -> None:
        warnings["checkpoints (torch.save and the like): left out, there are no values to save"] += 1

    return save


def _unrecorded(warnings: Counter[str]) -> Callable[..., None]:
    def open_window(recorder: Any) -> None:
        warnings["chakra_et.capture.torch.record: left out, this is a capture already"] += 1

    return open_window
