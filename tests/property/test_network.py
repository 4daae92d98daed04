"""What holds for every network and collective: more is never worse, names don't matter, nothing gets lost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir import CommType
from chakra_et.sim.collectives.table import ALGORITHMS, cost_of
from chakra_et.sim.network.bounds import bottlenecks
from chakra_et.sim.network.native import plan_flows
from chakra_et.sim.network.topology import make_network
from tests.unit.sim.network.machines import collective, send, system, table

RUNS = settings(max_examples=150, deadline=None)
NAMES = ("inner", "middle", "outer")
SPEEDS = st.sampled_from([1.0, 10.0, 50.0, 450.0])
DELAYS = st.sampled_from([0.0, 100.0, 600.0, 5000.0])


@st.composite
def machines(draw, topologies=("switch", "fully_connected", "ring")):
    """Return a system that its job fills, and the job's number of ranks."""
    count = draw(st.integers(1, 3))
    dimensions = [
        (NAMES[d], draw(st.sampled_from(topologies)), draw(st.integers(2, 5)), draw(SPEEDS), draw(DELAYS))
        for d in range(count)
    ]
    return system(*dimensions), int(np.prod([dimension[2] for dimension in dimensions]))


@st.composite
def rows(draw, world):
    """Return a communication of any kind on any group."""
    if draw(st.integers(0, 9)) == 0:
        return send(draw(st.integers(0, world - 1)), draw(st.integers(0, world - 1)), draw(st.integers(0, 10**9)))
    whole = draw(st.booleans())
    members = list(range(world)) if whole else draw(st.lists(st.integers(0, world - 1), min_size=1, unique=True))
    kind = draw(st.sampled_from([kind.name for kind in CommType]))
    size = draw(st.sampled_from([0, 1, 1000, 10**6, 10**9]))
    return collective(kind, size, members, root=draw(st.sampled_from(members)))


def time_of(machine, world, row):
    flows = plan_flows(table(row), machine, world)
    return float(flows.latency_ns[0] + bottlenecks(flows)[0][0])


def changed(machine, index, **fields):
    dimensions = list(machine.dimensions)
    dimensions[index] = replace(dimensions[index], **fields)
    return replace(machine, dimensions=tuple(dimensions))


@RUNS
@given(st.data(), machines(), st.sampled_from([1.01, 2.0, 100.0]))
def test_more_bandwidth_or_less_latency_is_never_slower(data, given_, factor):
    machine, world = given_
    row = data.draw(rows(world))
    before = time_of(machine, world, row)
    index = data.draw(st.integers(0, len(machine.dimensions) - 1))
    dimension = machine.dimensions[index]
    faster = changed(machine, index, bandwidth_bytes_per_s=dimension.bandwidth_bytes_per_s * factor)
    sooner = changed(machine, index, latency_ns=dimension.latency_ns / factor)
    assert time_of(faster, world, row) <= before * (1 + 1e-9)
    assert time_of(sooner, world, row) <= before * (1 + 1e-9)


@RUNS
@given(st.data(), machines(), st.integers(1, 10**6))
def test_more_bytes_are_never_faster(data, given_, more):
    machine, world = given_
    row = data.draw(rows(world))
    assert time_of(machine, world, row) <= time_of(machine, world, {**row, "size_bytes": row["size_bytes"] + more})


@st.composite
def renumberings(draw, machine, world):
    """Return a permutation of ranks that keeps the topology: of switches, any; of rings, turns and reflections."""
    sizes = machine.sizes(world)
    rank = np.arange(world)
    stride = 1
    for size, dimension in zip(sizes, machine.dimensions, strict=True):
        place = rank // stride % size
        if dimension.topology == "ring":
            moved = (place + draw(st.integers(0, size - 1))) % size
            moved = (size - moved) % size if draw(st.booleans()) else moved
        else:
            moved = np.array(draw(st.permutations(range(size))))[place]
        rank = rank + (moved - place) * stride
        stride *= size
    return rank


@RUNS
@given(st.data(), machines())
def test_other_numbers_for_the_ranks_change_nothing(data, given_):
    machine, world = given_
    row = data.draw(rows(world))
    first, *outer = (dimension.topology for dimension in machine.dimensions)
    if row["kind"] == "collective" and (set(outer) - {"switch"} or (outer and first == "ring")):
        row["members"] = list(range(world))  # a part of a torus may lie on a ring in a better or a worse order
    moved = data.draw(renumberings(machine, world))
    other = {**row, "members": moved[row["members"]].tolist()}
    if row["root"] is not None:
        other["root"] = int(moved[row["root"]])
    assert time_of(machine, world, other) == pytest.approx(time_of(machine, world, row))


@RUNS
@given(st.data(), machines(), st.sampled_from(sorted(ALGORITHMS)))
def test_every_algorithm_moves_what_must_be_moved(data, given_, name):
    machine, world = given_
    members = data.draw(st.lists(st.integers(0, world - 1), min_size=2, unique=True))
    kind = data.draw(st.sampled_from([kind for entry in ALGORITHMS[name] for kind in entry.types]))
    network = make_network(machine, world)
    places = network.grid.relative(np.sort(members), min(members))
    cost = cost_of(network.grid, places.tobytes(), kind, len(members) - 1, name)
    if cost is None:
        return
    assert (cost.share > 0).all()
    assert cost.latency_ns >= 0
    n = len(members)
    whole = n if kind in (CommType.ALL_GATHER, CommType.GATHER, CommType.SCATTER) else 1
    least = whole * (n - 1) / n if name != "in_network" else 1.0
    assert cost.share.sum() >= least * (1 - 1e-9)


@RUNS
@given(st.data(), machines(topologies=("switch",)))
def test_what_is_sent_up_comes_down(data, given_):
    machine, world = given_
    row = data.draw(rows(world))
    flows = plan_flows(table(row), machine, world)
    up = np.array([" up " in name for name in flows.link_names], np.bool_)[flows.links]
    assert flows.bytes[up].sum() == pytest.approx(flows.bytes[~up].sum())
    assert flows.own_links


@RUNS
@given(st.data(), machines())
def test_an_even_all_to_all_given_in_pieces_costs_as_much(data, given_):
    machine, world = given_
    members = data.draw(st.lists(st.integers(0, world - 1), min_size=1, unique=True))
    each = data.draw(st.integers(1, 1000))
    row = collective("all_to_all", each * len(members), members)
    pieces = {**row, "send_bytes": [[each] * len(members)] * len(members)}
    assert time_of(machine, world, pieces) == pytest.approx(time_of(machine, world, row), rel=1e-9)
