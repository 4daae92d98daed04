"""A discrete-event simulator over flat arrays: nodes, resources, meetings of ranks, and a network that they share.

Where nothing contends, a node's times follow from its predecessors' alone, and they are handed on at once, even into
the future. Only what waits for a resource or shares links goes through the event queue, in order of time. All that
happens at one moment is taken in before anything is decided at that moment, so that results don't depend on how ranks
and meetings are numbered; of the items that wait for a resource, the first in the trace's order goes first.

Shape letters: see `engine_state`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from chakra_et._jit.engine_flows import join_network, leave_network, share_network
from chakra_et._jit.engine_state import (
    ABSENT,
    BOUND,
    BUSY,
    CAME,
    CHANNEL,
    CLOCK,
    DIRTY_SIZE,
    END,
    ENDED,
    ENGINE,
    EVENTS,
    FLOW,
    HELD,
    LAST,
    LEFT,
    LINE,
    LINE_END,
    LOAD,
    MEETING,
    MEETS,
    MEMBER,
    MISSING,
    NEVER,
    NEXT_SIGNAL,
    OCCUPIES,
    PACED,
    QUEUE,
    RELEASE,
    RESOURCE,
    SEATS,
    SEATS_END,
    SERVERS,
    SERVING,
    SIGNAL,
    SIGNALS,
    SINCE,
    START,
    TODO_SIZE,
    TOLD,
    TOUCHED,
    TOUCHED_SIZE,
    UPDATED,
    WAITS,
    Plan,
    State,
)
from chakra_et._jit.event_heap import ITEM, PHASE, TIME, join_queue, pop_event, put_event, take_first
from chakra_et._jit.hot import hot, inlined

__all__ = ["FINISHED", "FULL", "PAUSED", "advance"]

Int = npt.NDArray[np.int64]
Word = npt.NDArray[np.int32]
Float = npt.NDArray[np.float64]

FINISHED, PAUSED, FULL = 0, 1, 2

# What a meeting's event means: its last signal has come; its flow begins to use links; its flow has ended; its
# participants' own times have passed; its latency, which was all it had, has passed.
COMPLETE, LATENT, FLOWING, FIXED, LINKLESS = 1, 2, 3, 4, 5
# Why `_run` stops: the budget is used up; nothing is left to do, or flows must share links anew; a meeting may take its
# channel; a meeting has an event.
_SPENT, _NOTHING, _OPEN, _EVENT = 0, 1, 2, 3
# An end that is still to come, of a participant that has started.
_WAITING = -2


@njit(cache=True, nogil=True)
def advance(plan: Plan, state: State, budget: int) -> int:
    """Simulate on.

    Args:
        plan: What to simulate.
        state: What has happened so far; changed.
        budget: Nodes and events after which to return.

    Returns:
        `FINISHED`: nothing can happen any more (if nodes are left, they wait for one another); `PAUSED`: the budget is
        used up; `FULL`: the cells must grow.
    """
    at, heap, items = state.at, state.heap, state.items
    count = len(state.nodes)
    while True:
        # What needs the whole plan is left to this loop: passing that many arrays takes longer than starting a node.
        why, number, budget = _run(
            plan.out, plan.succs, plan.duration, plan.role, plan.facts, plan.signals, plan.seats, plan.slowdown,
            at, state.nodes, state.todo, heap, items, state.resources, state.line, state.touched, state.work,
            state.meetings, budget,
        )  # fmt: skip
        if why == _SPENT:
            return PAUSED
        if why == _OPEN:
            _open(plan, state, number)
        elif why == _EVENT:
            if items[count + number, PHASE] == LATENT and not join_network(plan, state, number):
                return FULL
            at[EVENTS] = pop_event(heap, items, at[EVENTS])
            _meeting_event(plan, state, number)
        elif at[DIRTY_SIZE] > 0:
            share_network(plan, state)
        else:
            return FINISHED


@hot
def _run(
    out: Int, succs: Int, duration: Int, role: Word, facts: Int, signals: Int, seats: Int, slowdown: float, at: Int,
    nodes: Int, todo: Int, heap: Int, items: Int, resources: Int, line: Int, touched: Int, work: Float, meetings: Int,
    budget: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Simulate nodes up to something of a meeting; return why it stops, which meeting, and what is left to spend."""
    count, first_resource = len(nodes), len(nodes) + len(meetings)
    while budget > 0:
        # Once resources are given out, all are, before anything else happens at this moment.
        serving = at[SERVING] > 0
        if at[TODO_SIZE] > 0 and not serving:
            at[TODO_SIZE] -= 1
            budget -= 1
            node = todo[at[TODO_SIZE]]
            if role[node] == 0:
                _end(out, succs, nodes, todo, at, node, nodes[node, START] + duration[node])
            elif role[node] > 0:
                _come(nodes, heap, items, resources, line, touched, at, role[node] - 1, node)
            elif -role[node] & OCCUPIES:
                _come(nodes, heap, items, resources, line, touched, at, facts[node, RESOURCE], node)
            else:
                _begin(out, succs, duration, role, facts, signals, seats, slowdown, at, nodes, todo, heap, items,
                       meetings, node)  # fmt: skip
        elif at[EVENTS] > 0 and heap[0, TIME] == at[CLOCK] and not serving:
            item = heap[0, ITEM]
            budget -= 1
            if count <= item < first_resource:
                return _EVENT, item - count, budget
            at[EVENTS] = pop_event(heap, items, at[EVENTS])
            if item < count:
                resource = role[item] - 1 if role[item] > 0 else facts[item, RESOURCE]
                _queue(items, resources, line, touched, at, resource, item)
            else:
                _leave(resources, touched, at, item - first_resource)
                _end(out, succs, nodes, todo, at, resources[item - first_resource, HELD], at[CLOCK])
        elif at[TOUCHED_SIZE] > 0:
            resource = touched[at[TOUCHED_SIZE] - 1]
            item = _take(items, resources, line, at, resource)
            at[SERVING] = at[TOUCHED_SIZE]
            if item >= count:
                return _OPEN, item - count, budget
            if item >= 0:
                _occupy(nodes, duration, heap, items, resources, work, at, slowdown, resource, item)
            if item >= 0 and role[item] < 0:
                _tell(signals, meetings, heap, items, at, count, facts[item, SIGNAL], item, at[CLOCK], True)
        elif at[EVENTS] > 0 and at[DIRTY_SIZE] == 0:
            at[CLOCK] = heap[0, TIME]
        else:
            return _NOTHING, 0, budget
    return _SPENT, 0, 0


