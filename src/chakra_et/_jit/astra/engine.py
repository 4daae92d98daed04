"""The event loop: which nodes a rank issues, and what happens when one ends.

A rank has three slots: CPU, GPU compute, communication. At its start and after each end of a node it goes through the
nodes that are free of dependencies, in ascending id, and issues each whose slot is free.

Rules and sources: docs/astra-sim.md.
"""

from __future__ import annotations

from chakra_et._jit.astra.collectives import end_member, enter_queue, free_place, join_collective
from chakra_et._jit.astra.events import note, pop_event, push_event, register, release_call, take_bundle
from chakra_et._jit.astra.lists import append, take
from chakra_et._jit.astra.network import free_link, new_message, next_hop, release_message, send_message
from chakra_et._jit.astra.state import (
    CALL_END,
    CALL_GENERAL,
    CALL_MEMORY,
    CALL_NODE,
    CALL_REDUCE,
    CLASSES,
    EVENT_FREE,
    EVENT_HOP,
    EVENT_LATE,
    EVENT_RANK,
    EVENT_SOLVED,
    KIND_COLLECTIVE,
    KIND_CUSTOM,
    KIND_INVALID,
    KIND_MEMORY,
    KIND_METADATA,
    KIND_RECV,
    KIND_SEND,
    KIND_TIMED,
    NONE,
    REQUEST_BYTES,
    STATUS_AGAIN,
    STATUS_DONE,
    STATUS_GROW,
    STATUS_PAUSE,
    Machine,
)
from chakra_et._jit.astra.streams import (
    go_on,
    message_came,
    rank_of,
    reduce_packet,
    request_came,
    send_data,
    take_message,
)
from chakra_et._jit.hot import inner, leaf, outer, pasted

__all__ = ["run"]


@leaf
def _make_ready(m: Machine, node: int) -> None:
    """Add a node to its rank's and slot's heap."""
    heap = m.nodes[node].rank * CLASSES + m.nodes[node].slot
    base, at = m.heaps[heap].first, m.heaps[heap].used
    m.heaps[heap].used += 1
    while at > 0:
        parent = (at - 1) >> 1
        if m.ready[base + parent] < node:
            break
        m.ready[base + at] = m.ready[base + parent]
        at = parent
    m.ready[base + at] = node


@leaf
def _take_ready(m: Machine, heap: int) -> int:
    """Take the node with the lowest id from a heap."""
    base, size = m.heaps[heap].first, m.heaps[heap].used - 1
    m.heaps[heap].used = size
    top, last = m.ready[base], m.ready[base + size]
    at, child = 0, 1
    while child < size:
        if child + 1 < size and m.ready[base + child + 1] < m.ready[base + child]:
            child += 1
        if last < m.ready[base + child]:
            break
        m.ready[base + at] = m.ready[base + child]
        at, child = child, 2 * child + 1
    m.ready[base + at] = last
    return top


@leaf
def _node_message(m: Machine, node: int, size: int, request: int) -> int:
    message = new_message(m, size)
    m.messages[message].stream = NONE
    m.messages[message].entry = node
    m.messages[message].request = request
    return message


@leaf
def _late(m: Machine, node: int, request: int) -> None:
    """What a node waits for is there already: tell it by an event at the end of this tick."""
    push_event(m, m.clock[0].now, EVENT_LATE, _node_message(m, node, 0, request))


@inner
def _send_node(m: Machine, node: int) -> None:
    message = _node_message(m, node, m.nodes[node].bytes, 0)
    send_message(m, message, m.nodes[node].rank, m.nodes[node].peer)


@inner
def _expect_node(m: Machine, node: int) -> None:
    key = m.nodes[node].plan
    if m.keys[key].count > 0:
        m.keys[key].count -= 1
        _late(m, node, 0)
    else:
        append(m.keys, m.state, key, node)


