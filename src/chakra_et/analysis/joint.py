"""The graphs of all ranks as one, joined by their communications, and its schedule under other durations.

Shape letters: R ranks, N nodes of all ranks, C communications, M meetings, T nodes in all, P nodes of a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.joint import end_times, join_graphs, topological_order, walk_back
from chakra_et.analysis.exchange import Exchange, partners_known, recorded_exchange
from chakra_et.analysis.skeleton import Skeleton
from chakra_et.ir import ProcessGroup
from chakra_et.ir.clocks import estimate_offsets
from chakra_et.ir.communications import meet

__all__ = ["Joint", "join"]

Int = npt.NDArray[np.int64]
Word = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
_FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """The graphs of all ranks as one.

    Attributes:
        offsets: int64 [R + 1]: where each rank's nodes begin; behind them come the other nodes: the starts of
            communications, meetings, and at last the moments when somebody outside arrived.
        outside: Number of the first node that stands for somebody outside.
        order: int32 [T], predecessors first.
        indptr: int32 [T + 1], predecessor lists.
        preds: int32 [E].
        duration_ns: int64 [T].
        end_ns: int64 [T]: ends with these durations.
        sinks: int64: nodes whose last end is the end of all.
        halved: int64: nodes whose starts are nodes of their own, ascending; those follow the ranks' nodes in order.
        shift_ns: int64 [R]: from a rank's own time to the common one.
        origin_ns: Where the common time begins, on the lowest rank's clock.
        cut_edges: Number of edges left out since they closed cycles.
        unknown: Number of communications whose partners are unknown.
        lacking: Number of communications whose partners aren't all in the set.
    """

    offsets: Int
    outside: int
    order: Word
    indptr: Word
    preds: Word
    duration_ns: Int
    end_ns: Int
    sinks: Int
    halved: Int
    shift_ns: Int
    origin_ns: int
    cut_edges: int
    unknown: int
    lacking: int

    @property
    def finish_ns(self) -> int:
        """When all is over."""
        return int(self.end_ns[self.sinks].max(initial=0))

    def finish_without(self, nothing: Bool, buffer: Int) -> int:
        """Return when all would be over if some nodes took no time.

        Args:
            nothing: bool [T].
            buffer: int64 [T]: overwritten.
        """
        end_times(self.order, self.indptr, self.preds, self.duration_ns, nothing, buffer)
        return int(buffer[self.sinks].max(initial=0))

    def path(self) -> Word:
        """Return what the end waited for, int32 [P], the first node first."""
        if not len(self.sinks):
            return np.empty(0, np.int32)
        last = int(self.sinks[np.argmax(self.end_ns[self.sinks])])
        found: Word = walk_back(last, self.indptr, self.preds, self.end_ns)
        return found

    def start_ns(self, place: int) -> Int:
        """Return when the nodes of the rank at `place` start."""
        low, high = self.offsets[place : place + 2].tolist()
        start: Int = self.end_ns[low:high] - self.duration_ns[low:high]
        first, last = np.searchsorted(self.halved, (low, high)).tolist()
        start[self.halved[first:last] - low] = self.end_ns[self.offsets[-1] + first : self.offsets[-1] + last]
        return start


def join(parts: Sequence[Skeleton], groups: Iterable[ProcessGroup]) -> Joint:
    """Join ranks by their communications, and schedule them.

    Args:
        parts: The ranks, in order.
        groups: Process groups of the job.
    """
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
    table = pl.concat([part.comms for part in parts]).filter(partners_known())
    table = meet(table, groups)
    shift, origin = _shifts(parts, table)
    seats = _Seats(parts, table, offsets, shift)
    joined, edges = join_graphs(*_all_lists(parts, offsets), *seats.lists())
    order, cut = topological_order(joined, edges)
    duration = np.zeros(len(order), np.int64)
    for part, low, first in zip(parts, offsets, shift, strict=False):
        duration[low : low + len(part)] = part.duration_ns
        duration[low] = first + part.begin_ns
    duration[seats.nodes] = seats.own_ns
    outside = len(order) - len(seats.fixed)
    duration[outside:] = seats.fixed_ns
    end = np.empty(len(order), np.int64)
    end_times(order, joined, edges, duration, np.zeros(len(order), np.bool_), end)
    return Joint(
        offsets=offsets,
        outside=outside,
        order=order,
        indptr=joined,
        preds=edges,
        duration_ns=duration,
        end_ns=end,
        sinks=_sinks(parts, offsets),
        halved=seats.halved,
        shift_ns=shift,
        origin_ns=origin,
        cut_edges=int(cut),
        unknown=sum(part.comms.height for part in parts) - table.height,
        lacking=seats.lacking,
    )


def _all_lists(parts: Sequence[Skeleton], offsets: Int) -> tuple[Word, Word]:
    """Return the predecessor lists of all ranks, int32 [N + 1] and [E]."""
    indptr, edges = np.zeros(int(offsets[-1]) + 1, np.int32), 0
    for part, low in zip(parts, offsets.tolist(), strict=False):
        indptr[low + 1 : low + 1 + len(part)] = part.indptr[1:] + np.int32(edges)
        edges += len(part.preds)
    preds = [part.preds + np.int32(low) for part, low in zip(parts, offsets.tolist(), strict=False)]
    return indptr, np.concatenate(preds)


def _sinks(parts: Sequence[Skeleton], offsets: Int) -> Int:
    """Return the nodes whose last end is the end of all, int64."""
    found = [
        (part.sinks if len(part.sinks) else np.arange(len(part))) + begin
        for part, begin in zip(parts, offsets, strict=False)
    ]
    return np.concatenate(found).astype(np.int64)


def _shifts(parts: Sequence[Skeleton], table: pl.DataFrame) -> tuple[Int, int]:
    """Return what to add to each rank's clock, int64 [R], so that the first stretch begins at 0, and where that is."""
    offsets = estimate_offsets(table.with_columns(pl.col("duration_ns").fill_null(0))) if table.height else {}
    shift = np.array([offsets.get(part.rank, 0) for part in parts], np.int64)
    begin = np.array([part.begin_ns for part in parts], np.int64)
    # Ranks without recorded times begin with the first that has some.
    timed = np.array([bool((part.start_ns >= 0).sum() > 1) for part in parts])
    origin = int((begin + shift)[timed].min()) if timed.any() else 0
    return np.where(timed, shift - origin, -begin), origin


