"""Figures of one Kineto profile, worked out plainly from its JSON: what the analyses are measured against.

Nothing here is shared with the package, and nothing is clever. Times are integers: the text of `ts` and `dur` is read
as a decimal number, so that no nanosecond is lost. Lengths of time are those of interval unions unless said otherwise.

The words: an activity is what a device does (a kernel, a copy, a set); a call is the runtime's or driver's call that
launched it, found by the same correlation id; a stream is one of a device, so that its key is (device, stream).
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import prod
from pathlib import Path
from typing import Any

KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set",
         "Kernel": "kernel", "Memcpy": "copy", "Memset": "set"}  # fmt: skip
CALLS = ("cuda_runtime", "cuda_driver", "hip_runtime", "Runtime")
# A kernel is a communication when its name, in lower case, holds one of these. Words such as "reduce", "dispatch" and
# "combine" alone would take in at::native::reduce_kernel, cub's DispatchReduceByKey and an expert router's kernels.
COMMUNICATION = (
    "nccldevkernel", "ncclkernel", "rccl", "multimem_", "cross_device_reduce", "deep_ep::", "nvshmem", "oneccl",
    "mscclpp", "one_shot_all_reduce", "two_shot_all_reduce",
)  # fmt: skip

Interval = tuple[int, int]
Stream = tuple[int, int]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Activity:
    """What a device did: `kind` is "kernel", "copy" or "set"; `size_bytes` is None where the profile doesn't say."""

    name: str
    kind: str
    start_ns: int
    end_ns: int
    device: int
    stream: int
    correlation: int
    size_bytes: int | None

    @property
    def is_communication(self) -> bool:
        """Whether this is a kernel that communicates."""
        return self.kind == "kernel" and any(part in self.name.lower() for part in COMMUNICATION)


@dataclass(frozen=True)
class Call:
    """A call on a host thread: of the runtime, of the driver, or a range that the host recorded."""

    name: str
    start_ns: int
    end_ns: int
    thread: str


@dataclass(frozen=True)
class RawProfile:
    """Activities, the first call of each id, and the host's `record_param_comms` with the shape of the first tensor."""

    activities: tuple[Activity, ...]
    calls: dict[int, Call]
    recorded: tuple[tuple[Call, Shape | None], ...]

    def linked(self) -> tuple[Activity, ...]:
        """Return the activities whose call is in the profile."""
        return tuple(activity for activity in self.activities if activity.correlation in self.calls)


def to_ns(microseconds: Decimal | int) -> int:
    """Return a time of the file in ns, exactly; a ValueError if it isn't whole."""
    ns = Decimal(microseconds) * 1000
    if ns != int(ns):
        raise ValueError(f"expected whole ns, got {ns}")
    return int(ns)


def read_profile(path: Path) -> RawProfile:
    """Read a profile, gzip or plain."""
    text = path.read_bytes()
    loaded = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text, parse_float=Decimal)
    events = loaded["traceEvents"] if isinstance(loaded, dict) else loaded
    activities: list[Activity] = []
    launching: list[tuple[int, Call]] = []
    recorded: list[tuple[Call, Shape | None]] = []
    for event in (event for event in events if event.get("ph") == "X"):
        category, args = event.get("cat"), event.get("args", {})
        if category in KINDS:
            activities.append(_activity(event, args))
        elif category in CALLS and "correlation" in args:
            launching.append((args["correlation"], _call(event)))
        elif event["name"] == "record_param_comms":
            recorded.append((_call(event), _first_shape(args.get("Input Dims"))))
    activities.sort(key=lambda activity: (activity.start_ns, activity.end_ns))
    recorded.sort(key=lambda record: record[0].start_ns)
    launching.sort(key=lambda pair: pair[1].start_ns, reverse=True)  # The first call of an id is the last to be kept.
    return RawProfile(tuple(activities), dict(launching), tuple(recorded))


def _times(event: dict[str, Any]) -> Interval:
    start = to_ns(event["ts"])
    return start, start + to_ns(event.get("dur", 0))


def _call(event: dict[str, Any]) -> Call:
    return Call(event["name"], *_times(event), f"{event.get('pid')}/{event.get('tid')}")


def _activity(event: dict[str, Any], args: dict[str, Any]) -> Activity:
    start, end = _times(event)
    return Activity(
        event["name"], KINDS[event["cat"]], start, end, int(args.get("device", -1)), int(args.get("stream", -1)),
        int(args.get("correlation", -1)), None if "bytes" not in args else int(args["bytes"]),
    )  # fmt: skip


