"""How communications went when they were recorded: who waited for whom, and how long each transfer took.

Of a collective in which all need one another, everybody waits for the last; what its recorded duration holds after that
is the transfer. A send may be over before its receive begins, and what comes from a root doesn't wait for the others:
where the recording shows that some communications of a type do so, those of that type that don't show the contrary are
taken to do so.

Shape letters: P participants, M meetings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et.ir.enums import CommType

__all__ = ["FROM_ROOT", "NEVER", "TO_ROOT", "Participants", "Roles", "latest", "split"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

FROM_ROOT: tuple[int, ...] = tuple(int(kind) for kind in (CommType.BROADCAST, CommType.SCATTER))
TO_ROOT: tuple[int, ...] = tuple(int(kind) for kind in (CommType.REDUCE, CommType.GATHER))
NEVER = np.iinfo(np.int64).min
# Recorded times are this exact at best.
_EXACT_NS = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Participants:
    """Who takes part in which meeting, and when; times are on one clock.

    Attributes:
        room: int64 [P]: its meeting, 0 .. M-1.
        kind: int64 [P]: `comm_type` of a collective; -1 for sends and receives.
        sends: bool [P]: True for sends.
        host: bool [P]: communicates on the host: types of host and device are told apart.
        rooted: bool [P]: its meeting has a root.
        is_root: bool [P]: it is the root of its meeting.
        start_ns: int64 [P].
        end_ns: int64 [P].
        ready_ns: int64 [P]: when it could give data to others.
        timed: bool [P]: its start is recorded.
        told_ns: int64 [P]: its transfer, as an earlier matching has told it; -1 where none has.
    """

    room: Int
    kind: Int
    sends: Bool
    host: Bool
    rooted: Bool
    is_root: Bool
    start_ns: Int
    end_ns: Int
    ready_ns: Int
    timed: Bool
    told_ns: Int


@dataclass(frozen=True, slots=True, eq=False)
class Roles:
    """How participants meet.

    Attributes:
        arrives: bool [P]: the meeting waits for it.
        waits: bool [P]: it waits for the meeting; else it ends when its own time has passed.
        own_ns: int64 [P]: its time after the meeting (after its own start if it doesn't wait).
    """

    arrives: Bool
    waits: Bool
    own_ns: Int


def latest(room: Int, moments: Int, count: int) -> Int:
    """Return the last moment of each meeting, int64 [M]; `NEVER` where it has none."""
    last = np.full(count, NEVER, np.int64)
    np.maximum.at(last, room, moments)
    return last


def split(who: Participants, late_ns: Int) -> Roles:
    """Split the recorded durations of communications into waits and transfers.

    Args:
        who: Who takes part.
        late_ns: int64 [M]: when the last of those came who aren't among them; `NEVER` where nobody else is known.

    Example:
        >>> yes, no = np.ones(2, np.bool_), np.zeros(2, np.bool_)
        >>> start, end, none = np.array([0, 70]), np.array([100, 100]), np.full(2, -1)
        >>> who = Participants(np.array([0, 0]), np.array([0, 0]), no, no, no, no, start, end, start, yes, none)
        >>> split(who, np.array([NEVER])).own_ns.tolist()
        [30, 30]
    """
    room, count = who.room, len(late_ns)
    duration = np.maximum(who.end_ns - who.start_ns, 0)
    lost = np.zeros(count, np.bool_)
    lost[room[~who.timed]] = True
    timed = ~lost[room]
    last = np.maximum(latest(room, who.ready_ns, count), late_ns)[room]
    early = timed & (who.end_ns < last - _EXACT_NS)
    late = timed & (who.start_ns < last) & (who.end_ns >= last)
    leads = who.sends | (who.is_root & np.isin(who.kind, FROM_ROOT))
    gives = who.rooted & ~who.is_root & np.isin(who.kind, TO_ROOT)
    takes = who.rooted & ~who.is_root & np.isin(who.kind, FROM_ROOT)
    # Of senders, roots that give, and others that only give to a root, some wait for nobody.
    free = _shown(who, who.sends | (leads & who.rooted) | gives, early, late)
    led = np.zeros(count, np.bool_)
    led[room[(free & leads) | _shown(who, takes, early, late)]] = True
    arrives = ~led[room] | leads
    come = np.maximum(latest(room[arrives], who.ready_ns[arrives], count), late_ns)[room]
    own = np.maximum(who.end_ns - np.maximum(come, who.start_ns), 0)
    own = np.where(timed, own, _untimed(who, count, duration))
    return Roles(arrives, ~free, np.where(free, duration, own))


def _shown(who: Participants, some: Bool, early: Bool, late: Bool) -> Bool:
    """Return those of `some` that needn't wait: of types in which some didn't, those that don't show that they do.

    Args:
        who: Who takes part.
        some: bool [P].
        early: bool [P]: left before the last one had come.
        late: bool [P]: another came after it, and it left after that one had come.
    """
    kind = np.where(who.kind < 0, len(CommType), who.kind) * 2 + who.host
    known = np.zeros(int(kind.max(initial=0)) + 1, np.bool_)
    known[kind[some & early]] = True
    shown: Bool = some & known[kind] & ~late
    return shown


def _untimed(who: Participants, count: int, duration: Int) -> Int:
    """Return transfers where starts are missing: as told before, else the shortest duration of the meeting."""
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, who.room, duration)
    return np.where(who.told_ns >= 0, who.told_ns, shortest[who.room])
