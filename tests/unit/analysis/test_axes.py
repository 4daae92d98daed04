"""What process groups are for, where their ranks are, and how bandwidths compare."""

import pytest

from chakra_et.analysis.axes import axis_of, bus_factor, full_bytes, scope_of
from chakra_et.ir import ProcessGroup


@pytest.mark.parametrize(
    ("description", "axis"),
    [
        # Megatron-LM
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("EMBEDDING_GROUP", "pp"),
        ("DATA_PARALLEL_GROUP", "dp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        # DeviceMesh, FSDP, DeepSpeed and others
        ("mesh_tp", "tp"),
        ("mesh_dp", "dp"),
        ("mesh_dp_shard", "dp"),
        ("mesh_ep", "ep"),
        ("mesh_cp", "cp"),
        ("mesh_pp", "pp"),
        ("dp", "dp"),
        ("tp:0", "tp"),
        ("fsdp", "dp"),
        ("data parallel", "dp"),
        ("default_pg", "world"),
        # What PyTorch writes where the user says nothing, and words that only look alike
        ("undefined", None),
        ("", None),
        ("step", None),
        ("stamp", None),
        ("appendix", None),
    ],
)
def test_axes(description, axis):
    assert axis_of(ProcessGroup("12", (0, 1), 2, description)) == axis


def test_the_name_tells_where_the_description_does_not():
    assert axis_of(ProcessGroup("mesh_tp", (0, 1), 2, "undefined")) == "tp"
    assert axis_of(None) is None


def test_scope():
    assert scope_of((8, 15), 8) == "intra"
    assert scope_of((7, 8), 8) == "inter"
    assert scope_of((3,), 8) == "intra"
    assert scope_of((), 8) is None
    assert scope_of((0, 1), None) is None


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 2 * 3 / 4),
        ("all_gather", 3 / 4),
        ("reduce_scatter", 3 / 4),
        ("reduce_scatter_block", 3 / 4),
        ("all_to_all", 3 / 4),
        ("gather", 3 / 4),
        ("scatter", 3 / 4),
        ("broadcast", 1),
        ("reduce", 1),
        ("send", 1),
        ("unknown", 1),
    ],
)
def test_bus_factors(kind, factor):
    assert bus_factor(kind, 4) == factor
    assert bus_factor(kind, 1) == 1


def test_bytes_of_the_whole_vector():
    """Sizes of all-gather and gather are what each rank contributes."""
    kinds = ("all_reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "send")
    assert [full_bytes(kind, 10, 4) for kind in kinds] == [10, 40, 40, 10, 10, 10, 10]