@inner
def _ask_memory(m: Machine, node: int) -> None:
    server, now = m.ranks[m.nodes[node].rank].server, m.clock[0].now
    if server == NONE:
        register(m, m.nodes[node].rank, now + m.nodes[node].cost, CALL_NODE, node)
    elif m.servers[server].busy == 0:
        m.servers[server].busy = 1
        register(m, m.nodes[node].rank, now + m.nodes[node].cost, CALL_MEMORY, node)
    else:
        append(m.servers, m.state, server, node)


@inner
def _begin(m: Machine, node: int) -> bool:
    """Start a node whose end isn't known yet; return False on a collective that doesn't fit those of the others."""
    rank, kind = m.nodes[node].rank, m.nodes[node].kind
    if kind == KIND_COLLECTIVE:
        return join_collective(m, node)
    elif kind == KIND_SEND:
        if m.fixed[0].rendezvous == 0:
            _send_node(m, node)
        elif m.requests[m.nodes[node].request].count > 0:
            m.requests[m.nodes[node].request].count -= 1
            _late(m, node, 1)
        else:
            append(m.requests, m.state, m.nodes[node].request, node)
    elif kind == KIND_RECV:
        if m.fixed[0].rendezvous == 0:
            _expect_node(m, node)
        else:
            message = _node_message(m, node, REQUEST_BYTES, 1)
            send_message(m, message, rank, m.nodes[node].peer)
    elif kind == KIND_MEMORY:
        _ask_memory(m, node)
    elif kind == KIND_CUSTOM:
        first, last = m.nodes[node].plan, m.nodes[node].peer
        m.state[node].missing = last - first
        for inner in range(first, last):
            m.state[inner].missing -= 1
            if m.state[inner].missing == 0:
                _make_ready(m, inner)
    return True


@leaf
def _release(m: Machine, node: int) -> None:
    """A node has ended: those that only waited for it are ready."""
    for edge in range(m.succ_first[node], m.succ_first[node + 1]):
        child = m.succs[edge]
        m.state[child].missing -= 1
        if m.state[child].missing == 0:
            if m.nodes[node].kind == KIND_INVALID:
                m.deferred[m.clock[0].deferred] = child
                m.clock[0].deferred += 1
            else:
                _make_ready(m, child)


@leaf
def _next_node(m: Machine, rank: int) -> int:
    """Return the heap of the ready node with the lowest id whose slot is free, -1 if there is none."""
    best, lowest = NONE, 0
    for slot in range(CLASSES):
        heap = rank * CLASSES + slot
        if m.heaps[heap].used > 0 and (slot > 2 or m.holders[rank * 3 + slot] == NONE):
            top = m.ready[m.heaps[heap].first]
            if best == NONE or top < lowest:
                best, lowest = heap, top
    return best


@pasted
def _issue(m: Machine, rank: int) -> bool:
    """Issue what a rank may issue.

    ASTRA-sim lets the children of a node without type wait for the next end of another node of the rank. If there is
    none under way, it never issues them: they are issued at once here.
    """
    now, again = m.clock[0].now, True
    while again:
        again = False
        heap = _next_node(m, rank)
        while heap != NONE:
            node = _take_ready(m, heap)
            if m.nodes[node].kind == KIND_INVALID or m.nodes[node].kind == KIND_METADATA:
                m.state[node].start = now
                m.state[node].end = now
                _release(m, node)
            else:
                m.state[node].start = now
                m.ranks[rank].open += 1
                if m.nodes[node].slot < 3:
                    m.holders[rank * 3 + m.nodes[node].slot] = node
                if m.nodes[node].kind == KIND_TIMED:
                    register(m, rank, now + m.nodes[node].cost, CALL_NODE, node)
                elif not _begin(m, node):
                    return False
            heap = _next_node(m, rank)
        for number in range(m.clock[0].deferred):
            _make_ready(m, m.deferred[number])
            again = m.ranks[rank].open == 0
        m.clock[0].deferred = 0
    return True


