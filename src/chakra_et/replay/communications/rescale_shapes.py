"""Sizes of a collective in a group that got smaller.

Shape letters: M members as recorded, K members that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Literal

from chakra_et.replay.communications.call import CommCall

__all__ = ["Sizes", "resized", "with_lists"]

Sizes = Literal["keep", "scale"]
Shape = tuple[int, ...]

_GATHERS = ("allgather_", "_allgather_base_", "allgather_coalesced_", "allgather_into_tensor_coalesced_", "gather_")
_SCATTERS = ("reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_", "scatter_")


def resized(call: CommCall, rank: int, kept: Sequence[int], meeting: Mapping[int, CommCall], sizes: Sizes) -> CommCall:
    """Return a rank's collective for the members that are kept.

    Args:
        call: As recorded.
        rank: The rank.
        kept: [K] the members that stay.
        meeting: The calls of all members.
        sizes: ``keep`` what each rank gives (of a scatter: gets), or ``scale`` it so that the whole stays.
    """
    before, after = len(call.ranks), len(kept)
    if before == after:
        return call
    more = (before, after) if sizes == "scale" else (1, 1)
    if call.kind in ("alltoall_base_", "alltoall_"):
        return _exchanged(call, rank, kept, meeting, sizes)
    if call.kind in _GATHERS:
        given = tuple(_longer(shape, *more) for shape in call.inputs)
        return replace(call, inputs=given, outputs=_gathered(call, given, after))
    if call.kind in _SCATTERS:
        taken = tuple(_longer(shape, *more) for shape in call.outputs)
        return replace(call, inputs=_gathered(call, taken, after), outputs=taken)
    return call


def with_lists(call: CommCall, rank: int) -> CommCall:
    """Return a gather or scatter with one tensor a member on its root, and none elsewhere; others as they are."""
    is_root = rank == call.root
    if call.kind == "gather_":
        return replace(call, outputs=call.inputs[:1] * len(call.ranks) if is_root else ())
    if call.kind == "scatter_":
        return replace(call, inputs=call.outputs[:1] * len(call.ranks) if is_root else ())
    return call


def _longer(shape: Shape, before: int, after: int) -> Shape:
    """Return a shape with the rows of more members; a single number becomes a vector where it must grow."""
    if before == after:
        return shape
    rows = shape[0] if shape else 1
    return (-(-rows * before // after), *shape[1:])


def _gathered(call: CommCall, parts: tuple[Shape, ...], members: int) -> tuple[Shape, ...]:
    """Return the shapes of what all members' parts make together, as the kind of call holds it."""
    whole = call.outputs if call.kind in _GATHERS else call.inputs
    if not whole:
        return ()
    if call.kind in ("allgather_", "gather_", "reduce_scatter_", "scatter_"):
        return parts[:1] * members
    if call.kind == "allgather_coalesced_":
        return parts * members
    return tuple(((shape[0] if shape else 1) * members, *shape[1:]) for shape in parts)


def _exchanged(
    call: CommCall, rank: int, kept: Sequence[int], meeting: Mapping[int, CommCall], sizes: Sizes
) -> CommCall:
    """Return an all-to-all: rows for members that are gone go to those that stay in their place.

    The member at place i of M is stood for by the one at place i modulo K. With ``keep``, each kept member sends its
    own rows; with ``scale``, those of all that it stands for.
    """
    ranks, places = call.ranks, len(kept)
    place = kept.index(rank)

    def stands_for(where: int) -> list[int]:
        return [index for index in range(len(ranks)) if index % places == where]

    def rows(sender: int, receiver: int) -> int:
        senders = stands_for(sender) if sizes == "scale" else [ranks.index(kept[sender])]
        return sum(_rows(meeting[ranks[source]], target) for source in senders for target in stands_for(receiver)
                   if ranks[source] in meeting)  # fmt: skip

    sent = tuple(rows(place, other) for other in range(places))
    taken = tuple(rows(other, place) for other in range(places))
    tail = (call.inputs or call.outputs or ((0,),))[0][1:]
    if call.kind == "alltoall_":
        return replace(call, inputs=tuple((size,) for size in sent), outputs=tuple((size,) for size in taken))
    return replace(
        call,
        inputs=((sum(sent), *tail),),
        outputs=((sum(taken), *tail),),
        in_splits=sent,
        out_splits=taken,
    )


def _rows(call: CommCall, target: int) -> int:
    """Return the rows (of a list of tensors: the elements) that a call sends to a place in the group."""
    if call.kind == "alltoall_":
        return prod(call.inputs[target]) if target < len(call.inputs) else 0
    if call.in_splits:
        return call.in_splits[target]
    return call.inputs[0][0] // len(call.ranks) if call.inputs and call.inputs[0] else 0
