"""Where a rank waits for a communication.

A capture made here says so (nodes `c10d::wait`). NCCL's records have a wait with the sequence number of what it waits
for (`record_param_comms`). In other traces it is where sync edges wait for the communication, else before the first
operator that uses its tensors, else at the end of the iteration.

Shape letters: N nodes, C communications, U uses of storages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.json_scan import tensor_records
from chakra_et.ir import Trace
from chakra_et.ir.arrays import list_values, string_bytes
from chakra_et.ir.call_stack import parent_rows
from chakra_et.ir.communications import is_communication
from chakra_et.ir.cut import iterations
from chakra_et.ir.graph import positions

__all__ = ["RECORD", "WAIT", "Wait", "find_waits"]

Int = npt.NDArray[np.int64]
WAIT = "c10d::wait"
RECORD = "record_param_comms"
_NONE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Wait:
    """Where a rank waits.

    Attributes:
        row: Position in the trace of the wait, or of the first node after it; None: the end of the trace.
        assumed: True if the trace doesn't tell, so that a use of the tensors or the iteration's end was taken.
    """

    row: int | None
    assumed: bool


def find_waits(trace: Trace, comm_rows: Int, call_rows: Int, storages: Sequence[tuple[int, ...]]) -> list[Wait]:
    """Find the wait for each communication.

    Args:
        trace: The trace.
        comm_rows: int64 [C], positions of the communications' nodes.
        call_rows: int64 [C], positions of their calls' nodes.
        storages: [C], ids of the storages of each call's tensors; empty if unknown.
    """
    told = _noted(trace, comm_rows, call_rows)
    for find in (_recorded, _by_edges):
        # The better source alone counts: a sync edge may lead to a later wait, of the device.
        told = np.where(told == _NONE, find(trace, comm_rows, call_rows), told)
    uses = _Uses(trace)
    waits = []
    for row, call, own in zip(told.tolist(), call_rows.tolist(), storages, strict=True):
        if row != _NONE:
            waits.append(Wait(row, assumed=False))
        else:
            waits.append(Wait(uses.first(call, own), assumed=True))
    return waits


def _noted(trace: Trace, comm_rows: Int, call_rows: Int) -> Int:
    """Return the waits that a capture noted, int64 [C]; the largest number for none."""
    found = np.full(len(comm_rows), _NONE, np.int64)
    if "comm_id" not in trace.nodes.columns:
        return found
    numbers = trace.integers("comm_id")
    waits = np.flatnonzero((trace.nodes["name"] == WAIT).fill_null(False).to_numpy() & (numbers >= 0))
    first = dict(zip(numbers[waits][::-1].tolist(), waits[::-1].tolist(), strict=True))
    own = np.maximum(numbers[comm_rows], numbers[call_rows])
    return np.array([first.get(number, _NONE) for number in own.tolist()], np.int64)


def _recorded(trace: Trace, comm_rows: Int, call_rows: Int) -> Int:
    """Return NCCL's records of waits, int64 [C]: of the same group and number, behind the call.

    Each group counts its collectives, and its sends and receives, from 0. Some records don't name their group: where
    calls of several groups have the number, those tell nothing.
    """
    found = np.full(len(call_rows), _NONE, np.int64)
    if not {"inputs", "parent"} <= set(trace.nodes.columns):
        return found
    table = trace.nodes.select("name", "parent", values=pl.col("inputs").struct.field("values")).with_row_index("row")
    table = table.filter(pl.col("name") == RECORD, pl.col("values").is_not_null())
    # The number comes first, alone or with a flag of sends and receives; only tensors may stand before it.
    table = table.select(
        "row",
        "parent",
        wait=pl.col("values").str.contains('"wait"', literal=True),
        number=pl.col("values").str.extract(r'^\[(?:\[+.*?"\]+,)?\[?(\d+)').cast(pl.Int64, strict=False),
        point=pl.col("values").str.contains(r'^\[(?:\[+.*?"\]+,)?\[\d+,(?:true|1)\]'),
        group=pl.col("values").str.extract(r'\["([^"]*)","[^"]*"\]').fill_null(""),
    )
    waits: dict[tuple[int, bool], list[tuple[int, str]]] = {}
    for row, number, point, group in table.filter("wait").select("row", "number", "point", "group").iter_rows():
        waits.setdefault((number, point), []).append((row, group))
    own = {
        parent: ((number, point), group)
        for parent, number, point, group in table.filter(~pl.col("wait"))
        .select("parent", "number", "point", "group")
        .iter_rows()
    }
    groups: dict[tuple[int, bool], set[str]] = {}
    for key, group in own.values():
        groups.setdefault(key, set()).add(group)
    ids = trace.nodes["id"].to_numpy()[call_rows].tolist()
    # A wait is one call's: that of the first call behind which it stands.
    for place in np.argsort(call_rows, kind="stable").tolist():
        key, group = own.get(ids[place], ((-1, False), ""))
        is_only = len(groups.get(key, ())) < 2
        names = (group, "") if is_only else (group or None,)
        one = next((one for one in waits.get(key, ()) if one[0] > call_rows[place] and one[1] in names), None)
        if one is not None:
            waits[key].remove(one)
            found[place] = one[0]
    return found


def _by_edges(trace: Trace, comm_rows: Int, call_rows: Int) -> Int:
    """Return the first host nodes, or launches of device nodes, that sync edges hold until the communication's end."""
    found = np.full(len(comm_rows), _NONE, np.int64)
    nodes = trace.nodes
    table = pl.DataFrame([nodes["sync_deps"], nodes["ctrl_deps"], nodes["is_cpu_op"].fill_null(False)])
    busy = (trace.column("gap_kind") == "launch_latency").fill_null(False) | nodes.select(
        is_communication()
    ).to_series()
    table = table.with_row_index("row").filter(~busy, pl.col("sync_deps").list.len() > 0)
    edges = table.explode("sync_deps")
    ids = nodes["id"].to_numpy()
    dep = positions(ids, edges["sync_deps"].to_numpy())
    place = np.full(len(ids) + 1, -1, np.int64)
    place[comm_rows] = np.arange(len(comm_rows))
    target = place[dep]
    row = edges["row"].to_numpy().astype(np.int64)
    launched = np.flatnonzero((target >= 0) & ~edges["is_cpu_op"].to_numpy())
    row[launched] = _launches(trace, edges["ctrl_deps"].gather(launched))
    good = (target >= 0) & (row > np.append(call_rows, _NONE)[target])
    np.minimum.at(found, target[good], row[good])
    return found


