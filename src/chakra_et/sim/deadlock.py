"""Why a simulation stands still: who waits for whom.

Shape letters: N nodes, M meetings.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chakra_et._jit.cycles import components
from chakra_et.errors import SimulationError, Waiting
from chakra_et.sim.measured import Exchange
from chakra_et.sim.meetings import Meetings
from chakra_et.sim.plan import Outcome
from chakra_et.sim.workload import Workload

__all__ = ["refuse_cycles", "refuse_deadlock"]

Int = npt.NDArray[np.int64]
_ROWS = 20


def refuse_cycles(workload: Workload) -> None:
    """Refuse ranks whose own graph has a cycle.

    Raises:
        SimulationError: One has.
    """
    component = components(workload.indptr, workload.preds)
    sizes = np.bincount(component)
    inside = np.flatnonzero(sizes[component] > 1)
    if not len(inside):
        return
    ring = inside[component[inside] == component[inside[0]]]
    rank, node, name = workload.place(int(ring[0]))
    waiting = []
    for position in ring[:_ROWS].tolist():
        preds = workload.preds[workload.indptr[position] : workload.indptr[position + 1]]
        before = int(preds[np.isin(preds, ring)][0])
        _, other, label = workload.place(before)
        waiting.append(Waiting(*workload.place(position), "", f"node {other} ('{label}')"))
    raise SimulationError(
        f"rank {rank}: node {node} ('{name}'): expected an acyclic graph, got a cycle of {len(ring)} nodes; "
        "repair the trace first (chakra repair)",
        waiting,
    )


def refuse_deadlock(workload: Workload, meetings: Meetings, exchange: Exchange, outcome: Outcome) -> None:
    """Say who waits for whom where nodes never ended.

    Raises:
        SimulationError: Always.
    """
    refuse_cycles(workload)
    came = np.zeros(workload.node_count, np.bool_)
    came[_started(workload, outcome)] = True
    rooms = meetings.rooms
    stuck = (outcome.end_ns[meetings.nodes] < 0) & came[meetings.nodes]
    waiting = []
    seats = np.flatnonzero(stuck)
    for seat in seats[np.argsort(meetings.nodes[seats])][:_ROWS].tolist():
        room = rooms[seat]
        others = np.arange(meetings.seats[room], meetings.seats[room + 1])
        lost = others[(exchange.arrival[others] >= 0) & ~came[exchange.arrival[others]]]
        row = meetings.table.row(int(room), named=True)
        members = row["members"]
        group = f"{members[0]}->{members[1]}" if row["kind"] == "send" else str(row["pg_name"] or "")
        rank, node, name = workload.place(int(meetings.nodes[seat]))
        waiting.append(Waiting(rank, node, name, group, _missing(workload, exchange, lost)))
    ended = int((outcome.end_ns >= 0).sum())
    first = f" (rank {waiting[0].rank} waits for {waiting[0].waits_for})" if waiting else ""
    raise SimulationError(
        f"expected every node to end, got {ended:,} of {workload.node_count:,} when ranks began to wait for one "
        f"another{first}; the order of communications differs between ranks",
        waiting,
    )


def _started(workload: Workload, outcome: Outcome) -> Int:
    """Return the nodes all of whose predecessors have ended."""
    unended = outcome.end_ns[workload.preds] < 0
    waits = np.bincount(
        np.repeat(np.arange(workload.node_count), np.diff(workload.indptr)), unended, workload.node_count
    )
    return np.flatnonzero(waits == 0)


def _missing(workload: Workload, exchange: Exchange, seats: npt.NDArray[np.intp]) -> str:
    if not len(seats):
        return "its turn"
    rank, node, name = workload.place(int(exchange.arrival[seats[0]]))
    more = f" and {len(seats) - 1} others" if len(seats) > 1 else ""
    return f"node {node} ('{name}') of rank {rank}{more}"
