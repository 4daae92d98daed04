"""The tensors that are there before the first step."""

import pytest

from chakra_et.replay.plan.steps import Iteration, OpCall, Plan, Slot, Storage, TensorSlot

torch = pytest.importorskip("torch")

from chakra_et.replay.backends.values import Values  # noqa: E402

SQRT = "aten::sqrt(Tensor self) -> Tensor"
MUL = "aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)"


def plan(tensors, *steps):
    sizes: dict[int, int] = {}
    for one in tensors:
        last = sum((size - 1) * step for size, step in zip(one.shape, one.strides, strict=True))
        extent = (one.offset + last + 1) * getattr(torch, one.dtype).itemsize
        sizes[one.storage] = max(sizes.get(one.storage, 0), extent)
    storages = tuple(Storage(sizes[place], "cpu", -1, 0) for place in sorted(sizes))
    return Plan(0, 1, tuple(steps), (Iteration(None, 0, len(steps)),), tuple(tensors), storages)


def slot(storage, shape, dtype="float32", *, offset=0, strides=None, low=None, high=None):
    steps = strides or tuple(torch.empty(shape, device="meta").stride())
    return TensorSlot(storage, offset, shape, steps, dtype, "cuda:0", -1, 0, low, high)


def made(whole, seed=0):
    values, slots = Values(whole, "cpu", seed), {}
    values.prepare(slots)
    return values, slots


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "complex64"])
def test_floating_point_is_tame(dtype):
    _, slots = made(plan([slot(0, (64, 9), dtype)]))
    assert (slots[0].shape, slots[0].dtype) == ((64, 9), getattr(torch, dtype))
    values = torch.view_as_real(slots[0]) if dtype == "complex64" else slots[0].float()
    assert float(values.abs().max()) <= 0.11
    assert float(values.min()) < 0 < float(values.max())


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_integers_lie_in_their_range(dtype):
    _, slots = made(plan([slot(0, (500,), dtype, low=3, high=9), slot(1, (500,), dtype)]))
    assert sorted(set(slots[0].tolist())) == list(range(3, 10))
    assert set(slots[1].tolist()) == {0, 1}


def test_flags():
    _, slots = made(plan([slot(0, (100,), "bool")]))
    assert set(slots[0].tolist()) == {False, True}


def test_single_numbers_and_what_has_a_root_are_positive():
    tensors = [slot(0, ()), slot(1, (50,)), slot(2, (50,))]
    step = OpCall(1, "aten::sqrt", SQRT, (Slot(1),), (None,))
    _, slots = made(plan(tensors, step))
    assert 0.5 <= float(slots[0]) <= 1
    assert float(slots[1].min()) > 0
    assert float(slots[2].min()) < 0


def test_views_share_their_storage_where_they_lay():
    whole = plan([slot(0, (4, 6)), slot(0, (6, 4), strides=(1, 6)), slot(0, (3,), offset=10)])
    _, slots = made(whole)
    assert torch.equal(slots[1], slots[0].t())
    assert slots[2].data_ptr() == slots[0].data_ptr() + 40
    assert slots[0].untyped_storage().nbytes() == 96


def test_large_tensors_are_filled_to_the_end():
    _, slots = made(plan([slot(0, (2_500_001,))]))
    assert bool((slots[0] != 0).float().mean() > 0.99)
    assert float(slots[0][-1000:].abs().max()) <= 0.1


def test_seeds():
    whole = plan([slot(0, (64,)), slot(1, (64,))])
    (_, one), (_, again), (_, other) = made(whole), made(whole), made(whole, seed=1)
    assert torch.equal(one[0], again[0])
    assert not torch.equal(one[0], other[0])
    assert not torch.equal(one[0], one[1])


def test_what_a_pass_wrote_to_gets_its_values_back():
    step = OpCall(1, "aten::mul_", MUL, (Slot(0), Slot(1)), (None,))
    values, slots = made(plan([slot(0, (8,)), slot(1, (8,))], step))
    before = [slots[0].clone(), slots[1].clone()]
    slots[0].zero_()
    slots[1].zero_()
    values.refill()
    assert torch.equal(slots[0], before[0])
    # Nothing writes to the other one, so nobody gives it its values back.
    assert float(slots[1].abs().max()) == 0


def test_empty_tensors():
    _, slots = made(plan([TensorSlot(0, 0, (0, 4), (4, 1), "float32", "cpu", -1, 0)]))
    assert slots[0].shape == (0, 4)


def test_stand_ins_have_a_storage_of_their_own():
    values, slots = made(plan([slot(0, (8,))]))
    stand_in = values.stand_in(0)
    assert stand_in.shape == (8,)
    assert stand_in.data_ptr() != slots[0].data_ptr()
