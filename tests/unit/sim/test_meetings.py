import polars as pl
import pytest

from chakra_et.errors import SimulationError
from chakra_et.ir import ProcessGroup, TraceBuilder, TraceSet
from chakra_et.sim.scene import Scene
from tests.unit.sim.jobs import COLL, COMP, RECV, SEND, grid

WORLD = ProcessGroup("w", (0, 1, 2), 3, "world")


def builders(count=3, family="synthesized"):
    return [TraceBuilder(rank=rank, process_groups=[WORLD], family=family) for rank in range(count)]


def job(made):
    return TraceSet(tuple(builder.build() for builder in made))


def cast(made):
    return Scene(job(made), None, None).cast(None, {}, fold=False)


def reduce(builder, size=64, name="r", **columns):
    return builder.add(name, COLL, **{"pg_name": "w", "comm_type": 0, "comm_size": size} | columns)


def test_collectives_meet_by_group_and_order():
    made = builders()
    for builder in made:
        reduce(builder, 64, "first")
        reduce(builder, 128, "second", comm_root=1, comm_type=5)
    met = cast(made).meetings
    assert met.seats.tolist() == [0, 3, 6]
    assert met.nodes.tolist() == [0, 2, 4, 1, 3, 5]
    assert met.table.select("kind", "comm_type", "size_bytes", "root", "pg_name", "description", "seq").rows() == [
        ("collective", 0, 64, None, "w", "world", 0),
        ("collective", 5, 128, 1, "w", "world", 1),
    ]
    assert met.table["members"].to_list() == [[0, 1, 2]] * 2


def test_comm_seq_counts_more_than_the_order():
    made = builders()
    for rank, builder in enumerate(made):
        for seq in (4, 9) if rank else (9, 4):
            reduce(builder, 10 * seq, comm_seq=seq)
    met = cast(made).meetings
    assert met.table.select("seq", "size_bytes").rows() == [(4, 40), (9, 90)]
    assert met.nodes.tolist() == [1, 2, 4, 0, 3, 5]


def test_starts_count_more_than_ids_and_edges_more_too():
    made = builders()
    for rank, builder in enumerate(made):
        if rank == 0:
            reduce(builder, 2, start_ns=20)
            reduce(builder, 1, start_ns=10)
        elif rank == 1:
            later = reduce(builder, 2, data_deps=[1])
            reduce(builder, 1)
            assert later == 0
        else:
            reduce(builder, 1)
            reduce(builder, 2)
    assert cast(made).meetings.nodes.tolist() == [1, 3, 4, 0, 2, 5]


def test_sends_meet_receives_by_ends_tag_and_order():
    made = builders()
    made[0].add("s", SEND, comm_dst=1, comm_size=8, comm_tag=5)
    made[0].add("s", SEND, comm_dst=1, comm_size=9)
    made[0].add("s", SEND, comm_dst=1, comm_size=10)
    for size, tag in ((9, 0), (10, None), (8, 5)):
        made[1].add("r", RECV, comm_src=0, comm_size=size, comm_tag=tag)
    made[2].add("c", COMP)
    met = cast(made).meetings
    assert met.nodes.tolist() == [1, 3, 2, 4, 0, 5]
    assert met.table.select("kind", "comm_type", "size_bytes", "members").rows() == [
        ("send", None, 9, [0, 1]), ("send", None, 10, [0, 1]), ("send", None, 8, [0, 1])
    ]  # fmt: skip


def test_uneven_splits_become_bytes():
    made = builders()
    for builder in made:
        reduce(builder, 24, comm_type=6, in_split_sizes="[1,2,3]")
        reduce(builder, 24, comm_type=6)
    sent = cast(made).meetings.table["send_bytes"].to_list()
    assert sent == [[[4, 8, 12]] * 3, None]


def test_sizes_may_differ_where_they_do_by_nature():
    made = builders()
    for rank, builder in enumerate(made):
        reduce(builder, 10 * rank, comm_type=3)
    assert cast(made).meetings.table["size_bytes"].to_list() == [20]


