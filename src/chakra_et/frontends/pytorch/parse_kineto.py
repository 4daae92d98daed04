"""Kineto profiles (``torch.profiler``'s trace-event JSON) as columns.

Times are int64 nanoseconds since the Unix epoch where the profile tells its base, else since the profile's own zero.
They are parsed from the decimal text: as floats, microseconds since the epoch keep only a quarter of a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.comm_notes import NOTES
from chakra_et.frontends.pytorch.json_array import ArrayFile, JsonObjects, open_array
from chakra_et.ir.process_group import MOST_RANKS, ProcessGroup, groups_from_records

__all__ = ["ANNOTATION", "OPERATOR", "RUNTIME", "KinetoProfile", "parse_kineto"]

Int = npt.NDArray[np.int64]
OPERATOR, ANNOTATION, RUNTIME = 0, 1, 2
# A base, a start and a duration within these bounds add up inside int64.
_LAST_NS = 4 * 10**18
_LONGEST_NS = 10**18

_HOST = {
    "cpu_op": OPERATOR,
    "Operator": OPERATOR,
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "Runtime": RUNTIME,
    "xpu_runtime": RUNTIME,
    "mtia_runtime": RUNTIME,
    "privateuse1_runtime": RUNTIME,
}
_DEVICE = {"kernel": 0, "Kernel": 0, "gpu_memcpy": 1, "Memcpy": 1, "gpu_memset": 2, "Memset": 2}


@dataclass(frozen=True, slots=True, eq=False)
class KinetoProfile:
    """One profile as tables.

    Attributes:
        path: Name for messages.
        rank: Rank in the file, or None.
        world_size: World size in the file, or None.
        process_groups: Groups in the file (``pg_config``).
        resolution_ns: Clock resolution: 1000 for whole microseconds, else 1.
        host: Host events: kind, name, pid, tid, start_ns, duration_ns, external_id, rf_id, seq_id, fw_tid,
            correlation, bytes, dims, types, values, strides (JSON texts).
        activities: Device activities: kind (0 kernel, 1 copy, 2 set), name, device, stream, start_ns, duration_ns,
            correlation, external_id, bytes, copy, and the communication arguments.
        syncs: ``cuda_sync`` records: sync_kind, stream, device, correlation, wait_on_stream, wait_on_record,
            wait_on_event.
        flows: ``fwdbwd`` flow ends: flow, is_start, pid, tid, start_ns.
        frames: Python frames of modules: name, pid, tid, start_ns, duration_ns.
        memory: Allocations and frees: name, pid, tid, start_ns, device (-1: host memory), alloc_bytes (negative:
            freed), alloc_address, alloc_total_bytes, alloc_reserved_bytes (null where the profile doesn't tell).
        counts: Records by category, for what was left out.
        repairs: What was wrong with the file.
        header: Other top-level keys.
    """

    path: str
    rank: int | None
    world_size: int | None
    process_groups: tuple[ProcessGroup, ...]
    resolution_ns: int
    host: pl.DataFrame
    activities: pl.DataFrame
    syncs: pl.DataFrame
    flows: pl.DataFrame
    frames: pl.DataFrame
    memory: pl.DataFrame
    counts: dict[str, int]
    repairs: tuple[str, ...]
    header: dict[str, Any]


def parse_kineto(path: str, text: bytes) -> KinetoProfile:
    """Parse a profile.

    Args:
        path: Name for messages.
        text: The file, decompressed.

    Raises:
        FormatError: Not a trace-event JSON, or it holds no event.
    """
    file = open_array(path, text, "traceEvents")
    if file.repairs:
        _refuse_several_ranks(path, text)
    objects = file.objects()
    spans = objects.fields(("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"))
    phase, category = objects.texts(spans["ph"], plain=True), objects.texts(spans["cat"], plain=True)
    lost = int((phase == "").sum())
    if lost:
        file.repairs.append(f"{lost} of {len(phase)} records could not be read and were dropped")
    if lost == len(phase):
        raise FormatError(f"{path}: expected trace events, got none; was the profiler's window empty?")
    ranges = phase == "X"
    host, fraction = _host_frame(_Events(objects, spans, ranges & category.is_in(list(_HOST))), category)
    activities, fine = _activity_frame(_Events(objects, spans, ranges & category.is_in(list(_DEVICE))), category)
    frames = _frame_frame(_Events(objects, spans, ranges & (category == "python_function")))
    memory = _memory_frame(_Events(objects, spans, phase == "i"))
    flow = category.is_in(["fwdbwd", "forward_backward"]) & phase.is_in(["s", "f"])
    shift = (pl.col("start_ns") + _zero(file, host, activities, memory)).alias("start_ns")
    rank, world_size, groups = _distributed(file.header)
    counts = category.filter(ranges).value_counts()
    return KinetoProfile(
        path=file.path,
        rank=rank,
        world_size=world_size,
        process_groups=groups,
        resolution_ns=1 if fraction or fine or not (host.height or activities.height) else 1000,
        host=host.with_columns(shift),
        activities=activities.with_columns(shift),
        syncs=_sync_frame(_Events(objects, spans, ranges & (category == "cuda_sync"))),
        flows=_flow_frame(_Events(objects, spans, flow), phase).with_columns(shift),
        frames=frames.with_columns(shift),
        memory=memory.with_columns(shift),
        counts={str(name): int(count) for name, count in counts.iter_rows()},
        repairs=tuple(file.repairs),
        header=file.header,
    )


def _refuse_several_ranks(path: str, text: bytes) -> None:
    """Refuse documents of different ranks in one file (an unpacked archive, files put together)."""
    ranks = set(re.findall(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)', text))
    if len(ranks) > 1:
        raise FormatError(
            f"{path}: expected one rank's profile, got {len(ranks)} ranks' in one file; put each into a file of its own"
        )


def _zero(file: ArrayFile, *timed: pl.DataFrame) -> int:
    """Return what to add to the profile's times, ns: its base, and more if that leaves any below zero."""
    base = _integer(file.header.get("baseTimeNanoseconds")) or 0
    if abs(base) > _LAST_NS:
        file.repairs.append("baseTimeNanoseconds is out of range; times count from the profile's own zero")
        base = 0
    first = min((int(part["start_ns"].min()) for part in timed if part.height), default=0)  # type: ignore[arg-type]
    if first + base < 0:
        file.repairs.append("times begin below zero; they were moved to begin at zero")
        base = -first
    return base


def _integer(value: Any) -> int | None:
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _ranks(value: Any) -> int | None:
    """Return a rank or a number of ranks, None if it can't be one."""
    number = None if isinstance(value, float) and not value.is_integer() else _integer(value)
    return number if number is not None and 0 <= number < MOST_RANKS else None


class _Events:
    """Some of a file's events, and columns of their fields and arguments."""

    def __init__(self, objects: JsonObjects, spans: dict[str, tuple[Int, Int]], chosen: pl.Series) -> None:
        self.rows = np.flatnonzero(chosen.to_numpy())
        self._objects = objects
        self._spans = {name: (begin[self.rows], end[self.rows]) for name, (begin, end) in spans.items()}

    def narrowed(self, chosen: pl.Series) -> _Events:
        """Return some of these events."""
        rows = np.flatnonzero(chosen.to_numpy())
        fewer = copy(self)
        fewer.rows = self.rows[rows]
        fewer._spans = {name: (begin[rows], end[rows]) for name, (begin, end) in self._spans.items()}
        return fewer

    def read_args(self, keys: Mapping[str, str]) -> None:
        """Look up arguments; keys are column names, values the arguments' names."""
        found = self._objects.inside(self._spans["args"], tuple(keys.values()))
        self._spans |= {f"args.{column}": found[key] for column, key in keys.items()}

    def integers(self, name: str, missing: int = -1) -> pl.Series:
        return self._objects.integers(self._spans[name], missing)

    def argument(self, name: str, missing: int = -1) -> pl.Series:
        return self.integers(f"args.{name}", missing)

    def raw(self, name: str) -> pl.Series:
        return self._objects.texts(self._spans[f"args.{name}"], plain=False)

    def text(self, name: str) -> pl.Series:
        """Return a text argument, null where it is missing or null."""
        texts = self._objects.texts(self._spans[f"args.{name}"], plain=True)
        return pl.select(pl.when(texts.str.len_bytes() > 0, texts != "null").then(texts)).to_series()

    def names(self) -> pl.Series:
        return self._objects.texts(self._spans["name"], plain=True)

    def times(self) -> tuple[dict[str, pl.Series], bool]:
        """Return start and duration in ns, and whether any had a fraction of a microsecond."""
        start, fraction = self._objects.decimals(self._spans["ts"], 3)
        duration, fine = self._objects.decimals(self._spans["dur"], 3)
        times = {
            "start_ns": pl.Series(np.clip(start, -_LAST_NS, _LAST_NS)),
            "duration_ns": pl.Series(np.clip(duration, 0, _LONGEST_NS)),
        }
        return times, fraction or fine


_HOST_ARGS = {
    "external_id": "External id",
    "rf_id": "Record function id",
    "seq_id": "Sequence number",
    "fw_tid": "Fwd thread id",
    "correlation": "correlation",
    "bytes": "bytes",
    "dims": "Input Dims",
    "types": "Input type",
    "values": "Concrete Inputs",
    "strides": "Input Strides",
}
_DEVICE_NUMBERS = {
    "correlation": "correlation",
    "external_id": "External id",
    "bytes": "bytes",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "group_size": "Group size",
    "seq": "Seq",
    "src_rank": "Src Rank",
    "dst_rank": "Dst Rank",
    "root_rank": "Root Rank",
}
_DEVICE_TEXTS = {
    "copy": "kind",
    "collective": "Collective name",
    "dtype": "dtype",
    "in_split": "In split size",
    "out_split": "Out split size",
    "pg_name": "Process Group Name",
    "pg_desc": "Process Group Description",
    "pg_ranks": "Process Group Ranks",
}
_SYNC_ARGS = {
    "sync_kind": "cuda_sync_kind",
    "stream": "stream",
    "device": "device",
    "correlation": "correlation",
    "wait_on_stream": "wait_on_stream",
    "wait_on_record": "wait_on_cuda_event_record_corr_id",
    "wait_on_event": "wait_on_cuda_event_id",
}

_MEMORY = "[memory]"
_MEMORY_ARGS = {
    "device_type": "Device Type",
    "device": "Device Id",
    "alloc_bytes": "Bytes",
    "alloc_address": "Addr",
    "alloc_total_bytes": "Total Allocated",
    "alloc_reserved_bytes": "Total Reserved",
}
_MEMORY_COLUMNS = ("pid", "tid", "start_ns", "device", *(name for name in _MEMORY_ARGS if name.startswith("alloc_")))


def _host_kinds(category: pl.Series, rows: Int, names: pl.Series) -> pl.Series:
    """Return the kinds of host events; notes of our observer are annotations, though they come as operators."""
    kinds, noted = _kinds(category, rows, _HOST), names.str.starts_with(NOTES)
    return pl.select(pl.when(noted).then(pl.lit(ANNOTATION, pl.Int8)).otherwise(kinds)).to_series()


def _kinds(category: pl.Series, rows: Int, table: dict[str, int]) -> pl.Series:
    kinds: pl.Series = category.gather(rows).replace_strict(table, return_dtype=pl.Int8)
    return kinds


def _host_frame(events: _Events, category: pl.Series) -> tuple[pl.DataFrame, bool]:
    events.read_args(_HOST_ARGS)
    times, fraction = events.times()
    names = events.names()
    numbers = ("external_id", "rf_id", "seq_id", "fw_tid", "correlation", "bytes")
    columns = {
        "kind": _host_kinds(category, events.rows, names),
        "name": names,
        "pid": events.integers("pid"),
        "tid": events.integers("tid"),
        **times,
        **{name: events.argument(name, 0 if name in ("rf_id", "fw_tid") else -1) for name in numbers},
        **{name: events.raw(name) for name in ("dims", "types", "values", "strides")},
    }
    return pl.DataFrame(columns), fraction


def _activity_frame(events: _Events, category: pl.Series) -> tuple[pl.DataFrame, bool]:
    events.read_args({**_DEVICE_NUMBERS, **_DEVICE_TEXTS, "device": "device", "stream": "stream"})
    times, fraction = events.times()
    missing = -(2**62)

    def either(argument: str, field: str) -> pl.Series:
        first = events.argument(argument, missing).to_numpy()
        return pl.Series(np.where(first == missing, events.integers(field).to_numpy(), first))

    columns = {
        "kind": _kinds(category, events.rows, _DEVICE),
        "name": events.names(),
        "device": either("device", "pid"),
        "stream": either("stream", "tid"),
        **times,
        **{name: events.argument(name) for name in _DEVICE_NUMBERS},
        **{name: events.text(name) for name in _DEVICE_TEXTS},
    }
    return pl.DataFrame(columns), fraction


def _sync_frame(events: _Events) -> pl.DataFrame:
    events.read_args(_SYNC_ARGS)
    kind = events.text("sync_kind")
    columns = {name: events.argument(name) for name in _SYNC_ARGS if name != "sync_kind"}
    stream = columns["stream"].to_numpy()
    return pl.DataFrame(
        {
            "sync_kind": pl.select(pl.coalesce(kind, events.names())).to_series(),
            **columns,
            "stream": pl.Series(np.where(stream == 0xFFFFFFFF, -1, stream)),
        }
    )


def _frame_frame(events: _Events) -> pl.DataFrame:
    """Return the frames of modules; the others would be copied in vain."""
    events = events.narrowed(events.names().str.starts_with("nn.Module: "))
    times, _ = events.times()
    return pl.DataFrame({"name": events.names(), "pid": events.integers("pid"), "tid": events.integers("tid"), **times})


def _memory_frame(events: _Events) -> pl.DataFrame:
    """Return the allocators' events; other instants mark the profiler's own window."""
    events = events.narrowed(events.names() == _MEMORY)
    if not len(events.rows):
        return pl.DataFrame(schema={"name": pl.String} | dict.fromkeys(_MEMORY_COLUMNS, pl.Int64))
    events.read_args(_MEMORY_ARGS)
    times, _ = events.times()
    unknown = -(2**62)
    sizes = {name: events.argument(name, unknown).replace(unknown, None) for name in _MEMORY_COLUMNS[4:]}
    # Device type 0 is the host; its device id is -1 already, in most versions.
    on_host = events.argument("device_type") == 0
    return pl.DataFrame(
        {
            "name": events.names(),
            "pid": events.integers("pid"),
            "tid": events.integers("tid"),
            "start_ns": times["start_ns"],
            "device": events.argument("device").set(on_host, -1),
            **sizes,
        }
    ).filter(pl.col("alloc_bytes").is_not_null())


def _flow_frame(events: _Events, phase: pl.Series) -> pl.DataFrame:
    times, _ = events.times()
    return pl.DataFrame(
        {
            "flow": events.integers("id"),
            "is_start": phase.gather(events.rows) == "s",
            "pid": events.integers("pid"),
            "tid": events.integers("tid"),
            "start_ns": times["start_ns"],
        }
    )


def _distributed(header: dict[str, Any]) -> tuple[int | None, int | None, tuple[ProcessGroup, ...]]:
    info = header.get("distributedInfo")
    if not isinstance(info, dict):
        return None, None, ()
    groups = info.get("pg_config")
    if isinstance(groups, str):
        try:
            groups = msgspec.json.decode(groups.replace("'", '"'))
        except msgspec.DecodeError:
            groups = None
    return _ranks(info.get("rank")), _ranks(info.get("world_size")), groups_from_records(groups)
