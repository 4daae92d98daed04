"""The fluid part of the engine: communications that run at the same time share links.

Speeds are computed anew only when a communication begins or ends, and only for those that it influences: reached from
its links over shared links.

Shape letters: see `engine_state`; A flows that influence one another.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from chakra_et._jit.engine_state import (
    CELL_LINK,
    CELL_MEETING,
    CELL_NEXT,
    CELL_PEER,
    CELL_PREVIOUS,
    CELLS,
    CLOCK,
    DIRTY,
    DIRTY_SIZE,
    EVENTS,
    FLOW,
    FREE_CELL,
    HEAD,
    RATE,
    SEEN,
    SHARE,
    STAMP,
    UPDATED,
    VISITED,
    Plan,
    State,
)
from chakra_et._jit.event_heap import put_event
from chakra_et._jit.fair import fair_rates_into

__all__ = ["join_network", "leave_network", "share_network"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

# Times are rounded to whole ns. Halves are common, and sums in another order differ in the last bits: they must round
# alike.
_HALF = 0.5 + 1e-6


@njit(cache=True, nogil=True)
def _mark(links: Int, dirty: Int, at: Int, link: int) -> None:
    if links[link, DIRTY] == 0:
        links[link, DIRTY] = 1
        dirty[at[DIRTY_SIZE]] = link
        at[DIRTY_SIZE] += 1


@njit(cache=True, nogil=True)
def join_network(plan: Plan, state: State, meeting: int) -> bool:
    """Let a meeting's flow use its links; return False where there are too few cells, with nothing changed."""
    at, cells, links = state.at, state.cells, state.links
    flow = state.meetings[meeting, FLOW]
    begin, end = plan.indptr[flow], plan.indptr[flow + 1]
    cell = at[FREE_CELL]
    for _ in range(begin, end):
        if cell < 0:
            return False
        cell = cells[cell, CELL_NEXT]
    first = -1
    for k in range(begin, end):
        link = plan.links[k]
        head = links[link, HEAD]
        cell = at[FREE_CELL]
        at[FREE_CELL] = cells[cell, CELL_NEXT]
        cells[cell, CELL_MEETING] = meeting
        cells[cell, CELL_LINK] = link
        cells[cell, CELL_PEER] = first
        cells[cell, CELL_PREVIOUS] = -1
        cells[cell, CELL_NEXT] = head
        if head >= 0:
            cells[head, CELL_PREVIOUS] = cell
        links[link, HEAD] = cell
        first = cell
        _mark(links, state.dirty, at, link)
    state.meetings[meeting, CELLS] = first
    state.fluid[meeting, SHARE] = 1.0
    state.fluid[meeting, RATE] = 0.0
    return True


@njit(cache=True, nogil=True)
def leave_network(state: State, meeting: int) -> None:
    """Take a meeting's flow off its links."""
    at, cells, links = state.at, state.cells, state.links
    cell = state.meetings[meeting, CELLS]
    while cell >= 0:
        following, previous, link = cells[cell, CELL_NEXT], cells[cell, CELL_PREVIOUS], cells[cell, CELL_LINK]
        if previous < 0:
            links[link, HEAD] = following
        else:
            cells[previous, CELL_NEXT] = following
        if following >= 0:
            cells[following, CELL_PREVIOUS] = previous
        cells[cell, CELL_NEXT] = at[FREE_CELL]
        at[FREE_CELL] = cell
        _mark(links, state.dirty, at, link)
        cell = cells[cell, CELL_PEER]
    state.meetings[meeting, CELLS] = -1


