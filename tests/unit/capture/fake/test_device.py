"""A device that isn't there: answered while a capture runs, and nothing is left behind."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402

from chakra_et.capture.fake import record_fake  # noqa: E402
from chakra_et.capture.fake.device import relabeled  # noqa: E402
from chakra_et.capture.fake.groups import environment_of  # noqa: E402


def state():
    """Return what a capture changes."""
    return {
        "init": dist.init_process_group,
        "group": dist.new_group,
        "allreduce": dist.ProcessGroup.allreduce,
        "wait": dist.Work.wait,
        "mesh": DeviceMesh.__init__,
        "cuda": (torch.cuda.is_available, torch.cuda.Stream, torch.cuda.set_device, torch.cuda.current_stream),
        "cpu": (torch.cpu.Stream, torch.cpu.current_stream),
        "accelerator": torch.accelerator.current_accelerator,
        "generator": torch.Generator,
        "module": torch.nn.Module._apply,
        "autocast": torch.autocast.__init__,
        "loader": torch.utils.data.DataLoader.__init__,
        "ddp": torch.nn.parallel.DistributedDataParallel.__init__,
        "compile": torch.compile,
        "save": torch.save,
        "default": torch.get_default_device(),
        "hooks": len(torch.optim.optimizer._global_optimizer_post_hooks) if hasattr(torch.optim, "optimizer") else 0,
    }


def run(tmp_path, function, **options):
    [found] = record_fake(function, tmp_path / "out", wait=0, **options)
    return found


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(tmp_path, fails):
    before = state()

    def program():
        dist.init_process_group("nccl")
        torch.set_default_device("cuda")
        torch.nn.Linear(2, 2)(torch.zeros(1, 2))
        if fails:
            raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError):
            run(tmp_path, program, world_size=4)
        assert not (tmp_path / "out").exists()
    else:
        run(tmp_path, program, world_size=4)
    assert state() == before
    assert not dist.is_initialized()
    assert type(torch.zeros(1)) is torch.Tensor


def test_devices_are_answered_for(tmp_path):
    seen = {}

    def program():
        seen["available"] = torch.cuda.is_available()
        seen["count"], seen["current"] = torch.cuda.device_count(), torch.cuda.current_device()
        seen["free"], _ = torch.cuda.mem_get_info()
        seen["accelerator"] = torch.accelerator.current_accelerator().type
        x = torch.zeros(3, device="cuda").to("cuda:1", torch.float16).cuda().pin_memory()
        x.record_stream(torch.cuda.current_stream())
        generator = torch.Generator(device="cuda").manual_seed(1)
        with torch.device("cuda"), torch.cuda.device(0), torch.autocast("cuda", dtype=torch.bfloat16):
            y = torch.nn.Linear(3, 3)(torch.randn(2, 3, generator=generator))
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_push("x")
        seen["dtypes"] = x.dtype, y.dtype
        seen["state"] = torch.cuda.get_rng_state().dtype

    run(tmp_path, program, world_size=64, ranks=(11,))
    assert seen.pop("free") > 1 << 30
    assert seen == {
        "available": True, "count": 8, "current": 3, "accelerator": "cuda",
        "dtypes": (torch.float16, torch.bfloat16), "state": torch.uint8,
    }  # fmt: skip


def test_no_device_is_answered_for_on_a_cpu(tmp_path):
    seen = []
    run(tmp_path, lambda: seen.append(torch.cuda.is_available()), device="cpu")
    assert seen == [torch.cuda.is_available()]


def test_names_of_devices():
    assert [relabeled(name) for name in ("cuda", "cuda:7", "xpu:0", "cpu", "meta", "bfloat16")] == [
        "cpu", "cpu", "cpu", "cpu", "meta", "bfloat16",
    ]  # fmt: skip
    assert relabeled(torch.device("cuda", 3)) == torch.device("cpu")
    assert relabeled(torch.float16) is torch.float16


def test_modules_move_and_shared_parameters_stay_shared(tmp_path):
    def program():
        first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        second.weight = first.weight
        model = torch.nn.Sequential(first, second, torch.nn.BatchNorm1d(4)).cuda().to(torch.bfloat16)
        assert model[0].weight is model[1].weight
        assert model[0].weight.dtype == model[2].running_mean.dtype == torch.bfloat16
        assert isinstance(model[0].weight, torch.nn.Parameter)
        assert model[0].weight.requires_grad
        with torch.device("meta"):
            empty = torch.nn.Linear(4, 4)
        assert empty.to_empty(device="cuda").weight.device.type == "cpu"

    assert run(tmp_path, program).operators > 0


def test_the_environment_is_torchruns():
    found = environment_of(11, 64, 8)
    assert {name: found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")} == {
        "RANK": "11", "WORLD_SIZE": "64", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8", "GROUP_RANK": "1",
    }  # fmt: skip
