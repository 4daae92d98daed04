"""Collectives whose times follow from the starts of their members, without a message being looked at.

Without contention, a ring, halving-doubling or full-window direct phase ends where a recurrence over its steps says.
Nobody leaves such a phase before all have come, so it can be computed when its last member starts it: what is left of
the simulation are the starts and ends of phases. Members that do the same at the same time are computed once.

Rules and sources: docs/astra-sim.md.

Item lane * chunks + chunk of `m.items` stands for a chunk at a lane, which is a member, or stands for all. `m.job`
holds what concerns the collective at hand, `m.lanes` has a row for each place of the phase at hand.
"""

from __future__ import annotations

from chakra_et._jit.astra.lists import append, take
from chakra_et._jit.astra.network import delay
from chakra_et._jit.astra.state import DIRECT, HALVING_DOUBLING, NONE, RING, Machine
from chakra_et._jit.hot import inner, leaf

__all__ = ["solve"]


@leaf
def _rank(m: Machine, member: int) -> int:
    """Return the rank of a member of the collective at hand."""
    return m.members[m.job[0].member + member].rank


@leaf
def _hop(m: Machine, phase: int, distance: int, size: int) -> int:
    """Return the delay between places of a phase whose members are alike."""
    stride = m.phases[phase].stride
    if stride == 0:
        return delay(m, _rank(m, 0), _rank(m, distance), size)
    return delay(m, 0, distance * stride, size)


@inner
def _alike(m: Machine, phase: int, start: int) -> int:
    """Return the end of a phase whose members all start at once and are alike."""
    bus, size = m.phases[phase].bus_ns, m.phases[phase].bytes
    if m.phases[phase].kind == RING:
        hop = _hop(m, phase, 1, size)
        return start + bus + m.phases[phase].sends * (hop + bus) + m.phases[phase].reduced * m.phases[phase].reduce_ns
    if m.phases[phase].kind == DIRECT:
        longest = 0
        for distance in range(1, m.phases[phase].members):
            longest = max(longest, _hop(m, phase, distance, size))
        return start + 2 * bus + longest + (m.phases[phase].reduce_ns if m.phases[phase].reduced > 0 else 0)
    end = start + bus
    for number in range(m.phases[phase].sends):
        step = m.phases[phase].step + number
        end += _hop(m, phase, m.steps[step].distance, m.steps[step].bytes) + bus
        if number < m.phases[phase].reduced:
            end += m.steps[step].reduce_ns
    return end


@inner
def _ring(m: Machine, phase: int, way: int) -> None:
    """Turn the starts of a ring's members into ends; the way is that of the messages.

    T_i(k) = max(T_(i-1)(k-1) + hop_(i-1), T_i(k-1)) + bus (+ reduction), T_i(0) = start_i + bus.
    """
    count, bus, lanes = m.phases[phase].members, m.phases[phase].bus_ns, m.lanes
    for place in range(count):
        lanes[place].hop = delay(m, lanes[place].rank, lanes[(place + way) % count].rank, m.phases[phase].bytes)
        lanes[place].time += bus
    first = 0 if way == 1 else count - 1
    last = count - 1 - first
    for step in range(m.phases[phase].sends):
        rest = bus + (m.phases[phase].reduce_ns if step < m.phases[phase].reduced else 0)
        came = lanes[last].time + lanes[last].hop
        place = first
        for _ in range(count):
            own = lanes[place].time
            lanes[place].time = max(came, own) + rest
            came = own + lanes[place].hop
            place += way


@inner
def _halving_doubling(m: Machine, phase: int) -> None:
    """Turn starts into ends: in each step, partners exchange and both wait for each other."""
    count, bus, lanes = m.phases[phase].members, m.phases[phase].bus_ns, m.lanes
    for place in range(count):
        lanes[place].time += bus
    for number in range(m.phases[phase].sends):
        step = m.phases[phase].step + number
        distance, size = m.steps[step].distance, m.steps[step].bytes
        rest = bus + (m.steps[step].reduce_ns if number < m.phases[phase].reduced else 0)
        for place in range(count):
            other = place ^ distance
            if other > place:
                one, two = lanes[place].time, lanes[other].time
                lanes[place].time = max(one, two + delay(m, lanes[other].rank, lanes[place].rank, size)) + rest
                lanes[other].time = max(two, one + delay(m, lanes[place].rank, lanes[other].rank, size)) + rest


