"""How the communications of several ranks met when they were recorded, by the rules of `chakra_et.ir.exchange`.

Shape letters: C communications, M meetings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import NodeType
from chakra_et.ir.exchange import Participants, latest, split

__all__ = ["Exchange", "partners_known", "recorded_exchange"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_COLL = int(NodeType.COMM_COLL_NODE)


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


def recorded_exchange(table: pl.DataFrame, start: Int, end: Int, ready: Int) -> Exchange:
    """Split the recorded durations of communications into waits and transfers.

    Args:
        table: [C] rows with ``meeting`` 0 .. M-1, see `meet`.
        start: int64 [C], on one clock, ns.
        end: int64 [C].
        ready: int64 [C]: when each could give data to others.
    """
    rooms, types = table["meeting"].to_numpy(), table["type"].to_numpy()
    # Participants may disagree on the root; the meeting has one.
    roots = table.select(pl.col("comm_root").drop_nulls().first().over("meeting")).to_series().fill_null(-1).to_numpy()
    lacking = _lacking(table)
    late = _late(table, rooms, int(rooms.max(initial=-1)) + 1, start, lacking)
    who = Participants(
        room=rooms,
        kind=np.where(types == _COLL, table["comm_type"].fill_null(-1).to_numpy(), -1),
        sends=types == NodeType.COMM_SEND_NODE,
        host=table["is_cpu_op"].fill_null(False).to_numpy(),
        rooted=roots >= 0,
        is_root=roots == table["rank"].to_numpy(),
        start_ns=start,
        end_ns=end,
        ready_ns=ready,
        timed=table["start_ns"].is_not_null().to_numpy(),
        told_ns=table["transfer_ns"].fill_null(-1).to_numpy(),
    )
    roles = split(who, late)
    return Exchange(roles.arrives, roles.waits, roles.own_ns, late, lacking)


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
    return latest(rooms[told], (start + wait)[told], count)
