"""Small distributed training jobs on gloo, to be captured: run as a script in each rank's process.

python jobs.py NAME OUT [STEPS]      with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set
"""

from __future__ import annotations

import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn

import chakra_et.capture.torch as chakra_capture

WIDTH, HEADS, BATCH, LENGTH = 64, 4, 8, 16


class Block(nn.Module):
    """A transformer block whose projections can be split over ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (
            part(y).view(*y.shape[:2], -1, WIDTH // HEADS).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, blocks: int = 2, words: int = 100) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def words() -> torch.Tensor:
    return torch.randint(0, 100, (BATCH, LENGTH))


def train(model: nn.Module, step) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    while True:
        loss_of(model(words()), words()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step():
            return


def ddp(step) -> None:
    train(nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=0.2), step)


def fsdp(step) -> None:
    from torch.distributed.fsdp import fully_shard

    model = Model()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    train(model, step)


def tp(step) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    model = Model()
    column, row = ColwiseParallel(), RowwiseParallel()
    plan = {"query": column, "key": column, "value": column, "out": row, "up": column, "down": row}
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan)
    train(model, step)


def pipeline(step) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = dist.get_rank(), dist.get_world_size()
    stage_model = nn.Sequential(*(Block() for _ in range(2)))
    stage = PipelineStage(stage_model, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).square().mean())
    optimizer = torch.optim.SGD(stage_model.parameters(), lr=1e-3)
    while True:
        if rank == 0:
            schedule.step(torch.randn(BATCH, LENGTH, WIDTH))
        elif rank == size - 1:
            schedule.step(target=torch.randn(BATCH, LENGTH, WIDTH))
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        if step():
            return


class Experts(nn.Module):
    """One expert a rank; tokens travel to their expert and back, as many as chose it."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, dist.get_world_size())
        self.expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.distributed.nn.functional import all_to_all_single

        weights, choice = self.router(x).softmax(-1).max(-1)
        order = choice.argsort()
        sent = torch.bincount(choice, minlength=dist.get_world_size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        rows_out, rows_in = sent.tolist(), received.tolist()
        inputs = x.new_empty(sum(rows_in), WIDTH)
        inputs = all_to_all_single(inputs, x[order].contiguous(), rows_in, rows_out)
        back = all_to_all_single(x.new_empty(x.shape), self.expert(inputs).contiguous(), rows_out, rows_in)
        return x + back[order.argsort()] * weights[:, None]


def moe(step) -> None:
    torch.manual_seed(dist.get_rank())
    model = nn.ModuleList([Experts(), Experts()])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        x = torch.randn(BATCH * LENGTH, WIDTH)
        for layer in model:
            x = layer(x)
        x.square().mean().backward()
        for parameter in model[0].router.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        optimizer.zero_grad()
        if step():
            return


def collectives(step) -> None:
    """Everything that gloo can do, once a step, on the world and on groups; `test_every_collective` has the list."""
    rank, size = dist.get_rank(), dist.get_world_size()
    halves = [dist.new_group([0, 1], group_desc="tp"), dist.new_group([2, 3], group_desc="tp")]
    group = halves[rank // 2]
    late = None
    while True:
        dist.all_reduce(torch.ones(1024), op=dist.ReduceOp.MAX)
        dist.all_reduce(torch.ones(2048, dtype=torch.bfloat16), group=group)
        works = [dist.all_reduce(torch.ones(4096), async_op=True) for _ in range(3)]
        torch.ones(64).tanh()
        for work in reversed(works):
            work.wait()
        dist.broadcast(torch.ones(128), 2)
        dist.broadcast(torch.ones(32), 2 * (rank // 2) + 1, group=group)
        dist.reduce(torch.ones(128), 1, op=dist.ReduceOp.PRODUCT)
        dist.all_gather([torch.empty(64) for _ in range(size)], torch.ones(64))
        dist.gather(torch.ones(16), [torch.empty(16) for _ in range(size)] if rank == 3 else None, dst=3)
        dist.scatter(torch.empty(16), [torch.ones(16)] * size if rank == 0 else None, src=0)
        dist.all_to_all_single(torch.empty(8, 4), torch.ones(8, 4))
        rows = [1, 2, 3, 4]
        dist.all_to_all_single(torch.empty(4 * rows[rank], 2), torch.ones(10, 2), [rows[rank]] * 4, rows)
        dist.all_to_all([torch.empty(8) for _ in range(size)], [torch.ones(8)] * size)
        dist.barrier()
        dist.all_gather_object([None] * size, {"rank": rank})
        after, before = (rank + 1) % size, (rank - 1) % size
        sending = dist.isend(torch.ones(100), after, tag=7)
        dist.recv(torch.empty(100), before, tag=7)
        sending.wait()
        ops = [dist.P2POp(dist.isend, torch.ones(200), after), dist.P2POp(dist.irecv, torch.empty(200), before)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        if late is None:
            late = dist.new_group([0, 2, 3], group_desc="late")
        if rank != 1:
            dist.all_reduce(torch.ones(8), group=late)
        if step():
            return


JOBS = {"collectives": collectives, "ddp": ddp, "fsdp": fsdp, "tp": tp, "pipeline": pipeline, "moe": moe}


def main(name: str, out: str, steps: int = 2) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    with chakra_capture.record(out, wait=3, warmup=1, active=steps) as recorder:
        left = [steps + 5]

        def step() -> bool:
            recorder.step()
            left[0] -= 1
            return not left[0]

        JOBS[name](step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
