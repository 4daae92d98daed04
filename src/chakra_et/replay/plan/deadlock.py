"""Whether ranks would wait for each other for ever, found by following all of them through their calls and waits.

A wait for a collective ends when all its ranks have called it; a wait for a receive when the send was called. A wait
for a send ends when the receive was called (gloo and large NCCL messages hand over directly); where the trace doesn't
tell where a send was waited for, it is taken to be buffered.

Shape letters: R ranks, S steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.lines import Key, key_of
from chakra_et.replay.plan.steps import Communicate, Plan, Wait

__all__ = ["find_deadlock"]

Told = tuple[int, int | None, str, str]


@dataclass(slots=True)
class _Rank:
    """A rank on its way: its calls and waits, how far it is, how often it used each line, keys of its calls."""

    events: list[Communicate | Wait]
    at: int = 0
    used: dict[Key, int] = field(default_factory=dict)
    calls: dict[int, tuple[CommCall, Key]] = field(default_factory=dict)


def find_deadlock(plans: Sequence[Plan]) -> list[Told]:
    """Return who waits for whom if the ranks can't all end: (rank, node, name, text) of each wait in the cycle.

    Args:
        plans: [R] plans whose communications meet.
    """
    ranks = {plan.rank: _Rank([step for step in plan.steps if isinstance(step, Communicate | Wait)]) for plan in plans}
    arrived: dict[Key, set[int]] = {}
    waiting: dict[Key, set[int]] = {}
    todo = list(ranks)
    while todo:
        rank = todo.pop()
        for key, complete in _advance(rank, ranks[rank], arrived, waiting):
            if complete:
                todo += waiting.pop(key, ())
    stuck = {rank: state for rank, state in ranks.items() if state.at < len(state.events)}
    return _cycle(stuck, arrived) if stuck else []


def _advance(
    rank: int, state: _Rank, arrived: dict[Key, set[int]], waiting: dict[Key, set[int]]
) -> list[tuple[Key, bool]]:
    """Move a rank to its next wait that holds it; return what it arrived at, and whether that holds nobody longer."""
    reached = []
    while state.at < len(state.events):
        step = state.events[state.at]
        if isinstance(step, Communicate):
            key = key_of(rank, step.call, state.used)
            state.calls[step.call.number] = (step.call, key)
            there = arrived.setdefault(key, set())
            there.add(rank)
            # One look at the whole group for each member that comes would take the cube of their number.
            reached.append((key, not step.call.is_collective or len(there) == len(step.call.ranks)))
        elif step.number in state.calls:
            call, key = state.calls[step.number]
            there = arrived[key]
            if len(there) < len(call.ranks) if call.is_collective else _missing(rank, call, there):
                waiting.setdefault(key, set()).add(rank)
                break
        state.at += 1
    return reached


def _missing(rank: int, call: CommCall, there: set[int]) -> list[int]:
    """Return the ranks that must come before a wait for a call ends."""
    if call.is_collective:
        return [member for member in call.ranks if member not in there]
    if call.peer is None or call.is_unordered or (call.kind == "send" and call.wait_assumed):
        return []
    return [call.peer] if call.peer != rank and call.peer not in there else []


def _cycle(stuck: Mapping[int, _Rank], arrived: Mapping[Key, set[int]]) -> list[Told]:
    """Return the waits of a cycle of stuck ranks, beginning with its lowest rank."""
    held = {rank: _held(state) for rank, state in stuck.items()}
    follows = {}
    for rank, (call, key) in held.items():
        missing = _missing(rank, call, arrived[key])
        follows[rank] = next((other for other in missing if other in stuck), missing[0])
    path = [min(stuck)]
    while path[-1] in follows and follows[path[-1]] not in path:
        path.append(follows[path[-1]])
    last = follows.get(path[-1], path[-1])
    loop = path[path.index(last) :] if last in path else path
    begin = loop.index(min(loop))
    return [_told(rank, held, follows) for rank in (*loop[begin:], *loop[:begin]) if rank in held]


def _held(state: _Rank) -> tuple[CommCall, Key]:
    step = state.events[state.at]
    return state.calls[step.number if isinstance(step, Wait) else step.call.number]


def _told(rank: int, held: Mapping[int, tuple[CommCall, Key]], follows: Mapping[int, int]) -> Told:
    call, key = held[rank]
    other = follows[rank]
    way = "to" if call.kind == "send" else "from"
    where = f"of group '{call.group}'" if call.is_collective else f"{way} rank {call.peer} with tag {call.tag}"
    then = (
        "which has ended"
        if other not in held
        else f"which waits at node {held[other][0].node} ('{held[other][0].kind}')"
    )
    text = f"deadlock: waits for rank {other} in {call.kind} number {key[-1]} {where}, {then}"
    return rank, call.node, call.kind, text
