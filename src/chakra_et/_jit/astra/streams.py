"""The collective algorithms as state machines: what a chunk does at its start, on a message, and when a delay is over.

A step is one send and the receive that is posted with it: the k-th send of a rank is the k-th receive of the rank that
it goes to. Each receive has a mailbox entry, which says whether the message or the receive is there first: a step one
(halving-doubling), a neighbor one (trees, and direct: two ranks may go through the others in opposite directions), or
one in all (ring). Messages between two ranks come in order, so that counting is enough.

Rules and sources: docs/astra-sim.md.
"""

from __future__ import annotations

from chakra_et._jit.astra.events import push_event, register
from chakra_et._jit.astra.network import new_message, send_message
from chakra_et._jit.astra.state import (
    CALL_GENERAL,
    CALL_REDUCE,
    DIRECT,
    DOUBLE_BINARY_TREE,
    EVENT_LATE,
    HALVING_DOUBLING,
    REQUEST_BYTES,
    RING,
    Machine,
)
from chakra_et._jit.hot import inner, leaf

__all__ = [
    "begin_phase",
    "go_on",
    "message_came",
    "rank_of",
    "reduce_packet",
    "request_came",
    "send_data",
    "take_message",
]

# States of a chunk in a tree, in the order in which it goes through them.
_FIRST_CHILD, _LAST_CHILD, _SEND_UP, _PARENT, _SEND_DOWN, _END = range(6)
_ROOT, _LEAF, _INNER = range(3)
_LEFT, _RIGHT, _UP = range(3)  # mailbox entries of a tree


@leaf
def _phase(m: Machine, stream: int) -> int:
    """Return the phase that a stream is in, as a position in the plans' phases."""
    return m.plans[m.instances[m.streams[stream].instance].plan].first + m.streams[stream].phase


@leaf
def _member(m: Machine, stream: int) -> int:
    """Return the position of a stream's rank among the members of its collective."""
    instance = m.streams[stream].instance
    return (stream - m.instances[instance].stream) // m.plans[m.instances[instance].plan].chunks


@leaf
def rank_of(m: Machine, stream: int) -> int:
    """Return the rank of a stream."""
    group = m.plans[m.instances[m.streams[stream].instance].plan].group
    return m.members[m.groups[group].first + _member(m, stream)].rank


@leaf
def _way(m: Machine, stream: int, phase: int) -> int:
    number = phase - m.plans[m.instances[m.streams[stream].instance].plan].first
    return m.routes[stream * m.fixed[0].phases + number].way


