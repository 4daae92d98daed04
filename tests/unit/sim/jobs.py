"""Small jobs: traces of ranks on grids of tensor, pipeline and data parallelism."""

from chakra_et.ir import CommType, NodeType, ProcessGroup, TraceBuilder, TraceSet
from chakra_et.specs.system import Device, Dimension, System

COMP, COLL, SEND, RECV = NodeType.COMP_NODE, NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE


def system(*, size=4, up=100.0, out=10.0, latency=500.0, topology="switch"):
    """A system of two dimensions; bandwidths in bytes per ns."""
    return System(
        "test",
        "",
        Device("gpu", memory_bytes_per_s=1e12, peak_flop_per_s=(("bf16", 100e12), ("fp8", 200e12))),
        (
            Dimension("scale_up", topology, size, up * 1e9, latency),
            Dimension("scale_out", "switch", None, out * 1e9, 4 * latency),
        ),
    )


def grid(tp=2, pp=2, dp=2, *, layers=3, microbatches=2, skew=0, shared=False, uneven=False):
    """A training step: tensor parallel layers, stages that send to one another, a reduction over data parallel ranks.

    rank = tensor + tp * (data + dp * stage). With `skew`, compute differs between stages; with `uneven`, one rank of
    each data parallel group is slower.
    """
    world = tp * pp * dp
    traces, tables = [], {}
    for rank in range(world):
        tensor, data, stage = rank % tp, rank // tp % dp, rank // (tp * dp)
        groups = [
            ProcessGroup("tp", tuple(range(rank - tensor, rank - tensor + tp)), tp, "tensor"),
            ProcessGroup("dp", tuple(tensor + tp * (d + dp * stage) for d in range(dp)), dp, "data"),
        ]
        builder = TraceBuilder(rank=rank, world_size=world, process_groups=groups)
        step(
            builder,
            rank,
            tp * dp if pp > 1 else 0,
            stage,
            pp,
            layers,
            microbatches,
            skew * stage + (data == 0) * uneven,
        )
        trace = builder.build()
        if shared:
            trace = trace.with_nodes(tables.setdefault(stage, trace.nodes))
        traces.append(trace)
    return TraceSet(tuple(traces))


def step(builder, rank, stride, stage, stages, layers, microbatches, slower):
    last = []
    for batch in range(microbatches):
        if stage > 0:
            peer = {"comm_src": rank - stride, "comm_dst": rank, "comm_size": 50_000, "comm_tag": batch}
            last = [builder.add("recv", RECV, **peer)]
        for layer in range(layers):
            work = builder.add(f"gemm {layer}", COMP, duration_ns=10_000 + slower, data_deps=last)
            extra = builder.add(f"gelu {layer}", COMP, duration_ns=3_000, data_deps=last)
            reduce = {"pg_name": "tp", "comm_type": int(CommType.ALL_REDUCE), "comm_size": 200_000}
            last = [builder.add("all_reduce", COLL, data_deps=[work], **reduce), extra]
            if layer % 2:
                gather = {"pg_name": "dp", "comm_type": int(CommType.ALL_GATHER), "comm_size": 30_000}
                builder.add("prefetch", COLL, data_deps=[work], **gather)
        if stage + 1 < stages:
            peer = {"comm_src": rank, "comm_dst": rank + stride, "comm_size": 50_000, "comm_tag": batch}
            builder.add("send", SEND, data_deps=last, **peer)
    gradients = {"pg_name": "dp", "comm_type": int(CommType.REDUCE_SCATTER), "comm_size": 900_000}
    builder.add("reduce_scatter", COLL, data_deps=last, **gradients)


def plain(result):
    """All times of a result, exactly."""
    nodes = [trace.nodes.select("id", "start_ns", "duration_ns").rows() for trace in result.traces]
    return nodes, [rank.as_dict() for rank in result.ranks], [group.as_dict() for group in result.groups]
