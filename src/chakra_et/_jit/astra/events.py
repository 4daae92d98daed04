"""The event queue: time buckets, first in, first out; all callbacks of one rank and tick run in one event.

That event stands where the first of them was registered. The order decides who is first on a link or a memory, so it is
kept exactly.

Shape letters: H pool size.
"""

from __future__ import annotations

from chakra_et._jit.astra.state import EVENT_RANK, NONE, Machine, leaf

__all__ = ["pop_event", "push_event", "register", "release_call", "take_bundle"]


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
def register(m: Machine, rank: int, time: int, since: int, kind: int, arg: int) -> None:
    """Have a callback of a rank run at a time.

    Args:
        m: The engine's tables.
        rank: Index of the rank.
        time: Tick, now or later.
        since: Tick at which ASTRA-sim registers it; now, unless the time was computed ahead. Callbacks of one rank and
            tick run in this order.
        kind: Kind of callback.
        arg: Its argument.
    """
    call = m.clock[0].free_call
    m.clock[0].free_call = m.calls[call].next
    m.clock[0].used_calls += 1
    m.calls[call].kind, m.calls[call].arg, m.calls[call].since = kind, arg, since
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
        m.calls[call].next = NONE
        m.bundles[bundle].head = call
        m.bundles[bundle].tail = call
        push_event(m, time, EVENT_RANK, rank)
        return
    tail = m.bundles[bundle].tail
    if tail == NONE or m.calls[tail].since <= since:
        m.calls[call].next = NONE
        if tail == NONE:
            m.bundles[bundle].head = call
        else:
            m.calls[tail].next = call
        m.bundles[bundle].tail = call
        return
    before, after = NONE, m.bundles[bundle].head
    while m.calls[after].since <= since:
        before, after = after, m.calls[after].next
    m.calls[call].next = after
    if before == NONE:
        m.bundles[bundle].head = call
    else:
        m.calls[before].next = call


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
