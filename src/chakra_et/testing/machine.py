"""The model machine: ranks with host threads and a device with streams, and the rules by which time passes on them.

Times are whole nanoseconds; machine time 0 is where every rank starts unless an `Edit` delays it.

**Host.** A thread executes its instructions in order; each takes its ``host_ns`` times the thread's scale. Nothing
else slows a thread down: threads don't compete for cores. A posted token reaches the thread that awaits it
``handoff_ns`` after the post (a constant of the operating system: it doesn't scale).

**Launch.** A call that starts at ``t`` and takes ``c`` rings the doorbell at ``t + doorbell_fraction * c`` (so this
part scales with the host thread), and its work is *ready* one launch latency later: ``latency_ns + u *
latency_jitter_ns``, constant under every edit, with ``u`` in [0, 1) drawn from the program's seed and the
instruction's position, so that a second run draws the same. A kernel may thus start before its call returns. A
blocking launch (a pageable copy) returns when its work has ended and the rest of the call has passed.

**Queue.** Each device has a ring of ``queue_depth`` slots, and each launch (a graph counts once) takes the next one:
launch ``n`` waits, at its call's start, until launch ``n - queue_depth`` of this device has ended; the ``t`` above is
then that moment, while the call is recorded from where it began.

**Stream.** Work runs in the order in which the calls began, one piece at a time: ``start = max(ready, previous end +
gap_ns, awaited events + gap_ns)``. A share ``pdl_share`` of neighboring kernels, those with no wait between them,
overlaps as programmatic dependent launch lets them: the later starts up to ``pdl_overlap_ns`` before the earlier
ends, but never by more than half of either.

**Events.** A record completes when all that its stream held at the call has ended (at once if that is nothing). A
stream that waits for an event starts no later work before it. A wait for an event that nobody has recorded does
nothing.

**Graph launch.** One call, several kernels: it forks from its stream (branches on other streams wait for what the
stream held), each branch runs in order, and the stream goes on when all have ended. All its kernels are ready
together.

**Host waits.** A synchronize call that starts at ``t`` returns at ``max(t, what it waits for) + c``.

**Communication.** Each member's kernel starts by the rules of its own stream; all end at (latest start over the
members) + transfer time, which is the longest that a member asks for. ``end_skew_ns`` delays each member's end by its
own share.

**Edits.** `Edit.kernel_scale` applies to kernels that are no communication; `Edit.stream_scale` to all work on
streams of that number, on every rank (of a communication: the transfer); `Edit.comm_scale` to transfers;
`Edit.host_thread_scale` to all host times of a thread. Scales of one thing multiply. Latencies, gaps and hand-offs
are never scaled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from chakra_et.errors import InputError
from chakra_et.testing import instructions as ins
from chakra_et.testing.device import Devices, Launched, Signal
from chakra_et.testing.records import Edit, HostEvent, MachineConfig, RankRun, scaled

__all__ = ["simulate"]


def simulate(
    program: ins.Program, *, edit: Edit | None = None, config: MachineConfig | None = None
) -> tuple[RankRun, ...]:
    """Run a program and return what happened on each rank.

    Raises:
        InputError: The program can't end (a collective that a member never launches, a token that nobody posts).

    Example:
        >>> from chakra_et.testing import programs
        >>> [rank.rank for rank in simulate(programs.multi_stream(ranks=2))]
        [0, 1]
    """
    return _Machine(program, edit or Edit(), config or MachineConfig()).run()


@dataclass(slots=True, eq=False)
class _Rank:
    number: int
    events: dict[str, tuple[Signal, HostEvent]] = field(default_factory=dict)
    tokens: dict[str, Signal] = field(default_factory=dict)
    launches: list[Signal] = field(default_factory=list)
    host: list[HostEvent] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Thread:
    spec: ins.HostThread
    index: int
    rank: _Rank
    scale: float
    time: int
    position: int = 0
    phase: int = 0  # how often the instruction at `position` has asked to sleep
    missing: int = 0  # signals that are still to come
    wake: int = 0
    open: list[HostEvent] = field(default_factory=list)
    call: HostEvent | None = None
    launched: Launched | None = None


class _Machine:
    """Runs host threads in time order (a heap); the devices settle their work as far as it is known."""

    def __init__(self, program: ins.Program, edit: Edit, config: MachineConfig) -> None:
        self.program, self.config = program, config
        self.heap: list[tuple[int, int]] = []
        self.devices = Devices(program, edit, config, self._wake)
        self.ranks = [_Rank(number) for number in range(program.ranks)]
        self.threads = [
            _Thread(
                spec,
                index,
                self.ranks[spec.rank],
                edit.host_thread_scale.get(spec.tid, 1.0),
                edit.rank_delay_ns.get(spec.rank, 0),
            )
            for index, spec in enumerate(program.threads)
        ]

    def run(self) -> tuple[RankRun, ...]:
        self.heap = sorted((thread.time, thread.index) for thread in self.threads)
        while self.heap:
            time, index = heappop(self.heap)
            self.threads[index].time = time
            self._advance(self.threads[index])
        self._check_ended()
        return tuple(self._finish(rank) for rank in self.ranks)

    def _advance(self, thread: _Thread) -> None:
        program = thread.spec.instructions
        while thread.position < len(program):
            instruction = program[thread.position]
            if not _step(thread, instruction):
                # What touches the device or another thread happens in time order over all threads.
                if self.heap and self.heap[0] < (thread.time, thread.index):
                    heappush(self.heap, (thread.time, thread.index))
                    return
                if not self._interact(thread, instruction):
                    return
                thread.phase = 0
            thread.position += 1

    def _interact(self, thread: _Thread, instruction: ins.Instruction) -> bool:
        """Execute what concerns the device or another thread; return False when the thread went to sleep."""
        if isinstance(instruction, ins.Launch):
            return self._launch(thread, instruction)
        if isinstance(instruction, ins.Sync):
            return self._sync(thread, instruction)
        if isinstance(instruction, ins.EventRecord):
            call = _open_call(thread, "cudaEventRecord", instruction)
            mark = self.devices.mark(thread.rank.number, instruction.stream)
            thread.rank.events[instruction.event] = (mark, call)
            return _close_call(thread, call, instruction.host_ns)
        if isinstance(instruction, ins.StreamWait):
            call = _open_call(thread, "cudaStreamWaitEvent", instruction)
            if instruction.event in thread.rank.events:
                signal, call.waits_for = thread.rank.events[instruction.event]
                self.devices.wait(thread.rank.number, instruction.stream, signal)
            return _close_call(thread, call, instruction.host_ns)
        if isinstance(instruction, ins.Await):
            return thread.phase > 0 or self._sleep(thread, [_token(thread.rank, instruction.token)])
        if isinstance(instruction, ins.Post):
            self.devices.resolve(_token(thread.rank, instruction.token), thread.time + self.config.handoff_ns)
        return True

    def _launch(self, thread: _Thread, launch: ins.Launch) -> bool:
        cost = scaled(launch.host_ns, thread.scale)
        before = int(cost * self.config.doorbell_fraction)
        if thread.call is None or thread.launched is None:
            thread.call, thread.launched = _open_call(thread, launch.api, launch), Launched(len(launch.works))
            slots, depth = thread.rank.launches, self.config.queue_depth
            slots.append(thread.launched.done)
            if not self._sleep(thread, slots[-1 - depth : -depth]):
                return False
        if thread.phase == 1:
            thread.time += before
            uid = (thread.index << 44) | (thread.position << 16)
            self.devices.enqueue(thread.rank.number, launch, thread.call, uid, thread.time, thread.launched)
            if not self._sleep(thread, [thread.launched.done] if launch.blocking else []):
                return False
        thread.launched = None
        thread.time += cost - before
        return _close_call(thread, thread.call, 0)

    def _sync(self, thread: _Thread, sync: ins.Sync) -> bool:
        if thread.call is None:
            thread.call = _open_call(thread, f"cuda{sync.scope.capitalize()}Synchronize", sync)
            signals: list[Signal] = []
            if sync.scope == "stream":
                signals = [self.devices.mark(thread.rank.number, sync.stream)]
            elif sync.scope == "device":
                signals = self.devices.mark_all(thread.rank.number)
            elif sync.event in thread.rank.events:
                signal, thread.call.waits_for = thread.rank.events[sync.event]
                signals = [signal]
            if not self._sleep(thread, signals):
                return False
        return _close_call(thread, thread.call, sync.host_ns)

    def _sleep(self, thread: _Thread, signals: list[Signal]) -> bool:
        """Return True when the thread may go on at once; else put it to sleep until all signals have come."""
        thread.phase += 1
        thread.wake, thread.missing = thread.time, 0
        for signal in signals:
            if signal.time is None:
                thread.missing += 1
                signal.waiters.append(thread)
            else:
                thread.wake = max(thread.wake, signal.time)
        if thread.missing:
            return False
        if thread.wake == thread.time:
            return True
        heappush(self.heap, (thread.wake, thread.index))
        return False

    def _wake(self, thread: _Thread, time_ns: int) -> None:
        thread.missing -= 1
        thread.wake = max(thread.wake, time_ns)
        if not thread.missing:
            heappush(self.heap, (thread.wake, thread.index))

    def _check_ended(self) -> None:
        for thread in self.threads:
            if thread.position < len(thread.spec.instructions):
                spec = thread.spec
                raise InputError(
                    f"program '{self.program.name}': rank {spec.rank}: thread {spec.tid} ('{spec.name}') waits for "
                    f"ever at instruction {thread.position} ({type(spec.instructions[thread.position]).__name__}); "
                    "post its token, or launch its communication on every member"
                )
        self.devices.check_ended()

    def _finish(self, rank: _Rank) -> RankRun:
        """Sort by start, and number ranges and calls in that order."""
        host = sorted(rank.host, key=lambda event: event.start_ns)
        device = sorted(self.devices.events[rank.number], key=lambda event: event.start_ns)
        ranges = calls = 0
        for event in host:
            if event.category == "runtime":
                calls += 1
                event.number = calls
            elif event.category != "python_function":
                ranges += 1
                event.number = ranges
        starts = [events[0].start_ns for events in (host, device) if events]
        ends = [max(event.end_ns for event in events) for events in (host, device) if events]
        return RankRun(rank.number, tuple(host), tuple(device), min(starts, default=0), max(ends, default=0))


def _step(thread: _Thread, instruction: ins.Instruction) -> bool:
    """Execute an instruction that concerns nobody but the thread; return False when it isn't one."""
    if isinstance(instruction, ins.Begin):
        parent = thread.open[-1] if thread.open else None
        event = HostEvent(instruction.category, instruction.name, thread.spec.tid, thread.time, 0, instruction, parent)
        thread.rank.host.append(event)
        thread.open.append(event)
    elif isinstance(instruction, ins.Call):
        return _close_call(thread, _open_call(thread, instruction.api, instruction), instruction.host_ns)
    elif not isinstance(instruction, ins.End | ins.Busy):
        return False
    thread.time += scaled(instruction.host_ns, thread.scale)
    if isinstance(instruction, ins.End):
        thread.open.pop().end_ns = thread.time
    return True


def _open_call(thread: _Thread, api: str, instruction: ins.Instruction) -> HostEvent:
    parent = thread.open[-1] if thread.open else None
    call = HostEvent("runtime", api, thread.spec.tid, thread.time, 0, instruction, parent)
    thread.rank.host.append(call)
    return call


def _close_call(thread: _Thread, call: HostEvent, host_ns: int) -> bool:
    thread.time += scaled(host_ns, thread.scale)
    call.end_ns = thread.time
    thread.call = None
    return True


def _token(rank: _Rank, token: str) -> Signal:
    return rank.tokens.setdefault(token, Signal())