def test_what_meets_nobody_is_told_apart():
    made = builders(family="collected")
    for builder in made:
        reduce(builder, unknown_comm=True)
        reduce(builder, comm_type=None)
        reduce(builder, pg_name=None)
        reduce(builder)
    found = cast(made).meetings
    assert (found.table.height, sorted(found.unknown.tolist())) == (1, [0, 1, 2, 4, 5, 6, 8, 9, 10])
    alone = TraceBuilder(rank=0, process_groups=[ProcessGroup("me", (0,), 1)])
    reduce(alone, pg_name="me")
    assert cast([alone]).meetings.single.tolist() == [0]


def failure(made):
    with pytest.raises(SimulationError) as info:
        cast(made)
    return str(info.value), info.value.waiting


def test_missing_ranks():
    made = builders()
    for builder in made[:2]:
        reduce(builder)
    text, waiting = failure(made[:2])
    assert text.startswith("expected the traces of all ranks that communicate, got none of rank 2; ")
    assert [(row.rank, row.node, row.group, row.waits_for) for row in waiting] == [
        (0, 0, "w", "rank 2, which the set lacks"), (1, 0, "w", "rank 2, which the set lacks")
    ]  # fmt: skip


def test_missing_collectives():
    made = builders()
    for rank, builder in enumerate(made):
        for _ in range(2 if rank == 1 else 1):
            reduce(builder)
        builder.add("work", COMP)
    text, waiting = failure(made)
    assert text.startswith("collective 1 of group 'w': expected it on ranks 0, 1, 2, got it on 1 only; ")
    assert [(row.rank, row.node) for row in waiting] == [(1, 1)]
    assert waiting[0].waits_for == "rank 0, 2, which has no collective 1 of group 'w'"


@pytest.mark.parametrize(
    ("other", "got"),
    [
        ({"comm_size": 128}, "all_reduce of 64 bytes on rank 0 and all_reduce of 128 bytes on rank 2"),
        ({"comm_type": 2}, "all_reduce of 64 bytes on rank 0 and all_gather of 64 bytes on rank 2"),
    ],
)
def test_disagreement(other, got):
    made = builders()
    for rank, builder in enumerate(made):
        reduce(builder, **(other if rank == 2 else {}))
    text, waiting = failure(made)
    assert text == (
        f"collective 0 of group 'w': expected the same type and size on all ranks, got {got}; repair the traces"
    )
    assert len(waiting) == 3


def test_unmatched_messages():
    made = builders()
    made[0].add("s", SEND, comm_dst=1, comm_size=8, comm_tag=3)
    made[1].add("r", RECV, comm_src=0, comm_size=8, comm_tag=4)
    text, waiting = failure([*made[:2]])
    assert "rank 0: node 0 ('s'): expected its counterpart, got none" in text
    assert "1 sends and 1 receives met nothing" in text
    assert [row.group for row in waiting] == ["0->1", "0->1"]


def test_messages_of_two_sizes():
    made = builders()
    made[0].add("s", SEND, comm_dst=1, comm_size=8)
    made[1].add("r", RECV, comm_src=0, comm_size=9)
    assert failure(made[:2])[0].startswith("send 0 from rank 0 to rank 1: expected the same type and size")


def test_a_message_without_a_peer():
    made = builders()
    made[0].add("s", SEND, comm_size=8)
    assert "a rank that it doesn't name" in failure(made[:1])[0]


def test_generated_jobs_meet_completely():
    met = Scene(grid(), None, None).cast(None, {}, fold=False).meetings
    kinds = met.table.group_by("kind", "pg_name").len().sort("kind", "pg_name")
    # 3 layers, 2 microbatches; 4 groups of each name.
    assert kinds.rows() == [("collective", "dp", 4 * 3), ("collective", "tp", 4 * 6), ("send", None, 4 * 2)]
    assert met.table["members"].list.len().unique().to_list() == [2]
    assert pl.Series(met.nodes).is_unique().all()
