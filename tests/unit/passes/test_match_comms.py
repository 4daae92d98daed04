"""Communications meet across ranks and are split at the last arrival."""

import polars as pl
import pytest

from chakra_et.ir import CommType, NodeType, ProcessGroup, TraceBuilder, TraceSet
from chakra_et.passes.match_comms import match_comms, merge_groups
from chakra_et.validation import validate

COLL, SEND, RECV = NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE
WORLD = ProcessGroup("0", (0, 1), 2)


def rank_of(rank, *communications, groups=(WORLD,), world_size=None):
    """A rank with (type, start, duration, columns) communications."""
    builder = TraceBuilder(rank=rank, world_size=world_size, process_groups=groups)
    builder.add("host", NodeType.COMP_NODE, start_ns=0, duration_ns=1, is_cpu_op=True)
    for kind, start, duration, columns in communications:
        builder.add("comm", kind, start_ns=start, duration_ns=duration, **columns)
    return builder.build()


def coll(start, duration, kind=CommType.ALL_REDUCE, size=64, group="0", **more):
    return COLL, start, duration, {"pg_name": group, "comm_type": int(kind), "comm_size": size, **more}


def send(start, duration, source, target, tag=0, size=8, **more):
    return SEND, start, duration, {"comm_src": source, "comm_dst": target, "comm_tag": tag, "comm_size": size, **more}


def recv(start, duration, source, target, tag=0, size=8, **more):
    return RECV, start, duration, {"comm_src": source, "comm_dst": target, "comm_tag": tag, "comm_size": size, **more}


def columns(traces, rank, *names):
    return traces.trace(rank).nodes.filter(pl.col("type") >= int(SEND)).select(names).rows()


def test_collectives_meet_by_group_and_position():
    traces, found = match_comms(
        TraceSet((rank_of(0, coll(10, 50), coll(100, 20)), rank_of(1, coll(40, 20), coll(90, 30))))
    )
    assert (found.collectives, found.complete, found.mismatched) == (2, 2, 0)
    assert found.findings == ()
    assert columns(traces, 0, "comm_seq", "wait_ns", "transfer_ns") == [(0, 30, 20), (1, 0, 20)]
    assert columns(traces, 1, "comm_seq", "wait_ns", "transfer_ns") == [(0, 0, 20), (1, 10, 20)]
    assert traces.process_groups == (WORLD,)
    counts = {"collectives": 2, "complete": 2, "mismatched": 0, "sends": 0, "receives": 0, "paired": 0}
    assert found.as_dict() == counts | {"findings": []}


def test_positions_are_by_start_not_by_row():
    traces, _ = match_comms(TraceSet((rank_of(0, coll(100, 5), coll(10, 5)), rank_of(1, coll(10, 5), coll(100, 5)))))
    assert columns(traces, 0, "comm_seq") == [(1,), (0,)]
    assert columns(traces, 1, "comm_seq") == [(0,), (1,)]


def test_groups_are_apart():
    pairs = (ProcessGroup("0", (0, 1), 2), ProcessGroup("1", (0, 1), 2))
    traces, found = match_comms(
        TraceSet(
            (
                rank_of(0, coll(10, 5), coll(20, 5, group="1"), groups=pairs),
                rank_of(1, coll(15, 5, group="1"), coll(30, 5), groups=pairs),
            )
        )
    )
    assert (found.collectives, found.complete) == (2, 2)
    assert columns(traces, 0, "pg_name", "comm_seq") == [("0", 0), ("1", 0)]


def test_one_name_may_stand_for_disjoint_groups():
    def tp(ranks):
        return (ProcessGroup("tp", ranks, 2),)

    sets = TraceSet(
        tuple(
            rank_of(rank, coll(10 * rank, 50, group="tp"), groups=tp((0, 1) if rank < 2 else (2, 3)))
            for rank in range(4)
        )
    )
    traces, found = match_comms(sets)
    assert (found.collectives, found.complete) == (2, 2)
    assert {group.ranks for group in traces.process_groups} == {(0, 1), (2, 3)}
    assert columns(traces, 0, "wait_ns") == [(10,)]
    assert columns(traces, 2, "wait_ns") == [(10,)]


def test_members_that_are_not_in_the_set_are_told_once():
    group = ProcessGroup("0", (0, 1, 2), 3)
    _, found = match_comms(TraceSet((rank_of(0, coll(0, 5), groups=(group,)), rank_of(2, coll(0, 5), groups=(group,)))))
    assert (found.collectives, found.complete, found.mismatched) == (1, 0, 0)
    assert found.findings == ("ranks [1] of group 0 are not in the set: 1 collectives lack them",)


def test_a_member_that_didnt_come_is_a_finding():
    group = ProcessGroup("0", (0, 1, 2), 3)
    traces = TraceSet(tuple(rank_of(rank, *([coll(0, 5)] * (rank != 1)), groups=(group,)) for rank in range(3)))
    _, found = match_comms(traces)
    assert (found.collectives, found.complete) == (1, 0)
    assert found.findings == ("collective 0 of group 0: expected ranks [0, 1, 2], got [0, 2]",)


