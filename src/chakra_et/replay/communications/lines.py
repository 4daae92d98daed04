"""Which calls of different ranks are one communication: those at the same place of one line.

A line is a process group, or two of its ranks and a tag; both ends count their calls on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from chakra_et.replay.communications.call import CommCall

__all__ = ["Key", "key_of", "keys_of"]

# Group, its ranks, and for a send or receive: source, target, tag; then the place.
Key = tuple[object, ...]


def key_of(rank: int, call: CommCall, used: dict[Key, int]) -> Key:
    """Return what identifies a communication on all its ranks, and count the call.

    Args:
        rank: Global rank that calls.
        call: The call.
        used: Calls of the rank so far, by line; changed here.
    """
    if call.is_collective:
        line: Key = (call.group, call.ranks)
    elif call.kind == "send":
        line = (call.group, call.ranks, rank, call.peer, call.tag)
    else:
        line = (call.group, call.ranks, call.peer, rank, call.tag)
    number = used.get(line, 0)
    used[line] = number + 1
    return (*line, number)


def keys_of(rank: int, calls: Iterable[CommCall]) -> dict[int, Key]:
    """Return the key of each call of a rank, by `CommCall.number`."""
    used: dict[Key, int] = {}
    return {call.number: key_of(rank, call, used) for call in calls}
