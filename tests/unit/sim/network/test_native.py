"""Flows of whole jobs."""

import numpy as np
import pytest

from chakra_et.errors import SimulationError
from chakra_et.sim.network.bounds import bottlenecks, bound_by, describe
from chakra_et.sim.network.communications import group_communications
from chakra_et.sim.network.native import plan_flows
from tests.unit.sim.network.machines import collective, flat, send, servers, table, torus

MIB = 1 << 20
TYPES = ("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
         "reduce_scatter_block", "barrier")  # fmt: skip


def plan(machine, world, *rows, **options):
    return plan_flows(table(*rows), machine, world, **options)


def times(flows):
    """Return what each communication takes on an idle network."""
    return (flows.latency_ns + bottlenecks(flows)[0]).tolist()


def loads_of(flows, index=0):
    part = slice(flows.indptr[index], flows.indptr[index + 1])
    names = [flows.link_names[link] for link in flows.links[part]]
    return dict(zip(names, flows.bytes[part].tolist(), strict=True))


def test_a_ring_all_reduce_takes_latency_and_bandwidth():
    flows = plan(flat(8), 8, collective("all_reduce", 80 * MIB, range(8)), algorithm="ring")
    assert flows.latency_ns.tolist() == [14 * 500.0]
    assert times(flows) == [14 * 500.0 + 140 * MIB / 100.0]
    assert set(flows.capacity.tolist()) == {100.0}
    assert len(flows.capacity) == len(set(flows.link_names)) == 16
    assert flows.own_links


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("machine", [flat(), servers(), torus(4, 4), flat(16, kind="fully_connected")])
@pytest.mark.parametrize("members", [range(16), [0, 1, 2, 3, 4], [0, 5, 10], [3, 1], [2, 9, 11, 12, 15]])
def test_every_type_on_every_group_costs_something(kind, machine, members):
    flows = plan(machine, 16, collective(kind, MIB, members, root=members[-1]))
    assert flows.latency_ns[0] > 0
    assert (len(flows.links) > 0) == (kind != "barrier")
    assert (flows.bytes > 0).all()
    assert (np.diff(flows.indptr) >= 0).all()
    assert len(set(flows.links.tolist())) == len(flows.links)


@pytest.mark.parametrize("kind", TYPES)
def test_nothing_costs_only_latency(kind):
    flows = plan(servers(), 16, collective(kind, 0, range(16), root=0), collective(kind, None, range(16), root=0))
    assert (flows.latency_ns > 0).all()
    assert len(flows.links) == 0


@pytest.mark.parametrize("kind", TYPES)
def test_one_rank_costs_nothing(kind):
    flows = plan(servers(), 16, collective(kind, MIB, [5], root=5))
    assert (flows.latency_ns.tolist(), len(flows.links), flows.algorithm) == ([0.0], 0, ("none",))


def test_sends():
    flows = plan(servers(), 16, send(0, 1, 400), send(1, 9, 400), send(3, 3, 400))
    assert flows.latency_ns.tolist() == [600.0, 2700.0, 0.0]
    assert loads_of(flows, 0) == {"scale_up up of rank 0": 400.0, "scale_up down of rank 1": 400.0}
    assert loads_of(flows, 1) == {"scale_out up of rank 1": 400.0, "scale_out down of rank 9": 400.0}
    assert times(flows) == [601.0, 2708.0, 0.0]


def test_equal_communications_are_planned_once():
    rows = [collective("all_reduce", size, range(8)) for size in (MIB, 2 * MIB, MIB)]
    communications = group_communications(table(*rows, send(0, 1, 5), *rows))
    assert communications.distinct.tolist() == [0, 1, 0, 2, 0, 1, 0]
    flows = plan_flows(communications, flat(8), 8)
    assert np.diff(flows.indptr).tolist() == [16, 16, 16, 2, 16, 16, 16]
    assert loads_of(flows, 0) == loads_of(flows, 2) == loads_of(flows, 4)


