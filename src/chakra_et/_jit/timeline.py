"""Host threads as chains of disjoint intervals.

Shape letters: E events, I items, C cuts, H holes, T threads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["nest", "split_items"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@njit(cache=True, nogil=True)
def nest(thread: Int, start: Int, end: Int, tolerance: int) -> tuple[Int, Int, Int, int]:
    """Make events of each thread nest: an event that sticks out of its parent is clipped, or becomes its sibling.

    Args:
        thread: int64 [E]; events of a thread stand together.
        start: int64 [E], ascending in each thread; of two that start together the enclosing one stands first.
        end: int64 [E].
        tolerance: Sticking out by this much is clock noise and isn't counted.

    Returns:
        parent int64 [E] (-1 at the top), clipped start and end int64 [E], and how many events stuck out.
    """
    count = len(thread)
    parent = np.full(count, -1, np.int64)
    low = start.copy()
    high = end.copy()
    stack = np.empty(count + 1, np.int64)
    depth = 0
    overlaps = 0
    for event in range(count):
        if event > 0 and thread[event] != thread[event - 1]:
            depth = 0
        while depth > 0 and high[stack[depth - 1]] <= low[event] and high[event] > high[stack[depth - 1]]:
            depth -= 1
        while depth > 0 and high[stack[depth - 1]] < low[event]:
            depth -= 1
        while depth > 0:
            top = stack[depth - 1]
            if low[top] > low[event]:
                low[event] = low[top]
                high[event] = max(high[event], low[event])
            if high[event] <= high[top]:
                break
            outside = high[event] - high[top]
            if outside > tolerance:
                overlaps += 1
            if outside <= tolerance or high[top] - low[event] >= outside:
                high[event] = high[top]
                break
            low[event] = high[top]
            depth -= 1
        if depth > 0:
            parent[event] = stack[depth - 1]
        stack[depth] = event
        depth += 1
    return parent, low, high, overlaps


# Where a thread's split stands: number of items, items before the thread, current time, next cut, next hole, first
# hole that
# no item follows yet.
_COUNT, _BASE, _NOW, _CUT, _HOLE, _PENDING = range(6)


@njit(cache=True, nogil=True)
def _emit(state: Int, owner: Int, low: Int, high: Int, opened: Bool, hole_next: Int, top: int, until: int) -> None:
    """Add an item from the current time to `until`."""
    count = state[_COUNT]
    owner[count], low[count], high[count] = top, state[_NOW], until
    while state[_PENDING] < state[_HOLE]:
        hole_next[state[_PENDING]] = count
        state[_PENDING] += 1
    state[_COUNT] = count + 1
    state[_NOW] = until
    if top >= 0:
        opened[top] = True


@njit(cache=True, nogil=True)
def _advance(
    state: Int,
    owner: Int,
    low: Int,
    high: Int,
    opened: Bool,
    cuts: tuple[Int, Int, Int, int],
    holes: tuple[Int, Int, Int, Int, int],
    top: int,
    until: int,
    last: bool,
) -> None:
    """Add the items of one stretch of time that belongs to `top`, split at the cuts and holes in it."""
    cut_time, cut_event, cut_item, cut_stop = cuts
    hole_from, hole_to, hole_prev, hole_next, hole_stop = holes
    while True:
        first = top >= 0 and not opened[top]
        cut, hole = state[_CUT], state[_HOLE]
        own = first and cut < cut_stop and cut_event[cut] == top
        at_cut = cut < cut_stop and (cut_time[cut] < until or (own and cut_time[cut] <= until))
        at_hole = hole < hole_stop and hole_from[hole] < until
        if at_cut and (not at_hole or cut_time[cut] <= hole_from[hole]):
            time = max(cut_time[cut], state[_NOW])
            # After a hole, something must stand where it ends.
            if time > state[_NOW] or state[_PENDING] < hole or own:
                _emit(state, owner, low, high, opened, hole_next, top, time)
            cut_item[cut] = state[_COUNT] - 1 if state[_COUNT] > state[_BASE] else -1
            state[_CUT] += 1
        elif at_hole:
            time = max(hole_from[hole], state[_NOW])
            if time > state[_NOW] or first:
                _emit(state, owner, low, high, opened, hole_next, top, time)
            hole_prev[hole] = state[_COUNT] - 1 if state[_COUNT] > state[_BASE] else -1
            state[_NOW] = max(time, min(hole_to[hole], until))
            state[_HOLE] += 1
        else:
            break
    first = top >= 0 and not opened[top]
    if until > state[_NOW] or first or (last and state[_PENDING] < state[_HOLE]):
        _emit(state, owner, low, high, opened, hole_next, top, until)


@njit(cache=True, nogil=True)
def _split_thread(
    state: Int,
    items: tuple[Int, Int, Int, Bool],
    cuts: tuple[Int, Int, Int, int],
    holes: tuple[Int, Int, Int, Int, int],
    start: Int,
    end: Int,
    event: int,
    stop: int,
    stack: Int,
    last: int,
) -> None:
    """Add the items of one thread, whose events are `event` to `stop` and whose time ends at `last` or later."""
    owner, low, high, opened = items
    depth, done = 0, False
    while not done:
        # The next boundary: the next event starts, or the top event ends, or the thread ends.
        top = stack[depth - 1] if depth > 0 else -1
        opens = event < stop and (top < 0 or start[event] < end[top] or end[event] <= end[top])
        done = not opens and top < 0
        until = start[event] if opens else end[top] if top >= 0 else last
        _advance(state, owner, low, high, opened, cuts, holes, top, max(until, state[_NOW]), done)
        if opens:
            stack[depth] = event
            depth += 1
            event += 1
        elif top >= 0:
            depth -= 1


@njit(cache=True, nogil=True)
def split_items(
    bounds: Int,
    origin: Int,
    start: Int,
    end: Int,
    cut_bounds: Int,
    cut_time: Int,
    cut_event: Int,
    hole_bounds: Int,
    hole_from: Int,
    hole_to: Int,
) -> tuple[Int, Int, Int, Int, Int, Int, Int]:
    """Split each thread's time into items: an operator's own time between its children, and idle time (owner -1).

    Every event owns at least one item, at its start, maybe of length zero. Cuts split items; holes are time that is
    left out (waits), with the next item after them starting where they end.

    Args:
        bounds: int64 [T + 1], events of each thread; nested, as `nest` leaves them.
        origin: int64 [T + T]: first T: where each thread's time begins; last T: where it ends at least.
        start: int64 [E].
        end: int64 [E].
        cut_bounds: int64 [T + 1], cuts of each thread, by time.
        cut_time: int64 [C].
        cut_event: int64 [C], the event that makes the cut (a cut at its very start comes after its first item), or -1.
        hole_bounds: int64 [T + 1], holes of each thread, by time, disjoint; one that reaches beyond a child's
            start, or its event's end, ends there.
        hole_from: int64 [H].
        hole_to: int64 [H].

    Returns:
        Items: owner, start, end (int64 [I]) and bounds (int64 [T + 1]); for each cut the item that ends there (int64
        [C]); for each hole the item before and the item after it (int64 [H]); -1 where there is none.
    """
    threads = len(bounds) - 1
    capacity = 2 * len(start) + 2 * len(cut_time) + 3 * len(hole_from) + 2 * threads + 8
    owner, low, high = np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    item_bounds = np.zeros(threads + 1, np.int64)
    cut_item = np.full(len(cut_time), -1, np.int64)
    hole_prev, hole_next = np.full(len(hole_from), -1, np.int64), np.full(len(hole_from), -1, np.int64)
    opened = np.zeros(len(start), np.bool_)
    stack = np.empty(len(start) + 1, np.int64)
    state = np.zeros(6, np.int64)
    for thread in range(threads):
        state[_BASE], state[_NOW] = state[_COUNT], origin[thread]
        state[_CUT], state[_HOLE], state[_PENDING] = cut_bounds[thread], hole_bounds[thread], hole_bounds[thread]
        cuts = (cut_time, cut_event, cut_item, cut_bounds[thread + 1])
        holes = (hole_from, hole_to, hole_prev, hole_next, hole_bounds[thread + 1])
        items = (owner, low, high, opened)
        _split_thread(
            state, items, cuts, holes, start, end, bounds[thread], bounds[thread + 1], stack, origin[threads + thread]
        )
        for cut in range(state[_CUT], cut_bounds[thread + 1]):
            cut_item[cut] = state[_COUNT] - 1 if state[_COUNT] > state[_BASE] else -1
        item_bounds[thread + 1] = state[_COUNT]
    count = state[_COUNT]
    return owner[:count].copy(), low[:count].copy(), high[:count].copy(), item_bounds, cut_item, hole_prev, hole_next
