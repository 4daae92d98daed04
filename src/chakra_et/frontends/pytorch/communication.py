"""Give communications their type, size, element type, group and peers.

Sources, best first: the kernel's own metadata, the host's ``record_param_comms`` or ``c10d::`` call around the launch
(with what our observer noted of it), the ``nccl:*``/``gloo:*`` annotation there, the kernel's name. What none of them
names is marked ``unknown_comm``.

Shape letters: A activities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from chakra_et.frontends.pytorch.comm_notes import CommNote
from chakra_et.frontends.pytorch.comm_records import CommRecord, range_bytes
from chakra_et.frontends.pytorch.names import collective_of, dtype_bytes, is_point_to_point
from chakra_et.ir.enums import CommType, NodeType
from chakra_et.ir.process_group import ProcessGroup

__all__ = ["CommColumns", "CommSource", "assign_worker_groups", "describe", "name_groups"]


@dataclass(slots=True)
class CommSource:
    """What the profile and the execution trace say about one communication.

    Attributes:
        name: Kernel or range name.
        kernel: The kernel's metadata (a row of `KinetoProfile.activities`), empty for host communications.
        record: The host's record, if there is one.
        annotation: Name of the ``nccl:*`` or ``gloo:*`` annotation around the launch, else of the operator there.
        dims: Its ``Input Dims`` (JSON).
        types: Its ``Input type`` (JSON).
        note: What our observer says of the call, or None.
    """

    name: str
    kernel: Mapping[str, Any]
    record: CommRecord | None
    annotation: str = ""
    dims: str = ""
    types: str = ""
    note: CommNote | None = None


@dataclass(slots=True)
class CommColumns:
    """Columns of one communication node; None where unknown.

    Attributes:
        type: Collective, send or receive.
        comm_type: Kind of the collective (`CommType`).
        comm_size: Payload, bytes.
        comm_dtype: Type of an element, as the profile names it.
        pg_name: Name of the process group.
        comm_src: Global rank that sends.
        comm_dst: Global rank that receives.
        comm_tag: Tag of a send or a receive.
        comm_root: Global rank of the root.
        reduce_op: What is reduced.
        comm_async: False if the call waited by itself.
        comm_id: Number of the call in its rank's capture.
        in_split_sizes: Elements for each rank (JSON).
        out_split_sizes: Elements from each rank (JSON).
        unknown_comm: True if the kind of communication could not be told.
        group_size: Ranks in the group, 0 if unknown.
        seen_group: The process group that this communication itself describes.
    """

    type: NodeType = NodeType.COMM_COLL_NODE
    comm_type: int | None = None
    comm_size: int | None = None
    comm_dtype: str | None = None
    pg_name: str | None = None
    comm_src: int | None = None
    comm_dst: int | None = None
    comm_tag: int | None = None
    comm_root: int | None = None
    reduce_op: str | None = None
    comm_async: bool | None = None
    comm_id: int | None = None
    in_split_sizes: str | None = None
    out_split_sizes: str | None = None
    unknown_comm: bool | None = None
    group_size: int = 0
    seen_group: ProcessGroup | None = field(default=None)


_LIKE_INPUT = {
    CommType.ALL_REDUCE, CommType.REDUCE, CommType.ALL_GATHER, CommType.GATHER, CommType.BROADCAST, CommType.ALL_TO_ALL,
    CommType.REDUCE_SCATTER, CommType.REDUCE_SCATTER_BLOCK,
}  # fmt: skip


def describe(source: CommSource, *, rank: int | None, groups: Mapping[str, ProcessGroup]) -> CommColumns:
    """Describe one communication.

    Args:
        source: What is known of it.
        rank: Global rank of the profile, None if unknown.
        groups: Known process groups by name.
    """
    columns = CommColumns()
    names = [
        str(source.kernel.get("collective") or ""),
        source.record.name if source.record else "",
        source.annotation,
        source.name,
    ]
    for name in filter(None, names):
        point = is_point_to_point(name)
        if point is not None:
            columns.type = point
            break
        kind = collective_of(name)
        if kind is not None:
            columns.comm_type = int(kind)
            break
    else:
        columns.unknown_comm = True
    _sizes(columns, source)
    if source.note is not None:
        columns.comm_id = source.note.id
        columns.comm_async = source.note.is_async
        columns.reduce_op = source.note.reduce_op or None
    _group(columns, source, groups)
    _peers(columns, source, rank, groups)
    return columns


def _sizes(columns: CommColumns, source: CommSource) -> None:
    kernel, record = source.kernel, source.record
    dtype = str(kernel.get("dtype") or "")
    elements_in, elements_out = int(kernel.get("in_elements", -1)), int(kernel.get("out_elements", -1))
    each = dtype_bytes(dtype)
    candidates: list[tuple[int, int, str]] = []
    if each and max(elements_in, elements_out) >= 0:
        candidates.append((max(elements_in, 0) * each, max(elements_out, 0) * each, dtype))
    if record is not None:
        candidates.append((record.in_bytes, record.out_bytes, record.dtype))
    total, found = range_bytes(source.dims, source.types)
    candidates.append((total, 0, found))
    for got, given, kind in candidates:
        size = _size_of(columns, got, given)
        if columns.comm_size is None and size:
            columns.comm_size = size
        if columns.comm_dtype is None and kind:
            columns.comm_dtype = kind
    if columns.comm_type == CommType.BARRIER or (columns.comm_size is None and candidates[0][2]):
        columns.comm_size = 0
    splits = (kernel.get("in_split"), kernel.get("out_split")) if kernel.get("in_split") else (None, None)
    if record is not None and not any(splits):
        splits = (record.in_split, record.out_split)
    if columns.comm_type == CommType.ALL_TO_ALL:
        each = dtype_bytes(columns.comm_dtype or "")
        sent = (record.in_bytes if record is not None else 0) or max(elements_in, 0) * each
        received = (record.out_bytes if record is not None else 0) or max(elements_out, 0) * each
        columns.in_split_sizes = _in_elements(splits[0], sent // each if each else 0)
        columns.out_split_sizes = _in_elements(splits[1], received // each if each else 0)


def _in_elements(text: str | None, elements: int) -> str | None:
    """Return split sizes in elements: callers give them in rows of the tensor."""
    splits = _numbers(text or "")
    total = sum(splits)
    if not splits:
        return None
    factor = elements // total if total and elements % total == 0 else 1
    return msgspec.json.encode([split * max(factor, 1) for split in splits]).decode()


def _size_of(columns: CommColumns, got: int, given: int) -> int:
    """Return ``comm_size`` from input and output bytes (DESIGN: bytes contributed, or of the whole vector held)."""
    if columns.comm_type is None:
        return max(got, given)
    if columns.comm_type == CommType.SCATTER:
        return given or got
    if columns.comm_type == CommType.BARRIER:
        return 0
    return got or given if CommType(columns.comm_type) in _LIKE_INPUT else got


def _group(columns: CommColumns, source: CommSource, groups: Mapping[str, ProcessGroup]) -> None:
    kernel, record = source.kernel, source.record
    name = kernel.get("pg_name")
    size = int(kernel.get("group_size", -1))
    ranks: tuple[int, ...] = ()
    if name:
        ranks = _numbers(str(kernel.get("pg_ranks") or ""))
        description = str(kernel.get("pg_desc") or "")
        columns.seen_group = ProcessGroup(str(name), ranks, max(size, len(ranks)), description)
    elif record is not None and record.group:
        name, size = record.group, record.size
        if record.start_rank >= 0 and record.size > 0 and record.stride > 0:
            ranks = tuple(record.start_rank + i * record.stride for i in range(record.size))
        columns.seen_group = ProcessGroup(name, ranks, record.size, record.description)
    elif source.note is not None and source.note.group in groups:
        name = source.note.group
    columns.group_size = max(size, len(ranks), record.size if record else 0, _split_count(columns))
    if name is not None:
        columns.pg_name = str(name)
    elif len(groups) == 1 and columns.type == NodeType.COMM_COLL_NODE:
        columns.pg_name = next(iter(groups))


def _split_count(columns: CommColumns) -> int:
    return columns.in_split_sizes.count(",") + 1 if columns.in_split_sizes else 0


def _numbers(text: str) -> tuple[int, ...]:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return ()
    return tuple(int(number) for number in value if isinstance(number, int)) if isinstance(value, list) else ()


def _peers(columns: CommColumns, source: CommSource, rank: int | None, groups: Mapping[str, ProcessGroup]) -> None:
    kernel, record = source.kernel, source.record
    if columns.type == NodeType.COMM_COLL_NODE:
        root = int(kernel.get("root_rank", -1))
        if columns.comm_type in (CommType.BROADCAST, CommType.REDUCE, CommType.GATHER, CommType.SCATTER):
            if root < 0 and record is not None and record.root is not None:
                root = _global_rank(record.root, columns.pg_name, groups)
            columns.comm_root = root if root >= 0 else None
        return
    if columns.pg_name is None and groups:
        columns.pg_name = max(groups.values(), key=lambda group: group.size).name
    sends = columns.type == NodeType.COMM_SEND_NODE
    peer = int(kernel.get("dst_rank" if sends else "src_rank", -1))
    if peer < 0 and record is not None:
        local = record.peer if record.peer is not None else record.rank
        peer = _global_rank(local, columns.pg_name, groups) if local is not None else -1
    columns.comm_dst = (peer if peer >= 0 else None) if sends else rank
    columns.comm_src = rank if sends else (peer if peer >= 0 else None)
    columns.comm_tag = record.tag if record is not None and record.tag is not None else 0


def _global_rank(local: int, name: str | None, groups: Mapping[str, ProcessGroup]) -> int:
    ranks = groups[name].ranks if name is not None and name in groups else ()
    return ranks[local] if 0 <= local < len(ranks) else local


def assign_worker_groups(
    communications: Sequence[CommColumns], workers: npt.NDArray[np.int64], groups: Sequence[ProcessGroup]
) -> None:
    """Name the groups of host collectives by the worker threads that ran them.

    A gloo group has a pool of worker threads of its own, made when the group was made: pools by thread id follow
    groups by name. Lists that hold one tensor a member tell a group's size, which narrows the choice where a group was
    not used.

    Args:
        communications: Host collectives; ``pg_name`` is set where it is None.
        workers: int64 [A], worker thread of each, -1 unknown.
        groups: Process groups that the rank is in.
    """
    open_ = [
        i
        for i, c in enumerate(communications)
        if c.pg_name is None and c.type == NodeType.COMM_COLL_NODE and workers[i] >= 0
    ]
    if not open_ or not groups:
        return
    kinds: dict[int, set[tuple[int | None, int | None]]] = {}
    for i in open_:
        kinds.setdefault(int(workers[i]), set()).add((communications[i].comm_type, communications[i].comm_size))
    pools = _pools(kinds, len(groups))
    sizes: dict[int, int] = {}
    for i in open_:
        if communications[i].group_size:
            sizes[pools[int(workers[i])]] = communications[i].group_size
    made = sorted(groups, key=lambda group: (int(group.name) if group.name.isdigit() else 1 << 30, group.name))
    chosen = _monotone(sorted(set(pools.values())), sizes, made)
    for i in open_:
        group = chosen.get(pools[int(workers[i])])
        if group is not None:
            communications[i].pg_name = group.name
            communications[i].comm_root = _root_in(communications[i].comm_root, group)


def _root_in(root: int | None, group: ProcessGroup) -> int | None:
    return group.ranks[root] if root is not None and 0 <= root < len(group.ranks) else root


def _pools(kinds: Mapping[int, set[tuple[int | None, int | None]]], limit: int) -> dict[int, int]:
    """Sort worker threads into pools of two, gloo's default: neighbors that ran like work, or have successive ids."""
    pool: dict[int, int] = {}
    number, previous, members = -1, -1, 0
    for thread in sorted(kinds):
        like = previous >= 0 and members < 2 and (bool(kinds[thread] & kinds[previous]) or thread - previous == 1)
        if not like:
            number += 1
            members = 0
        members += 1
        previous = thread
        pool[thread] = min(number, limit - 1)
    return pool


