"""A thread that watches over a rank's communications: where one takes too long, it says who is missing.

Each rank counts its calls on every line (a group, or two ranks and a tag). A rank that waits too long calls the roll
through torch's store; all answer with their counts and with where they are, so that the report is right on every rank.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from chakra_et.replay.communications.call import CommCall
from chakra_et.units import format_list

__all__ = ["Watch"]

_ROLL = "chakra/roll"
_ANSWER = "chakra/answer"


class Watch:
    """Watches one rank.

    Args:
        store: Torch's store, which all ranks share.
        rank: Global rank.
        timeout_s: Longest time that a rank may wait.
        report: Called, on the watching thread, with who waits for whom.
    """

    def __init__(self, store: Any, rank: int, timeout_s: float, report: Callable[[str], None]) -> None:
        self._store, self._rank, self._timeout_s, self._report = store, rank, timeout_s, report
        self._counts: dict[str, int] = {}
        self._waiting: tuple[CommCall, int] | None = None
        self._since = 0.0
        self.place = "before its first communication"
        self._tick_s = min(max(timeout_s / 10, 0.1), 1.0)
        self._over = threading.Event()
        self._answered = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="chakra-watch")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and answer those who ask later that this rank is done."""
        self._over.set()
        self._thread.join(self._timeout_s)
        self.place = "at its end"
        self._answer()

    def called(self, call: CommCall) -> int:
        """Count a call and return how many there were on its line before."""
        line = _line(call, self._rank)
        turn = self._counts.get(line, 0)
        self._counts[line] = turn + 1
        self.place = f"after node {call.node} ('{call.kind}')"
        return turn

    def waits(self, call: CommCall, turn: int) -> None:
        """Note that the rank now waits for a call, or is busy with starting it."""
        self._since = time.monotonic()
        self._waiting = (call, turn)

    def goes_on(self) -> None:
        """Note that the rank waits no longer."""
        self._waiting = None

    def missing(self, call: CommCall, turn: int) -> str:
        """Call the roll, and say who hasn't come to a call."""
        self._store.set(_ROLL, "1")
        self._answer()
        time.sleep(2.5 * self._tick_s)
        others: Sequence[int] = call.ranks if call.is_collective else [call.peer] if call.peer is not None else []
        there, absent = 1, []
        for other in others:
            if other == self._rank:
                continue
            told = self._told(other)
            if told is not None and told["counts"].get(_line(call, self._rank), 0) > turn:
                there += 1
            else:
                absent.append(f"rank {other} ({'no answer' if told is None else told['place']})")
        total = len(call.ranks) if call.is_collective else 2
        what = f"number {turn} of group '{call.group}'"
        if not call.is_collective:
            peer = "anybody" if call.peer is None else f"rank {call.peer}"
            what = f"number {turn} {'to' if call.kind == 'send' else 'from'} {peer} with tag {call.tag}"
        missing = f"; missing: {format_list(absent)}" if absent else ""
        return (
            f"rank {self._rank}: node {call.node} ('{call.kind}'): {what}: {there} of {total} ranks there"
            f" after {self._timeout_s:g} s{missing}"
        )

    def _told(self, rank: int) -> dict[str, Any] | None:
        key = f"{_ANSWER}/{rank}"
        if not self._store.check([key]):
            return None
        told: dict[str, Any] = json.loads(self._store.get(key))
        return told

    def _answer(self) -> None:
        waiting = self._waiting
        place = f"waits at node {waiting[0].node} ('{waiting[0].kind}')" if waiting else self.place
        self._answered = True
        self._store.set(f"{_ANSWER}/{self._rank}", json.dumps({"counts": self._counts, "place": place}))

    def _run(self) -> None:
        while not self._over.wait(self._tick_s):
            waiting = self._waiting
            if waiting is not None and time.monotonic() - self._since > self._timeout_s:
                self._report(self.missing(*waiting))
                return
            if not self._answered and self._store.check([_ROLL]):
                self._answer()


def _line(call: CommCall, rank: int) -> str:
    if call.is_collective:
        return f"{call.group} {','.join(map(str, call.ranks))}"
    source, target = (rank, call.peer) if call.kind == "send" else (call.peer, rank)
    return f"{call.group} {source}>{target} {call.tag}"
