"""Communications through torch.distributed: gloo, and NCCL or RCCL on devices."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from chakra_et.errors import ReplayError
from chakra_et.ir import ProcessGroup
from chakra_et.replay.backends.comm_buffers import Buffers
from chakra_et.replay.backends.comm_check import expected_values, fill_inputs, first_difference
from chakra_et.replay.backends.comm_ops import Start, bind, has_average, reduce_op_of, transportable
from chakra_et.replay.backends.comm_watch import Watch
from chakra_et.replay.communications.call import REDUCING, CommCall
from chakra_et.replay.options import ConnectOptions
from chakra_et.replay.plan.steps import Communicate, Plan

__all__ = ["TorchCommunicator", "connect"]

# gloo's own time-out comes after ours, which can say who is missing.
_LATER_S = 60
_PATIENCE = timedelta(days=1)
_DONE = "chakra/done"
_POLL_S = 0.1


@dataclass(slots=True)
class _Handle:
    """A communication on its way."""

    call: CommCall
    turn: int
    work: Any
    start_ns: int
    taken: Sequence[Any]
    held: list[Any]
    done_ns: list[int] = field(default_factory=list)


def connect(
    options: ConnectOptions,
    *,
    rank: int,
    world_size: int,
    groups: Iterable[ProcessGroup],
    active: Sequence[int] = (),
    report: Callable[[str], None] | None = None,
) -> TorchCommunicator:
    """Join the other ranks and make the process groups, in one order on all ranks.

    Args:
        options: How.
        rank: Global rank.
        world_size: Ranks of the replay.
        groups: The groups that any rank uses, in an order that all ranks share.
        active: The ranks that communicate; empty: all.
        report: Called once, on another thread, if this rank waits too long; by default it ends the process.

    Raises:
        ReplayError: Not all ranks came in time.
    """
    cuda = options.backend != "gloo"
    if cuda and options.device >= torch.cuda.device_count():
        raise ReplayError(
            f"rank {rank}: expected a GPU for each rank of a server, got {torch.cuda.device_count()} and need number "
            f"{options.device}; start fewer ranks, or replay on CPUs (--backend gloo)"
        )
    device = torch.device("cuda", options.device) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    timeout = timedelta(seconds=options.timeout_s)
    later = timedelta(seconds=options.timeout_s + _LATER_S)
    try:
        dist.init_process_group(
            options.backend, init_method=options.init_method, rank=rank, world_size=world_size, timeout=timeout
        )
        made: dict[tuple[str, tuple[int, ...]], Any] = {}
        for group in groups:
            # All ranks make all groups, those that they aren't in as well: torch counts them.
            made[group.name, group.ranks] = dist.new_group(list(group.ranks), timeout=later, backend=options.backend)
        # Between passes, ranks meet on a group of their own: it keeps out of the recorded ones' way, and waits for
        # as long as another rank computes. A rank that ends closes its connections.
        control = dist.new_group(list(active) or None, timeout=_PATIENCE, backend="gloo")
        averages = options.backend != "gloo"
        if not active or rank in active:
            dist.barrier(control)
            averages = averages or has_average(control)
    except (RuntimeError, ValueError) as err:
        raise ReplayError(
            f"rank {rank}: expected {world_size} ranks within {options.timeout_s:g} s, got: {_first_line(err)}"
        ) from err
    return TorchCommunicator(options, rank, device, (made, control), averages, report or _end_process)


class TorchCommunicator:
    """Makes the communications of one rank; see `chakra_et.replay.plan.steps.Communicator` for what it offers.

    Attributes:
        checked: Results that were checked.
        unchecked: Results that can't be checked: received from anybody, of a reduce on other ranks than its root.
        wrong: What was wrong with results, in words.
        notes: What is done in another way than recorded.
    """

    def __init__(
        self,
        options: ConnectOptions,
        rank: int,
        device: torch.device,
        groups: tuple[dict[tuple[str, tuple[int, ...]], Any], Any],
        averages: bool,
        report: Callable[[str], None],
    ) -> None:
        self._options, self._rank, self._device = options, rank, device
        self._groups, self._control = groups
        self._averages = averages
        self._passes = 0
        self._store = _store()
        self._buffers = Buffers(device, options.seed + rank)
        self._starts: dict[int, Start] = {}
        self._open: dict[int, list[_Joint]] = {}
        self._done: list[tuple[int, int, int]] = []
        self._events: list[tuple[int, Any, Any]] = []
        self._base: tuple[Any, int] | None = None
        self._batches: dict[int, int] = {}
        self._last: tuple[CommCall, int] | None = None
        self._watch = Watch(self._store, rank, options.timeout_s, report)
        self._watch.start()
        self.checked, self.unchecked = 0, 0
        self.wrong: list[str] = []
        self.notes: set[str] = set()

    def prepare(self, plan: Plan) -> None:
        """Bind every call to its group, and make the tensors that are needed at once."""
        calls = [step.call for step in plan.steps if isinstance(step, Communicate)]
        for call in calls:
            group = self._groups.get((call.group, call.ranks))
            if group is None:
                raise ReplayError(
                    f"rank {self._rank}: node {call.node} ('{call.kind}'): expected its group '{call.group}' among "
                    f"those that were made, got {len(self._groups)} others"
                )
            self._starts[call.number] = bind(group, call, rank=self._rank, averages=self._averages, device=self._device)
            if call.reduce_op and reduce_op_of(call.reduce_op, averages=self._averages) != call.reduce_op:
                self.notes.add(f"'{call.reduce_op}' was made as a sum: {self._options.backend} has no such operation")
            if call.batch is not None:
                self._batches[call.batch] = call.number
        self._warm_buffers(plan)

    def issue(self, call: CommCall, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Start a communication and return what `wait` takes."""
        held: list[Any] = []
        given, taken = list(inputs), list(outputs)
        if not given and not taken and call.kind != "barrier":
            given, taken, held = self._buffers.lend(call)
        turn = self._watch.called(call)
        self._last = (call, turn)
        if self._options.check and held:
            self._fill(call, turn, given, taken)
        given, taken, shown = self._wire(call, given), self._wire(call, taken), taken
        self._watch.waits(call, turn)
        handle = _Handle(call, turn, None, time.perf_counter_ns(), shown, held)
        begin = self._event()
        try:
            handle.work = self._start(call, given, taken)
        except RuntimeError as err:
            raise self._failed(call, err) from err
        self._watch.goes_on()
        if begin is not None:
            handle.done_ns.append(len(self._events))
            self._events.append((call.number, begin, None))
        elif call.asynchronous and call.is_collective:
            _note_end(handle)
        return handle

    def wait(self, handle: Any) -> None:
        """Wait until a communication is done."""
        call = handle.call
        self._watch.waits(call, handle.turn)
        try:
            if handle.work is not None:
                handle.work.wait()
        except RuntimeError as err:
            raise self._failed(call, err) from err
        end = time.perf_counter_ns()
        self._watch.goes_on()
        if self._device.type == "cuda":
            place = handle.done_ns[0]
            self._events[place] = (*self._events[place][:2], self._event())
        else:
            # An asynchronous one may have been over long before anybody waited.
            self._done.append((call.number, handle.start_ns, min([end, *handle.done_ns])))
        if self._options.check and handle.held:
            self._check(call, handle.turn, handle.taken)
        self._buffers.take_back(handle.held)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._synchronize()
        self._passes += 1
        self._watch.place = f"before pass {self._passes}"
        try:
            dist.barrier(self._control)
        except RuntimeError as err:
            raise ReplayError(
                f"rank {self._rank}: expected all ranks between two passes, got: {_first_line(err)}"
            ) from err
        if self._device.type == "cuda":
            self._base = (self._event(), time.perf_counter_ns())

    def collect(self) -> Sequence[tuple[int, int, int]]:
        """Return (number, start, end) of each communication since the last call, ns of `time.perf_counter_ns`."""
        if self._device.type == "cuda":
            self._synchronize()
            base, base_ns = self._base or (self._events[0][1], time.perf_counter_ns())
            for number, begin, end in self._events:
                if end is not None:
                    times = (base_ns + round(base.elapsed_time(event) * 1e6) for event in (begin, end))
                    self._done.append((number, *times))
            self._events.clear()
        done, self._done = self._done, []
        return done

    def gather(self, value: Any, active: Sequence[int]) -> list[Any]:
        """Return what all active ranks give, on the first of them; nothing on the others."""
        found = [None] * len(active) if self._rank == active[0] else None
        dist.gather_object(value, found, dst=active[0], group=self._control)
        return found or []

    def stand_by(self, active: Iterable[int]) -> None:
        """Wait until other ranks are done: a rank without communications holds up the store that they share."""
        self._watch.place = "without communications"
        # A store that is gone was held by one of them, which has ended: it waits for nobody at its end.
        with suppress(RuntimeError):
            while not self._store.check([f"{_DONE}/{rank}" for rank in active]):
                time.sleep(_POLL_S)
            self._watch.stop()
        dist.destroy_process_group()

    def close(self) -> None:
        """Leave the other ranks."""
        self._watch.stop()
        with suppress(RuntimeError):
            dist.barrier(self._control)
            self._store.set(f"{_DONE}/{self._rank}", "1")
            dist.destroy_process_group()

    def _start(self, call: CommCall, given: Sequence[Any], taken: Sequence[Any]) -> Any:
        group = self._groups[call.group, call.ranks]
        if call.batch is None or self._options.backend == "gloo":
            return self._starts[call.number](given, taken)
        # NCCL must be told which sends and receives belong together: alone, each would wait for its peer in turn.
        if call.batch not in self._open:
            group._start_coalescing(self._device)
        members = self._open.setdefault(call.batch, [])
        self._starts[call.number](given, taken)
        joint = _Joint()
        members.append(joint)
        if self._batches[call.batch] == call.number:
            work = group._end_coalescing(self._device)
            for member in self._open.pop(call.batch):
                member.work = work
        return joint

    def _wire(self, call: CommCall, tensors: Sequence[Any]) -> list[Any]:
        reduces = call.kind in REDUCING
        return [transportable(one, backend=self._options.backend, reduces=reduces) for one in tensors]

    def _fill(self, call: CommCall, turn: int, given: Sequence[Any], taken: Sequence[Any]) -> None:
        for tensor in taken:
            tensor.zero_()
        op = reduce_op_of(call.reduce_op, averages=self._averages) if call.reduce_op else ""
        fill_inputs(call, given, place=call.ranks.index(self._rank), turn=turn, op=op)

    def _check(self, call: CommCall, turn: int, taken: Sequence[Any]) -> None:
        self._synchronize()
        op = reduce_op_of(call.reduce_op, averages=self._averages) if call.reduce_op else ""
        place = call.ranks.index(self._rank)
        # Numbers that a backend doesn't know are added as bytes, for their time: there is no result to check.
        as_bytes = bool(op) and any(wired is not one for wired, one in zip(self._wire(call, taken), taken, strict=True))
        found = {} if as_bytes else dict(expected_values(call, taken, place=place, turn=turn, op=op))
        self.checked += bool(found)
        self.unchecked += bool(taken) and not found
        for index, values in found.items():
            text = first_difference(taken[index], values, len(call.ranks))
            if text:
                self.wrong.append(f"rank {self._rank}: node {call.node} ('{call.kind}'): {text}")

    def _warm_buffers(self, plan: Plan) -> None:
        """Make as many tensors as are lent at once."""
        lent: dict[int, list[Any]] = {}
        for step in plan.steps:
            if isinstance(step, Communicate) and not step.inputs and not step.outputs and step.call.kind != "barrier":
                lent[step.call.number] = self._buffers.lend(step.call)[2]
            elif hasattr(step, "number") and step.number in lent:
                self._buffers.take_back(lent.pop(step.number))
        for held in lent.values():
            self._buffers.take_back(held)

    def _synchronize(self) -> None:
        """Wait for the device, which may wait for other ranks: there, calls and waits return at once."""
        if self._device.type != "cuda":
            return
        if self._last is not None:
            self._watch.waits(*self._last)
        torch.cuda.synchronize(self._device)
        self._watch.goes_on()

    def _event(self) -> Any:
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _failed(self, call: CommCall, err: Exception) -> ReplayError:
        self._watch.goes_on()
        size = f"{call.in_elements or call.out_elements:,} {call.dtype}"
        return ReplayError(
            f"rank {self._rank}: node {call.node} ('{call.kind}'): expected {size} on group '{call.group}', got: "
            f"{_first_line(err)}"
        )


class _Joint:
    """One of several sends and receives that are waited for as one."""

    def __init__(self) -> None:
        self.work: Any = None

    def wait(self) -> None:
        """Wait for all of them."""
        if self.work is not None:
            self.work.wait()


def _note_end(handle: _Handle) -> None:
    """Note when an asynchronous communication was over: a future calls back on the thread that ended it."""
    with suppress(RuntimeError):
        handle.work.get_future().add_done_callback(lambda _: handle.done_ns.append(time.perf_counter_ns()))


def _store() -> Any:
    return dist.PrefixStore("chakra-replay", dist.distributed_c10d._get_default_store())


def _first_line(err: Exception) -> str:
    return str(err).strip().partition("\n")[0]


def _end_process(text: str) -> None:
    """Say what a rank waits for, and end it: nothing else ends a wait inside a communication library."""
    import os

    sys.stderr.write(f"chakra: error: {text}\n")
    sys.stderr.flush()
    os._exit(1)