@pasted
def _complete(m: Machine, node: int) -> None:
    """A node has ended: free its slot, release its children."""
    rank, now = m.nodes[node].rank, m.clock[0].now
    m.state[node].end = now
    m.ranks[rank].open -= 1
    if m.nodes[node].slot < 3:
        m.holders[rank * 3 + m.nodes[node].slot] = NONE
    _release(m, node)
    owner = m.nodes[node].owner
    if owner != NONE:
        m.state[owner].missing -= 1
        if m.state[owner].missing == 0:
            m.state[owner].end = now
            m.ranks[rank].open -= 1
            m.holders[rank * 3 + m.nodes[owner].slot] = NONE
            _release(m, owner)


@pasted
def _end_phase(m: Machine, stream: int) -> int:
    """A chunk has ended a phase; return the collective's node if that was its last chunk's last phase, else -1.

    What the collective's end sets off comes before the chunk's place in its queue is free.
    """
    instance = m.streams[stream].instance
    plan = m.instances[instance].plan
    rank = rank_of(m, stream)
    queues = rank * m.fixed[0].levels * m.fixed[0].queues
    queue = queues + m.routes[stream * m.fixed[0].phases + m.streams[stream].phase].queue
    m.streams[stream].phase += 1
    if m.streams[stream].phase < m.plans[plan].last - m.plans[plan].first:
        free_place(m, queue)
        enter_queue(m, rank, stream)
        return NONE
    m.clock[0].then_queue = queue
    member = m.instances[instance].member + (stream - m.instances[instance].stream) // m.plans[plan].chunks
    m.joins[member].left -= 1
    if m.joins[member].left > 0:
        return NONE
    end_member(m, instance)
    return m.joins[member].node


@pasted
def _call(m: Machine, kind: int, arg: int) -> int:
    """Run one callback of a rank; return the node that ends with it, -1 if none does."""
    if kind == CALL_GENERAL:
        return _end_phase(m, arg) if go_on(m, arg) else NONE
    if kind == CALL_REDUCE:
        reduce_packet(m, arg)
        return NONE
    if kind == CALL_END:
        end_member(m, m.joins[arg].instance)
        return m.joins[arg].node
    m.clock[0].then_server = m.ranks[m.nodes[arg].rank].server
    return arg


@pasted
def _arrive(m: Machine, message: int) -> int:
    """A message has reached its goal: return the node that has sent it, which ends first, or -1."""
    stream, entry = m.messages[message].stream, m.messages[message].entry
    phase, request = m.messages[message].phase, m.messages[message].request
    since = m.messages[message].since
    release_message(m, message)
    if stream != NONE:
        if request == 1:
            if request_came(m, stream, phase, entry):
                send_data(m, stream, phase, entry)
        elif message_came(m, stream, phase, entry):
            take_message(m, stream)
        return NONE
    if m.fixed[0].solved == 1:
        note(m, m.nodes[entry].rank, since, m.nodes[entry].rank)
        note(m, m.nodes[entry].peer, since, m.nodes[entry].rank)
    if request == 0:
        # The receiver is looked up after the sender was told: what that issues may include the receive.
        m.clock[0].then_key = m.nodes[entry].plan
        return entry
    _expect_node(m, entry)
    key = m.nodes[entry].request
    sender = take(m.requests, m.state, key)
    if sender == NONE:
        m.requests[key].count += 1
    else:
        _send_node(m, sender)
    return NONE


@pasted
def _late_event(m: Machine, message: int) -> int:
    """What a receive (or a send, of a request) waits for was there before; return the node that ends, or -1."""
    stream, entry = m.messages[message].stream, m.messages[message].entry
    phase, request = m.messages[message].phase, m.messages[message].request
    release_message(m, message)
    if stream == NONE:
        if m.fixed[0].solved == 1:
            note(m, m.nodes[entry].rank, m.clock[0].now, m.nodes[entry].rank)
        if request == 0:
            return entry
        _send_node(m, entry)
    elif request == 0:
        take_message(m, stream)
    else:
        send_data(m, stream, phase, entry)
    return NONE


@leaf
def _next_of_key(m: Machine) -> int:
    """The sender of a message has been told: return the receive that waits for it, -1 if there is none yet."""
    key = m.clock[0].then_key
    m.clock[0].then_key = NONE
    receiver = take(m.keys, m.state, key)
    if receiver == NONE:
        m.keys[key].count += 1
    return receiver


