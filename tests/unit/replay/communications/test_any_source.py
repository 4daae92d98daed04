"""Receives from anybody: which sends they take, and what is left alone where that can't be told."""

from chakra_et.replay.communications.any_source import settle_sources
from chakra_et.replay.communications.find import Communications
from chakra_et.replay.plan.check import check_plans
from tests.unit.replay.plans import blocking, comm, plan

PAIR = ("pair", (0, 1))
THREE = ("three", (0, 1, 2))


def settled(calls):
    return settle_sources({rank: Communications(tuple(own), ()) for rank, own in calls.items()})


def problems(calls):
    found = settled(calls)
    size = len(found)
    return check_plans([plan(rank, blocking(one.calls), size) for rank, one in found.items()])


def test_the_only_sender_is_who_is_received_from():
    calls = {
        0: [comm(0, "send", PAIR, peer=1, tag=7), comm(1, "send", PAIR, peer=1, tag=7), comm(2, "allreduce_", PAIR)],
        1: [comm(0, "recv_any_source_", PAIR, tag=7, inputs=()), comm(1, "recv_", PAIR, peer=0, tag=7),
            comm(2, "allreduce_", PAIR)],
    }  # fmt: skip
    assert [call.peer for call in settled(calls)[1].calls] == [0, 0, None]
    assert not any(call.is_unordered for one in settled(calls).values() for call in one.calls)
    # A send that waits for its receive, and a collective behind both.
    assert problems(calls) == ()


def test_of_several_senders_none_is_taken_for_the_one():
    calls = {
        0: [comm(0, "recv_any_source_", THREE, 16, inputs=()), comm(1, "recv_any_source_", THREE, 8, inputs=()),
            comm(2, "barrier", THREE)],
        1: [comm(0, "send", THREE, 8, peer=0), comm(1, "barrier", THREE)],
        2: [comm(0, "send", THREE, 16, peer=0), comm(1, "barrier", THREE)],
    }  # fmt: skip
    found = settled(calls)
    assert [call.is_unordered for one in found.values() for call in one.calls] == [True, True, False, True, False,
                                                                                   True, False]  # fmt: skip
    assert problems(calls) == ()
    calls[2] = calls[2][1:]
    assert ["expected a send to rank 0" in str(problem) for problem in problems(calls)] == [True]
