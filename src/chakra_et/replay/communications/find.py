"""A trace's communications, each with all that it takes to make it again.

Sources, best first: the arguments of the recorded `c10d::*` call; the columns of the communication (its only source
where a profile is all there is). A functional collective (`_c10d_functional::*`) calls an operator of `c10d`, which is
the communication.

Shape letters: N nodes, C communications.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace
from chakra_et.ir.call_stack import nearest, parent_rows
from chakra_et.ir.communications import is_communication
from chakra_et.ir.process_group import groups_of
from chakra_et.replay.communications.arguments import Arguments, assume_arguments, parse_arguments, torch_dtype
from chakra_et.replay.communications.call import KINDS, REDUCING, ROOTED, CommCall
from chakra_et.replay.communications.waits import Wait, find_waits

__all__ = ["Communications", "SkippedCommunication", "find_communications"]

Int = npt.NDArray[np.int64]
_PREFIX = "c10d::"
_NEVER = 2**62
_COLUMNS = ("id", "name", "type", "start_ns", "duration_ns", "comm_type", "comm_size", "comm_dtype", "pg_name",
            "comm_src", "comm_dst", "comm_tag", "comm_root", "in_split_sizes", "out_split_sizes", "reduce_op",
            "comm_async", "comm_id", "unknown_comm")  # fmt: skip
_KIND_OF = {
    CommType.ALL_REDUCE: "allreduce_",
    CommType.REDUCE: "reduce_",
    CommType.ALL_GATHER: "_allgather_base_",
    CommType.GATHER: "gather_",
    CommType.SCATTER: "scatter_",
    CommType.BROADCAST: "broadcast_",
    CommType.ALL_TO_ALL: "alltoall_base_",
    CommType.REDUCE_SCATTER: "_reduce_scatter_base_",
    CommType.REDUCE_SCATTER_BLOCK: "_reduce_scatter_base_",
    CommType.BARRIER: "barrier",
}
_POINT = {int(NodeType.COMM_SEND_NODE): "send", int(NodeType.COMM_RECV_NODE): "recv_"}


@dataclass(frozen=True, slots=True)
class SkippedCommunication:
    """A communication that can't be made again.

    Attributes:
        node: Id of its node.
        row: Position of its node in the trace.
        name: Name of its node.
        reason: Why not, in words.
    """

    node: int
    row: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Communications:
    """The communications of one rank.

    Attributes:
        calls: What can be made again, [C], in the order of the calls.
        skipped: What can't, and why.
    """

    calls: tuple[CommCall, ...]
    skipped: tuple[SkippedCommunication, ...]


def find_communications(
    trace: Trace, rank: int, *, groups: Iterable[ProcessGroup] = (), world_size: int = 0
) -> Communications:
    """Find the communications of a rank.

    Args:
        trace: Its trace.
        rank: Its global rank.
        groups: Process groups of the whole job, where the trace set has them.
        world_size: Ranks of the job; 0: as the trace says.

    Example:
        >>> from chakra_et.ir import TraceBuilder
        >>> builder = TraceBuilder(rank=0, process_groups=[ProcessGroup("0", (0, 1), 2)])
        >>> node = {"comm_type": int(CommType.ALL_REDUCE), "comm_size": 64, "comm_dtype": "Float", "pg_name": "0"}
        >>> _ = builder.add("ncclDevKernel_AllReduce", NodeType.COMM_COLL_NODE, start_ns=0, **node)
        >>> [(call.kind, call.inputs, call.dtype) for call in find_communications(builder.build(), 0).calls]
        [('allreduce_', ((16,),), 'float32')]
    """
    known = groups_of(rank, (*trace.process_groups, *groups))
    reader = _Reader(trace, rank, known, world_size or trace.metadata.world_size or 0)
    calls: list[CommCall] = []
    skipped: list[SkippedCommunication] = []
    for found in reader.read():
        (calls if isinstance(found, CommCall) else skipped).append(found)  # type: ignore[arg-type]
    calls.sort(key=lambda call: (call.start_ns, call.row))
    numbered = [replace(call, number=number) for number, call in enumerate(calls)]
    return Communications(tuple(_with_batches(numbered, reader.other_calls())), tuple(skipped))


class _Reader:
    """Reads one trace: finds the calls, the communications that they made, and the waits."""

    def __init__(self, trace: Trace, rank: int, groups: Mapping[str, ProcessGroup], world_size: int) -> None:
        self.trace, self.rank, self.groups, self.world_size = trace, rank, groups, world_size
        nodes = trace.nodes
        name = nodes["name"].fill_null("")
        short = name.str.strip_prefix(_PREFIX)
        later = trace.integers("segment", fill=0) > 0
        self.is_call = (name.str.starts_with(_PREFIX) & short.is_in(KINDS)).to_numpy() & ~later
        self.parent = parent_rows(trace)
        self.ends = _call_ends(trace, self.parent, later)

    def read(self) -> Iterator[CommCall | SkippedCommunication]:
        """Return every communication."""
        made = self._made_by()
        comm_rows = np.array(list(made), dtype=np.int64)
        call_rows = np.array(list(made.values()), dtype=np.int64)
        silent = np.setdiff1d(np.flatnonzero(self.is_call), call_rows)
        comm_rows, call_rows = (np.concatenate((rows, silent)) for rows in (comm_rows, call_rows))
        parsed = self._arguments(call_rows)
        waits = find_waits(self.trace, comm_rows, call_rows, [one.storages if one else () for one in parsed])
        columns = pl.DataFrame([self.trace.column(name).gather(comm_rows) for name in _COLUMNS])
        for place, row in enumerate(columns.iter_rows(named=True)):
            yield self._describe(row, int(comm_rows[place]), int(call_rows[place]), parsed[place], waits[place])

    def other_calls(self) -> Int:
        """Return how many operators that aren't part of communications stand before each row, int64 [N + 1]."""
        inside = nearest(self.parent, self.is_call) >= 0
        other = self.trace.column("op_schema").is_not_null().to_numpy() & ~inside & ~self.is_call
        return np.concatenate(([0], np.cumsum(other)))

    def _made_by(self) -> dict[int, int]:
        """Return the row of the call of each communication; itself, where no call was recorded."""
        rows = self.trace.nodes.select(is_communication().arg_true()).to_series().to_numpy().astype(np.int64)
        above = nearest(self.parent, self.is_call)[rows]
        by_id = self._calls_by_id()
        numbers = self.trace.integers("comm_id")[rows]
        found: dict[int, int] = {}
        taken: set[int] = set()
        for row, call, number in zip(rows.tolist(), above.tolist(), numbers.tolist(), strict=True):
            call = by_id.get(number, call)
            if call < 0:
                found[row] = row
            elif call not in taken:
                # The pieces of one call (grouped sends, several kernels) are one communication.
                taken.add(call)
                found[row] = call
        return found

    def _calls_by_id(self) -> dict[int, int]:
        rows = np.flatnonzero(self.is_call & (self.trace.integers("comm_id") >= 0))
        return dict(zip(self.trace.integers("comm_id")[rows].tolist(), rows.tolist(), strict=True))

    def _arguments(self, rows: Int) -> list[Arguments | None]:
        nodes = self.trace
        table = pl.DataFrame(
            [nodes.column(name).gather(rows) for name in ("name", "op_schema", "inputs")],
        )
        return [
            parse_arguments(name.removeprefix(_PREFIX), schema, inputs) if name.startswith(_PREFIX) else None
            for name, schema, inputs in table.iter_rows()
        ]

    def _describe(
        self, row: dict[str, Any], comm_row: int, call_row: int, told: Arguments | None, wait: Wait
    ) -> CommCall | SkippedCommunication:
        call_name = str(self.trace.nodes["name"][call_row])
        node = int(self.trace.nodes["id"][call_row])
        group = self._group(row, call_row)
        reason = "" if group else "its process group is unknown"
        if group and not group.ranks:
            reason = f"the ranks of its process group '{group.name}' are unknown"
        elif group and self.rank not in group.ranks:
            reason = f"rank {self.rank} is not in its process group '{group.name}'"
        if reason or group is None:
            return SkippedCommunication(node, call_row, call_name, reason)
        kind = self._kind(row, call_row)
        if kind is None:
            return SkippedCommunication(node, call_row, call_name, "what it does is unknown")
        return self._call(kind, group, row, (comm_row, call_row), told, wait)

    def _call(
        self,
        kind: str,
        group: ProcessGroup,
        row: dict[str, Any],
        rows: tuple[int, int],
        told: Arguments | None,
        wait: Wait,
    ) -> CommCall | SkippedCommunication:
        comm_row, call_row = rows
        node, call_name = int(self.trace.nodes["id"][call_row]), str(self.trace.nodes["name"][call_row])
        arguments = told or assume_arguments(kind, row, len(group.ranks))
        if arguments is None:
            return SkippedCommunication(node, call_row, call_name, "its size is unknown")
        peer = _either(_rank_of(arguments.peer, group), _peer(kind, row))
        if kind in ("send", "recv_") and peer is None:
            return SkippedCommunication(node, call_row, call_name, "its peer is unknown")
        root = _either(_rank_of(arguments.root, group), row["comm_root"])
        waited = _either(row["comm_async"], arguments.asynchronous) is False
        start, end = self._times(call_row)
        barrier = kind == "barrier"
        return CommCall(
            number=0,
            kind=kind,
            group=group.name,
            ranks=group.ranks,
            node=node,
            row=call_row,
            comm_row=comm_row,
            comm_id=row["comm_id"],
            inputs=() if barrier else arguments.inputs,
            outputs=() if barrier else arguments.outputs,
            dtype=arguments.dtype or torch_dtype(row["comm_dtype"] or "") or "float32",
            in_splits=arguments.in_splits,
            out_splits=arguments.out_splits,
            reduce_op=(row["reduce_op"] or "sum") if kind in REDUCING else "",
            reduce_op_assumed=kind in REDUCING and row["reduce_op"] is None,
            root=_either(root, group.ranks[0]) if kind in ROOTED else None,
            peer=peer,
            tag=_either(arguments.tag, row["comm_tag"]) or 0,
            asynchronous=not waited,
            wait_row=None if waited else wait.row,
            wait_assumed=not waited and wait.assumed,
            start_ns=start,
            end_ns=end,
            comm_start_ns=_either(row["start_ns"], start),
            duration_ns=row["duration_ns"] or 0,
        )

    def _kind(self, row: dict[str, Any], call_row: int) -> str | None:
        if self.is_call[call_row]:
            return str(self.trace.nodes["name"][call_row]).removeprefix(_PREFIX)
        if row["type"] in _POINT:
            return _POINT[row["type"]]
        known = row["comm_type"] is not None and not row["unknown_comm"]
        return _KIND_OF.get(CommType(row["comm_type"])) if known else None

    def _group(self, row: dict[str, Any], call_row: int) -> ProcessGroup | None:
        name = row["pg_name"]
        group = self.groups.get(name) if name is not None else None
        if group is None and name is None and len(self.groups) == 1:
            group = next(iter(self.groups.values()))
        world = tuple(range(self.world_size))
        if group is None and row["type"] in _POINT and world:
            group = ProcessGroup(name or "", world, len(world))
        if group is not None and not group.ranks and group.size == len(world):
            group = replace(group, ranks=world)
        return group

    def _times(self, call_row: int) -> tuple[int, int]:
        start = self.trace.nodes["start_ns"][call_row]
        return (0, 0) if start is None else (int(start), int(max(self.ends[call_row], start)))


