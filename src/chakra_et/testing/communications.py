"""How each communication is called by c10d, and what its kernel is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chakra_et.errors import InputError
from chakra_et.testing.instructions import Comm, Group

__all__ = ["CALLS", "ELEMENT_BYTES", "CommCalls", "make_comm"]

ELEMENT_BYTES = {"BFloat16": 2, "Half": 2, "Float": 4, "Long": 8, "Byte": 1}
_KERNEL_TYPES = {"BFloat16": "bf16", "Half": "f16", "Float": "f32", "Long": "i64", "Byte": "u8"}


@dataclass(frozen=True)
class CommCalls:
    """Names of one communication on the host and on the device.

    Attributes:
        op: The operator that starts it.
        annotation: The range around its launch, with places for the rank and its peer in sends and receives.
        kernel: The kernel, with a place for the element type in reductions.
        growth: Output elements per input element: 0 for the same, 1 for group size times, -1 for one part of it.
    """

    op: str
    annotation: str
    kernel: str
    growth: int = 0

    def kernel_name(self, dtype: str) -> str:
        """Return the name as the profiler writes it."""
        return f"ncclDevKernel_{self.kernel.format(_KERNEL_TYPES[dtype])}(ncclDevKernelArgsStorage<4096ul>)"

    def annotation_name(self, rank: int, peer: int) -> str:
        """Return the range's name."""
        return self.annotation.format(rank, peer)


CALLS = {
    "allreduce": CommCalls("c10d::allreduce_", "nccl:all_reduce", "AllReduce_Sum_{}_RING_LL"),
    "_allgather_base": CommCalls("c10d::_allgather_base_", "nccl:_all_gather_base", "AllGather_RING_LL", 1),
    "_reduce_scatter_base": CommCalls(
        "c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", "ReduceScatter_Sum_{}_RING_LL", -1
    ),
    "broadcast": CommCalls("c10d::broadcast_", "nccl:broadcast", "Broadcast_RING_LL"),
    "all_to_all": CommCalls("c10d::alltoall_base_", "nccl:all_to_all", "SendRecv"),
    "send": CommCalls("c10d::send", "nccl:send {}->{}", "SendRecv"),
    "recv": CommCalls("c10d::recv_", "nccl:recv {}<-{}", "SendRecv"),
}


def make_comm(
    name: str,
    group: Group,
    rank: int,
    *,
    nelems: int,
    dtype: str,
    peer: int,
    count: Callable[[object], int],
) -> Comm:
    """Describe a communication as one member sees it.

    Args:
        name: A key of `CALLS`.
        group: Its process group.
        rank: The member.
        nelems: Elements that it puts in.
        dtype: A key of `ELEMENT_BYTES`.
        peer: The other rank of a send or receive.
        count: The member's counters.

    Raises:
        InputError: The name or the type is unknown, or the ranks aren't in the group.
    """
    if name not in CALLS or dtype not in ELEMENT_BYTES:
        raise InputError(f"communication '{name}' of {dtype}: expected one of {', '.join(CALLS)} of a known type")
    members = tuple(sorted((rank, peer))) if name in ("send", "recv") else group.ranks
    if not {rank, *members} <= set(group.ranks):
        raise InputError(f"communication '{name}': expected ranks of group {group.ranks}, got {rank} and {peer}")
    growth = CALLS[name].growth
    out = nelems * len(group.ranks) if growth > 0 else nelems // len(group.ranks) if growth < 0 else nelems
    if name in ("send", "recv"):
        source, target = (rank, peer) if name == "send" else (peer, rank)
        seq = count(("p2p", group.name))
        key: tuple[str | int, ...] = ("p2p", group.name, source, target, count((group.name, source, target)))
    else:
        seq = count(("collective", group.name))
        key = ("collective", group.name, seq)
    return Comm(name, group, key, members, seq, nelems, out, dtype, peer)
