"""`ProgramBuilder`: write down what host threads do, in the words of CUDA, PyTorch and c10d.

Times that aren't given are drawn from the program's seed, separately for each thread, around what real profiles show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from chakra_et.errors import InputError
from chakra_et.testing import instructions as ins
from chakra_et.testing.communications import CALLS, ELEMENT_BYTES, make_comm

__all__ = ["ProgramBuilder", "RankBuilder", "ThreadBuilder"]

COMPUTE_STREAM = 7
_PIDS = 4_000  # process ids: 4000, 4100, ...; thread ids follow the process id
_COPIES = {
    "HtoD": ("Memcpy HtoD ({} -> Device)", 20),
    "DtoH": ("Memcpy DtoH (Device -> {})", 20),
    "DtoD": ("Memcpy DtoD (Device -> Device)", 1_000),
}  # name, bytes per ns


class ProgramBuilder:
    """Collects the threads of all ranks.

    Example:
        >>> builder = ProgramBuilder("one kernel", ranks=1)
        >>> main = builder.rank(0).thread()
        >>> with main.op("aten::relu"):
        ...     main.launch("relu", duration_ns=10_000)
        >>> builder.build().tid(0)
        4000
    """

    def __init__(self, name: str, *, ranks: int, seed: int = 0, host_scale: float = 1.0) -> None:
        """Begin a program.

        Args:
            name: Name of the program.
            ranks: World size.
            seed: Of all that is drawn.
            host_scale: Factor on drawn host times (2 makes a slow host).

        Raises:
            InputError: ``ranks`` is less than 1.
        """
        if ranks < 1:
            raise InputError(f"program '{name}': expected ranks of 1 or more, got {ranks}; a program needs a rank")
        self.name, self.ranks, self.seed, self.host_scale = name, ranks, seed, host_scale
        self.world = ins.Group("0", tuple(range(ranks)))
        self._groups = [self.world]
        self._ranks = [RankBuilder(self, rank) for rank in range(ranks)]

    def group(self, ranks: Sequence[int], *, description: str = "undefined") -> ins.Group:
        """Add a process group; c10d names groups by count."""
        group = ins.Group(str(len(self._groups)), tuple(ranks), description)
        self._groups.append(group)
        return group

    def rank(self, rank: int) -> RankBuilder:
        """Return the builder of one rank."""
        return self._ranks[rank]

    def build(self) -> ins.Program:
        """Return the program."""
        threads = [thread.build() for rank in self._ranks for thread in rank.threads.values()]
        works = (
            work.stream
            for thread in threads
            for instruction in thread.instructions
            if isinstance(instruction, ins.Launch)
            for work in instruction.works
        )
        return ins.Program(
            self.name, self.ranks, tuple(threads), tuple(self._groups), self.seed, tuple(sorted(set(works)))
        )


@dataclass
class RankBuilder:
    """Threads of one rank, and the counters that they share.

    Attributes:
        program: The builder that it belongs to.
        rank: Global rank.
        threads: Builders of its threads, by name.
        counts: The last number given out, by what is counted.
        works: Communications under way or over, by the name of the event that ends them.
    """

    program: ProgramBuilder
    rank: int
    threads: dict[str, ThreadBuilder] = field(default_factory=dict)
    counts: dict[object, int] = field(default_factory=dict)
    works: dict[str, ins.Comm] = field(default_factory=dict)

    def thread(self, name: str = "main") -> ThreadBuilder:
        """Return the builder of a thread, a new one when the name is new."""
        if name not in self.threads:
            self.threads[name] = ThreadBuilder(self, name, len(self.threads))
        return self.threads[name]

    def count(self, key: object) -> int:
        """Count up from 0, each key apart."""
        self.counts[key] = self.counts.get(key, -1) + 1
        return self.counts[key]

    def tensor(self, numel: int, dtype: str = "float") -> ins.Tensor:
        """Return a new tensor."""
        return ins.Tensor(self.count("tensor"), numel, dtype)


class ThreadBuilder:
    """Instructions of one host thread, in order."""

    def __init__(self, owner: RankBuilder, name: str, index: int) -> None:
        self.owner, self.name = owner, name
        self.pid = _PIDS + 100 * owner.rank
        self.tid = self.pid + 7 * index
        self._instructions: list[ins.Instruction] = []
        self._random = Random(owner.program.seed * 1_000_003 + owner.rank * 1_009 + index)
        self._ranges = 0

    def build(self) -> ins.HostThread:
        """Return the thread."""
        return ins.HostThread(self.owner.rank, self.pid, self.tid, self.name, tuple(self._instructions))

    def vary(self, duration_ns: int, spread: float = 0.2) -> int:
        """Return a duration drawn within +- spread of the one given."""
        return round(duration_ns * (1 + spread * (2 * self._random.random() - 1)))

    def _host(self, given_ns: int | None, usual_ns: int) -> int:
        return round(self.vary(usual_ns, 0.4) * self.owner.program.host_scale) if given_ns is None else given_ns

    # Ranges and host time -------------------------------------------------------------------------

    @contextmanager
    def op(
        self,
        name: str,
        *,
        host_ns: int | None = None,
        sequence: int = -1,
        forward: ThreadBuilder | None = None,
        flow: int = -1,
        inputs: Sequence[ins.Tensor] = (),
        outputs: Sequence[ins.Tensor] = (),
        comm: ins.Comm | None = None,
    ) -> Iterator[None]:
        """An operator around what is written inside; ``host_ns`` is its own time at its beginning."""
        forward_tid = forward.tid if forward else 0
        yield from self._range(
            ins.Begin(
                "cpu_op",
                name,
                self._host(host_ns, 4_000),
                sequence,
                forward_tid,
                flow,
                tuple(inputs),
                tuple(outputs),
                comm,
            )
        )

    @contextmanager
    def annotation(self, name: str, *, host_ns: int | None = None) -> Iterator[None]:
        """A `record_function` range (``ProfilerStep#3``, ``Optimizer.step#SGD.step``)."""
        yield from self._range(ins.Begin("user_annotation", name, self._host(host_ns, 3_000)))

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """A Python frame; takes no time."""
        yield from self._range(ins.Begin("python_function", name, 0))

    def _range(self, begin: ins.Begin) -> Iterator[None]:
        self._instructions.append(begin)
        yield
        self._instructions.append(ins.End(self._host(0 if begin.category == "python_function" else None, 1_500)))

    def busy(self, host_ns: int | None = None) -> None:
        """Pass host time: the open operator's own, or Python's between operators."""
        self._instructions.append(ins.Busy(self._host(host_ns, 5_000)))

    python = busy

    def call(self, api: str, *, host_ns: int | None = None) -> None:
        """A runtime call without effect (``cudaStreamIsCapturing``)."""
        self._instructions.append(ins.Call(api, self._host(host_ns, 800)))

    @contextmanager
    def call_backward(self, worker: ThreadBuilder) -> Iterator[ThreadBuilder]:
        """Sleep while another thread does what is written inside."""
        token = f"{self.name}->{worker.name}#{self.owner.count('token')}"
        self._instructions.append(ins.Post(token))
        worker._instructions.append(ins.Await(token))
        yield worker
        worker._instructions.append(ins.Post(f"{token} done"))
        self._instructions.append(ins.Await(f"{token} done"))

    # Work -----------------------------------------------------------------------------------------

    def _launch(
        self, api: str, works: Sequence[ins.Work], stream: int, call_ns: int | None, *, blocking: bool = False
    ) -> None:
        # A few calls take long, as they do in profiles (locks, module loading): their kernels start before they return.
        usual = 16_000 if self._random.random() < 0.04 else 4_500
        self._instructions.append(ins.Launch(api, self._host(call_ns, usual), tuple(works), stream, blocking))

    def launch(
        self,
        kernel: str,
        *,
        duration_ns: int,
        stream: int = COMPUTE_STREAM,
        call_ns: int | None = None,
        api: str = "cudaLaunchKernel",
    ) -> None:
        """Launch a kernel; ``duration_ns`` is taken as it is."""
        self._launch(api, [ins.Work("kernel", kernel, stream, duration_ns)], stream, call_ns)

    def graph_launch(
        self,
        kernels: Sequence[tuple[str, int, int]],
        *,
        stream: int = COMPUTE_STREAM,
        call_ns: int | None = None,
    ) -> None:
        """Launch a graph of kernels (name, duration in ns, stream); kernels on one stream run in the order given."""
        works = [ins.Work("kernel", name, at, duration) for name, duration, at in kernels]
        self._launch("cudaGraphLaunch", works, stream, call_ns)

    def memcpy_async(self, kind: Literal["HtoD", "DtoH", "DtoD"], nbytes: int, *, stream: int = COMPUTE_STREAM) -> None:
        """Copy from or to pinned memory, or on the device: the host goes on."""
        self._copy(kind, nbytes, stream, "Pinned", blocking=False)

    def memcpy(self, kind: Literal["HtoD", "DtoH"], nbytes: int, *, stream: int = COMPUTE_STREAM) -> None:
        """Copy from or to pageable memory: the call returns when the copy has ended."""
        self._copy(kind, nbytes, stream, "Pageable", blocking=True)

    def _copy(self, kind: str, nbytes: int, stream: int, memory: str, *, blocking: bool) -> None:
        name, bytes_per_ns = _COPIES[kind]
        work = ins.Work("memcpy", name.format(memory), stream, 1_200 + nbytes // bytes_per_ns, nbytes)
        self._launch("cudaMemcpyAsync", [work], stream, None, blocking=blocking)

    def memset(self, nbytes: int, *, stream: int = COMPUTE_STREAM) -> None:
        """Set device memory."""
        work = ins.Work("memset", "Memset (Device)", stream, 1_000 + nbytes // 1_000, nbytes)
        self._launch("cudaMemsetAsync", [work], stream, None)

    # Order ----------------------------------------------------------------------------------------

    def event_record(self, event: str, stream: int = COMPUTE_STREAM) -> None:
        """``cudaEventRecord``."""
        self._instructions.append(ins.EventRecord(event, stream, self._host(None, 1_500)))

    def stream_wait_event(self, stream: int, event: str) -> None:
        """``cudaStreamWaitEvent``: no host blocks."""
        self._instructions.append(ins.StreamWait(event, stream, self._host(None, 1_200)))

    def wait_stream(self, stream: int, other: int) -> None:
        """What ``torch.cuda.Stream.wait_stream`` does: record on the other stream, wait on this one."""
        event = f"wait_stream#{self.owner.count('event')}"
        self.event_record(event, other)
        self.stream_wait_event(stream, event)

    def event_synchronize(self, event: str) -> None:
        """``cudaEventSynchronize``: the host waits for the event's latest record."""
        self._instructions.append(ins.Sync("event", self._host(None, 3_000), event=event))

    def stream_synchronize(self, stream: int = COMPUTE_STREAM) -> None:
        """``cudaStreamSynchronize``."""
        self._instructions.append(ins.Sync("stream", self._host(None, 3_000), stream))

    def device_synchronize(self) -> None:
        """``cudaDeviceSynchronize``."""
        self._instructions.append(ins.Sync("device", self._host(None, 3_000)))

    def item(self, *, stream: int = COMPUTE_STREAM) -> None:
        """What ``tensor.item()`` does: a pageable copy of a few bytes, and a stream synchronization."""
        with self.op("aten::item"), self.op("aten::_local_scalar_dense"):
            self.memcpy("DtoH", 4, stream=stream)
            self.stream_synchronize(stream)

    # Communication --------------------------------------------------------------------------------

    def collective(
        self,
        name: str,
        nelems: int,
        *,
        group: ins.Group | None = None,
        dtype: str = "BFloat16",
        stream: int,
        current: int = COMPUTE_STREAM,
        transfer_ns: int | None = None,
        peer: int = -1,
        tensor: ins.Tensor | None = None,
    ) -> str:
        """Start a communication as c10d does, and return the event to `wait` for.

        Record on the current stream, wait for it on the communication's stream, launch, record there.

        Args:
            name: c10d's name, a key of `communications.CALLS`.
            nelems: Elements that this rank puts in (of a receive: gets out).
            group: Process group; the world by default.
            dtype: c10d's name of the element type.
            stream: The communication's stream.
            current: The stream that the caller computes on.
            transfer_ns: Default: 15 us and 100 bytes per ns.
            peer: The other rank of "send" and "recv".
            tensor: For the host trace.
        """
        owner = self.owner
        comm = make_comm(
            name, group or owner.program.world, owner.rank, nelems=nelems, dtype=dtype, peer=peer, count=owner.count
        )
        if transfer_ns is None:
            transfer_ns = 15_000 + max(comm.in_nelems, comm.out_nelems) * ELEMENT_BYTES[dtype] // 100
        calls, event = CALLS[name], f"c10d#{owner.count('event')}"
        used = tensor or owner.tensor(nelems)
        work = ins.Work("comm", calls.kernel_name(dtype), stream, transfer_ns, comm=comm)
        with (
            self.op(calls.op, inputs=[used], outputs=[used]),
            self.op("record_param_comms", inputs=[used], outputs=[used], comm=comm),
        ):
            self.call("cudaStreamIsCapturing")
            self.event_record(f"{event} before", current)
            self.stream_wait_event(stream, f"{event} before")
            with self.annotation(calls.annotation_name(owner.rank, peer)):
                self._launch("cudaLaunchKernelExC", [work], stream, None)
            self.event_record(event, stream)
        owner.works[event] = comm
        return event

    def send(self, nelems: int, *, peer: int, stream: int, dtype: str = "BFloat16") -> str:
        """Start sending to a rank; meets its `recv`."""
        return self.collective("send", nelems, peer=peer, stream=stream, dtype=dtype)

    def recv(self, nelems: int, *, peer: int, stream: int, dtype: str = "BFloat16") -> str:
        """Start receiving from a rank; meets its `send`."""
        return self.collective("recv", nelems, peer=peer, stream=stream, dtype=dtype)

    def wait(self, work: str, *, stream: int = COMPUTE_STREAM) -> None:
        """What ``work.wait()`` does: the stream waits for the communication, the host doesn't."""
        comm = self.owner.works[work]
        waited = ins.Comm("wait", comm.group, ("wait",), comm.members, comm.seq, 0, 0, "Byte")
        with self.op("record_param_comms", comm=waited):
            self.stream_wait_event(stream, work)
