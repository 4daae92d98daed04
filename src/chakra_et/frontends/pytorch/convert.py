"""One rank's files to one trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.activities import HOST_COMMUNICATION, Activities, collect_activities, split_host
from chakra_et.frontends.pytorch.assemble import assemble
from chakra_et.frontends.pytorch.comm_notes import WAIT_NOTE, CommNote
from chakra_et.frontends.pytorch.comm_records import CommRecord, parse_c10d, parse_records, range_bytes
from chakra_et.frontends.pytorch.communication import (
    CommColumns,
    CommSource,
    assign_worker_groups,
    describe,
    name_groups,
)
from chakra_et.frontends.pytorch.data_pairs import flow_pairs, sequence_pairs, tensor_pairs
from chakra_et.frontends.pytorch.graph import RankGraph, build_rank_graph
from chakra_et.frontends.pytorch.join import Join, join_hosts, refuse_other_rank
from chakra_et.frontends.pytorch.modules import module_paths
from chakra_et.frontends.pytorch.parse_et import HostTrace, comm_numbers
from chakra_et.frontends.pytorch.parse_kineto import ANNOTATION, KinetoProfile
from chakra_et.frontends.pytorch.timeline import HostTimeline, build_timeline
from chakra_et.ir.enums import NodeType
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace, TraceMetadata

__all__ = ["RankFacts", "convert_rank"]


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What converting one rank found, beside the trace.

    Attributes:
        device_activities: Device activities in the profile.
        linkable: Those with any runtime event of the same correlation id.
        linked: Those with a launcher.
        host_ops: Operators of the execution trace (of the profile, if there is no execution trace).
        host_ops_matched: Operators of the execution trace that the profile has too; 0 without one of the two.
        communications: Communication nodes.
        unknown_communications: Those that could not be named.
        inferred_edges: Edges that were inferred, not read.
        memory_events: Allocations and frees.
        window_ns: Length of the measured window.
        dropped: What was left out, in words.
        warnings: What was guessed or repaired, in words.
        details: How the files were joined (``join``), and `RankGraph.counts`.
    """

    device_activities: int = 0
    linkable: int = 0
    linked: int = 0
    host_ops: int = 0
    host_ops_matched: int = 0
    communications: int = 0
    unknown_communications: int = 0
    inferred_edges: int = 0
    memory_events: int = 0
    window_ns: int = 0
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


def convert_rank(
    profile: KinetoProfile,
    host: HostTrace | None,
    *,
    sources: tuple[dict[str, Any], ...],
    named_ranks: tuple[int | None, int | None] = (None, None),
) -> tuple[Trace, RankFacts]:
    """Convert one rank.

    Args:
        profile: Its Kineto profile.
        host: Its execution trace, or None.
        sources: Facts about the files, for the trace's metadata.
        named_ranks: Ranks that the names of the execution trace and of the profile tell, None where they don't.

    Raises:
        MismatchError: The two files don't belong together.
    """
    events, ranges = split_host(profile)
    if not profile.host.height and not profile.activities.height:
        found = (
            ", ".join(f"{count} {name or 'unnamed'}" for name, count in sorted(profile.counts.items())) or "no events"
        )
        raise FormatError(
            f"{profile.path}: expected host operators or device activities, got {found}; was anything profiled?"
        )
    # Host events are the bulk of a profile: one copy of them is enough.
    profile = replace(profile, host=profile.host.clear())
    timeline = build_timeline(events, resolution_ns=profile.resolution_ns)
    del events
    modules = module_paths(profile.frames, timeline)
    if modules is not None:
        timeline = replace(timeline, frame=timeline.frame.with_columns(module=modules))
    if host is not None:
        refuse_other_rank(host, profile, timeline, named_ranks)
    join = join_hosts(host, profile, timeline) if host is not None else None
    activities = collect_activities(profile, ranges, timeline)
    groups = _known_groups(profile, host)
    described, is_async = _describe_all(profile, host, timeline, activities, join, groups)
    by_launch = sorted(described, key=lambda row: int(activities.start[row]))
    assumed = name_groups([described[row] for row in by_launch], groups, profile.world_size)
    joined = join.node if join is not None else np.full(len(timeline.thread), -1, np.int64)
    receives = np.zeros(len(activities), np.bool_)
    receives[[row for row, columns in described.items() if columns.type == NodeType.COMM_RECV_NODE]] = True
    numbers = comm_numbers(host, joined)
    graph = build_rank_graph(
        profile, timeline, activities, is_async=is_async, receives=receives,
        data_pairs=_data_pairs(profile, host, joined, timeline),
        told_waits=_told_waits(timeline, numbers, described),
    )  # fmt: skip
    host_nodes = host.nodes if host is not None else None
    nodes, inferred = assemble(timeline, activities, graph, described, host_nodes, joined, profile.memory, numbers)
    for column in described.values():
        if column.seen_group is not None:
            _remember(groups, column.seen_group)
    metadata = TraceMetadata(rank=profile.rank, world_size=profile.world_size, family="collected", sources=sources)
    trace = Trace(nodes, tuple(groups.values()), metadata)
    facts = _facts(profile, host, timeline, activities, join, graph, described, inferred)
    return trace, replace(facts, warnings=(*facts.warnings, assumed)) if assumed else facts


