"""The device side of the model machine: streams that settle their entries in order (rules in `testing.machine`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chakra_et.errors import InputError
from chakra_et.testing.instructions import Launch, Program, Work
from chakra_et.testing.records import DeviceEvent, Edit, HostEvent, MachineConfig, draw, scaled

__all__ = ["Devices", "Launched", "Signal"]

_NEVER = -(1 << 62)


class Signal:
    """A moment that may not be known yet, and who waits for it (host threads, streams)."""

    __slots__ = ("time", "waiters")

    def __init__(self) -> None:
        self.time: int | None = None
        self.waiters: list[Any] = []


@dataclass(slots=True, eq=False)
class Launched:
    """The pieces of a launch that still run, and the signal for when none does.

    Attributes:
        left: Pieces that haven't ended.
        end_ns: Latest end so far, ns of machine time.
        done: Resolves when none is left, to that end.
    """

    left: int
    end_ns: int = 0
    done: Signal = field(default_factory=Signal)


class _Wait:
    """A stream's entry: nothing behind it starts before the signal."""

    __slots__ = ("signal",)

    def __init__(self, signal: Signal) -> None:
        self.signal = signal


@dataclass(slots=True, eq=False)
class _Item:
    """A stream's entry: a piece of work."""

    work: Work
    ready_ns: int
    duration_ns: int
    event: DeviceEvent
    launched: Launched
    arrived: bool = False


@dataclass(slots=True, eq=False)
class _Stream:
    """Entries that aren't settled yet, and what the next one may not start before."""

    pending: deque[_Item | _Wait | Signal] = field(default_factory=deque)
    bound_ns: int = _NEVER
    blocker: Signal | None = None
    neighbor_ns: int = 0  # duration of the kernel just before; 0 when something else came between


