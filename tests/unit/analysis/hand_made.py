"""Small traces of one rank, node by node: what tests of the analyses are worked out on."""

from __future__ import annotations

from typing import Any

from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder

COMPUTE, COMMUNICATION = 7, 9
"""Streams: of kernels and copies, of communications."""


class Rank:
    """Collects the nodes of a rank; times are begin and end, ns, counted from `origin`."""

    def __init__(self, rank: int = 0, *, groups: tuple[ProcessGroup, ...] = (), world_size: int | None = None,
                 origin: int = 0) -> None:  # fmt: skip
        self.builder = TraceBuilder(rank=rank, world_size=world_size, family="collected", process_groups=groups)
        self.origin = origin

    def add(self, name: str, kind: NodeType, begin: int, end: int, **columns: Any) -> int:
        return self.builder.add(name, kind, start_ns=begin + self.origin, duration_ns=end - begin, **columns)

    def op(self, name: str, begin: int, end: int, **columns: Any) -> int:
        """An operator of the host."""
        return self.add(name, NodeType.COMP_NODE, begin, end, **{"is_cpu_op": True, "tid": 1} | columns)

    def call(self, correlation: int, begin: int, end: int, **columns: Any) -> int:
        """A launch."""
        return self.op("cudaLaunchKernel", begin, end, correlation=correlation, **columns)

    def kernel(self, name: str, begin: int, end: int, **columns: Any) -> int:
        return self.add(name, NodeType.COMP_NODE, begin, end, **{"is_cpu_op": False, "stream": COMPUTE} | columns)

    def copy(self, begin: int, end: int, kind: str = "HtoD", **columns: Any) -> int:
        columns = {"is_cpu_op": False, "stream": COMPUTE, "copy_kind": kind} | columns
        return self.add(f"Memcpy {kind}", NodeType.MEM_LOAD_NODE, begin, end, **columns)

    def collective(self, kind: CommType, begin: int, end: int, size: int | None = None, **columns: Any) -> int:
        columns = {"is_cpu_op": False, "stream": COMMUNICATION, "pg_name": "0"} | columns
        return self.add(
            f"ncclDevKernel_{kind.name}", NodeType.COMM_COLL_NODE, begin, end, comm_type=int(kind), comm_size=size,
            **columns,
        )  # fmt: skip

    def message(self, kind: NodeType, begin: int, end: int, size: int, ends: tuple[int, int], **columns: Any) -> int:
        """A send or a receive."""
        columns = {"is_cpu_op": False, "stream": COMMUNICATION} | columns
        return self.add(
            "ncclDevKernel_SendRecv", kind, begin, end, comm_size=size, comm_src=ends[0], comm_dst=ends[1], **columns
        )

    def gap(self, kind: str, begin: int, end: int, **columns: Any) -> int:
        columns = {"is_cpu_op": False, "stream": COMPUTE} | columns
        return self.add("gap", NodeType.COMP_NODE, begin, end, gap_kind=kind, **columns)

    def step(self, number: int, begin: int, end: int) -> int:
        """The profiler's marker of an iteration."""
        return self.mark(f"ProfilerStep#{number}", begin, end)

    def mark(self, name: str, begin: int, end: int) -> int:
        """An annotation."""
        return self.builder.add(
            name, NodeType.METADATA_NODE, start_ns=begin + self.origin, span_ns=end - begin, is_cpu_op=True, tid=1
        )

    def build(self) -> Trace:
        return self.builder.build()


def stepped(
    *steps: tuple[int, int], kernels: tuple[tuple[int, int, int], ...], origin: int = 0, rank: int = 0
) -> Trace:
    """A rank of steps (begin and end on the host) and kernels (launched at, begin, end) on one stream."""
    made = Rank(rank, origin=origin)
    for number, (begin, end) in enumerate(steps):
        made.step(number, begin, end)
    for number, (launched, begin, end) in enumerate(kernels):
        made.call(number, launched, launched + 1)
        made.kernel("gemm", begin, end, correlation=number)
    return made.build()
