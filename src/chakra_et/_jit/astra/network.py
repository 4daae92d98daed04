"""Both analytical networks: a delay without contention, and store-and-forward over links with one message at a time.

Rules and sources: docs/astra-sim.md.
"""

from __future__ import annotations

from chakra_et._jit.astra.events import push_event
from chakra_et._jit.astra.lists import append, take
from chakra_et._jit.astra.state import EVENT_FREE, EVENT_HOP, NONE, RING, SWITCH, Machine
from chakra_et._jit.hot import inner, leaf

__all__ = ["delay", "free_link", "new_message", "next_hop", "release_message", "send_message"]


@leaf
def delay(m: Machine, source: int, target: int, size: int) -> int:
    """Return the time of a message on an idle network, ns: only the first dimension that differs is charged."""
    for dim in range(len(m.dims)):
        count = m.dims[dim].count
        a, b = source % count, target % count
        if a != b:
            hops = 1
            if m.dims[dim].topology == SWITCH:
                hops = 2
            elif m.dims[dim].topology == RING:
                way = (b - a) % count
                hops = min(way, count - way)
            return int(hops * m.dims[dim].latency + size / m.dims[dim].bandwidth)
        source //= count
        target //= count
    return 0


@leaf
def new_message(m: Machine, size: int) -> int:
    """Take a message from the pool."""
    message = m.clock[0].free_message
    m.clock[0].free_message = m.messages[message].next
    m.clock[0].used_messages += 1
    m.messages[message].bytes = size
    m.messages[message].request = 0
    m.messages[message].since = m.clock[0].now
    m.messages[message].next = NONE
    return message


@leaf
def release_message(m: Machine, message: int) -> None:
    """Give a message back to the pool."""
    m.messages[message].next = m.clock[0].free_message
    m.clock[0].free_message = message
    m.clock[0].used_messages -= 1


@inner
def send_message(m: Machine, message: int, source: int, target: int) -> None:
    """Send a message; it arrives by an event of its own."""
    if m.fixed[0].aware == 0:
        m.messages[message].place = target
        m.messages[message].goal = target
        time = m.clock[0].now + delay(m, source, target, m.messages[message].bytes)
        push_event(m, time, EVENT_HOP, message)
        return
    m.messages[message].place, m.messages[message].goal = source, target
    _enter_link(m, message)


@inner
def next_hop(m: Machine, message: int) -> bool:
    """Return True if a message has arrived; else send it on its way."""
    if m.messages[message].place == m.messages[message].goal:
        return True
    _enter_link(m, message)
    return False


@leaf
def _link(m: Machine, place: int, goal: int) -> int:
    """Return the link that leads from a device towards another one.

    Of a ring: 0 .. n-1 clockwise, n .. 2n-1 anticlockwise; of a switch (device n): up links, down links; else one a
    pair.
    """
    count = m.dims[0].count
    if m.dims[0].topology == RING:
        way = (goal - place) % count
        return place if 2 * way <= count else count + place
    if m.dims[0].topology == SWITCH:
        return place if place < count else count + goal
    return place * count + goal


@leaf
def _head(m: Machine, link: int, goal: int) -> int:
    """Return the device at the end of a link."""
    count = m.dims[0].count
    if m.dims[0].topology == RING:
        return (link + 1) % count if link < count else (link - count - 1) % count
    if m.dims[0].topology == SWITCH:
        return count if link < count else link - count
    return goal


@inner
def _enter_link(m: Machine, message: int) -> None:
    link = _link(m, m.messages[message].place, m.messages[message].goal)
    if m.links[link].busy == 0:
        _transmit(m, link, message)
        return
    append(m.links, m.messages, link, message)


@inner
def _transmit(m: Machine, link: int, message: int) -> None:
    m.links[link].busy = 1
    size = m.messages[message].bytes
    now = m.clock[0].now
    m.messages[message].place = _head(m, link, m.messages[message].goal)
    push_event(m, now + int(m.dims[0].latency + size / m.dims[0].bandwidth), EVENT_HOP, message)
    push_event(m, now + int(size / m.dims[0].bandwidth), EVENT_FREE, link)


@inner
def free_link(m: Machine, link: int) -> None:
    """A link has sent its message off: the next one that waits for it begins."""
    m.links[link].busy = 0
    message = take(m.links, m.messages, link)
    if message != NONE:
        _transmit(m, link, message)
