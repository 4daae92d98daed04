"""The event queue: time buckets, first in, first out; all callbacks of one rank and tick run in one event.

That event stands where the first of them was registered. The order decides who is first on a link or a memory, so it is
kept exactly.

Shape letters: H pool size.
"""

from __future__ import annotations

from chakra_et._jit.astra.state import CALL_END, EVENT_RANK, NONE, Machine
from chakra_et._jit.hot import leaf

__all__ = ["note", "pop_event", "push_event", "register", "release_call", "take_bundle"]


@leaf
def push_event(m: Machine, time: int, kind: int, arg: int) -> None:
    """Queue an event at the end of its tick."""
    order = m.clock[0].order
    m.clock[0].order = order + 1
    at = m.clock[0].events
    m.clock[0].events = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if m.heap[parent].time < time or (m.heap[parent].time == time and m.heap[parent].order < order):
            break
        m.heap[at].time = m.heap[parent].time
        m.heap[at].order = m.heap[parent].order
        m.heap[at].kind = m.heap[parent].kind
        m.heap[at].arg = m.heap[parent].arg
        at = parent
    m.heap[at].time = time
    m.heap[at].order = order
    m.heap[at].kind = kind
    m.heap[at].arg = arg


@leaf
def pop_event(m: Machine) -> tuple[int, int]:
    """Take the next event and move the clock; return kind and argument."""
    m.clock[0].now = m.heap[0].time
    kind, arg = m.heap[0].kind, m.heap[0].arg
    size = m.clock[0].events - 1
    m.clock[0].events = size
    time, order = m.heap[size].time, m.heap[size].order
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            m.heap[other].time < m.heap[child].time
            or (m.heap[other].time == m.heap[child].time and m.heap[other].order < m.heap[child].order)
        ):
            child = other
        if time < m.heap[child].time or (time == m.heap[child].time and order < m.heap[child].order):
            break
        m.heap[at].time = m.heap[child].time
        m.heap[at].order = m.heap[child].order
        m.heap[at].kind = m.heap[child].kind
        m.heap[at].arg = m.heap[child].arg
        at = child
    if size > 0:
        last_kind, last_arg = m.heap[size].kind, m.heap[size].arg
        m.heap[at].time, m.heap[at].order, m.heap[at].kind, m.heap[at].arg = time, order, last_kind, last_arg
    return kind, arg


@leaf
def register(m: Machine, rank: int, time: int, kind: int, arg: int) -> None:
    """Have a callback of a rank run at a time, now or later; callbacks of one rank and tick run in this order."""
    call = m.clock[0].free_call
    m.clock[0].free_call = m.calls[call].next
    m.clock[0].used_calls += 1
    m.calls[call].kind, m.calls[call].arg, m.calls[call].since = kind, arg, m.clock[0].now
    m.calls[call].next = NONE
    bundle = m.ranks[rank].bundle
    while bundle != NONE and m.bundles[bundle].time != time:
        bundle = m.bundles[bundle].next
    if bundle == NONE:
        bundle = m.clock[0].free_bundle
        m.clock[0].free_bundle = m.bundles[bundle].next
        m.clock[0].used_bundles += 1
        m.bundles[bundle].time = time
        m.bundles[bundle].next = m.ranks[rank].bundle
        m.ranks[rank].bundle = bundle
        m.bundles[bundle].head = call
        m.bundles[bundle].tail = call
        push_event(m, time, EVENT_RANK, rank)
        return
    tail = m.bundles[bundle].tail
    if tail == NONE:
        m.bundles[bundle].head = call
    else:
        m.calls[tail].next = call
        if m.calls[tail].since == m.clock[0].now and (kind == CALL_END or m.calls[tail].kind == CALL_END):
            m.clock[0].doubt = 1
    m.bundles[bundle].tail = call


@leaf
def take_bundle(m: Machine, rank: int) -> int:
    """Return the next callback of a rank at this tick, or -1 (then the rank's event is over)."""
    time = m.clock[0].now
    before, bundle = NONE, m.ranks[rank].bundle
    while m.bundles[bundle].time != time:
        before, bundle = bundle, m.bundles[bundle].next
    call = m.bundles[bundle].head
    if call != NONE:
        m.bundles[bundle].head = m.calls[call].next
        if m.bundles[bundle].head == NONE:
            m.bundles[bundle].tail = NONE
        return call
    if before == NONE:
        m.ranks[rank].bundle = m.bundles[bundle].next
    else:
        m.bundles[before].next = m.bundles[bundle].next
    m.bundles[bundle].next = m.clock[0].free_bundle
    m.clock[0].free_bundle = bundle
    m.clock[0].used_bundles -= 1
    return NONE


@leaf
def release_call(m: Machine, call: int) -> None:
    """Give a callback back to the pool."""
    m.calls[call].next = m.clock[0].free_call
    m.clock[0].free_call = call
    m.clock[0].used_calls -= 1


@leaf
def note(m: Machine, rank: int, since: int, origin: int) -> None:
    """Something happens at a rank: doubt its order if it can't be told from what happened there at this tick before.

    Where collectives are computed without their messages, it is known at which tick ASTRA-sim queued an event, but not
    in which order different ranks did so in one tick.

    Args:
        m: The engine's tables.
        rank: Index of the rank.
        since: Tick at which it was queued.
        origin: Rank that queued it; `NONE`: the end of a collective.
    """
    now = m.clock[0].now
    if (
        m.ranks[rank].seen == now
        and m.ranks[rank].since == since
        and (origin == NONE or m.ranks[rank].origin != origin)
    ):
        m.clock[0].doubt = 1
    m.ranks[rank].seen, m.ranks[rank].since, m.ranks[rank].origin = now, since, origin
