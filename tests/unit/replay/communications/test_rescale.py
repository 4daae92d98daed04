"""A job on fewer ranks still meets, and loses no rows; ranks without a trace do as others do."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.errors import ReplayError
from chakra_et.ir import ProcessGroup
from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.find import Communications
from chakra_et.replay.communications.rescale import Rescaled, rescale
from chakra_et.replay.plan.check import check_plans
from chakra_et.replay.plan.steps import Communicate, Step, Wait
from tests.unit.replay.plans import comm, plan

KINDS = ("allreduce_", "broadcast_", "reduce_", "allgather_", "_allgather_base_", "reduce_scatter_", "alltoall_",
         "_reduce_scatter_base_", "gather_", "scatter_", "alltoall_base_", "barrier")  # fmt: skip


def grid(rank: int, tensor: int, world: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return the groups of a rank in a grid: the world, tensor parallel (neighbors) and data parallel (strided)."""
    block = rank // tensor * tensor
    return [
        ("0", tuple(range(world))),
        ("tp", tuple(range(block, block + tensor))),
        ("dp", tuple(range(rank % tensor, world, tensor))),
    ]


def job(world: int, tensor: int, seed: int) -> dict[int, Communications]:
    """Return communications of all ranks that meet: collectives on all groups, uneven all-to-alls, a ring."""
    random_ = random.Random(seed)
    order = [(random_.choice(KINDS), random_.randrange(3), random_.randint(1, 9)) for _ in range(8)]
    rows = [[[random_.randint(0, 5) for _ in range(world)] for _ in range(world)] for _ in range(2)]
    found = {}
    for rank in range(world):
        calls: list[CommCall] = []
        for kind, which, count in order:
            group = grid(rank, tensor, world)[which]
            one = comm(len(calls), kind, group=group, count=count)
            if kind in ("gather_", "scatter_") and rank != one.root:
                one = replace(one, outputs=()) if kind == "gather_" else replace(one, inputs=())
            calls.append(one)
        for matrix in rows:
            sent, taken = tuple(matrix[rank]), tuple(line[rank] for line in matrix)
            calls.append(comm(len(calls), "alltoall_base_", group=("0", tuple(range(world))), in_splits=sent,
                              out_splits=taken, inputs=((sum(sent), 3),), outputs=((sum(taken), 3),)))  # fmt: skip
        ring = ("0", tuple(range(world)))
        calls.append(comm(len(calls), "send", group=ring, peer=(rank + 1) % world, tag=2, asynchronous=True))
        calls.append(comm(len(calls), "recv_", group=ring, peer=(rank - 1) % world, tag=2, asynchronous=True))
        found[rank] = Communications(tuple(calls), ())
    return found


def problems(found: Rescaled) -> list[str]:
    plans = []
    for rank, one in found.communications.items():
        steps: list[Step] = []
        for call in one.calls:
            steps += (
                [Communicate(call, (), ())] if call.asynchronous else [Communicate(call, (), ()), Wait(call.number)]
            )
        steps += [Wait(call.number) for call in one.calls if call.asynchronous]
        plans.append(plan(rank, steps, len(found.communications)))
    return [str(problem) for problem in check_plans(plans)]


def scaled(world: int, tensor: int, size: int, sizes: str, seed: int) -> tuple[dict[int, Communications], Rescaled]:
    made = job(world, tensor, seed)
    return made, rescale(made, {}, recorded=world, world_size=size, sizes=sizes)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(4, 2), (6, 2), (8, 2), (8, 4), (6, 3)]), st.data(), st.sampled_from(["keep", "scale"]),
    st.integers(0, 1000),
)  # fmt: skip
def test_fewer_ranks_still_meet(shape: tuple[int, int], data: st.DataObject, sizes: str, seed: int) -> None:
    world, tensor = shape
    size = data.draw(st.integers(2, world))
    made, found = scaled(world, tensor, size, sizes, seed)
    assert problems(found) == []
    assert list(found.communications) == list(range(size))
    for rank, one in found.communications.items():
        assert all(max(call.ranks) < size and rank in call.ranks for call in one.calls)
        # Nothing is lost: a ring closes.
        assert len(one.calls) + len(one.skipped) == len(made[rank].calls)
        if size > 2:
            assert one.skipped == ()


def rows_of(calls: Sequence[CommCall]) -> list[int]:
    return [call.inputs[0][0] for call in calls if call.in_splits]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([(4, 2), (8, 4), (6, 3)]), st.data(), st.integers(0, 1000))
def test_no_row_of_an_all_to_all_is_lost(shape: tuple[int, int], data: st.DataObject, seed: int) -> None:
    world, tensor = shape
    size = data.draw(st.integers(1, world - 1))
    made, kept = scaled(world, tensor, size, "keep", seed)
    for rank, one in kept.communications.items():
        recorded = [call for call in made[rank].calls if call.kind == "alltoall_base_"]
        own = [call for call in one.calls if call.kind == "alltoall_base_"]
        assert [call.inputs[0][0] for call in own][-2:] == [call.inputs[0][0] for call in recorded][-2:]
    _, whole = scaled(world, tensor, size, "scale", seed)
    total = [sum(rows) for rows in zip(*(rows_of(one.calls)[-2:] for one in made.values()), strict=True)]
    after = [
        sum(rows) for rows in zip(*(rows_of(one.calls)[-2:] for one in whole.communications.values()), strict=True)
    ]
    assert after == total


