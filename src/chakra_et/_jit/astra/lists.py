"""Waiting lists, first in, first out: `lists` has head and tail of each, `items` the next one behind each item."""

from __future__ import annotations

from chakra_et._jit.astra.state import NONE, Records
from chakra_et._jit.hot import leaf

__all__ = ["append", "take"]


@leaf
def append(lists: Records, items: Records, key: int, item: int) -> None:
    """Put an item at the end of a list."""
    items[item].next = NONE
    if lists[key].tail == NONE:
        lists[key].head = item
    else:
        items[lists[key].tail].next = item
    lists[key].tail = item


@leaf
def take(lists: Records, items: Records, key: int) -> int:
    """Take the first item of a list, -1 if there is none."""
    item = lists[key].head
    if item != NONE:
        lists[key].head = items[item].next
        if lists[key].head == NONE:
            lists[key].tail = NONE
    return item
