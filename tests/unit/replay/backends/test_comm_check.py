"""What communications must give, against communications played through in one process."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from chakra_et.replay.backends.comm_buffers import Buffers  # noqa: E402
from chakra_et.replay.backends.comm_check import expected_values, fill_inputs, first_difference  # noqa: E402
from chakra_et.replay.backends.comm_ops import reduce_op_of, transportable  # noqa: E402
from chakra_et.replay.communications.call import CommCall  # noqa: E402
from tests.unit.replay.plans import comm  # noqa: E402

GROUP = ("g", (4, 7, 9))


def calls(kind: str, **more: object) -> list[CommCall]:
    made = [comm(0, kind, group=GROUP, count=5, **more) for _ in GROUP[1]]
    if kind == "gather_":
        return [replace(made[0], outputs=((5,),) * 3), *(replace(one, outputs=()) for one in made[1:])]
    if kind == "scatter_":
        return [replace(made[0], inputs=((5,),) * 3), *(replace(one, inputs=()) for one in made[1:])]
    return made


def filled(own: list[CommCall], turn: int = 3, op: str = "") -> list[list[torch.Tensor]]:
    given = [[torch.zeros(shape) for shape in call.inputs] for call in own]
    for place, call in enumerate(own):
        fill_inputs(call, given[place], place=place, turn=turn, op=op)
    return given


def expected(call: CommCall, place: int, op: str = "") -> list[torch.Tensor]:
    outputs = [torch.zeros(shape) for shape in call.outputs]
    return [values.float() for _, values in expected_values(call, outputs, place=place, turn=3, op=op)]


@pytest.mark.parametrize("op", ["sum", "avg", "product", "min", "max"])
def test_reductions(op: str) -> None:
    own = calls("allreduce_")
    stacked = torch.stack([part[0] for part in filled(own, op=op)])
    by_torch = {"sum": stacked.sum(0), "avg": stacked.mean(0), "product": stacked.prod(0), "min": stacked.amin(0),
                "max": stacked.amax(0)}[op]  # fmt: skip
    for place, call in enumerate(own):
        assert torch.allclose(expected(call, place, op)[0], by_torch)


def test_parts_go_where_they_must() -> None:
    given = filled(calls("reduce_scatter_"), op="sum")
    assert torch.equal(expected(calls("reduce_scatter_")[1], 1, "sum")[0], sum(part[1] for part in given))
    given = filled(calls("_reduce_scatter_base_"), op="sum")
    assert torch.equal(expected(calls("_reduce_scatter_base_")[2], 2, "sum")[0], sum(part[0][10:] for part in given))
    given = filled(calls("alltoall_"))
    assert [part.tolist() for part in expected(calls("alltoall_")[1], 1)] == [part[1].tolist() for part in given]
    given = filled(calls("_allgather_base_"))
    assert torch.equal(expected(calls("_allgather_base_")[0], 0)[0], torch.cat([part[0] for part in given]))
    own = calls("gather_")
    assert [part.tolist() for part in expected(own[0], 0)] == [part[0].tolist() for part in filled(own)]
    own = calls("scatter_")
    assert torch.equal(expected(own[2], 2)[0], filled(own)[0][2])
    assert expected(calls("reduce_")[1], 1, "sum") == []


def test_uneven_all_to_all_arrives_by_sender() -> None:
    rows = [[1, 2, 0], [3, 0, 1], [2, 2, 2]]
    own = [
        comm(0, "alltoall_base_", group=GROUP, in_splits=tuple(rows[place]), inputs=((sum(rows[place]), 2),),
             out_splits=tuple(line[place] for line in rows), outputs=((sum(line[place] for line in rows), 2),))
        for place in range(3)
    ]  # fmt: skip
    given = [part[0].split(rows[place]) for place, part in enumerate(filled(own))]
    for place in range(3):
        arrived = torch.cat([parts[place].reshape(-1) for parts in given])
        assert torch.equal(expected(own[place], place)[0], arrived)


def test_calls_of_a_group_differ_from_each_other() -> None:
    own = calls("broadcast_")
    assert not torch.equal(filled(own, turn=3)[0][0], filled(own, turn=4)[0][0])
    assert not torch.equal(filled(own)[0][0], filled(own)[1][0])


def test_the_first_difference_is_told() -> None:
    assert first_difference(torch.tensor([[1.0, 2.0]]), torch.tensor([1, 2]), 2) == ""
    text = first_difference(torch.tensor([1, 5, 6]), torch.tensor([1, 2, 3]), 2)
    assert text == "expected 2 at element 1, got 5 (2 elements differ)"
    assert first_difference(torch.tensor([12.06], dtype=torch.bfloat16), torch.tensor([12]), 2) == ""
    assert first_difference(torch.tensor([True]), torch.tensor([4]), 2) == ""


def test_gloo_is_given_what_it_knows() -> None:
    assert [reduce_op_of("avg", averages=has) for has in (False, True)] == ["sum", "avg"]
    assert [reduce_op_of(name, averages=True) for name in ("premul_sum", "max")] == ["sum", "max"]
    short = torch.ones(3, 2, dtype=torch.int16)
    assert transportable(short, backend="gloo", reduces=False).shape == (3, 2, 2)
    assert transportable(short, backend="gloo", reduces=True) is short
    assert transportable(short, backend="nccl", reduces=False) is short


def test_calls_in_flight_share_no_tensor_and_later_ones_do() -> None:
    buffers = Buffers(torch.device("cpu"), 0)
    first, _, held = buffers.lend(comm(0, "allreduce_", group=GROUP))
    second, same, _ = buffers.lend(comm(1, "allreduce_", group=GROUP))
    assert second is same
    assert first[0].data_ptr() != second[0].data_ptr()
    buffers.take_back(held)
    third, taken, _ = buffers.lend(comm(2, "_allgather_base_", group=GROUP))
    assert third[0].data_ptr() == first[0].data_ptr()
    assert taken[0].shape == (24,)


def test_memory_is_that_of_the_most_in_flight_whatever_the_sizes() -> None:
    buffers, seen = Buffers(torch.device("cpu"), 0), set()
    for number in range(100):
        given, taken, held = buffers.lend(comm(number, "alltoall_base_", group=GROUP, count=1000 - number % 7))
        seen |= {one.data_ptr() for one in (*given, *taken)}
        buffers.take_back(held)
    assert len(seen) <= 4


def test_sums_of_small_integers_wrap() -> None:
    wide = ("wide", tuple(range(48)))
    call = comm(0, "allreduce_", group=wide, dtype="int8")
    total = torch.zeros(8, dtype=torch.int8)
    for place in range(48):
        mine = torch.empty(8, dtype=torch.int8)
        fill_inputs(call, [mine], place=place, turn=0, op="sum")
        total += mine
    ((_, expected),) = expected_values(call, [total], place=0, turn=0, op="sum")
    assert int(expected.max()) > 127
    assert first_difference(total, expected, 48) == ""
