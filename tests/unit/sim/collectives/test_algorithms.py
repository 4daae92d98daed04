"""Closed forms from the literature: latency and bytes on the most loaded link, by algorithm and type."""

import math

import numpy as np
import pytest

from chakra_et.ir import CommType
from chakra_et.sim.collectives.table import ALGORITHMS, candidates, cost_of
from chakra_et.sim.network.topology import make_network
from tests.unit.sim.network.machines import flat, servers, system, torus

ALPHA = 500.0
NODES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 31)


def cost_on(machine, name, kind, members, root=-1, world=None):
    grid = make_network(machine, world or max(members) + 1).grid
    return cost_of(grid, np.array(members, np.int64).tobytes(), CommType[kind.upper()], root, name)


def cost(name, kind, n, root=-1):
    """Return latency in alphas and the largest share of one link, of n ranks on a switch."""
    found = cost_on(flat(), name, kind, range(n), root)
    return found.latency_ns / ALPHA, float(found.share.max(initial=0.0))


def log2(n):
    return math.ceil(math.log2(n))


@pytest.mark.parametrize("n", NODES)
def test_ring(n):
    # Patarasu and Yuan 2009; Thakur et al. 2005, table 1.
    assert cost("ring", "all_reduce", n) == pytest.approx((2 * (n - 1), 2 * (n - 1) / n))
    assert cost("ring", "reduce_scatter", n) == pytest.approx((n - 1, (n - 1) / n))
    assert cost("ring", "reduce_scatter_block", n) == pytest.approx((n - 1, (n - 1) / n))
    assert cost("ring", "all_gather", n) == pytest.approx((n - 1, n - 1))
    assert cost("ring", "broadcast", n, 0) == pytest.approx((n - 1, 1))
    assert cost("ring", "reduce", n, n - 1) == pytest.approx((n - 1, 1))


@pytest.mark.parametrize("n", NODES)
def test_double_tree(n):
    # Sanders et al. 2009: full bandwidth broadcast; twice that for an all-reduce from 4 ranks on.
    assert cost("tree", "all_reduce", n) == pytest.approx((2 * log2(n), min(2, n / 2)))
    assert cost("tree", "broadcast", n, 1) == pytest.approx((log2(n), 1))
    assert cost("tree", "reduce", n, 1) == pytest.approx((log2(n), 1))


@pytest.mark.parametrize("n", NODES)
def test_binomial_tree(n):
    # Thakur et al. 2005: lg p alpha + (p - 1) / p n beta, with n = all data.
    for root in range(n):
        assert cost("tree", "scatter", n, root) == pytest.approx((log2(n), n - 1))
        assert cost("tree", "gather", n, root) == pytest.approx((log2(n), n - 1))


@pytest.mark.parametrize("n", [2, 4, 8, 16, 64])
def test_halving_and_doubling_of_powers_of_two(n):
    # Rabenseifner: 2 lg p alpha + 2 (p - 1) / p n beta.
    assert cost("halving_doubling", "all_reduce", n) == pytest.approx((2 * log2(n), 2 * (n - 1) / n))
    assert cost("halving_doubling", "reduce_scatter", n) == pytest.approx((log2(n), (n - 1) / n))
    assert cost("halving_doubling", "all_gather", n) == pytest.approx((log2(n), n - 1))


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12, 31])
def test_halving_and_doubling_of_other_numbers(n):
    # Two more rounds, in which a partner takes and gives back everything: Thakur et al. 2005.
    core = 2 ** int(math.log2(n))
    rounds = int(math.log2(core))
    assert cost("halving_doubling", "all_reduce", n) == pytest.approx((2 * rounds + 2, 2 * (core - 1) / core + 1))
    assert cost("halving_doubling", "reduce_scatter", n) == pytest.approx((rounds + 2, (core - 1) / core + 1))
    assert cost("halving_doubling", "all_gather", n) == pytest.approx((rounds + 2, n * (core - 1) / core + n - 1))