def test_groups_that_lie_alike_cost_alike_on_links_of_their_own():
    rows = [collective("all_gather", MIB, range(base, base + 8)) for base in (0, 8, 24)]
    flows = plan(servers(), 32, *rows)
    assert times(flows)[0] == times(flows)[1] == times(flows)[2]
    assert sorted(loads_of(flows, 2)) == sorted(
        f"scale_up {way} of rank {rank}" for rank in range(24, 32) for way in ("up", "down")
    )


def test_the_order_of_members_plays_no_part_but_the_root_does():
    flows = plan(
        servers(4), 8, *(collective("scatter", MIB, members, root=6) for members in ([0, 6, 2, 4], [6, 4, 2, 0]))
    )
    assert loads_of(flows, 0) == loads_of(flows, 1)
    assert loads_of(flows, 0)["scale_out up of rank 6"] == 2 * MIB
    assert loads_of(flows, 0)["scale_up up of rank 6"] == MIB


def test_an_unknown_root_is_the_first_of_the_group():
    flows = plan(flat(), 4, collective("broadcast", MIB, [2, 0, 1]), collective("broadcast", MIB, [2, 0, 1], root=2))
    assert loads_of(flows, 0) == loads_of(flows, 1)


def test_short_messages_take_trees_and_long_ones_rings():
    flows = plan(servers(), 64, *(collective("all_reduce", size, range(64)) for size in (1024, 16 << 30)))
    assert flows.algorithm == ("tree", "ring")


def test_the_choice_is_the_cheapest():
    for size in (1, 10_000, MIB, 10 * MIB, 1 << 30):
        row = collective("all_reduce", size, range(16))
        named = [times(plan(servers(), 16, row, algorithm=name))[0] for name in ("ring", "tree")]
        assert times(plan(servers(), 16, row))[0] == min(named)


def test_algorithms_can_be_wanted_by_name():
    rows = [collective("all_reduce", MIB, range(8)), collective("all_to_all", MIB, range(8))]
    assert plan(flat(), 8, *rows, algorithm="halving_doubling").algorithm == ("halving_doubling", "direct")
    wanted = {"all_to_all": "bruck", "all_reduce": "direct"}
    assert plan(flat(), 8, *rows, algorithm=wanted).algorithm == ("direct", "bruck")
    uneven = collective("all_reduce", MIB, [0, 1, 8])
    assert plan(servers(), 16, uneven, algorithm="hierarchical").algorithm == ("tree",)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("rign", "expected ring, tree, .* or auto, got 'rign'"),
        ({"all_reduce": "bruck"}, "algorithm of all_reduce: expected ring, .*, got 'bruck'"),
        ({"allreduce": "ring"}, "expected a type of all_reduce, .*, got 'allreduce'"),
    ],
)
def test_what_algorithms_do_not_exist(algorithm, message):
    with pytest.raises(SimulationError, match=message):
        plan(flat(), 2, collective("all_reduce", 1, [0, 1]), algorithm=algorithm)


def test_an_uneven_all_to_all_that_is_even_costs_as_much():
    for machine in (flat(), servers(4), torus(4, 2), flat(8, kind="fully_connected")):
        even = collective("all_to_all", 8000, range(8))
        listed = collective("all_to_all", 8000, range(8), send_bytes=[[1000] * 8] * 8)
        flows = plan(machine, 8, even, listed)
        assert flows.latency_ns[0] == flows.latency_ns[1]
        assert loads_of(flows, 0) == pytest.approx(loads_of(flows, 1))


def test_an_uneven_all_to_all_loads_what_each_sends():
    flows = plan(flat(), 3, collective("all_to_all", 99, [2, 0, 1], send_bytes=[[5, 7, 0], [0, 5, 0], [1, 2, 5]]))
    assert loads_of(flows) == {
        "scale_up up of rank 2": 7.0,
        "scale_up up of rank 1": 3.0,
        "scale_up down of rank 0": 9.0,
        "scale_up down of rank 2": 1.0,
    }
    empty = plan(flat(), 2, collective("all_to_all", 9, [0, 1], send_bytes=[[9, 0], [0, 9]]))
    assert (empty.latency_ns.tolist(), len(empty.links)) == ([500.0], 0)


