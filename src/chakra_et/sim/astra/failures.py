"""Why a simulation stands still: which rank waits for which node of whom. ASTRA-sim ends with exit code 0 there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chakra_et._jit.astra.state import KIND_COLLECTIVE, KIND_RECV, KIND_SEND, Machine
from chakra_et.errors import SimulationError, Waiting
from chakra_et.ir import CommType
from chakra_et.sim.workload import Workload

__all__ = ["explain_mismatch", "explain_opposed", "explain_standstill"]

Int = npt.NDArray[np.int64]
_ROWS = 64


def explain_mismatch(workload: Workload, machine: Machine, order: Int) -> SimulationError:
    """Return the error of a collective that differs from the one that others of its group issued in its place."""
    node, instance = int(machine.clock[0].wrong_node), int(machine.clock[0].wrong_instance)
    found = machine.instances[instance]
    group = machine.groups[machine.plans[found.plan].group]
    base, number = int(found.member), int(found.number)
    # Who has issued more collectives of the group than that one has come to it.
    own = int(machine.nodes.rank[node])
    members = machine.members[group.first : group.last]
    others = np.flatnonzero((members.counter > number) & (members.rank != own)).tolist()
    here = _what(workload, order, node)
    there = _what(workload, order, int(machine.joins.node[base + others[0]]))
    waiting = [_waiting(workload, order, node, _group_name(workload, order, node), f"{here} on the other ranks")]
    for k in others:
        other = int(machine.joins.node[base + k])
        text = f"{_what(workload, order, other)} on rank {own}, which issued {here}"
        waiting.append(_waiting(workload, order, other, _group_name(workload, order, other), text))
    place = workload.place(int(order[node]))
    name = _group_name(workload, order, node) or "0 (all ranks)"
    text = (
        f"rank {place[0]}: node {place[1]} ('{place[2]}'): expected {there}, which is collective {number} of group "
        f"{name} on the others, got {here}; the ranks of a group must issue the same collectives in one order"
    )
    return SimulationError(text, waiting[:_ROWS])


def explain_opposed(workload: Workload, machine: Machine, order: Int) -> SimulationError:
    """Return the error of a ring whose ranks send in opposite directions."""
    own, other = int(machine.clock[0].wrong_node), int(machine.clock[0].wrong_other)
    place, there = workload.place(int(order[own])), workload.place(int(order[other]))
    group = _group_name(workload, order, own)
    text = (
        f"rank {place[0]}: node {place[1]} ('{place[2]}'): expected the ranks of a ring to send the same way round, "
        f"got rank {there[0]} that sends the other way: queues take turns, half of them each way, and collectives of "
        "groups took some on one of the two ranks only; ASTRA-sim hangs there; use one queue per dimension"
    )
    waiting = [
        _waiting(workload, order, node, group, f"messages that rank {peer[0]} sends the other way round")
        for node, peer in ((own, there), (other, place))
    ]
    return SimulationError(text, waiting)


def _what(workload: Workload, order: Int, node: int) -> str:
    position = int(order[node])
    kind, size = workload.series("comm_type")[position], workload.series("comm_size")[position]
    name = CommType(kind).name.lower() if kind is not None else "a collective"
    return f"{name} of {size:,} bytes"


def _group_name(workload: Workload, order: Int, node: int) -> str:
    return str(workload.series("pg_name")[int(order[node])] or "")


def _waiting(workload: Workload, order: Int, node: int, group: str, text: str) -> Waiting:
    rank, number, name = workload.place(int(order[node]))
    return Waiting(rank, number, name, group, text)


def explain_standstill(workload: Workload, machine: Machine, order: Int) -> SimulationError:
    """Return the error of a simulation in which nothing is left to do, though nodes are left."""
    work, nodes = machine.state, machine.nodes
    under_way = np.flatnonzero((work.start >= 0) & (work.end < 0))
    waiting = []
    for node in under_way[:_ROWS].tolist():
        kind = int(nodes.kind[node])
        if kind == KIND_COLLECTIVE:
            waiting.append(_in_collective(workload, machine, order, node))
        elif kind in (KIND_RECV, KIND_SEND):
            waiting.append(_in_message(workload, machine, order, node))
    if not len(under_way):
        waiting = _in_cycle(workload, machine, order)
    ranks = len(np.unique(nodes.rank[work.end < 0]))
    left = int((work.end < 0).sum())
    cause = waiting[0]
    text = (
        f"rank {cause.rank}: node {cause.node} ('{cause.name}') waits for ever for {cause.waits_for}; "
        f"{left:,} nodes of {ranks} rank{'s' * (ranks != 1)} never end"
    )
    return SimulationError(text, waiting)


def _in_collective(workload: Workload, machine: Machine, order: Int, node: int) -> Waiting:
    group = machine.groups[machine.plans[machine.nodes.plan[node]].group]
    members = machine.members[group.first : group.last]
    number = int(members.counter[members.rank == machine.nodes.rank[node]][0]) - 1
    absent = members.rank[members.counter <= number].tolist()
    name = _group_name(workload, order, node)
    who = f"rank {', '.join(map(str, absent[:8]))}{', ...' if len(absent) > 8 else ''}"
    text = (
        f"{who} to issue collective {number} of group {name or '0 (all ranks)'}"
        if absent
        else "its other ranks, which wait for it: chunks run in different orders or directions there, as in ASTRA-sim; "
        "use another number of queues per dimension (2 or more with localBWAware, 1 with groups)"
    )
    return _waiting(workload, order, node, name, text)


def _in_message(workload: Workload, machine: Machine, order: Int, node: int) -> Waiting:
    nodes = machine.nodes
    own, peer, size = int(nodes.rank[node]), int(nodes.peer[node]), int(nodes.bytes[node])
    tag = workload.series("comm_tag")[int(order[node])]
    receives = int(nodes.kind[node]) == KIND_RECV
    what = f"a send of {size:,} bytes with tag {tag} from rank {peer}" if receives else f"a receive on rank {peer}"
    group = f"{peer}->{own}" if receives else f"{own}->{peer}"
    return _waiting(workload, order, node, group, what)


def _in_cycle(workload: Workload, machine: Machine, order: Int) -> list[Waiting]:
    """Nothing is under way: what is left waits for nodes that wait for it."""
    work = machine.state
    left = np.flatnonzero(work.end < 0)
    rows = []
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    for node in left[:_ROWS].tolist():
        position = int(order[node])
        preds = workload.preds[workload.indptr[position] : workload.indptr[position + 1]]
        held = [workload.place(int(pred))[1] for pred in preds if work.end[place[pred]] < 0]
        text = f"node {', '.join(map(str, held[:4]))}, which waits for it in a cycle of dependencies"
        rows.append(_waiting(workload, order, node, "", text))
    return rows
