"""Data dependencies between host operators: tensors, and what the backward pass takes from the forward pass.

Shape letters: E pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.frontends.pytorch.parse_et import HostTrace
from chakra_et.frontends.pytorch.tensors import producers
from chakra_et.frontends.pytorch.timeline import HostTimeline

__all__ = ["flow_pairs", "sequence_pairs", "tensor_pairs"]

Int = npt.NDArray[np.int64]


def tensor_pairs(host: HostTrace, joined: Int, timeline: HostTimeline) -> tuple[Int, Int]:
    """Return tensor producers and their consumers (events).

    Args:
        host: The execution trace, which tells tensors.
        joined: int64, row of the execution trace of each host event, -1 none.
        timeline: Host events, which tell times.
    """
    events = np.flatnonzero(joined >= 0)
    texts = host.nodes.select("input_values", "output_values")[joined[events]]
    before, after = producers(
        texts["input_values"], texts["output_values"], timeline.start[events], timeline.end[events]
    )
    before, after = events[before], events[after]
    # What an operator uses inside a caller that uses it too is implied.
    count = len(timeline.start)
    keys = before * count + after
    caller = timeline.parent[after]
    implied = (caller >= 0) & np.isin(before * count + caller, keys)
    # Clocks of whole microseconds give children that begin and end with their caller: not its producers.
    keep = ~implied & ((timeline.thread[before] != timeline.thread[after]) | (before < after)) & (before != caller)
    return before[keep], after[keep]


def flow_pairs(flows: pl.DataFrame, timeline: HostTimeline) -> tuple[Int, Int]:
    """Return forward and backward operators (events) of ``fwdbwd`` flows, where the times allow an edge."""
    empty = np.empty(0, np.int64)
    ends = flows.filter(pl.col("flow") >= 0)
    if not ends.height:
        return empty, empty
    pairs = ends.filter("is_start").join(ends.filter(~pl.col("is_start")), on="flow", suffix="_to")
    starts = timeline.frame.select("pid", "tid", "kind").with_columns(
        start_ns=timeline.frame["start_ns"], event=pl.int_range(timeline.frame.height, dtype=pl.Int64)
    )
    starts = (
        starts.filter(pl.col("kind") == 0)
        .drop("kind")
        .unique(["pid", "tid", "start_ns"], keep="last", maintain_order=True)
    )
    joined = pairs.join(starts, on=["pid", "tid", "start_ns"]).join(
        starts.rename({"pid": "pid_to", "tid": "tid_to", "start_ns": "start_ns_to", "event": "event_to"}),
        on=["pid_to", "tid_to", "start_ns_to"],
    )
    before, after = joined["event"].to_numpy(), joined["event_to"].to_numpy()
    keep = timeline.end[before] <= timeline.start[after]
    return before[keep], after[keep]


def sequence_pairs(timeline: HostTimeline) -> tuple[Int, Int]:
    """Return forward and backward operators of equal sequence numbers, for profiles without ``fwdbwd`` flows.

    A backward operator carries the thread of its forward operator, which is the last one there with that number.
    """
    events = timeline.frame.select("seq_id", "fw_tid", "name").with_row_index("event")
    events = events.with_columns(pl.col("event").cast(pl.Int64)).filter(pl.col("seq_id") >= 0)
    backward = events.filter(
        pl.col("fw_tid") > 0, pl.col("name").str.starts_with("autograd::engine::evaluate_function")
    )
    forward = events.filter(pl.col("fw_tid") == 0).unique("seq_id", keep="last", maintain_order=True)
    joined = backward.join(forward, on="seq_id", suffix="_forward")
    before, after = joined["event_forward"].to_numpy(), joined["event"].to_numpy()
    keep = timeline.end[before] <= timeline.start[after]
    return before[keep], after[keep]
