"""What a capture costs a training step: without one, outside its window, under PyTorch's profilers, and under ours.

    python benchmarks/capture_overhead.py [ROUNDS]

One process, one thread: a transformer with AdamW, the same under FSDP2 with one gloo rank, and all-reduces alone, where
our notes on communications come on top of PyTorch's observer. In every round each variant runs the same number of
steps, in turns, so that a slower moment hits all alike.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import chakra_et.capture.torch as chakra_capture

STEPS = 6


def transformer_step(wrap: Callable[[nn.Module], nn.Module]) -> Callable[[], None]:
    """Return a training step of a small transformer."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    model = wrap(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.randn(8, 32, 128)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def shard(model: nn.Module) -> nn.Module:
    """Shard every layer: two all-gathers and a reduce-scatter each."""
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def all_reduces() -> Callable[[], None]:
    """Return a step of 200 all-reduces, and nothing else."""
    x = torch.ones(16)

    def step() -> None:
        for _ in range(200):
            dist.all_reduce(x)

    return step


def timed(step: Callable[[], None], after: Callable[[], None]) -> float:
    """Return the median seconds of a step, with what comes after each."""
    spans = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        after()
        spans.append(time.perf_counter() - begin)
    return statistics.median(spans)


def plain(step: Callable[[], None], folder: Path) -> float:
    """Without a capture."""
    return timed(step, lambda: None)


def outside(step: Callable[[], None], folder: Path) -> float:
    """Under a recorder whose window is far away."""
    recorder = chakra_capture.record(folder, wait=1_000_000)
    return timed(step, recorder.step)


def torch_both(step: Callable[[], None], folder: Path) -> float:
    """Under PyTorch's execution trace observer and Kineto, as their documentation has it."""
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(folder / "et.json"))
    with torch.profiler.profile(record_shapes=True, execution_trace_observer=observer):
        return timed(step, lambda: None)


def ours(step: Callable[[], None], folder: Path) -> float:
    """Inside the window of a capture."""
    with chakra_capture.record(folder, active=STEPS + 1) as recorder:
        return timed(step, recorder.step)


VARIANTS = {
    "no capture": plain, "outside the window": outside, "PyTorch's two profilers": torch_both,
    "inside the window": ours,
}  # fmt: skip


def compare(title: str, step: Callable[[], None], rounds: int) -> None:
    """Print the medians over rounds, and the ratios to what they are to be compared with."""
    for _ in range(3):
        step()
    found: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name, variant in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(variant(step, Path(folder)))
    base, rival = (found["no capture"], found["PyTorch's two profilers"])
    print(f"\n{title}")
    for name, spans in found.items():
        by_base = statistics.median(one / other for one, other in zip(spans, base, strict=True))
        by_rival = statistics.median(one / other for one, other in zip(spans, rival, strict=True))
        print(f"  {name:<24} {1e3 * statistics.median(spans):8.2f} ms   x {by_base:5.3f} of no capture"
              f"   x {by_rival:5.3f} of PyTorch's two")  # fmt: skip


def main() -> None:
    """Run both comparisons."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        compare("transformer step", transformer_step(lambda model: model), rounds)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        stack.callback(dist.destroy_process_group)
        compare("the same under FSDP2, one gloo rank", transformer_step(shard), rounds)
        compare("200 all-reduces, one gloo rank", all_reduces(), rounds)


if __name__ == "__main__":
    main()
