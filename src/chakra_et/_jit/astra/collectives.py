"""Instances of collectives: who has come, which chunk runs in which queue, and when a member is through.

A rank's chunks enter the queue of their first phase at once; a queue runs as many of them as it has room for, first in,
first out. On leaving a phase, a chunk frees its place in the queue before it enters the next one; on leaving the last
phase, what the collective's end sets off comes first.
"""

from __future__ import annotations

from chakra_et._jit.astra.events import push_event, register
from chakra_et._jit.astra.lists import append, take
from chakra_et._jit.astra.solve import solve
from chakra_et._jit.astra.state import (
    CALL_NODE,
    DOUBLE_BINARY_TREE,
    EVENT_SOLVED,
    NONE,
    RING,
    STATUS_AGAIN,
    STATUS_MISMATCH,
    STATUS_OPPOSED,
    Machine,
)
from chakra_et._jit.astra.streams import begin_phase
from chakra_et._jit.hot import inner, leaf

__all__ = ["end_member", "enter_queue", "free_place", "join_collective"]


@inner
def _find_instance(m: Machine, group: int, number: int, plan: int) -> int:
    """Return the instance of a group's k-th collective; make it if it isn't there yet."""
    before, instance = NONE, m.groups[group].head
    while instance != NONE and m.instances[instance].number < number:
        before, instance = instance, m.instances[instance].next
    if instance != NONE and m.instances[instance].number == number:
        return instance
    fresh = m.plans[plan].free
    members = m.groups[group].last - m.groups[group].first
    count = m.plans[plan].chunks * (1 if m.plans[plan].solve == 1 else members)
    mail = 0 if m.plans[plan].solve == 1 else count * m.plans[plan].mail
    if fresh != NONE:
        m.plans[plan].free = m.instances[fresh].next
    else:
        fresh = m.clock[0].instances
        m.instances[fresh].plan = plan
        m.instances[fresh].stream = m.clock[0].streams
        m.instances[fresh].mail = m.clock[0].boxes
        m.instances[fresh].member = m.clock[0].joins
        m.clock[0].streams += count
        m.clock[0].boxes += mail
        m.clock[0].joins += members
        m.clock[0].instances += 1
    for stream in range(m.instances[fresh].stream, m.instances[fresh].stream + count):
        m.streams[stream].instance = fresh
    for box in range(m.instances[fresh].mail, m.instances[fresh].mail + mail):
        m.boxes[box].messages = 0
        m.boxes[box].requests = 0
    m.instances[fresh].number = number
    m.instances[fresh].arrived = 0
    m.instances[fresh].done = 0
    m.instances[fresh].next = instance
    if before == NONE:
        m.groups[group].head = fresh
    else:
        m.instances[before].next = fresh
    return fresh


@inner
def end_member(m: Machine, instance: int) -> None:
    """A member is through; after the last one, the instance may be used again."""
    plan = m.instances[instance].plan
    group = m.plans[plan].group
    m.instances[instance].done += 1
    if m.instances[instance].done < m.groups[group].last - m.groups[group].first:
        return
    before, other = NONE, m.groups[group].head
    while other != instance:
        before, other = other, m.instances[other].next
    if before == NONE:
        m.groups[group].head = m.instances[instance].next
    else:
        m.instances[before].next = m.instances[instance].next
    m.instances[instance].next = m.plans[plan].free
    m.plans[plan].free = instance


