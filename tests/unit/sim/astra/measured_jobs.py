"""Small jobs that ASTRA-sim was measured on, each for a rule that the recorded runs don't touch."""

from chakra_et.ir import NodeType
from tests.unit.sim.astra.jobs import collective, compute, each, machine, same
from tests.unit.sim.astra.test_issue import receive, send


def memory(builder, size, after=()):
    return builder.add("load", NodeType.MEM_LOAD_NODE, tensor_size=size, data_deps=list(after))


def odd_halving():
    """Halving-doubling of odd sizes: on the way back, the bytes that the halving dropped are gone, and one more bit."""
    job = same(8, lambda builder: collective(builder, "all_reduce", 8007))
    return job, machine(8, "Switch", "halvingDoubling", bandwidth=(0.01,)), {}


def pool_after_ring():
    """Ranks leave a ring in one tick; who comes first to a shared memory follows from the messages."""

    def build(builder, rank):
        done = collective(builder, "reduce_scatter", 1 << 16, [compute(builder, 1 + rank % 2)])
        compute(builder, 1, [memory(builder, 1000000, [done])])

    config = machine(
        (3, 2), ("Switch", "Ring"), "ring", memory_type="MEMORY_POOL", remote_mem_latency=100, remote_mem_bw=50
    )
    return each(6, build), config, {}


def pool_between_phases():
    """A chunk that leaves a phase frees its place, for the next chunk to begin, before it begins its own next phase."""

    def build(builder, rank):
        done = collective(builder, "all_gather", 64)
        compute(builder, 1, [memory(builder, 1000000, [done])])

    config = machine(
        (2, 4), ("Switch", "Ring"), "ring", splits=3, latency_ns=(500.0, 0.5),
        memory_type="MEMORY_POOL", remote_mem_latency=5000, remote_mem_bw=1,
    )  # fmt: skip
    return each(8, build), config, {}


def opposite_direct():
    """Collectives of a group take turns among queues on its ranks only: the others go round the other way."""

    def build(builder, rank):
        first = [collective(builder, "all_reduce", 1000003, group="1")] if rank < 2 else []
        collective(builder, "all_reduce", 1 << 20, first, group="2")

    config = machine(4, "FullyConnected", "direct", groups=((1, (1, 0)), (2, (0, 1, 2, 3))))
    return each(4, build), config, {"backend": "aware", "queues_per_dim": 2}


def opposite_windows():
    """The same, with windows: ranks post their receives in opposite orders."""

    def build(builder, rank):
        first = [collective(builder, "all_to_all", 4096, group="1")] if rank == 1 or rank == 3 else []
        collective(builder, "reduce_scatter", 70001, first, group="2")

    config = machine(5, "Ring", "direct2", splits=2, groups=((1, (1, 3)), (2, (4, 0, 1, 2, 3))))
    return each(5, build), config, {"queues_per_dim": 2}


def rows_that_do_not_wait():
    """A collective along one dimension only: its rows don't wait for one another."""

    def build(builder, rank):
        first = [compute(builder, 10)] if rank in (3, 4, 5) else []
        done = collective(builder, "all_reduce", 512, first)
        compute(builder, 3, [done])
        host = builder.add("host", NodeType.COMP_NODE, duration_ns=5000, is_cpu_op=True)
        compute(builder, 1, [host])

    return each(6, build), machine((3, 2), ("Switch", "Switch"), ("ring",)), {}


def ties_with_compute():
    """A collective and a compute node end in one tick, and were queued in one: ranks differ in what comes first."""

    def build(builder, rank):
        first = compute(builder, 1)
        collective(builder, "all_gather", 1)
        third = compute(builder, 1, [compute(builder, 1, [first])])
        send(builder, 1 - rank, 1 << 16, 1, [third])
        send(builder, 1 - rank, 1 << 20, 2)
        receive(builder, 1 - rank, 1 << 16, 1)
        receive(builder, 1 - rank, 1 << 20, 2)

    return each(2, build), machine(2, "Ring", "ring", endpoint_delay=1000, latency_ns=(1000.0,)), {}


JOBS = {
    job.__name__: job
    for job in (
        odd_halving,
        pool_after_ring,
        pool_between_phases,
        opposite_direct,
        opposite_windows,
        rows_that_do_not_wait,
        ties_with_compute,
    )
}
