"""Communications as a table, and which of them meet."""

import polars as pl

from chakra_et.ir import CommType, NodeType, ProcessGroup, TraceBuilder
from chakra_et.ir.communications import communications, meet
from chakra_et.ir.process_group import join_groups

COMP, COLL = NodeType.COMP_NODE, NodeType.COMM_COLL_NODE
SEND, RECV = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE


def reduce(builder, start, group="a", **columns):
    return builder.add(
        "r", COLL, start_ns=start, duration_ns=5, pg_name=group, comm_type=int(CommType.ALL_REDUCE), **columns
    )


def message(builder, kind, source, target, start, **columns):
    return builder.add("m", kind, start_ns=start, duration_ns=5, comm_src=source, comm_dst=target, **columns)


def joined(*builders, groups=()):
    tables = [communications(builder.build(), rank) for rank, builder in enumerate(builders)]
    return meet(pl.concat(tables), groups)


def test_rows_are_those_of_the_trace_and_counted_by_start():
    builder = TraceBuilder(rank=3)
    builder.add("work", COMP, start_ns=0, duration_ns=1)
    reduce(builder, 20)
    reduce(builder, 10)
    reduce(builder, 15, group="b")
    message(builder, SEND, 3, 4, 30)
    message(builder, SEND, 3, 5, 25)
    message(builder, SEND, 3, 4, 28)
    table = communications(builder.build(), 3)
    assert table["row"].to_list() == [1, 2, 3, 4, 5, 6]
    assert table["comm_seq"].to_list() == [1, 0, 0, 1, 0, 0]
    assert table["rank"].to_list() == [3] * 6
    assert table["ready_row"].to_list() == table["row"].to_list()


def test_told_positions_are_kept_and_a_line_that_lacks_one_is_counted():
    builder = TraceBuilder(rank=0)
    reduce(builder, 10, comm_seq=7)
    reduce(builder, 20, comm_seq=9)
    reduce(builder, 10, group="b", comm_seq=5)
    reduce(builder, None, group="b")
    assert communications(builder.build(), 0)["comm_seq"].to_list() == [7, 9, 0, 1]


def test_host_messages_are_ready_at_their_call():
    builder = TraceBuilder(rank=0)
    call = builder.add("c10d::send", COMP, start_ns=4, duration_ns=2, is_cpu_op=True)
    message(builder, SEND, 0, 1, 10, parent=call, is_cpu_op=True)
    message(builder, SEND, 0, 1, 20, parent=99, is_cpu_op=True)
    message(builder, SEND, 0, 1, 30, is_cpu_op=True)
    message(builder, SEND, 0, 1, 40, parent=call)
    reduce(builder, 50, parent=call, is_cpu_op=True)
    table = communications(builder.build(), 0)
    assert table["ready_ns"].to_list() == [4, 20, 30, 40, 50]
    assert table["ready_row"].to_list() == [0, 2, 3, 4, 5]


def test_without_communications_the_table_is_empty():
    assert communications(TraceBuilder(rank=0).build(), 0).height == 0
    builder = TraceBuilder(rank=0)
    builder.add("work", COMP, start_ns=0, duration_ns=1)
    assert joined(builder).height == 0


def test_collectives_meet_by_group_members_and_position():
    ranks = [TraceBuilder(rank=rank) for rank in range(4)]
    for rank, builder in enumerate(ranks):
        reduce(builder, 10 * rank)
        reduce(builder, 100, group="w")
        reduce(builder, 200)
    groups = [ProcessGroup("a", (0, 1), 2), ProcessGroup("a", (2, 3), 2), ProcessGroup("w", (0, 1, 2, 3), 4)]
    found = joined(*ranks, groups=groups)
    parties = found.group_by("meeting").agg(pl.col("rank", "comm_seq"), pl.col("members").first()).sort("meeting")
    assert parties.rows() == [
        (0, [0, 1], [0, 0], "0,1"),
        (1, [0, 1], [1, 1], "0,1"),
        (2, [2, 3], [0, 0], "2,3"),
        (3, [2, 3], [1, 1], "2,3"),
        (4, [0, 1, 2, 3], [0] * 4, "0,1,2,3"),
    ]


def test_messages_meet_by_ends_tag_and_position():
    one, two = TraceBuilder(rank=0), TraceBuilder(rank=1)
    for tag, start in ((1, 0), (2, 10), (1, 20)):
        message(one, SEND, 0, 1, start, comm_tag=tag)
        message(two, RECV, 0, 1, 100 - start, comm_tag=tag)
    message(two, SEND, 1, 0, 0, comm_tag=1)
    found = joined(one, two)
    parties = found.group_by("meeting").agg(pl.col("type").sort(), pl.col("comm_tag").unique()).sort("meeting")
    assert parties["type"].to_list() == [[int(SEND), int(RECV)]] * 3 + [[int(SEND)]]
    assert parties["comm_tag"].to_list() == [[1], [1], [2], [1]]


def test_groups_of_all_ranks_are_joined():
    mine, theirs = ProcessGroup("tp", (0, 1), 2), ProcessGroup("tp", (2, 3), 2)
    assert join_groups([mine, theirs, mine, ProcessGroup("tp", (), 2)], 4) == (mine, theirs)
    assert join_groups([ProcessGroup("w", (), 4)], 4) == (ProcessGroup("w", (0, 1, 2, 3), 4),)
    assert join_groups([ProcessGroup("w", (), 3)], 4) == (ProcessGroup("w", (), 3),)
