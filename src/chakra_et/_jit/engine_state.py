"""What the engine is told (`Plan`) and what it remembers (`State`): flat arrays, so that it can stop and go on.

Items are what can have an event or wait for a resource: the nodes 0 .. N-1, then the meetings N .. N+M-1. Tables are
matrices with named columns: compiled functions take few arguments faster than many.

Shape letters: N nodes, E edges, M meetings, P participants, S signals, Q resources, F flows, K loads, L links, I items,
B cells (running loads).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Plan", "State", "grow_cells", "new_state"]

Int = npt.NDArray[np.int64]
Word = npt.NDArray[np.int32]
Float = npt.NDArray[np.float64]

NEVER = 1 << 62

# Bits of `-Plan.role`.
MEETS, SIGNALS, OCCUPIES = 1, 2, 4
# Columns of `Plan.facts`: a node's resource, its meeting, 1 if it waits for the release, its first signal; -1 for none.
RESOURCE, MEETING, WAITS, SIGNAL = 0, 1, 2, 3
# Columns of `Plan.signals`: the meeting that is told, the node's next signal.
TOLD, NEXT_SIGNAL = 0, 1
# Columns of `Plan.seats`: the participant, and the paced resource of its rank (-1 for none).
MEMBER, ENGINE = 0, 1

# Columns of `State.nodes`. BOUND is the node that a start waited for last: a predecessor, or -2 - node for what held
# the resource before; -1 for neither.
START, END, MISSING, BOUND = 0, 1, 2, 3
# Columns of `State.resources`: how many items it holds at once (of nodes: one), 1 if running communications of its rank
# slow it down, first item that waits out of line, number of items held, the item taken in last, 1 if it is on the list
# of those to look at, communications that run on its rank, where its line begins and ends. Items that come in order, as
# they mostly do, wait in line: a part of `State.line` as long as the resource has items.
SERVERS, PACED, QUEUE, BUSY, HELD, TOUCHED, LOAD, LINE, LINE_END = range(9)
# Columns of `State.work`: what is left of the node on a paced resource, ns; since when.
LEFT, SINCE = 0, 1
# Columns of `State.meetings`: its channel and flow (-1 for none), signals that have not come, where its seats begin and
# end, the latest signal's time and node, when it was released (-1: not yet), first cell of its running loads, stamp of
# the last visit.
CHANNEL, FLOW, ABSENT, SEATS, SEATS_END, CAME, LAST, RELEASE, CELLS, VISITED = range(10)
# Columns of `State.fluid`: what is left of a flow, its speed (1 / ns), since when.
SHARE, RATE, UPDATED = 0, 1, 2
# Columns of `State.links`: first cell, 1 if its flows changed, stamp of the last visit.
HEAD, DIRTY, SEEN = 0, 1, 2
# Columns of `State.cells`: meeting, link, neighbors along the link, next cell of the same flow.
CELL_MEETING, CELL_LINK, CELL_NEXT, CELL_PREVIOUS, CELL_PEER = range(5)
# Slots of `State.at`: the time; sizes of stacks and of the event queue; nodes that have ended; stamp of the last walk;
# first free cell; 1 while resources are given out.
CLOCK, TODO_SIZE, EVENTS, ENDED, TOUCHED_SIZE, DIRTY_SIZE, STAMP, FREE_CELL, SERVING = range(9)


class Plan(NamedTuple):
    """What to simulate; the engine changes nothing of it.

    A meeting begins when its last signal has come: the start of each node that is linked to it. After that it takes its
    flow's time, if it has one, and is released. A participant that waits ends when its own time has passed since the
    release, or since its start where that is later; one that doesn't wait ends when its own time has passed since its
    start.

    Attributes:
        out, succs: int64 [N + 1], [E]: successor lists.
        needs: int64 [N]: number of predecessors.
        earliest: int64 [N]: ns before which a node doesn't start.
        duration: int64 [N]: ns; of a participant that waits: after the release.
        role: int32 [N]: 0 for a node that only its predecessors hold up; resource + 1 for one that only occupies that;
            for others, the negative of bits `MEETS`, `SIGNALS`, `OCCUPIES`.
        facts: int64 [N, 4]: read where the role is negative.
        signals: int64 [S, 2].
        seats: int64 [P, 2], meeting after meeting.
        meetings: int64 [M, 10]: the state before anything happens.
        resources: int64 [Q, 9]: the state before anything happens.
        slowdown: By how much paced resources are slowed down; infinite to stop them.
        latency: float64 [F]: ns before a flow uses links.
        indptr, links, bytes: [F + 1], [K], [K]: its loads.
        capacity: float64 [L]: bytes per ns.
    """

    out: Int
    succs: Int
    needs: Int
    earliest: Int
    duration: Int
    role: Word
    facts: Int
    signals: Int
    seats: Int
    meetings: Int
    resources: Int
    slowdown: float
    latency: Float
    indptr: Int
    links: Int
    bytes: Float
    capacity: Float


class State(NamedTuple):
    """What has happened so far.

    Attributes:
        at: int64 [9]: counters.
        nodes: int64 [N, 4].
        todo: int64 [N]: stack of nodes that are free to start.
        heap: int64 [I, 2]: the event queue; see `event_heap`.
        items: int64 [I, 4].
        resources: int64 [Q, 9].
        work: float64 [Q, 2].
        line: int64 [I]: items that wait in order, resource after resource.
        touched: int64 [Q]: stack of resources to look at.
        meetings: int64 [M, 10].
        fluid: float64 [M, 3].
        links: int64 [L, 3].
        slots: int64 [L]: all -1: scratch of `fair_rates_into`.
        dirty: int64 [L]: stack of links whose flows changed.
        walk: int64 [L]: stack of links to visit.
        group: int64 [M]: flows that influence one another.
        cells: int64 [B, 5].
    """

    at: Int
    nodes: Int
    todo: Int
    heap: Int
    items: Int
    resources: Int
    work: Float
    line: Int
    touched: Int
    meetings: Int
    fluid: Float
    links: Int
    slots: Int
    dirty: Int
    walk: Int
    group: Int
    cells: Int


def new_state(plan: Plan) -> State:
    """Return the state before the first event: what waits for nobody is to be done."""
    nodes, meetings = len(plan.needs), len(plan.meetings)
    resources, links = len(plan.resources), len(plan.capacity)
    roots = np.flatnonzero(plan.needs == 0)[::-1]
    at = np.zeros(9, np.int64)
    at[CLOCK] = plan.earliest[roots].min() if len(roots) else 0
    at[TODO_SIZE], at[FREE_CELL] = len(roots), -1
    table = np.empty((nodes, 4), np.int64)
    table[:, START], table[:, END], table[:, MISSING], table[:, BOUND] = plan.earliest, -1, plan.needs, -1
    todo = np.empty(nodes, np.int64)
    todo[: len(roots)] = roots
    # Where nothing contends, no item has an event.
    items = np.zeros((nodes + meetings + resources if meetings or resources else 0, 4), np.int64)
    wires = np.zeros((links, 3), np.int64)
    wires[:, HEAD] = -1
    state = State(
        at=at,
        nodes=table,
        todo=todo,
        heap=np.empty((len(items), 2), np.int64),
        items=items,
        resources=plan.resources.copy(),
        work=np.zeros((resources, 2)),
        line=np.empty(len(items) if resources else 0, np.int64),
        touched=np.empty(resources, np.int64),
        meetings=plan.meetings.copy(),
        fluid=np.zeros((meetings, 3)),
        links=wires,
        slots=np.full(links, -1, np.int64),
        dirty=np.empty(links, np.int64),
        walk=np.empty(links, np.int64),
        group=np.empty(meetings, np.int64),
        cells=np.empty((0, 5), np.int64),
    )
    return grow_cells(state, min(len(plan.links), 1 << 12))


def grow_cells(state: State, count: int) -> State:
    """Return the state with `count` more cells."""
    old = len(state.cells)
    cells = np.concatenate((state.cells, np.zeros((count, 5), np.int64)))
    if count:
        # Free cells hang together along `CELL_NEXT`.
        cells[old:, CELL_NEXT] = np.arange(old + 1, old + count + 1)
        cells[-1, CELL_NEXT] = state.at[FREE_CELL]
        state.at[FREE_CELL] = old
    return state._replace(cells=cells)
