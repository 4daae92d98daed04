"""Write what happened on a rank as torch.profiler writes it: Kineto's trace-event JSON.

`ProfileConfig` chooses what the profile shows and what it hides or gets wrong; none of it changes what happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from chakra_et.errors import InputError
from chakra_et.testing import instructions as ins
from chakra_et.testing.profile_names import CALL_IDS, DEVICE_PROPERTIES, HIP_NAMES, RCCL_KERNEL
from chakra_et.testing.records import DeviceEvent, HostEvent, RankRun, draw

__all__ = ["ProfileConfig", "make_profile"]

Event = dict[str, Any]
_ORIGIN_NS = {"ns": 1_365_627_862_000_000, "us": 1_694_039_968_000_000_000}
_BASE_NS = 1_767_189_312_000_000_000
_CORRELATION_BASE = 100
_EXTERNAL_OFFSET = 2
_SYNC_NAMES = {"stream": "Stream Sync", "event": "Event Sync", "device": "Context Sync"}


@dataclass(frozen=True)
class ProfileConfig:
    """What a profile shows.

    Attributes:
        vendor: "nvidia" (CUDA, CUPTI's arguments) or "amd" (HIP, roctracer's arguments).
        time_unit: Resolution of times: "ns" (us with three decimals) or "us" (whole us, as older profilers write).
        base_time: Write ``baseTimeNanoseconds``.
        cuda_sync: Write a record for each wait (NVIDIA only).
        kernel_comm_args: Describe communications in their kernels' arguments.
        host_comm_args: Describe them in those of ``record_param_comms``.
        profiler_steps: Write the ProfilerStep ranges.
        python_functions: Write Python frames.
        gpu_annotations: Write ranges on streams for what annotations launched.
        flows: Write arrows from launches to activities, and from forward to backward operators.
        record_function_ids: Write "Record function id"; External ids are that plus 2.
        external_id: "op" (of the innermost operator) or "correlation" (old profiles).
        wrong_external_share: Share of device activities whose External id is that of another operator.
        window_start_ns: Machine time at which recording began: what began earlier isn't written, so that activities
            whose launch came before have no launch.
        clock_offset_ns: By rank, added to all its times.

    Example:
        >>> ProfileConfig(vendor="amd").cuda_sync
        True
    """

    vendor: Literal["nvidia", "amd"] = "nvidia"
    time_unit: Literal["ns", "us"] = "ns"
    base_time: bool = True
    cuda_sync: bool = True
    kernel_comm_args: bool = True
    host_comm_args: bool = True
    profiler_steps: bool = True
    python_functions: bool = False
    gpu_annotations: bool = True
    flows: bool = True
    record_function_ids: bool = True
    external_id: Literal["op", "correlation"] = "op"
    wrong_external_share: float = 0.0
    window_start_ns: int = 0
    clock_offset_ns: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.vendor not in DEVICE_PROPERTIES or self.time_unit not in _ORIGIN_NS:
            raise InputError(f"profile: expected a known vendor and time unit, got {self.vendor} and {self.time_unit}")
        if not 0 <= self.wrong_external_share <= 1:
            raise InputError(f"profile: expected a share within 0 to 1, got {self.wrong_external_share}")


def make_profile(program: ins.Program, run: RankRun, *, config: ProfileConfig | None = None) -> dict[str, Any]:
    """Return the profile of one rank, ready for `json.dump`.

    Args:
        program: What ran.
        run: What happened.
        config: What to show of it.
    """
    writer = _Writer(program, run, config or ProfileConfig())
    events = [*writer.ranges(), *writer.calls(), *writer.activities(), *writer.frame()]
    ranks = [
        {
            "pg_name": group.name,
            "pg_desc": group.description,
            "backend_config": "cuda:nccl",
            "pg_size": len(group.ranks),
            "ranks": list(group.ranks),
        }
        for group in program.groups
    ]
    profile: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [DEVICE_PROPERTIES[writer.config.vendor] | {"id": device} for device in range(8)],
        "distributedInfo": {
            "backend": "nccl",
            "rank": run.rank,
            "world_size": program.ranks,
            "pg_count": len(ranks),
            "pg_config": ranks,
            "nccl_version": "2.22.3",
        },
        "displayTimeUnit": "ms",
    }
    if writer.config.base_time:
        profile["baseTimeNanoseconds"] = _BASE_NS
    profile["traceEvents"] = events
    profile["traceName"] = f"rank-{run.rank}.json"
    return profile


class _Writer:
    """Turns one rank's events into trace events."""

    def __init__(self, program: ins.Program, run: RankRun, config: ProfileConfig) -> None:
        self.program, self.run, self.config = program, run, config
        self.device_id = run.rank % 8
        self.pid = next((thread.pid for thread in program.threads if thread.rank == run.rank), 0)
        self.offset_ns = _ORIGIN_NS[config.time_unit] + config.clock_offset_ns.get(run.rank, 0)
        self.event_ids: dict[str, int] = {}
        begin = config.window_start_ns
        self.host = [event for event in run.host if event.start_ns >= begin and self._shown(event)]
        self.device = [event for event in run.device if event.start_ns >= begin]
        self.window = self._window()

    def _shown(self, event: HostEvent) -> bool:
        if event.category == "python_function":
            return self.config.python_functions
        return self.config.profiler_steps or not event.name.startswith("ProfilerStep#")

    def _window(self) -> tuple[int, int]:
        starts = [events[0].start_ns for events in (self.host, self.device) if events]
        ends = [max(event.end_ns for event in events) for events in (self.host, self.device) if events]
        return min(starts, default=0), max(ends, default=0)

    def _time(self, time_ns: int) -> int | float:
        absolute = time_ns + self.offset_ns
        return absolute // 1000 if self.config.time_unit == "us" else absolute / 1000

    def _slice(self, cat: str, name: str, pid: int, tid: int, start_ns: int, end_ns: int, args: Event) -> Event:
        start = self._time(start_ns)
        # Whole us: both ends are cut off, so that what nested before nests after.
        length = int(self._time(end_ns)) - int(start) if self.config.time_unit == "us" else (end_ns - start_ns) / 1000
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": start,
            "dur": length,
            "args": args,
        }

    # Host -----------------------------------------------------------------------------------------

    def ranges(self) -> Iterator[Event]:
        """Operators, annotations, Python frames, and the arrows from forward to backward."""
        flows: dict[int, list[HostEvent]] = {}
        python_ids: dict[HostEvent, int] = {}
        for index, event in enumerate(self.host):
            begin = event.source
            if not isinstance(begin, ins.Begin):
                continue
            if event.category == "python_function":
                python_ids[event] = len(python_ids) + 1
                args = self._frame_args(event, python_ids)
            else:
                args = self._op_args(event, begin)
            if begin.flow >= 0:
                flows.setdefault(begin.flow, []).append(event)
            args["Ev Idx"] = index
            yield self._slice(event.category, event.name, self.pid, event.tid, event.start_ns, event.end_ns, args)
        for flow, ends in flows.items() if self.config.flows else ():
            if len(ends) == 2:
                yield from self._arrow("fwdbwd", flow + 1, [(self.pid, end.tid, end.start_ns) for end in ends])

    def _frame_args(self, event: HostEvent, python_ids: dict[HostEvent, int]) -> Event:
        parent = event.parent
        while parent is not None and parent.category != "python_function":
            parent = parent.parent
        known = python_ids.get(parent) if parent is not None else None
        args: Event = {"Python parent id": known, "Python id": python_ids[event]}
        if event.name.startswith("nn.Module: "):
            args["Python module id"] = int(event.name.rpartition("_")[2])
        return args

    def _op_args(self, event: HostEvent, begin: ins.Begin) -> Event:
        args: Event = {"External id": event.number + _EXTERNAL_OFFSET}
        if self.config.record_function_ids:
            args["Record function id"] = event.number
        if begin.sequence >= 0:
            args["Sequence number"] = begin.sequence
            args["Fwd thread id"] = 1 if begin.forward_tid else 0
        if begin.comm is not None and self.config.host_comm_args:
            args |= _comm_args(begin.comm, self.run.rank)
            args |= {"Global rank start": begin.comm.group.ranks[0], "Global rank stride": _stride(begin.comm.group)}
        return args

    def calls(self) -> Iterator[Event]:
        """Runtime calls, and the records of those that wait."""
        for event in self.host:
            if event.category != "runtime":
                continue
            source = event.source
            amd = self.config.vendor == "amd"
            name = HIP_NAMES.get(event.name, event.name) if amd else event.name
            args: Event = self._external(event) | {"cid" if amd else "cbid": CALL_IDS.get(event.name, 0)}
            args["correlation"] = event.number + _CORRELATION_BASE
            if amd and isinstance(source, ins.Launch) and source.works[0].kind in ("kernel", "comm"):
                if len(source.works) == 1:
                    args |= {"kernel": self._kernel_name(source.works[0]), "grid": [108, 1, 1], "block": [128, 1, 1]}
            elif amd and isinstance(source, ins.Launch):
                args |= {"bytes": str(source.works[0].bytes), "kind": "1"}
            yield self._slice("cuda_runtime", name, self.pid, event.tid, event.start_ns, event.end_ns, args)
            if self.config.cuda_sync and not amd:
                yield from self._sync_record(event, args.get("External id"))
            if isinstance(source, ins.EventRecord):
                self.event_ids.setdefault(source.event, len(self.event_ids) + 1)

    def _external(self, call: HostEvent) -> Event:
        """The External id of a call: its innermost operator's, as far as the profile has it."""
        if self.config.external_id == "correlation":
            return {"External id": call.number + _CORRELATION_BASE}
        parent = call.parent
        while parent is not None and parent.category != "cpu_op":
            parent = parent.parent
        return {} if parent is None else {"External id": parent.number + _EXTERNAL_OFFSET}

    def _sync_record(self, call: HostEvent, external: int | None) -> Iterator[Event]:
        source, stream = call.source, -1
        args: Event = {} if external is None else {"External id": external}
        if isinstance(source, ins.StreamWait):
            name, stream = "Stream Wait Event", source.stream
        elif isinstance(source, ins.Sync):
            name, stream = _SYNC_NAMES[source.scope], source.stream
        else:
            return
        args["cuda_sync_kind"] = name
        record = call.waits_for
        if isinstance(source, ins.StreamWait) or source.scope == "event":
            if record is None or not isinstance(record.source, ins.EventRecord):
                return
            args["wait_on_stream"] = record.source.stream
            args["wait_on_cuda_event_record_corr_id"] = record.number + _CORRELATION_BASE
            args["wait_on_cuda_event_id"] = self.event_ids.setdefault(source.event, len(self.event_ids) + 1)
        args |= {"stream": stream, "correlation": call.number + _CORRELATION_BASE}
        args |= {"device": self.device_id, "context": 1}
        inset = min(500, (call.end_ns - call.start_ns) // 4)
        ends = call.start_ns + inset, call.end_ns - inset
        yield self._slice("cuda_sync", name, self.device_id, stream, *ends, args)

    # Device ---------------------------------------------------------------------------------------

    def activities(self) -> Iterator[Event]:
        """Kernels, copies and memsets, the arrows that lead to them, and the ranges around them."""
        reached: dict[HostEvent, list[DeviceEvent]] = {}
        known = set(self.host)
        ranges: dict[tuple[HostEvent, int], list[int]] = {}
        for event in self.device:
            yield self._activity(event)
            if event.launch in known:
                reached.setdefault(event.launch, []).append(event)
            around = event.launch.parent
            while around is not None:
                if around.category == "user_annotation" and around in known:
                    ends = ranges.setdefault((around, event.work.stream), [event.start_ns, event.end_ns])
                    ends[1] = max(ends[1], event.end_ns)
                around = around.parent
        for (annotation, stream), (start, end) in ranges.items() if self.config.gpu_annotations else ():
            args = {"External id": annotation.number + _EXTERNAL_OFFSET}
            yield self._slice("gpu_user_annotation", annotation.name, self.device_id, stream, start, end, args)
        for call, activities in reached.items() if self.config.flows else ():
            heads = [(self.device_id, event.work.stream, event.start_ns) for event in activities]
            tail = (self.pid, call.tid, call.start_ns)
            yield from self._arrow("ac2g", call.number + _CORRELATION_BASE, [tail, *heads])

    def _activity(self, event: DeviceEvent) -> Event:
        work, amd = event.work, self.config.vendor == "amd"
        args = self._external(event.launch)
        if args and self.config.wrong_external_share > draw(self.program.seed, event.uid, 3):
            args["External id"] = max(1, args["External id"] - 1 - int(5 * draw(event.uid, 4)))
        args |= {"device": self.device_id} if amd else {"queued": 0, "device": self.device_id, "context": 1}
        args |= {"stream": work.stream, "correlation": event.launch.number + _CORRELATION_BASE}
        if work.kind in ("memcpy", "memset"):
            args.pop("queued", None)
            bandwidth = work.bytes / max(1, event.end_ns - event.start_ns)
            args |= {"bytes": work.bytes, "memory bandwidth (GB/s)": round(bandwidth, 6)}
            name, category = work.name, f"gpu_{work.kind}"
        else:
            name, category = self._kernel_name(work), "kernel"
            args |= _shape_args(work, amd=amd)
            if work.comm is not None and self.config.kernel_comm_args:
                args |= _comm_args(work.comm, self.run.rank)
        if amd:
            graph = isinstance(event.launch.source, ins.Launch) and len(event.launch.source.works) > 1
            args["kind"] = (
                work.name.split()[1].strip("()") if work.bytes else "Dispatch Task" if graph else "Dispatch Kernel"
            )
        return self._slice(category, name, self.device_id, work.stream, event.start_ns, event.end_ns, args)

    def _kernel_name(self, work: ins.Work) -> str:
        return RCCL_KERNEL if work.kind == "comm" and self.config.vendor == "amd" else work.name

    def _arrow(self, category: str, number: int, ends: list[tuple[int, int, int]]) -> Iterator[Event]:
        """A flow from the first place (pid, tid, ns) to each of the others."""
        for index, (pid, tid, time_ns) in enumerate(ends):
            phase = {"ph": "f", "bp": "e"} if index else {"ph": "s"}
            place = {"id": number, "pid": pid, "tid": tid, "ts": self._time(time_ns)}
            yield phase | place | {"cat": category, "name": category}

    # Around ---------------------------------------------------------------------------------------

    def frame(self) -> Iterator[Event]:
        """Names of processes and threads, and the marks of the window."""
        start, end = self._time(self.window[0]), self._time(self.window[1])
        streams = sorted({event.work.stream for event in self.device})
        tracks = [(self.pid, thread.tid, f"thread {thread.tid} ({thread.name})") for thread in self._threads()]
        tracks += [(self.device_id, stream, f"stream {stream} ") for stream in streams]
        for pid, label in ((self.pid, "CPU"), (self.device_id, f"GPU {self.device_id}")):
            for name, args in (("process_name", {"name": "python3.10"}), ("process_labels", {"labels": label})):
                yield {"name": name, "ph": "M", "ts": start, "pid": pid, "tid": 0, "args": args}
        for pid, tid, name in tracks:
            yield {"name": "thread_name", "ph": "M", "ts": start, "pid": pid, "tid": tid, "args": {"name": name}}
        span: Event = self._slice("Trace", "PyTorch Profiler (0)", 0, 0, *self.window, {"Op count": 0})
        yield span | {"pid": "Spans", "tid": "PyTorch Profiler"}
        for name, pid_name, tid_name, time in (
            ("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", start),
            ("Record Window End", "", "", end),
        ):
            yield {"name": name, "ph": "i", "s": "g", "pid": pid_name, "tid": tid_name, "ts": time}

    def _threads(self) -> list[ins.HostThread]:
        return [thread for thread in self.program.threads if thread.rank == self.run.rank]


def _shape_args(work: ins.Work, *, amd: bool) -> Event:
    """Grid and block, sized by how long the kernel runs."""
    blocks = 8 if work.kind == "comm" else max(1, min(4096, work.duration_ns // 200))
    threads = 544 if work.kind == "comm" else 128
    shape = {"grid": [blocks, 1, 1], "block": [threads, 1, 1]}
    if amd:
        return shape
    per_sm = round(blocks / 132, 6)
    return {
        "registers per thread": 96 if work.kind == "comm" else 32,
        "shared memory": 0,
        "blocks per SM": per_sm,
        "warps per SM": round(per_sm * threads / 32, 6),
        **shape,
        "est. achieved occupancy %": min(100, int(per_sm * threads / 20)),
    }


def _comm_args(comm: ins.Comm, rank: int) -> Event:
    args: Event = {
        "Collective name": comm.collective,
        "In msg nelems": comm.in_nelems,
        "Out msg nelems": comm.out_nelems,
        "Group size": len(comm.group.ranks),
        "dtype": comm.dtype,
        "In split size": "[]",
        "Out split size": "[]",
    }
    if comm.collective == "wait":
        return args
    args |= {"Process Group Name": comm.group.name, "Process Group Description": comm.group.description}
    args |= {"Process Group Ranks": str(list(comm.group.ranks)), "Seq": comm.seq}
    if comm.peer < 0:
        return args | {"Rank": comm.group.ranks.index(rank)}
    # c10d passes the peer where a collective passes the rank itself.
    args["Rank"] = comm.group.ranks.index(comm.peer)
    return args | {"Dst Rank" if comm.collective == "send" else "Src Rank": comm.peer}


def _stride(group: ins.Group) -> int:
    return group.ranks[1] - group.ranks[0] if len(group.ranks) > 1 else 1
