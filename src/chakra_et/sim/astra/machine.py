"""The engine's state: made for a plan, made bigger when a pool runs short, run to its end.

Shape letters: N nodes of all ranks, R ranks, P plans, H pool sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et._jit.astra.engine import run
from chakra_et._jit.astra.state import (
    CLASSES,
    EVENT_START,
    FULLY_CONNECTED,
    KIND_RECV,
    NONE,
    RING,
    STATUS_GROW,
    STATUS_PAUSE,
    SWITCH,
    Machine,
    Records,
    make_records,
)
from chakra_et.sim.astra.options import AstraOptions
from chakra_et.sim.astra.tables import PlanTables
from chakra_et.specs import AstraConfig

__all__ = ["NodeTables", "make_machine", "run_machine"]

Int = npt.NDArray[np.int64]
_TOPOLOGY = {"Ring": RING, "FullyConnected": FULLY_CONNECTED, "Switch": SWITCH}
_EVENTS_PER_TURN = 2_000_000
_INSTANCES = 4  # more than one callback makes
# Pools of linked lists: table, and the column of the clock that holds its first free entry.
_LISTS = {"bundles": "free_bundle", "calls": "free_call", "messages": "free_message"}


@dataclass(frozen=True, slots=True, eq=False)
class NodeTables:
    """Nodes as the engine takes them, in ascending id in each rank.

    Attributes:
        nodes: The table of that name, [N].
        missing: int64 [N]: dependencies of each node.
        first: int64 [R + 1]: first node of each rank.
        succ_first: int64 [N + 1]: where each node's successors begin.
        succs: int64 [E].
        keys: Number of keys of sends and receives.
        requests: Number of keys of rendezvous.
    """

    nodes: Records
    missing: Int
    first: Int
    succ_first: Int
    succs: Int
    keys: int
    requests: int


def run_machine(machine: Machine, progress: Callable[[int], None] | None = None) -> tuple[Machine, int]:
    """Run to the end.

    Args:
        machine: The state.
        progress: Called now and then with the number of nodes that have ended.

    Returns:
        The state at the end, and what it ended with: STATUS_DONE, or why it can't go on.
    """
    while True:
        status = run(machine, _EVENTS_PER_TURN)
        if status not in (STATUS_GROW, STATUS_PAUSE):
            return machine, status
        if status == STATUS_GROW:
            machine = _grown(machine)
        if progress is not None:
            progress(int((machine.state.end >= 0).sum()))


def _grown(machine: Machine) -> Machine:
    """Make the pools that are short bigger, to twice their size at least."""
    clock, fixed = machine.clock[0], machine.fixed[0]
    wanted = {
        "heap": clock.events + fixed.margin,
        "bundles": clock.used_bundles + fixed.margin,
        "calls": clock.used_calls + fixed.margin,
        "messages": clock.used_messages + fixed.margin,
        "streams": clock.streams + fixed.most_streams,
        "boxes": clock.boxes + fixed.most_boxes,
        "joins": clock.joins + fixed.most_joins,
        "instances": clock.instances + _INSTANCES,
    }
    changes = {}
    for table, size in wanted.items():
        old = getattr(machine, table)
        if size <= len(old):
            continue
        grown = changes[table] = _longer(old, max(int(size), 2 * len(old)))
        if table in _LISTS:
            grown.next[len(old) :] = np.arange(len(old) + 1, len(grown) + 1)
            grown.next[-1] = clock[_LISTS[table]]
            clock[_LISTS[table]] = len(old)
        if table == "streams":
            changes["routes"] = _longer(machine.routes, len(grown) * int(fixed.phases))
    return machine._replace(**changes)


def _longer(records: Records, size: int) -> Records:
    grown = np.zeros(size, records.dtype).view(np.recarray)
    grown[: len(records)] = records
    return grown


def make_machine(
    tables: NodeTables, plans: PlanTables, config: AstraConfig, options: AstraOptions, *, folded: bool
) -> Machine:
    """Make the state of a simulation.

    Args:
        tables: Nodes.
        plans: Distinct collectives.
        config: Machine and algorithms.
        options: How it is called.
        folded: True if rank 0 stands for all.
    """
    ranks, count = len(tables.first) - 1, len(tables.nodes)
    fixed = _fixed(tables, plans, config, options, folded=folded)
    streams, levels = int(fixed[0].most_streams), int(fixed[0].levels)
    dims, links, servers, server = _network(config, options, ranks)
    return Machine(
        **_event_pools(ranks, 2 * int(fixed[0].margin) + 4 * ranks + 1024),
        **_solver(plans, fixed),
        nodes=tables.nodes,
        state=make_records("state", count, missing=tables.missing, start=NONE, end=NONE, next=NONE),
        heaps=_heaps(tables.nodes, ranks),
        ranks=make_records(
            "ranks", ranks, first=tables.first[:-1], last=tables.first[1:], bundle=NONE, server=server, seen=NONE
        ),
        keys=make_records("keys", tables.keys, head=NONE, tail=NONE),
        requests=make_records("requests", tables.requests, head=NONE, tail=NONE),
        groups=plans.groups,
        members=plans.members,
        plans=plans.plans,
        phases=plans.phases,
        steps=plans.steps,
        streams=make_records("streams", streams),
        routes=make_records("routes", streams * int(fixed[0].phases)),
        boxes=make_records("boxes", int(fixed[0].most_boxes)),
        joins=make_records("joins", int(fixed[0].most_joins)),
        instances=make_records("instances", 2 * _INSTANCES),
        queues=make_records("queues", ranks * levels * int(fixed[0].queues), head=NONE, tail=NONE),
        links=links,
        servers=servers,
        clock=_clock(ranks),
        fixed=fixed,
        dims=dims,
        ready=np.zeros(count, np.int64),
        deferred=np.zeros(count, np.int64),
        holders=np.full(ranks * 3, NONE, np.int64),
        places=_places(plans, ranks),
        succ_first=tables.succ_first,
        succs=tables.succs,
        rotation=np.zeros(ranks * levels * 3, np.int64),
        turns=np.zeros(ranks * int(fixed[0].trees), np.int64),
    )


def _clock(ranks: int) -> Records:
    """Return the clock; the ranks' beginnings are queued already."""
    none = dict.fromkeys(("busy_rank", "then_key", "then_queue", "then_server"), NONE)
    return make_records("clock", 1, events=ranks, order=ranks, **none)


