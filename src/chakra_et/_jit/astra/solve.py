"""Collectives whose times follow from the starts of their members, without a message being looked at.

Without contention, a ring, halving-doubling or full-window direct phase ends where a recurrence over its steps says.
Nobody leaves such a phase before all have come, so it can be computed when its last member starts it: what is left of
the simulation are the starts and ends of phases. Members that do the same at the same time are computed once.

Rules and sources: docs/astra-sim.md.

Shape letters: L lanes (members, or one for all), C chunks, n members of a phase, S steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chakra_et._jit.astra.network import delay
from chakra_et._jit.astra.state import DIRECT, HALVING_DOUBLING, NONE, RING, Int, Machine, Records, allocating, inner

__all__ = ["make_scratch", "solve"]


class Scratch(NamedTuple):
    """What one collective is computed in. Item lane * chunks + chunk stands for a chunk at a lane.

    A lane is a member, or stands for all. `items` has time (start of the phase, then its end), since, order, phase and
    next; `queues` those of all lanes; `size` that of the heap, and a counter; `came` how many members have begun a
    phase; `first` the first phase, `routes` the first chunk's queues.
    """

    items: Records
    queues: Records
    heap: Int
    size: Int
    came: Int
    ranks: Int
    lanes: int
    chunks: int
    first: int
    routes: int


@inner
def _hop(m: Machine, phase: int, ranks: Int, distance: int, size: int) -> int:
    """Return the delay between places of a phase whose members are alike."""
    stride = m.phases[phase].stride
    if stride == 0:
        return delay(m, ranks[0], ranks[distance], size)
    return delay(m, 0, distance * stride, size)


@inner
def _alike(m: Machine, phase: int, ranks: Int, start: int) -> int:
    """Return the end of a phase whose members all start at once and are alike."""
    bus, size = m.phases[phase].bus_ns, m.phases[phase].bytes
    if m.phases[phase].kind == RING:
        hop = _hop(m, phase, ranks, 1, size)
        return start + bus + m.phases[phase].sends * (hop + bus) + m.phases[phase].reduced * m.phases[phase].reduce_ns
    if m.phases[phase].kind == DIRECT:
        longest = 0
        for distance in range(1, m.phases[phase].members):
            longest = max(longest, _hop(m, phase, ranks, distance, size))
        return start + 2 * bus + longest + (m.phases[phase].reduce_ns if m.phases[phase].reduced > 0 else 0)
    end = start + bus
    for number in range(m.phases[phase].sends):
        step = m.phases[phase].step + number
        end += _hop(m, phase, ranks, m.steps[step].distance, m.steps[step].bytes) + bus
        if number < m.phases[phase].reduced:
            end += m.steps[step].reduce_ns
    return end


@allocating
def _ring(m: Machine, phase: int, way: int, ranks: Int, time: Int) -> None:
    """Turn starts int64 [n] into ends; the way is that of the messages.

    T_i(k) = max(T_(i-1)(k-1) + net_(i-1), T_i(k-1)) + bus (+ reduction), T_i(0) = start_i + bus.
    """
    count, bus = len(time), m.phases[phase].bus_ns
    hop = np.empty(count, np.int64)
    for place in range(count):
        hop[place] = delay(m, ranks[place], ranks[(place + way) % count], m.phases[phase].bytes)
    time += bus
    last = 0 if way == -1 else count - 1
    for step in range(m.phases[phase].sends):
        rest = bus + (m.phases[phase].reduce_ns if step < m.phases[phase].reduced else 0)
        around = time[last] + hop[last]
        if way == 1:
            before = around
            for place in range(count):
                own = time[place]
                time[place] = max(before, own) + rest
                before = own + hop[place]
        else:
            before = around
            for place in range(count - 1, -1, -1):
                own = time[place]
                time[place] = max(before, own) + rest
                before = own + hop[place]


@allocating
def _halving_doubling(m: Machine, phase: int, ranks: Int, time: Int) -> None:
    """Turn starts int64 [n] into ends: in step k, partners exchange and both wait for each other."""
    bus, first = m.phases[phase].bus_ns, m.phases[phase].step
    time += bus
    before = time.copy()
    for number in range(m.phases[phase].sends):
        step = first + number
        rest = bus + (m.steps[step].reduce_ns if number < m.phases[phase].reduced else 0)
        before[:] = time
        for place in range(len(time)):
            other = place ^ m.steps[step].distance
            came = before[other] + delay(m, ranks[other], ranks[place], m.steps[step].bytes)
            time[place] = max(came, before[place]) + rest


@allocating
def _direct(m: Machine, phase: int, ranks: Int, time: Int) -> None:
    """Turn starts int64 [n] into ends: everybody sends to everybody at once."""
    bus = m.phases[phase].bus_ns
    rest = bus + (m.phases[phase].reduce_ns if m.phases[phase].reduced > 0 else 0)
    time += bus
    begin = time.copy()
    for place in range(len(time)):
        last = begin[place]
        for other in range(len(time)):
            if other != place:
                last = max(last, begin[other] + delay(m, ranks[other], ranks[place], m.phases[phase].bytes))
        time[place] = last + rest


@inner
def _last_delay(m: Machine, phase: int) -> int:
    """Return how long before a phase's end that end is registered: the last delay in it."""
    if m.phases[phase].kind != HALVING_DOUBLING and m.phases[phase].reduced == m.phases[phase].sends:
        return m.phases[phase].reduce_ns
    return m.phases[phase].bus_ns


