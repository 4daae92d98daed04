"""Capture what `chakra convert` reads: an execution trace and a Kineto profile of every rank, over the same steps.

Trains a small decoder-only transformer with DistributedDataParallel on CPUs (gloo) and writes, for each rank,
``host.<rank>.json.gz`` (PyTorch execution trace: operators, tensors, shapes) and ``device.<rank>.json.gz`` (Kineto
profile: times). Needs torch and nothing else of this project.

    python examples/capture_ddp.py --out profiles/                       # spawns the ranks itself
    torchrun --nproc-per-node 2 examples/capture_ddp.py --out profiles/  # or lets torchrun do it
    python examples/capture_ddp.py --out big/ --layers 4 --steps 62      # about 240,000 host nodes a rank

The bundled sample in examples/data/ is the output of the first command with ``--scrub``.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import socket
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function, schedule

WARMUP_STEPS = 2


class Block(nn.Module):
    """One pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, tokens, width] to the same shape."""
        batch, tokens, width = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """Embedding, blocks, and a language-model head."""

    def __init__(self, *, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map token ids [batch, tokens] to logits [batch, tokens, vocabulary]."""
        return self.head(self.blocks(self.embedding(tokens)))


def train(rank: int, world_size: int, options: argparse.Namespace) -> None:
    """Train a few steps as one rank, and capture the active ones."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    network = Transformer(layers=options.layers, width=options.width, heads=4, vocabulary=512)
    model = DistributedDataParallel(network, bucket_cap_mb=options.bucket_mb)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    host = options.out / f"host.{rank}.json.gz"
    device = options.out / f"device.{rank}.json.gz"
    observer = ExecutionTraceObserver().register_callback(str(host))
    with profile(
        activities=[ProfilerActivity.CPU],
        # Without repeat=1 the last step() opens a new cycle; and the export must happen inside on_trace_ready.
        schedule=schedule(wait=0, warmup=WARMUP_STEPS, active=options.steps, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(device)),
        record_shapes=True,
        execution_trace_observer=observer,
    ) as profiler:
        for _ in range(WARMUP_STEPS + options.steps):
            step(model, optimizer, options)
            profiler.step()
    observer.unregister_callback()  # Compresses the execution trace: only now the file is complete.
    dist.barrier()
    dist.destroy_process_group()
    if options.scrub:
        scrub_profile(device)
        scrub_host(host)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, options: argparse.Namespace) -> None:
    """Run one training step on random tokens."""
    tokens = torch.randint(0, 512, (options.batch, options.tokens + 1))
    with record_function("forward"):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    with record_function("backward"):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def scrub_profile(path: Path) -> None:
    """Take machine and interpreter names out of a Kineto profile; as text, so that no number is rounded."""
    text = gzip.decompress(path.read_bytes()).decode()
    text = re.sub(r'("host_name": )"[^"]*"', r'\1"server"', text)
    text = re.sub(r'("traceName": )"[^"]*"', rf'\1"{path.name.removesuffix(".gz")}"', text)
    rewrite(path, re.sub(r'"python[0-9.]*"', '"python"', text))


def scrub_host(path: Path) -> None:
    """Round off an execution trace: its wall-clock time tells when the job ran."""
    text = gzip.decompress(path.read_bytes()).decode()
    rewrite(path, re.sub(r'"time": "[^"]*"', '"time": "2026-01-01 00:00:00"', text, count=1))


def rewrite(path: Path, text: str) -> None:
    """Write gzip without a timestamp or a name in its header, so that equal content makes equal files."""
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def spawned(rank: int, world_size: int, options: argparse.Namespace) -> None:
    """Entry point of a spawned rank."""
    train(rank, world_size, options)


def free_port() -> int:
    """Return a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Parse the command line and run all ranks, or this one under torchrun."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the profiles")
    parser.add_argument("--layers", type=int, default=2, help="transformer blocks (default: 2)")
    parser.add_argument("--steps", type=int, default=2, help="captured training steps (default: 2)")
    parser.add_argument("--nproc", type=int, default=2, help="ranks to spawn without torchrun (default: 2)")
    parser.add_argument("--width", type=int, default=128, help="model width (default: 128)")
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank and step (default: 4)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per sequence (default: 64)")
    parser.add_argument("--bucket-mb", type=float, default=1.0, help="DDP gradient bucket in MiB (default: 1)")
    parser.add_argument("--scrub", action="store_true", help="take machine and time out of the files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), options)
        return
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    mp.spawn(spawned, (options.nproc, options), nprocs=options.nproc)


if __name__ == "__main__":
    main()