@leaf
def _next_of_server(m: Machine) -> None:
    """A memory request has ended: the server takes the next one."""
    server = m.clock[0].then_server
    m.clock[0].then_server = NONE
    other = take(m.servers, m.state, server)
    if other == NONE:
        m.servers[server].busy = 0
    else:
        now = m.clock[0].now
        register(m, m.nodes[other].rank, now + m.nodes[other].cost, CALL_MEMORY, other)


@leaf
def _short(m: Machine) -> bool:
    """Return True if a pool might run out in the next event."""
    margin = m.fixed[0].margin
    return (
        m.clock[0].events + margin > len(m.heap)
        or m.clock[0].used_bundles + margin > len(m.bundles)
        or m.clock[0].used_calls + margin > len(m.calls)
        or m.clock[0].used_messages + margin > len(m.messages)
        or m.clock[0].streams + m.fixed[0].most_streams > len(m.streams)
        or m.clock[0].boxes + m.fixed[0].most_boxes > len(m.boxes)
        or m.clock[0].joins + m.fixed[0].most_joins > len(m.joins)
        or m.clock[0].instances + 4 > len(m.instances)
    )


@pasted
def _next_event(m: Machine) -> tuple[int, int]:
    """Take the next event, or callback; return the node that ends with it and the rank that issues then, or -1."""
    kind, arg = EVENT_RANK, m.clock[0].busy_rank
    if arg == NONE:
        kind, arg = pop_event(m)
    node, rank = NONE, NONE
    if kind == EVENT_RANK:
        # A rank's event may be interrupted between two callbacks.
        call = take_bundle(m, arg)
        fresh = m.clock[0].busy_rank == NONE
        m.clock[0].busy_rank = arg if call != NONE else NONE
        if call != NONE:
            what, whom = m.calls[call].kind, m.calls[call].arg
            if fresh and m.fixed[0].solved == 1:
                note(m, arg, m.calls[call].since, NONE if what == CALL_END else arg)
            release_call(m, call)
            node = whom if what == CALL_NODE else _call(m, what, whom)
    elif kind == EVENT_HOP:
        if next_hop(m, arg):
            node = _arrive(m, arg)
    elif kind == EVENT_FREE:
        free_link(m, arg)
    elif kind == EVENT_LATE:
        node = _late_event(m, arg)
    elif kind == EVENT_SOLVED:
        register(m, m.nodes[m.joins[arg].node].rank, m.joins[arg].end, CALL_END, arg)
    else:
        rank = arg
        for first in range(m.ranks[rank].first, m.ranks[rank].last):
            if m.state[first].missing == 0:
                _make_ready(m, first)
    return node, rank


@outer
def run(m: Machine, limit: int) -> int:
    """Go on until nothing is left to do, a pool is short, a collective can't be, or `limit` events are over.

    Returns:
        One of the STATUS numbers. After STATUS_GROW, call again with bigger pools; after STATUS_PAUSE, just again;
        after STATUS_AGAIN, begin anew with no collective computed without its messages.
    """
    for _ in range(limit):
        if m.clock[0].busy_rank == NONE and m.clock[0].events == 0:
            return STATUS_DONE
        if _short(m):
            return STATUS_GROW
        node, rank = _next_event(m)
        while node != NONE or rank != NONE:
            if node != NONE:
                _complete(m, node)
                rank = m.nodes[node].rank
            if not _issue(m, rank):
                return m.clock[0].failure
            node, rank = NONE, NONE
            if m.clock[0].then_key != NONE:
                node = _next_of_key(m)
        if m.clock[0].doubt == 1:
            return STATUS_AGAIN
        if m.clock[0].then_queue != NONE:
            queue = m.clock[0].then_queue
            m.clock[0].then_queue = NONE
            free_place(m, queue)
        if m.clock[0].then_server != NONE:
            _next_of_server(m)
    return STATUS_PAUSE