@njit(cache=True, nogil=True)
def share_network(plan: Plan, state: State) -> None:
    """Give every flow that a change reaches its new speed, and move the events of their ends."""
    at, links, meetings, group, fluid = state.at, state.links, state.meetings, state.group, state.fluid
    at[STAMP] += 1
    for slot in range(at[DIRTY_SIZE]):
        link = state.dirty[slot]
        links[link, DIRTY] = 0
        if links[link, HEAD] < 0 or links[link, SEEN] == at[STAMP]:
            continue
        count = _gather(state.cells, links, meetings, state.walk, group, at[STAMP], link)
        # In order of number: sums of floats must not depend on the order in which flows were found.
        _sort(group, count)
        rates = _share(meetings, group, count, plan.indptr, plan.links, plan.bytes, plan.capacity, state.slots)
        for a in range(count):
            _set_rate(fluid, state.heap, state.items, at, len(state.nodes), group[a], rates[a])
    at[DIRTY_SIZE] = 0


@njit(cache=True, nogil=True)
def _gather(cells: Int, links: Int, meetings: Int, walk: Int, group: Int, stamp: int, link: int) -> int:
    """Collect in `group` the flows that influence one another, from one link on; return how many there are."""
    links[link, SEEN] = stamp
    walk[0] = link
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        cell = links[walk[depth], HEAD]
        while cell >= 0:
            meeting = cells[cell, CELL_MEETING]
            if meetings[meeting, VISITED] != stamp:
                meetings[meeting, VISITED] = stamp
                group[count] = meeting
                count += 1
                other = meetings[meeting, CELLS]
                while other >= 0:
                    reached = cells[other, CELL_LINK]
                    if links[reached, SEEN] != stamp:
                        links[reached, SEEN] = stamp
                        walk[depth] = reached
                        depth += 1
                    other = cells[other, CELL_PEER]
            cell = cells[cell, CELL_NEXT]
    return count


@njit(cache=True, nogil=True)
def _share(
    meetings: Int, group: Int, count: int, indptr: Int, links: Int, loads: Float, capacity: Float, slots: Int
) -> Float:
    """Return the speeds of the first `count` flows of `group`, float64 [A]."""
    # Meetings that are alike have one flow: here each needs loads of its own.
    begin = np.zeros(count + 1, np.int64)
    for a in range(count):
        flow = meetings[group[a], FLOW]
        begin[a + 1] = begin[a] + indptr[flow + 1] - indptr[flow]
    own_links, own_loads = np.empty(begin[count], np.int64), np.empty(begin[count])
    active = np.empty(count, np.int64)
    for a in range(count):
        active[a] = a
        shift = indptr[meetings[group[a], FLOW]] - begin[a]
        for k in range(begin[a], begin[a + 1]):
            own_links[k] = links[k + shift]
            own_loads[k] = loads[k + shift]
    rates = np.empty(count)
    fair_rates_into(active, begin, own_links, own_loads, capacity, rates, slots)
    return rates


@njit(cache=True, nogil=True)
def _sort(values: Int, count: int) -> None:
    """Sort the first `count` values (Shell, "A high-speed sorting procedure", 1959); numba's own sort compiles long."""
    gap = count // 2
    while gap > 0:
        for slot in range(gap, count):
            value = values[slot]
            while slot >= gap and values[slot - gap] > value:
                values[slot] = values[slot - gap]
                slot -= gap
            values[slot] = value
        gap //= 2


@njit(cache=True, nogil=True)
def _set_rate(fluid: Float, heap: Int, items: Int, at: Int, first: int, meeting: int, rate: float) -> None:
    """Change a flow's speed from now on; `first` is the item of meeting 0."""
    now = at[CLOCK]
    if fluid[meeting, RATE] > 0.0:
        if abs(rate - fluid[meeting, RATE]) <= 1e-12 * rate:
            return
        done = fluid[meeting, RATE] * (now - fluid[meeting, UPDATED])
        fluid[meeting, SHARE] = max(fluid[meeting, SHARE] - done, 0.0)
        fluid[meeting, UPDATED] = now
    fluid[meeting, RATE] = rate
    end = max(now, int(np.floor(fluid[meeting, UPDATED] + fluid[meeting, SHARE] / rate + _HALF)))
    at[EVENTS] = put_event(heap, items, at[EVENTS], first + meeting, end)
