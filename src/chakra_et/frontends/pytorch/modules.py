"""Module paths of operators, from the profile's Python frames.

With ``with_modules`` or ``with_stack``, a profile has frames named ``nn.Module: Linear_3``. The frames around an
operator make its module path, outermost first; they are no nodes themselves.

Shape letters: E host events, F frames.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.timeline import nest, split_items
from chakra_et.frontends.pytorch.parse_kineto import OPERATOR
from chakra_et.frontends.pytorch.timeline import HostTimeline

__all__ = ["module_paths"]

Int = npt.NDArray[np.int64]
_PREFIX = "nn.Module: "


def module_paths(frames: pl.DataFrame, timeline: HostTimeline) -> pl.Series | None:
    """Return the module path of each operator, null for other events and outside modules; None without frames.

    Args:
        frames: `KinetoProfile.frames`.
        timeline: Host events.
    """
    threads = pl.DataFrame({"pid": timeline.pids, "tid": timeline.tids, "thread": np.arange(len(timeline.tids))})
    known = (
        frames.filter(pl.col("name").str.starts_with(_PREFIX))
        .join(threads, on=["pid", "tid"])
        .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
        .sort("thread", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True)
    )
    if not known.height:
        return None
    thread = known["thread"].to_numpy()
    parent, start, end, _ = nest(thread, known["start_ns"].to_numpy(), known["end_ns"].to_numpy(), 0)
    paths = _paths(known["name"].str.strip_prefix(_PREFIX).to_list(), parent)
    owner, begin, bounds = _stretches(thread, start, end, len(timeline.tids))
    frame = np.full(len(timeline.thread), -1, np.int64)
    for number in np.unique(thread).tolist():
        low, high = timeline.bounds[number], timeline.bounds[number + 1]
        first, last = bounds[number], bounds[number + 1]
        slot = np.searchsorted(begin[first:last], timeline.start[low:high], side="right") - 1
        frame[low:high] = np.where(slot >= 0, owner[first + np.maximum(slot, 0)], -1)
    frame[timeline.kind != OPERATOR] = -1
    found: pl.Series = pl.Series(paths, dtype=pl.String).gather(pl.Series(frame).replace(-1, None))
    return found


def _paths(names: list[str], parent: Int) -> list[str]:
    paths: list[str] = []
    for name, above in zip(names, parent.tolist(), strict=True):
        paths.append(f"{paths[above]}/{name}" if above >= 0 else name)
    return paths


def _stretches(thread: Int, start: Int, end: Int, threads: int) -> tuple[Int, Int, Int]:
    """Return the innermost frame of each stretch of a thread's time, where it begins, and the bounds of each thread."""
    none = np.empty(0, np.int64)
    empty = np.zeros(threads + 1, np.int64)
    origin = np.concatenate([np.full(threads, start.min(), np.int64), np.full(threads, end.max() + 1, np.int64)])
    bounds = np.searchsorted(thread, np.arange(threads + 1)).astype(np.int64)
    owner, begin, _, item_bounds, _, _, _ = split_items(
        bounds, origin, start, end, empty, none, none, empty, none, none
    )
    return owner, begin, item_bounds
