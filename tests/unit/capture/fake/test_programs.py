"""What programs do: the operators and communications that are recorded are those that an accelerator would run."""

import gzip
import json

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from chakra_et.capture.fake import record_fake  # noqa: E402


@pytest.fixture
def record(tmp_path):
    """Return the records of rank 0 of a program, each with its name and the shapes of its inputs, and the notes."""

    def run(function, **options):
        [found] = record_fake(function, tmp_path / "out", ranks=(0,), **{"wait": 0, **options})
        with gzip.open(tmp_path / "out" / "host.0.json.gz") as stream:
            nodes = json.load(stream)["nodes"]
        return [(node["name"], node["inputs"]["shapes"]) for node in nodes], found.warnings

    return run


def names(records, prefix="aten::"):
    return [name for name, _ in records if name.startswith(prefix)]


def train(model, optimizer, *inputs, steps=2):
    for _ in range(steps):
        model(*inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_whole_tensors_of_dtensors_are_not_computed(record):
    def program():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cuda", (8,))
        model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        with torch.no_grad():
            model(torch.randn(64, 256, device="cuda"))

    records, _ = record(program, world_size=8)
    products = [shapes for name, shapes in records if name in ("aten::addmm", "aten::mm")]
    assert products
    assert all(1024 not in shape for shapes in products for shape in shapes)


def test_shards_of_another_dimension_come_by_an_all_to_all(record):
    def program():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        mesh = init_device_mesh("cuda", (8,))
        moved = DTensor.from_local(torch.randn(128, 64, device="cuda"), mesh, [Shard(0)]).redistribute(mesh, [Shard(1)])
        assert moved.to_local().shape == (1024, 8)

    records, _ = record(program, world_size=8)
    assert names(records, "c10d::") == ["c10d::alltoall_base_"]


def test_converted_parameters_stay_those_of_the_optimizer(record):
    def program():
        model = nn.Linear(8, 8, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.weight.no_decay = True
        model.bfloat16()
        assert (model.weight.no_decay, model.weight.dtype) == (True, torch.bfloat16)
        train(model, optimizer, torch.randn(4, 8, device="cuda", dtype=torch.bfloat16))

    records, _ = record(program, wait=1)
    assert "aten::_foreach_add_" in names(records)


def test_devices_may_be_numbers(record):
    def program():
        model = nn.Linear(8, 8).to(0)
        assert torch.device(0).type == "cpu"
        model(torch.randn(4, 8).to(0))

    assert "aten::addmm" in names(record(program)[0])


def test_coalesced_collectives(record):
    def program():
        dist.init_process_group("nccl")
        tensors = [torch.ones(4, device="cuda"), torch.ones(8, device="cuda")]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        tensors[0].cos()

    records, _ = record(program, world_size=8)
    assert "c10d::allreduce_coalesced_" in names(records, "c10d::")
    assert "## chakra:wait ##" in names(records, "##")


def test_autocast_has_the_type_and_the_state_of_an_accelerator(record):
    def program():
        model = nn.Linear(8, 8, device="cuda")
        with torch.autocast("cuda"):
            assert torch.is_autocast_enabled()
            assert model(torch.randn(4, 8, device="cuda")).dtype == torch.float16
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert model(torch.randn(4, 8, device="cuda")).dtype == torch.bfloat16
        assert not torch.is_autocast_enabled()

    record(program)


def test_values_in_the_program_are_known(record):
    def program():
        from torch.distributed.device_mesh import DeviceMesh

        assert torch.tensor([3, 5]).tolist() == [3, 5]
        assert torch.arange(4).tolist() == [0, 1, 2, 3]
        assert [part.shape[0] for part in torch.randn(8, 2).split(torch.tensor([3, 5]).tolist())] == [3, 5]
        assert (torch.zeros(4, dtype=torch.long) != torch.randint(0, 9, (4,))).sum().item() == 4
        assert not torch.isnan(torch.randn(512, 512)).any()
        assert torch.randn(2, 3, 4).masked_select(torch.randn(2, 3, 1) > 0).shape == (24,)
        dist.init_process_group("nccl")
        assert DeviceMesh("cuda", torch.arange(8).view(2, 4)).shape == (2, 4)

    record(program, world_size=8)


def test_counts_are_reduced_as_asked(record):
    def program():
        dist.init_process_group("nccl")
        counts = torch.bincount(torch.randint(0, 4, (8,), device="cuda"), minlength=4)
        most = counts.clone()
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        dist.all_reduce(counts)
        assert (most.tolist(), counts.tolist()) == ([2] * 4, [16] * 4)
        assert max(torch.empty_like(counts).tolist()) < 1000

    record(program, world_size=8)


def test_objects_and_checkpoints(record):
    def program():
        import torch.distributed.checkpoint as checkpoint

        dist.init_process_group("nccl")
        found = [None] * 8
        dist.all_gather_object(object_list=found, obj=dist.get_rank())
        gathered = [None] * 8
        dist.gather_object(1, object_gather_list=gathered)
        assert (found, gathered) == ([0] * 8, [1] * 8)
        checkpoint.save({"model": nn.Linear(4, 4).state_dict()}, checkpoint_id="nowhere")
        loader = torch.utils.data.DataLoader([1, 2, 3, 4], 2, False, None, None, 2, lambda rows: sum(rows))
        assert list(loader) == [3, 7]

    _, notes = record(program, world_size=8)
    assert any("checkpoints" in note for note in notes)


def test_unused_parameters_keep_the_first_buckets(record):
    def sizes(**options):
        def program():
            dist.init_process_group("nccl", world_size=8)
            model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512), nn.Linear(512, 512)).cuda()
            model = nn.parallel.DistributedDataParallel(model, **options)
            train(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 512, device="cuda"))
            dist.destroy_process_group()

        records, _ = record(program, world_size=8, wait=1)
        return [shapes[0][0][0] for name, shapes in records if name == "c10d::allreduce_"]

    one = 512 * 512 + 512
    assert sizes() != sizes(find_unused_parameters=True)
    # Its last one tells which of the 6 were used.
    assert (sum(sizes()), sum(sizes(find_unused_parameters=True)[:-1])) == (3 * one, 3 * one)


