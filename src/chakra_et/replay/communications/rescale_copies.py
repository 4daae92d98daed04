"""Communications of ranks that have no trace: they do as another rank does, with the partners that lie around them.

Groups that hold both stay as they are. Others must be evenly spaced, as in grids of tensor, pipeline and data parallel
ranks: then the copy's group is the one of the same length and distance that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from chakra_et.errors import ReplayError
from chakra_et.ir import ProcessGroup
from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.find import Communications
from chakra_et.replay.communications.lines import keys_of
from chakra_et.replay.communications.rescale_shapes import with_lists

__all__ = ["copy_ranks"]

Ranks = tuple[int, ...]


def copy_ranks(
    found: Mapping[int, Communications], groups: Mapping[int, Sequence[ProcessGroup]], world_size: int
) -> tuple[dict[int, Communications], dict[int, int]]:
    """Return communications of all ranks, and which rank each follows.

    Args:
        found: Communications of the ranks that have a trace.
        groups: The groups that each of them knows.
        world_size: Ranks of the recorded job.

    Raises:
        ReplayError: A group isn't evenly spaced.
    """
    made: dict[int, Communications] = {}
    sources: dict[int, int] = {}
    for rank in range(world_size):
        source = rank if rank in found else _source(rank, found, groups)
        own = found[source]
        sources[rank] = source
        made[rank] = own if source == rank else _copied(own, source, rank, world_size)
    copies = {rank for rank, source in sources.items() if rank != source}
    return (_fitted(made, copies) if copies else made), sources


def _source(rank: int, found: Mapping[int, Communications], groups: Mapping[int, Sequence[ProcessGroup]]) -> int:
    """Return the rank to follow: ranks of one group do alike, of small groups more so than of large ones."""
    near = [
        (len(group.ranks), abs(source - rank), source)
        for source in found
        for group in groups.get(source, ())
        if rank in group.ranks and source in group.ranks
    ]
    return min(near)[2] if near else min(found, key=lambda source: (abs(source - rank), source))


def _copied(own: Communications, source: int, rank: int, world_size: int) -> Communications:
    return Communications(tuple(_moved(call, source, rank, world_size) for call in own.calls), own.skipped)


def _moved(call: CommCall, source: int, rank: int, world_size: int) -> CommCall:
    ranks = _group_of(rank, call, world_size)
    place, own = ranks.index(rank), call.ranks.index(source)
    peer = call.peer
    if peer is not None:
        peer = ranks[(place + call.ranks.index(peer) - own) % len(ranks)]
    root = call.root
    if root is not None:
        root = ranks[call.ranks.index(root)]
    return with_lists(replace(call, ranks=ranks, peer=peer, root=root), rank)


def _group_of(rank: int, call: CommCall, world_size: int) -> Ranks:
    """Return the group of a rank that lies as a call's group does."""
    ranks = call.ranks
    if rank in ranks:
        return ranks
    first, size = ranks[0], len(ranks)
    stride = ranks[1] - first if size > 1 else 1
    block = stride * size
    even = ranks == tuple(range(first, first + block, stride)) and first % block < stride and world_size % block == 0
    if not even:
        raise ReplayError(
            f"rank {rank}: expected a trace of its own, or group '{call.group}' to be evenly spaced, got none and "
            f"{list(ranks)}; give the traces of all ranks"
        )
    begin = rank // block * block + rank % stride
    return tuple(range(begin, begin + block, stride))


def _fitted(made: Mapping[int, Communications], copies: set[int]) -> dict[int, Communications]:
    """Let ranks receive in all-to-alls what the others send."""
    keys = {rank: keys_of(rank, one.calls) for rank, one in made.items()}
    meetings: dict[object, dict[int, CommCall]] = {}
    for rank, one in made.items():
        for call in one.calls:
            if call.kind == "alltoall_" or (call.kind == "alltoall_base_" and call.in_splits):
                meetings.setdefault(keys[rank][call.number], {})[rank] = call
    fitted = {}
    for rank, one in made.items():
        calls = []
        for call in one.calls:
            meeting = meetings.get(keys[rank][call.number], {})
            if rank in meeting and copies & set(meeting):
                call = _receiving(call, call.ranks.index(rank), meeting)
            calls.append(call)
        fitted[rank] = Communications(tuple(calls), one.skipped)
    return fitted


def _receiving(call: CommCall, place: int, meeting: Mapping[int, CommCall]) -> CommCall:
    """Return an all-to-all of the rank at a place that gets what the others send it."""
    if call.kind == "alltoall_":
        parts = [meeting[other].inputs if other in meeting else () for other in call.ranks]
        return replace(call, outputs=tuple(part[place] if place < len(part) else (0,) for part in parts))
    taken = tuple(meeting[other].in_splits[place] if other in meeting else 0 for other in call.ranks)
    return replace(call, out_splits=taken, outputs=((sum(taken), *call.outputs[0][1:]),))