@leaf
def _turn(m: Machine, rank: int, level: int, rotation: int) -> int:
    """Return the next queue of a level, in turn: of all (rotation 0), of the first half (1), of the second (2)."""
    count = m.fixed[0].queues
    half = max(count // 2, 1)
    begin = half if rotation == 2 and count > 1 else 0
    room = count if rotation == 0 or count == 1 else (half if rotation == 1 else count - half)
    slot = (rank * m.fixed[0].levels + level) * 3 + rotation
    turn = m.rotation[slot]
    m.rotation[slot] = (turn + 1) % room
    return begin + turn


@inner
def _choose_queues(m: Machine, rank: int, plan: int, stream: int, others: bool) -> bool:
    """Choose queue and way of every phase of every chunk, the first of which is `stream`.

    Where all members share streams, return False if the ways of rings aren't those that others have chosen.
    """
    same = True
    for chunk in range(m.plans[plan].chunks):
        for phase in range(m.plans[plan].first, m.plans[plan].last):
            place = (stream + chunk) * m.fixed[0].phases + phase - m.plans[plan].first
            level, rotation = m.phases[phase].level, m.phases[phase].rotation
            turn = _turn(m, rank, level, rotation)
            m.routes[place].queue = level * m.fixed[0].queues + turn
            back = rotation == 2 or (rotation == 0 and m.fixed[0].queues > 1 and turn >= m.fixed[0].queues // 2)
            before, m.routes[place].way = m.routes[place].way, -1 if back else 1
            if m.phases[phase].kind == RING and m.phases[phase].members > 2 and m.routes[place].way != before:
                same = not others
            if m.phases[phase].kind == DOUBLE_BINARY_TREE:
                slot = rank * m.fixed[0].trees + m.phases[phase].tree
                m.routes[place].way = -1 if m.turns[slot] == 1 else 1
                m.turns[slot] = 1 - m.turns[slot]
    return same


@inner
def _opposed(m: Machine, instance: int, plan: int, member: int, other: int, phase: int) -> bool:
    """Return True if a neighbor in a ring has chosen the other way for a chunk: their messages never meet."""
    slot = m.groups[m.plans[plan].group].first + other
    if other == member or m.members[slot].counter <= m.instances[instance].number:
        return False
    chunks, base = m.plans[plan].chunks, m.instances[instance].stream
    for chunk in range(chunks):
        own = (base + member * chunks + chunk) * m.fixed[0].phases + phase - m.plans[plan].first
        its = (base + other * chunks + chunk) * m.fixed[0].phases + phase - m.plans[plan].first
        if m.routes[own].way != m.routes[its].way:
            return True
    return False


@inner
def _rings_meet(m: Machine, instance: int, plan: int, member: int) -> bool:
    """Return True if a member goes round its rings as its neighbors do, as far as they have come."""
    for phase in range(m.plans[plan].first, m.plans[plan].last):
        count, stride = m.phases[phase].members, max(m.phases[phase].stride, 1)
        if m.phases[phase].kind == RING and count > 2:
            place = member // stride % count
            for step in (1, count - 1):
                other = member + ((place + step) % count - place) * stride
                if _opposed(m, instance, plan, member, other, phase):
                    m.clock[0].wrong_other = m.joins[m.instances[instance].member + other].node
                    return False
    return True


@inner
def enter_queue(m: Machine, rank: int, stream: int) -> None:
    """Put a stream into the queue of its phase, or start it if there is room."""
    route = stream * m.fixed[0].phases + m.streams[stream].phase
    queue = rank * m.fixed[0].levels * m.fixed[0].queues + m.routes[route].queue
    if m.queues[queue].running < m.fixed[0].room:
        m.queues[queue].running += 1
        begin_phase(m, stream)
        return
    append(m.queues, m.streams, queue, stream)


@inner
def free_place(m: Machine, queue: int) -> None:
    """A stream has left a queue: the next one that waits there starts."""
    stream = take(m.queues, m.streams, queue)
    if stream == NONE:
        m.queues[queue].running -= 1
    else:
        begin_phase(m, stream)


@inner
def join_collective(m: Machine, node: int) -> bool:
    """A rank issues a collective. Return False if that can't be; the clock's `failure` says why."""
    rank, plan, now = m.nodes[node].rank, m.nodes[node].plan, m.clock[0].now
    group = m.plans[plan].group
    member = m.places[group * m.fixed[0].ranks + rank]
    slot = m.groups[group].first + member
    number = m.members[slot].counter
    m.members[slot].counter = number + 1
    instance = _find_instance(m, group, number, plan)
    if m.instances[instance].plan != plan:
        m.clock[0].wrong_node, m.clock[0].wrong_instance = node, instance
        m.clock[0].failure = STATUS_MISMATCH
        return False
    own = m.instances[instance].member + member
    m.joins[own].node, m.joins[own].start = node, now
    m.joins[own].instance = instance
    m.joins[own].left = m.plans[plan].chunks
    m.instances[instance].arrived += 1
    if m.plans[plan].first == m.plans[plan].last:
        # Nothing to do: a group of one, or no dimension. ASTRA-sim never ends it.
        register(m, rank, now, CALL_NODE, node)
        end_member(m, instance)
        return True
    base = m.instances[instance].stream
    if m.plans[plan].solve == 0:
        base += member * m.plans[plan].chunks
    shared = m.plans[plan].solve == 1 and m.instances[instance].arrived > 1
    if not _choose_queues(m, rank, plan, base, shared):
        m.clock[0].failure = STATUS_AGAIN
        return False
    if m.plans[plan].solve == 1:
        members = m.groups[group].last - m.groups[group].first
        if m.instances[instance].arrived == members:
            if not solve(m, instance):
                m.clock[0].failure = STATUS_AGAIN
                return False
            for slot in range(m.instances[instance].member, m.instances[instance].member + members):
                push_event(m, m.joins[slot].since, EVENT_SOLVED, slot)
        return True
    if m.fixed[0].fold == 0 and not _rings_meet(m, instance, plan, member):
        m.clock[0].wrong_node = node
        m.clock[0].failure = STATUS_OPPOSED
        return False
    for stream in range(base, base + m.plans[plan].chunks):
        m.streams[stream].phase = 0
        enter_queue(m, rank, stream)
    return True