@inner
def _direct(m: Machine, phase: int) -> None:
    """Turn starts into ends: everybody sends to everybody at once."""
    count, bus, lanes = m.phases[phase].members, m.phases[phase].bus_ns, m.lanes
    rest = bus + (m.phases[phase].reduce_ns if m.phases[phase].reduced > 0 else 0)
    for place in range(count):
        last = lanes[place].time + bus
        for other in range(count):
            if other != place:
                came = lanes[other].time + bus
                came += delay(m, lanes[other].rank, lanes[place].rank, m.phases[phase].bytes)
                last = max(last, came)
        lanes[place].hop = last + rest
    for place in range(count):
        lanes[place].time = lanes[place].hop


@leaf
def _last_delay(m: Machine, phase: int) -> int:
    """Return how long before a phase's end that end is registered: the last delay in it."""
    if m.phases[phase].kind != HALVING_DOUBLING and m.phases[phase].reduced == m.phases[phase].sends:
        return m.phases[phase].reduce_ns
    return m.phases[phase].bus_ns


@leaf
def _before(m: Machine, one: int, other: int) -> bool:
    items = m.items
    if items[one].time != items[other].time:
        return items[one].time < items[other].time
    if items[one].since != items[other].since:
        return items[one].since < items[other].since
    return items[one].order < items[other].order


@inner
def _push(m: Machine, item: int, time: int, since: int) -> None:
    """Queue the end of an item's phase."""
    heap, at = m.item_heap, m.job[0].queued
    m.items[item].time, m.items[item].since, m.items[item].order = time, since, m.job[0].order
    m.job[0].queued += 1
    m.job[0].order += 1
    while at > 0 and _before(m, item, heap[(at - 1) >> 1]):
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = item


@inner
def _pop(m: Machine) -> int:
    """Take the item whose phase ends next."""
    heap, size = m.item_heap, m.job[0].queued - 1
    m.job[0].queued = size
    top, item = heap[0], heap[size]
    at, child = 0, 1
    while child < size:
        if child + 1 < size and _before(m, heap[child + 1], heap[child]):
            child += 1
        if not _before(m, heap[child], item):
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = item
    return top


@leaf
def _route(m: Machine, item: int) -> int:
    """Return where queue and way of an item's phase are."""
    return m.job[0].routes + item % m.job[0].chunks * m.fixed[0].phases + m.items[item].phase


@leaf
def _queue(m: Machine, item: int) -> int:
    """Return the queue of an item's phase, counted over all lanes."""
    lane = item // m.job[0].chunks
    return lane * m.fixed[0].levels * m.fixed[0].queues + m.routes[_route(m, item)].queue


@leaf
def _enter(m: Machine, item: int) -> int:
    """Put an item into the queue of its phase; return it if there is room for it to begin, else -1."""
    queue = _queue(m, item)
    if m.item_queues[queue].running < m.fixed[0].room:
        m.item_queues[queue].running += 1
        return item
    append(m.item_queues, m.items, queue, item)
    return NONE


@leaf
def _leave(m: Machine, queue: int) -> int:
    """An item has left a queue; return the next one that waits there, or -1."""
    item = take(m.item_queues, m.items, queue)
    if item == NONE:
        m.item_queues[queue].running -= 1
    return item


