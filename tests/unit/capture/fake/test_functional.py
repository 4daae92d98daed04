"""Functional collectives are recorded as what they run."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402

from chakra_et.capture.fake import record_fake  # noqa: E402
from chakra_et.conversion import convert  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning", "ignore:.*deprecated:DeprecationWarning")
SHOWN = ("name", "comm_id", "comm_type", "comm_size", "reduce_op", "comm_async")


@pytest.fixture
def nodes(tmp_path):
    """Return the nodes of a program on rank 1 of 4."""

    def run(function):
        def program():
            dist.init_process_group("nccl")
            function(dist.group.WORLD)

        [found] = record_fake(program, tmp_path / "out", world_size=4, wait=0, ranks=(1,))
        trace = convert([found.files[0]]).traces.trace(1)
        frame = trace.nodes.with_columns(trace.column(name) for name in SHOWN[1:])
        return frame.filter(~frame["name"].str.starts_with("##"))

    return run


def test_an_all_reduce_copies_first(nodes):
    def program(group):
        x = torch.ones(8)
        y = functional.all_reduce(x, "max", group)
        return y + 1

    frame = nodes(program)
    assert frame["name"].to_list() == ["aten::ones", "aten::clone", "c10d::allreduce_", "c10d::wait", "aten::add"]
    ones, clone, reduced, wait, added = frame["id"].to_list()
    assert frame.select(SHOWN).rows()[2] == ("c10d::allreduce_", 1, 0, 32, "max", True)
    assert [list(deps) for deps in frame["data_deps"]] == [[], [ones], [clone], [], [reduced]]
    assert [list(deps) for deps in frame["ctrl_deps"]][2:] == [[clone], [clone], [wait]]
    assert frame["sync_deps"].to_list()[3] == [reduced]
    assert added > wait


@pytest.mark.parametrize(
    ("call", "names", "kind", "size"),
    [
        (lambda x, g: functional.all_gather_tensor(x, 0, g), ["aten::empty", "c10d::_allgather_base_"], 2, 32),
        (lambda x, g: functional.reduce_scatter_tensor(x, "sum", 0, g), ["aten::empty", "c10d::_reduce_scatter_base_"],
         7, 32),
        (lambda x, g: functional.all_to_all_single(x, None, None, g), ["aten::empty", "c10d::alltoall_base_"], 6, 32),
        (lambda x, g: functional.broadcast(x, 2, g), ["aten::clone", "c10d::broadcast_"], 5, 32),
    ],
)  # fmt: skip
def test_the_others(nodes, call, names, kind, size):
    frame = nodes(lambda group: call(torch.ones(8), group) + 1)
    assert frame["name"].to_list() == ["aten::ones", *names, "c10d::wait", "aten::add"]
    row = frame.row(2, named=True)
    assert (row["comm_type"], row["comm_size"], row["pg_name"]) == (kind, size, "0")
    assert row["id"] in frame["data_deps"][4]


def test_coalesced_ones_are_several(nodes):
    frame = nodes(lambda group: functional.all_gather_into_tensor_coalesced([torch.ones(8), torch.ones(4)], group))
    gathers = frame.filter(frame["name"] == "c10d::_allgather_base_")
    assert gathers["comm_size"].to_list() == [32, 16]
    assert gathers["comm_id"].n_unique() == 2
