"""What a fake capture records while the program runs: calls, communications, waits; tensors by identity.

Records are tuples of plain values, made where the call happens and written to a file at the end. Nothing in them keeps
a tensor alive.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

__all__ = ["OBJECT", "Log", "Op", "Ref", "Sync", "Wait"]


_MARK = "_chakra_fake_number"
_serials = itertools.count()


class Ref(NamedTuple):
    """A tensor as it was when a call took or returned it.

    Attributes:
        tensor: Number of the Python object.
        storage: Number of the storage; views of one storage share it.
        offset: Elements from the storage's begin.
        shape: Sizes.
        strides: Elements from one position to the next, by dimension.
        dtype: Element type.
    """

    tensor: int
    storage: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class _Object:
    """Stands for a process group, a work handle or a reduce operator among arguments."""


OBJECT = _Object()


class Op(NamedTuple):
    """One call of an operator.

    Attributes:
        function: The operator (an ``OpOverload``).
        args: Positional arguments, tensors as `Ref`.
        kwargs: Keyword arguments.
        outputs: What it returned, as a list.
        stream: Number of the stream that it was called on.
        is_backward: True if autograd called it.
        note: What is known of a communication: ``id``, ``pg``, ``reduce_op``, ``async``; None for others.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Any]
    stream: int
    is_backward: bool
    note: dict[str, Any] | None = None


class Wait(NamedTuple):
    """A stream begins to wait for a communication.

    Attributes:
        number: The communication.
        stream: The stream.
    """

    number: int
    stream: int


class Sync(NamedTuple):
    """A stream waits for what another stream had been given until some moment.

    Attributes:
        position: Position of the last record of the other stream at that moment.
        stream: The stream that waits.
    """

    position: int
    stream: int


class Log:
    """The records of a window, and the numbers of tensors, storages, communications and streams."""

    def __init__(self) -> None:
        self.records: list[Op | Wait | Sync] = []
        self.first = 0
        self.is_open = True
        self._quiet = 0
        self.stream = 0
        self.last_of_stream: dict[int, int] = {}
        self.warnings: Counter[str] = Counter()
        self._communications = 0
        self._serial = next(_serials)
        self._storages: dict[int, tuple[int, int]] = {}
        self._tensors = 0
        self._of_storage: dict[int, int] = {}
        self._async: set[int] = set()

    def clear(self) -> None:
        """Forget the records: what comes next is the window's first."""
        self.first += len(self.records)
        self.records.clear()
        self.last_of_stream.clear()

    def add(self, record: Op | Wait | Sync) -> None:
        """Append a record, while the log is open."""
        if not self.is_open or self._quiet:
            return
        # An asynchronous communication isn't on the stream that it was called on: events there don't tell of it.
        if not (isinstance(record, Op) and record.note is not None and record.note["async"]):
            self.last_of_stream[record.stream] = self.first + len(self.records)
        self.records.append(record)

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Leave out what is called inside: it is only tried for its shapes."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def next_communication(self) -> int:
        """Return the number of a new communication."""
        self._communications += 1
        return self._communications

    def issued(self, number: int, outputs: list[Ref], *, is_async: bool) -> None:
        """Remember that a communication fills some tensors."""
        if is_async:
            self._async.add(number)
        for ref in outputs:
            self._of_storage[ref.storage] = number

    def wait_for(self, number: int | None) -> None:
        """Record a wait for a communication; those that waited by themselves need none."""
        if number is not None and number in self._async:
            self.add(Wait(number, self.stream))

    def filling(self, tensor: torch.Tensor) -> int | None:
        """Return the communication that fills a tensor's storage, or None."""
        return self._of_storage.get(self.ref(tensor).storage)

    def ref(self, tensor: torch.Tensor) -> Ref:
        """Return the record of a tensor."""
        number = self._number(tensor)
        try:
            strides = tensor.stride()
            storage = self._storage(tensor.untyped_storage())
            offset = int(tensor.storage_offset())
        except (RuntimeError, NotImplementedError):  # sparse and other layouts without a storage
            return Ref(number, 0, 0, tuple(tensor.shape), (), tensor.dtype)
        return Ref(number, storage, offset, tuple(tensor.shape), strides, tensor.dtype)

    def _number(self, tensor: torch.Tensor) -> int:
        # Kept on the tensor itself: parameters that weak references point at can't be moved to a device. A copy takes
        # the mark along, but lies elsewhere.
        mark = (self._serial, id(tensor))
        known = tensor.__dict__.get(_MARK)
        if known is not None and known[0] == mark:
            return int(known[1])
        self._tensors += 1
        tensor.__dict__[_MARK] = (mark, self._tensors)
        return self._tensors

    def _storage(self, storage: torch.UntypedStorage) -> int:
        # A weak reference keeps the address from being used again, so that it stands for one storage for good.
        address = storage._cdata
        known = self._storages.get(address)
        if known is None:
            known = (len(self._storages) + 1, storage._weak_ref())
            self._storages[address] = known
        return known[0]

    def freeze(self, value: Any) -> Any:
        """Return arguments as they are recorded."""
        if isinstance(value, torch.Tensor):
            return self.ref(value)
        if isinstance(value, list | tuple):
            return [self.freeze(item) for item in value]
        if value is None or isinstance(value, bool | int | float | str | complex | torch.dtype):
            return value
        if isinstance(value, torch.SymInt):
            return int(value)
        return OBJECT if isinstance(value, torch.ScriptObject) else value

    def outputs(self, value: Any) -> list[Any]:
        """Return what a call returned as a list of records."""
        if value is None:
            return []
        # Several results are a tuple; a list is one result.
        return self.freeze(value) if isinstance(value, tuple) else [self.freeze(value)]

    def close(self) -> None:
        """Give back what kept addresses from being used again."""
        for _, weak in self._storages.values():
            torch.UntypedStorage._free_weak_ref(weak)
        self._storages.clear()
