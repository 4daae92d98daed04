"""Kineto profiles (``torch.profiler``'s trace-event JSON) as columns.

Times are int64 nanoseconds since the Unix epoch where the profile tells its base, else since the profile's own zero. They are parsed
from the decimal text: as floats, microseconds since the epoch keep only a quarter of a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.json_scan import parse_decimals
from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.json_array import ArrayFile, open_array
from chakra_et.ir.process_group import ProcessGroup

__all__ = ["ANNOTATION", "OPERATOR", "RUNTIME", "KinetoProfile", "parse_kineto"]

OPERATOR, ANNOTATION, RUNTIME = 0, 1, 2

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
_Number = int | float | str | None


class _Args(msgspec.Struct, rename=None):
    external_id: _Number = msgspec.field(default=None, name="External id")
    correlation: _Number = None
    rf_id: _Number = msgspec.field(default=None, name="Record function id")
    seq_id: _Number = msgspec.field(default=None, name="Sequence number")
    fw_tid: _Number = msgspec.field(default=None, name="Fwd thread id")
    stream: _Number = None
    device: _Number = None
    bytes: _Number = None
    kind: Any = None
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Concrete Inputs")
    strides: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Strides")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: _Number = msgspec.field(default=None, name="In msg nelems")
    out_elements: _Number = msgspec.field(default=None, name="Out msg nelems")
    group_size: _Number = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    in_split: Any = msgspec.field(default=None, name="In split size")
    out_split: Any = msgspec.field(default=None, name="Out split size")
    pg_name: Any = msgspec.field(default=None, name="Process Group Name")
    pg_desc: Any = msgspec.field(default=None, name="Process Group Description")
    pg_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    seq: _Number = msgspec.field(default=None, name="Seq")
    src_rank: _Number = msgspec.field(default=None, name="Src Rank")
    dst_rank: _Number = msgspec.field(default=None, name="Dst Rank")
    root_rank: _Number = msgspec.field(default=None, name="Root Rank")
    sync_kind: Any = msgspec.field(default=None, name="cuda_sync_kind")
    wait_on_stream: _Number = None
    wait_on_record: _Number = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    wait_on_event: _Number = msgspec.field(default=None, name="wait_on_cuda_event_id")


class _Event(msgspec.Struct):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: _Number = None
    tid: _Number = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    id: Any = None
    args: _Args | None = None


_MANY = msgspec.json.Decoder(list[_Event])
_ONE = msgspec.json.Decoder(_Event)
_NO_ARGS = _Args()


@dataclass(frozen=True, slots=True, eq=False)
class KinetoProfile:
    """One profile as tables.

    Attributes:
        path: Name for messages.
        rank: Rank in the file, or None.
        world_size: World size in the file, or None.
        process_groups: Groups in the file (``pg_config``).
        resolution_ns: Clock resolution: 1000 for whole microseconds, else 1.
        host: Host events: kind, name, pid, tid, start_ns, duration_ns, external_id, rf_id, seq_id, fw_tid, correlation, bytes,
            dims, types, values, strides (JSON texts).
        activities: Device activities: kind (0 kernel, 1 copy, 2 set), name, device, stream, start_ns, duration_ns,
            correlation, external_id, bytes, copy, and the communication arguments.
        syncs: ``cuda_sync`` records: sync_kind, stream, device, correlation, wait_on_stream, wait_on_record, wait_on_event.
        flows: ``fwdbwd`` flow ends: flow, is_start, pid, tid, start_ns.
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
    picked: dict[str, list[_Event]] = {"host": [], "device": [], "sync": [], "flow": []}
    counts: dict[str, int] = {}
    host: list[pl.DataFrame] = []
    fractional = False
    for events in file.chunks(_MANY, _ONE):
        _sort_out(events, picked, counts)
        if picked["host"]:
            frame, fraction = _host_frame(picked["host"])
            host.append(frame)
            fractional |= fraction
            picked["host"] = []
    if not counts:
        raise FormatError(f"{path}: expected trace events, got none; was the profiler's window empty?")
    return _assemble(file, picked, counts, host, fractional)


