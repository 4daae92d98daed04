"""Small jobs and machines for ASTRA-sim's rules."""

from chakra_et.ir import CommType, NodeType, Trace, TraceBuilder, TraceMetadata, TraceSet
from chakra_et.sim.astra import AstraOptions, simulate_astra
from chakra_et.specs import AstraConfig

COLLECTIVES = {
    "all_reduce": CommType.ALL_REDUCE,
    "all_gather": CommType.ALL_GATHER,
    "reduce_scatter": CommType.REDUCE_SCATTER,
    "all_to_all": CommType.ALL_TO_ALL,
}


def machine(ranks=4, topology="Ring", algorithm="ring", **changes):
    """One dimension unless `ranks` is a tuple; every collective by one algorithm."""
    sizes = ranks if isinstance(ranks, tuple) else (ranks,)
    names = topology if isinstance(topology, tuple) else (topology,) * len(sizes)
    algorithms = algorithm if isinstance(algorithm, tuple) else (algorithm,) * len(sizes)
    facts = {
        "bandwidth": (50.0,) * len(sizes),
        "latency_ns": (500.0,) * len(sizes),
        "splits": 1,
        "local_mem_bw": 1600.0,
        **dict.fromkeys(COLLECTIVES, algorithms),
        **changes,
    }
    return AstraConfig(names, sizes, **facts)


def collective(builder, kind, size, after=(), group=None):
    extra = {} if group is None else {"pg_name": group}
    return builder.add(
        kind, NodeType.COMM_COLL_NODE, comm_type=int(COLLECTIVES[kind]), comm_size=size, data_deps=list(after), **extra
    )


def compute(builder, micros, after=()):
    return builder.add("compute", NodeType.COMP_NODE, duration_ns=micros * 1000, data_deps=list(after))


def same(ranks, build):
    """All ranks run what `build(builder)` makes; they share the table."""
    builder = TraceBuilder()
    build(builder)
    nodes = builder.build().nodes
    return TraceSet(tuple(Trace(nodes, metadata=TraceMetadata(rank=rank)) for rank in range(ranks)))


def each(ranks, build):
    """Rank r runs what `build(builder, r)` makes."""
    traces = []
    for rank in range(ranks):
        builder = TraceBuilder(rank=rank)
        build(builder, rank)
        traces.append(builder.build())
    return TraceSet(tuple(traces))


def simulate(traces, config, **options):
    return simulate_astra(traces, config, options=AstraOptions(**options))


def times(result):
    """Start and end of every node, by rank."""
    return {
        trace.rank: list(
            zip(trace.nodes["start_ns"], trace.nodes["start_ns"] + trace.nodes["duration_ns"], strict=True)
        )
        for trace in result.traces
    }
