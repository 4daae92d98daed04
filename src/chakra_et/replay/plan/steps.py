"""What a replay does, step by step: plain data, made by the planner, read by the runner and by those who report.

Shape letters: S steps, T tensor slots, M storages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chakra_et.ir import ProcessGroup
from chakra_et.replay.communications.call import CommCall

__all__ = [
    "Communicate",
    "Communicator",
    "Delay",
    "Iteration",
    "OpCall",
    "Plan",
    "Recording",
    "Slot",
    "Step",
    "Storage",
    "TensorSlot",
    "View",
    "Wait",
]


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor among an operator's arguments or results.

    Attributes:
        index: Its place in `Plan.tensors`.
    """

    index: int


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an operator.

    Attributes:
        node: Id of its node.
        name: Operator name, as recorded (``aten::addmm``).
        schema: Operator schema, as recorded.
        arguments: Values in the schema's order: `Slot`, numbers, strings, None, tuples of them.
        results: A `Slot` (or None) for each result, tuples for lists of tensors.
        gap_ns: Recorded time of the host between what ran before and this call; negative where both ran at once, on
            different threads.
        duration_ns: Recorded time of the call, with all that it calls.
        device_ns: Recorded time of the kernels that it launched.
        tid: Thread that called it.
    """

    node: int
    name: str
    schema: str
    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    gap_ns: int = 0
    duration_ns: int = 0
    device_ns: int = 0
    tid: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """A tensor that the trace shows as an input, of a storage that something else made: a view that no call made.

    Attributes:
        result: Slot that it goes to.
        base: Slot of a tensor that lies in the same storage.
    """

    result: int
    base: int


@dataclass(frozen=True, slots=True)
class Delay:
    """Time held in place of something that can't be called, or isn't to be.

    Attributes:
        node: Id of its node.
        name: Its name.
        reason: Why it is not called; empty where calls are left out on request.
        gap_ns: Recorded time of the host between what ran before and this; negative as in `OpCall`.
        duration_ns: Time that is held.
        device_ns: Recorded time of the kernels that it launched.
    """

    node: int
    name: str
    reason: str
    gap_ns: int = 0
    duration_ns: int = 0
    device_ns: int = 0


@dataclass(frozen=True, slots=True)
class Communicate:
    """The start of a communication.

    Attributes:
        call: The communication.
        inputs: Slots of the tensors that the rank gives, in the order of `CommCall.inputs`; empty if unknown or not
            wanted: the communicator brings its own.
        outputs: Slots of the tensors that the rank gets, in the order of `CommCall.outputs`; empty likewise.
        gap_ns: Recorded time of the host between what ran before and the call; negative as in `OpCall`.
        duration_ns: Recorded time of the call on its thread, until it returned.
    """

    call: CommCall
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    gap_ns: int = 0
    duration_ns: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait for a communication; one that is not asynchronous has it right behind it.

    Attributes:
        number: `CommCall.number` of what is waited for.
        gap_ns: Recorded time of the host between what ran before and the wait.
        duration_ns: Recorded time of the wait.
    """

    number: int
    gap_ns: int = 0
    duration_ns: int = 0


Step = OpCall | View | Delay | Communicate | Wait


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """A tensor, as a stretch of its storage; a slot holds one tensor at a time, and each tensor has a slot of its own.

    Attributes:
        storage: Its place in `Plan.storages`; -1 for a tensor that was never defined.
        offset: First element in the storage.
        shape: Its shape.
        strides: Strides in elements.
        dtype: Torch's name of the element type (``float32``).
        device: Recorded device (``cuda:0``).
        first: Step that first has it; -1: it is there before the first step.
        last: Step that last uses it; -1: none does, in a part of a plan.
        low, high: Range of the recorded values of an integer tensor that is there from the start, both included, or
            None.
    """

    storage: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    first: int
    last: int
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that tensors share.

    Attributes:
        size_bytes: Its size: the furthest element of all tensors in it.
        device: Recorded device.
        first: Step that makes it; -1: it is there before the first step.
        last: Step that last uses a tensor in it; -1: none does.
    """

    size_bytes: int
    device: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Iteration:
    """One recorded iteration.

    Attributes:
        number: Its number in the marker (``ProfilerStep#7``: 7); None: the whole trace, which has no markers.
        begin: Position of its first step.
        end: Position behind its last step.
        start_ns: Recorded start.
        duration_ns: Recorded length.
        tail_ns: Recorded time of the host between its last step and its end.
    """

    number: int | None
    begin: int
    end: int
    start_ns: int = 0
    duration_ns: int = 0
    tail_ns: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one rank does in a replay.

    Attributes:
        rank: Its global rank.
        world_size: Ranks of the job.
        steps: [S] in recorded order, which is what each step depends on.
        iterations: Stretches of the steps, one a recorded iteration.
        tensors: [T] the tensor table.
        storages: [M] what the tensors lie in.
        groups: The process groups that the trace names.
        has_times: False if the trace was recorded without times.
        job_step_ns: What a step of the job took just before it was recorded, on average; None if the capture doesn't
            tell.
    """

    rank: int
    world_size: int
    steps: tuple[Step, ...]
    iterations: tuple[Iteration, ...]
    tensors: tuple[TensorSlot, ...]
    storages: tuple[Storage, ...]
    groups: tuple[ProcessGroup, ...] = ()
    has_times: bool = True
    job_step_ns: int | None = None


class Communicator(Protocol):
    """Who makes the communications of a rank; see `chakra_et.replay.backends`."""

    def prepare(self, plan: Plan) -> None:
        """Make groups, and tensors where a `Communicate` names none; called once, before the first step."""

    def issue(self, call: CommCall, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Start a communication and return what `wait` takes.

        Args:
            call: The communication.
            inputs: Tensors that the rank gives, in the order of `CommCall.inputs`; empty: the communicator's own.
            outputs: Tensors that the rank gets, in the order of `CommCall.outputs`; empty likewise.
        """

    def wait(self, handle: Any) -> None:
        """Wait until a communication is done."""

    def barrier(self) -> None:
        """Wait for all ranks: called before each pass over the plan, outside what is measured."""

    def collect(self) -> Sequence[tuple[int, int, int]]:
        """Return (`CommCall.number`, start, end) of each communication since the last call, times in ns.

        The clock is `time.perf_counter_ns`. Called after each pass over the plan.
        """


class Recording(Protocol):
    """What records a replay, such as `chakra_et.capture.torch.Recorder`."""

    def step(self) -> None:
        """Say that an iteration is over."""

    def stop(self) -> None:
        """End the recording."""
