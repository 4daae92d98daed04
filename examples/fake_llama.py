"""Train a Llama-like model with FSDP2 and tensor parallelism: plain PyTorch, as for a cluster of GPUs.

chakra capture --fake --world-size 64 -o out/ -- examples/fake_llama.py --layers 32 --hidden 4096 --heads 32
torchrun --nproc-per-node 8 examples/fake_llama.py --layers 4 --hidden 1024      # with GPUs
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Attention(nn.Module):
    """Attention with rotary embeddings and grouped queries."""

    def __init__(self, hidden: int, heads: int, groups: int) -> None:
        super().__init__()
        self.size = hidden // heads
        self.wq = nn.Linear(hidden, hidden, bias=False)
        self.wk = nn.Linear(hidden, groups * self.size, bias=False)
        self.wv = nn.Linear(hidden, groups * self.size, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        """Mix positions."""
        batch, length = x.shape[:2]
        q, k, v = (w(x).view(batch, length, -1, self.size) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, rotation), rotate(k, rotation)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, length, -1))


def rotate(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Rotate halves of heads by position."""
    cos, sin = rotation
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.type_as(x)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(hidden, inner, bias=False)
        self.w2 = nn.Linear(inner, hidden, bias=False)
        self.w3 = nn.Linear(hidden, inner, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix channels."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """One layer."""

    def __init__(self, hidden: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(hidden)
        self.attention = Attention(hidden, heads, groups)
        self.ffn_norm = nn.RMSNorm(hidden)
        self.feed_forward = FeedForward(hidden, inner)

    def forward(self, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        """Add what both halves say."""
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    """Embedding, layers, output."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.head_size = args.hidden // args.heads
        self.embedding = nn.Embedding(args.vocabulary, args.hidden)
        self.layers = nn.ModuleList(Block(args.hidden, args.heads, args.groups, args.inner) for _ in range(args.layers))
        self.norm = nn.RMSNorm(args.hidden)
        self.output = nn.Linear(args.hidden, args.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next tokens."""
        x = self.embedding(tokens)
        place = torch.arange(tokens.shape[1], device=tokens.device)
        speed = 1e4 ** (-torch.arange(0, self.head_size, 2, device=tokens.device) / self.head_size)
        angle = (place[:, None] * speed)[:, None]
        rotation = torch.stack((angle.cos(), angle.sin()))
        for layer in self.layers:
            x = layer(x, rotation)
        return self.output(self.norm(x))


def parallelize(model: Llama, args: argparse.Namespace) -> None:
    """Split layers over the tensor parallel ranks, and shard what is left over the data parallel ones."""
    mesh = init_device_mesh("cuda", (dist.get_world_size() // args.tp, args.tp), mesh_dim_names=("dp", "tp"))
    if args.tp > 1:
        tp = mesh["tp"]
        plan = {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
        parallelize_module(model, tp, plan)
        for layer in model.layers:
            parallelize_module(layer, tp, block_plan())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)


def block_plan() -> dict[str, object]:
    """Return how one layer is split: between products along the sequence, inside along heads and columns."""
    gather = {"input_layouts": (Shard(1), None), "desired_input_layouts": (Replicate(), None)}
    return {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(**gather),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "ffn_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w3": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    }


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    sizes = {"layers": 2, "hidden": 512, "heads": 8, "groups": 8, "inner": 0, "vocabulary": 32000, "length": 512,
             "batch": 1, "tp": 8, "steps": 10}  # fmt: skip
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    args.inner = args.inner or args.hidden * 7 // 2
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    with torch.device("meta"):
        model = Llama(args)
    parallelize(model, args)
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(args.steps):
        tokens = torch.randint(args.vocabulary, (args.batch, args.length + 1), device="cuda")
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