@inner
def _before(items: Records, one: int, other: int) -> bool:
    if items[one].time != items[other].time:
        return items[one].time < items[other].time
    if items[one].since != items[other].since:
        return items[one].since < items[other].since
    return items[one].order < items[other].order


@inner
def _push(work: Scratch, item: int, time: int, since: int) -> None:
    """Queue the end of an item's phase."""
    items, heap, size = work.items, work.heap, work.size[0]
    items[item].time, items[item].since, items[item].order = time, since, work.size[1]
    work.size[0] += 1
    work.size[1] += 1
    at = size
    while at > 0 and _before(items, item, heap[(at - 1) >> 1]):
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = item


@inner
def _pop(work: Scratch) -> int:
    """Take the item whose phase ends next."""
    items, heap, size = work.items, work.heap, work.size[0]
    work.size[0] -= 1
    top, item = heap[0], heap[size - 1]
    at, child = 0, 1
    while child < size - 1:
        if child + 1 < size - 1 and _before(items, heap[child + 1], heap[child]):
            child += 1
        if not _before(items, heap[child], item):
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = item
    return top


@inner
def _queue(m: Machine, work: Scratch, item: int) -> int:
    """Return the queue of an item's phase, counted over all lanes."""
    chunk, lane = item % work.chunks, item // work.chunks
    route = work.routes + chunk * m.fixed[0].phases + work.items[item].phase
    return lane * m.fixed[0].levels * m.fixed[0].queues + m.routes[route].queue


@allocating
def _enter(m: Machine, work: Scratch, item: int, now: int) -> None:
    """Put an item into the queue of its phase, or begin it if there is room."""
    queue = _queue(m, work, item)
    if work.queues[queue].running < m.fixed[0].room:
        work.queues[queue].running += 1
        _begin(m, work, item, now)
        return
    work.items[item].next = NONE
    if work.queues[queue].tail == NONE:
        work.queues[queue].head = item
    else:
        work.items[work.queues[queue].tail].next = item
    work.queues[queue].tail = item


@allocating
def _leave(m: Machine, work: Scratch, queue: int, now: int) -> None:
    """An item has left a queue: the next one that waits there begins."""
    item = work.queues[queue].head
    if item == NONE:
        work.queues[queue].running -= 1
        return
    work.queues[queue].head = work.items[item].next
    if work.queues[queue].head == NONE:
        work.queues[queue].tail = NONE
    _begin(m, work, item, now)


