"""Device activities and host communications in one table: what runs beside the host threads.

Shape letters: A activities, E host events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.frontends.pytorch.calls import find_launchers
from chakra_et.frontends.pytorch.names import HOST_COMM, communicates
from chakra_et.frontends.pytorch.parse_kineto import ANNOTATION, OPERATOR, KinetoProfile
from chakra_et.frontends.pytorch.timeline import HostTimeline

__all__ = ["HOST_COMMUNICATION", "Activities", "collect_activities", "split_host"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
HOST_COMMUNICATION = 3


@dataclass(frozen=True, slots=True, eq=False)
class Activities:
    """Activities, sorted by lane and start.

    Attributes:
        frame: Their columns, in this order; kind 3 is a host communication, with the columns of its range.
        kind: int8 [A]: kernel, copy, set, host communication.
        lane: int64 [A]; -1: no order of its own (a range on its caller's thread).
        start: int64 [A], ns.
        end: int64 [A], ns.
        launcher: int64 [A], host event that launched it, -1 unknown.
        linkable: bool [A], true if any runtime event has the same correlation id.
        communication: bool [A].
        may_block: bool [A], true for copies for which an async call waits.
        lanes: Lane of each (device, stream).
    """

    frame: pl.DataFrame
    kind: npt.NDArray[np.int8]
    lane: Int
    start: Int
    end: Int
    launcher: Int
    linkable: Bool
    communication: Bool
    may_block: Bool
    lanes: dict[tuple[int, int], int]

    def __len__(self) -> int:
        return len(self.lane)


def split_host(profile: KinetoProfile) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split host events into those of the threads' own timelines and communication ranges of CPU backends."""
    is_range = (pl.col("kind") == ANNOTATION) & pl.col("name").str.contains(HOST_COMM.pattern)
    return profile.host.filter(~is_range), profile.host.filter(is_range)


def collect_activities(profile: KinetoProfile, ranges: pl.DataFrame, timeline: HostTimeline) -> Activities:
    """Collect the device activities of a profile and the communication ranges of its host."""
    caller, caller_thread = _range_callers(ranges, timeline)
    device = profile.activities.with_columns(
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        launcher=pl.Series(find_launchers(timeline, profile.activities["correlation"].to_numpy()), dtype=pl.Int64),
        worker=pl.lit(-1, pl.Int64),
    )
    own_thread = (ranges["tid"].to_numpy() == caller_thread) if ranges.height else np.empty(0, np.bool_)
    host = ranges.select(
        pl.lit(HOST_COMMUNICATION, pl.Int8).alias("kind"),
        "name",
        "start_ns",
        "duration_ns",
        "rf_id",
        "dims",
        "types",
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        device=pl.lit(-1, pl.Int64),
        stream=pl.Series(np.where(own_thread, -1, ranges["tid"].to_numpy()), dtype=pl.Int64),
        worker=pl.col("tid"),
        correlation=pl.lit(-1, pl.Int64),
        launcher=pl.Series(caller, dtype=pl.Int64),
    )
    both = pl.concat([device, host], how="diagonal")
    keys = both.select("device", "stream").unique().sort("device", "stream")
    lanes = {(d, s): number for number, (d, s) in enumerate(keys.rows())}
    numbered = keys.with_row_index("lane").with_columns(pl.col("lane").cast(pl.Int64))
    lane = pl.when((pl.col("device") == -1) & (pl.col("stream") == -1)).then(-1).otherwise(pl.col("lane"))
    frame = (
        both.join(numbered, on=["device", "stream"], how="left")
        .with_columns(lane=lane)
        .sort("lane", "start_ns", "end_ns", maintain_order=True)
    )
    kind = frame["kind"].to_numpy()
    named = communicates(frame["name"]).to_numpy()
    launcher = frame["launcher"].to_numpy()
    return Activities(
        frame=frame,
        kind=kind,
        lane=frame["lane"].to_numpy(),
        start=frame["start_ns"].to_numpy(),
        end=frame["end_ns"].to_numpy(),
        launcher=launcher,
        linkable=launcher >= 0,
        communication=(named & (kind == 0))
        | (kind == HOST_COMMUNICATION)
        | frame["collective"].is_not_null().to_numpy(),
        may_block=_may_block(frame),
        lanes=lanes,
    )


def _may_block(frame: pl.DataFrame) -> Bool:
    """Return the copies that an async call may wait for: pageable ones, and to the host where nothing tells (AMD).

    Small copies from pageable memory are staged and not waited for: their calls return before they end.
    """
    text = frame["name"] + " " + frame["copy"].fill_null("")
    known = text.str.contains("(?i)pinned|pageable")
    to_host = text.str.contains("DtoH|DeviceToHost|DEVICE_TO_HOST")
    blocks = text.str.contains("(?i)pageable") | ~known & to_host
    found: Bool = (blocks & (frame["kind"] == 1)).to_numpy()
    return found


def _range_callers(ranges: pl.DataFrame, timeline: HostTimeline) -> tuple[Int, Int]:
    """Return each range's ``c10d`` call (event, -1 unknown) and that call's thread id.

    The record function ids of a call, the operators inside it and its range count up: the id before the range's is the
    call's or one of those operators'. Without ids, ranges follow calls in order.
    """
    callers = np.full(ranges.height, -1, np.int64)
    names = timeline.frame["name"]
    is_call = (names.str.starts_with("c10d::") & (timeline.frame["kind"] == OPERATOR)).to_numpy()
    ids = timeline.frame["rf_id"].to_numpy()
    known = np.flatnonzero(ids > 0)
    order = known[np.argsort(ids[known], kind="stable")]
    calls = np.flatnonzero(is_call)
    calls = calls[np.argsort(timeline.start[calls], kind="stable")]
    free = list(calls.tolist())
    by_start = ranges.select("rf_id", "name", "start_ns").with_row_index("row").sort("start_ns", maintain_order=True)
    for row, rf_id, name, start in by_start.iter_rows():
        found = -1
        if rf_id > 0 and len(order):
            slot = int(np.searchsorted(ids[order], rf_id)) - 1
            found = int(order[slot]) if slot >= 0 and ids[order[slot]] == rf_id - 1 else -1
            while found >= 0 and not is_call[found]:
                found = int(timeline.parent[found])
        if found < 0 and rf_id <= 0:
            word = name.split(":")[1].replace("_", "")[:6]
            found = next((c for c in free if timeline.start[c] <= start and word in str(names[c]).replace("_", "")), -1)
            if found >= 0:
                free.remove(found)
        callers[row] = found
    tids = timeline.tids[timeline.thread[callers]] if len(timeline.tids) else callers
    return callers, np.where(callers >= 0, tids, -1)
