"""The stretches of a rank's time that an analysis looks at: one an iteration, or the whole profile.

A device runs behind its host. So an iteration's stretch on the device begins with the first activity that the iteration
launched, and ends with the first that the next one launched (the last one's ends with its own last activity): stretches
of neighbors meet, and everything between is somebody's. Without a device, they are the host's ranges.

Shape letters: A activities, W windows, Q moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.options import Choice
from chakra_et.errors import InputError

__all__ = ["Window", "choose", "locate", "tile", "whole"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """One stretch of time.

    Attributes:
        iteration: Number of the iteration; None for the whole profile.
        label: What the profile calls it.
        begin_ns: Its first ns, on the recorded clock.
        end_ns: The ns after its last one.
        host_begin_ns: Where the iteration begins on the host; None where nothing marks it.
        host_end_ns: Where it ends there.
    """

    iteration: int | None
    label: str
    begin_ns: int
    end_ns: int
    host_begin_ns: int | None = None
    host_end_ns: int | None = None

    @property
    def host_range_ns(self) -> tuple[int, int]:
        """Where it begins and ends on the host; where nothing marks that, its own range."""
        if self.host_begin_ns is None or self.host_end_ns is None:
            return self.begin_ns, self.end_ns
        return self.host_begin_ns, self.host_end_ns


def locate(moments: Int, begins: Int, ends: Int) -> Int:
    """Return the stretch in which each moment lies, int64 [Q]; -1 for none.

    Args:
        moments: int64 [Q], ns.
        begins: int64 [W], ascending, ns.
        ends: int64 [W], ns; stretches are disjoint.

    Example:
        >>> locate(np.array([0, 5, 9]), np.array([5, 20]), np.array([8, 30])).tolist()
        [-1, 0, -1]
    """
    place = np.searchsorted(begins, moments, side="right") - 1
    return np.where((place >= 0) & (moments < np.append(ends, 0)[place]), place, -1)


def whole(activities: pl.DataFrame) -> tuple[Window, ...]:
    """Return the stretch from the first activity to the last one's end; none without activities."""
    if not activities.height:
        return ()
    begin, end = activities.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return (Window(None, "whole profile", begin, end),)


def tile(steps: pl.DataFrame, activities: pl.DataFrame, issued: Int) -> tuple[Window, ...]:
    """Return the stretch of each iteration on the device.

    Args:
        steps: Columns ``iteration``, ``label``, ``begin_ns``, ``end_ns`` on the host, in time order.
        activities: Activities by start, [A].
        issued: int64 [A]: when the host launched each, ns.
    """
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    host_begin, host_end = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
    step = np.searchsorted(host_begin, issued, side="right") - 1
    own = step >= 0
    own[own] = issued[own] < host_end[step[own]]
    first = np.full(len(steps), np.iinfo(np.int64).max)
    until = np.full(len(steps), np.iinfo(np.int64).min)
    np.minimum.at(first, step[own], start[own])
    np.maximum.at(until, step[own], end[own])
    rows = zip(steps["iteration"], steps["label"], first.tolist(), until.tolist(), host_begin.tolist(),
               host_end.tolist(), strict=True)  # fmt: skip
    spans = [row for row in rows if row[2] <= row[3]]
    found: list[Window] = []
    for place, (number, label, begin, last, began, ended) in enumerate(spans):
        following = spans[place + 1][2] if place + 1 < len(spans) else last
        begin = max(begin, found[-1].end_ns) if found else begin
        if following > begin:
            found.append(Window(number, label, begin, following, began, ended))
    return tuple(found)


def choose(windows: tuple[Window, ...], choice: Choice) -> tuple[Window, ...]:
    """Return the windows that were asked for.

    Args:
        windows: All windows of a rank.
        choice: As in `Options`; None leaves out the first and the last where there are more than two.

    Raises:
        InputError: None of the numbers that were asked for is there.
    """
    if choice is None:
        return windows[1:-1] if len(windows) > 2 else windows
    if isinstance(choice, str):
        return windows
    wanted = {choice} if isinstance(choice, int) else set(choice)
    found = tuple(window for window in windows if window.iteration in wanted)
    if not found:
        known = ", ".join(str(window.iteration) for window in windows if window.iteration is not None)
        raise InputError(
            f"iteration: expected some of {known or 'none: the profile shows no iterations'}, "
            f"got {', '.join(map(str, sorted(wanted)))}; take 'whole' for the whole profile"
        )
    return found
