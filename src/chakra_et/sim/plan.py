"""From a workload to the engine's arrays, and its run.

Shape letters: N nodes, M meetings, P participants, R ranks, F flows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et._jit import engine_state as es
from chakra_et._jit.engine import FULL, PAUSED, advance
from chakra_et._jit.engine_state import Plan, State, grow_cells, new_state
from chakra_et._jit.order import ordered_by_edges
from chakra_et._jit.schedule import invert
from chakra_et.sim.flow_table import FlowTable, no_flows
from chakra_et.sim.measured import Exchange
from chakra_et.sim.meetings import Meetings
from chakra_et.sim.resources import Resources
from chakra_et.sim.workload import Workload

__all__ = ["Outcome", "Progress", "make_plan", "run_plan", "successors", "timed_plan"]

Int = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]

# Nodes after which the engine returns, so that a progress bar moves and Ctrl-C works: about a tenth of a second.
_BUDGET = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """When everything happened.

    Attributes:
        start_ns: int64 [N].
        end_ns: int64 [N]; -1 for what never ended.
        bound: int64 [N]: the node that a start waited for last: a predecessor, or -2 - node for what held the resource
            before; -1 for neither.
        came_ns: int64 [M]: when the last participant arrived.
        last: int64 [M]: the node that made it the last.
        release_ns: int64 [M]: when the transfer ended (where participants take times of their own: when it began).
    """

    start_ns: Int
    end_ns: Int
    bound: Int
    came_ns: Int
    last: Int
    release_ns: Int


def successors(workload: Workload) -> tuple[Int, Int]:
    """Return successor lists of the workload, int64 [N + 1] and [E]."""
    out, succs = invert(workload.indptr, workload.preds)
    return out, succs


def make_plan(
    workload: Workload,
    lists: tuple[Int, Int],
    meetings: Meetings,
    exchange: Exchange,
    resources: Resources,
    *,
    slowdown: float = 1.0,
) -> Plan:
    """Make the plan of a workload in which nothing takes any time yet.

    Args:
        workload: The workload.
        lists: Its successor lists.
        meetings: Who meets.
        exchange: How they meet.
        resources: What they occupy.
        slowdown: Factor on compute during communications of the same rank.
    """
    count, rooms = workload.node_count, meetings.rooms
    out, succs = lists
    facts = np.full((count, 4), -1, np.int64)
    facts[:, es.RESOURCE] = of_node = _contended(workload, resources, slowdown)
    facts[meetings.nodes, es.MEETING] = rooms
    facts[:, es.WAITS] = 0
    facts[meetings.nodes, es.WAITS] = exchange.waits
    signals, absent = _signals(facts, rooms, exchange, len(meetings.seats) - 1)
    bits = np.zeros(count, np.int32)
    bits[meetings.nodes] = es.MEETS
    bits[facts[:, es.SIGNAL] >= 0] |= es.SIGNALS
    role = np.where(bits == 0, of_node + 1, -(bits | (es.OCCUPIES * (of_node >= 0)))).astype(np.int32)
    table = np.full((len(absent), 10), -1, np.int64)
    table[:, es.CHANNEL] = resources.of_meeting
    table[:, es.ABSENT] = absent
    table[:, es.SEATS], table[:, es.SEATS_END] = meetings.seats[:-1], meetings.seats[1:]
    table[:, es.CAME] = table[:, es.VISITED] = 0
    servers = np.zeros((len(resources.servers), 9), np.int64)
    servers[:, es.SERVERS], servers[:, es.QUEUE], servers[:, es.HELD] = resources.servers, -1, -1
    count_of = np.bincount(np.append(of_node, resources.of_meeting) + 1, minlength=len(servers) + 1)[1:]
    servers[:, es.LINE] = servers[:, es.LINE_END] = np.cumsum(count_of) - count_of
    engine = resources.of_rank[workload.owners[meetings.nodes]]
    if slowdown != 1.0:
        servers[resources.of_rank[resources.of_rank >= 0], es.PACED] = 1
    return Plan(
        out=out,
        succs=succs,
        needs=np.diff(workload.indptr),
        earliest=np.zeros(count, np.int64),
        duration=np.zeros(count, np.int64),
        role=role,
        facts=facts,
        signals=signals,
        seats=np.stack([meetings.nodes, engine], axis=1),
        meetings=table,
        resources=servers,
        slowdown=float(slowdown),
        **no_flows().as_plan(),
    )


def _contended(workload: Workload, resources: Resources, slowdown: float) -> Int:
    """Return the resource of each node, without resources that never have to choose."""
    found: Int = resources.of_node.copy()
    if not len(resources.servers):
        return found
    paced = resources.of_rank[resources.of_rank >= 0] if slowdown != 1.0 else resources.of_rank[:0]
    engine = np.isin(found, resources.of_rank)
    for part in (engine, ~engine):
        of_node = np.where(part, found, -1)
        free = ordered_by_edges(workload.indptr, workload.preds, of_node, len(resources.servers))
        free[paced] = False
        found[(of_node >= 0) & free[of_node]] = -1
    return found


def _signals(facts: Int, rooms: Int, exchange: Exchange, count: int) -> tuple[Int, Int]:
    """Link the nodes whose starts are arrivals to their meetings; return the links, and how many each meeting has."""
    told = np.flatnonzero(exchange.arrival >= 0)
    node = exchange.arrival[told]
    signals = np.stack([rooms[told], np.full(len(told), -1, np.int64)], axis=1)
    order = np.argsort(node, kind="stable")
    same = node[order][1:] == node[order][:-1]
    signals[order[:-1][same], es.NEXT_SIGNAL] = order[1:][same]
    first = np.append(True, ~same) if len(order) else np.empty(0, np.bool_)
    facts[node[order[first]], es.SIGNAL] = order[first]
    return signals, np.bincount(rooms[told], minlength=count).astype(np.int64)


def timed_plan(plan: Plan, workload: Workload, duration: Int, begin: Int, flows: FlowTable, of_meeting: Int) -> Plan:
    """Return the plan with times.

    Args:
        plan: From `make_plan`.
        workload: Its workload.
        duration: int64 [N], ns; of participants: after the meeting.
        begin: int64 [R], ns: when each rank begins.
        flows: What communications cost on the network.
        of_meeting: int64 [M]: flow of each meeting, -1 for none.
    """
    meetings = plan.meetings.copy()
    meetings[:, es.FLOW] = of_meeting
    earliest = np.repeat(begin, np.diff(workload.offsets))
    return plan._replace(duration=duration, earliest=earliest, meetings=meetings, **flows.as_plan())


def run_plan(plan: Plan, progress: Progress | None = None) -> Outcome:
    """Simulate.

    Args:
        plan: From `timed_plan`.
        progress: Called now and then with the number of nodes that have ended, and of all nodes.

    Returns:
        What happened; where some nodes never ended, they wait for one another.
    """
    state = new_state(plan)
    while (status := advance(plan, state, _BUDGET)) in (PAUSED, FULL):
        if status == FULL:
            state = grow_cells(state, max(len(state.cells), int(np.diff(plan.indptr).max())))
        elif progress is not None:
            progress(int(state.at[es.ENDED]), len(plan.needs))
    return _outcome(state)


def _outcome(state: State) -> Outcome:
    nodes, meetings = state.nodes, state.meetings
    return Outcome(
        start_ns=nodes[:, es.START].copy(),
        end_ns=np.maximum(nodes[:, es.END], -1),
        bound=nodes[:, es.BOUND].copy(),
        came_ns=meetings[:, es.CAME].copy(),
        last=meetings[:, es.LAST].copy(),
        release_ns=meetings[:, es.RELEASE].copy(),
    )