def _first_shape(dims: Any) -> Shape | None:
    """Return the shape of the first tensor: an operator's inputs are lists, a list of tensors is a list more."""
    while isinstance(dims, list) and dims and isinstance(dims[0], list):
        dims = dims[0]
    return tuple(dims) if isinstance(dims, list) and dims else None


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals that overlap or touch; return them by start."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """Return the ns that intervals cover together."""
    return sum(end - start for start, end in union(intervals))


@dataclass(frozen=True)
class DeviceTimes:
    """How a device's time divides: unions over all its streams.

    ``exposed`` is communication while no compute kernel runs, ``overlap`` communication while one does; copies and sets
    are neither, and hide no communication. ``compute_only``, ``exposed``, ``overlap``, ``memory_only`` (a copy or set
    and nothing else) and ``idle`` add up to ``span``.
    """

    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int
    overlap_ns: int
    exposed_ns: int
    compute_only_ns: int
    memory_only_ns: int


def device_times(activities: Sequence[Activity]) -> DeviceTimes:
    """Divide the time from the first start to the last end."""
    all_times = [(each.start_ns, each.end_ns) for each in activities]
    kernels = [each for each in activities if each.kind == "kernel"]
    compute_times = [(each.start_ns, each.end_ns) for each in kernels if not each.is_communication]
    communication_times = [(each.start_ns, each.end_ns) for each in kernels if each.is_communication]
    span = max(end for _, end in all_times) - min(start for start, _ in all_times)
    busy, compute, communication = length(all_times), length(compute_times), length(communication_times)
    either = length(compute_times + communication_times)
    memory = length((each.start_ns, each.end_ns) for each in activities if each.kind != "kernel")
    return DeviceTimes(
        span, busy, span - busy, compute, communication, memory, overlap_ns=compute + communication - either,
        exposed_ns=either - compute, compute_only_ns=either - communication, memory_only_ns=busy - either,
    )  # fmt: skip


def time_by_name(activities: Iterable[Activity]) -> dict[str, tuple[int, int, int, int]]:
    """Return count, sum, smallest and largest duration (ns) of each name."""
    durations: dict[str, list[int]] = defaultdict(list)
    for activity in activities:
        durations[activity.name].append(activity.end_ns - activity.start_ns)
    return {name: (len(each), sum(each), min(each), max(each)) for name, each in durations.items()}


def by_stream(activities: Iterable[Activity]) -> dict[Stream, list[Activity]]:
    """Return the activities of each stream, by start."""
    streams: dict[Stream, list[Activity]] = defaultdict(list)
    for activity in activities:
        streams[activity.device, activity.stream].append(activity)
    return streams


def stream_idle(profile: RawProfile, *, short_ns: int = 30_000) -> dict[Stream, dict[str, int]]:
    """Return the idle ns of each stream by category.

    A gap runs from the latest end of all earlier activities of the stream to the next start. It is "host_wait" when the
    call that launched the next activity began after the gap did, else "kernel_wait" when shorter than `short_ns`, else
    "other". An activity without a call is never "host_wait".
    """
    idle = {}
    for stream, activities in by_stream(profile.activities).items():
        categories = {"host_wait": 0, "kernel_wait": 0, "other": 0}
        free = activities[0].end_ns
        for activity in activities[1:]:
            gap = activity.start_ns - free
            if gap > 0:
                call = profile.calls.get(activity.correlation)
                late = call is not None and call.start_ns > free
                categories["host_wait" if late else "kernel_wait" if gap < short_ns else "other"] += gap
            free = max(free, activity.end_ns)
        idle[stream] = categories
    return idle


@dataclass(frozen=True)
class Queue:
    """Activities of a stream that are launched and not started, from the first launch to the last start.

    `peak` counts a launch before a start of the same ns. The mean over time is `area_ns` / `length_ns`.
    """

    peak: int
    area_ns: int
    length_ns: int


def queues(profile: RawProfile) -> dict[Stream, Queue]:
    """Return the queue of each stream: one more when a call starts, one less when what it launched starts."""
    found = {}
    for stream, activities in by_stream(profile.linked()).items():
        steps = [(profile.calls[activity.correlation].start_ns, 0, 1) for activity in activities]
        steps += [(activity.start_ns, 1, -1) for activity in activities]
        steps.sort()
        level = peak = area = 0
        for (time, _, change), (following, _, _) in zip(steps, [*steps[1:], steps[-1]], strict=True):
            level += change
            peak = max(peak, level)
            area += level * (following - time)
        found[stream] = Queue(peak, area, steps[-1][0] - steps[0][0])
    return found


@dataclass(frozen=True)
class Launch:
    """An activity with the call that launched it, in ns. `after_end_ns` is negative where it starts within the call."""

    correlation: int
    call: str
    call_ns: int
    activity_ns: int
    after_start_ns: int
    after_end_ns: int


def launches(profile: RawProfile) -> list[Launch]:
    """Return one launch an activity whose call is known, by the activity's start; a graph's call launches many."""
    pairs = ((each, profile.calls[each.correlation]) for each in profile.linked())
    return [Launch(each.correlation, call.name, call.end_ns - call.start_ns, each.end_ns - each.start_ns,
                   each.start_ns - call.start_ns, each.start_ns - call.end_ns) for each, call in pairs]  # fmt: skip


def copies(activities: Iterable[Activity]) -> dict[str, tuple[int, int, int | None]]:
    """Return count, summed ns and bytes (None unless all tell theirs) of "HtoD", "DtoH", "DtoD", ..., "Memset"."""
    found: dict[str, list[Activity]] = defaultdict(list)
    for activity in activities:
        if activity.kind != "kernel":
            found["Memset" if activity.kind == "set" else activity.name.split()[1]].append(activity)
    result = {}
    for kind, each in found.items():
        sizes = [one.size_bytes for one in each if one.size_bytes is not None]
        time = sum(one.end_ns - one.start_ns for one in each)
        result[kind] = len(each), time, sum(sizes) if len(sizes) == len(each) else None
    return result


def communications(profile: RawProfile) -> list[Activity]:
    """Return the communication kernels by start: with one stream and one group, the n-th of each rank meet."""
    return [activity for activity in profile.activities if activity.is_communication]


def elements(profile: RawProfile, activity: Activity) -> int | None:
    """Return how many elements the host said a communication has: those of the last record around its call."""
    call = profile.calls[activity.correlation]
    last = bisect_right(profile.recorded, call.start_ns, key=lambda record: record[0].start_ns)
    for record, shape in reversed(profile.recorded[:last]):
        if record.thread == call.thread and record.end_ns >= call.end_ns:
            return None if shape is None else prod(shape)
    return None
