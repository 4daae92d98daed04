"""Notes on communications: every call, its group, what it reduces, and who waits for it; nothing stays behind."""

import gzip
import json

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from chakra_et.capture.torch import record  # noqa: E402

COMM, WAIT, GROUPS = "## chakra:comm ##", "## chakra:wait ##", "## process_group:init ##"


@pytest.fixture
def job(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def captured(folder):
    """Return the call's name, its note, and which notes are waited for; the groups by name."""
    with gzip.open(folder / "host.0.json.gz") as stream:
        nodes = sorted(json.load(stream)["nodes"], key=lambda node: node["id"])

    def told(wanted):
        """The call that the node's thread entered last, and what the node says."""
        last, found = {}, []
        for node in nodes:
            thread = next(attribute["value"] for attribute in node["attrs"] if attribute["name"] == "tid")
            if node["name"].startswith("c10d::"):
                last[thread] = node["name"]
            elif node["name"] == wanted:
                found.append((last.get(thread), json.loads(node["inputs"]["values"][0])))
        return found

    groups = {group["pg_name"]: group for _, record in told(GROUPS) for group in record}
    return told(COMM), [note["id"] for _, note in told(WAIT)], groups


def test_calls_from_python(tmp_path, job):
    x = torch.ones(4)
    # Newer versions give it another name.
    reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    with record(tmp_path / "out"):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        work = dist.all_reduce(x, async_op=True)
        dist.barrier()
        work.wait()
        dist.all_gather([torch.empty(4)], x)
        reduce_scatter(torch.empty(4), x, op=dist.ReduceOp.PRODUCT)
    calls, waits, groups = captured(tmp_path / "out")
    assert [name for name, _ in calls] == [
        "c10d::allreduce_", "c10d::allreduce_", "c10d::barrier", "c10d::allgather_", "c10d::_reduce_scatter_base_",
    ]  # fmt: skip
    assert [note["id"] for _, note in calls] == [0, 1, 2, 3, 4]
    # Older versions don't tell.
    is_async = [False, True, False, False, False]
    assert [note.get("reduce_op") for _, note in calls] == ["max", "sum", None, None, "product"]
    assert [note.get("async", known) for (_, note), known in zip(calls, is_async, strict=True)] == is_async
    assert {note["pg"] for _, note in calls} == set(groups) == {"0"}
    assert groups["0"]["ranks"] == [0]
    assert waits == [0, 2, 1, 3, 4]


def test_functional_collectives_and_their_waits(tmp_path, job):
    from torch.distributed import _functional_collectives as functional

    x = torch.ones(4)
    all_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
    with record(tmp_path / "out"):
        first = functional.all_reduce(x, "sum", dist.group.WORLD)
        second = all_gather(x, 0, dist.group.WORLD)
        _ = second + 1
        _ = first + 1
    calls, waits, _ = captured(tmp_path / "out")
    assert [name for name, _ in calls] == ["c10d::allreduce_", "c10d::allgather_into_tensor_coalesced_"]
    # In PyTorch 2.3 these waits can't be stood in front of.
    assert waits == ([1, 0] if hasattr(torch.ops.aten.add.Tensor, "redispatch") else [])


def test_calls_of_ddp_and_groups_made_late(tmp_path, job):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    with record(tmp_path / "out"):
        group = dist.new_group([0])
        model(torch.ones(2, 4)).sum().backward()
        dist.broadcast(torch.ones(2), 0, group=group)
    calls, _, groups = captured(tmp_path / "out")
    assert [(name, note["pg"]) for name, note in calls] == [("c10d::allreduce_", "0"), ("c10d::broadcast_", "1")]
    assert sorted(groups) == ["0", "1"]


def test_nothing_stays_behind(tmp_path, job):
    before = {name: vars(dist.ProcessGroup)[name] for name in ("allreduce", "reduce")}
    wait = vars(dist.Work)["wait"]
    with record(tmp_path / "out"):
        assert vars(dist.Work)["wait"] is not wait
        dist.all_reduce(torch.ones(1))
    assert {name: vars(dist.ProcessGroup)[name] for name in before} == before
    assert vars(dist.Work)["wait"] is wait
    for name in ("c10d::allreduce_", "_c10d_functional::wait_tensor"):
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(name, "BackendSelect")
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [1, 1]


def test_a_job_that_begins_inside_the_window(tmp_path):
    with record(tmp_path / "out"):
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()
    calls, waits, groups = captured(tmp_path / "out")
    assert ([note["pg"] for _, note in calls], waits, sorted(groups)) == (["0"], [0], ["0"])


def test_without_a_way_to_pass_calls_on_there_are_no_notes(tmp_path, job, monkeypatch, capfd):
    from chakra_et.capture import notes

    def fails(operator, arguments):
        raise AttributeError("no redispatch")

    monkeypatch.setattr(notes, "_pass_on", fails)
    with record(tmp_path / "out"):
        dist.all_reduce(torch.ones(3))
    assert captured(tmp_path / "out")[0] == []
    assert "communications are recorded without their groups" in capfd.readouterr().err


def test_calls_without_tensors_fail_as_they_do_without_a_capture(tmp_path, job):
    def failure():
        with pytest.raises(RuntimeError) as told:
            dist.group.WORLD.allreduce([], dist.AllreduceOptions())
        # What follows is PyTorch's list of kernels.
        return str(told.value).partition(", but ")[0]

    plain = failure()
    with record(tmp_path / "out"):
        inside = failure()
    # PyTorch 2.3 has its backend say so.
    assert inside in (plain, "ProcessGroupGloo::allreduce: requires non-empty tensor list")
