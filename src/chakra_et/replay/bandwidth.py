"""Latency and bandwidth of the communications of a replay.

Algorithm bandwidth is the size of a communication over its time. Bus bandwidth is that times a factor by kind and
number of ranks, which makes it comparable with the speed of the links whatever the number of ranks; sizes and factors
are those of NVIDIA's nccl-tests (`doc/PERFORMANCE.md` there, "Bus bandwidth").

A rank that comes early waits for the others inside its call: its latency says so. Bandwidths are made of the time of
the transfer, from when the last rank came until the last was done. Ranks of several machines have no clock in common:
there it is the shortest latency, which is that of the rank that came last (too short for a sender whose data is
buffered).

Shape letters: P passes, C communications of a rank, M meetings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.lines import Key, keys_of
from chakra_et.replay.plan.comms import calls_of
from chakra_et.replay.run import RankResult

__all__ = ["CommSpeed", "bus_factor", "comm_speeds", "size_bytes"]

_PERCENTILES = (50, 95, 99)
Int = npt.NDArray[np.int64]
# A rank's call, and its start and end in each pass, int64 [P, 2].
_Part = tuple[CommCall, Int]


@dataclass(frozen=True, slots=True)
class CommSpeed:
    """How fast communications of one kind, group and size were.

    Attributes:
        kind: Kind, see `CommCall.kind`.
        group: Name of the process group.
        members: Ranks in it; 2 for sends and receives.
        dtype: Element type.
        size_bytes: Size, as nccl-tests has it.
        count: How many there were, over all passes.
        latency_p50_ns, latency_p95_ns, latency_p99_ns, latency_max_ns: Time from the call until it was over, of every
            rank.
        transfer_p50_ns: The median time from when the last rank came until the last was done.
        algorithm_bytes_per_s: Size over the median transfer; 0 where nothing is sent.
        bus_bytes_per_s: That times the factor.
        recorded_p50_ns: Median of the shortest recorded duration of its ranks; 0 if the trace has no times.
    """

    kind: str
    group: str
    members: int
    dtype: str
    size_bytes: int
    count: int
    latency_p50_ns: int
    latency_p95_ns: int
    latency_p99_ns: int
    latency_max_ns: int
    transfer_p50_ns: int
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    recorded_p50_ns: int

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def bus_factor(kind: str, members: int) -> float:
    """Return what algorithm bandwidth is multiplied by.

    Args:
        kind: Kind, see `CommCall.kind`.
        members: Ranks that take part.

    Example:
        >>> bus_factor("allreduce_", 4), bus_factor("_allgather_base_", 4), bus_factor("send", 2)
        (1.5, 0.75, 1.0)
    """
    if kind in ("allreduce_", "allreduce_coalesced_"):
        return 2 * (members - 1) / members
    if kind in ("send", "recv_", "recv_any_source_", "broadcast_", "reduce_", "barrier"):
        return 1.0
    return (members - 1) / members


def size_bytes(call: CommCall) -> int:
    """Return the size of a communication as nccl-tests has it: of the whole vector, where ranks hold parts of it."""
    if "allgather" in call.kind:
        count = call.out_elements
    elif call.kind == "gather_":
        count = call.in_elements * len(call.ranks)
    elif call.kind == "scatter_":
        count = call.out_elements * len(call.ranks)
    else:
        count = call.in_elements or call.out_elements
    return count * call.item_bytes


def comm_speeds(results: Iterable[RankResult], *, one_clock: bool = True) -> tuple[CommSpeed, ...]:
    """Measure the communications of all ranks.

    Args:
        results: What the ranks measured.
        one_clock: True if all ranks ran on one machine, whose clock they share.

    Returns:
        One row for each kind, group and size, by total time.
    """
    meetings: dict[Key, list[_Part]] = {}
    for result in results:
        calls = calls_of(result.plan)
        keys = keys_of(result.rank, calls)
        spent = _times(result.communications)
        for call in calls:
            # A message is its sender's, where it isn't told who takes it.
            if call.number in spent and not (call.is_unordered and call.kind != "send"):
                meetings.setdefault(keys[call.number], []).append((call, spent[call.number]))
    rows: dict[tuple[Any, ...], list[list[_Part]]] = {}
    for meeting in meetings.values():
        first = meeting[0][0]
        size = max(size_bytes(call) for call, _ in meeting)
        point = not first.is_collective
        members = 2 if point else len(first.ranks)
        rows.setdefault(("send" if point else first.kind, first.group, members, first.dtype, size), []).append(meeting)
    found = [_speed(key, part, one_clock=one_clock) for key, part in rows.items()]
    return tuple(sorted(found, key=lambda row: -row.latency_p50_ns * row.count))


def _times(passes: Sequence[Int]) -> dict[int, Int]:
    """Return start and end of each communication in each pass, int64 [P, 2], by its number."""
    rows = np.concatenate([*passes, np.zeros((0, 3), np.int64)])
    if not len(rows):
        return {}
    order = np.argsort(rows[:, 0], kind="stable")
    numbers, begins = np.unique(rows[order, 0], return_index=True)
    parts = np.split(rows[order, 1:], begins[1:])
    return dict(zip(numbers.tolist(), parts, strict=True))


def _speed(key: tuple[Any, ...], meetings: Sequence[Sequence[_Part]], *, one_clock: bool) -> CommSpeed:
    kind, group, members, dtype, size = key
    latencies = np.concatenate([times[:, 1] - times[:, 0] for meeting in meetings for _, times in meeting])
    transfers = np.concatenate([_transfers(meeting, one_clock=one_clock) for meeting in meetings])
    recorded = [min(call.duration_ns for call, _ in meeting) for meeting in meetings]
    transfer = int(np.median(transfers))
    algorithm = size / transfer * 1e9 if transfer else 0.0
    p50, p95, p99 = (int(value) for value in np.percentile(latencies, _PERCENTILES))
    return CommSpeed(
        kind=kind,
        group=group,
        members=members,
        dtype=dtype,
        size_bytes=size,
        count=len(transfers),
        latency_p50_ns=p50,
        latency_p95_ns=p95,
        latency_p99_ns=p99,
        latency_max_ns=int(latencies.max()),
        transfer_p50_ns=transfer,
        algorithm_bytes_per_s=algorithm,
        bus_bytes_per_s=algorithm * bus_factor(kind, members),
        recorded_p50_ns=int(np.median(recorded)),
    )


def _transfers(meeting: Sequence[_Part], *, one_clock: bool) -> Int:
    """Return how long the transfer took in each pass, int64 [P]."""
    passes = min(len(times) for _, times in meeting)
    starts, ends = (np.array([times[:passes, side] for _, times in meeting]) for side in (0, 1))
    found: Int = ends.max(axis=0) - starts.max(axis=0) if one_clock else (ends - starts).min(axis=0)
    return found
