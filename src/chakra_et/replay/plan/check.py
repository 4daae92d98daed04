"""The check across ranks before any process starts: what would not meet, and what would wait for ever.

Collectives of a group must come in one order on all its ranks, with sizes, element types, roots and reduce operations
that fit; the k-th send from a to b with a tag must meet the k-th such receive. Where all meets, `check_deadlock`
follows the ranks through their waits.

Shape letters: R ranks, C communications, G groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from chakra_et.errors import ReplayError
from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.plan.comms import calls_of
from chakra_et.replay.plan.deadlock import find_deadlock
from chakra_et.replay.plan.steps import Plan
from chakra_et.units import format_list

__all__ = ["Problem", "check_plans", "refuse_problems"]

Group = tuple[str, tuple[int, ...]]
# Kinds of which ranks may give each other different sizes.
_UNEVEN = ("alltoall_base_", "alltoall_", "allgather_", "reduce_scatter_", "gather_", "scatter_")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that doesn't meet.

    Attributes:
        rank: Where.
        node: Id of the node there; None where one is missing.
        name: Its name; empty where one is missing.
        text: What is expected, what there is.
    """

    rank: int
    node: int | None
    name: str
    text: str

    def __str__(self) -> str:
        at = "" if self.node is None else f"node {self.node} ('{self.name}'): "
        return f"rank {self.rank}: {at}{self.text}"


def check_plans(plans: Sequence[Plan]) -> tuple[Problem, ...]:
    """Check that the communications of all ranks meet.

    Args:
        plans: [R] one plan a rank.

    Returns:
        What doesn't meet, by group and order; empty if the replay can end.
    """
    calls = {plan.rank: calls_of(plan) for plan in plans}
    found = [*_missing_ranks(calls), *_collectives(calls), *_pairs(calls)]
    return tuple(found) if found else tuple(Problem(*told) for told in find_deadlock(plans))


def refuse_problems(problems: Sequence[Problem], place: str) -> None:
    """Refuse a replay that has problems.

    Raises:
        ReplayError: There are some; the text has the first, and how many there are.
    """
    if problems:
        more = f" ({len(problems) - 1:,} more)" if len(problems) > 1 else ""
        raise ReplayError(f"{place}: {problems[0]}{more}")


def _at(call: CommCall) -> str:
    return f"node {call.node} ('{call.kind}')"


def _problem(rank: int, call: CommCall, text: str) -> Problem:
    return Problem(rank, call.node, call.kind, text)


def _missing_ranks(calls: Mapping[int, Sequence[CommCall]]) -> Iterator[Problem]:
    for rank, own in calls.items():
        for call in own:
            missing = [member for member in call.ranks if member not in calls]
            if missing:
                text = f"expected a trace of each rank of group '{call.group}', got none of {format_list(missing)}"
                yield _problem(rank, call, f"{text}; give all traces, or let one stand for others (--world-size)")
                return


def _collectives(calls: Mapping[int, Sequence[CommCall]]) -> Iterator[Problem]:
    lines: dict[Group, dict[int, list[CommCall]]] = {}
    for rank, own in calls.items():
        for call in own:
            if call.is_collective:
                lines.setdefault((call.group, call.ranks), {}).setdefault(rank, []).append(call)
    for (name, ranks), line in lines.items():
        members = [rank for rank in ranks if rank in calls]
        yield from _one_group(name, members, {rank: line.get(rank, []) for rank in members})


def _one_group(name: str, members: Sequence[int], line: Mapping[int, Sequence[CommCall]]) -> Iterator[Problem]:
    """Compare the collectives of one group, up to the first that differs: what follows it is out of step."""
    for place in range(max(map(len, line.values()))):
        here = {rank: line[rank][place] if place < len(line[rank]) else None for rank in members}
        odd = _odd_one(members, here)
        if odd is None:
            yield from _one_meeting(name, place, {rank: call for rank, call in here.items() if call is not None})
            continue
        first, rank = odd
        yield _out_of_step(name, place, (first, line[first]), (rank, line[rank]))
        return


