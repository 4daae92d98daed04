"""Recorded calls bound to registered operators."""

import pytest

from chakra_et.replay.plan.steps import OpCall, Slot

torch = pytest.importorskip("torch")

from chakra_et.replay.backends.torch_ops import BoundCall, Operators  # noqa: E402

CPU = frozenset({"cpu"})
EMPTY = (
    "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor"
)


def bind(schema, *arguments, device="cpu", devices=CPU):
    name = schema.partition("(")[0].partition(".")[0]
    return Operators(device).bind(OpCall(1, name, schema, arguments, ()), devices)


def test_keyword_only_arguments_and_defaults():
    add = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    bound = bind(add, Slot(0), Slot(1), 1)
    assert (bound.arguments, bound.keywords, bound.single) == ((Slot(0), Slot(1)), {}, True)
    bound = bind(add, Slot(0), Slot(1), 2)
    assert bound.keywords == {"alpha": 2}
    assert bound.call(torch.ones(2), torch.ones(2), alpha=2).tolist() == [3, 3]


def test_positional_arguments_in_the_middle_stay():
    schema = "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
    assert bind(schema, Slot(0), (0,), False, None).arguments == (Slot(0), (0,))
    schema = "aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"
    assert bind(schema, Slot(0), None, True).arguments == (Slot(0), None, True)


def test_devices_are_moved_and_memory_is_not_pinned():
    bound = bind(EMPTY, (2, 3), 6, 0, "cuda:3", True, None)
    assert bound.keywords == {"dtype": 6, "layout": 0, "device": torch.device("cpu")}
    assert bound.call(*bound.arguments, **bound.keywords).dtype == torch.float32
    assert bind(EMPTY, (2, 3), 6, 0, "cpu", None, None, device="cuda:0").keywords["device"] == torch.device("cpu")
    assert bind(EMPTY, (2, 3), 6, 0, "cuda:3", None, None, device="cuda:0").keywords["device"].type == "cuda"


def test_several_results_and_lists():
    schema = "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"
    assert not bind(schema, Slot(0), 0, False).single
    foreach = "aten::_foreach_add.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]"
    bound = bind(foreach, (Slot(0), Slot(1)), 1.5)
    assert bound.single
    assert [one.tolist() for one in bound.call([torch.zeros(1), torch.ones(1)], 1.5)] == [[1.5], [2.5]]


def test_operators_that_open_files_are_not_called():
    schema = (
        "aten::from_file(str filename, bool? shared=None, int? size=0, *, ScalarType? dtype=None, "
        "Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
    )
    assert "takes the name of a file" in bind(schema, "/tmp/x", True, 4, None, None, None, None)


def test_a_schema_that_has_changed_since():
    # Recorded before the operator had `memory_format`, and with an argument that is gone.
    older = "aten::clone(Tensor self) -> Tensor"
    assert isinstance(bind(older, Slot(0)), BoundCall)
    gone = "aten::clone(Tensor self, *, bool fast=False) -> Tensor"
    assert bind(gone, Slot(0), True) == "the operator registered here has no argument 'fast'"
    needs = "aten::mm(Tensor self) -> Tensor"
    assert bind(needs, Slot(0)) == "the operator registered here needs an argument 'mat2' that wasn't recorded"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("mylib::secret(Tensor self) -> Tensor", "no such operator is registered here"),
        ("aten::add.Nothing(Tensor self) -> Tensor", "it has no overload 'Nothing' here"),
        ("aten::add(", "its schema can't be read by this torch"),
        ("aten::_scaled_dot_product_flash_attention(Tensor query) -> Tensor", "it has no implementation for cpu"),
    ],
)
def test_reasons(schema, reason):
    assert bind(schema, Slot(0)) == reason


def test_modules_are_imported_for_the_namespaces_they_register():
    schema = "fsdp::chunk_cat(Tensor[] tensors, int dim, int num_chunks, *, Tensor(a!) out) -> ()"
    assert isinstance(bind(schema, (Slot(0),), 0, 2, Slot(1)), BoundCall)