def _call_ends(trace: Trace, parent: Int, later: npt.NDArray[np.bool_]) -> Int:
    """Return when each operator returned: the end of its last segment, int64 [N]."""
    ends = trace.integers("start_ns", fill=0) + trace.integers("duration_ns", fill=0)
    rows = np.flatnonzero(later & (parent >= 0))
    np.maximum.at(ends, parent[rows], ends[rows])
    return ends


def _rank_of(local: int | None, group: ProcessGroup) -> int | None:
    return group.ranks[local] if local is not None and 0 <= local < len(group.ranks) else None


def _either(first: Any, second: Any) -> Any:
    return second if first is None else first


def _peer(kind: str, row: dict[str, Any]) -> int | None:
    peer = row["comm_dst"] if kind == "send" else row["comm_src"] if kind == "recv_" else None
    return None if peer is None else int(peer)


def _with_batches(calls: list[CommCall], others: Int) -> Iterator[CommCall]:
    """Mark sends and receives of one group that follow each other without anything between: they were made as one.

    Args:
        calls: [C] the communications.
        others: int64 [N + 1], operators of other kinds before each row.
    """
    begin = 0
    while begin < len(calls):
        end = begin + 1
        until = _wait_of(calls[begin])
        while end < len(calls) and calls[end].row < until and _joined(calls[end - 1], calls[end], others):
            until = min(until, _wait_of(calls[end]))
            end += 1
        for call in calls[begin:end]:
            yield replace(call, batch=begin) if end - begin > 1 else call
        begin = end


def _wait_of(call: CommCall) -> int:
    return call.row if not call.asynchronous else _NEVER if call.wait_row is None else call.wait_row


def _joined(call: CommCall, following: CommCall, others: Int) -> bool:
    both = not call.is_collective and not following.is_collective and call.group == following.group
    return both and following.asynchronous and bool(others[call.row] == others[following.row])
