"""Sizes and factors are those of nccl-tests; a transfer begins when the last rank came."""

from dataclasses import replace

import numpy as np
import pytest

from chakra_et.replay.bandwidth import bus_factor, comm_speeds, size_bytes
from chakra_et.replay.run import RankResult
from tests.unit.replay.plans import blocking, comm, plan


@pytest.mark.parametrize(
    ("kind", "count", "size", "factor"),
    [
        ("allreduce_", 100, 400, 1.5),
        ("broadcast_", 100, 400, 1.0),
        ("reduce_", 100, 400, 1.0),
        ("_allgather_base_", 100, 1600, 0.75),
        ("allgather_", 100, 1600, 0.75),
        ("_reduce_scatter_base_", 100, 1600, 0.75),
        ("reduce_scatter_", 100, 1600, 0.75),
        ("alltoall_base_", 100, 1600, 0.75),
        ("gather_", 100, 1600, 0.75),
        ("scatter_", 100, 1600, 0.75),
        ("send", 100, 400, 1.0),
        ("recv_", 100, 400, 1.0),
        ("barrier", 0, 0, 1.0),
    ],
)
def test_sizes_and_factors(kind: str, count: int, size: int, factor: float) -> None:
    assert size_bytes(comm(0, kind, count=count)) == size
    assert bus_factor(kind, 4) == factor


PAIR = ("0", (0, 1))


def result(rank: int, times: list[list[tuple[int, int, int]]]) -> RankResult:
    reduce = comm(0, "allreduce_", group=PAIR, count=250, duration_ns=700 + rank)
    calls = [reduce, comm(1, "recv_" if rank else "send", group=PAIR, peer=1 - rank)]
    none = np.zeros((2, 0), np.int64)
    told = tuple(np.array(one, np.int64) for one in times)
    return RankResult(rank, plan(rank, blocking(calls), 2), "none", none, none, none.reshape(2, 0, 2), told)


def test_a_transfer_begins_when_the_last_rank_came() -> None:
    first = result(0, [[(0, 0, 900), (1, 1000, 1100)], [(0, 0, 500), (1, 1000, 1300)]])
    second = result(1, [[(0, 50, 450), (1, 900, 1100)], [(0, 10, 520), (1, 1000, 1200)]])
    reduce, send = comm_speeds([first, second])
    assert (reduce.kind, reduce.members, reduce.size_bytes, reduce.count) == ("allreduce_", 2, 1000, 2)
    # Latencies 900, 500, 400, 510; from the last start to the last end 850 and 510.
    assert (reduce.latency_p50_ns, reduce.latency_max_ns, reduce.transfer_p50_ns) == (505, 900, 680)
    assert reduce.algorithm_bytes_per_s == pytest.approx(1000 / 680e-9)
    assert reduce.bus_bytes_per_s == reduce.algorithm_bytes_per_s
    assert reduce.recorded_p50_ns == 700
    assert (send.kind, send.size_bytes, send.count, send.transfer_p50_ns) == ("send", 32, 2, 200)
    # Without a common clock: the shortest latency, 400 and 500.
    reduce, send = comm_speeds([first, second], one_clock=False)
    assert (reduce.transfer_p50_ns, send.transfer_p50_ns) == (450, 150)


def test_nothing_measured_is_no_row() -> None:
    assert comm_speeds([]) == ()
    without = result(0, [])
    silent = replace(without, communications=(np.zeros((0, 3), np.int64),) * 2)
    assert comm_speeds([without, silent]) == ()
