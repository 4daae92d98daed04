"""Where ASTRA-sim hangs, aborts or reports success wrongly: an error that names the cause."""

import pytest

from chakra_et.errors import SimulationError
from chakra_et.ir import NodeType, TraceSet
from tests.unit.sim.astra.jobs import collective, compute, each, machine, same, simulate
from tests.unit.sim.astra.test_issue import receive, send


def refusal(job, config, **options):
    with pytest.raises(SimulationError) as caught:
        simulate(job, config, **options)
    return caught.value


def test_a_rank_that_never_comes():
    def build(builder, rank):
        compute(builder, 1)
        if rank != 2:
            collective(builder, "all_reduce", 4096)

    error = refusal(each(4, build), machine(4))
    assert str(error).startswith(
        "rank 0: node 1 ('all_reduce') waits for ever for rank 2 to issue collective 0 of group 0"
    )
    assert [(row.rank, row.node) for row in error.waiting] == [(0, 1), (1, 1), (3, 1)]


def test_ranks_that_issue_in_different_orders():
    def build(builder, rank):
        for kind in ("all_reduce", "all_gather") if rank != 1 else ("all_gather", "all_reduce"):
            collective(builder, kind, 4096)

    error = refusal(each(4, build), machine(4))
    assert "expected all_reduce of 4,096 bytes, which is collective 0 of group 0 (all ranks) on the others" in str(
        error
    )
    assert error.waiting[0].rank == 1
    assert {row.rank for row in error.waiting[1:]} == {0}


def test_sizes_that_differ():
    error = refusal(each(4, lambda builder, rank: collective(builder, "all_reduce", 4096 + rank)), machine(4))
    assert "rank 1: node 0 ('all_reduce'): expected all_reduce of 4,096 bytes" in str(error)
    assert "got all_reduce of 4,097 bytes" in str(error)


def test_messages_that_never_match():
    def build(builder, rank):
        compute(builder, 1)
        if rank == 0:
            send(builder, 1, tag=1)
        if rank == 1:
            receive(builder, 0, tag=2)

    error = refusal(each(4, build), machine(4))
    assert "rank 1: node 1 ('receive') waits for ever for a send of 1,000 bytes with tag 2 from rank 0" in str(error)
    assert [row.group for row in error.waiting] == ["0->1"]


def test_a_cycle():
    def build(builder, rank):
        compute(builder, 1)
        builder.add("x", NodeType.COMP_NODE, duration_ns=1000, data_deps=[2])
        builder.add("y", NodeType.COMP_NODE, duration_ns=1000, data_deps=[1])

    error = refusal(each(2, build), machine(2))
    assert "node 1 ('x') waits for ever for node 2, which waits for it in a cycle of dependencies" in str(error)
    assert "4 nodes of 2 ranks never end" in str(error)


@pytest.mark.parametrize(
    ("columns", "changes", "words"),
    [
        ({"comm_type": 1, "comm_size": 64}, {}, "expected one of all_reduce, all_gather, .* got reduce"),
        ({"comm_type": 9, "comm_size": 64}, {}, "got barrier"),
        ({"comm_type": 44, "comm_size": 64}, {}, "expected a comm_type from 0 to 9, got 44"),
        ({"comm_size": 64}, {}, "expected comm_type of a collective, got none"),
        ({"comm_type": 0}, {}, "expected comm_size of a collective, got none"),
        (
            {"comm_type": 0, "comm_size": 64, "is_cpu_op": True},
            {},
            "expected a collective on the device, got is_cpu_op",
        ),
        ({"comm_type": 0, "comm_size": 64, "pg_name": "tp"}, {}, "expected a whole number as pg_name, got 'tp'"),
        ({"comm_type": 0, "comm_size": 64, "pg_name": "7"}, {}, "expected group 7 in the group file, got no group"),
        ({"comm_type": 0, "comm_size": 64}, {"splits": 0}, "expected preferred-dataset-splits"),
        ({"comm_type": 0, "comm_size": 64}, {"local_mem_bw": 0.0}, "expected local-mem-bw above 0"),
        ({"comm_type": 2, "comm_size": 3}, {"splits": 4}, "all-gather of at least as many bytes"),
        ({"comm_type": 0, "comm_size": 64}, {"all_reduce": ()}, "expected all-reduce-implementation"),
        ({"comm_type": 0, "comm_size": 64}, {"all_reduce": ("ring", "ring")}, "expected at most 1 algorithms"),
        ({"comm_type": 6, "comm_size": 64}, {"all_to_all": ("halvingDoubling",)}, "another algorithm for all-to-alls"),
        ({"comm_type": 0, "comm_size": 64, "type": 2}, {}, "expected no memory nodes, as the memory file says"),
        ({"comm_type": 0, "comm_size": 64, "type": 5}, {}, "expected comm_dst of a send or receive, got none"),
    ],
)
def test_what_it_cannot_run(columns, changes, words):
    kind = NodeType(columns.get("type", 7))
    rest = {name: value for name, value in columns.items() if name != "type"}
    job = same(4, lambda builder: builder.add("node", kind, **rest))
    with pytest.raises(SimulationError, match=words):
        simulate(job, machine(4, **changes))


def test_powers_of_two():
    job = same(6, lambda builder: collective(builder, "all_reduce", 4096))
    for algorithm in ("halvingDoubling", "doubleBinaryTree"):
        assert f"expected a power of two of ranks for {algorithm}, got 6" in str(
            refusal(job, machine(6, "Ring", algorithm))
        )


def test_groups_and_trees():
    job = each(4, lambda builder, rank: collective(builder, "all_reduce", 4096, group=str(1 + rank // 2)))
    config = machine(4, "Ring", "doubleBinaryTree", groups=((1, (0, 1)), (2, (2, 3))))
    assert "doubleBinaryTree for a group that is smaller than the job" in str(refusal(job, config))
    strangers = machine(4, groups=((1, (0, 2)), (2, (2, 3))))
    assert "rank 1: node 0 ('all_reduce'): expected a member of group 1" in str(refusal(job, strangers))


def test_ranks_and_dimensions():
    job = same(4, lambda builder: compute(builder, 1))
    assert "as many as the network has, got none of rank 4, 5, 6, 7" in str(refusal(job, machine(8)))
    assert "expected the traces of 2 ranks, as many as the network has, got 4" in str(refusal(job, machine(2)))
    assert "expected a network of one dimension" in str(refusal(job, machine((2, 2)), backend="aware"))


def test_traces_that_are_broken():
    empty = same(4, lambda builder: None)
    assert "rank 0: expected nodes, got a trace without any" in str(refusal(empty, machine(4)))
    dangling = same(4, lambda builder: compute(builder, 1, [77]))
    assert "rank 0: node 0 ('compute'): expected its dependency 77 in the trace" in str(refusal(dangling, machine(4)))
    twice = same(4, lambda builder: [builder.add("a", NodeType.COMP_NODE, id=1) for _ in range(2)])
    assert "expected unique node ids, got this one twice" in str(refusal(twice, machine(4)))
    assert "expected the traces of 4 ranks" in str(refusal(TraceSet(()), machine(4)))