def _odd_one(members: Sequence[int], here: Mapping[int, CommCall | None]) -> tuple[int, int] | None:
    """Return a rank of the majority and one that does something else, or None if all do the same kind of thing."""
    keys = {rank: None if call is None else (call.kind, _even_size(call)) for rank, call in here.items()}
    if len(set(keys.values())) == 1:
        return None
    by_key: dict[object, list[int]] = {}
    for rank in members:
        by_key.setdefault(keys[rank], []).append(rank)
    # The majority is right; of two equal halves, the lower rank that does something.
    ordered = sorted(by_key.values(), key=lambda ranks: (-len(ranks), keys[ranks[0]] is None, ranks))
    return ordered[0][0], ordered[1][0]


def _even_size(call: CommCall) -> tuple[int, str] | None:
    """Return size and element type where they must be the same on all ranks."""
    if call.kind == "barrier" or call.kind in _UNEVEN:
        return None
    return call.in_elements, call.dtype


def _out_of_step(
    name: str, place: int, good: tuple[int, Sequence[CommCall]], odd: tuple[int, Sequence[CommCall]]
) -> Problem:
    (first, right), (rank, own) = good, odd
    expected = right[place] if place < len(right) else None
    got = own[place] if place < len(own) else None
    where = f"collective {place} of group '{name}'"
    if expected is None and got is not None:
        return _problem(
            rank, got, f"expected {len(right):,} collectives of group '{name}' as on rank {first}, got more"
        )
    known = expected if expected is not None else own[-1]
    wanted = f"{_told(known)} as on rank {first} ({_at(known)}), {where}"
    if got is None:
        return Problem(rank, None, "", f"expected {wanted}, got none after the last of the rank's")
    if _same(right[place + 1 : place + 4], own[place : place + 3]):
        return _problem(rank, got, f"expected {wanted} first, got none: the collective is missing here")
    if _same(right[place : place + 3], own[place + 1 : place + 4]):
        return _problem(rank, got, f"expected {wanted}, got a collective before it that rank {first} has not")
    return _problem(rank, got, f"expected {wanted}, got {_told(got)}")


def _same(some: Sequence[CommCall], others: Sequence[CommCall]) -> bool:
    keys = [[(call.kind, _even_size(call)) for call in part] for part in (some, others)]
    return bool(some) and keys[0] == keys[1]


def _told(call: CommCall) -> str:
    size = "" if call.kind == "barrier" else f" of {call.in_elements or call.out_elements:,} {call.dtype}"
    return f"{call.kind}{size}"


def _one_meeting(name: str, place: int, here: Mapping[int, CommCall]) -> Iterator[Problem]:
    """Compare what else must fit in collectives of one kind."""
    first, model = next(iter(here.items()))
    for rank, call in here.items():
        for what, expected, got in (
            ("element type", model.dtype, call.dtype),
            ("root", model.root, call.root),
            ("reduce operation", model.reduce_op, call.reduce_op),
        ):
            if expected != got and call.kind != "barrier":
                yield _problem(rank, call, f"expected {what} {expected} as on rank {first} ({_at(model)}), got {got}, "
                               f"in collective {place} of group '{name}'")  # fmt: skip
    for sender, receiver, sent, taken in _parts(here):
        if sent != taken:
            text = f"expected {sent:,} elements from rank {sender} ({_at(here[sender])}), got room for {taken:,}"
            yield _problem(receiver, here[receiver], f"{text}, in collective {place} of group '{name}'")