def _assemble(
    file: ArrayFile, picked: dict[str, list[_Event]], counts: dict[str, int], host: list[pl.DataFrame], fractional: bool
) -> KinetoProfile:
    activities, fraction = _activity_frame(picked["device"])
    host_frame = pl.concat(host, rechunk=True) if host else _host_frame([])[0]
    resolution = 1 if fractional or fraction or not (host_frame.height or activities.height) else 1000
    base = _integer(file.header.get("baseTimeNanoseconds")) or 0
    shift = (pl.col("start_ns") + base).alias("start_ns")
    rank, world_size, groups = _distributed(file.header)
    return KinetoProfile(
        path=file.path,
        rank=rank,
        world_size=world_size,
        process_groups=groups,
        resolution_ns=resolution,
        host=host_frame.with_columns(shift),
        activities=activities.with_columns(shift),
        syncs=_sync_frame(picked["sync"]),
        flows=_flow_frame(picked["flow"]).with_columns(shift),
        counts=counts,
        repairs=tuple(file.repairs),
        header=file.header,
    )


def _sort_out(events: list[_Event], picked: dict[str, list[_Event]], counts: dict[str, int]) -> None:
    host, device, sync, flow = picked["host"], picked["device"], picked["sync"], picked["flow"]
    for event in events:
        category, phase = event.cat, event.ph
        if phase == "X":
            counts[str(category)] = counts.get(str(category), 0) + 1
            if category in _HOST:
                host.append(event)
            elif category in _DEVICE:
                device.append(event)
            elif category == "cuda_sync":
                sync.append(event)
        elif category in ("fwdbwd", "forward_backward") and phase in ("s", "f"):
            flow.append(event)


def _integer(value: Any, missing: int | None = None) -> int | None:
    if value is None or isinstance(value, bool):
        return missing
    try:
        return int(value)
    except (TypeError, ValueError):
        return missing


def _integers(values: list[Any], missing: int = -1) -> npt.NDArray[np.int64]:
    """Turn numbers of any JSON spelling into int64; what isn't a number, or doesn't fit, becomes `missing`."""
    try:
        return np.array([missing if value is None else value for value in values], np.int64)
    except (TypeError, ValueError, OverflowError):
        whole = [_integer(value, missing) for value in values]
        return np.array([v if v is not None and -(2**63) <= v < 2**63 else missing for v in whole], np.int64)


def _times(raws: list[msgspec.Raw]) -> tuple[npt.NDArray[np.int64], bool]:
    """Parse microsecond texts to int64 ns; missing is 0."""
    texts = [bytes(raw) for raw in raws]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    values, fractional, bad = parse_decimals(np.frombuffer(b"".join(texts), np.uint8), offsets, 3)
    if bad:
        for row in np.flatnonzero(values == 0):
            values[row] = _odd_number(texts[row])
    return values, bool(fractional)


def _odd_number(text: bytes) -> int:
    try:
        value = float(text.strip(b'"'))
    except ValueError:
        return 0
    return round(value * 1000) if abs(value) < 9e15 else 0


def _texts(raws: list[msgspec.Raw]) -> pl.Series:
    return pl.Series([bytes(raw) for raw in raws], dtype=pl.Binary).cast(pl.String, strict=False)


def _names(events: list[_Event]) -> list[str]:
    return [event.name if isinstance(event.name, str) else str(event.name) for event in events]


def _span(events: list[_Event]) -> tuple[dict[str, Any], bool]:
    start, fraction = _times([event.ts for event in events])
    duration, more = _times([event.dur for event in events])
    return {"start_ns": start, "duration_ns": np.maximum(duration, 0)}, fraction or more