def _monotone(pools: list[int], sizes: Mapping[int, int], groups: Sequence[ProcessGroup]) -> dict[int, ProcessGroup]:
    """Map pools to groups in order; a pool whose group size is known only takes a group of that size."""
    chosen: dict[int, ProcessGroup] = {}
    slot = 0
    for turn, pool in enumerate(pools):
        later = len(pools) - turn - 1
        while slot < len(groups) - later - 1 and sizes.get(pool) not in (None, groups[slot].size):
            slot += 1
        if slot < len(groups):
            chosen[pool] = groups[slot]
        slot += 1
    return chosen


def name_groups(communications: Sequence[CommColumns], groups: dict[str, ProcessGroup], world_size: int | None) -> str:
    """Name groups that are pointers, or that nothing names, and add them to the known ones.

    Up to 1.0.2, execution traces tell a group by its address, which differs from rank to rank; groups are numbered in
    the order of their first use instead, which doesn't, as ranks run the same program. A group as big as the job is
    the whole job. Where nothing tells groups at all, the whole job is assumed.

    Args:
        communications: Communications in the order of their launch; `pg_name` is set.
        groups: Known groups by name; new ones are added.
        world_size: Ranks of the job, None if unknown.

    Returns:
        What was assumed, in words; empty if nothing was.
    """
    world = tuple(range(world_size or 0))
    numbered: dict[str, str] = {}
    assumed = 0
    for columns in communications:
        name = columns.pg_name
        if name is not None and (name in groups or not (name.isdigit() and int(name) > _LARGEST_NAME)):
            continue
        if name is None and groups and not numbered:
            continue
        if name is None:
            assumed += 1
        key = name or ""
        if key not in numbered:
            numbered[key] = next(str(n) for n in range(len(groups) + 1) if str(n) not in groups)
            size = columns.group_size or len(world)
            ranks = world if size == len(world) else ()
            groups[numbered[key]] = ProcessGroup(numbered[key], ranks, size)
        columns.pg_name = numbered[key]
        columns.seen_group = groups[numbered[key]]
    return f"{assumed} communications name no process group; took the whole job" if assumed else ""


_LARGEST_NAME = 1_000_000
