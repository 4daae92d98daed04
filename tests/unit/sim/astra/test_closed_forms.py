"""Times that can be computed by hand: all ranks in step, no contention."""

import pytest

from tests.unit.sim.astra.jobs import collective, each, machine, same, simulate

RANKS, SIZE, LATENCY, BUS = 8, 1 << 20, 500, 10
BYTES_PER_NS = 50 * 2**30 / 1e9


def net(size, hops=1):
    return int(hops * LATENCY + size / BYTES_PER_NS)


def reduction(size):
    return 3 * int(size / 1600e9 * 1e9)


def ring(kind):
    n, part = RANKS, SIZE // RANKS
    return {
        "all_reduce": BUS + 2 * (n - 1) * (net(part) + BUS) + (n - 1) * reduction(part),
        "reduce_scatter": BUS + (n - 1) * (net(part) + BUS + reduction(part)),
        "all_gather": BUS + (n - 1) * (net(SIZE) + BUS),
        "all_to_all": BUS + n * (n - 1) // 2 * (net(part) + BUS),
    }[kind]


def direct(kind):
    part = SIZE // RANKS
    return {
        "all_reduce": 3 * BUS + 2 * net(part) + reduction(part),
        "reduce_scatter": 2 * BUS + net(part) + reduction(part),
        "all_gather": 2 * BUS + net(SIZE),
        "all_to_all": 2 * BUS + net(part),
    }[kind]


def halving(kind):
    sizes = [SIZE >> k for k in (1, 2, 3)]
    reductions = sum(reduction(size) for size in sizes[1:])
    return {
        "all_reduce": BUS + 2 * sum(net(size) + BUS for size in sizes) + reductions,
        "reduce_scatter": BUS + sum(net(size) + BUS for size in sizes) + reductions,
        "all_gather": BUS + sum(net(SIZE << k) + BUS for k in range(3)),
    }[kind]


FORMS = {"ring": ring, "direct": direct, "halvingDoubling": halving}
CASES = [(name, kind) for name, form in FORMS.items() for kind in ("all_reduce", "reduce_scatter", "all_gather")]
CASES += [("ring", "all_to_all"), ("direct", "all_to_all")]


@pytest.mark.parametrize("options", [{}, {"fold": "off"}, {"fold": "off", "solve": False}, {"backend": "aware"}])
@pytest.mark.parametrize(("algorithm", "kind"), CASES)
def test_one_collective(algorithm, kind, options):
    job = same(RANKS, lambda builder: collective(builder, kind, SIZE))
    result = simulate(job, machine(RANKS, "FullyConnected", algorithm), **options)
    assert [rank.finish_ns for rank in result.ranks] == [FORMS[algorithm](kind)] * RANKS
    assert result.folded_classes == (RANKS if options.get("fold") == "off" else 1)


def test_double_binary_tree():
    job = same(RANKS, lambda builder: collective(builder, "all_reduce", SIZE))
    result = simulate(job, machine(RANKS, "FullyConnected", "doubleBinaryTree"))
    assert result.finish_ns == 5 * (net(SIZE) + BUS + reduction(SIZE)) + net(SIZE) + 2 * BUS
    assert result.folded_classes == RANKS


@pytest.mark.parametrize(("chunks", "active"), [(4, 1), (4, 2), (5, 2), (4, 4)])
def test_chunks_take_turns(chunks, active):
    job = same(RANKS, lambda builder: collective(builder, "all_reduce", SIZE * chunks))
    config = machine(RANKS, "FullyConnected", splits=chunks, active_chunks=active)
    assert simulate(job, config).finish_ns == ring("all_reduce") * -(-chunks // active)


def test_dimensions_add_up():
    n, m = 4, 2
    job = same(n * m, lambda builder: collective(builder, "all_reduce", SIZE))
    config = machine((n, m), "FullyConnected", collective_optimization="localBWAware")
    inner, outer = SIZE // n, SIZE // n // m
    scatter = BUS + (n - 1) * (net(inner) + BUS + reduction(inner))
    middle = BUS + 2 * (m - 1) * (net(outer) + BUS) + (m - 1) * reduction(outer)
    gather = BUS + (n - 1) * (net(inner) + BUS)
    assert simulate(job, config).finish_ns == scatter + middle + gather


def test_groups_run_on_one_ring_whatever_the_dimensions():
    config = machine((4, 2), "FullyConnected", ("direct", "direct"), groups=((3, (0, 1, 2, 3)), (4, (4, 5, 6, 7))))
    job = each(8, lambda builder, rank: collective(builder, "all_gather", SIZE, group="3" if rank < 4 else "4"))
    assert simulate(job, config).finish_ns == BUS + 3 * (net(SIZE) + BUS)


def test_a_switch_costs_two_hops():
    job = same(RANKS, lambda builder: collective(builder, "all_gather", SIZE))
    config = machine(RANKS, "Switch")
    assert simulate(job, config).finish_ns == BUS + 7 * (net(SIZE, hops=2) + BUS)
    # Aware of congestion, each of the two links takes the message as a whole.
    assert simulate(job, config, backend="aware").finish_ns == BUS + 7 * (2 * net(SIZE) + BUS)
