"""What libraries and programs do that can't work without other ranks, devices or values."""

import os

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed import init_process_group  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from chakra_et.capture.fake import record_fake  # noqa: E402
from chakra_et.errors import InputError  # noqa: E402


@pytest.fixture
def run(tmp_path):
    """Capture a program on rank 5 of 8; return what was recorded."""

    def capture(function, **options):
        [found] = record_fake(function, tmp_path / "out", **{"wait": 0, "world_size": 8, "ranks": (5,), **options})
        return found

    return capture


def test_device_meshes_are_made_and_sliced_inside_the_program(run):
    seen = {}

    def program():
        mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        seen["initialized"] = dist.is_initialized()
        seen["tp"] = dist.get_process_group_ranks(mesh["tp"].get_group())
        seen["flat"] = dist.get_process_group_ranks(mesh["dp", "cp"]._flatten("dp_cp").get_group())
        seen["place"] = mesh.get_coordinate(), mesh["cp"].get_local_rank()
        seen["mesh"] = mesh["dp"].mesh.tolist()
        seen["group"] = dist.get_process_group_ranks(dist.new_group([1, 5, 7], backend="nccl"))

    run(program)
    assert [*seen.pop("place")[0]] == [1, 0, 1]
    assert seen == {
        "initialized": True, "tp": [4, 5], "flat": [1, 3, 5, 7], "mesh": [1, 5], "group": [1, 5, 7],
    }  # fmt: skip


def test_functions_imported_by_name_are_reached_and_come_back(run):
    before = init_device_mesh, init_process_group
    seen = []

    def program():
        init_process_group("nccl")
        seen.append(dist.get_world_size())

    for _ in range(2):
        run(program)
    assert seen == [8, 8]
    assert (init_device_mesh, init_process_group) == before
    assert dist.init_process_group is init_process_group


def test_a_second_default_group_is_refused_as_always(run):
    def program():
        dist.init_process_group("nccl")
        dist.init_process_group("gloo")

    with pytest.raises(ValueError, match="twice"):
        run(program)


def test_objects_come_from_this_rank_alone(run):
    seen = {}

    def program():
        dist.init_process_group("gloo")
        gathered, scattered, own = [None] * 8, [None], {"rank": dist.get_rank()}
        dist.all_gather_object(gathered, own)
        dist.scatter_object_list(scattered, list(range(8)))
        kept = ["mine"]
        dist.broadcast_object_list(kept, src=0)
        dist.recv_object_list(kept, src=0)
        dist.barrier()
        seen.update(gathered=gathered, scattered=scattered, kept=kept)

    assert run(program).communications == 1  # the barrier
    assert seen == {"gathered": [{"rank": 5}] * 8, "scattered": [5], "kept": ["mine"]}


def test_what_is_left_out_is_said(run, tmp_path):
    def program():
        model = torch.compile(nn.Linear(2, 2))
        function = torch.compile(lambda x: x + 1)
        decorated = torch.compile()(lambda x: x * 2)
        decorated(function(model(torch.ones(1, 2))))
        torch.save(model.state_dict(), tmp_path / "model.pt")

    notes = run(program).warnings
    assert notes["torch.compile: left out, operators are recorded as they run without it"] == 3
    assert notes["checkpoints (torch.save and the like): left out, there are no values to save"] == 1
    assert not (tmp_path / "model.pt").exists()


def test_spawned_processes_are_one_call(run):
    calls = []
    run(lambda: torch.multiprocessing.spawn(lambda *args: calls.append(args), args=("a",), nprocs=4))
    assert calls == [(1, "a")]


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}, {"foreach": True, "amsgrad": True}])
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_optimizers_step(run, kind, options):
    if kind == "SGD":
        options = {name: value for name, value in options.items() if name != "amsgrad"} | {"momentum": 0.9}

    def program():
        model = nn.Linear(4, 4).cuda()
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **options)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        for _ in range(3):
            model(torch.ones(1, 4, device="cuda")).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

    found = run(program, wait=1)
    assert found.operators > 10
    assert not any("optimizer steps" in note for note in found.warnings)


def test_activations_are_computed_again(run):
    counts = {}

    def program(again):
        def train():
            layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout())
            x = torch.ones(1, 4, requires_grad=True)
            (checkpoint(layer, x, use_reentrant=False) if again else layer(x)).sum().backward()

        return train

    for again in (False, True):
        counts[again] = run(program(again)).operators
    assert counts[True] > counts[False] + 2


def test_pipelines_whose_shapes_nobody_tells_are_refused(run):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    def program():
        dist.init_process_group("nccl")
        stage = PipelineStage(nn.Linear(4, 4), dist.get_rank(), 8, torch.device("cuda", 5))
        ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss).step()

    with pytest.raises(InputError, match=r"pipeline stage 5: expected the shapes of its inputs.*pass input_args"):
        run(program)


def test_the_program_ends_with_its_window(run):
    steps = []

    def program():
        parameter = nn.Parameter(torch.ones(2))
        optimizers = [torch.optim.SGD([parameter], lr=0.1) for _ in range(2)]
        try:
            for step in range(100):
                steps.append(step)
                parameter.sum().backward()
                for optimizer in optimizers:
                    optimizer.step()
        except Exception:
            steps.append("caught")
        finally:
            steps.append(os.environ["RANK"])

    found = run(program, wait=1, active=2)
    assert steps == [0, 1, 2, "5"]
    assert found.warnings == {}


def test_records_keep_no_tensor_alive(run):
    import gc
    import weakref

    kept = []

    def program():
        x = torch.ones(4)
        kept.append(weakref.ref(x))
        y = x + 1
        del x
        gc.collect()
        kept.append(kept[0]() is None)
        return y

    run(program)
    assert kept[1]
