"""Streams and events of a device that isn't there: they order the records.

PyTorch has stand-ins for streams of the CPU that do nothing. While a fake capture runs, these take their place and that
of ``torch.cuda``'s, so that FSDP's all-gather and reduce-scatter streams, and those of user code, order what was called
on them as they would on a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from chakra_et.capture.fake_log import Log, Sync

__all__ = ["Streams"]


class Streams:
    """The streams of one capture.

    Args:
        log: Where waits are recorded.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._count = 0
        streams = self

        class Event:
            """A point on a stream."""

            def __init__(self, *_: Any, **__: Any) -> None:
                self.position = -1

            def record(self, stream: Any = None) -> Any:
                self.position = log.last_of_stream.get(_number(stream, log), -1)
                return self

            def wait(self, stream: Any = None) -> None:
                streams.wait(_number(stream, log), self.position)

            def query(self) -> bool:
                return True

            def synchronize(self) -> None:
                streams.wait(0, self.position)

            def elapsed_time(self, end_event: Any) -> float:
                return 1.0

        class Stream:
            """A queue of work."""

            def __init__(self, *_: Any, **__: Any) -> None:
                streams._count += 1
                self.number = streams._count
                self.stream_id = self.cuda_stream = self.number

            def wait_stream(self, stream: Any) -> None:
                streams.wait(self.number, log.last_of_stream.get(_number(stream, log), -1))

            def record_event(self, event: Any = None) -> Any:
                return (event or Event()).record(self)

            def wait_event(self, event: Any) -> None:
                streams.wait(self.number, getattr(event, "position", -1))

            def query(self) -> bool:
                return True

            def synchronize(self) -> None:
                streams.wait(0, log.last_of_stream.get(self.number, -1))

            def is_capturing(self) -> bool:
                return False

            def __enter__(self) -> Any:
                self._inside = streams.use(self)
                self._inside.__enter__()
                return self

            def __exit__(
                self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
            ) -> None:
                self._inside.__exit__(kind, error, trace)

        self.Stream, self.Event = Stream, Event
        self.default = Stream()
        self.default.number = streams._count = 0
        self._current = self.default

    def current(self, *_: Any, **__: Any) -> Any:
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

    def wait(self, stream: int, position: int) -> None:
        """Record that a stream waits for a record, unless it is its own or before the window."""
        log = self._log
        if position >= log.first and log.records[position - log.first].stream != stream:
            log.add(Sync(position, stream))


def _number(stream: Any, log: Log) -> int:
    return int(getattr(stream, "number", log.stream)) if stream is not None else log.stream
