"""How communications went when they were recorded: who waited for whom, and how long each transfer took.

The rules are those of `simulate` with measured communications. Of a collective in which all need one another, everybody
waits for the last; what its recorded duration holds after that is the transfer. A send may be over before its receive
begins, and what comes from a root doesn't wait for the others: where the recording shows that some communications of a
type do so, those of that type that don't show the contrary are taken to do so.

Shape letters: C communications, M meetings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import CommType, NodeType

__all__ = ["Exchange", "partners_known", "split"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_COLL = int(NodeType.COMM_COLL_NODE)
_FROM_ROOT = [int(kind) for kind in (CommType.BROADCAST, CommType.SCATTER)]
_TO_ROOT = [int(kind) for kind in (CommType.REDUCE, CommType.GATHER)]
# Recorded times are this exact at best.
_EXACT_NS = 1_000
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """How communications meet.

    Attributes:
        arrives: bool [C]: the meeting waits for it.
        waits: bool [C]: it waits for the meeting; else it ends when its own time has passed.
        own_ns: int64 [C]: its time after the meeting (after its own start if it doesn't wait).
        late_ns: int64 [M]: when those arrived who aren't in the set, as far as an earlier matching has told; the lowest
            int64 where nothing is known.
        lacking: bool [C]: somebody of the meeting isn't in the set.
    """

    arrives: Bool
    waits: Bool
    own_ns: Int
    late_ns: Int
    lacking: Bool


def partners_known() -> pl.Expr:
    """Return which communications can meet others: those of a known type, with a group or with both ends."""
    collective = pl.col("type") == _COLL
    # In a collected trace, nobody knows whom a collective without a group meets.
    told = pl.col("comm_type").is_not_null() & ~(pl.col("collected") & pl.col("pg_name").is_null())
    ends = pl.col("comm_src").is_not_null() & pl.col("comm_dst").is_not_null()
    return ~pl.col("unknown_comm").fill_null(False) & pl.when(collective).then(told).otherwise(ends)


def split(table: pl.DataFrame, start: Int, end: Int, ready: Int) -> Exchange:
    """Split the recorded durations of communications into waits and transfers.

    Args:
        table: [C] rows with ``meeting`` 0 .. M-1, see `meet`.
        start: int64 [C], on one clock, ns.
        end: int64 [C].
        ready: int64 [C]: when each could give data to others.
    """
    rooms = table["meeting"].to_numpy()
    count = int(rooms.max(initial=-1)) + 1
    duration = np.maximum(end - start, 0)
    lost = np.zeros(count, np.bool_)
    lost[rooms[table["start_ns"].is_null().to_numpy()]] = True
    timed = ~lost[rooms]
    lacking = _lacking(table)
    late = _late(table, rooms, count, start, lacking)
    last = np.maximum(_latest(rooms, ready, count), late)[rooms]
    roles = _Roles(table, timed & (end < last - _EXACT_NS), timed & (start < last) & (end >= last))
    free, led = roles.free(), np.zeros(count, np.bool_)
    led[rooms[(free & roles.leads) | roles.follows()]] = True
    arrives = ~led[rooms] | roles.leads
    come = np.maximum(_latest(rooms[arrives], ready[arrives], count), late)[rooms]
    own = np.maximum(end - np.maximum(come, start), 0)
    own = np.where(timed, own, _untimed(table, rooms, count, duration))
    return Exchange(arrives, ~free, np.where(free, duration, own), late, lacking)


def _latest(rooms: Int, moments: Int, count: int) -> Int:
    last = np.full(count, _NEVER, np.int64)
    np.maximum.at(last, rooms, moments)
    return last


def _lacking(table: pl.DataFrame) -> Bool:
    """Return of which meetings somebody isn't in the set, bool [C]; of a group without known members, nobody knows."""
    known = pl.col("members").str.count_matches(",") + (pl.col("members") != "").cast(pl.UInt32)
    members = pl.when(pl.col("type") != _COLL).then(2).otherwise(known)
    found: Bool = table.select(members > pl.len().over("meeting")).to_series().fill_null(False).to_numpy()
    return found


def _late(table: pl.DataFrame, rooms: Int, count: int, start: Int, lacking: Bool) -> Int:
    """Return when those arrived who aren't in the set, from the split that a matching of the whole set has left."""
    wait = table["wait_ns"].fill_null(0).to_numpy()
    # Where all of it was a wait, the last arrival may have come later still.
    told = lacking & (wait > 0) & (wait < table["duration_ns"].fill_null(0).to_numpy())
    return _latest(rooms[told], (start + wait)[told], count)


def _untimed(table: pl.DataFrame, rooms: Int, count: int, duration: Int) -> Int:
    """Return transfers where starts are missing: as split before, else the shortest duration of the meeting."""
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, rooms, duration)
    known = table["transfer_ns"].fill_null(-1).to_numpy()
    return np.where(known >= 0, known, shortest[rooms])


class _Roles:
    """What each communication is in its meeting, each [C].

    Attributes:
        kind: Number of the type, for sends and receives one of its own; host and device apart.
        leads: True for a sender, and for the root of what comes from a root.
        early: Whether it left before the last one had come.
        late: Whether another came after it, and it left after that one had come.
    """

    def __init__(self, table: pl.DataFrame, early: Bool, late: Bool) -> None:
        types = table["type"].to_numpy()
        kind = np.where(types == _COLL, table["comm_type"].fill_null(-1).to_numpy(), -1)
        # Participants may disagree on the root; the meeting has one.
        roots = table.select(pl.col("comm_root").drop_nulls().first().over("meeting")).to_series().fill_null(-1)
        root = roots.to_numpy()
        self._root = root == table["rank"].to_numpy()
        self._sends = types == NodeType.COMM_SEND_NODE
        self._rooted = root >= 0
        self._from, self._to = np.isin(kind, _FROM_ROOT), np.isin(kind, _TO_ROOT)
        host = table["is_cpu_op"].fill_null(False).to_numpy()
        self.kind = np.where(kind < 0, len(CommType), kind) * 2 + host
        self.leads = self._sends | (self._root & self._from)
        self.early, self.late = early, late

    def free(self) -> Bool:
        """Return who waits for nobody: of senders, roots that give, and others that only give to a root."""
        gives = self._rooted & ~self._root & self._to
        return self._shown(self._sends | (self.leads & self._rooted) | gives)

    def follows(self) -> Bool:
        """Return who waits for the root only, of those that take from it."""
        return self._shown(self._rooted & ~self._root & self._from)

    def _shown(self, who: Bool) -> Bool:
        """Return those of `who` that needn't wait: of types in which some didn't, those that don't show it."""
        some = np.zeros(int(self.kind.max(initial=0)) + 1, np.bool_)
        some[self.kind[who & self.early]] = True
        shown: Bool = who & some[self.kind] & ~self.late
        return shown