def _data_pairs(
    profile: KinetoProfile, host: HostTrace | None, joined: npt.NDArray[np.int64], timeline: HostTimeline
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return host events whose data others use, and those others: int64 [E] each."""
    flows = flow_pairs(profile.flows, timeline)
    pairs = [flows if len(flows[0]) else sequence_pairs(timeline)]
    if host is not None:
        pairs.append(tensor_pairs(host, joined, timeline))
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def _told_waits(
    timeline: HostTimeline, numbers: npt.NDArray[np.int64], described: Mapping[int, CommColumns]
) -> dict[int, list[int]]:
    """Return the waits (events) for each communication (activity) that our observer noted."""
    activity = {columns.comm_id: row for row, columns in described.items() if columns.comm_id is not None}
    told: dict[int, list[int]] = {}
    for event in np.flatnonzero((timeline.frame["name"] == WAIT_NOTE).to_numpy() & (numbers >= 0)).tolist():
        if (row := activity.get(int(numbers[event]))) is not None:
            told.setdefault(row, []).append(event)
    return told


def _remember(groups: dict[str, ProcessGroup], group: ProcessGroup) -> None:
    known = groups.get(group.name)
    if known is None or (not known.ranks and group.ranks):
        groups[group.name] = group


def _known_groups(profile: KinetoProfile, host: HostTrace | None) -> dict[str, ProcessGroup]:
    """Merge the groups of both files; an execution trace may leave out the ranks of the whole job."""
    groups: dict[str, ProcessGroup] = {}
    for group in (*profile.process_groups, *(host.process_groups if host is not None else ())):
        if not group.ranks and profile.world_size and group.size == profile.world_size:
            group = ProcessGroup(group.name, tuple(range(group.size)), group.size, group.description, group.backend)
        _remember(groups, group)
    return groups


def _describe_all(
    profile: KinetoProfile,
    host: HostTrace | None,
    timeline: HostTimeline,
    activities: Activities,
    join: Join | None,
    groups: dict[str, ProcessGroup],
) -> tuple[dict[int, CommColumns], npt.NDArray[np.bool_]]:
    """Describe every communication; also return which ones are async, bool [A] (true where unknown)."""
    records = parse_records(host.nodes) if host is not None else {}
    rows = np.flatnonzero(activities.communication)
    is_async = np.ones(len(activities), np.bool_)
    described: dict[int, CommColumns] = {}
    names, shapes, kinds = (timeline.frame[column] for column in ("name", "dims", "types"))
    wanted = ("name", "collective", "dtype", "in_elements", "out_elements", "group_size", "in_split", "out_split",
              "pg_name", "pg_desc", "pg_ranks", "src_rank", "dst_rank", "root_rank", "dims", "types")  # fmt: skip
    frame = activities.frame.select(name for name in wanted if name in activities.frame.columns)
    for row, kernel in zip(rows.tolist(), frame[rows].iter_rows(named=True), strict=True):
        launcher = int(activities.launcher[row])
        if activities.kind[row] == HOST_COMMUNICATION:
            record = _c10d_record(timeline, launcher, join, host, kernel)
            name = kernel["name"]
            note = _note_of(launcher, timeline, join, host)
            source = CommSource(name, {}, record, name, kernel["dims"] or "", kernel["types"] or "", note)
            is_async[row] = record is None or record.is_async is not False
        else:
            record, annotation = _around(timeline, launcher, names, join, records)
            if record is None and annotation < 0 and launcher >= 0:
                # One-shot all-reduce kernels come from an operator of an inference engine, or of symmetric memory.
                annotation = int(timeline.operator_of(np.array([launcher]))[0])
            dims, types = ("", "") if annotation < 0 else (shapes[annotation], kinds[annotation])
            text = str(names[annotation]) if annotation >= 0 else ""
            note = _note_of(launcher, timeline, join, host)
            source = CommSource(kernel["name"], _device_side(kernel), record, text, dims or "", types or "", note)
        described[row] = describe(source, rank=profile.rank, groups=groups)
    order = [row for row in rows.tolist() if activities.kind[row] == HOST_COMMUNICATION]
    order.sort(key=lambda row: int(activities.start[row]))
    if order:
        workers = activities.frame["worker"].to_numpy()[order]
        assign_worker_groups([described[row] for row in order], workers, list(groups.values()))
    return described, is_async


def _note_of(event: int, timeline: HostTimeline, join: Join | None, host: HostTrace | None) -> CommNote | None:
    """Return what our observer noted of the call around an event."""
    while host is not None and host.notes and join is not None and event >= 0:
        row = int(join.node[event])
        note = host.notes.get(int(host.nodes["id"][row])) if row >= 0 else None
        if note is not None:
            return note
        event = int(timeline.parent[event])
    return None


def _device_side(kernel: dict[str, Any]) -> dict[str, Any]:
    return {
        name: -1 if value is None and name.endswith(("elements", "size", "rank")) else value
        for name, value in kernel.items()
    }


def _around(
    timeline: HostTimeline, launcher: int, names: pl.Series, join: Join | None, records: dict[int, CommRecord]
) -> tuple[CommRecord | None, int]:
    """Find the communication record and the annotation around a launch call, climbing out of it."""
    record, annotation = None, -1
    event = launcher
    while event >= 0:
        name = str(names[event])
        if join is not None and record is None and name == "record_param_comms":
            record = records.get(int(join.node[event]))
        if annotation < 0 and timeline.kind[event] == ANNOTATION and name.startswith(("nccl:", "rccl:", "xccl:")):
            annotation = event
        if record is not None and annotation >= 0:
            break
        event = int(timeline.parent[event])
    if record is None and join is not None and annotation >= 0:
        record = _sibling_record(timeline, annotation, names, join, records)
    return record, annotation


def _sibling_record(
    timeline: HostTimeline, annotation: int, names: pl.Series, join: Join, records: dict[int, CommRecord]
) -> CommRecord | None:
    """Find the ``record_param_comms`` just before an annotation under the same operator (torch up to 2.0)."""
    parent = int(timeline.parent[annotation])
    event = annotation - 1
    while event > parent and event >= annotation - 64:
        if str(names[event]) == "record_param_comms" and timeline.parent[event] == parent:
            return records.get(int(join.node[event]))
        event -= 1
    return None


def _c10d_record(
    timeline: HostTimeline, call: int, join: Join | None, host: HostTrace | None, own: dict[str, Any]
) -> CommRecord | None:
    if call < 0:
        return None
    row = timeline.frame.row(call, named=True)
    texts = ("", "")
    if join is not None and host is not None and join.node[call] >= 0:
        texts = host.nodes.select("input_values", "input_types").row(int(join.node[call]))
    _, dtype = range_bytes(own["dims"] or "", own["types"] or "")
    return parse_c10d(
        row["name"], dims=row["dims"] or "", types=row["types"] or "", values=row["values"] or "",
        et_values=texts[0] or "", et_types=texts[1] or "", dtype=dtype,
    )  # fmt: skip


def _facts(
    profile: KinetoProfile,
    host: HostTrace | None,
    timeline: HostTimeline,
    activities: Activities,
    join: Join | None,
    graph: RankGraph,
    described: dict[int, CommColumns],
    inferred: int,
) -> RankFacts:
    device = activities.kind != HOST_COMMUNICATION
    operators = int((timeline.kind != 2).sum())
    linkable = int((activities.linkable & device).sum())
    return RankFacts(
        device_activities=int(device.sum()),
        linkable=linkable,
        linked=int(((graph.items.launch_item >= 0) & device).sum()),
        host_ops=join.operators if join is not None else operators,
        host_ops_matched=join.matched if join is not None else 0,
        communications=len(described),
        unknown_communications=sum(bool(columns.unknown_comm) for columns in described.values()),
        inferred_edges=inferred,
        memory_events=profile.memory.height,
        window_ns=graph.window[1] - graph.window[0],
        dropped=tuple(_dropped(profile, join)),
        warnings=tuple(
            _warnings(
                profile, host, graph, join, unlinked=int(device.sum()) - linkable, processes=timeline.pids.tolist()
            )
        ),
        details={"join": join.method if join is not None else None, **graph.counts},
    )


def _dropped(profile: KinetoProfile, join: Join | None) -> list[str]:
    kept = {
        "cpu_op",
        "Operator",
        "user_annotation",
        "kernel",
        "gpu_memcpy",
        "gpu_memset",
        "cuda_sync",
        "Kernel",
        "Memcpy",
        "Memset",
    }
    words = [
        f"{count} '{category}' records ({_REASONS.get(category, 'not a host operator or a device activity')})"
        for category, count in sorted(profile.counts.items())
        if category not in kept and not category.endswith(("_runtime", "_driver")) and category != "Runtime"
    ]
    if join is not None and join.matched < join.operators:
        words.append(
            f"{join.operators - join.matched} operators of the execution trace that the profile doesn't have (no times)"
        )
    return words


_REASONS = {
    "python_function": "Python frames",
    "gpu_user_annotation": "annotation ranges, no activities",
    "overhead": "the profiler's own work",
    "Trace": "the profiler's window",
}


def _warnings(
    profile: KinetoProfile,
    host: HostTrace | None,
    graph: RankGraph,
    join: Join | None,
    *,
    unlinked: int,
    processes: list[int],
) -> list[str]:
    words = [f"{profile.path}: {repair}" for repair in profile.repairs]
    words += [f"{host.path}: {repair}" for repair in host.repairs] if host is not None else []
    counts = graph.counts
    if unlinked:
        words.append(
            f"{unlinked} activities have no launch call in the profile (launched before the window, or not recorded)"
        )
    if counts["contradicting"]:
        words.append(f"{counts['contradicting']} wait edges contradict the recorded times and were not written")
    if counts["late_launches"]:
        words.append(f"{counts['late_launches']} activities start before their launch call: that edge was not written")
    if counts["snapped"]:
        words.append(
            f"{counts['snapped']} activities end up to {profile.resolution_ns} ns inside the next one: "
            "moved to its start"
        )
    if counts["overlapping_activities"]:
        words.append(f"{counts['overlapping_activities']} activities overlap the one before on their stream")
    if counts["overlapping_host_events"]:
        words.append(f"{counts['overlapping_host_events']} host events stuck out of their caller and were clipped")
    if counts["communications_without_wait"]:
        words.append(f"{counts['communications_without_wait']} host communications that nothing was seen to wait for")
    if host is not None and isinstance(pid := host.header.get("pid"), int) and pid not in processes:
        words.append(
            f"{host.path} is of process {pid}, {profile.path} is not: are they of the same rank and run? "
            "Operators match by name all the same"
        )
    if join is not None and host is not None and join.method != "rf_id":
        words.append(f"operators joined by {join.method}: no record function ids in the profile")
    if not profile.activities.height:
        words.append(f"host-only trace: {_why_no_device(profile)}")
    return words


def _why_no_device(profile: KinetoProfile) -> str:
    other = sorted(name for name in profile.counts if name.startswith(("mtia", "xpu", "hpu", "privateuse1", "npu")))
    if other:
        return f"the profile is of another accelerator ({', '.join(other)}), whose activities can't be linked"
    return "the profile has no device activity (CPU-only run, or device tracing was off)"