@hot
def _begin(
    out: Int, succs: Int, duration: Int, role: Word, facts: Int, signals: Int, seats: Int, slowdown: float, at: Int,
    nodes: Int, todo: Int, heap: Int, items: Int, meetings: Int, node: int,
) -> None:  # fmt: skip
    """Start a node that needs no resource: tell who waits for that, and end it if it waits for nobody."""
    time = nodes[node, START]
    if -role[node] & SIGNALS:
        always = slowdown != 1.0
        done = _tell(signals, meetings, heap, items, at, len(nodes), facts[node, SIGNAL], node, time, always)
        while done >= 0:
            meeting = signals[done, TOLD]
            _release(out, succs, duration, facts, seats, at, nodes, todo, meetings, meeting, meetings[meeting, CAME])
            following = signals[done, NEXT_SIGNAL]
            done = _tell(signals, meetings, heap, items, at, len(nodes), following, node, time, always)
    if -role[node] & MEETS and facts[node, WAITS]:
        release = meetings[facts[node, MEETING], RELEASE]
        if release < 0:
            nodes[node, END] = _WAITING
            return
        time = max(time, release)
    _end(out, succs, nodes, todo, at, node, time + duration[node])


@inlined
def _end(out: Int, succs: Int, nodes: Int, todo: Int, at: Int, node: int, time: int) -> None:
    """End a node, and free its successors."""
    nodes[node, END] = time
    at[ENDED] += 1
    for edge in range(out[node], out[node + 1]):
        succ = succs[edge]
        start, bound = nodes[succ, START], nodes[succ, BOUND]
        if time > start or (time == start and (bound < 0 or node < bound)):
            nodes[succ, START] = time
            nodes[succ, BOUND] = node
        nodes[succ, MISSING] -= 1
        if nodes[succ, MISSING] == 0:
            todo[at[TODO_SIZE]] = succ
            at[TODO_SIZE] += 1


