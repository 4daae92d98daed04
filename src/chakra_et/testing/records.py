"""What the model machine is given (`MachineConfig`, `Edit`) and what it leaves behind (`RankRun` and its events)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chakra_et.errors import InputError
from chakra_et.testing.instructions import Instruction, Work

__all__ = ["DeviceEvent", "Edit", "HostEvent", "MachineConfig", "RankRun", "draw", "scaled"]

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class MachineConfig:
    """Constants of the machine; `chakra_et.testing.machine` says where each one acts.

    Attributes:
        latency_ns: Least time from the doorbell to work that is ready.
        latency_jitter_ns: What is added to it at most.
        gap_ns: Least time between an activity and what follows it.
        doorbell_fraction: Share of a launch call that passes before the device hears of it, 0 to 1.
        queue_depth: Launches that a device holds at most.
        handoff_ns: Time from a post to the thread that awaits it.
        end_skew_ns: What a member of a communication ends later than the transfer, at most.
        pdl_share: Share of neighboring kernels that overlap, 0 to 1.
        pdl_overlap_ns: Longest overlap of neighboring kernels.

    Example:
        >>> MachineConfig(queue_depth=16).latency_ns
        5000
    """

    latency_ns: int = 5_000
    latency_jitter_ns: int = 600
    gap_ns: int = 1_000
    doorbell_fraction: float = 0.6
    queue_depth: int = 1024
    handoff_ns: int = 8_000
    end_skew_ns: int = 0
    pdl_share: float = 0.0
    pdl_overlap_ns: int = 1_500

    def __post_init__(self) -> None:
        if self.queue_depth < 1:
            raise InputError(
                f"machine: expected queue_depth of 1 or more, got {self.queue_depth}; use 1 for one at a time"
            )
        if not (0 <= self.doorbell_fraction <= 1 and 0 <= self.pdl_share <= 1):
            raise InputError(
                "machine: expected doorbell_fraction and pdl_share within 0 to 1; give a share, not a percentage"
            )


@dataclass(frozen=True)
class Edit:
    """A change to a run, the same that is then made to a converted trace.

    Attributes:
        kernel_scale: Factor on compute kernels (not on copies, memsets and communications).
        stream_scale: Factor by stream number, on everything that runs there, on every rank.
        host_thread_scale: Factor by thread id, on all its host times.
        rank_delay_ns: How much later a rank starts.
        comm_scale: Factor on transfer times.

    Raises:
        InputError: A factor isn't positive, or a delay is negative.

    Example:
        >>> Edit(kernel_scale=2.0).scale_of("kernel", 7)
        2.0
    """

    kernel_scale: float = 1.0
    stream_scale: Mapping[int, float] = field(default_factory=dict)
    host_thread_scale: Mapping[int, float] = field(default_factory=dict)
    rank_delay_ns: Mapping[int, int] = field(default_factory=dict)
    comm_scale: float = 1.0

    def __post_init__(self) -> None:
        least = min([self.kernel_scale, self.comm_scale, *self.stream_scale.values(), *self.host_thread_scale.values()])
        if least <= 0:
            raise InputError(f"edit: expected positive factors, got {least}; use a small one for 'nearly nothing'")
        least = min(self.rank_delay_ns.values(), default=0)
        if least < 0:
            raise InputError(f"edit: expected delays of 0 ns or more, got {least}; delay the other ranks instead")

    def scale_of(self, kind: str, stream: int) -> float:
        """Return the factor on the duration of a piece of work of this kind on this stream."""
        scale = self.stream_scale.get(stream, 1.0)
        if kind == "kernel":
            return scale * self.kernel_scale
        return scale * self.comm_scale if kind == "comm" else scale


@dataclass(slots=True, eq=False)
class HostEvent:
    """A range or a runtime call on a host thread, as it happened.

    Attributes:
        category: "cpu_op", "user_annotation", "python_function" or "runtime".
        name: Of the range, or of the runtime function.
        tid: Thread id.
        start_ns: Start, ns of machine time.
        end_ns: End.
        source: The instruction that it comes from.
        parent: The innermost range around it.
        number: Of ranges: the record function id; of runtime calls: the correlation id. Both count up from 1 in time
            order on each rank.
        waits_for: For waits on an event: the call that recorded it, else None.
    """

    category: str
    name: str
    tid: int
    start_ns: int
    end_ns: int
    source: Instruction
    parent: HostEvent | None = None
    number: int = 0
    waits_for: HostEvent | None = None


@dataclass(slots=True, eq=False)
class DeviceEvent:
    """An activity on a stream, as it happened.

    Attributes:
        work: What ran.
        launch: The runtime call that put it there.
        uid: Says which work of which launch of which thread it is; the same in every run of the program.
        start_ns: Start, ns of machine time.
        end_ns: End.
    """

    work: Work
    launch: HostEvent
    uid: int
    start_ns: int = 0
    end_ns: int = 0


@dataclass(frozen=True)
class RankRun:
    """What happened on one rank; both lists are in order of start.

    Attributes:
        rank: Global rank.
        host: Ranges and runtime calls.
        device: Activities.
        start_ns: When its first event starts, ns of machine time.
        end_ns: When its last event ends.
    """

    rank: int
    host: tuple[HostEvent, ...]
    device: tuple[DeviceEvent, ...]
    start_ns: int
    end_ns: int


def draw(*numbers: int) -> float:
    """Return a number in [0, 1) that depends on nothing but the arguments (rounds of a 64-bit mix, not for secrets)."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = ((state ^ number) * 0xBF58476D1CE4E5B9) & _MASK
        state ^= state >> 29
        state = (state * 0x94D049BB133111EB) & _MASK
        state ^= state >> 32
    return (state >> 11) / (1 << 53)


def scaled(duration_ns: int, scale: float) -> int:
    """Return a duration times a factor, in whole ns."""
    return duration_ns if scale == 1.0 else round(duration_ns * scale)
