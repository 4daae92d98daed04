"""Which process groups a replay makes, in one order for all ranks.

Shape letters: G groups.
"""

from __future__ import annotations

from collections.abc import Iterable

from chakra_et.ir import ProcessGroup
from chakra_et.replay.communications.call import CommCall

__all__ = ["used_groups"]


def used_groups(calls: Iterable[CommCall]) -> tuple[ProcessGroup, ...]:
    """Return the groups that the communications of all ranks use, [G], each once, the largest first.

    Groups of the same ranks with two names are two groups, as they were; one name may stand for several groups of
    disjoint ranks. Groups that nobody uses are not made: each costs sockets between all its ranks.

    Args:
        calls: Communications of all ranks.

    Example:
        >>> used_groups([])
        ()
    """
    used = {(call.group, call.ranks) for call in calls}
    ordered = sorted(used, key=lambda group: (-len(group[1]), group[1], group[0]))
    return tuple(ProcessGroup(name, ranks, len(ranks)) for name, ranks in ordered)