def test_sizes_are_kept_or_scaled() -> None:
    made = {rank: Communications((comm(0, "_allgather_base_", count=6), comm(1, "_reduce_scatter_base_", count=6),
                                  comm(2, "allreduce_", count=6)), ()) for rank in range(4)}  # fmt: skip
    keep = rescale(made, {}, recorded=4, world_size=2).communications[0].calls
    assert [(call.inputs, call.outputs) for call in keep] == [
        (((6,),), ((12,),)),
        (((12,),), ((6,),)),
        (((6,),), ((6,),)),
    ]
    scale = rescale(made, {}, recorded=4, world_size=2, sizes="scale").communications[0].calls
    assert [(call.inputs, call.outputs) for call in scale] == [
        (((12,),), ((24,),)), (((24,),), ((12,),)), (((6,),), ((6,),)),
    ]  # fmt: skip


def test_tensor_parallel_groups_stay_whole_where_they_fit() -> None:
    _, found = scaled(8, 2, 4, "keep", 1)
    groups = {call.group: call.ranks for call in found.communications[3].calls}
    assert groups.get("tp", (2, 3)) == (2, 3)
    assert groups.get("dp", (1, 3)) == (1, 3)


def test_a_pipeline_gets_shorter_on_both_ends() -> None:
    def stage(rank: int) -> Communications:
        calls = []
        for kind, peer in (("recv_", rank - 1), ("send", rank + 1)):
            if 0 <= peer < 4:
                calls.append(comm(len(calls), kind, peer=peer, asynchronous=True))
        return Communications(tuple(calls), ())

    found = rescale({rank: stage(rank) for rank in range(4)}, {}, recorded=4, world_size=2)
    assert [[call.kind for call in one.calls] for one in found.communications.values()] == [["send"], ["recv_"]]
    (left_out,) = found.communications[1].skipped
    assert left_out.reason == "its peer, rank 2, is not in the replay"
    assert problems(found) == []


def test_one_trace_stands_for_all_ranks() -> None:
    world = 8
    calls = [comm(number, kind, group=group, count=4) for number, (kind, group) in enumerate(
        (kind, group) for kind in ("allreduce_", "gather_", "broadcast_") for group in grid(0, 2, world))]  # fmt: skip
    calls.append(comm(9, "alltoall_base_", group=("0", tuple(range(world))), in_splits=(1, 2, 3, 4, 0, 1, 2, 3),
                      out_splits=(1,) * 8, inputs=((16, 5),), outputs=((8, 5),)))  # fmt: skip
    calls.append(comm(10, "send", group=grid(0, 2, world)[2], peer=2, asynchronous=True))
    calls.append(comm(11, "recv_", group=grid(0, 2, world)[2], peer=6, asynchronous=True))
    one = {0: Communications(tuple(calls), ())}
    found = rescale(one, {0: [ProcessGroup("0", tuple(range(world)), world)]}, recorded=world, world_size=world)
    assert problems(found) == []
    assert set(found.sources.values()) == {0}
    last = {call.group: call.ranks for call in found.communications[7].calls}
    assert last == {"0": tuple(range(8)), "tp": (6, 7), "dp": (1, 3, 5, 7)}
    assert [call.peer for call in found.communications[7].calls[-2:]] == [1, 5]
    assert problems(rescale(one, {0: []}, recorded=world, world_size=4)) == []


def test_groups_that_are_not_evenly_spaced_need_their_traces() -> None:
    odd = {0: Communications((comm(0, "barrier", group=("x", (0, 1, 4))),), ())}
    with pytest.raises(ReplayError, match=r"^rank 2: expected a trace of its own, or group 'x' to be evenly spaced"):
        rescale(odd, {0: []}, recorded=5, world_size=5)
    with pytest.raises(ReplayError, match=r"^--world-size: expected 1 to 5 ranks, as many as were recorded, got 6$"):
        rescale(odd, {0: []}, recorded=5, world_size=6)


def test_all_to_alls_of_lists_fit_ranks_without_a_trace() -> None:
    own = comm(0, "alltoall_", ("0", (0, 1)), inputs=((1,), (2,)), outputs=((1,), (3,)))
    groups = {0: (ProcessGroup("0", (0, 1), 2),)}
    made = rescale({0: Communications((own,), ())}, groups, recorded=2, world_size=2).communications
    assert [one.calls[0].outputs for one in made.values()] == [((1,), (1,)), ((2,), (2,))]


def test_rows_are_whole_numbers_whatever_the_members() -> None:
    ranks = tuple(range(7))
    calls = {rank: Communications((comm(0, "_allgather_base_", ("0", ranks), 27),), ()) for rank in ranks}
    groups = {rank: (ProcessGroup("0", ranks, 7),) for rank in ranks}
    made = rescale(calls, groups, recorded=7, world_size=3, sizes="scale").communications
    assert made[0].calls[0].inputs == ((63,),)
