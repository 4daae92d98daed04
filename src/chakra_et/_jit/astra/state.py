"""What the ASTRA-sim engine works on: tables of numbers in one tuple.

Tables are record arrays, so that ``m.nodes[node].kind`` reads the same compiled and uncompiled; `FIELDS` lists their
columns, all int64 unless said. The engine's pools (events, callbacks, messages, chunks of collectives) have a fixed
size; the loop stops when one might run out, and its caller makes it bigger and calls again: all state is in here.

Shape letters: N nodes of all ranks (ascending id in each rank), E edges, R ranks, P plans (distinct collectives: type,
size, group), F phases, G groups, M members of groups, K keys of sends and receives, D dimensions, L links, H pools.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "CALL_END",
    "CALL_GENERAL",
    "CALL_MEMORY",
    "CALL_NODE",
    "CALL_REDUCE",
    "CLASSES",
    "DIRECT",
    "DOUBLE_BINARY_TREE",
    "EVENT_FREE",
    "EVENT_HOP",
    "EVENT_LATE",
    "EVENT_RANK",
    "EVENT_SOLVED",
    "EVENT_START",
    "FIELDS",
    "FULLY_CONNECTED",
    "HALVING_DOUBLING",
    "KIND_COLLECTIVE",
    "KIND_CUSTOM",
    "KIND_INVALID",
    "KIND_MEMORY",
    "KIND_METADATA",
    "KIND_RECV",
    "KIND_SEND",
    "KIND_TIMED",
    "NONE",
    "REQUEST_BYTES",
    "RING",
    "STATUS_AGAIN",
    "STATUS_DONE",
    "STATUS_GROW",
    "STATUS_MISMATCH",
    "STATUS_OPPOSED",
    "STATUS_PAUSE",
    "SWITCH",
    "Machine",
    "Records",
    "make_records",
]

Int = npt.NDArray[np.int64]
Records = Any  # a record array: type checkers know no fields of them

NONE = -1

# Kinds of nodes.
KIND_TIMED, KIND_COLLECTIVE, KIND_SEND, KIND_RECV, KIND_MEMORY, KIND_INVALID, KIND_METADATA, KIND_CUSTOM = range(8)
# Slots of a rank: CPU, GPU compute, communication; receives, and nodes without time, take none.
CLASSES = 5
# Algorithms.
RING, DIRECT, HALVING_DOUBLING, DOUBLE_BINARY_TREE = range(4)
# Topologies of a dimension, beside RING.
FULLY_CONNECTED, SWITCH = 1, 2
# Events of the global queue.
EVENT_RANK, EVENT_HOP, EVENT_FREE, EVENT_LATE, EVENT_START, EVENT_SOLVED = range(6)
# Callbacks of a rank, of which all of one tick run in one event.
CALL_NODE, CALL_GENERAL, CALL_REDUCE, CALL_MEMORY, CALL_END = range(5)
# What a call of the loop ends with; AGAIN: nothing can be told without looking at messages.
STATUS_DONE, STATUS_GROW, STATUS_PAUSE, STATUS_MISMATCH, STATUS_OPPOSED, STATUS_AGAIN = range(6)
REQUEST_BYTES = 8192  # of the rendezvous protocol

FIELDS: dict[str, str] = {
    # [N] Static facts of nodes. slot: 0 CPU, 1 GPU, 2 communication, 3 receive, 4 no time. plan: of a collective; key
    # of a send or receive; first inner node of a custom collective. peer: of a send or receive; end of the inner
    # nodes. request: key of the rendezvous. owner: of an inner node, its custom collective, else -1.
    "nodes": "rank slot kind cost plan peer bytes request owner",
    # [N] missing: dependencies; of a custom collective under way: inner nodes. next: of the list that a node waits in.
    "state": "missing start end next",
    # [R * CLASSES] Heaps of ready nodes, one a rank and slot: where each begins in `ready`, and how many it holds.
    "heaps": "first used",
    # [R] first .. last: its nodes. open: nodes under way. bundle: list of the ticks at which callbacks are due.
    # server: of its memory requests, -1 none. seen, since, origin: the last thing that happened, see `events.note`.
    "ranks": "first last open bundle server seen since origin",
    # [K] Receives that wait, and messages that came before theirs.
    "keys": "head tail count",
    # [Q] Sends that wait for a rendezvous request, and requests that came before theirs.
    "requests": "head tail count",
    # [G] first .. last: its members. head: list of instances under way, ascending number.
    "groups": "first last head",
    # [M] counter: how many collectives the member has issued.
    "members": "rank counter",
    # [P] first .. last: its phases. mail: mailbox entries of a chunk. solve: 1 if times follow from the starts alone.
    # uniform: 1 if members that start together end together. free: list of instances to be used again.
    "plans": "group chunks first last mail solve uniform free",
    # [F] members: ranks of one instance of the phase. stride: of neighbors; 0: by position in the group. level: queue
    # level. rotation: queues that take turns: 0 all, 1 the first half, 2 the second. bytes: of a message. window:
    # packets under way at once. reduced: how many messages are reduced, from the first on. cycle: of a direct phase,
    # packets after which others follow that aren't. mailbox: where its entries begin. step: where its steps begin.
    # gate: sends before which all messages of the first half must be in. tree: counter of alternating trees.
    "phases": "kind members stride level rotation sends bytes window reduced cycle reduce_ns mailbox step bus_ns "
    "gate tree",
    # Steps of halving-doubling phases.
    "steps": "distance bytes reduce_ns",
    # [H] The queue of events: a heap by time and order.
    "heap": "time order kind arg",
    # [H] Callbacks of a rank and tick.
    "bundles": "time head tail next",
    # [H] since: the tick at which it was registered.
    "calls": "kind arg since next",
    # [H] stream: the receiving chunk, -1 of a node. entry: mailbox entry; of a node's message: the node. place: device
    # where it is. request: 1 of a rendezvous request. since: tick at which it was made.
    "messages": "next stream entry phase place goal bytes request since",
    # [H] Chunks of collectives at a rank; index: the instance's first + member * chunks + chunk. left: sends. free:
    # credits. next: of a queue's waiting list.
    "streams": "phase left free received state instance next",
    # [H * most phases] way: 1 clockwise, -1 anticlockwise; of a tree: root last, root first.
    "routes": "queue way",
    # [H] Mailbox entries. messages: those that are there (above 0) or receives that wait (below 0). requests: the same
    # of rendezvous requests and sends that wait for them.
    "boxes": "messages requests",
    # [H] Members of instances. left: chunks. since: tick at which the end of a solved collective is registered.
    "joins": "node instance left start end since",
    # [H] stream, mail, member: where its chunks, mailboxes and members begin.
    "instances": "plan stream mail member number arrived done next",
    # [R * levels * queues]
    "queues": "running head tail",
    # [L] Links of the congestion-aware network, and the messages that wait for them.
    "links": "busy head tail",
    # Memory servers, and the nodes that wait for them.
    "servers": "busy head tail",
    # [1] What changes. busy_rank: the rank whose event is going on, -1 none. then_...: what is
    # to be done after a node's end: look for the receive of a key, free a place in a queue, serve the next of a memory.
    # failure: the STATUS of a collective that can't be; wrong_...: which one, and the node of it on another rank.
    # doubt: 1 if an order can't be told.
    "clock": "now order events free_bundle free_call free_message used_bundles used_calls used_messages "
    "busy_rank streams boxes joins instances deferred then_key then_queue then_server "
    "failure wrong_node wrong_instance wrong_other doubt",
    # [1] What doesn't. phases: most of a collective. room: running chunks of a queue. margin: most entries that one
    # callback takes from a pool. solved: 1 if collectives are computed without their messages.
    "fixed": "ranks phases queues room aware rendezvous fold levels margin most_streams most_boxes most_joins trees "
    "solved",
    # [D] latency (ns) and bandwidth (bytes per ns) are float64.
    "dims": "topology count latency bandwidth",
    # For `solve`. [1] The collective at hand; member: where its group's members begin; queued: items in the heap.
    "job": "lanes chunks first routes member queued order",
    # [lanes * chunks] Chunks: start of the phase, then its end; when that is registered.
    "items": "time since order phase next",
    # [lanes * levels * queues]
    "item_queues": "running head tail",
    # [lanes] Places of the phase at hand.
    "lanes": "rank time hop",
}
_FLOATS = ("latency", "bandwidth")


class Machine(NamedTuple):
    """All tables: record arrays as in `FIELDS`, and plain int64 arrays.

    `ready` [N] holds the heaps of ready nodes, `deferred` [N] nodes whose parent was INVALID, `holders` [R * 3] the
    node in each slot, `places` [G * R] the position of a rank in a group or -1, `succ_first` [N + 1] and `succs` [E]
    the successors, `rotation` [R * levels * 3] whose turn it is among queues, `turns` [R * trees] among trees,
    `item_heap` [lanes * chunks] the heap of `solve`, `begun` [chunks * phases * lanes] members that have begun a phase.
    """

    nodes: Records
    state: Records
    heaps: Records
    ranks: Records
    keys: Records
    requests: Records
    groups: Records
    members: Records
    plans: Records
    phases: Records
    steps: Records
    heap: Records
    bundles: Records
    calls: Records
    messages: Records
    streams: Records
    routes: Records
    boxes: Records
    joins: Records
    instances: Records
    queues: Records
    links: Records
    servers: Records
    clock: Records
    fixed: Records
    dims: Records
    job: Records
    items: Records
    item_queues: Records
    lanes: Records
    item_heap: Int
    begun: Int
    ready: Int
    deferred: Int
    holders: Int
    places: Int
    succ_first: Int
    succs: Int
    rotation: Int
    turns: Int


def make_records(table: str, rows: int, /, **columns: Any) -> Records:
    """Return a table of so many rows: the given columns, zeros elsewhere.

    Example:
        >>> make_records("heaps", 2, first=[0, 5]).first.tolist()
        [0, 5]
    """
    dtype = np.dtype([(name, np.float64 if name in _FLOATS else np.int64) for name in FIELDS[table].split()])
    records = np.zeros(rows, dtype).view(np.recarray)
    for name, values in columns.items():
        records[name] = values
    return records