def test_unknown_types_keep_their_measured_time():
    row = {**collective("all_reduce", 5, [0, 1]), "comm_type": None, "measured_ns": 1234.0}
    flows = plan(flat(), 2, row, {**row, "measured_ns": 99.0, "members": [1]})
    assert (flows.latency_ns.tolist(), flows.algorithm) == ([1234.0, 99.0], ("measured", "measured"))
    assert len(flows.links) == 0


def test_links_of_others_are_said_to_be_used():
    assert plan(servers(), 16, collective("all_to_all", MIB, [0, 9]), send(0, 9, 5)).own_links
    assert plan(torus(4), 4, collective("all_reduce", MIB, range(4))).own_links
    assert not plan(torus(6), 6, collective("all_reduce", MIB, [0, 2, 4])).own_links


def test_without_a_system_bytes_are_ns():
    flows = plan(None, 4, collective("all_gather", 100, range(4)))
    assert (flows.latency_ns.tolist(), times(flows)) == ([0.0], [300.0])


def test_nothing_to_plan():
    flows = plan(flat(), 4)
    assert (len(flows.latency_ns), flows.indptr.tolist(), flows.link_names) == (0, [0], ())
    assert bound_by(flows) == {"latency": 0.0}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (collective("all_reduce", 1, [0, 1, 9]), "communication 0: expected different ranks below 4, got ranks 0 to 9"),
        (collective("all_reduce", 1, [0, 1, 1]), "communication 0: expected different ranks below 4, got a rank twice"),
        (collective("all_reduce", 1, []), "expected the ranks of its group, got none"),
        (collective("all_reduce", -1, [0, 1]), "expected a size of 0 bytes or more, got -1"),
        (collective("broadcast", 1, [0, 1], root=3), "expected a root among ranks 0, 1, got rank 3"),
        ({**collective("broadcast", 1, [0, 1]), "comm_type": None}, "a type of collective or a measured time"),
        ({**collective("broadcast", 1, [0, 1]), "comm_type": 77}, r"a type of collective \(0 to 9\), got 77"),
        ({**send(0, 1, 5), "members": [0, 1, 2]}, "expected a source and a destination, got 3 ranks"),
        (collective("all_to_all", 1, [0, 1], send_bytes=[[1, 2]]), "expected bytes from each of 2 members"),
    ],
)
def test_rows_that_make_no_sense_are_refused(row, message):
    with pytest.raises(SimulationError, match=message):
        plan(flat(), 4, row)


def test_what_bounds_communications():
    flows = plan(servers(), 16, send(0, 1, 400_000), send(1, 9, 400_000), collective("barrier", 0, range(8)))
    assert bound_by(flows) == {"scale_out": 8000.0, "latency": 600.0 + 2700 + 2 * 3 * 600, "scale_up": 1000.0}
    assert bound_by(flows, np.array([0])) == {"scale_up": 1000.0, "latency": 600.0, "scale_out": 0.0}
    assert describe(flows, 1) == (
        "direct: 2.700 us of latency, then 8.000 us for 390.6 KiB at 50 GB/s over scale_out up of rank 1"
    )
    assert describe(flows, 2) == "tree: 3.600 us of latency"


def test_a_job_of_256_ranks_is_planned_from_its_distinct_communications():
    rows = []
    for layer in range(16):
        for base in range(0, 256, 8):
            rows += [collective(kind, MIB + layer % 2, range(base, base + 8)) for kind in ("all_reduce", "all_gather")]
    communications = group_communications(table(*rows))
    assert (len(communications.distinct), len(communications.kind), len(communications.groups)) == (1024, 128, 32)
    flows = plan_flows(communications, servers(), 256)
    assert len(flows.capacity) == 512
    assert len(set(times(flows))) == 4
