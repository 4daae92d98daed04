"""Export to the trace-event format, which https://ui.perfetto.dev and chrome://tracing open.

Host threads of a rank are one process, device streams another; gap nodes have tracks of their own below the thread or
stream that they delay. Times are microseconds with three decimals, relative to ``baseTimeNanoseconds``, as in
Kineto's profiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from chakra_et.io._files import gzip_chunks, write_atomic
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceSet
from chakra_et.ir.process_group import groups_of
from chakra_et.reports._slices import Timeline, timeline

__all__ = ["export_perfetto", "perfetto_chunks"]

_ROWS = 20_000
# Columns shown in the details of a slice, where they have a value.
_DETAILS = (
    "id",
    "rf_id",
    "seq_id",
    "correlation",
    "stream",
    "gap_kind",
    "copy_kind",
    "tensor_size",
    "comm_type",
    "comm_size",
    "comm_dtype",
    "pg_name",
    "comm_seq",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "comm_root",
    "wait_ns",
    "transfer_ns",
    "inferred",
    "op_schema",
)
_ARROW_NAMES = {"launch": "launch", "wait": "host waits", "event": "stream waits", "thread": "thread waits"}
_COMM_NAMES = {int(kind): kind.name for kind in CommType}
_COMM = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE)


def export_perfetto(trace_set: TraceSet, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write a timeline of all ranks.

    Args:
        trace_set: The ranks; their clocks are taken as they are.
        path: File; compressed if the name ends in ``.gz``.
        force: True to overwrite.

    Raises:
        OutputError: The file exists and `force` is False, or it can't be written.
    """
    chunks = perfetto_chunks(trace_set)
    return [write_atomic(path, gzip_chunks(chunks) if str(path).endswith(".gz") else chunks, force=force)]


def perfetto_chunks(trace_set: TraceSet) -> Iterator[bytes]:
    """Yield the text of a timeline file piece by piece.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> node = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1500, stream=7)
        >>> b'"dur":1.5' in b"".join(perfetto_chunks(TraceSet((builder.build(),))))
        True
    """
    lines = {rank: timeline(trace) for rank, trace in zip(trace_set.ranks, trace_set, strict=True)}
    starts = [int(str(line.slices["start"].min())) for line in lines.values() if line.slices.height]
    base = min(starts, default=0)
    yield (
        b'{"schemaVersion":1,"chakraExport":"perfetto","displayTimeUnit":"ns","baseTimeNanoseconds":%d,"traceEvents":[\n'
        % base
    )
    separator = b""
    arrows = 0
    for rank, trace in zip(trace_set.ranks, trace_set, strict=True):
        groups = groups_of(rank, (*trace.process_groups, *trace_set.process_groups))
        for events in _events(rank, trace, lines[rank], groups, base, arrows):
            if events:
                yield separator + b",\n".join(map(msgspec.json.encode, events))
                separator = b",\n"
        arrows += lines[rank].arrows.height
    yield b"\n]}\n"


def _events(
    rank: int, trace: Trace, line: Timeline, groups: Mapping[str, ProcessGroup], base: int, first_arrow: int
) -> Iterator[list[dict[str, Any]]]:
    places = _places(rank, line.tracks)
    yield list(_names(rank, line.tracks, places))
    for part in line.slices.iter_slices(_ROWS):
        yield list(_slices(trace, part, places, groups, base))
    track = line.slices["track"].to_list()
    for number, part in enumerate(line.arrows.iter_slices(_ROWS)):
        yield list(_arrows(part, track, places, base, first_arrow + number * _ROWS))


def _places(rank: int, tracks: pl.DataFrame) -> list[tuple[int, int]]:
    """Return the process and thread number of each track; both count from 1, since 0 is the idle task to viewers."""
    return [(2 * rank + 1 + device_side, row + 1) for row, device_side in enumerate(tracks["device_side"].to_list())]


def _names(rank: int, tracks: pl.DataFrame, places: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    for process in sorted({pid for pid, _ in places}):
        side = "host" if process % 2 else "device"
        yield _metadata("process_name", process, 0, {"name": f"rank {rank} {side}"})
        yield _metadata("process_sort_index", process, 0, {"sort_index": process})
    several = tracks.filter("device_side")["device"].n_unique() > 1
    for row, (pid, tid) in zip(tracks.iter_rows(named=True), places, strict=True):
        kind = "stream" if row["device_side"] else "thread"
        label = f"{kind} {row['number']}" if row["number"] is not None else f"{kind} unknown"
        label = f"device {row['device']} {label}" if several and row["device_side"] else label
        label += " gaps" if row["gaps"] else ""
        label += f" ({row['lane'] + 1})" if row["lane"] else ""
        yield _metadata("thread_name", pid, tid, {"name": label})
        yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _slices(
    trace: Trace, part: pl.DataFrame, places: list[tuple[int, int]], groups: Mapping[str, ProcessGroup], base: int
) -> Iterator[dict[str, Any]]:
    present = [name for name in _DETAILS if name in trace.nodes.columns]
    nodes = trace.nodes.select("name", "type", *present, *(["inputs"] if "inputs" in trace.nodes.columns else []))
    rows = nodes[part["node"].to_numpy()].iter_rows(named=True)
    for row, start, end, track in zip(rows, part["start"], part["end"], part["track"], strict=True):
        pid, tid = places[track]
        yield {
            "ph": "X",
            "name": row["name"] or "unnamed",
            "cat": _category(row["type"], row.get("gap_kind"), pid),
            "pid": pid,
            "tid": tid,
            "ts": (start - base) / 1000,
            "dur": (end - start) / 1000,
            "args": _details(row, present, groups),
        }


def _category(node_type: int, gap_kind: str | None, pid: int) -> str:
    if gap_kind is not None:
        return "gap"
    if node_type == NodeType.METADATA_NODE:
        return "annotation"
    if node_type in _COMM:
        return "communication"
    if node_type in (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE):
        return "memory"
    return "cpu_op" if pid % 2 else "kernel"


def _details(row: dict[str, Any], present: Iterable[str], groups: Mapping[str, ProcessGroup]) -> dict[str, Any]:
    details = {name: row[name] for name in present if row[name] is not None}
    if "comm_type" in details:
        details["comm_type"] = _COMM_NAMES.get(details["comm_type"], details["comm_type"])
    group = groups.get(details.get("pg_name", ""))
    if group is not None:
        details["group"] = f"{group.name} {group.description}".strip()
        details["group ranks"] = list(group.ranks)
    inputs = row.get("inputs")
    if inputs and inputs["shapes"]:
        details["input shapes"] = inputs["shapes"]
    return details


def _arrows(
    part: pl.DataFrame, track: list[int], places: list[tuple[int, int]], base: int, first: int
) -> Iterator[dict[str, Any]]:
    for number, (kind, source, target, begin, end) in enumerate(part.iter_rows(), first):
        name, cat = _ARROW_NAMES[kind], f"flow_{kind}"
        for phase, row, time in (("s", source, begin), ("f", target, end)):
            pid, tid = places[track[row]]
            event = {
                "ph": phase,
                "id": number,
                "name": name,
                "cat": cat,
                "pid": pid,
                "tid": tid,
                "ts": (time - base) / 1000,
            }
            # "e" ties the arrow's end to the slice around it, not to the next one.
            yield event if phase == "s" else {**event, "bp": "e"}
