"""Time and memory of simulating many ranks that do the same, folded; and how the cost without folding grows.

A generated training step: tensor parallelism inside servers of 8, context parallelism over 8 servers, data parallelism
over the rest. All ranks share one node table.

    python benchmarks/simulate_fold.py [RANKS]
"""

from __future__ import annotations

import resource
import sys
import time

from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceMetadata, TraceSet
from chakra_et.sim.simulate import simulate
from chakra_et.specs import load_system

RANKS = 32_768
NODES = 500
TENSOR, CONTEXT = 8, 8


def make_step(nodes: int) -> Trace:
    """Return a step of about `nodes` nodes: layers of compute and collectives, then the reduction of gradients."""
    builder = TraceBuilder()
    last: list[int] = []

    def communicate(name: str, group: str, kind: CommType, size: int) -> None:
        nonlocal last
        last = [
            builder.add(name, NodeType.COMM_COLL_NODE, data_deps=last, pg_name=group, comm_type=kind, comm_size=size)
        ]

    while last == [] or last[0] < nodes - 10:
        last = [builder.add("qkv gemm", NodeType.COMP_NODE, data_deps=last, duration_ns=120_000)]
        communicate("kv", "cp", CommType.ALL_GATHER, 4 << 20)
        last = [builder.add("attention", NodeType.COMP_NODE, data_deps=last, duration_ns=200_000)]
        communicate("attention out", "tp", CommType.ALL_REDUCE, 32 << 20)
        for part in ("norm", "up gemm", "gelu", "down gemm"):
            last = [builder.add(part, NodeType.COMP_NODE, data_deps=last, duration_ns=80_000)]
        communicate("mlp out", "tp", CommType.ALL_REDUCE, 32 << 20)
        weights = builder.add("weights", NodeType.COMM_COLL_NODE, pg_name="dp", comm_type=CommType.ALL_GATHER,
                              comm_size=1 << 14)  # fmt: skip
        last.append(weights)
    communicate("gradients", "dp", CommType.REDUCE_SCATTER, 256 << 20)
    return builder.build()


def make_job(ranks: int, nodes: int) -> TraceSet:
    """Return the traces of all ranks; they share their nodes."""
    step = make_step(nodes).nodes
    groups: dict[tuple[str, int], ProcessGroup] = {}

    def group(name: str, rank: int, stride: int, size: int) -> ProcessGroup:
        first = rank - rank // stride % size * stride
        found = groups.get((name, first))
        if found is None:
            members = tuple(range(first, first + stride * size, stride))
            found = groups[name, first] = ProcessGroup(name, members, size)
        return found

    outer = TENSOR * CONTEXT
    traces = []
    for rank in range(ranks):
        own = (
            group("tp", rank, 1, TENSOR),
            group("cp", rank, TENSOR, CONTEXT),
            group("dp", rank, outer, ranks // outer),
        )
        traces.append(Trace(step, own, TraceMetadata(rank=rank, world_size=ranks, family="synthesized")))
    return TraceSet(tuple(traces))


def main() -> None:
    """Run and print."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else RANKS
    system = load_system("h100-dgx")
    simulate(make_job(128, 50), system)  # compiles
    begin = time.perf_counter()
    job = make_job(ranks, NODES)
    made = time.perf_counter()
    result = simulate(job, system)
    simulated = time.perf_counter()
    expanded = result.traces
    end = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    finish = f"{result.finish_ns / 1e6:.3f} ms, {result.folded_classes} simulated"
    print(f"{ranks:,} ranks of {len(job.traces[0])} nodes: {finish}")
    print(f"generated in {made - begin:.2f} s, simulated in {simulated - made:.2f} s, expanded to "
          f"{len(expanded):,} traces in {end - simulated:.2f} s; {memory:.2f} GiB at most")  # fmt: skip
    times = []
    for count in (128, 256, 512):
        job = make_job(count, NODES)
        begin = time.process_time()
        simulate(job, system, fold="off")
        times.append(time.process_time() - begin)
    print(
        "not folded: "
        + ", ".join(f"{count} ranks {time:.2f} s" for count, time in zip((128, 256, 512), times, strict=True))
    )


if __name__ == "__main__":
    main()