def _launches(trace: Trace, deps: pl.Series) -> Int:
    """Return the host calls that launched device nodes, int64 by their control dependencies; -1 if unknown."""
    offsets, values = list_values(deps)
    rows = positions(trace.nodes["id"].to_numpy(), values)
    host = np.append(trace.nodes["is_cpu_op"].fill_null(False).to_numpy(), False)
    found = np.full(len(deps), -1, np.int64)
    np.maximum.at(found, np.repeat(np.arange(len(deps)), np.diff(offsets)), np.where(host[rows], rows, -1))
    return found


class _Uses:
    """Finds the first operator that uses a call's tensors, else the end of its iteration."""

    def __init__(self, trace: Trace) -> None:
        self._start = trace.integers("start_ns", fill=0)
        self._ends = sorted(end for _, end in iterations(trace).values())
        self._order = np.argsort(self._start, kind="stable")
        self._starts = self._start[self._order]
        self._storages, self._rows = _storage_uses(trace)
        self._parent = parent_rows(trace)

    def first(self, call: int, storages: tuple[int, ...]) -> int | None:
        """Return the row before which the call at a row must be waited for; None: the end of the trace."""
        rows = [row for storage in storages if (row := self._next_use(storage, call)) is not None]
        last = self._iteration_end(call)
        if last is not None:
            rows.append(last)
        return min(rows, default=None)

    def _next_use(self, storage: int, call: int) -> int | None:
        """Return the first row after a call that uses a storage."""
        begin, end = np.searchsorted(self._storages, [storage, storage + 1]).tolist()
        for place in range(begin + int(np.searchsorted(self._rows[begin:end], call, side="right")), end):
            if not self._is_inside(int(self._rows[place]), call):
                return int(self._rows[place])
        return None

    def _is_inside(self, row: int, call: int) -> bool:
        """Tell whether a call made what is at a row: no use, but how it does its work."""
        while row > call:
            row = int(self._parent[row])
        return row == call

    def _iteration_end(self, call: int) -> int | None:
        later = bisect_right(self._ends, int(self._start[call]))
        if later == len(self._ends):
            return None
        place = int(np.searchsorted(self._starts, self._ends[later]))
        return int(self._order[place]) if place < len(self._order) else None


def _storage_uses(trace: Trace) -> tuple[Int, Int]:
    """Return the storages in the inputs of operators, and their rows, both int64 [U], by storage and then row.

    What records a call's own inputs doesn't use them, and empty tensors share one storage that holds nothing.
    """
    if "inputs" not in trace.nodes.columns:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    values = pl.when(pl.col("name") != RECORD).then(pl.col("inputs").struct.field("values"))
    offsets, data = string_bytes(trace.nodes.select(values=values).to_series())
    rows, records = tensor_records(data, offsets)
    rows, used = rows[records[:, 3] > 0], records[records[:, 3] > 0, 1]
    order = np.lexsort((rows, used))
    return used[order], rows[order]
