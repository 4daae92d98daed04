"""Which nodes a rank issues, for how long they take a slot, and how messages meet."""

from dataclasses import replace

import pytest

from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.ir import NodeType
from tests.unit.sim.astra.jobs import collective, compute, each, machine, same, simulate, times


def send(builder, target, size=1000, tag=1, after=()):
    return builder.add(
        "send", NodeType.COMM_SEND_NODE, comm_dst=target, comm_size=size, comm_tag=tag, data_deps=list(after)
    )


def receive(builder, source, size=1000, tag=1, after=()):
    return builder.add(
        "receive", NodeType.COMM_RECV_NODE, comm_src=source, comm_size=size, comm_tag=tag, data_deps=list(after)
    )


def hop(size):
    return int(500 + size / (50 * 2**30 / 1e9))


def test_the_lowest_id_goes_first_and_a_slot_holds_one():
    def build(builder, rank):
        builder.add("b", NodeType.COMP_NODE, id=7, duration_ns=2000)
        builder.add("a", NodeType.COMP_NODE, id=3, duration_ns=1000)
        builder.add("host", NodeType.COMP_NODE, id=9, duration_ns=5000, is_cpu_op=True)

    found = times(simulate(each(2, build), machine(2)))
    assert found == {rank: [(1000, 3000), (0, 1000), (0, 5000)] for rank in (0, 1)}


def test_no_duration_is_a_nanosecond_and_times_are_whole_microseconds():
    def build(builder, rank):
        builder.add("a", NodeType.COMP_NODE, duration_ns=0)
        builder.add("b", NodeType.COMP_NODE, duration_ns=1600, data_deps=[0])

    assert simulate(each(2, build), machine(2)).finish_ns == 2001


def test_exposed_communication_is_all_time_without_compute():
    def build(builder):
        first = compute(builder, 3)
        collective(builder, "all_reduce", 4096, [first])

    result = simulate(same(4, build), machine(4))
    rank = result.ranks[2]
    assert rank.compute_ns == 3000
    assert rank.communication_ns == rank.exposed_communication_ns == rank.finish_ns - 3000
    assert [(group.comm_type, group.count, group.bytes, group.size) for group in result.groups] == [
        ("all_reduce", 1, 4096, 4)
    ]


def test_a_send_ends_when_it_arrives_and_a_receive_when_both_are_there():
    def build(builder, rank):
        if rank == 0:
            send(builder, 1)
        elif rank == 1:
            receive(builder, 0, after=[compute(builder, 5)])

    def idle(builder, rank):
        build(builder, rank)
        if rank > 1:
            compute(builder, 1)

    found = times(simulate(each(4, idle), machine(4)))
    assert found[0] == [(0, hop(1000))]
    assert found[1] == [(0, 5000), (5000, 5000)]


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_rendezvous_waits_for_the_receiver(backend):
    def build(builder, rank):
        if rank == 0:
            send(builder, 1)
        elif rank == 1:
            receive(builder, 0, after=[compute(builder, 5)])
        else:
            compute(builder, 1)

    found = times(simulate(each(4, build), machine(4), rendezvous=True, backend=backend))
    arrival = 5000 + hop(8192) + hop(1000)
    assert found[0] == [(0, arrival)]
    assert found[1][1] == (5000, arrival)


def test_messages_of_one_key_meet_in_order_and_others_by_tag():
    def build(builder, rank):
        if rank == 0:
            last = send(builder, 1, tag=2)
            send(builder, 1, tag=1, after=[last])
        elif rank == 1:
            receive(builder, 0, tag=1)
            receive(builder, 0, tag=2)
        else:
            compute(builder, 1)

    found = times(simulate(each(4, build), machine(4)))
    assert found[1] == [(0, 2 * hop(1000)), (0, hop(1000))]


def test_a_link_takes_one_message_at_a_time_when_aware():
    def build(builder, rank):
        if rank == 0:
            send(builder, 2, size=1 << 20)
        elif rank == 1:
            send(builder, 2, size=1 << 20, tag=5)
        elif rank == 2:
            receive(builder, 0, size=1 << 20)
            receive(builder, 1, size=1 << 20, tag=5)
        else:
            compute(builder, 1)

    config = machine(8)
    free = int((1 << 20) / (50 * 2**30 / 1e9))
    found = times(simulate(each(8, build), config, backend="aware"))
    # The second hop of rank 0's message queues behind rank 1's own, which is off by then.
    assert found[2] == [(0, 2 * hop(1 << 20)), (0, hop(1 << 20))]
    assert found[2][0][1] > hop(1 << 20) + free


