"""A recorded job on another number of ranks: fewer, or ranks that have no trace of their own.

The first ranks stay: groups keep those of their ranks that are there. Ranks of a server, which tensor parallelism uses,
come first in all frameworks' layouts, so that tensor-parallel groups stay whole where they fit; others shrink. A send
or receive whose peer is gone goes to the one whose peer is gone as well (a ring closes), else it is left out (a
pipeline gets shorter); both ends alike.

Sizes: with ``keep``, each rank gives what it gave, so that what a group holds together shrinks; with ``scale``, the
whole stays, and each rank gives more of it. Of an all-to-all, what was meant for ranks that are gone goes to those that
stay in their place; no row is lost. A rank without a trace does as another does, see `rescale_copies`.

Shape letters: R ranks, C communications.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from chakra_et.errors import ReplayError
from chakra_et.ir import ProcessGroup
from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.find import Communications, SkippedCommunication
from chakra_et.replay.communications.lines import Key, keys_of
from chakra_et.replay.communications.rescale_copies import copy_ranks
from chakra_et.replay.communications.rescale_shapes import Sizes, resized, with_lists

__all__ = ["Rescaled", "rescale"]

# Rank, peer, group, tag.
Line = tuple[int, int, str, int]


@dataclass(frozen=True, slots=True)
class Rescaled:
    """Communications of the ranks of a replay.

    Attributes:
        communications: By rank.
        sources: The rank whose trace each rank follows.
    """

    communications: dict[int, Communications]
    sources: dict[int, int]


def rescale(
    found: Mapping[int, Communications],
    groups: Mapping[int, Sequence[ProcessGroup]],
    *,
    recorded: int,
    world_size: int,
    sizes: Sizes = "keep",
) -> Rescaled:
    """Fit communications to a number of ranks.

    Args:
        found: Communications of the ranks that have a trace.
        groups: The groups that each of them knows.
        recorded: Ranks of the recorded job.
        world_size: Ranks of the replay, at most as many.
        sizes: What stays: what each rank gives (``keep``), or the whole (``scale``).

    Raises:
        ReplayError: More ranks than were recorded, or a group whose layout can't be told for ranks without a trace.

    Example:
        >>> rescale({0: Communications((), ())}, {0: ()}, recorded=2, world_size=2).sources
        {0: 0, 1: 0}
    """
    if not 1 <= world_size <= recorded:
        raise ReplayError(f"--world-size: expected 1 to {recorded} ranks, as many as were recorded, got {world_size}")
    made, sources = copy_ranks(found, groups, recorded)
    if world_size == recorded:
        return Rescaled(made, sources)
    kept = _shrunk(made, world_size, sizes)
    return Rescaled(kept, {rank: sources[rank] for rank in kept})


def _shrunk(made: Mapping[int, Communications], world_size: int, sizes: Sizes) -> dict[int, Communications]:
    keys = {rank: keys_of(rank, one.calls) for rank, one in made.items()}
    meetings: dict[Key, dict[int, CommCall]] = {}
    for rank, one in made.items():
        for call in one.calls:
            if call.is_collective:
                meetings.setdefault(keys[rank][call.number], {})[rank] = call
    peers = _new_peers(made, world_size)
    kept = {}
    for rank in range(world_size):
        calls, skipped = [], list(made[rank].skipped)
        for call in made[rank].calls:
            ranks = tuple(member for member in call.ranks if member < world_size)
            if call.is_collective:
                moved = resized(call, rank, ranks, meetings[keys[rank][call.number]], sizes)
                calls.append(with_lists(replace(moved, ranks=ranks, root=_root(call, ranks)), rank))
            elif call.peer is None or call.peer < world_size:
                calls.append(replace(call, ranks=ranks))
            elif (rank, call.number) in peers:
                peer = peers[rank, call.number]
                calls.append(replace(call, ranks=ranks if peer in ranks else tuple(range(world_size)), peer=peer))
            else:
                reason = f"its peer, rank {call.peer}, is not in the replay"
                skipped.append(SkippedCommunication(call.node, call.row, call.kind, reason))
        kept[rank] = Communications(tuple(calls), tuple(skipped))
    return kept


def _root(call: CommCall, ranks: Sequence[int]) -> int | None:
    """Return the root: the recorded one, else the rank in its place."""
    if call.root is None or call.root in ranks:
        return call.root
    return ranks[call.ranks.index(call.root) % len(ranks)]


def _new_peers(made: Mapping[int, Communications], world_size: int) -> dict[tuple[int, int], int]:
    """Return new peers for sends and receives whose peers are gone, by rank and number of the call.

    A line of sends meets a line of receives if all that is in them is alike.
    """
    lines: dict[bool, dict[Line, list[CommCall]]] = {True: {}, False: {}}
    for rank in range(world_size):
        for call in made[rank].calls:
            if not call.is_collective and call.peer is not None and call.peer >= world_size:
                line = (rank, call.peer, call.group, call.tag)
                lines[call.kind == "send"].setdefault(line, []).append(call)
    peers: dict[tuple[int, int], int] = {}
    receives = dict(sorted(lines[False].items()))
    for sender, sends in sorted(lines[True].items()):
        match = next((one for one, calls in receives.items() if _alike(sender, sends, one, calls)), None)
        if match is not None:
            taken = receives.pop(match)
            peers.update({(sender[0], call.number): match[0] for call in sends})
            peers.update({(match[0], call.number): sender[0] for call in taken})
    return peers


def _alike(sender: Line, sends: Iterable[CommCall], receiver: Line, taken: Iterable[CommCall]) -> bool:
    sent, got = ([(call.in_elements or call.out_elements, call.dtype) for call in part] for part in (sends, taken))
    return sender[0] != receiver[0] and sender[2:] == receiver[2:] and sent == got