@pytest.mark.parametrize(
    ("one", "other", "mismatched"),
    [
        (coll(0, 5), coll(0, 5, size=32), 1),
        (coll(0, 5), coll(0, 5, kind=CommType.ALL_GATHER), 1),
        # These differ by nature: uneven splits, roots.
        (coll(0, 5, kind=CommType.ALL_TO_ALL), coll(0, 5, kind=CommType.ALL_TO_ALL, size=32), 0),
        (coll(0, 5, kind=CommType.GATHER), coll(0, 5, kind=CommType.GATHER, size=0), 0),
    ],
)
def test_ranks_that_disagree(one, other, mismatched):
    _, found = match_comms(TraceSet((rank_of(0, one), rank_of(1, other))))
    assert (found.complete, found.mismatched) == (1, mismatched)
    assert len(found.findings) == mismatched
    assert all("rank 0 has all_reduce of 64 bytes, rank 1 has all_" in text for text in found.findings)


def test_a_send_of_another_size_than_its_receive_is_a_finding():
    traces = TraceSet((rank_of(0, send(0, 30, 0, 1, size=64)), rank_of(1, recv(10, 20, 0, 1, size=32))))
    _, found = match_comms(traces)
    assert (found.paired, found.mismatched) == (1, 1)
    assert found.findings == (
        "send and receive differ: rank 0 has comm_send of 64 bytes, rank 1 has comm_recv of 32 bytes",
    )


def test_an_unknown_size_is_no_disagreement():
    traces = TraceSet((rank_of(0, send(0, 30, 0, 1, size=None)), rank_of(1, recv(10, 20, 0, 1, size=32))))
    assert match_comms(traces)[1].mismatched == 0
    assert match_comms(TraceSet((rank_of(0, coll(0, 5, size=None)), rank_of(1, coll(0, 5)))))[1].mismatched == 0


def test_sends_of_two_groups_meet_in_whatever_order_they_come_in():
    one, two = (ProcessGroup(name, (0, 1), 2) for name in ("1", "2"))
    traces, found = match_comms(
        TraceSet(
            (
                rank_of(0, send(0, 5, 0, 1, pg_name="1"), send(10, 5, 0, 1, pg_name="2"), groups=(one, two)),
                rank_of(1, recv(0, 5, 0, 1, pg_name="2"), recv(10, 5, 0, 1, pg_name="1"), groups=(one, two)),
            )
        )
    )
    assert found.paired == 2
    assert columns(traces, 0, "pg_name", "comm_seq") == [("1", 0), ("2", 1)]
    assert columns(traces, 1, "pg_name", "comm_seq") == [("2", 1), ("1", 0)]


def test_sends_meet_receives_by_peers_tag_and_position():
    traces, found = match_comms(
        TraceSet(
            (
                rank_of(0, send(0, 30, 0, 1, 7), send(50, 10, 0, 1, 8), send(70, 10, 0, 1, 7), recv(100, 20, 1, 0)),
                rank_of(1, recv(10, 20, 0, 1, 7), recv(40, 60, 0, 1, 7), recv(45, 25, 0, 1, 8), send(110, 10, 1, 0)),
            )
        )
    )
    assert (found.sends, found.receives, found.paired) == (4, 4, 4)
    assert columns(traces, 0, "comm_tag", "comm_seq", "wait_ns") == [(7, 0, 10), (8, 0, 0), (7, 1, 0), (0, 0, 10)]
    assert columns(traces, 1, "comm_tag", "comm_seq", "wait_ns") == [(7, 0, 0), (7, 1, 30), (8, 0, 5), (0, 0, 0)]


def test_unpaired_sends_have_no_wait():
    traces, found = match_comms(TraceSet((rank_of(0, send(0, 30, 0, 1), recv(40, 5, 3, 0)), rank_of(1))))
    assert (found.sends, found.receives, found.paired) == (1, 1, 0)
    assert found.findings == (
        "1 sends from rank 0 to rank 1 met no receive",
        "1 receives from rank 3 to rank 0 met no send: rank 3 is not in the set",
    )
    assert columns(traces, 0, "comm_seq", "wait_ns", "transfer_ns") == [(0, None, None)] * 2


def test_a_receive_from_anybody_that_met_nothing_names_no_sender():
    _, found = match_comms(TraceSet((rank_of(0, recv(40, 5, None, 0)), rank_of(1))))
    assert found.findings == ("1 receives from an unknown rank to rank 0 met no send",)


def test_a_wait_is_no_longer_than_its_communication():
    """A send that was over before the receive began."""
    traces, _ = match_comms(TraceSet((rank_of(0, send(0, 30, 0, 1)), rank_of(1, recv(80, 5, 0, 1)))))
    assert columns(traces, 0, "wait_ns", "transfer_ns") == [(30, 0)]
    assert columns(traces, 1, "wait_ns", "transfer_ns") == [(0, 5)]


