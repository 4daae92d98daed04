"""Against ASTRA-sim itself, where the recorded runs don't reach: start and end of every node, as it said them.

Measured with astra-sim 518bd51, astra-network-analytical 599a047 and chakra's feeder at 90630ca; the jobs are in
`measured_jobs`. Where a build of ASTRA-sim is named by CHAKRA_ASTRA_SIM, `test_handoff` compares with that.
"""

import pytest

from chakra_et.errors import SimulationError
from chakra_et.sim.astra import AstraOptions, simulate_astra
from tests.unit.sim.astra.jobs import collective, compute, each, machine, same, simulate, times
from tests.unit.sim.astra.measured_jobs import JOBS

# fmt: off
MEASURED = {
    "odd_halving": {
        0: [(0, 1310295)],
        1: [(0, 1310295)],
        2: [(0, 1310295)],
        3: [(0, 1310295)],
        4: [(0, 1310295)],
        5: [(0, 1310295)],
        6: [(0, 1310295)],
        7: [(0, 1310295)],
    },
    "pool_after_ring": {
        0: [(0, 1000), (1000, 4958), (4958, 25058), (25058, 26058)],
        1: [(0, 2000), (2000, 5661), (5661, 125558), (125558, 126558)],
        2: [(0, 1000), (1000, 5661), (5661, 105458), (105458, 106458)],
        3: [(0, 2000), (2000, 5661), (5661, 85358), (85358, 86358)],
        4: [(0, 1000), (1000, 4958), (4958, 65258), (65258, 66258)],
        5: [(0, 2000), (2000, 4958), (4958, 45158), (45158, 46158)],
    },
    "pool_between_phases": {
        0: [(0, 4124), (4124, 3019124), (3019124, 3020124)],
        1: [(0, 4124), (4124, 4024124), (4024124, 4025124)],
        2: [(0, 4124), (4124, 5029124), (5029124, 5030124)],
        3: [(0, 4124), (4124, 6034124), (6034124, 6035124)],
        4: [(0, 4124), (4124, 7039124), (7039124, 7040124)],
        5: [(0, 4124), (4124, 8044124), (8044124, 8045124)],
        6: [(0, 4124), (4124, 1009124), (1009124, 1010124)],
        7: [(0, 4124), (4124, 2014124), (2014124, 2015124)],
    },
    "opposite_direct": {
        0: [(0, 20592), (20592, 31875)],
        1: [(0, 20592), (20592, 31875)],
        2: [(0, 31875)],
        3: [(0, 31875)],
    },
    "opposite_windows": {
        0: [(0, 4643)],
        1: [(0, 1039), (1039, 4256)],
        2: [(0, 4143)],
        3: [(0, 1039), (1039, 4643)],
        4: [(0, 4143)],
    },
    "rows_that_do_not_wait": {
        0: [(0, 4062), (4062, 7062), (0, 5000), (7062, 8062)],
        1: [(0, 4062), (4062, 7062), (0, 5000), (7062, 8062)],
        2: [(0, 4062), (4062, 7062), (0, 5000), (7062, 8062)],
        3: [(0, 10000), (10000, 14062), (14062, 17062), (0, 5000), (10000, 11000)],
        4: [(0, 10000), (10000, 14062), (14062, 17062), (0, 5000), (10000, 11000)],
        5: [(0, 10000), (10000, 14062), (14062, 17062), (0, 5000), (10000, 11000)],
    },
    "ties_with_compute": {
        0: [(0, 1000), (0, 3000), (1000, 2000), (2000, 3000), (3000, 5220), (5220, 25751), (0, 25751), (0, 23531)],
        1: [(0, 1000), (0, 3000), (1000, 2000), (2000, 3000), (23531, 25751), (3000, 23531), (0, 5220), (0, 25751)],
    },
}
# fmt: on


@pytest.mark.parametrize("solve", [True, False])
@pytest.mark.parametrize("name", JOBS)
def test_every_tick(name, solve):
    job, config, options = JOBS[name]()
    found = times(simulate_astra(job, config, options=AstraOptions(**options, solve=solve)))
    assert found == MEASURED[name]


@pytest.mark.parametrize("solve", [True, False])
def test_rings_in_opposite_directions(solve):
    """Two queues, one each way; rank 0 has used one more than ranks 6 and 7. ASTRA-sim hangs."""

    def build(builder, rank):
        first = [collective(builder, "reduce_scatter", 1 << 20, group="4")] if rank in (0, 2, 3) else []
        if rank in (0, 6, 7):
            collective(builder, "all_reduce", 1 << 20, first, group="2")
        elif not first:
            compute(builder, 1)

    config = machine((2, 4), ("Ring", "Ring"), groups=((4, (0, 2, 3)), (2, (0, 7, 6))))
    with pytest.raises(SimulationError, match="expected the ranks of a ring to send the same way round") as caught:
        simulate(each(8, build), config, queues_per_dim=2, solve=solve)
    assert sorted({one.rank for one in caught.value.waiting} - {0}) in ([6], [7])
    simulate(each(8, build), config, queues_per_dim=1, solve=solve)


@pytest.mark.parametrize("solve", [True, False])
def test_chunks_that_wait_for_one_another(solve):
    """Scattering and gathering share a dimension's only queue; a late rank orders them otherwise: ASTRA-sim hangs."""
    job = each(
        8, lambda builder, rank: collective(builder, "all_reduce", 1 << 20, [compute(builder, 100)] if not rank else [])
    )
    config = machine((2, 2, 2), ("Ring", "Switch", "Switch"), splits=2, collective_optimization="localBWAware")
    with pytest.raises(SimulationError, match="chunks run in different orders or directions"):
        simulate(job, config, solve=solve)
    simulate(job, config, queues_per_dim=2, solve=solve)


def test_it_works_where_astra_sim_counts_wrongly():
    """ASTRA-sim hangs: it counts collectives of groups among those of all ranks, so that ranks 2 and 3 never meet 0."""

    def build(builder, rank):
        first = collective(builder, "all_gather", 64, group="3") if rank < 2 else compute(builder, 1)
        collective(builder, "all_reduce", 4096, [first])

    assert simulate(each(4, build), machine(4, groups=((3, (0, 1)),))).finish_ns > 1000


def test_it_works_where_a_message_has_no_bytes():
    """ASTRA-sim aborts: halved once more than there are ranks, 4 bytes are none."""
    assert simulate(
        same(4, lambda builder: collective(builder, "all_reduce", 4)), machine(4, "Ring", "halvingDoubling")
    )
