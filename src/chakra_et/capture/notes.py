"""Notes on communications, written into the execution trace while it is recorded.

The execution trace of PyTorch holds process groups and reduce operators as ``<Object>``. Every ``c10d`` call, whether
it comes from Python, from DDP's reducer or from a functional collective, passes the dispatcher; there, just before the
backend, we leave a note, an annotation inside the call, with the group, what is reduced, and a number, and call on.
A wait gets a range of its own with the number of what it waits for. Nothing is intercepted outside a window.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from chakra_et.capture.groups import describe_group, known_groups, reduce_op_name
from chakra_et.capture.patches import replaced

__all__ = ["Notes"]

_COMM = "## chakra:comm ##"
_WAIT = "## chakra:wait ##"
_GROUPS = "## process_group:init ##"
# The last dispatch key before the backend: nothing else is registered there for communications.
_KEY = "BackendSelect"
_NO_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
_AFTER = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
# Methods of a process group that take a reduce operator, which PyTorch doesn't let us read from the call.
_REDUCING = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
)


class Notes:
    """Notes on the communications of this process, between `start` and `stop`."""

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        self._numbers = itertools.count()
        # Names of groups, as JSON.
        self._groups: dict[str, str] = {}
        self._range = _find_range()
        self._reducing = threading.local()
        self._numbered: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        # Python makes a new object for each look at a work handle, unless one is alive: the last one is kept, so that
        # the caller gets the same.
        self._latest: Any = None
        self._storages: dict[int, int] = {}

    def start(self) -> None:
        """Begin to note calls and waits.

        Raises:
            RuntimeError: This version of PyTorch doesn't let us (nothing is intercepted then).
        """
        if not dist.is_available():
            return
        _try_passing_on()
        with contextlib.ExitStack() as undo:
            self._intercept(undo)
            self._undo = undo.pop_all()

    def announce_groups(self) -> None:
        """Write the process groups that exist; later ones are written when they are first used."""
        groups = known_groups()
        self._groups = {group["pg_name"]: json.dumps(group["pg_name"]) for group in groups}
        if groups:
            self._annotate(_GROUPS, json.dumps(groups))

    def stop(self) -> None:
        """Leave everything as it was."""
        self._undo.close()
        self._latest = None
        self._storages.clear()

    def _intercept(self, undo: contextlib.ExitStack) -> None:
        library = torch.library.Library("c10d", "IMPL")
        undo.callback(library._destroy)
        for operator in _communications():
            library.impl(operator._schema.name.partition("::")[2], self._noted(operator), _KEY)
        wait = torch.ops._c10d_functional.wait_tensor.default
        if hasattr(wait, "redispatch"):
            functional = torch.library.Library("_c10d_functional", "IMPL")
            undo.callback(functional._destroy)
            functional.impl("wait_tensor", self._waiting(wait), _KEY)
        for name in _REDUCING:
            if hasattr(dist.ProcessGroup, name):
                kept = self._keeping_reduce_op(getattr(dist.ProcessGroup, name))
                undo.enter_context(replaced(dist.ProcessGroup, {name: kept}))
        undo.enter_context(replaced(dist.Work, {"wait": self._noting_wait(dist.Work.wait)}))

    def _noted(self, operator: Any) -> Callable[..., Any]:
        arguments = operator._schema.arguments
        group_at = next(i for i, argument in enumerate(arguments) if _is_group(argument))
        async_at = next((i for i, argument in enumerate(arguments) if argument.name == "async_op"), len(arguments))
        # Arguments at the end that have their default values don't come along.
        default = arguments[async_at].default_value if async_at < len(arguments) else None
        numbers, suppressed = self._numbers, contextlib.suppress(Exception)

        def call(*args: Any) -> Any:
            number = next(numbers)
            with suppressed:
                self._note(number, args[group_at], args[async_at] if async_at < len(args) else default)
            result = _pass_on(operator, args)
            with suppressed:
                self._remember(number, args[0], result)
            return result

        return call

    def _note(self, number: int, boxed: Any, is_async: bool | None) -> None:
        # Before the call: what the backend opens in it may stay open on this thread until a worker is done.
        group = dist.ProcessGroup.unbox(boxed)
        name = group.group_name
        quoted = self._groups.get(name)
        if quoted is None:
            quoted = self._groups[name] = json.dumps(name)
            self._annotate(_GROUPS, json.dumps([describe_group(group)]))
        reduce_op = getattr(self._reducing, "op", None)
        reduced = f', "reduce_op": "{reduce_op}"' if reduce_op else ""
        waits = "" if is_async is None else ', "async": true' if is_async else ', "async": false'
        self._annotate(_COMM, f'{{"id": {number}, "pg": {quoted}{reduced}{waits}}}')

    def _remember(self, number: int, first: Any, result: Any) -> None:
        """Remember by what waits will know the call: its work handle, or the storage of its result."""
        for tensor in first if isinstance(first, list | tuple) else (first,):
            if isinstance(tensor, torch.Tensor):
                self._storages[tensor.untyped_storage().data_ptr()] = number
        work = dist.Work.unbox(result[-1] if isinstance(result, tuple) else result)
        self._numbered[work] = number
        self._latest = work

    def _waiting(self, operator: Any) -> Callable[..., Any]:
        def wait(tensor: Any) -> Any:
            try:
                number = self._storages.get(tensor.untyped_storage().data_ptr())
            except Exception:
                number = None
            if number is None:
                return _pass_on(operator, (tensor,))
            with self._range(_WAIT, f'{{"id": {number}}}'):
                return _pass_on(operator, (tensor,))

        return wait

    def _noting_wait(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def noted(work: Any, *args: Any, **kwargs: Any) -> Any:
            number = self._numbered.get(work)
            if number is None:
                return wait(work, *args, **kwargs)
            with self._range(_WAIT, f'{{"id": {number}}}'):
                return wait(work, *args, **kwargs)

        return noted

    def _annotate(self, name: str, text: str) -> None:
        with self._range(name, text):
            pass

    def _keeping_reduce_op(self, method: Callable[..., Any]) -> Callable[..., Any]:
        reducing = self._reducing

        def kept(*args: Any, **kwargs: Any) -> Any:
            before = getattr(reducing, "op", None)
            reducing.op = reduce_op_name((*args, *kwargs.values()))
            try:
                return method(*args, **kwargs)
            finally:
                reducing.op = before

        return kept


def _communications() -> list[Any]:
    """Return the ``c10d`` operators that take a process group."""
    names = sorted({name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()})
    own = [getattr(torch.ops.c10d, name[len("c10d::") :]).default for name in names if name.startswith("c10d::")]
    calls = [operator for operator in own if any(map(_is_group, operator._schema.arguments))]
    return [operator for operator in calls if hasattr(operator, "redispatch") or _has_own_kernels(operator)]


def _has_own_kernels(operator: Any) -> bool:
    """Tell whether each device that communicates has a kernel of its own for an operator."""
    keys = ("CPU", "CUDA") if torch.cuda.is_available() else ("CPU",)
    return all(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in keys)


def _is_group(argument: Any) -> bool:
    return str(argument.type).endswith("c10d.ProcessGroup")


def _pass_on(operator: Any, arguments: tuple[Any, ...]) -> Any:
    """Call the backend's kernel of an operator, as the dispatcher would have without us."""
    tensor = next(_tensors(arguments), None)
    if hasattr(operator, "redispatch"):
        # Without a tensor it is PyTorch's to say what is wrong.
        keys = _NO_KEYS if tensor is None else torch._C._dispatch_keys(tensor) & _AFTER
        return operator.redispatch(keys, *arguments)
    # PyTorch 2.3: only for kernels of a device; another would end the process.
    key = "CPU" if tensor is None else tensor.device.type.upper()
    return operator._op_dk(getattr(torch._C.DispatchKey, key), *arguments)


def _try_passing_on() -> None:
    """Find out on a harmless operator whether passing on works, before a job depends on it."""
    try:
        _pass_on(torch.ops.aten.add.Tensor, (torch.zeros(1), torch.zeros(1)))
    except Exception as err:
        raise RuntimeError(f"PyTorch {torch.__version__} has no way to pass a call on: {err}") from err


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _find_range() -> Callable[[str, str], Any]:
    """Return what annotates; the text lands in the execution trace as the node's input."""
    fast: Any = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    try:
        with fast("", [""], {}):
            pass
    except Exception:
        # PyTorch 2.3
        return _slow_range
    enabled = torch.autograd._profiler_enabled

    def annotate(name: str, text: str) -> Any:
        # A tenth of the other's cost, but nothing on threads that Kineto doesn't watch.
        return fast(name, [text], {}) if enabled() else _slow_range(name, text)

    return annotate


@contextlib.contextmanager
def _slow_range(name: str, text: str) -> Iterator[None]:
    entered = torch.ops.profiler._record_function_enter_new(name, text)
    try:
        yield
    finally:
        torch.ops.profiler._record_function_exit._RecordFunction(entered)