@hot
def _tell(
    signals: Int,
    meetings: Int,
    heap: Int,
    items: Int,
    at: Int,
    first: int,
    signal: int,
    node: int,
    time: int,
    always: bool,
) -> int:
    """Let a node's start count in the meetings that wait for it, from one signal on.

    Returns:
        The first signal that completes a meeting which nothing but its participants' own times holds up: the caller
        releases it, and goes on behind; -1 when there is none.
    """
    while signal >= 0:
        meeting = signals[signal, TOLD]
        last, came = meetings[meeting, LAST], meetings[meeting, CAME]
        if last < 0 or time > came or (time == came and node < last):
            meetings[meeting, CAME] = time
            meetings[meeting, LAST] = node
        meetings[meeting, ABSENT] -= 1
        if meetings[meeting, ABSENT] == 0:
            if meetings[meeting, FLOW] < 0 and meetings[meeting, CHANNEL] < 0 and not always:
                return signal
            item = first + meeting
            items[item, PHASE] = COMPLETE
            at[EVENTS] = put_event(heap, items, at[EVENTS], item, meetings[meeting, CAME])
        signal = signals[signal, NEXT_SIGNAL]
    return -1


@hot
def _release(
    out: Int, succs: Int, duration: Int, facts: Int, seats: Int, at: Int, nodes: Int, todo: Int, meetings: Int,
    meeting: int, time: int,
) -> None:  # fmt: skip
    """Let the participants go that wait for a meeting."""
    meetings[meeting, RELEASE] = time
    for seat in range(meetings[meeting, SEATS], meetings[meeting, SEATS_END]):
        node = seats[seat, MEMBER]
        if facts[node, WAITS] and nodes[node, END] == _WAITING:
            _end(out, succs, nodes, todo, at, node, max(time, nodes[node, START]) + duration[node])


@inlined
def _come(
    nodes: Int, heap: Int, items: Int, resources: Int, line: Int, touched: Int, at: Int, resource: int, node: int
) -> None:
    """Let a node wait for its resource from its time on."""
    if nodes[node, START] > at[CLOCK]:
        at[EVENTS] = put_event(heap, items, at[EVENTS], node, nodes[node, START])
    else:
        _queue(items, resources, line, touched, at, resource, node)


@inlined
def _queue(items: Int, resources: Int, line: Int, touched: Int, at: Int, resource: int, item: int) -> None:
    """Let an item wait for a resource."""
    end = resources[resource, LINE_END]
    if end == resources[resource, LINE] or item > line[end - 1]:
        line[end] = item
        resources[resource, LINE_END] = end + 1
    else:
        resources[resource, QUEUE] = join_queue(items, resources[resource, QUEUE], item)
    _touch(resources, touched, at, resource)


@inlined
def _leave(resources: Int, touched: Int, at: Int, resource: int) -> None:
    """Give a server of a resource back."""
    resources[resource, BUSY] -= 1
    _touch(resources, touched, at, resource)


@inlined
def _touch(resources: Int, touched: Int, at: Int, resource: int) -> None:
    if resources[resource, TOUCHED] == 0:
        resources[resource, TOUCHED] = 1
        touched[at[TOUCHED_SIZE]] = resource
        at[TOUCHED_SIZE] += 1


@inlined
def _take(items: Int, resources: Int, line: Int, at: Int, resource: int) -> int:
    """Give a server of the resource touched last to the first item that waits, and return it; -1 if there is none.

    When no more can be given, the resource is off the list of those to look at.
    """
    head, item = resources[resource, LINE], resources[resource, QUEUE]
    ahead = resources[resource, LINE_END] - head
    free = resources[resource, SERVERS] - resources[resource, BUSY]
    if free > 0 and ahead > 0 and (item < 0 or line[head] < item):
        item = line[head]
        ahead -= 1
        resources[resource, LINE] = head + 1
    elif free > 0 and item >= 0:
        resources[resource, QUEUE] = take_first(items, item)
    else:
        item, free = -1, 0
    if item >= 0:
        free -= 1
        resources[resource, BUSY] += 1
    if free == 0 or (ahead == 0 and resources[resource, QUEUE] < 0):
        at[TOUCHED_SIZE] -= 1
        resources[resource, TOUCHED] = 0
    return item