def test_a_send_of_the_host_is_ready_when_its_call_begins():
    """c10d opens the range of a send after it has handed the data over."""
    builder = TraceBuilder(rank=0, process_groups=(WORLD,))
    call = builder.add("c10d::send", NodeType.COMP_NODE, start_ns=20, duration_ns=100, is_cpu_op=True)
    builder.add(
        "gloo:send", SEND, start_ns=90, duration_ns=10, is_cpu_op=True, parent=call, comm_src=0, comm_dst=1, comm_tag=0
    )
    late = builder.build()
    traces, found = match_comms(TraceSet((late, rank_of(1, recv(0, 50, 0, 1, is_cpu_op=True)))))
    assert columns(traces, 1, "wait_ns", "transfer_ns") == [(20, 30)]
    assert columns(traces, 0, "wait_ns", "transfer_ns") == [(0, 10)]
    assert found.clock_offsets_ns == {0: 0, 1: 0}


def test_clocks_are_aligned_before_waits_are_told():
    """Rank 1's clock is 1,000 ns ahead: collectives that end together give it away."""
    traces, found = match_comms(
        TraceSet((rank_of(0, coll(0, 50), coll(100, 10)), rank_of(1, coll(1030, 20), coll(1080, 30))))
    )
    assert found.clock_offsets_ns == {0: 0, 1: -1000}
    assert columns(traces, 0, "wait_ns", "transfer_ns") == [(30, 20), (0, 10)]
    assert columns(traces, 1, "wait_ns", "transfer_ns") == [(0, 20), (20, 10)]
    # Starts stay on each rank's own clock.
    assert columns(traces, 1, "start_ns") == [(1030,), (1080,)]


def test_without_times_there_are_no_waits():
    traces, found = match_comms(TraceSet((rank_of(0, coll(None, 0)), rank_of(1, coll(None, 0)))))
    assert (found.collectives, found.complete) == (1, 1)
    assert columns(traces, 0, "comm_seq", "wait_ns") == [(0, None)]


def test_matching_again_changes_nothing():
    once, _ = match_comms(
        TraceSet((rank_of(0, coll(10, 50), send(70, 5, 0, 1)), rank_of(1, coll(40, 20), recv(60, 15, 0, 1))))
    )
    again, found = match_comms(once)
    assert (found.complete, found.paired) == (1, 1)
    for left, right in zip(once, again, strict=True):
        assert left.nodes.select(sorted(left.nodes.columns)).equals(right.nodes.select(sorted(right.nodes.columns)))


def test_sets_without_communications():
    traces, found = match_comms(TraceSet((rank_of(0), rank_of(1))))
    counts = ("collectives", "complete", "mismatched", "sends", "receives", "paired")
    assert found.as_dict() == dict.fromkeys(counts, 0) | {"findings": []}
    assert traces.process_groups == (WORLD,)
    assert match_comms(TraceSet(()))[1].collectives == 0


def test_groups_are_merged():
    whole, unknown = ProcessGroup("0", (), 4), ProcessGroup("5", (), 3)
    sets = TraceSet(
        (
            rank_of(0, groups=(whole, ProcessGroup("1", (0, 1), 2), unknown), world_size=4),
            rank_of(2, groups=(whole, ProcessGroup("1", (2, 3), 2), ProcessGroup("5", (0, 2, 3), 3)), world_size=4),
        )
    )
    assert merge_groups(sets) == (
        ProcessGroup("0", (0, 1, 2, 3), 4),
        ProcessGroup("1", (0, 1), 2),
        ProcessGroup("1", (2, 3), 2),
        ProcessGroup("5", (0, 2, 3), 3),
    )


def test_threads_that_begin_in_another_order_than_they_were_called_in_do_not_mix_up_collectives():
    def rank(number, begins):
        builder = TraceBuilder(rank=number, world_size=2, process_groups=(WORLD,))
        for place, begin in enumerate(begins):
            host = {"start_ns": 10 * place, "duration_ns": 5, "is_cpu_op": True, "tid": 1}
            call = builder.add("c10d::allreduce_", NodeType.COMP_NODE, **host)
            what = {"pg_name": "0", "comm_type": int(CommType.ALL_REDUCE), "comm_size": 64 + place}
            thread = {"is_cpu_op": True, "tid": 2 + place}
            builder.add("gloo:all_reduce", COLL, parent=call, start_ns=begin, duration_ns=50, **thread, **what)
        return builder.build()

    both = TraceSet((rank(0, (30, 35)), rank(1, (45, 40))))
    traces, found = match_comms(both)
    assert (found.collectives, found.complete, found.mismatched, found.findings) == (2, 2, 0, ())
    assert columns(traces, 1, "comm_size", "comm_seq") == [(64, 0), (65, 1)]
    assert [validate(one).errors for one in (both, traces)] == [0, 0]