def test_what_follows_a_synchronization_comes_after_all_streams(record, tmp_path):
    from chakra_et.conversion import convert

    def program():
        a = torch.randn(8, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            a.sin()
        torch.cuda.synchronize()
        a.cos()

    record(program)
    nodes = convert(str(tmp_path / "out")).traces.trace(0).nodes
    by_id = dict(zip(nodes["id"].to_list(), nodes["name"].to_list(), strict=True))
    waited = [by_id[dep] for deps in nodes["sync_deps"].drop_nulls().to_list() for dep in deps]
    assert "aten::sin" in waited


def test_an_event_does_not_wait_for_an_asynchronous_communication(record, tmp_path):
    from chakra_et.conversion import convert

    def program():
        dist.init_process_group("nccl")
        a = torch.randn(8, device="cuda")
        other = a.sin()
        dist.all_reduce(a, async_op=True)
        event = torch.cuda.Event()
        event.record()
        stream = torch.cuda.Stream()
        stream.wait_event(event)
        with torch.cuda.stream(stream):
            other.cos()

    record(program, world_size=8)
    nodes = convert(str(tmp_path / "out")).traces.trace(0).nodes
    by_id = dict(zip(nodes["id"].to_list(), nodes["name"].to_list(), strict=True))
    waited = [by_id[dep] for deps in nodes["sync_deps"].drop_nulls().to_list() for dep in deps]
    assert waited == ["aten::sin"]


def test_torch_is_left_as_it_was(record):
    import torch._dynamo.device_interface as interfaces

    before = interfaces.CudaInterface.current_device, torch.get_default_dtype()

    def program():
        torch.set_default_dtype(torch.float64)
        with torch.profiler.profile(activities=list(torch.profiler.ProfilerActivity.__members__.values())[:2]):
            torch.randn(4).sin()

    record(program)
    assert (interfaces.CudaInterface.current_device, torch.get_default_dtype()) == before