@inlined
def _occupy(
    nodes: Int, duration: Int, heap: Int, items: Int, resources: Int, work: Float, at: Int, slowdown: float,
    resource: int, node: int,
) -> None:  # fmt: skip
    """Start a node on its resource."""
    now = at[CLOCK]
    if now > nodes[node, START]:
        nodes[node, START] = now
        nodes[node, BOUND] = -2 - resources[resource, HELD]
    resources[resource, HELD] = node
    end = now + duration[node]
    if resources[resource, PACED]:
        work[resource, LEFT] = duration[node]
        work[resource, SINCE] = now
        end = _expected(resources, work, slowdown, resource)
    at[EVENTS] = put_event(heap, items, at[EVENTS], len(items) - len(resources) + resource, end)


@hot
def _expected(resources: Int, work: Float, slowdown: float, resource: int) -> int:
    """Return when the node that was taken in last will end if nothing changes."""
    pace = slowdown if resources[resource, PACED] and resources[resource, LOAD] > 0 else 1.0
    if np.isinf(pace):
        return NEVER if work[resource, LEFT] > 0.0 else int(work[resource, SINCE])
    return int(np.floor(work[resource, SINCE] + work[resource, LEFT] * pace + 0.5))


@njit(cache=True, nogil=True)
def _meeting_event(plan: Plan, state: State, meeting: int) -> None:
    items, meetings, resources, at = state.items, state.meetings, state.resources, state.at
    item = len(state.nodes) + meeting
    channel = meetings[meeting, CHANNEL]
    phase = items[item, PHASE]
    if phase == LATENT:
        items[item, PHASE] = FLOWING
    elif phase == COMPLETE:
        if channel >= 0:
            _queue(items, resources, state.line, state.touched, at, channel, item)
        else:
            _open(plan, state, meeting)
    else:
        if phase == FLOWING:
            leave_network(state, meeting)
        if plan.slowdown != 1.0:
            _press(plan.seats, plan.slowdown, at, resources, state.work, meetings, state.heap, items, meeting, -1)
        if channel >= 0:
            _leave(resources, state.touched, at, channel)
        if phase != FIXED:
            _release(plan.out, plan.succs, plan.duration, plan.facts, plan.seats, at, state.nodes, state.todo,
                     meetings, meeting, at[CLOCK])  # fmt: skip


@njit(cache=True, nogil=True)
def _open(plan: Plan, state: State, meeting: int) -> None:
    """Begin a meeting's transfer."""
    meetings, items, at, facts = state.meetings, state.items, state.at, plan.facts
    item = len(state.nodes) + meeting
    now = at[CLOCK]
    if plan.slowdown != 1.0:
        _press(plan.seats, plan.slowdown, at, state.resources, state.work, meetings, state.heap, items, meeting, 1)
    flow = meetings[meeting, FLOW]
    if flow < 0:
        end = now
        for seat in range(meetings[meeting, SEATS], meetings[meeting, SEATS_END]):
            node = plan.seats[seat, MEMBER]
            if facts[node, WAITS]:
                end = max(end, now + plan.duration[node])
        phase = FIXED
        _release(plan.out, plan.succs, plan.duration, facts, plan.seats, at, state.nodes, state.todo, meetings,
                 meeting, now)  # fmt: skip
    else:
        begin = now + plan.latency[flow]
        if plan.indptr[flow] == plan.indptr[flow + 1]:
            phase, end = LINKLESS, int(np.floor(begin + 0.5))
        else:
            phase, end = LATENT, int(np.ceil(begin))
            state.fluid[meeting, UPDATED] = begin
    items[item, PHASE] = phase
    at[EVENTS] = put_event(state.heap, items, at[EVENTS], item, end)


@hot
def _press(
    seats: Int, slowdown: float, at: Int, resources: Int, work: Float, meetings: Int, heap: Int, items: Int,
    meeting: int, change: int,
) -> None:  # fmt: skip
    """Count a communication that begins or ends on the ranks of its participants, and pace their compute."""
    now = at[CLOCK]
    for seat in range(meetings[meeting, SEATS], meetings[meeting, SEATS_END]):
        resource = seats[seat, ENGINE]
        if resource < 0:
            continue
        before = resources[resource, LOAD]
        resources[resource, LOAD] = before + change
        if resources[resource, BUSY] == 0 or (before > 0) == (before + change > 0):
            continue
        pace = slowdown if before > 0 else 1.0
        work[resource, LEFT] = max(work[resource, LEFT] - (now - work[resource, SINCE]) / pace, 0.0)
        work[resource, SINCE] = now
        end = max(_expected(resources, work, slowdown, resource), now)
        at[EVENTS] = put_event(heap, items, at[EVENTS], len(items) - len(resources) + resource, end)