@pytest.mark.parametrize("n", NODES)
def test_direct(n):
    assert cost("direct", "all_reduce", n) == pytest.approx((2, 2 * (n - 1) / n))
    assert cost("direct", "reduce_scatter", n) == pytest.approx((1, (n - 1) / n))
    assert cost("direct", "all_gather", n) == pytest.approx((1, n - 1))
    assert cost("direct", "all_to_all", n) == pytest.approx((1, (n - 1) / n))
    for kind in ("scatter", "gather", "broadcast", "reduce"):
        assert cost("direct", kind, n, n // 2) == pytest.approx((1, n - 1))


@pytest.mark.parametrize("n", NODES)
def test_all_to_all(n):
    # Thakur et al. 2005: pairwise (p - 1) alpha + (p - 1) / p n beta; Bruck lg p alpha + lg p n / 2 beta.
    assert cost("pairwise", "all_to_all", n) == pytest.approx((n - 1, (n - 1) / n))
    bits = sum(member.bit_count() for member in range(n))
    assert cost("bruck", "all_to_all", n) == pytest.approx((log2(n), bits / n))
    if n & (n - 1) == 0:
        assert bits / n == log2(n) / 2


@pytest.mark.parametrize("n", NODES)
def test_in_network(n):
    assert cost("in_network", "all_reduce", n) == pytest.approx((2, (n + 1) / n))


@pytest.mark.parametrize(
    "name", [name for name, entries in ALGORITHMS.items() if CommType.ALL_REDUCE in entries[0].types]
)
def test_a_barrier_is_an_all_reduce_of_nothing(name):
    found = cost_on(flat(), name, "barrier", range(6))
    assert (found.latency_ns, len(found.links)) == (cost(name, "all_reduce", 6)[0] * ALPHA, 0)


def by_dimension(machine, found, world):
    """Return the largest share of a link in each dimension that is used."""
    network = make_network(machine, world)
    shares = {}
    for name, share in zip(network.link_names(found.links), found.share.tolist(), strict=True):
        dimension = name.split()[0]
        shares[dimension] = max(shares.get(dimension, 0.0), share)
    return shares


def test_rings_over_servers_leave_each_server_over_every_port():
    found = cost_on(servers(), "ring", "all_reduce", range(32))
    volume = 2 * 31 / 32
    assert by_dimension(servers(), found, 32) == pytest.approx({"scale_up": volume * 7 / 8, "scale_out": volume / 8})
    # NCCL's tuning model: (steps - steps between servers) * inner + steps between servers * outer latency.
    assert found.latency_ns == pytest.approx((62 - 6) * 600 + 6 * 2700, rel=0.15)
    assert found.latency_ns == 28 * 2 * 600 - 2 * 600 + 8 * 2700  # the slowest chain of 62 hops begins between servers


def test_a_ring_of_one_rank_a_server_uses_ports_only():
    found = cost_on(servers(), "ring", "all_gather", range(0, 32, 8))
    assert by_dimension(servers(), found, 32) == {"scale_out": 3.0}
    assert found.latency_ns == 3 * 2700


def test_a_tree_over_servers():
    found = cost_on(servers(), "tree", "all_reduce", range(64))
    assert by_dimension(servers(), found, 64) == {"scale_up": 2.0, "scale_out": 2 / 8}
    assert found.latency_ns == 2 * (3 * 600 + 3 * 2700)


def test_a_hierarchical_all_reduce():
    # BlueConnect: 2 (k - 1) / k of what the dimensions below have left.
    found = cost_on(servers(), "hierarchical", "all_reduce", range(64))
    assert by_dimension(servers(), found, 64) == pytest.approx({"scale_up": 2 * 7 / 8, "scale_out": 2 * 7 / 8 / 8})
    assert found.latency_ns == 2 * (7 * 600 + 7 * 2700)


def test_a_hierarchical_all_gather_and_all_to_all():
    found = cost_on(servers(), "hierarchical", "all_gather", range(64))
    assert by_dimension(servers(), found, 64) == pytest.approx({"scale_up": 64 * 7 / 8, "scale_out": 7})
    found = cost_on(servers(), "hierarchical", "all_to_all", range(64))
    assert by_dimension(servers(), found, 64) == pytest.approx({"scale_up": 7 / 8, "scale_out": 7 / 8})


def test_a_direct_all_to_all_over_servers():
    found = cost_on(servers(), "direct", "all_to_all", range(64))
    assert by_dimension(servers(), found, 64) == pytest.approx({"scale_up": 7 / 64, "scale_out": 56 / 64})


def test_fully_connected_ranks_use_all_links_alike():
    machine = flat(8, 448.0, kind="fully_connected")
    for kind in ("ring", "direct"):
        found = cost_on(machine, kind, "all_reduce", range(8))
        assert len(found.links) == 56
        assert found.share.tolist() == pytest.approx([2 / 8] * 56)
    found = cost_on(machine, "ring", "all_reduce", [0, 3, 5], world=8)
    assert len(found.links) == 6
    assert found.share.tolist() == pytest.approx([2 * 2 / 3 / 2] * 6)


def test_a_ring_dimension_sends_half_each_way():
    found = cost_on(torus(8), "ring", "all_reduce", range(8))
    assert found.share.tolist() == pytest.approx([2 * 7 / 8 / 2] * 16)
    assert cost_on(torus(2), "ring", "all_reduce", range(2)).share.tolist() == [0.5] * 4


def test_a_torus_uses_the_links_of_all_dimensions():
    found = cost_on(torus(4, 4), "hierarchical", "all_gather", range(16))
    assert len(found.links) == 64
    # 15 bytes come in over 4 links.
    assert found.share.tolist() == pytest.approx([15 / 4] * 64)


def test_an_all_to_all_in_a_ring_is_bound_by_its_bisection():
    # n / 2 ranks send S / 2 each over the middle, which has 2 links each way: n S / 8 a link.
    for n in (4, 8, 16):
        found = cost_on(torus(n), "direct", "all_to_all", range(n))
        assert found.share.tolist() == pytest.approx([n / 8] * 2 * n)


@pytest.mark.parametrize(
    ("machine", "members"),
    [
        (torus(4, 4), range(16)),
        (torus(4, 3, 2), range(24)),
        (system(("a", "fully_connected", 4, 1, 1), ("b", "ring", 3, 1, 1)), range(12)),
        (system(("a", "switch", 4, 1, 1), ("b", "ring", 5, 1, 1)), [0, 1, 4, 5, 8, 9, 12, 13, 16, 17]),
        (system(("a", "ring", 4, 1, 1), ("b", "switch", 2, 1, 1), ("c", "ring", 3, 1, 1)), range(24)),
        (system(("a", "fully_connected", 4, 1, 1), ("b", "switch", 3, 1, 1)), range(10)),
        (servers(4), [0, 1, 2, 4, 5, 11]),
    ],
)
def test_all_pairs_are_what_single_messages_add_up_to(machine, members):
    found = cost_on(machine, "direct", "all_to_all", members)
    n = len(members)
    total = {}
    for source in range(n):
        one = cost_on(machine, "direct", "scatter", members, root=source)
        for link, share in zip(found_links := one.links.tolist(), one.share.tolist(), strict=True):
            total[link] = total.get(link, 0.0) + share / n
        assert found_links
    assert found.links.tolist() == sorted(total)
    assert found.share.tolist() == pytest.approx([total[link] for link in sorted(total)])


def test_uneven_groups_work():
    # 3 ranks in the first server, 2 in the second.
    found = cost_on(servers(4), "ring", "all_reduce", [0, 1, 2, 4, 5])
    shares = by_dimension(servers(4), found, 8)
    assert shares == pytest.approx({"scale_up": 1.6 * 2 / 3, "scale_out": 1.6 / 2})
    assert cost_on(servers(4), "hierarchical", "all_reduce", [0, 1, 2, 4, 5]) is None


def test_groups_without_counterparts_get_one_ring():
    machine = system(("a", "fully_connected", 4, 1.0, 1.0), ("b", "ring", 4, 1.0, 1.0))
    assert cost_on(machine, "tree", "all_reduce", [0, 5]) is None
    found = cost_on(machine, "ring", "all_reduce", [0, 5], world=16)
    assert (
        sorted(make_network(machine, 16).link_names(found.links))
        == [
            "a to rank 0 of rank 5",
            "a to rank 1 of rank 0",
            "b anticlockwise of rank 4",
            "b clockwise of rank 1",
        ]
        or len(found.links) == 4
    )
    assert not found.own


def test_roots_neither_receive_what_they_broadcast_nor_send_what_they_reduce():
    for name in ("ring", "tree"):
        for kind, part in (("broadcast", "down"), ("reduce", "up")):
            found = cost_on(flat(), name, kind, range(4), root=2)
            names = make_network(flat(), 4).link_names(found.links)
            assert set(names) == {f"scale_up {way} of rank {rank}" for way in ("up", "down") for rank in range(4)} - {
                f"scale_up {part} of rank 2"
            }


def test_choice_is_between_what_libraries_have():
    switch, ring = make_network(flat(), 8).grid, make_network(torus(4, 2), 8).grid
    places = np.arange(8).tobytes()

    def names(grid, kind):
        return list(candidates(grid, places, CommType[kind.upper()], 0, None))

    assert names(switch, "all_reduce") == ["ring", "tree"]
    assert names(switch, "all_gather") == ["ring"]
    assert names(switch, "broadcast") == ["ring"]
    assert names(switch, "all_to_all") == ["direct"]
    assert names(switch, "gather") == ["direct"]
    assert names(switch, "barrier") == ["ring", "tree"]
    assert names(ring, "all_reduce") == ["ring", "tree", "hierarchical"]
    assert names(ring, "reduce_scatter") == ["ring", "hierarchical"]
    assert all(names(grid, kind.name) for grid in (switch, ring) for kind in CommType)


def test_a_root_that_is_alone_in_its_server():
    found = cost_on(servers(), "ring", "broadcast", [0, 8, 9], root=0)
    shares = by_dimension(servers(), found, 16)
    assert shares == pytest.approx({"scale_up": 0.5, "scale_out": 1.0})


def test_the_slowest_message_of_an_irregular_group_is_found():
    machine = system(("a", "switch", 2, 1, 100.0), ("b", "fully_connected", 2, 1, 100.0), ("c", "switch", 2, 1, 0.0))
    assert cost_on(machine, "direct", "all_to_all", [0, 1, 4, 6]).latency_ns == 100.0
    assert cost_on(machine, "direct", "all_to_all", range(8)).latency_ns == 200.0


def test_loads_that_are_equal_are_exactly_equal():
    for machine, world in ((torus(7, 6), 42), (torus(5, 5, 3), 75), (flat(7, kind="fully_connected"), 7)):
        for name in ("ring", "direct", "hierarchical"):
            found = cost_on(machine, name, "reduce_scatter", range(world))
            slot = found.links % make_network(machine, world).grid.slots
            assert all(len(set(found.share[slot == one].tolist())) == 1 for one in set(slot.tolist()))
