"""Memory in use over time: from the allocators' events, else from the tensors that operators read and wrote.

Shape letters: N nodes, M memory events or records of tensors, P points of a timeline, B blocks, S storages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.json_scan import tensor_records
from chakra_et._jit.paths import widen
from chakra_et._jit.storages import number_lives
from chakra_et.analysis.view import RankView
from chakra_et.ir import NodeType
from chakra_et.ir.arrays import string_bytes

__all__ = ["Usage", "find_usage"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """Memory in use on one device.

    Attributes:
        device: Its number; -1: the host's memory.
        source: ``events`` or ``tensors``.
        timed: False if nothing tells when: then `time` holds positions of nodes.
        time: int64 [P], ns, ascending; the first point is the state before.
        in_use: int64 [P], bytes in use from then on.
        reserved: int64 [P], bytes that the allocator held; -1 where it doesn't tell.
        row: int64 [P], position of the node that changed it: of the event, else of the operator; -1 for the first.
        blocks: [B] rows: ``size_bytes``, ``address`` (null where unknown), ``begin`` and ``end`` (points: in use from
            the one until the other; P: to the end), ``row`` (node that made it, -1 if it was there before).
        allocations: How often something was allocated.
        allocated_bytes: Sum of what was allocated.
        freed_bytes: Sum of what was freed; None where frees don't show.
    """

    device: int
    source: str
    timed: bool
    time: Int
    in_use: Int
    reserved: Int
    row: Int
    blocks: pl.DataFrame
    allocations: int
    allocated_bytes: int
    freed_bytes: int | None


def find_usage(view: RankView) -> tuple[Usage, ...]:
    """Return the memory in use on each device of a rank, the host last; nothing where the trace doesn't tell."""
    found: list[Usage] = []
    if "alloc_bytes" in view.nodes.columns:
        found = _from_events(view)
    elif {"inputs", "outputs"} <= set(view.nodes.columns):
        found = _from_tensors(view)
    return tuple(sorted(found, key=lambda usage: (usage.device < 0, usage.device)))


def _from_events(view: RankView) -> list[Usage]:
    trace = view.trace
    rows = np.flatnonzero(view.nodes["alloc_bytes"].is_not_null().to_numpy())
    rows = rows[np.argsort(view.start_ns[rows], kind="stable")]
    device = trace.integers("device", 0)[rows]
    names = ("alloc_bytes", "alloc_address", "alloc_total_bytes", "alloc_reserved_bytes")
    columns = [trace.integers(name, -1)[rows] for name in names]
    first = int(view.start_ns[view.nodes["type"].fill_null(0).to_numpy() > NodeType.METADATA_NODE].min(initial=2**62))
    found = []
    for number in np.unique(device).tolist():
        mine = device == number
        found.append(_of_device(number, rows[mine], view.start_ns[rows[mine]], [c[mine] for c in columns], first))
    return found


def _of_device(device: int, rows: Int, time: Int, columns: list[Int], first: int) -> Usage:
    size, address, total, reserved = columns
    in_use = total
    if (total < 0).any():
        # Allocators of old never told: as much as was surely there.
        in_use = np.cumsum(size)
        in_use = in_use - min(int(in_use.min()), 0)
    before = int(in_use[0] - size[0])
    # The host's allocator doesn't reserve, and says 0.
    reserved = np.where((reserved < 0) | (device < 0), -1, reserved)
    return Usage(
        device=device,
        source="events",
        timed=True,
        time=np.concatenate(([min(first, int(time[0]))], time)),
        in_use=np.concatenate(([before], in_use)),
        reserved=np.concatenate((reserved[:1], reserved)),
        row=np.concatenate(([-1], rows)),
        blocks=_blocks(size, address, rows),
        allocations=int((size > 0).sum()),
        allocated_bytes=int(size[size > 0].sum()),
        freed_bytes=int(-size[size < 0].sum()),
    )


def _blocks(size: Int, address: Int, rows: Int) -> pl.DataFrame:
    """Pair each allocation with the free of its address; event i is point i + 1."""
    count = len(size)
    known = np.flatnonzero((address >= 0) & (size != 0))
    order = known[np.argsort(address[known], kind="stable")]
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = address[order][1:] == address[order][:-1]
    until = np.full(len(order), count + 1, np.int64)
    until[:-1][follows[1:]] = order[1:][follows[1:]] + 1
    made = size[order] > 0
    # What is freed first was there before the profile.
    old = ~made & ~follows
    taken = made | old
    begin = np.where(made, order + 1, 0)
    end = np.where(made, until, order + 1)
    return pl.DataFrame(
        {
            "size_bytes": np.abs(size[order])[taken],
            "address": address[order][taken],
            "begin": begin[taken],
            "end": end[taken],
            "row": np.where(made, rows[order], -1)[taken],
        }
    )


