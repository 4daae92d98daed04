"""What nodes compete for.

``streams``: nothing. Durations are as measured and the order is in the edges, as in collected traces: every stream and
every thread is a resource of its own, and its queue is a chain of edges.

``engines``: each rank has one compute engine, which holds one node at a time, and one copy engine for memory nodes;
each process group has some channels (each ordered pair of ranks, for sends), which a communication holds from the last
arrival to its end. Host threads are in order by their edges. Of the nodes that are ready, the first in the trace's
order goes first. While a communication of its rank is in transfer, a compute engine may be slowed down by a factor, in
which case it shares something (cores, memory bandwidth) with the communication: 1 for no influence, infinite where the
engine stands still. With exclusive resources in a fixed order, a faster network can make a step longer (Graham, "Bounds
on multiprocessing timing anomalies", 1969); without them it can't.

Shape letters: N nodes, M meetings, R ranks, Q resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.ir import NodeType
from chakra_et.sim.meetings import Meetings
from chakra_et.sim.workload import Workload

__all__ = ["ResourceModel", "Resources", "choose_model", "compute_nodes", "engines", "streams"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
ResourceModel = Literal["streams", "engines"]


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """Who occupies what.

    Attributes:
        of_node: int64 [N]: resource of each node, -1 for none.
        of_meeting: int64 [M]: channel of each meeting, -1 for none.
        servers: int64 [Q]: how many each resource holds at once.
        of_rank: int64 [R]: the compute engine of each rank, -1 for none.
    """

    of_node: Int
    of_meeting: Int
    servers: Int
    of_rank: Int


def choose_model(workload: Workload) -> ResourceModel:
    """Return the usual model of the traces' family: ``streams`` where the order was recorded, else ``engines``."""
    families = {trace.metadata.family for trace in workload.traces}
    if "collected" in families:
        return "streams"
    if families & {"compiled", "synthesized"}:
        return "engines"
    return "streams" if workload.present("start_ns").any() else "engines"


def compute_nodes(workload: Workload) -> Bool:
    """Return the compute nodes, bool [N]: on the device, or of a rank without one, on the host; no gaps."""
    kinds = workload.integers("type")
    real = ~workload.present("gap_kind") & (kinds != NodeType.METADATA_NODE) & (kinds != NodeType.INVALID_NODE)
    device = real & ~workload.flags("is_cpu_op")
    has_device = np.logical_or.reduceat(device, workload.offsets[:-1])
    place = np.where(np.repeat(has_device, np.diff(workload.offsets)), device, real)
    found: Bool = (kinds == NodeType.COMP_NODE) & place
    return found


def streams(workload: Workload, meetings: Meetings) -> Resources:
    """Return that nothing is occupied."""
    return Resources(
        np.full(workload.node_count, -1, np.int64),
        np.full(meetings.table.height, -1, np.int64),
        np.empty(0, np.int64),
        np.full(len(workload.ranks), -1, np.int64),
    )


def engines(workload: Workload, meetings: Meetings, *, channels: int = 1) -> Resources:
    """Return one compute and one copy engine a rank, and channels for each process group.

    Args:
        workload: The workload.
        meetings: Who meets.
        channels: Communications of one process group at once, 1 or more.

    Example:
        >>> from chakra_et.ir import TraceBuilder, TraceSet
        >>> from chakra_et.sim.workload import make_workload
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, duration_ns=5)
        >>> workload = make_workload(TraceSet((builder.build(),)))
        >>> compute_nodes(workload).tolist()
        [True]
    """
    count, owner = len(workload.ranks), workload.owners
    copies = np.isin(workload.integers("type"), (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE))
    copies &= ~workload.flags("is_cpu_op")
    of_node = np.where(compute_nodes(workload), owner, np.where(copies, owner + count, -1))
    line = pl.when(pl.col("group").is_null()).then("members")
    of_meeting = meetings.table.select(pl.struct("group", line.alias("pair")).rank("dense").cast(pl.Int64))
    channel = of_meeting.to_series().to_numpy() - 1
    servers = np.concatenate((np.ones(2 * count, np.int64), np.full(int(channel.max(initial=-1)) + 1, channels)))
    return Resources(of_node, channel + 2 * count, servers, np.arange(count, dtype=np.int64))
