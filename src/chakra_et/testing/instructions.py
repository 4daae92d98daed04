"""What a host thread of the model machine can do, and the `Program` that says what every thread does.

Instructions are plain values: `builder.ProgramBuilder` makes a program once, and the machine runs it as often as asked.
Every ``*_ns`` is what the machine takes when no `Edit` applies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "Await",
    "Begin",
    "Busy",
    "Call",
    "Comm",
    "End",
    "EventRecord",
    "Group",
    "HostThread",
    "Instruction",
    "Launch",
    "Post",
    "Program",
    "StreamWait",
    "Sync",
    "Tensor",
    "Work",
]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that operators pass on; the host trace writes it, the machine ignores it.

    Attributes:
        id: Number, unique on its rank.
        numel: Elements.
        dtype: Element type, as c10 names it.
    """

    id: int
    numel: int
    dtype: str = "float"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group.

    Attributes:
        name: As c10d counts groups.
        ranks: Global ranks, in group order.
        description: What the group is for.
    """

    name: str
    ranks: tuple[int, ...]
    description: str = "default_pg"


@dataclass(frozen=True, slots=True)
class Comm:
    """A communication, as its kernel and its host call describe it.

    Attributes:
        collective: c10d's name ("allreduce", "_allgather_base", "_reduce_scatter_base", "send", "recv", ...).
        group: The process group.
        key: Kernels with equal keys over the members are one communication.
        members: Global ranks that take part.
        seq: Sequence number within the group, collectives and point-to-point calls counted apart.
        in_nelems: Elements that go in on each rank.
        out_nelems: Elements that come out.
        dtype: Element type, as c10 names it.
        peer: The other rank of a send or recv, else -1.
    """

    collective: str
    group: Group
    key: tuple[str | int, ...]
    members: tuple[int, ...]
    seq: int
    in_nelems: int
    out_nelems: int
    dtype: str
    peer: int = -1


@dataclass(frozen=True, slots=True)
class Work:
    """One activity on a stream.

    Attributes:
        kind: What it is; "comm" is a kernel that communicates.
        name: As the profiler writes it.
        stream: The stream that it runs on.
        duration_ns: Run time; of a communication: transfer time, counted from the latest start over its members.
        bytes: Of copies and memsets, else 0.
        comm: The communication, of kind "comm" only.
    """

    kind: Literal["kernel", "memcpy", "memset", "comm"]
    name: str
    stream: int
    duration_ns: int
    bytes: int = 0
    comm: Comm | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Open a range (operator, annotation, Python frame); ``host_ns`` passes inside it at once.

    Attributes:
        category: The profiler's category.
        name: Of the range.
        host_ns: Time that passes inside, right after it opens, ns.
        sequence: Autograd's sequence number, or -1.
        forward_tid: On a backward operator, the thread of the forward one; else 0.
        flow: Forward and backward operators with the same flow number are joined by a `fwdbwd` arrow; -1 for none.
        inputs: Tensors read, of operators.
        outputs: Tensors written.
        comm: The communication that the operator describes, if any.
    """

    category: Literal["cpu_op", "user_annotation", "python_function"]
    name: str
    host_ns: int
    sequence: int = -1
    forward_tid: int = 0
    flow: int = -1
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    comm: Comm | None = None


@dataclass(frozen=True, slots=True)
class End:
    """``host_ns`` pass inside the innermost open range, then it closes.

    Attributes:
        host_ns: Time that passes before it closes, ns.
    """

    host_ns: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Host time: the open operator's own, or Python's between operators.

    Attributes:
        host_ns: Host time that it takes, ns.
    """

    host_ns: int


@dataclass(frozen=True, slots=True)
class Call:
    """A runtime call without an effect (``cudaStreamIsCapturing``).

    Attributes:
        api: Name of the runtime function.
        host_ns: Host time that it takes, ns.
    """

    api: str
    host_ns: int


@dataclass(frozen=True, slots=True)
class Launch:
    """A runtime call that puts work on streams: a kernel, a copy, a memset or a graph.

    Attributes:
        api: Name of the runtime function.
        host_ns: Host time that it takes, ns.
        works: In order; more than one makes it a graph launch, which forks from ``stream`` and joins it again.
        stream: The stream that it is launched on.
        blocking: The call returns when the work has ended (copies from and to pageable memory).
    """

    api: str
    host_ns: int
    works: tuple[Work, ...]
    stream: int
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class EventRecord:
    """``cudaEventRecord``: the event completes when all work that the stream holds now has ended.

    Attributes:
        event: Name of the event.
        stream: The stream whose work is recorded.
        host_ns: Host time that it takes, ns.
    """

    event: str
    stream: int
    host_ns: int


@dataclass(frozen=True, slots=True)
class StreamWait:
    """``cudaStreamWaitEvent``: later work of the stream waits for the event's latest record; the host doesn't.

    Attributes:
        event: Name of the event.
        stream: The stream that waits.
        host_ns: Host time that it takes, ns.
    """

    event: str
    stream: int
    host_ns: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A call that blocks the host: until a stream, an event or the whole device has caught up.

    Attributes:
        scope: What is waited for.
        host_ns: Host time after the wait, ns.
        stream: The stream, if that is the scope.
        event: Name of the event, if that is the scope.
    """

    scope: Literal["stream", "event", "device"]
    host_ns: int
    stream: int = -1
    event: str = ""


@dataclass(frozen=True, slots=True)
class Post:
    """Give a token to whichever thread of this rank awaits it.

    Attributes:
        token: Its name.
    """

    token: str


@dataclass(frozen=True, slots=True)
class Await:
    """Sleep until the token has been posted, and a hand-off has passed.

    Attributes:
        token: Its name.
    """

    token: str


Instruction = Begin | End | Busy | Call | Launch | EventRecord | StreamWait | Sync | Post | Await


@dataclass(frozen=True)
class HostThread:
    """A host thread and all that it does.

    Attributes:
        rank: Global rank.
        pid: Process id.
        tid: Thread id, unique over all ranks.
        name: Name, unique on the rank.
        instructions: All that it does, in order.
    """

    rank: int
    pid: int
    tid: int
    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Program:
    """What every host thread of every rank does.

    Attributes:
        name: For messages.
        ranks: Number of ranks.
        threads: Host threads of all ranks.
        groups: Process groups, those that no communication uses included.
        seed: What durations were drawn with; the machine draws latencies from it too.
        streams: Streams that any work runs on.
    """

    name: str
    ranks: int
    threads: tuple[HostThread, ...]
    groups: tuple[Group, ...] = ()
    seed: int = 0
    streams: tuple[int, ...] = field(default=())

    def tid(self, rank: int, name: str = "main") -> int:
        """Return the id of a rank's thread, as `Edit.host_thread_scale` wants it."""
        return next(thread.tid for thread in self.threads if thread.rank == rank and thread.name == name)