def test_memory_nodes_take_turns_in_a_pool():
    def build(builder):
        builder.add("load", NodeType.MEM_LOAD_NODE, tensor_size=10_000)

    config = machine(
        4, memory_type="MEMORY_POOL", remote_mem_latency=100, remote_mem_bw=10, num_nodes=2, num_npus_per_node=2
    )
    assert [rank.finish_ns for rank in simulate(same(4, build), config).ranks] == [1100, 2200, 3300, 4400]
    by_server = replace(config, memory_type="PER_NODE_MEMORY_EXPANSION")
    assert [rank.finish_ns for rank in simulate(same(4, build), by_server).ranks] == [1100, 2200, 1100, 2200]
    alone = replace(config, memory_type="PER_NPU_MEMORY_EXPANSION")
    assert [rank.finish_ns for rank in simulate(same(4, build), alone).ranks] == [1100] * 4


def test_roofline():
    def build(builder):
        builder.add("bound by memory", NodeType.COMP_NODE, num_ops=1_000_000, tensor_size=1_000_000)
        builder.add("bound by compute", NodeType.COMP_NODE, num_ops=1_000_000_000, tensor_size=1000, data_deps=[0])

    config = machine(4, roofline=True, peak_perf=100.0, local_mem_bw=50.0)
    assert times(simulate(same(4, build), config))[0] == [(0, 20_000), (20_000, 30_000)]


def test_metadata_takes_no_time_and_children_of_nodes_without_type_go_on():
    def build(builder):
        builder.add("meta", NodeType.METADATA_NODE)
        builder.add("nothing", NodeType.INVALID_NODE, data_deps=[0])
        builder.add("compute", NodeType.COMP_NODE, duration_ns=1000, data_deps=[1])

    assert times(simulate(same(4, build), machine(4)))[3] == [(0, 0), (0, 0), (0, 1000)]


def test_a_group_of_one_ends_at_once():
    def build(builder, rank):
        collective(builder, "all_reduce", 4096, group=str(rank + 1))

    config = machine(4, groups=tuple((rank + 1, (rank,)) for rank in range(4)))
    assert simulate(each(4, build), config).finish_ns == 0


def test_replay_takes_the_traces_times():
    def build(builder):
        builder.add("a", NodeType.COMP_NODE, duration_ns=2000)
        builder.add("b", NodeType.COMM_COLL_NODE, duration_ns=7000, comm_type=0, comm_size=64, data_deps=[0])

    rank = simulate(same(4, build), machine(4, replay_only=True)).ranks[0]
    assert (rank.finish_ns, rank.compute_ns, rank.communication_ns, rank.exposed_communication_ns) == (
        9000,
        2000,
        7000,
        0,
    )


def test_a_ring_of_two_runs_on_a_congested_network():
    def build(builder):
        collective(builder, "all_reduce", 1 << 20)

    part = hop(1 << 19)
    reduction = 3 * int((1 << 19) / 1600e9 * 1e9)
    assert simulate(same(2, build), machine(2), backend="aware").finish_ns == 10 + 2 * (part + 10) + reduction


def test_only_collectives_outside_of_groups_leave_dimensions_out():
    attribute = proto.AttributeProto(name="involved_dim", bool_list=proto.BoolList(values=[True, False]))
    raw = proto.Node(attr=[attribute]).SerializeToString()

    def build(group):
        names = {} if group is None else {"pg_name": group}
        return same(
            4,
            lambda builder: builder.add("ar", NodeType.COMM_COLL_NODE, comm_type=0, comm_size=4096, attr=raw, **names),
        )

    config = machine((2, 2), groups=((1, (0, 1, 2, 3)),))
    whole = same(4, lambda builder: collective(builder, "all_reduce", 4096))
    assert simulate(build(None), config).finish_ns < simulate(whole, config).finish_ns
    assert simulate(build("1"), config).finish_ns == simulate(whole, config).finish_ns
