"""Two queues over numbered items, in flat arrays: one of events by time, and one of what waits for a resource.

The event queue is a binary heap that knows where each item stands, so that an event can be moved to another time. What
waits for a resource forms a pairing heap by item number (Fredman et al., "The pairing heap: a new form of
self-adjusting heap", 1986): any number of them live in the same array.

Shape letters: I items, H capacity of the event queue.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chakra_et._jit.hot import inlined

__all__ = ["CHILD", "ITEM", "PHASE", "PLACE", "SIBLING", "TIME", "join_queue", "pop_event", "put_event", "take_first"]

Int = npt.NDArray[np.int64]

# Columns of an event.
TIME, ITEM = 0, 1
# Columns of an item: where its event stands, what that event means, and the links of a queue. Places and links count
# from 1, so that a table of zeros, which costs nothing, is one of items that nothing has happened to.
PLACE, PHASE, CHILD, SIBLING = 0, 1, 2, 3


@inlined
def put_event(heap: Int, items: Int, size: int, item: int, time: int) -> int:
    """Add an event, or move the item's event to another time.

    Args:
        heap: int64 [H, 2], changed: the events, a heap by time.
        items: int64 [I, 4], changed.
        size: Number of events.
        item: Whose event.
        time: When.

    Returns:
        The number of events now.
    """
    slot = items[item, PLACE] - 1
    if slot < 0:
        slot = size
        size += 1
    elif time > heap[slot, TIME]:
        _sift_down(heap, items, size, slot, item, time)
        return size
    while slot > 0:
        above = (slot - 1) >> 1
        if heap[above, TIME] <= time:
            break
        heap[slot, TIME] = heap[above, TIME]
        heap[slot, ITEM] = heap[above, ITEM]
        items[heap[slot, ITEM], PLACE] = slot + 1
        slot = above
    heap[slot, TIME] = time
    heap[slot, ITEM] = item
    items[item, PLACE] = slot + 1
    return size


@inlined
def _sift_down(heap: Int, items: Int, size: int, slot: int, item: int, time: int) -> None:
    """Put an event in at `slot` or below it."""
    while True:
        below = 2 * slot + 1
        if below >= size:
            break
        if below + 1 < size and heap[below + 1, TIME] < heap[below, TIME]:
            below += 1
        if heap[below, TIME] >= time:
            break
        heap[slot, TIME] = heap[below, TIME]
        heap[slot, ITEM] = heap[below, ITEM]
        items[heap[slot, ITEM], PLACE] = slot + 1
        slot = below
    heap[slot, TIME] = time
    heap[slot, ITEM] = item
    items[item, PLACE] = slot + 1


@inlined
def pop_event(heap: Int, items: Int, size: int) -> int:
    """Remove the earliest event, the first of the heap.

    Args:
        heap: int64 [H, 2], changed.
        items: int64 [I, 4], changed.
        size: Number of events, 1 or more.

    Returns:
        The number of events now.
    """
    items[heap[0, ITEM], PLACE] = 0
    size -= 1
    if size > 0:
        _sift_down(heap, items, size, 0, heap[size, ITEM], heap[size, TIME])
    return size


@inlined
def join_queue(items: Int, first: int, item: int) -> int:
    """Add an item to a queue.

    Args:
        items: int64 [I, 4], changed.
        first: First item of the queue, -1 where it is empty.
        item: What to add; it has never been in a queue.

    Returns:
        The first item now: the one with the lowest number.
    """
    return item if first < 0 else _meld(items, first, item)


@inlined
def _meld(items: Int, one: int, other: int) -> int:
    if other < one:
        one, other = other, one
    items[other, SIBLING] = items[one, CHILD]
    items[one, CHILD] = other + 1
    return one


@inlined
def take_first(items: Int, first: int) -> int:
    """Remove the first item of a queue, and return the first of what is left, -1 for nothing."""
    pair = items[first, CHILD] - 1
    merged = -1  # melded pairs, linked backwards
    while pair >= 0:
        other = items[pair, SIBLING] - 1
        if other < 0:
            items[pair, SIBLING] = merged + 1
            merged = pair
            break
        following = items[other, SIBLING] - 1
        both = _meld(items, pair, other)
        items[both, SIBLING] = merged + 1
        merged = both
        pair = following
    best = -1
    while merged >= 0:
        following = items[merged, SIBLING] - 1
        items[merged, SIBLING] = 0
        best = merged if best < 0 else _meld(items, best, merged)
        merged = following
    return best