class Devices:
    """The devices of all ranks.

    A stream settles an entry (start, end) as soon as all that it depends on is known, which may be ahead of host time:
    nothing that a host does later can change what is already in a stream.
    """

    def __init__(self, program: Program, edit: Edit, config: MachineConfig, wake: Callable[[Any, int], None]) -> None:
        """Make idle devices; ``wake(waiter, time_ns)`` is called for each host thread that waited for a signal."""
        self.events: list[list[DeviceEvent]] = [[] for _ in range(program.ranks)]
        self._program, self._edit, self._config, self._wake = program, edit, config, wake
        self._streams: list[dict[int, _Stream]] = [{} for _ in range(program.ranks)]
        self._meetings: dict[tuple[str | int, ...], list[tuple[_Item, _Stream]]] = {}

    def mark(self, rank: int, stream: int) -> Signal:
        """Return the signal for when all that the stream holds now has ended."""
        signal = Signal()
        entry = self._stream(rank, stream)
        entry.pending.append(signal)
        self._advance([entry])
        return signal

    def mark_all(self, rank: int) -> list[Signal]:
        """Return one `mark` for each stream of a rank."""
        return [self.mark(rank, stream) for stream in self._streams[rank]]

    def wait(self, rank: int, stream: int, signal: Signal) -> None:
        """Let later work of the stream wait for a signal."""
        entry = self._stream(rank, stream)
        entry.pending.append(_Wait(signal))
        self._advance([entry])

    def enqueue(
        self, rank: int, launch: Launch, call: HostEvent, uid: int, doorbell_ns: int, launched: Launched
    ) -> None:
        """Put a launch's work on its streams; a graph forks from the launch's stream and joins it again."""
        branches = list(dict.fromkeys(work.stream for work in launch.works if work.stream != launch.stream))
        if branches:
            fork = self.mark(rank, launch.stream)
            for branch in branches:
                self._stream(rank, branch).pending.append(_Wait(fork))
        jitter = int(draw(self._program.seed, uid) * self._config.latency_jitter_ns)
        ready = doorbell_ns + self._config.latency_ns + jitter
        for index, work in enumerate(launch.works):
            event = DeviceEvent(work, call, uid + index)
            self.events[rank].append(event)
            duration = scaled(work.duration_ns, self._edit.scale_of(work.kind, work.stream))
            self._stream(rank, work.stream).pending.append(_Item(work, ready, duration, event, launched))
        main = self._stream(rank, launch.stream)
        for branch in branches:
            main.pending.append(_Wait(self.mark(rank, branch)))
        self._advance([main])

    def resolve(self, signal: Signal, time_ns: int) -> None:
        """Say when a signal comes, and wake who waits for it."""
        woken: list[_Stream] = []
        self._resolve(signal, time_ns, woken)
        self._advance(woken)

    def check_ended(self) -> None:
        """Check that no communication still waits for a member.

        Raises:
            InputError: One does.
        """
        for key, arrived in self._meetings.items():
            comm = arrived[0][0].work.comm
            size = len(comm.members) if comm else 0
            raise InputError(
                f"program '{self._program.name}': communication {key}: expected launches on {size} ranks, "
                f"got {len(arrived)}; launch it on every member"
            )

    def _stream(self, rank: int, stream: int) -> _Stream:
        return self._streams[rank].setdefault(stream, _Stream())

    def _resolve(self, signal: Signal, time_ns: int, woken: list[_Stream]) -> None:
        signal.time = time_ns
        for waiter in signal.waiters:
            if isinstance(waiter, _Stream):
                woken.append(waiter)
            else:
                self._wake(waiter, time_ns)
        signal.waiters.clear()

    def _advance(self, work_list: list[_Stream]) -> None:
        """Settle entries until every stream on the list, and all that they wake, is empty or has to wait."""
        while work_list:
            stream = work_list.pop()
            while stream.pending and self._settle(stream.pending[0], stream, work_list):
                pass

    def _settle(self, entry: _Item | _Wait | Signal, stream: _Stream, work_list: list[_Stream]) -> bool:
        """Settle the first entry of a stream, and take it off; return False when it has to wait."""
        if isinstance(entry, _Item):
            if entry.work.comm is not None:
                return self._meet(entry, stream, work_list)
            self._start(entry, stream)
            self._end(entry, stream, entry.event.start_ns + entry.duration_ns, work_list)
            return True
        if isinstance(entry, Signal):
            self._resolve(entry, stream.bound_ns, work_list)
        else:
            if entry.signal.time is None:
                if stream.blocker is not entry.signal:  # register once, however often new entries make us look
                    stream.blocker = entry.signal
                    entry.signal.waiters.append(stream)
                return False
            stream.bound_ns = max(stream.bound_ns, entry.signal.time)
            stream.neighbor_ns = 0
        stream.pending.popleft()
        return True

    def _start(self, item: _Item, stream: _Stream) -> None:
        earliest = stream.bound_ns + self._config.gap_ns
        if stream.neighbor_ns and item.work.kind == "kernel" and self._config.pdl_share:
            overlap = min(self._config.pdl_overlap_ns, stream.neighbor_ns // 2, item.duration_ns // 2)
            if draw(self._program.seed, item.event.uid, 1) < self._config.pdl_share:
                earliest = stream.bound_ns - overlap
        item.event.start_ns = max(item.ready_ns, earliest)

    def _end(self, item: _Item, stream: _Stream, end_ns: int, work_list: list[_Stream]) -> None:
        item.event.end_ns = end_ns
        stream.bound_ns = end_ns
        stream.neighbor_ns = item.duration_ns if item.work.kind == "kernel" else 0
        stream.pending.popleft()
        launched = item.launched
        launched.end_ns = max(launched.end_ns, end_ns)
        launched.left -= 1
        if not launched.left:
            self._resolve(launched.done, launched.end_ns, work_list)

    def _meet(self, item: _Item, stream: _Stream, work_list: list[_Stream]) -> bool:
        """Let a member arrive; return True when it was the last, and all have ended."""
        comm = item.work.comm
        if comm is None or item.arrived:
            return False
        item.arrived = True
        self._start(item, stream)
        members = self._meetings.setdefault(comm.key, [])
        members.append((item, stream))
        if len(members) < len(comm.members):
            return False
        del self._meetings[comm.key]
        end = max(member.event.start_ns for member, _ in members) + max(member.duration_ns for member, _ in members)
        for member, its_stream in members:
            skew = int(draw(self._program.seed, member.event.uid, 2) * self._config.end_skew_ns)
            self._end(member, its_stream, end + skew, work_list)
            work_list.append(its_stream)
        return True
