"""Latency and bandwidth of the communications of a replay.

Algorithm bandwidth is the size of a communication over its time. Bus bandwidth is that times a factor by kind and
number of ranks, which makes it comparable with the speed of the links whatever the number of ranks; sizes and factors
are those of NVIDIA's nccl-tests (`doc/PERFORMANCE.md` there, "Bus bandwidth").

A rank that comes early waits for the others inside its call: its latency says so. The time of the transfer is that of
the rank that came last, which is the shortest of all; bandwidths are made of it.

Shape letters: P passes, C communications of a rank, M meetings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chakra_et.replay.comm_call import CommCall
from chakra_et.replay.comm_lines import Key, keys_of
from chakra_et.replay.comm_plan import calls_of
from chakra_et.replay.run import RankResult

__all__ = ["CommSpeed", "bus_factor", "comm_speeds", "size_bytes"]

_PERCENTILES = (50, 95, 99)


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
        transfer_p50_ns: The median time of the rank that came last.
        algorithm_bytes_per_s: Size over the median transfer; 0 where nothing is sent.
        bus_bytes_per_s: That times the factor.
        recorded_p50_ns: Median duration of the rank that came last in the recording; 0 if the trace has no times.
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


def comm_speeds(results: Iterable[RankResult]) -> tuple[CommSpeed, ...]:
    """Measure the communications of all ranks.

    Args:
        results: What the ranks measured.

    Returns:
        One row for each kind, group and size, by total time.
    """
    meetings: dict[Key, list[tuple[CommCall, npt.NDArray[np.int64]]]] = {}
    for result in results:
        calls = calls_of(result.plan)
        keys = keys_of(result.rank, calls)
        spent = _durations(result.communications)
        for call in calls:
            if call.number in spent:
                meetings.setdefault(keys[call.number], []).append((call, spent[call.number]))
    rows: dict[tuple[Any, ...], list[list[tuple[CommCall, npt.NDArray[np.int64]]]]] = {}
    for meeting in meetings.values():
        first = meeting[0][0]
        size = max(size_bytes(call) for call, _ in meeting)
        point = not first.is_collective
        members = 2 if point else len(first.ranks)
        rows.setdefault(("send" if point else first.kind, first.group, members, first.dtype, size), []).append(meeting)
    found = [_speed(key, part) for key, part in rows.items()]
    return tuple(sorted(found, key=lambda row: -row.latency_p50_ns * row.count))


def _durations(passes: Sequence[npt.NDArray[np.int64]]) -> dict[int, npt.NDArray[np.int64]]:
    """Return how long each communication took in each pass, by its number."""
    if not passes:
        return {}
    rows = np.concatenate(passes)
    order = np.argsort(rows[:, 0], kind="stable")
    numbers, begins = np.unique(rows[order, 0], return_index=True)
    parts = np.split((rows[:, 2] - rows[:, 1])[order], begins[1:])
    return dict(zip(numbers.tolist(), parts, strict=True))


def _speed(key: tuple[Any, ...], meetings: Sequence[Sequence[tuple[CommCall, npt.NDArray[np.int64]]]]) -> CommSpeed:
    kind, group, members, dtype, size = key
    latencies = np.concatenate([spent for meeting in meetings for _, spent in meeting])
    transfers = np.concatenate([_last_to_come(meeting) for meeting in meetings])
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


def _last_to_come(meeting: Sequence[tuple[CommCall, npt.NDArray[np.int64]]]) -> npt.NDArray[np.int64]:
    passes = min(len(spent) for _, spent in meeting)
    shortest: npt.NDArray[np.int64] = np.min([spent[:passes] for _, spent in meeting], axis=0)
    return shortest