@inner
def _begin(m: Machine, item: int, now: int) -> None:
    """Begin an item's phase; when its last member has, compute all ends."""
    phase = m.job[0].first + m.items[item].phase
    if m.job[0].lanes == 1:
        end = _alike(m, phase, now)
        _push(m, item, end, end - _last_delay(m, phase))
        return
    chunks = m.job[0].chunks
    chunk, lane = item % chunks, item // chunks
    count, stride = m.phases[phase].members, m.phases[phase].stride
    m.items[item].time = now
    low = 0 if stride == 0 else lane - lane // stride % count * stride
    box = (chunk * m.fixed[0].phases + m.items[item].phase) * m.job[0].lanes + low
    m.begun[box] += 1
    if m.begun[box] < count:
        return
    step = max(stride, 1)
    for place in range(count):
        m.lanes[place].rank = _rank(m, low + place * step)
        m.lanes[place].time = m.items[(low + place * step) * chunks + chunk].time
    if m.phases[phase].kind == RING:
        _ring(m, phase, m.routes[_route(m, item)].way)
    elif m.phases[phase].kind == DIRECT:
        _direct(m, phase)
    else:
        _halving_doubling(m, phase)
    for place in range(count):
        end = m.lanes[place].time
        _push(m, (low + place * step) * chunks + chunk, end, end - _last_delay(m, phase))


@leaf
def _prepare(m: Machine, instance: int) -> None:
    """Set up the job: how many lanes, and an item for the arrival of each."""
    plan = m.instances[instance].plan
    group, slot = m.plans[plan].group, m.instances[instance].member
    count = m.groups[group].last - m.groups[group].first
    alike = m.plans[plan].uniform == 1
    for member in range(count):
        alike = alike and m.joins[slot + member].start == m.joins[slot].start
    lanes, chunks = 1 if alike else count, m.plans[plan].chunks
    m.job[0].lanes, m.job[0].chunks, m.job[0].first = lanes, chunks, m.plans[plan].first
    m.job[0].routes = m.instances[instance].stream * m.fixed[0].phases
    m.job[0].member, m.job[0].queued, m.job[0].order = m.groups[group].first, 0, 0
    for item in range(lanes * chunks):
        m.items[item].phase = 0
    for queue in range(lanes * m.fixed[0].levels * m.fixed[0].queues):
        m.item_queues[queue].running = 0
        m.item_queues[queue].head = NONE
        m.item_queues[queue].tail = NONE
    for box in range(0 if alike else chunks * m.fixed[0].phases * lanes):
        m.begun[box] = 0
    for lane in range(lanes):
        m.items[lane * chunks].phase = NONE
        _push(m, lane * chunks, m.joins[slot + lane].start, -1)


@inner
def solve(m: Machine, instance: int) -> bool:
    """Compute when each member of a collective is through, and when that is registered; return False if it never is.

    Chunks may wait for one another in the queues for ever, where ranks run them in different orders.
    """
    _prepare(m, instance)
    slot, chunks, lanes = m.instances[instance].member, m.job[0].chunks, m.job[0].lanes
    phases = m.plans[m.instances[instance].plan].last - m.job[0].first
    while m.job[0].queued > 0:
        item = _pop(m)
        now, lane = m.items[item].time, item // chunks
        entering, freed = 1, NONE
        if m.items[item].phase == NONE:
            entering = chunks
        else:
            freed = _queue(m, item)
        m.items[item].phase += 1
        if m.items[item].phase == phases:
            entering = 0
            m.joins[slot + lane].left -= 1
            if m.joins[slot + lane].left == 0:
                m.joins[slot + lane].end, m.joins[slot + lane].since = now, m.items[item].since
        # Who takes the place that is left comes before whoever enters the next queue.
        for number in range(0 if freed == NONE else -1, entering):
            beginner = _leave(m, freed) if number < 0 else _enter(m, item + number)
            if beginner != NONE:
                _begin(m, beginner, now)
    for lane in range(lanes):
        if m.joins[slot + lane].left > 0:
            return False
    for lane in range(lanes, m.groups[m.plans[m.instances[instance].plan].group].last - m.job[0].member):
        m.joins[slot + lane].end, m.joins[slot + lane].since = m.joins[slot].end, m.joins[slot].since
    return True