def _event_pools(ranks: int, size: int) -> dict[str, Records]:
    """Return the queue, in which all ranks begin at once, one after the other, and lists of free entries."""
    pools = {name: make_records(name, size) for name in ("heap", *_LISTS)}
    for name in _LISTS:
        pools[name].next = np.arange(1, size + 1)
        pools[name].next[-1] = NONE
    pools["heap"].order[:ranks] = pools["heap"].arg[:ranks] = np.arange(ranks)
    pools["heap"].kind[:ranks] = EVENT_START
    return pools


def _heaps(nodes: Records, ranks: int) -> Records:
    """Return an empty heap for each rank and slot, with room for all its nodes."""
    heaps = make_records("heaps", ranks * CLASSES)
    sizes = np.bincount(nodes.rank * CLASSES + nodes.slot, minlength=ranks * CLASSES)
    heaps.first[1:] = np.cumsum(sizes)[:-1]
    return heaps


def _places(plans: PlanTables, ranks: int) -> Int:
    """Return the position of each rank in each group, int64 [G * R], -1 outside."""
    groups = plans.groups
    places = np.full(len(groups) * ranks, NONE, np.int64)
    owner = np.repeat(np.arange(len(groups)), groups.last - groups.first)
    places[owner * ranks + plans.members.rank] = np.arange(len(owner)) - groups.first[owner]
    return places


def _fixed(
    tables: NodeTables, plans: PlanTables, config: AstraConfig, options: AstraOptions, *, folded: bool
) -> Records:
    """Return what doesn't change: sizes, options, and how much of a pool one callback may take."""
    table, nodes = plans.plans, tables.nodes
    ranks = len(tables.first) - 1
    members = (plans.groups.last - plans.groups.first)[table.group]
    streams = table.chunks * np.where(table.solve == 1, 1, members)
    boxes = np.where(table.solve == 1, 0, streams * table.mail)
    room = -(-config.active_chunks // options.queues_per_dim)
    # One callback may issue all receives and inner nodes of a rank, and one collective.
    free = np.bincount(nodes.rank[(nodes.kind == KIND_RECV) | (nodes.slot == CLASSES - 1)], minlength=ranks)
    running = np.minimum(table.chunks, room * options.queues_per_dim).max(initial=1)
    window = plans.phases.window.max(initial=1)
    margin = 2 * free.max(initial=0) + 4 * window * running + members.max(initial=0) + 64
    return make_records(
        "fixed", 1, ranks=ranks, phases=max((table.last - table.first).max(initial=1), 1),
        queues=options.queues_per_dim, room=room, aware=options.backend == "aware", rendezvous=options.rendezvous,
        fold=folded, levels=len(config.npus_count), margin=margin, most_streams=2 * streams.max(initial=1),
        most_boxes=2 * boxes.max(initial=1), most_joins=2 * members.max(initial=1),
        trees=plans.phases.tree.max(initial=-1) + 1, solved=table.solve.max(initial=0),
    )  # fmt: skip


def _solver(plans: PlanTables, fixed: Records) -> dict[str, Records]:
    """Return the room in which collectives are computed without their messages."""
    table = plans.plans[plans.plans.solve == 1]
    members = (plans.groups.last - plans.groups.first)[table.group]
    items, lanes = int((members * table.chunks).max(initial=0)), int(members.max(initial=0))
    return {
        "job": make_records("job", 1),
        "items": make_records("items", items),
        "item_queues": make_records("item_queues", lanes * int(fixed[0].levels * fixed[0].queues)),
        "lanes": make_records("lanes", lanes),
        "item_heap": np.zeros(items, np.int64),
        "begun": np.zeros(items * int(fixed[0].phases), np.int64),
    }


def _network(config: AstraConfig, options: AstraOptions, ranks: int) -> tuple[Records, Records, Records, Int]:
    """Return dimensions, links, memory servers, and the server of each rank."""
    count = config.npus_count[0]
    links = 0
    if options.backend == "aware":
        links = count * count if config.topology[0] == "FullyConnected" else 2 * count
    server = np.full(ranks, NONE, np.int64)
    if config.memory_type == "MEMORY_POOL":
        server[:] = 0
    elif config.memory_type == "PER_NODE_MEMORY_EXPANSION":
        server = np.arange(ranks, dtype=np.int64) // max(config.num_npus_per_node, 1)
    dims = make_records(
        "dims", len(config.npus_count), topology=[_TOPOLOGY[name] for name in config.topology],
        count=config.npus_count, latency=config.latency_ns,
        bandwidth=[gib * (1 << 30) / 1_000_000_000 for gib in config.bandwidth],
    )  # fmt: skip
    servers = make_records("servers", int(server.max(initial=-1)) + 1, head=NONE, tail=NONE)
    return dims, make_records("links", links, head=NONE, tail=NONE), servers, server
