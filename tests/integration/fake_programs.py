"""Programs as users write them for GPUs, to be captured before execution. As a script: python fake_programs.py NAME."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH = 64
MICROBATCHES = 4


def single() -> None:
    """One process: a loss that is printed, an optimizer with several tensors a kernel."""
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        x, y = torch.randn(32, WIDTH, device=device), torch.randint(0, 10, (32,), device=device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss, f"{loss:.3f}", loss.item())


def ddp() -> None:
    """DistributedDataParallel, with all that goes with it: loader, sampler, autocast, scaler, clipping."""
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group(backend="nccl")
    torch.cuda.manual_seed_all(1)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), device_ids=[local])
    data = TensorDataset(torch.randn(256, 3, 8, 8), torch.randint(0, 10, (256,)))
    loader = DataLoader(data, 16, sampler=DistributedSampler(data), num_workers=2, pin_memory=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x.to(device, non_blocking=True)), y.cuda(non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"loss {mean.item():.3f}, norm {float(norm):.3f}, {torch.cuda.max_memory_allocated()} bytes")
    dist.destroy_process_group()


def pipeline() -> None:
    """1F1B over 4 stages of 2 data parallel pipelines; shapes are found by the schedule."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "pp"))
    place = mesh["pp"].get_local_rank()
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(device)
    stage = PipelineStage(model, place, 4, device, group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, n_microbatches=MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        x, y = (torch.randn(4 * MICROBATCHES, WIDTH, device=device) for _ in range(2))
        optimizer.zero_grad()
        if place == 0:
            schedule.step(x)
        elif place == 3:
            schedule.step(target=y, losses=[])
        else:
            schedule.step()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())
        optimizer.step()


class _Exchange(torch.autograd.Function):
    """Rows to other ranks, and their gradients back."""

    @staticmethod
    def forward(ctx, x, received, sent):
        ctx.splits = received, sent
        out = x.new_empty((sum(received), x.shape[1]))
        dist.all_to_all_single(out, x, received, sent)
        return out

    @staticmethod
    def backward(ctx, grad):
        received, sent = ctx.splits
        out = grad.new_empty((sum(sent), grad.shape[1]))
        dist.all_to_all_single(out, grad.contiguous(), sent, received)
        return out, None, None


def experts() -> None:
    """Mixture of experts: counts decide how many rows go where."""
    dist.init_process_group("gloo")
    torch.set_default_device("cuda")
    size = dist.get_world_size()
    gate = nn.Linear(WIDTH, 2 * size)
    local = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
    optimizer = torch.optim.AdamW([*gate.parameters(), *local.parameters()])
    for _ in range(3):
        x = torch.randn(64, WIDTH)
        weight, expert = gate(x).softmax(-1).topk(2)
        order = expert.flatten().argsort()
        counts = torch.bincount(expert.flatten(), minlength=2 * size)
        others = torch.empty_like(counts)
        dist.all_to_all_single(others, counts)
        sent, received = (part.view(size, -1).sum(1).tolist() for part in (counts, others))
        rows = _Exchange.apply(x.repeat_interleave(2, 0)[order], received, sent)
        parts = rows.split(others.view(size, -1).sum(0).tolist())
        rows = torch.cat([module(part) for module, part in zip(local, parts, strict=True)])
        back = _Exchange.apply(rows, sent, received)
        loss = (back * weight.flatten()[order][:, None]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def streams() -> None:
    """A side stream that copies while the default one computes."""
    model = nn.Linear(WIDTH, WIDTH).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    side = torch.cuda.Stream()
    for _ in range(2):
        x = torch.randn(8, WIDTH, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept = x.clone()
            done = torch.cuda.Event()
            done.record()
        y = model(x)
        torch.cuda.current_stream().wait_event(done)
        (y * kept).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def recorded_twice() -> None:
    """A server with captures of its own, which takes its process groups down at its end."""
    from chakra_et.capture.torch import record

    dist.init_process_group("nccl")
    both = dist.new_group([0, 1], group_desc="both")
    x = torch.ones(4, device="cuda")
    observer = torch.profiler.ExecutionTraceObserver().register_callback("nowhere.json")
    observer.start()
    with record("nowhere") as recorder:
        if dist.get_rank() == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
        dist.all_reduce(x, group=both)
        recorder.step()
    observer.stop()
    observer.unregister_callback()
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