class _Seats:
    """What meetings add to the graph.

    Attributes:
        halved: int64: nodes whose starts are nodes of their own.
        indptr: int32 [M + 1] and ``arrivals``: int32: nodes that meetings wait for.
        fixed: int32 [F] and ``fixed_ns``: int64 [F]: meetings that wait for a moment, ascending.
        nodes: int64 and ``own_ns``: int64: communications that meet, and their time after the meeting.
        lacking: Number of communications whose partners aren't all in the set.
    """

    def __init__(self, parts: Sequence[Skeleton], table: pl.DataFrame, offsets: Int, shift: Int) -> None:
        places = {part.rank: place for place, part in enumerate(parts)}
        owner = table["rank"].replace_strict(places, return_dtype=pl.Int64).to_numpy() if table.height else _none()
        low = shift[owner] + np.array([part.begin_ns for part in parts], np.int64)[owner]
        high = np.array([_FOREVER if part.end_ns is None else part.end_ns for part in parts], np.int64)[owner]
        high += np.where(high < _FOREVER, shift[owner], 0)
        start = table["start_ns"].fill_null(0).to_numpy() + shift[owner]
        end = start + np.maximum(table["duration_ns"].fill_null(0).to_numpy(), 0)
        ready = table["ready_ns"].fill_null(0).to_numpy() + shift[owner]
        untimed = table["start_ns"].is_null().to_numpy()
        inside = (table["slot"].to_numpy() >= 0) & ((start < high) | untimed)
        exchange = recorded_exchange(
            table, np.where(inside, np.maximum(start, low), start), np.minimum(end, high), ready
        )
        nodes = table["slot"].to_numpy() + offsets[owner]
        rooms = table["meeting"].to_numpy()
        count = int(rooms.max(initial=-1)) + 1
        # Who was there before the stretch began, or comes after it has ended, comes when he came.
        ready_slot = table["ready_slot"].to_numpy()
        moves = inside & (ready_slot >= 0) & ((ready >= low) | untimed)
        self._fill(int(offsets[-1]), nodes, rooms, exchange, inside, moves, ready_slot + offsets[owner], count)
        stays = exchange.arrives & ~moves & ~untimed
        late = exchange.late_ns.copy()
        np.maximum.at(late, rooms[stays], ready[stays])
        needed = np.zeros(count, np.bool_)
        needed[rooms[inside & exchange.waits]] = True
        self.fixed = np.flatnonzero(needed & (late > 0)).astype(np.int32)
        self.fixed_ns = late[self.fixed]
        self.lacking = int((inside & exchange.lacking).sum())

    def _fill(
        self,
        count: int,
        nodes: Int,
        rooms: Int,
        exchange: Exchange,
        inside: Bool,
        moves: Bool,
        ready: Int,
        meetings: int,
    ) -> None:
        """Number the starts, and hand out the seats."""
        waits = inside & exchange.waits
        comes = exchange.arrives & moves
        self.halved = np.union1d(nodes[waits], ready[comes])
        self._count, self._waiting, self._rooms = count, nodes[waits], rooms[waits]
        order = np.argsort(rooms[comes], kind="stable")
        self.arrivals = ready[comes][order].astype(np.int32)
        self.indptr = np.zeros(meetings + 1, np.int32)
        np.cumsum(np.bincount(rooms[comes], minlength=meetings), out=self.indptr[1:])
        self.nodes, self.own_ns = nodes[inside], exchange.own_ns[inside]

    def lists(self) -> tuple[Word, Word, Word, Word, Word]:
        """Return the last arguments of `join_graphs`."""
        begin, meeting = np.full(self._count, -1, np.int32), np.full(self._count, -1, np.int32)
        begin[self.halved] = np.arange(len(self.halved), dtype=np.int32)
        meeting[self._waiting] = self._rooms
        return begin, meeting, self.indptr, self.arrivals, self.fixed


def _none() -> Int:
    return np.empty(0, np.int64)