def _parts(here: Mapping[int, CommCall]) -> Iterator[tuple[int, int, int, int]]:
    """Return what ranks send each other where sizes may differ: sender, receiver, elements sent, elements expected."""
    ranks = next(iter(here.values())).ranks
    if next(iter(here.values())).kind not in _UNEVEN:
        return
    place = {rank: index for index, rank in enumerate(ranks)}
    for rank, call in here.items():
        for other, index in place.items():
            peer = here.get(other)
            if peer is None:
                continue
            if call.kind in ("alltoall_base_", "alltoall_"):
                yield rank, other, _share(call, index, given=True), _share(peer, place[rank], given=False)
            elif call.kind == "allgather_" and index < len(call.outputs):
                yield other, rank, peer.in_elements, prod(call.outputs[index])
            elif call.kind == "reduce_scatter_" and index < len(call.inputs):
                yield rank, other, prod(call.inputs[index]), peer.out_elements
            elif call.kind == "gather_" and rank == call.root and index < len(call.outputs):
                yield other, rank, peer.in_elements, prod(call.outputs[index])
            elif call.kind == "scatter_" and rank == call.root and index < len(call.inputs):
                yield rank, other, prod(call.inputs[index]), peer.out_elements


def _share(call: CommCall, index: int, *, given: bool) -> int:
    """Return the elements that an all-to-all sends to, or takes from, a place in the group."""
    shapes = call.inputs if given else call.outputs
    if call.kind == "alltoall_":
        return prod(shapes[index]) if index < len(shapes) else 0
    splits = call.in_split_elements if given else call.out_split_elements
    if splits:
        return splits[index] if index < len(splits) else 0
    return (call.in_elements if given else call.out_elements) // len(call.ranks)


def _pairs(calls: Mapping[int, Sequence[CommCall]]) -> Iterator[Problem]:
    """Compare sends with receives: the k-th of two ranks and a tag are one."""
    sends: dict[tuple[str, int, int, int], list[CommCall]] = {}
    receives: dict[tuple[str, int, int, int], list[CommCall]] = {}
    open_ends: dict[tuple[str, int, int], list[CommCall]] = {}
    for rank, own in calls.items():
        for call in own:
            if call.kind == "send" and call.peer is not None:
                sends.setdefault((call.group, rank, call.peer, call.tag), []).append(call)
            elif call.peer is not None and not call.is_collective:
                receives.setdefault((call.group, call.peer, rank, call.tag), []).append(call)
            elif call.kind == "recv_any_source_":
                open_ends.setdefault((call.group, rank, call.tag), []).append(call)
    for line in dict.fromkeys((*sends, *receives)):
        group, source, target, tag = line
        sent, taken = sends.get(line, []), receives.get(line, [])
        ends = open_ends.get((group, target, tag), [])
        while len(taken) < len(sent) and ends:
            taken = [*taken, ends.pop(0)]
        yield from _one_line((source, target, tag), sent, taken)
    for (_, rank, tag), left in open_ends.items():
        for call in left:
            yield _problem(rank, call, f"expected a send to rank {rank} with tag {tag}, got none")


def _one_line(ends: tuple[int, int, int], sent: Sequence[CommCall], taken: Sequence[CommCall]) -> Iterator[Problem]:
    source, target, tag = ends
    for number, (send, take) in enumerate(zip(sent, taken, strict=False)):
        if not take.is_unordered and (send.in_elements, send.dtype) != (take.out_elements, take.dtype):
            text = f"expected {send.in_elements:,} {send.dtype} as sent by rank {source} ({_at(send)})"
            got = f"got {take.out_elements:,} {take.dtype}"
            yield _problem(target, take, f"{text}, {got}, in receive {number} with tag {tag}")
    for number, call in _rest(sent, len(taken)):
        yield _problem(source, call, f"expected receive {number} with tag {tag} on rank {target}, got none")
    for number, call in _rest(taken, len(sent)):
        yield _problem(target, call, f"expected send {number} with tag {tag} on rank {source}, got none")


def _rest(calls: Sequence[CommCall], begin: int) -> Iterable[tuple[int, CommCall]]:
    return enumerate(calls[begin:], start=begin)
