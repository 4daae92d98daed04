import pytest

from chakra_et.errors import SimulationError
from chakra_et.ir import NodeType, ProcessGroup, TraceBuilder, TraceSet
from chakra_et.sim.communicators import find_communicators, find_peers
from tests.unit.sim.jobs import COLL, RECV, SEND


def traces(groups_of, names=("tp",), *, ranks=4, family="synthesized", shared=()):
    made = []
    for rank in range(ranks):
        builder = TraceBuilder(rank=rank, process_groups=groups_of(rank), family=family)
        for name in names:
            builder.add("r", COLL, pg_name=name, comm_type=0, comm_size=4)
        made.append(builder.build())
    return TraceSet(tuple(made), tuple(shared))


def pairs(rank):
    return [ProcessGroup("tp", (rank // 2 * 2, rank // 2 * 2 + 1), 2, "tensor")]


def test_one_name_may_stand_for_several_groups():
    found = find_communicators(traces(pairs))
    assert (found.names, found.descriptions) == (("tp", "tp"), ("tensor", "tensor"))
    assert [found.ranks_of(group) for group in found.groups.tolist()] == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_groups_of_the_set_count_too():
    shared = [ProcessGroup("tp", (2, 3), 2), ProcessGroup("tp", (0, 1), 2)]
    found = find_communicators(traces(lambda rank: (), shared=shared))
    assert [found.ranks_of(group) for group in found.groups.tolist()] == [(0, 1), (0, 1), (2, 3), (2, 3)]


@pytest.mark.parametrize("group", [ProcessGroup("tp", (), 4), ProcessGroup("tp", (), 0)])
def test_a_group_without_ranks_is_the_job_if_it_is_as_large(group):
    if group.size == 4:
        assert find_communicators(traces(lambda rank: (group,))).ranks_of(0) == (0, 1, 2, 3)
    else:
        with pytest.raises(SimulationError, match="expected process group 'tp' with its ranks"):
            find_communicators(traces(lambda rank: (group,)))


def test_a_group_without_ranks_is_who_uses_it_if_they_are_as_many():
    made = traces(lambda rank: (ProcessGroup("tp", (), 2),), ranks=2)
    wide = TraceSet((*made, TraceBuilder(rank=2).build()))
    assert find_communicators(wide).ranks_of(0) == (0, 1)


def test_no_name_means_all_ranks_but_in_recordings_nobody_knows():
    assert find_communicators(traces(lambda rank: (), names=(None,))).ranks_of(0) == (0, 1, 2, 3)
    assert find_communicators(traces(lambda rank: (), names=(None,), family="collected")).names == ()


def test_unknown_groups_and_strangers_are_refused():
    with pytest.raises(
        SimulationError, match=r"rank 0: node 0 .'r'.: expected process group 'tp' with its ranks"
    ) as info:
        find_communicators(traces(lambda rank: ()))
    assert info.value.waiting[0].group == "tp"
    with pytest.raises(
        SimulationError, match=r"rank 2: node 0 .'r'.: expected the rank among those of group 'tp', got 0, 1"
    ):
        find_communicators(traces(lambda rank: (ProcessGroup("tp", (0, 1), 2),)))
    assert find_communicators(traces(lambda rank: ()), strict=False).ranks_of(0) == (0, 1, 2, 3)


def test_calls_beside_the_device_are_no_communications():
    builder = TraceBuilder(rank=0, process_groups=[ProcessGroup("a", (0,), 1)])
    builder.add("call", COLL, pg_name="unknown", comm_type=0, is_cpu_op=True)
    builder.add("kernel", COLL, pg_name="a", comm_type=0)
    assert find_communicators(TraceSet((builder.build(),))).names == ("a",)


def test_peers_in_order_of_appearance():
    builder = TraceBuilder(rank=1)
    builder.add("s", SEND, comm_dst=3, comm_size=4)
    builder.add("r", RECV, comm_src=0, comm_size=4)
    builder.add("r", RECV, comm_src=3, comm_size=4)
    builder.add("work", NodeType.COMP_NODE)
    found = find_peers(TraceSet((TraceBuilder(rank=0).build(), builder.build())))
    assert (found.rank.tolist(), found.peer.tolist(), found.slot.tolist()) == ([1, 1], [3, 0], [0, 1])
    assert found.directed == ((1, 3, True), (1, 0, False), (1, 3, False))
