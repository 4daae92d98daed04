"""Small plans for tests: communications of a few ranks, written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chakra_et.replay.communications.call import REDUCING, ROOTED, CommCall
from chakra_et.replay.plan.steps import Communicate, Iteration, Plan, Step, Wait

WORLD = ("0", (0, 1, 2, 3))


def comm(number: int, kind: str, group: tuple[str, tuple[int, ...]] = WORLD, count: int = 8, **more: Any) -> CommCall:
    """Return a call with flat tensors; `more` replaces what `kind` and `count` give."""
    members = len(group[1])
    given, taken = {
        "allgather_": ([count], [count] * members),
        "_allgather_base_": ([count], [count * members]),
        "reduce_scatter_": ([count] * members, [count]),
        "_reduce_scatter_base_": ([count * members], [count]),
        "gather_": ([count], [count] * members),
        "scatter_": ([count] * members, [count]),
        "alltoall_": ([count] * members, [count] * members),
        "alltoall_base_": ([count * members], [count * members]),
        "barrier": ([], []),
        "send": ([count], []),
        "recv_": ([], [count]),
    }.get(kind, ([count], [count]))
    known: dict[str, Any] = {
        "inputs": tuple((size,) for size in given),
        "outputs": tuple((size,) for size in taken),
        "dtype": "float32",
        "reduce_op": "sum" if kind in REDUCING else "",
        "root": group[1][0] if kind in ROOTED else None,
        "comm_id": None,
        **more,
    }
    return CommCall(number=number, kind=kind, group=group[0], ranks=group[1], node=100 + number, row=number,
                    comm_row=number, **known)  # fmt: skip


def plan(rank: int, steps: Sequence[Step], world_size: int = 4) -> Plan:
    """Return a plan of one iteration."""
    return Plan(rank, world_size, tuple(steps), (Iteration(None, 0, len(steps)),), (), ())


def blocking(calls: Sequence[CommCall]) -> list[Step]:
    """Return each call with its wait right behind it; of asynchronous ones at the end."""
    steps = [step for call in calls for step in (Communicate(call, (), ()), Wait(call.number))]
    late = {call.number for call in calls if call.asynchronous}
    return sorted(steps, key=lambda step: isinstance(step, Wait) and step.number in late)