@leaf
def _other(m: Machine, stream: int, phase: int, place: int) -> tuple[int, int]:
    """Return the stream of the same chunk at a place of the phase, and its rank; of a folded job, that of rank 0."""
    instance = m.streams[stream].instance
    member = _member(m, stream)
    stride = m.phases[phase].stride
    other = place
    if stride > 0:
        other = member + (place - (member // stride) % m.phases[phase].members) * stride
    if m.fixed[0].fold == 1:
        return stream, other
    plan = m.instances[instance].plan
    base, chunks = m.instances[instance].stream, m.plans[plan].chunks
    rank = m.members[m.groups[m.plans[plan].group].first + other].rank
    return base + other * chunks + (stream - base) % chunks, rank


@leaf
def _place(m: Machine, stream: int, phase: int) -> int:
    """Return where a stream's rank stands in its instance of a phase, 0 .. members - 1."""
    member, stride = _member(m, stream), m.phases[phase].stride
    return member if stride == 0 else (member // stride) % m.phases[phase].members


@leaf
def _partner(m: Machine, stream: int, phase: int, entry: int, sign: int) -> int:
    """Return the place that a step's message goes to (sign 1) or comes from (sign -1)."""
    place, count = _place(m, stream, phase), m.phases[phase].members
    if m.phases[phase].kind == HALVING_DOUBLING:
        return place ^ m.steps[m.phases[phase].step + entry].distance
    way = _way(m, stream, phase)
    if m.phases[phase].kind == DOUBLE_BINARY_TREE:
        return _tree_neighbor(place, count, way, entry)
    distance = 1 if m.phases[phase].kind == RING else 1 + entry % (count - 1)
    return (place + sign * way * distance) % count


@inner
def _tree_neighbor(place: int, count: int, way: int, entry: int) -> int:
    """Return a neighbor in a perfect in-order tree of the places 1 .. count - 1 below a root, itself last or first."""
    shift = 1 if way == 1 else 0
    at = place + shift
    if at == count * shift:
        return count // 2 - shift
    low = at & -at
    if entry == _UP:
        return (count - 1 if way == 1 else 0) if 2 * low == count else ((at & ~low) | (2 * low)) - shift
    return at - low // 2 - shift if entry == _LEFT else at + low // 2 - shift


@leaf
def _source(m: Machine, stream: int, phase: int, entry: int) -> int:
    """Return the place that the message of a mailbox entry comes from."""
    if m.phases[phase].kind == DIRECT:
        return (_place(m, stream, phase) + 1 + entry) % m.phases[phase].members
    return _partner(m, stream, phase, entry, -1)


@leaf
def _box(m: Machine, stream: int, phase: int, entry: int) -> int:
    instance = m.streams[stream].instance
    size = m.plans[m.instances[instance].plan].mail
    base = m.instances[instance].mail + (stream - m.instances[instance].stream) * size
    return base + m.phases[phase].mailbox + (0 if m.phases[phase].kind == RING else entry)


@leaf
def _bytes(m: Machine, phase: int, entry: int) -> int:
    if m.phases[phase].kind == HALVING_DOUBLING:
        return m.steps[m.phases[phase].step + entry].bytes
    return m.phases[phase].bytes


@leaf
def _message(m: Machine, stream: int, phase: int, entry: int, size: int) -> int:
    message = new_message(m, size)
    m.messages[message].stream = stream
    m.messages[message].phase = phase
    m.messages[message].entry = entry
    return message


@inner
def send_data(m: Machine, stream: int, phase: int, entry: int) -> None:
    """Send the message of a receiving stream's mailbox entry off."""
    _, source = _other(m, stream, phase, _source(m, stream, phase, entry))
    message = _message(m, stream, phase, entry, _bytes(m, phase, entry))
    send_message(m, message, source, rank_of(m, stream))


@leaf
def _send(
    m: Machine,
    stream: int,
    phase: int,
    step: int,
) -> None:
    """Send what belongs to a step (of a tree: to a neighbor); with rendezvous, when the receiver has asked for it."""
    place = _partner(m, stream, phase, step, 1)
    goal, target = _other(m, stream, phase, place)
    entry = step
    if m.phases[phase].kind == DOUBLE_BINARY_TREE:
        entry = _UP
        if step == _UP:
            way, own = _way(m, stream, phase), _place(m, stream, phase)
            left = _tree_neighbor(place, m.phases[phase].members, way, _LEFT)
            entry = _LEFT if left == own else _RIGHT
    elif m.phases[phase].kind == DIRECT:
        entry = (_place(m, stream, phase) - place - 1) % m.phases[phase].members
    if m.fixed[0].rendezvous == 1:
        box = _box(m, goal, phase, entry)
        came = m.boxes[box].requests > 0
        m.boxes[box].requests -= 1
        if came:
            late = _message(m, goal, phase, entry, 0)
            m.messages[late].request = 1
            push_event(m, m.clock[0].now, EVENT_LATE, late)
        return
    message = _message(m, goal, phase, entry, _bytes(m, phase, entry))
    send_message(m, message, rank_of(m, stream), target)


@leaf
def _post(
    m: Machine,
    stream: int,
    phase: int,
    step: int,
) -> None:
    """Post the receive of a step (of a tree: from a neighbor); with rendezvous, ask the sender for it first."""
    entry = step
    if m.phases[phase].kind == DIRECT:
        own = _place(m, stream, phase)
        entry = (_partner(m, stream, phase, step, -1) - own - 1) % m.phases[phase].members
    if m.fixed[0].rendezvous == 1:
        _, source = _other(m, stream, phase, _source(m, stream, phase, entry))
        message = _message(m, stream, phase, entry, REQUEST_BYTES)
        m.messages[message].request = 1
        send_message(m, message, rank_of(m, stream), source)
        return
    _expect(m, stream, phase, entry)


@leaf
def _expect(m: Machine, stream: int, phase: int, entry: int) -> None:
    """A message that is there already counts from an event at the end of this tick on."""
    box = _box(m, stream, phase, entry)
    there = m.boxes[box].messages > 0
    m.boxes[box].messages -= 1
    if there:
        late = _message(m, stream, phase, entry, 0)
        push_event(m, m.clock[0].now, EVENT_LATE, late)


@leaf
def message_came(m: Machine, stream: int, phase: int, entry: int) -> bool:
    """Return True if a message that has arrived was expected; else it waits."""
    box = _box(m, stream, phase, entry)
    expected = m.boxes[box].messages < 0
    m.boxes[box].messages += 1
    return expected


@inner
def request_came(m: Machine, stream: int, phase: int, entry: int) -> bool:
    """The sender got a request: its receiver expects the message now. Return True if the sender waits for that."""
    _expect(m, stream, phase, entry)
    box = _box(m, stream, phase, entry)
    waits = m.boxes[box].requests < 0
    m.boxes[box].requests += 1
    return waits


@leaf
def _bus(m: Machine, stream: int, phase: int, kind: int) -> None:
    """Take a packet over the bus: `kind` is CALL_GENERAL, or CALL_REDUCE for one that is reduced after it."""
    now = m.clock[0].now
    register(m, rank_of(m, stream), now + m.phases[phase].bus_ns, kind, stream)


@inner
def begin_phase(m: Machine, stream: int) -> None:
    """Start a phase of a stream: its queue has room."""
    phase = _phase(m, stream)
    m.streams[stream].left = m.phases[phase].sends
    m.streams[stream].free = 0
    m.streams[stream].received = 0
    if m.phases[phase].kind != DOUBLE_BINARY_TREE:
        for _ in range(m.phases[phase].window):
            _bus(m, stream, phase, CALL_GENERAL)
        return
    role = _role(m, stream, phase)
    if role == _LEAF:
        m.streams[stream].state = _SEND_UP
        _bus(m, stream, phase, CALL_GENERAL)
        return
    m.streams[stream].state = _LAST_CHILD if role == _ROOT else _FIRST_CHILD
    _post(m, stream, phase, _LEFT)
    if role == _INNER:
        _post(m, stream, phase, _RIGHT)


@leaf
def _role(m: Machine, stream: int, phase: int) -> int:
    place, way = _place(m, stream, phase), _way(m, stream, phase)
    if place == (m.phases[phase].members - 1 if way == 1 else 0):
        return _ROOT
    return _LEAF if (place + (1 if way == 1 else 0)) & 1 else _INNER


@leaf
def _is_reduced(m: Machine, stream: int, phase: int) -> bool:
    """Return True if the message that a stream has just received is reduced."""
    received, cycle = m.streams[stream].received, m.phases[phase].cycle
    if cycle == 0:
        return received <= m.phases[phase].reduced
    window = m.phases[phase].window
    packet = window + received - 1
    if packet % (window + cycle) < window:
        return False
    return m.phases[phase].gate == 0 or packet // (window + cycle) % 2 == 0


@leaf
def take_message(m: Machine, stream: int) -> None:
    """A posted receive and its message have met."""
    phase = _phase(m, stream)
    if m.phases[phase].kind != DOUBLE_BINARY_TREE:
        m.streams[stream].received += 1
        _bus(m, stream, phase, CALL_REDUCE if _is_reduced(m, stream, phase) else CALL_GENERAL)
        return
    leaf = _role(m, stream, phase) == _LEAF
    state = m.streams[stream].state
    if state == _FIRST_CHILD:
        m.streams[stream].state = _LAST_CHILD
    elif state == _LAST_CHILD:
        root = _role(m, stream, phase) == _ROOT
        m.streams[stream].state = _SEND_DOWN if root else _SEND_UP
    else:
        m.streams[stream].state = _END if leaf else _SEND_DOWN
    _bus(m, stream, phase, CALL_GENERAL if leaf else CALL_REDUCE)


@leaf
def reduce_packet(m: Machine, stream: int) -> None:
    """A packet that must be reduced has crossed the bus."""
    phase = _phase(m, stream)
    time = m.phases[phase].reduce_ns
    if m.phases[phase].kind == HALVING_DOUBLING:
        time = m.steps[m.phases[phase].step + m.streams[stream].received - 1].reduce_ns
    now = m.clock[0].now
    register(m, rank_of(m, stream), now + time, CALL_GENERAL, stream)


@leaf
def go_on(m: Machine, stream: int) -> bool:
    """A packet is through: send what may be sent. Return True if the phase has ended."""
    phase = _phase(m, stream)
    if m.phases[phase].kind == DOUBLE_BINARY_TREE:
        return _go_on_in_tree(m, stream, phase)
    m.streams[stream].free += 1
    gate, rounds = m.phases[phase].gate, 1
    if gate > 0 and m.streams[stream].left <= gate:
        if m.streams[stream].received < gate:
            return False
        rounds = m.phases[phase].window
    for _ in range(rounds):
        if m.streams[stream].left > 0 and m.streams[stream].free > 0:
            step = m.phases[phase].sends - m.streams[stream].left
            m.streams[stream].left -= 1
            m.streams[stream].free -= 1
            _send(m, stream, phase, step)
            _post(m, stream, phase, step)
        if m.streams[stream].left == 0 and m.streams[stream].free == m.phases[phase].window:
            return True
    return False


@inner
def _go_on_in_tree(m: Machine, stream: int, phase: int) -> bool:
    role = _role(m, stream, phase)
    state = m.streams[stream].state
    if role == _INNER and m.streams[stream].received == 0:
        m.streams[stream].received = 1  # the first of two reductions
        return False
    if state == _SEND_UP:
        m.streams[stream].state = _PARENT
        _send(m, stream, phase, _UP)
        _post(m, stream, phase, _UP)
        return False
    if state == _SEND_DOWN:
        _send(m, stream, phase, _LEFT)
        if role == _INNER:
            _send(m, stream, phase, _RIGHT)
    return True