def _host_frame(events: list[_Event]) -> tuple[pl.DataFrame, bool]:
    args = [event.args or _NO_ARGS for event in events]
    span, fraction = _span(events)
    frame = pl.DataFrame(
        {
            "kind": np.array([_HOST[event.cat] for event in events], np.int8),
            "name": pl.Series(_names(events), dtype=pl.String),
            "pid": _integers([event.pid for event in events]),
            "tid": _integers([event.tid for event in events]),
            **span,
            "external_id": _integers([a.external_id for a in args]),
            "rf_id": _integers([a.rf_id for a in args], 0),
            "seq_id": _integers([a.seq_id for a in args]),
            "fw_tid": _integers([a.fw_tid for a in args], 0),
            "correlation": _integers([a.correlation for a in args]),
            "bytes": _integers([a.bytes for a in args]),
            "dims": _texts([a.dims for a in args]),
            "types": _texts([a.types for a in args]),
            "values": _texts([a.values for a in args]),
            "strides": _texts([a.strides for a in args]),
        }
    )
    return frame, fraction


def _activity_frame(events: list[_Event]) -> tuple[pl.DataFrame, bool]:
    args = [event.args or _NO_ARGS for event in events]
    span, fraction = _span(events)
    text = {
        "copy": [a.kind for a in args],
        "collective": [a.collective for a in args],
        "dtype": [a.dtype for a in args],
        "in_split": [a.in_split for a in args],
        "out_split": [a.out_split for a in args],
        "pg_name": [a.pg_name for a in args],
        "pg_desc": [a.pg_desc for a in args],
        "pg_ranks": [a.pg_ranks for a in args],
    }
    frame = pl.DataFrame(
        {
            "kind": np.array([_DEVICE[event.cat] for event in events], np.int8),
            "name": pl.Series(_names(events), dtype=pl.String),
            "device": _integers([e.pid if a.device is None else a.device for e, a in zip(events, args, strict=True)]),
            "stream": _integers([e.tid if a.stream is None else a.stream for e, a in zip(events, args, strict=True)]),
            **span,
            "correlation": _integers([a.correlation for a in args]),
            "external_id": _integers([a.external_id for a in args]),
            "bytes": _integers([a.bytes for a in args]),
            "in_elements": _integers([a.in_elements for a in args]),
            "out_elements": _integers([a.out_elements for a in args]),
            "group_size": _integers([a.group_size for a in args]),
            "seq": _integers([a.seq for a in args]),
            "src_rank": _integers([a.src_rank for a in args]),
            "dst_rank": _integers([a.dst_rank for a in args]),
            "root_rank": _integers([a.root_rank for a in args]),
            **{
                name: pl.Series([v if isinstance(v, str) else None if v is None else str(v) for v in values], dtype=pl.String)
                for name, values in text.items()
            },
        }
    )
    return frame, fraction


def _sync_frame(events: list[_Event]) -> pl.DataFrame:
    args = [event.args or _NO_ARGS for event in events]
    streams = _integers([a.stream for a in args])
    return pl.DataFrame(
        {
            "sync_kind": pl.Series([str(a.sync_kind or e.name) for e, a in zip(events, args, strict=True)], dtype=pl.String),
            "stream": np.where(streams == 0xFFFFFFFF, -1, streams),
            "device": _integers([a.device for a in args]),
            "correlation": _integers([a.correlation for a in args]),
            "wait_on_stream": _integers([a.wait_on_stream for a in args]),
            "wait_on_record": _integers([a.wait_on_record for a in args]),
            "wait_on_event": _integers([a.wait_on_event for a in args]),
        }
    )


def _flow_frame(events: list[_Event]) -> pl.DataFrame:
    start, _ = _times([event.ts for event in events])
    return pl.DataFrame(
        {
            "flow": _integers([event.id for event in events]),
            "is_start": pl.Series([event.ph == "s" for event in events], dtype=pl.Boolean),
            "pid": _integers([event.pid for event in events]),
            "tid": _integers([event.tid for event in events]),
            "start_ns": start,
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
    records = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    return _integer(info.get("rank")), _integer(info.get("world_size")), tuple(map(ProcessGroup.from_dict, records))
