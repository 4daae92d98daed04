"""Streams and events of a device that isn't there: they order the records.

PyTorch has stand-ins for streams of the CPU that do nothing. While a fake capture runs, these take their place and that
of ``torch.cuda``'s, so that FSDP's all-gather and reduce-scatter streams, and those of user code, order what was called
on them as they would on a device.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch

from chakra_et.capture.fake.log import Log, Sync

__all__ = ["Streams"]


class _Event:
    """A point on a stream."""

    streams: Streams

    def __init__(self, *_: Any, **__: Any) -> None:
        self.position = -1

    def record(self, stream: Any = None) -> Any:
        self.position = self.streams.last(stream)
        return self

    def wait(self, stream: Any = None) -> None:
        self.streams.wait(stream, self.position)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.streams.wait(self.streams.default, self.position)

    def elapsed_time(self, end_event: Any) -> float:
        return 1.0


class _Stream:
    """A queue of work."""

    streams: Streams

    def __init__(self, *_: Any, **__: Any) -> None:
        self.number = self.streams.next_number()
        self.stream_id = self.cuda_stream = self.number
        self.priority, self.device = 0, torch.device("cpu")
        self._inside: list[Any] = []

    def wait_stream(self, stream: Any) -> None:
        self.streams.wait(self, self.streams.last(stream))

    def record_event(self, event: Any = None) -> Any:
        return (self.streams.Event() if event is None else event).record(self)

    def wait_event(self, event: Any) -> None:
        self.streams.wait(self, getattr(event, "position", -1))

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.streams.wait(self.streams.default, self.streams.last(self))

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Any:
        self._inside.append(self.streams.use(self))
        self._inside[-1].__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.pop().__exit__(kind, error, trace)


class Streams:
    """The streams of one capture.

    Args:
        log: Where waits are recorded.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._numbers = itertools.count()
        self.Event: Any = type("Event", (_Event,), {"streams": self})
        self.Stream: Any = type("Stream", (_Stream,), {"streams": self})
        self.default = self._current = self.Stream()

    def next_number(self) -> int:
        """Return the number of a new stream; the default one is 0."""
        return next(self._numbers)

    def current(self) -> Any:
        """Return the stream that calls go to."""
        return self._current

    def choose(self, stream: Any) -> None:
        """Let calls go to a stream from now on."""
        self._current = stream
        self._log.stream = stream.number

    @contextlib.contextmanager
    def use(self, stream: Any = None) -> Iterator[None]:
        """Let calls inside go to a stream; None changes nothing."""
        before = self._current
        if stream is not None:
            self.choose(stream)
        try:
            yield
        finally:
            self.choose(before)

    def last(self, stream: Any = None) -> int:
        """Return the position of the last record of a stream (None: the current one), -1 if it has none."""
        return self._log.last_of_stream.get((stream or self._current).number, -1)

    def synchronize(self) -> None:
        """Record that the host waits for all streams: what it calls next comes after them."""
        for position in list(self._log.last_of_stream.values()):
            self.wait(self.default, position)

    def wait(self, stream: Any, position: int) -> None:
        """Record that a stream (None: the current one) waits for a record, unless it is its own or past."""
        log, number = self._log, (stream or self._current).number
        if position >= log.first and log.records[position - log.first].stream != number:
            log.add(Sync(position, number))
