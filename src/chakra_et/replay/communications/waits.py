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
from chakra_et.ir.arrays import string_bytes
from chakra_et.ir.communications import is_communication
from chakra_et.ir.cut import iterations
from chakra_et.ir.graph import positions

__all__ = ["WAIT", "Wait", "find_waits"]

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
    """Return NCCL's records of waits, int64 [C]: the first after a call that has its sequence number."""
    found = np.full(len(call_rows), _NONE, np.int64)
    if not {"inputs", "parent"} <= set(trace.nodes.columns):
        return found
    table = trace.nodes.select("name", "parent", values=pl.col("inputs").struct.field("values")).with_row_index("row")
    table = table.filter(pl.col("name") == RECORD, pl.col("values").is_not_null())
    # The sequence number comes first, alone or with a flag; only tensors may stand before it.
    table = table.with_columns(
        wait=pl.col("values").str.contains('"wait"', literal=True),
        number=pl.col("values").str.extract(r'^\[(?:\[+.*?"\]+,)?\[?(\d+)').cast(pl.Int64, strict=False),
    )
    waits: dict[int, list[int]] = {}
    for row, number in table.filter("wait").select("row", "number").iter_rows():
        waits.setdefault(number, []).append(row)
    ids = trace.nodes["id"].to_numpy()
    own = dict(table.filter(~pl.col("wait")).select("parent", "number").iter_rows())
    for place, call in enumerate(call_rows.tolist()):
        number = own.get(int(ids[call]), -1)
        found[place] = next((row for row in waits.get(number, ()) if row > call), _NONE)
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
    host = edges["is_cpu_op"].to_numpy()
    row = edges["row"].to_numpy().astype(np.int64)
    for index in np.flatnonzero((target >= 0) & ~host).tolist():
        row[index] = _launch(trace, ids, edges["ctrl_deps"][index])
    good = (target >= 0) & (row > np.append(call_rows, _NONE)[target])
    np.minimum.at(found, target[good], row[good])
    return found


def _launch(trace: Trace, ids: npt.NDArray[np.uint64], deps: pl.Series | None) -> int:
    """Return the host call that launched a device node; -1 if unknown."""
    if deps is None or not len(deps):
        return -1
    rows = positions(ids, deps.to_numpy())
    host = trace.nodes["is_cpu_op"].fill_null(False).to_numpy()
    launches = [row for row in rows.tolist() if row >= 0 and host[row]]
    return max(launches, default=-1)


class _Uses:
    """Finds the first operator that uses a call's tensors, else the end of its iteration."""

    def __init__(self, trace: Trace) -> None:
        self._start = trace.integers("start_ns", fill=0)
        self._ends = sorted(end for _, end in iterations(trace).values())
        self._order = np.argsort(self._start, kind="stable")
        self._starts = self._start[self._order]
        self._storages, self._rows = _storage_uses(trace)

    def first(self, call: int, storages: tuple[int, ...]) -> int | None:
        """Return the row before which the call at a row must be waited for; None: the end of the trace."""
        rows = [row for storage in storages if (row := self._next_use(storage, call)) is not None]
        last = self._iteration_end(call)
        if last is not None:
            rows.append(last)
        return min(rows, default=None)

    def _next_use(self, storage: int, call: int) -> int | None:
        """Return the first row after a call that uses a storage."""
        begin, end = np.searchsorted(self._storages, [storage, storage + 1])
        place = begin + np.searchsorted(self._rows[begin:end], call, side="right")
        return int(self._rows[place]) if place < end else None

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
