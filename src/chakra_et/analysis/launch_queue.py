"""How many activities are launched and not yet started, over time.

Shape letters: A activities, W windows, L lanes, P points.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.windows import locate

__all__ = ["QUEUE", "length_at_call", "measure_queue", "queue_points", "queue_steps", "thinned"]

Int = npt.NDArray[np.int64]
QUEUE: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "iteration": pl.Int64, "device": pl.Int64, "stream": pl.Int64, "time_ns": pl.Int64,
    "length": pl.Int64,
}  # fmt: skip


def queue_steps(launched: Int, started: Int, lane: Int) -> tuple[Int, Int, Int]:
    """Return how a queue changes: one more when a call begins, one less when an activity starts.

    What starts before its call began (clocks differ) was never in the queue. At one moment, launches come first.

    Args:
        launched: int64 [A], ns.
        started: int64 [A], ns.
        lane: int64 [A]: the queue of each.

    Returns:
        Lane, time and length from then on, int64 [P] each, by lane and time; at most two points a moment.
    """
    none = np.zeros(len(lane), np.int64)
    lanes = np.concatenate((lane, lane))
    time = np.concatenate((np.minimum(launched, started), started))
    leaves = np.concatenate((none, none + 1))
    order = np.lexsort((leaves, time, lanes))
    lanes, time, leaves = lanes[order], time[order], leaves[order]
    length = np.cumsum(1 - 2 * leaves)
    last = np.ones(len(time), np.bool_)
    last[:-1] = (lanes[1:] != lanes[:-1]) | (time[1:] != time[:-1]) | (leaves[1:] != leaves[:-1])
    return lanes[last], time[last], length[last]


def length_at_call(launched: Int, started: Int, lane: Int) -> Int:
    """Return how long its lane's queue was when the call of each activity began, itself included, int64 [A]."""
    lanes, time, length = queue_steps(launched, started, lane)
    place = _place(lanes, time, lane, np.minimum(launched, started))
    # Of the two points of a moment the first is that of the launches.
    twin = place > 0
    twin[twin] = (lanes[place[twin]] == lanes[place[twin] - 1]) & (time[place[twin]] == time[place[twin] - 1])
    found: Int = length[place - twin]
    return found


def _place(lanes: Int, time: Int, lane: Int, moment: Int) -> Int:
    """Return the last point of a lane at or before each moment, int64; where none is, that of the lane before or -1."""
    if not len(time):
        return np.full(len(moment), -1, np.int64)
    origin = int(time.min())
    width = int(time.max()) - origin + 2
    wanted = np.clip(moment - origin, -1, width - 2) + 1
    return np.searchsorted(lanes * width + (time - origin + 1), lane * width + wanted, side="right") - 1


def queue_points(steps: tuple[Int, Int, Int], lanes: int, begins: Int, ends: Int) -> pl.DataFrame:
    """Return each lane's queue in each window: what it is when the window begins, and every change.

    Args:
        steps: As `queue_steps` returns them.
        lanes: Number of lanes, L.
        begins: int64 [W], ascending, ns.
        ends: int64 [W], ns.

    Returns:
        ``window``, ``lane``, ``time_ns``, ``length`` (from then on), by lane, window and time.
    """
    lane, time, length = steps
    window = np.tile(np.arange(len(begins)), lanes)
    of = np.repeat(np.arange(lanes), len(begins))
    place = _place(lane, time, of, begins[window])
    known = place >= 0
    known[known] = lane[place[known]] == of[known]
    opening = np.zeros(len(place), np.int64)
    opening[known] = length[place[known]]
    told = known.copy()
    told[known] = time[place[known]] == begins[window[known]]
    at = locate(time, begins, ends)
    inside = at >= 0
    found = pl.DataFrame(
        {
            "window": np.concatenate((window[~told], at[inside])),
            "lane": np.concatenate((of[~told], lane[inside])),
            "time_ns": np.concatenate((begins[window[~told]], time[inside])),
            "length": np.concatenate((opening[~told], length[inside])),
        }
    )
    return found.sort("lane", "window", "time_ns", maintain_order=True)


def measure_queue(steps: tuple[Int, Int, Int], lanes: int, begins: Int, ends: Int) -> pl.DataFrame:
    """Return what each window sees of each lane's queue, [W * L]; arguments as those of `queue_points`.

    Returns:
        ``window``, ``lane``, ``queue_area`` (length times ns, added up), ``queue_max``, ``queue_empty_ns``.
    """
    points = queue_points(steps, lanes, begins, ends)
    time, window, lane, length = (points[name].to_numpy() for name in ("time_ns", "window", "lane", "length"))
    until = ends[window]
    same = (window[1:] == window[:-1]) & (lane[1:] == lane[:-1])
    until[:-1][same] = time[1:][same]
    lasts = until - time
    count = lanes * len(begins)
    slot = lane * len(begins) + window
    area, empty, most = (np.zeros(count, np.int64) for _ in range(3))
    np.add.at(area, slot, length * lasts)
    np.add.at(empty, slot, np.where(length <= 0, lasts, 0))
    np.maximum.at(most, slot, length)
    numbers = np.arange(count)
    return pl.DataFrame(
        {
            "window": numbers % max(len(begins), 1),
            "lane": numbers // max(len(begins), 1),
            "queue_area": area,
            "queue_max": most,
            "queue_empty_ns": empty,
        }
    )


def thinned(queue: pl.DataFrame, points: int) -> pl.DataFrame:
    """Return a queue's longest and last length in each of as many stretches of time, for pictures.

    Args:
        queue: One stream's rows of `QUEUE`, by time.
        points: Number of stretches.
    """
    queue = queue.select("time_ns", "length")
    if queue.height <= 2 * points:
        return queue
    time = queue["time_ns"].to_numpy()
    slot = (time - time[0]) * points // (time[-1] - time[0] + 1)
    table = queue.with_row_index("at").with_columns(slot=pl.Series(slot))
    kept = table.group_by("slot").agg(
        most=pl.col("at").gather(pl.col("length").arg_max()).first(), last=pl.col("at").last()
    )
    rows = pl.concat([kept["most"], kept["last"]]).unique().sort()
    thin: pl.DataFrame = queue[rows]
    return thin