def _from_tensors(view: RankView) -> list[Usage]:
    """Let each storage live from its first to its last use."""
    row, wrote, records = _records(view)
    if not len(row):
        return []
    timed = bool(view.nodes["start_ns"].is_not_null().any())
    begin, end, turn = _operator_times(view, timed)
    storages = _lifetimes(row, wrote, records, begin, end, turn)
    parts = storages.partition_by("device", as_dict=True, maintain_order=True)
    return [_of_storages(int(device), part, timed) for (device,), part in parts.items()]


def _records(view: RankView) -> tuple[Int, npt.NDArray[np.bool_], Int]:
    """Return which node used which tensor: rows [M], whether it returned it, and `tensor_records`; inputs first."""
    (read_row, read), (wrote_row, wrote) = (
        tensor_records(*reversed(string_bytes(view.nodes[name].struct.field("values"))))
        for name in ("inputs", "outputs")
    )
    records = np.concatenate((read, wrote))
    real = (records[:, 5] > -2) & ((records[:, 2] + records[:, 3]) * records[:, 4] > 0)
    returned = np.arange(len(records)) >= len(read)
    return np.concatenate((read_row, wrote_row))[real], returned[real], records[real]


def _operator_times(view: RankView, timed: bool) -> tuple[Int, Int, Int]:
    """Return when nodes' operators began and ended, callees and all, and the nodes' places in time, int64 [N] each.

    Without times, positions stand for them.
    """
    count = len(view.trace)
    place = np.arange(count, dtype=np.int64)
    begin = view.start_ns if timed else 2 * place
    end = begin + view.duration_ns if timed else 2 * place + 1
    host = view.nodes["is_cpu_op"].fill_null(False).to_numpy()
    host &= view.nodes["type"].fill_null(0).to_numpy() > NodeType.METADATA_NODE
    parent = view.parent_rows
    inside = host & (parent >= 0)
    inside &= host[parent] & (begin >= begin[parent])
    order = place
    if (begin[1:] < begin[:-1]).any():
        order = np.lexsort((place, begin))
    turn = np.empty(count, np.int64)
    turn[order] = place
    return begin, widen(np.where(inside, parent, -1), order[::-1], end), turn


def _lifetimes(row: Int, wrote: npt.NDArray[np.bool_], records: Int, begin: Int, end: Int, turn: Int) -> pl.DataFrame:
    """Return storages and when they lived, [S]: ``device``, ``size_bytes``, ``begin``, ``end``, ``first_row``, ``row``.

    `row` is the node that made it, -1 if it was there before `first_row` used it. An execution trace numbers storages
    by their addresses, which allocators use again and again.
    """
    _, storage = np.unique((records[:, 1] << 10) + records[:, 5], return_inverse=True)
    order = np.argsort(storage * len(turn) + turn[row], kind="stable")
    row, wrote, records, storage = row[order], wrote[order], records[order], storage[order]
    number = number_lives(storage, row, begin[row], end[row], wrote)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    extent = (records[:, 2] + records[:, 3]) * records[:, 4]
    return pl.DataFrame(
        {
            "device": records[first, 5],
            "size_bytes": np.maximum.reduceat(extent, first),
            "begin": begin[row[first]],
            "end": np.maximum(np.maximum.reduceat(end[row], first), begin[row[first]] + 1),
            "first_row": row[first],
            "row": np.where(wrote[first], row[first], -1),
        }
    )


def _of_storages(device: int, storages: pl.DataFrame, timed: bool) -> Usage:
    count = storages.height
    size, made = storages["size_bytes"].to_numpy(), (storages["row"] >= 0).to_numpy()
    time = np.concatenate((storages["begin"].to_numpy(), storages["end"].to_numpy()))
    change = np.concatenate((size, -size))
    node = np.concatenate((storages["first_row"].to_numpy(), np.full(count, -1, np.int64)))
    order = np.lexsort((change > 0, time))
    point = np.empty(2 * count, np.int64)
    point[order] = np.arange(1, 2 * count + 1)
    return Usage(
        device=device,
        source="tensors",
        timed=timed,
        time=np.concatenate((time[order][:1], time[order])),
        in_use=np.concatenate(([0], np.cumsum(change[order]))),
        reserved=np.full(2 * count + 1, -1, np.int64),
        row=np.concatenate(([-1], node[order])),
        blocks=pl.DataFrame(
            {
                "size_bytes": size,
                "address": pl.Series([None], dtype=pl.Int64).new_from_index(0, count),
                "begin": point[:count],
                "end": point[count:],
                "row": storages["row"],
            }
        ),
        allocations=int(made.sum()),
        allocated_bytes=int(size[made].sum()),
        freed_bytes=None,
    )
