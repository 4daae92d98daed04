"""What a replay costs and how close it comes: small steps against the job itself, a 2-rank job against its recording.

    python benchmarks/replay_step.py [PART ...] [--traces FOLDER] [--repeats N]

Parts (default: step and ddp):

    step      one process, a transformer of about 900 small operators: the job's own step without a profiler, and the
              replay of its recording without pace (`--host-time none`); the ratio of their medians
    ddp       2 ranks on gloo, a DDP transformer: recorded with `chakra capture`, converted, replayed at each pace; its
              mean step against the recorded one and the job's own, and the share of operators' time that was called
    megatron  the compute of FOLDER/megatron-tp8-a100, rank 0, a GPU's trace on the CPU: operators called. It takes an
              A100 0.3 s and a CPU core 40 minutes a pass; there are two

Both sides of a ratio are measured here, in one run. Torch runs on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import chakra_et as chakra
from chakra_et.capture.torch import record
from chakra_et.replay import Accuracy, ReplayOptions, accuracy, make_plan, run_rank

PARTS = ("step", "ddp", "megatron")
STEPS = 5


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.behind, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the layer makes of a batch."""
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).chunk(3, -1)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.behind(x))


def transformer(width: int, layers: int, words: int) -> nn.Module:
    """Return a model from words to words."""
    blocks = [Block(width, 4) for _ in range(layers)]
    return nn.Sequential(nn.Embedding(words, width), *blocks, nn.Linear(width, words))


def training(model: nn.Module, words: int, batch: int, length: int):
    """Return a function that makes a step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    data, target = (torch.randint(0, words, (batch, length)) for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(data).view(-1, words), target.view(-1)).backward()
        optimizer.step()

    return step


def recorded(step, folder: Path) -> chakra.Trace:
    """Record a step, and return its trace."""
    with record(folder, active=1) as recorder:
        step()
        recorder.step()
    return chakra.convert(folder).traces.traces[0]


def measure_step(repeats: int) -> None:
    """Compare a small step with its replay; they take turns, so that neither has the quieter machine."""
    torch.manual_seed(0)
    step = training(transformer(32, 8, 128), 128, 2, 16)
    for _ in range(10):
        step()
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(recorded(step, Path(folder)))
    options = ReplayOptions(only="compute", host_time="none", repeats=20)
    own: list[float] = []
    replayed: list[float] = []
    told: Accuracy | None = None
    for _ in range(repeats):
        for _ in range(20):
            begin = time.perf_counter_ns()
            step()
            own.append(time.perf_counter_ns() - begin)
        result = run_rank(plan, options=options)
        told = accuracy(result)
        replayed += (result.iterations[:, 0, 1] - result.iterations[:, 0, 0]).tolist()
    job, replay = statistics.median(own), statistics.median(replayed)
    print(f"step: {told.operators_called} of {told.operators} operators; job {job / 1e6:.2f} ms, "
          f"replay {replay / 1e6:.2f} ms: {replay / job:.2f} x")  # fmt: skip


def run_ddp(out: str) -> None:
    """Be one rank of the job."""
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(transformer(256, 4, 512))
    step = training(model, 512, 4, 64)
    with record(out, wait=5, active=STEPS) as recorder:
        for _ in range(5 + STEPS):
            step()
            recorder.step()
    torch.distributed.destroy_process_group()


def measure_ddp(repeats: int) -> None:
    """Record a job of 2 ranks and replay it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        profiles, traces = Path(folder) / "profiles", Path(folder) / "traces"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
        subprocess.run([*launch, "job", str(profiles)], check=True, capture_output=True, timeout=300, env=environment)
        chakra.save(chakra.convert(profiles).traces, traces)
        command = [sys.executable, "-m", "chakra_et.cli", "replay", str(traces), "--json", "--repeats", str(repeats)]
        for pace in ("measured", "gaps", "none"):
            words = [*command, "--host-time", pace]
            done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300, env=environment)
            for rank in json.loads(done.stdout)["ranks"]:
                print(f"ddp, --host-time {pace}: {rank['headline']}")


def measure_megatron(traces: Path) -> None:
    """Replay a GPU's operators on the CPU."""
    files = {kind: traces / "megatron-tp8-a100" / f"megatron_{name}_0.json.gz"
             for kind, name in (("host", "et"), ("device", "kineto"))}  # fmt: skip
    plan = make_plan(chakra.convert(**files).traces.traces[0])
    told = accuracy(run_rank(plan, options=ReplayOptions(only="compute", host_time="none", repeats=1, warmup=0)))
    print(f"megatron: {told.operators_called:,} of {told.operators:,} operators called ({told.coverage:.1%})")
    for row in told.skipped:
        print(f"megatron: not called: {row.count} x {row.name}: {row.reason}")


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--traces", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "traces")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.parts[:1] == ["job"]:
        run_ddp(options.parts[1])
        return
    for part in options.parts or PARTS[:2]:
        if part not in PARTS:
            parser.error(f"expected parts among {', '.join(PARTS)}, got {part}")
    if "step" in (options.parts or PARTS[:2]):
        measure_step(options.repeats)
    if "ddp" in (options.parts or PARTS[:2]):
        measure_ddp(options.repeats)
    if "megatron" in options.parts:
        measure_megatron(options.traces)


if __name__ == "__main__":
    main()
