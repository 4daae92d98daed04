"""Split the host threads at every point where something happens, and tie the points together.

Shape letters: E host events, A activities, I items, M annotations, C cuts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et._jit.timeline import split_items
from chakra_et.frontends.pytorch.comm_notes import is_note
from chakra_et.frontends.pytorch.edges import ACTIVITY, ANNOTATION_NODE, CTRL, DATA, ITEM, SYNC, EdgeBuffer
from chakra_et.frontends.pytorch.parse_kineto import ANNOTATION
from chakra_et.frontends.pytorch.timeline import HostTimeline
from chakra_et.frontends.pytorch.waits import Hole, Holes

__all__ = ["HostItems", "split_host_items"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class HostItems:
    """The host side of a rank as disjoint items, by thread and time.

    Attributes:
        owner: int64 [I], host event of each item, -1 for idle time.
        thread: int64 [I].
        start: int64 [I], ns.
        end: int64 [I], ns.
        event_item: int64 [E], the first item of each event; -1 for annotations.
        launch_item: int64 [A], the item that ends where each activity was launched, -1 unknown.
        annotations: int64 [M], host events that are annotations.
    """

    owner: Int
    thread: Int
    start: Int
    end: Int
    event_item: Int
    launch_item: Int
    annotations: Int


class _Cuts:
    """Points at which threads are split, collected in groups and looked up again after the split."""

    def __init__(self) -> None:
        self._thread: list[Int] = []
        self._time: list[Int] = []
        self._event: list[Int] = []
        self._total = 0

    def add(self, thread: npt.ArrayLike, time: npt.ArrayLike, event: npt.ArrayLike | None = None) -> slice:
        """Add cuts and return where they will be found."""
        threads = np.asarray(thread, np.int64)
        self._thread.append(threads)
        self._time.append(np.asarray(time, np.int64))
        self._event.append(np.full(len(threads), -1, np.int64) if event is None else np.asarray(event, np.int64))
        begin = self._total
        self._total += len(threads)
        return slice(begin, self._total)

    def ordered(self, threads: int) -> tuple[Int, Int, Int, Int]:
        """Return the bounds of each thread, times, events, and the order they were sorted by."""
        thread, time, event = (np.concatenate(part) for part in (self._thread, self._time, self._event))
        order = np.lexsort((time, thread))
        bounds = np.searchsorted(thread[order], np.arange(threads + 1)).astype(np.int64)
        return bounds, time[order], event[order], order


def split_host_items(
    timeline: HostTimeline,
    holes: Holes,
    data_pairs: tuple[Int, Int],
    edges: EdgeBuffer,
    *,
    launcher: Int,
    launch: Int,
    window: tuple[int, int],
) -> HostItems:
    """Split the threads into items; add their order, waits, annotations and data dependencies to `edges`.

    Args:
        timeline: Host events.
        holes: Waits.
        data_pairs: Host events whose data others use, and those others: int64 [E] each.
        edges: Receives the edges.
        launcher: int64 [A], host event that launched each activity, -1 unknown.
        launch: int64 [A], when the launch let each start, ns, -1 unknown.
        window: Start and end of the measured window, ns.
    """
    work = np.flatnonzero(timeline.kind != ANNOTATION)
    # Notes on calls are no nodes of their own.
    noted = timeline.frame.select(is_note()).to_series().to_numpy()
    annotations = np.flatnonzero((timeline.kind == ANNOTATION) & ~noted)
    to_work = np.full(len(timeline.kind) + 1, -1, np.int64)
    to_work[work] = np.arange(len(work))
    known = np.flatnonzero(launch >= 0)
    spans = sorted(holes.spans.items())
    handed = [(row, *wait) for row, (_, hole) in enumerate(spans) for wait in hole.threads]
    before, after = data_pairs

    cuts = _Cuts()
    at_launch = cuts.add(timeline.thread[launcher[known]], launch[known], to_work[launcher[known]])
    at_annotation = cuts.add(timeline.thread[annotations], timeline.start[annotations])
    at_handoff = cuts.add([wait[1] for wait in handed], [wait[2] for wait in handed])
    at_data = cuts.add(timeline.thread[before], timeline.end[before])
    owner, start, end, bounds, cut_item, resumed = _split(timeline, work, cuts, spans, window)
    _chain(edges, bounds, len(owner))
    _add_waits(edges, spans, handed, cut_item[at_handoff], resumed)
    edges.add(_items(cut_item[at_annotation]), ANNOTATION_NODE + np.arange(len(annotations)), CTRL)
    event_item = np.full(len(timeline.kind), -1, np.int64)
    owned = np.flatnonzero(owner >= 0)[::-1]
    event_item[owner[owned]] = owned
    edges.add(_items(cut_item[at_data]), _items(event_item[after]), DATA)
    launch_item = np.full(len(launch), -1, np.int64)
    launch_item[known] = cut_item[at_launch]
    thread = np.repeat(np.arange(len(timeline.tids)), np.diff(bounds))
    return HostItems(owner, thread, start, end, event_item, launch_item, annotations)


def _items(items: Int) -> Int:
    return np.where(items >= 0, ITEM + items, -1)


def _split(
    timeline: HostTimeline, work: Int, cuts: _Cuts, spans: list[tuple[tuple[int, int], Hole]], window: tuple[int, int]
) -> tuple[Int, Int, Int, Int, Int, Int]:
    threads = len(timeline.tids)
    cut_bounds, cut_time, cut_event, order = cuts.ordered(threads)
    hole_thread = np.array([key[0] for key, _ in spans], np.int64)
    # A thread that runs operators lasts until its annotations end; a polling one only until its last call.
    last = np.full(threads, window[0], np.int64)
    np.maximum.at(last, timeline.thread, timeline.end)
    owner, start, end, bounds, cut_item, _, resumed = split_items(
        np.searchsorted(timeline.thread[work], np.arange(threads + 1)).astype(np.int64),
        np.concatenate([np.full(threads, window[0], np.int64), last]),
        timeline.start[work],
        timeline.end[work],
        cut_bounds,
        cut_time,
        cut_event,
        np.searchsorted(hole_thread, np.arange(threads + 1)).astype(np.int64),
        np.array([key[1] for key, _ in spans], np.int64),
        np.array([hole.end for _, hole in spans], np.int64),
    )
    found = np.empty(len(cut_item), np.int64)
    found[order] = cut_item
    owner = np.where(owner >= 0, work[owner], -1) if len(work) else owner
    return owner, start, end, bounds, found, resumed


def _chain(edges: EdgeBuffer, bounds: Int, items: int) -> None:
    follows = np.ones(items, np.bool_)
    follows[bounds[:-1][bounds[:-1] < items]] = False
    after = np.flatnonzero(follows)
    edges.add(ITEM + after - 1, ITEM + after, CTRL)


def _add_waits(
    edges: EdgeBuffer,
    spans: list[tuple[tuple[int, int], Hole]],
    handed: list[tuple[int, int, int, bool]],
    handed_item: Int,
    resumed: Int,
) -> None:
    resumed = _items(resumed)
    waits = [(a, row, i) for row, (_, hole) in enumerate(spans) for a, i in hole.activities]
    for inferred in (False, True):
        chosen = [(activity, row) for activity, row, how in waits if how is inferred]
        edges.add(
            [ACTIVITY + activity for activity, _ in chosen],
            [resumed[row] for _, row in chosen],
            SYNC,
            inferred=inferred,
        )
        rows = [index for index, wait in enumerate(handed) if wait[3] is inferred]
        edges.add(_items(handed_item[rows]), [resumed[handed[row][0]] for row in rows], SYNC, inferred=inferred)
