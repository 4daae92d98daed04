"""Speeds of communications that share links.

Every link divides its capacity into equal parts, in bytes per ns, among the communications on it; a communication goes
as fast as its tightest link lets it; what it leaves over on its other links is divided again among the rest.

For messages (the same bytes on each of their links) this is max-min fairness as networks define it (Bertsekas and
Gallager, Data Networks, 2nd ed. 1992, section 6.5.2: progressive filling): nobody could have more bandwidth without
somebody who has no more than that losing some. A collective may load its links unequally. Then each is still sure of
its equal part of its tightest link, whatever the others do, and everybody is held back by a full link of its own.

Shape letters: C communications, K loads, L links, A active communications, U links of active ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["fair_rates", "fair_rates_into"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

# A link with less than this share of its capacity left is full.
_FULL = 1e-9


@njit(cache=True, nogil=True)
def fair_rates(active: Int, indptr: Int, links: Int, bytes: Float, capacity: Float, rates: Float) -> None:
    """Write the speed of each active communication; see `fair_rates_into`, which needs no memory for the links.

    Args:
        active: int64 [A]: communications that run, each once.
        indptr: int64 [C + 1]: where each communication's loads begin.
        links: int64 [K]: link numbers, unique inside one communication.
        bytes: float64 [K], above 0.
        capacity: float64 [L], bytes per ns, above 0.
        rates: float64 [C], written at `active`: share of the communication per ns.

    Example:
        >>> loads = np.array([100.0, 100.0])
        >>> rates = np.zeros(2)
        >>> fair_rates(np.arange(2), np.array([0, 1, 2]), np.array([0, 0]), loads, np.array([50.0]), rates)
        >>> rates.tolist()
        [0.25, 0.25]
    """
    fair_rates_into(active, indptr, links, bytes, capacity, rates, np.full(len(capacity), -1, np.int64))


@njit(cache=True, nogil=True)
def fair_rates_into(
    active: Int, indptr: Int, links: Int, bytes: Float, capacity: Float, rates: Float, slots: Int
) -> None:
    """Write the speed of each active communication; time and memory follow the active ones' loads.

    Only communications that share a link, directly or through others, influence each other: a caller may pass just the
    part that changed. One without loads gets an infinite speed.

    Args:
        active: int64 [A]: communications that run, each once.
        indptr: int64 [C + 1]: where each communication's loads begin.
        links: int64 [K]: link numbers, unique inside one communication.
        bytes: float64 [K], above 0.
        capacity: float64 [L], bytes per ns, above 0.
        rates: float64 [C], written at `active`: share of the communication per ns.
        slots: int64 [L], scratch: all -1, and so again afterwards.

    Example:
        >>> rates, slots = np.zeros(2), np.full(2, -1)
        >>> loads = np.array([100.0, 100.0, 100.0])
        >>> ends, capacity = np.array([0, 1, 3]), np.array([50.0, 10.0])
        >>> fair_rates_into(np.arange(2), ends, np.array([0, 0, 1]), loads, capacity, rates, slots)
        >>> rates.tolist()  # the second is held back to 10 by link 1: the first has the remaining 40 of link 0
        [0.4, 0.1]
    """
    if len(active) == 1:
        rates[active[0]] = _alone(active[0], indptr, links, bytes, capacity)
        return
    used = _number(active, indptr, links, slots)
    _fill(active, indptr, links, bytes, capacity[used], rates, slots)
    for link in used:
        slots[link] = -1


@njit(cache=True, nogil=True)
def _alone(one: int, indptr: Int, links: Int, bytes: Float, capacity: Float) -> float:
    rate = np.inf
    for k in range(indptr[one], indptr[one + 1]):
        rate = min(rate, capacity[links[k]] / bytes[k])
    return rate


@njit(cache=True, nogil=True)
def _number(active: Int, indptr: Int, links: Int, slots: Int) -> Int:
    """Give the links of active communications compact numbers, in `slots`; return these links, int64 [U]."""
    most = 0
    for one in active:
        most += indptr[one + 1] - indptr[one]
    used = np.empty(min(most, len(slots)), np.int64)
    count = 0
    for one in active:
        for k in range(indptr[one], indptr[one + 1]):
            if slots[links[k]] < 0:
                slots[links[k]] = count
                used[count] = links[k]
                count += 1
    return used[:count]


@njit(cache=True, nogil=True)
def _fill(active: Int, indptr: Int, links: Int, bytes: Float, capacity: Float, rates: Float, slots: Int) -> None:
    """Fill up links, round by round; in each, at least one link becomes full, and who uses it keeps its speed.

    The arguments are those of `fair_rates_into`, but for `capacity`, float64 [U].
    """
    room = capacity.copy()  # what those whose speed is settled leave
    sharers = np.zeros(len(capacity), np.int64)
    open_ = np.empty_like(active)  # the first `left`: those whose speed is not settled
    left = 0
    for one in active:
        rates[one] = np.inf
        if indptr[one + 1] > indptr[one]:
            rates[one] = 0.0
            open_[left] = one
            left += 1
        for k in range(indptr[one], indptr[one + 1]):
            sharers[slots[links[k]]] += 1
    step = np.empty(len(active))
    free, growth = np.empty(len(capacity)), np.empty(len(capacity))
    while left:
        _steps(open_[:left], indptr, links, bytes, rates, slots, room, sharers, step)
        free[:] = room
        growth[:] = 0.0
        for a in range(left):
            one = open_[a]
            for k in range(indptr[one], indptr[one + 1]):
                free[slots[links[k]]] -= rates[one] * bytes[k]
                growth[slots[links[k]]] += step[a] * bytes[k]
        scale, tightest = np.inf, -1
        for u in range(len(capacity)):
            if growth[u] > 0.0 and free[u] < scale * growth[u]:
                scale, tightest = max(free[u], 0.0) / growth[u], u
        kept = 0
        for a in range(left):
            one = open_[a]
            settled = tightest < 0
            rates[one] += step[a] * scale if tightest >= 0 else 0.0
            for k in range(indptr[one], indptr[one + 1]):
                u = slots[links[k]]
                settled |= u == tightest or free[u] - scale * growth[u] <= _FULL * capacity[u]
            if settled:
                for k in range(indptr[one], indptr[one + 1]):
                    room[slots[links[k]]] -= rates[one] * bytes[k]
                    sharers[slots[links[k]]] -= 1
            else:
                open_[kept] = one
                kept += 1
        left = kept


@njit(cache=True, nogil=True)
def _steps(
    open_: Int, indptr: Int, links: Int, bytes: Float, rates: Float, slots: Int, room: Float, sharers: Int, step: Float
) -> None:
    """Write how much each speed should grow: up to an equal part of what there is, on the tightest link.

    Where that leaves all speeds as they are although no link is full, they grow in proportion to these parts.
    """
    grows = False
    for a in range(len(open_)):
        one = open_[a]
        part = np.inf
        for k in range(indptr[one], indptr[one + 1]):
            u = slots[links[k]]
            part = min(part, room[u] / (sharers[u] * bytes[k]))
        step[a] = max(part - rates[one], 0.0)
        grows |= step[a] > _FULL * part
    if not grows:
        for a in range(len(open_)):
            step[a] += rates[open_[a]]