@allocating
def _begin(m: Machine, work: Scratch, item: int, now: int) -> None:
    """Begin an item's phase; when its last member has, compute all ends."""
    phase = work.first + work.items[item].phase
    if work.lanes == 1:
        end = _alike(m, phase, work.ranks, now)
        _push(work, item, end, end - _last_delay(m, phase))
        return
    chunks, chunk, lane = work.chunks, item % work.chunks, item // work.chunks
    count, stride = m.phases[phase].members, m.phases[phase].stride
    work.items[item].time = now
    low = 0 if stride == 0 else lane - ((lane // stride) % count) * stride
    box = (chunk * m.fixed[0].phases + work.items[item].phase) * work.lanes + low
    work.came[box] += 1
    if work.came[box] < count:
        return
    step = max(stride, 1)
    ranks, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    for place in range(count):
        ranks[place] = work.ranks[low + place * step]
        ends[place] = work.items[(low + place * step) * chunks + chunk].time
    if m.phases[phase].kind == RING:
        route = work.routes + chunk * m.fixed[0].phases + work.items[item].phase
        _ring(m, phase, m.routes[route].way, ranks, ends)
    elif m.phases[phase].kind == DIRECT:
        _direct(m, phase, ranks, ends)
    else:
        _halving_doubling(m, phase, ranks, ends)
    for place in range(count):
        _push(work, (low + place * step) * chunks + chunk, ends[place], ends[place] - _last_delay(m, phase))


@allocating
def solve(m: Machine, work: Scratch, instance: int) -> None:
    """Compute when each member of a collective is through, and when that end is registered.

    Args:
        m: The engine's tables.
        work: The collective, and room to compute in; see `make_scratch`.
        instance: Whose members' `end` and `since` are set.
    """
    slot, count = m.instances[instance].member, len(work.ranks)
    begins = np.empty(work.lanes, np.int64)
    for lane in range(work.lanes):
        begins[lane] = m.joins[slot + lane].start
    comes = np.argsort(begins, kind="mergesort")
    phases = m.plans[m.instances[instance].plan].last - work.first
    arrived = 0
    while arrived < work.lanes or work.size[0] > 0:
        lane = comes[min(arrived, work.lanes - 1)]
        if arrived < work.lanes and (work.size[0] == 0 or begins[lane] <= work.items[work.heap[0]].time):
            arrived += 1
            for chunk in range(work.chunks):
                _enter(m, work, lane * work.chunks + chunk, begins[lane])
            continue
        item = _pop(work)
        now, lane, queue = work.items[item].time, item // work.chunks, _queue(m, work, item)
        work.items[item].phase += 1
        if work.items[item].phase < phases:
            _enter(m, work, item, now)
        else:
            m.joins[slot + lane].left -= 1
            if m.joins[slot + lane].left == 0:
                m.joins[slot + lane].end, m.joins[slot + lane].since = now, work.items[item].since
        _leave(m, work, queue, now)
    for lane in range(work.lanes, count):
        m.joins[slot + lane].end, m.joins[slot + lane].since = m.joins[slot].end, m.joins[slot].since


@allocating
def make_scratch(m: Machine, instance: int, item: Records, queue: Records) -> Scratch:
    """Return what `solve` computes in; `item` and `queue` are empty tables of the right kinds."""
    plan = m.instances[instance].plan
    group = m.plans[plan].group
    count = m.groups[group].last - m.groups[group].first
    slot = m.instances[instance].member
    ranks = np.empty(count, np.int64)
    alike = m.plans[plan].uniform == 1
    for member in range(count):
        ranks[member] = m.members[m.groups[group].first + member].rank
        alike = alike and m.joins[slot + member].start == m.joins[slot].start
    lanes, chunks = 1 if alike else count, m.plans[plan].chunks
    items = np.zeros(lanes * chunks, item.dtype)
    queues = np.zeros(lanes * m.fixed[0].levels * m.fixed[0].queues, queue.dtype)
    for number in range(len(queues)):
        queues[number].head = NONE
        queues[number].tail = NONE
    came = np.zeros(0 if lanes == 1 else chunks * m.fixed[0].phases * lanes, np.int64)
    heap, size = np.empty(lanes * chunks, np.int64), np.zeros(2, np.int64)
    first, routes = m.plans[plan].first, m.instances[instance].stream * m.fixed[0].phases
    return Scratch(items, queues, heap, size, came, ranks, lanes, chunks, first, routes)
