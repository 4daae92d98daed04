"""What doesn't meet is named, with its rank and node, before anything runs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chakra_et.errors import ReplayError
from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.plan.check import check_plans, refuse_problems
from chakra_et.replay.plan.steps import Communicate, Plan, Step, Wait
from tests.unit.replay.plans import blocking, comm, plan

TP = {0: ("tp", (0, 1)), 1: ("tp", (0, 1)), 2: ("tp", (2, 3)), 3: ("tp", (2, 3))}


def calls(rank: int) -> list[CommCall]:
    return [
        comm(0, "allreduce_", count=16),
        comm(1, "_allgather_base_"),
        comm(2, "broadcast_", root=1),
        comm(3, "allreduce_", group=TP[rank], count=4),
        comm(4, "alltoall_base_"),
        comm(5, "barrier"),
    ]


def plans(change: Callable[[list[CommCall]], object] | None = None, rank: int = 2) -> list[Plan]:
    made = {own: calls(own) for own in range(4)}
    if change is not None:
        change(made[rank])
    return [plan(own, blocking(some)) for own, some in made.items()]


def texts(made: list[Plan]) -> list[str]:
    return [str(problem) for problem in check_plans(made)]


def test_what_meets_has_no_problem() -> None:
    assert texts(plans()) == []


def swap(own: list[CommCall]) -> None:
    own[0], own[1] = own[1], own[0]


def resize(own: list[CommCall]) -> None:
    own[3] = comm(3, "allreduce_", group=TP[2], count=5)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (swap, "rank 2: node 101 ('_allgather_base_'): expected allreduce_ of 16 float32 as on rank 0 (node 100 "
         "('allreduce_')), collective 0 of group '0', got _allgather_base_ of 8 float32"),
        (lambda own: own.pop(1), "rank 2: node 102 ('broadcast_'): expected _allgather_base_ of 8 float32 as on rank 0 "
         "(node 101 ('_allgather_base_')), collective 1 of group '0' first, got none: the collective is missing here"),
        (lambda own: own.insert(1, comm(9, "allreduce_", count=3)), "rank 2: node 109 ('allreduce_'): expected "
         "_allgather_base_ of 8 float32 as on rank 0 (node 101 ('_allgather_base_')), collective 1 of group '0', got a "
         "collective before it that rank 0 has not"),
        (lambda own: own.pop(), "rank 2: expected barrier as on rank 0 (node 105 ('barrier')), collective 4 of group "
         "'0', got none after the last of the rank's"),
        (resize, "rank 3: node 103 ('allreduce_'): expected allreduce_ of 5 float32 as on rank 2 (node 103 "
         "('allreduce_')), collective 0 of group 'tp', got allreduce_ of 4 float32"),
        (lambda own: own.append(comm(6, "barrier")), "rank 2: node 106 ('barrier'): expected 5 collectives of group "
         "'0' as on rank 0, got more"),
        (lambda own: own.__setitem__(2, replace(own[2], root=3)), "rank 2: node 102 ('broadcast_'): expected root 1 as "
         "on rank 0 (node 102 ('broadcast_')), got 3, in collective 2 of group '0'"),
        (lambda own: own.__setitem__(0, replace(own[0], reduce_op="max")), "rank 2: node 100 ('allreduce_'): expected "
         "reduce operation sum as on rank 0 (node 100 ('allreduce_')), got max, in collective 0 of group '0'"),
    ],
)  # fmt: skip
def test_one_rank_that_differs_is_named(change: Callable[[list[CommCall]], object], expected: str) -> None:
    assert texts(plans(change))[0] == expected


def test_uneven_splits_must_fit_on_both_sides() -> None:
    pair = ("ep", (0, 1))
    right = [
        comm(0, "alltoall_base_", group=pair, inputs=((5, 2),), outputs=((4, 2),), in_splits=(2, 3), out_splits=(2, 2)),
        comm(0, "alltoall_base_", group=pair, inputs=((3, 2),), outputs=((4, 2),), in_splits=(2, 1), out_splits=(3, 1)),
    ]
    assert texts([plan(rank, blocking([call]), 2) for rank, call in enumerate(right)]) == []
    wrong = [right[0], replace(right[1], out_splits=(2, 2))]
    problems = texts([plan(rank, blocking([call]), 2) for rank, call in enumerate(wrong)])
    assert len(problems) == 2
    assert problems[0] == (
        "rank 1: node 100 ('alltoall_base_'): expected 6 elements from rank 0 (node 100 ('alltoall_base_')), got room "
        "for 4, in collective 0 of group 'ep'"
    )


def test_a_rank_without_a_trace_is_missed() -> None:
    assert "got none of 3; give all traces" in texts(plans()[:3])[0]


def pair(first: list[Step], second: list[Step]) -> list[Plan]:
    return [plan(0, first, 2), plan(1, second, 2)]


BOTH = ("0", (0, 1))


def test_sends_and_receives_meet_by_tag_and_order() -> None:
    send = comm(0, "send", group=BOTH, peer=1, tag=7)
    assert texts(pair(blocking([send]), blocking([comm(0, "recv_", group=BOTH, peer=0, tag=7)]))) == []
    lonely = texts(pair(blocking([send]), blocking([comm(0, "recv_", group=BOTH, peer=0, tag=8)])))
    assert lonely == [
        "rank 0: node 100 ('send'): expected receive 0 with tag 7 on rank 1, got none",
        "rank 1: node 100 ('recv_'): expected send 0 with tag 8 on rank 0, got none",
    ]
    (odd,) = texts(pair(blocking([send]), blocking([comm(0, "recv_", group=BOTH, peer=0, tag=7, count=9)])))
    assert odd == (
        "rank 1: node 100 ('recv_'): expected 8 float32 as sent by rank 0 (node 100 ('send')), got 9 float32, in "
        "receive 0 with tag 7"
    )


def test_a_receive_from_anybody_takes_what_is_left() -> None:
    send = comm(0, "send", group=BOTH, peer=1, tag=7)
    anybody = comm(0, "recv_any_source_", group=BOTH, inputs=(), tag=7)
    assert texts(pair(blocking([send]), blocking([anybody]))) == []
    assert texts(pair([], blocking([anybody]))) == [
        "rank 1: node 100 ('recv_any_source_'): expected a send to rank 1 with tag 7, got none"
    ]


def test_two_ranks_that_both_receive_first_are_a_deadlock() -> None:
    steps = {
        rank: blocking([comm(0, "recv_", group=BOTH, peer=1 - rank), comm(1, "send", group=BOTH, peer=1 - rank)])
        for rank in (0, 1)
    }
    assert texts(pair(steps[0], steps[1])) == [
        "rank 0: node 100 ('recv_'): deadlock: waits for rank 1 in recv_ number 0 from rank 1 with tag 0, which waits "
        "at node 100 ('recv_')",
        "rank 1: node 100 ('recv_'): deadlock: waits for rank 0 in recv_ number 0 from rank 0 with tag 0, which waits "
        "at node 100 ('recv_')",
    ]


def test_two_ranks_that_both_send_first_and_wait_are_a_deadlock_unless_the_wait_is_a_guess() -> None:
    def steps(rank: int, *, assumed: bool) -> list[Step]:
        send = comm(0, "send", group=BOTH, peer=1 - rank, asynchronous=True, wait_assumed=assumed)
        take = comm(1, "recv_", group=BOTH, peer=1 - rank)
        return [Communicate(send, (), ()), Wait(0), Communicate(take, (), ()), Wait(1)]

    assert len(texts(pair(steps(0, assumed=False), steps(1, assumed=False)))) == 2
    assert texts(pair(steps(0, assumed=True), steps(1, assumed=True))) == []


def test_asynchronous_calls_in_a_ring_end() -> None:
    def steps(rank: int) -> list[Step]:
        send = comm(0, "send", peer=(rank + 1) % 4, asynchronous=True)
        take = comm(1, "recv_", peer=(rank - 1) % 4, asynchronous=True)
        return [Communicate(send, (), ()), Communicate(take, (), ()), Wait(0), Wait(1)]

    assert texts([plan(rank, steps(rank)) for rank in range(4)]) == []


def test_groups_entered_in_another_order_are_a_deadlock() -> None:
    first, second = ("a", (0, 1)), ("b", (0, 1))
    forth = blocking([comm(0, "barrier", group=first), comm(1, "barrier", group=second)])
    back = blocking([comm(1, "barrier", group=second), comm(0, "barrier", group=first)])
    found = texts(pair(forth, back))
    assert found[0].startswith(
        "rank 0: node 100 ('barrier'): deadlock: waits for rank 1 in barrier number 0 of group 'a'"
    )
    assert len(found) == 2


def test_the_first_problem_ends_the_replay() -> None:
    with pytest.raises(ReplayError, match=r"^out: rank 2: expected barrier .*$"):
        refuse_problems(check_plans(plans(lambda own: own.pop())), str(Path("out")))
    refuse_problems((), "out")
