"""A rank that waits too long says who is missing."""

import threading
import time

from chakra_et.replay.backends.comm_watch import Watch
from chakra_et.replay.communications.call import CommCall
from tests.unit.replay.plans import comm


class Store:
    """What torch's store offers, in one process."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


def watched(count: int, timeout_s: float = 0.4) -> tuple[list[Watch], list[str], threading.Event]:
    store, told, came = Store(), [], threading.Event()

    def report(text: str) -> None:
        told.append(text)
        came.set()

    watches = [Watch(store, rank, timeout_s, report) for rank in range(count)]
    for watch in watches:
        watch.start()
    return watches, told, came


def enter(watch: Watch, call: CommCall) -> int:
    turn = watch.called(call)
    watch.waits(call, turn)
    return turn


def test_the_missing_rank_is_named_with_where_it_is() -> None:
    watches, told, came = watched(4)
    call, earlier = comm(7, "allreduce_"), comm(6, "broadcast_")
    for watch in watches:
        enter(watch, earlier)
        watch.goes_on()
    for watch in (watches[0], watches[1], watches[3]):
        enter(watch, call)
    assert came.wait(10)
    assert told[0].endswith(
        "node 107 ('allreduce_'): number 1 of group '0': 3 of 4 ranks there after 0.4 s; missing: rank 2 (after node "
        "106 ('broadcast_'))"
    )


def test_a_missing_sender_is_named_with_what_it_waits_for() -> None:
    watches, told, came = watched(2)
    enter(watches[0], comm(0, "barrier", group=("tp", (0, 1))))
    time.sleep(0.3)
    enter(watches[1], comm(3, "recv_", group=("tp", (0, 1)), peer=0, tag=5))
    assert came.wait(10)
    assert told[0].startswith("rank 0: node 100 ('barrier'): number 0 of group 'tp': 1 of 2 ranks there")
    assert "missing: rank 1 (waits at node 103 ('recv_'))" in told[0]


def test_a_rank_that_is_done_says_so() -> None:
    watches, told, came = watched(2)
    watches[1].stop()
    enter(watches[0], comm(0, "send", group=("tp", (0, 1)), peer=1, tag=5))
    assert came.wait(10)
    assert told[0] == (
        "rank 0: node 100 ('send'): number 0 to rank 1 with tag 5: 1 of 2 ranks there after 0.4 s; missing: rank 1 (at "
        "its end)"
    )


def test_ranks_that_go_on_are_left_alone() -> None:
    watches, told, _ = watched(2, timeout_s=0.3)
    for _ in range(5):
        for watch in watches:
            enter(watch, comm(0, "barrier", group=("tp", (0, 1))))
        time.sleep(0.1)
        for watch in watches:
            watch.goes_on()
    time.sleep(0.5)
    for watch in watches:
        watch.stop()
    assert told == []
