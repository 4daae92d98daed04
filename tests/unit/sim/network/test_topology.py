"""Which links messages take."""

import numpy as np
import pytest

from chakra_et.errors import InputError
from chakra_et.sim.network.topology import add_up, make_network, route
from tests.unit.sim.network.machines import flat, servers, system, torus


def loads_of(machine, world, source, target, size=8.0):
    """Return {link name: bytes} and the latency of one message."""
    network = make_network(machine, world)
    links, amount, latency = route(network.grid, np.array([source]), np.array([target]), np.array([size]))
    links, amount = add_up(links, amount)
    return dict(zip(network.link_names(links), amount.tolist(), strict=True)), float(latency[0])


def test_a_switch_has_a_link_up_and_one_down():
    assert loads_of(flat(), 4, 0, 3) == ({"scale_up up of rank 0": 8.0, "scale_up down of rank 3": 8.0}, 500.0)


def test_between_servers_messages_use_the_senders_and_the_receivers_own_port():
    links = {"scale_out up of rank 1": 8.0, "scale_out down of rank 15": 8.0}
    assert loads_of(servers(), 16, 1, 15) == (links, 2700.0)
    assert loads_of(servers(), 16, 1, 2)[1] == 600.0


def test_fully_connected_ranks_have_a_link_for_each_pair():
    network = make_network(flat(8, 448.0, kind="fully_connected"), 8)
    assert loads_of(flat(8, kind="fully_connected"), 8, 6, 1) == ({"scale_up to rank 1 of rank 6": 8.0}, 500.0)
    assert set(network.slot_capacity.tolist()) == {64.0}


def test_rings_go_the_shorter_way():
    two = {"axis0 clockwise of rank 3": 8.0, "axis0 clockwise of rank 4": 8.0}
    assert loads_of(torus(5), 5, 3, 0) == (two, 2000.0)
    assert loads_of(torus(5), 5, 0, 4) == ({"axis0 anticlockwise of rank 0": 8.0}, 1000.0)


def test_where_both_ways_are_equally_long_half_takes_each():
    links, latency = loads_of(torus(4), 4, 1, 3)
    assert links == {
        "axis0 clockwise of rank 1": 4.0,
        "axis0 clockwise of rank 2": 4.0,
        "axis0 anticlockwise of rank 1": 4.0,
        "axis0 anticlockwise of rank 0": 4.0,
    }
    assert latency == 2000.0


def test_a_torus_is_crossed_dimension_after_dimension():
    links = {"axis0 clockwise of rank 0": 8.0, "axis1 anticlockwise of rank 1": 8.0}
    assert loads_of(torus(4, 4), 16, 0, 13) == (links, 2000.0)


def test_an_inner_switch_is_crossed_on_the_way_to_an_outer_ring():
    machine = system(("scale_up", "switch", 2, 1.0, 1.0), ("axis", "ring", 5, 1.0, 10.0))
    links = {"scale_up up of rank 0": 8.0, "scale_up down of rank 1": 8.0, "axis anticlockwise of rank 1": 8.0}
    assert loads_of(machine, 10, 0, 9) == (links, 11.0)


def test_a_message_to_oneself_loads_nothing():
    assert loads_of(servers(), 16, 3, 3) == ({}, 0.0)


def test_many_messages_at_once_equal_single_ones():
    network = make_network(
        system(("a", "ring", 4, 1, 1), ("b", "fully_connected", 3, 1, 1), ("c", "switch", 2, 1, 9)), 24
    )
    source, target = (part.ravel() for part in np.meshgrid(np.arange(24), np.arange(24)))
    links, amount, latency = route(network.grid, source, target, np.ones(576))
    single = [route(network.grid, source[i : i + 1], target[i : i + 1], np.ones(1)) for i in range(576)]
    alone = add_up(np.concatenate([one[0] for one in single]), np.concatenate([one[1] for one in single]))
    assert [part.tolist() for part in add_up(links, amount)] == [part.tolist() for part in alone]
    assert latency.tolist() == [float(one[2][0]) for one in single]


def test_moving_there_and_back():
    grid = make_network(torus(4, 3, 2), 24).grid
    ranks = np.arange(24)
    for base in range(24):
        assert sorted(grid.shifted(ranks, base)) == list(range(24))
        assert grid.relative(grid.shifted(ranks, base), base).tolist() == ranks.tolist()


def test_without_a_system_there_is_one_switch():
    network = make_network(None, 3)
    assert (network.names, network.link_bytes_per_ns, network.grid.latency_ns) == (("network",), (1.0,), (0.0,))


def test_a_job_larger_than_the_system_is_refused():
    with pytest.raises(InputError, match="8 ranks at most"):
        make_network(flat(8), 9)
