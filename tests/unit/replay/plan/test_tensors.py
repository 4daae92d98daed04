"""Which tensor a number means: what was last made under it, a view of a known storage, or one that was there before."""

from chakra_et.replay.plan.arguments import Recorded
from chakra_et.replay.plan.tensors import TensorTable


def tensor(number, storage, shape=(4,), *, offset=0, dtype="float32", strides=None):
    return Recorded(number, storage, offset, shape, strides or (1,) * len(shape), dtype, 4, "cpu")


def test_what_was_never_made_is_there_before():
    table = TensorTable()
    assert table.read(tensor(1, 1)) == (0, None)
    assert table.before == [True]
    assert table.storages[0].before


def test_a_result_is_found_by_its_number():
    table = TensorTable()
    slot = table.write(tensor(1, 1), ())
    assert table.read(tensor(1, 1)) == (slot, None)
    assert table.before == [False]


def test_a_number_used_again_means_the_later_tensor():
    table = TensorTable()
    first = table.write(tensor(1, 1), ())
    second = table.write(tensor(1, 2, (8,)), ())
    assert first != second
    assert table.read(tensor(1, 2, (8,))) == (second, None)


def test_in_place_results_are_the_input():
    table = TensorTable()
    slot, _ = table.read(tensor(1, 1))
    assert table.write(tensor(1, 1), (slot,)) is None


def test_a_view_shares_its_base_storage():
    table = TensorTable()
    base, _ = table.read(tensor(1, 1, (8,)))
    view = table.write(tensor(2, 1, (4,), offset=4), (base,))
    assert table.places[view] == table.places[base]


def test_a_view_that_no_call_made_is_made_from_its_storage():
    table = TensorTable()
    made = table.write(tensor(1, 1, (8,)), ())
    slot, base = table.read(tensor(2, 1, (4,), offset=4))
    assert base == made
    assert table.places[slot] == table.places[made]
    # It is known from then on.
    assert table.read(tensor(2, 1, (4,), offset=4)) == (slot, None)


def test_views_of_what_was_there_before_need_no_step():
    table = TensorTable()
    table.read(tensor(1, 1, (4,)))
    slot, base = table.read(tensor(2, 1, (8,), offset=4))
    assert base is None
    assert table.before[slot]
    assert table.storages[table.places[slot]].size_bytes == 48


def test_what_does_not_fit_is_another_storage():
    table = TensorTable()
    made = table.write(tensor(1, 1, (4,)), ())
    slot, base = table.read(tensor(2, 1, (100,)))
    assert base is None
    assert table.places[slot] != table.places[made]


def test_another_element_type_is_another_storage():
    table = TensorTable()
    made = table.write(tensor(1, 1, (4,)), ())
    slot, base = table.read(tensor(2, 1, (4,), dtype="int64"))
    assert base is None
    assert table.places[slot] != table.places[made]


def test_strides_tell_tensors_apart():
    table = TensorTable()
    first, _ = table.read(tensor(1, 1, (2, 2), strides=(2, 1)))
    second, _ = table.read(tensor(1, 1, (2, 2), strides=(1, 2)))
    assert first != second
