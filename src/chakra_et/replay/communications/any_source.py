"""Which sends the receives from anybody take, where that can be told.

Shape letters: R ranks, C communications.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.find import Communications

__all__ = ["settle_sources"]

# Group, receiving rank, tag.
End = tuple[str, int, int]


def settle_sources(found: Mapping[int, Communications]) -> dict[int, Communications]:
    """Give receives from anybody their sender, if only one rank sends what no other receive takes.

    Else their sends and receives are marked: which of them meet isn't told.

    Args:
        found: [R] the communications of all ranks, by rank.

    Example:
        >>> settle_sources({0: Communications((), ())})
        {0: Communications(calls=(), skipped=())}
    """
    open_ends: Counter[End] = Counter()
    left: dict[End, Counter[int]] = {}
    for rank, one in found.items():
        for call in one.calls:
            end = _end(rank, call)
            if end is None:
                continue
            if call.kind == "recv_any_source_":
                open_ends[end] += 1
            else:
                source = rank if call.kind == "send" else call.peer
                left.setdefault(end, Counter())[source or 0] += 1 if call.kind == "send" else -1
    senders: dict[End, int | None] = {}
    for end, count in open_ends.items():
        over = [source for source, number in left.get(end, Counter()).items() if number > 0]
        senders[end] = over[0] if len(over) == 1 and left[end][over[0]] == count else None
    return {
        rank: replace(one, calls=tuple(_settled(call, _end(rank, call), senders) for call in one.calls))
        for rank, one in found.items()
    }


def _end(rank: int, call: CommCall) -> End | None:
    if call.is_collective:
        return None
    return call.group, call.peer if call.kind == "send" and call.peer is not None else rank, call.tag


def _settled(call: CommCall, end: End | None, senders: Mapping[End, int | None]) -> CommCall:
    if end is None or end not in senders:
        return call
    source = senders[end]
    if source is None:
        return replace(call, is_unordered=True)
    return replace(call, peer=source) if call.kind == "recv_any_source_" else call
