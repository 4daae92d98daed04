"""ASTRA-sim's rules: CPU seconds of the built-in simulator against those recorded of ASTRA-sim itself.

    python benchmarks/simulate_astra.py [--runs N] [--case WORD]

Each case is run warm (compiled, in memory), with all ranks alike folded into one, and with folding off; "skewed" cases
have ranks that differ, so that nothing can be folded. Loading is timed apart: one file a rank is written and read.
ASTRA-sim's seconds are user CPU seconds recorded on a machine of 2 cores, loading included; they are a yardstick, not
a paired run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from chakra_et.io import read_set, write_set
from chakra_et.ir import CommType, NodeType, Trace, TraceBuilder, TraceMetadata, TraceSet
from chakra_et.sim.astra import AstraOptions, simulate_astra
from chakra_et.specs import AstraConfig


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    make: Callable[[], TraceSet]
    config: AstraConfig
    backend: str
    recorded_s: float  # of ASTRA-sim
    target_s: float


def ring(ranks: int, splits: int = 1) -> AstraConfig:
    """Return a ring of 50 GiB/s links."""
    return AstraConfig(("Ring",), (ranks,), (50.0,), (500.0,), all_reduce=("ring",), splits=splits, local_mem_bw=1600.0)


def chain(nodes: int, every: int = 0, size: int = 1 << 20) -> pl.DataFrame:
    """Return nodes in a row; every so many an all-reduce, else compute."""
    builder = TraceBuilder()
    last: list[int] = []
    for number in range(nodes):
        if every and number % every == every - 1:
            columns = {"comm_type": int(CommType.ALL_REDUCE), "comm_size": size}
            last = [builder.add("all_reduce", NodeType.COMM_COLL_NODE, data_deps=last, **columns)]
        else:
            last = [builder.add("gemm", NodeType.COMP_NODE, data_deps=last, duration_ns=1000 * (1 + number % 7))]
    return builder.build().nodes


def alike(nodes: pl.DataFrame, ranks: int) -> TraceSet:
    """Return a job whose ranks all run the same nodes."""
    return TraceSet(tuple(Trace(nodes, metadata=TraceMetadata(rank=rank)) for rank in range(ranks)))


def skewed(nodes: pl.DataFrame, ranks: int) -> TraceSet:
    """Return a job whose ranks compute for different times."""
    rng = np.random.default_rng(0)
    compute = nodes["type"].to_numpy() == NodeType.COMP_NODE
    traces = []
    for rank in range(ranks):
        late = np.where(compute, 1000 * rng.integers(0, 3, len(nodes)), 0)
        own = nodes.with_columns(pl.col("duration_ns") + pl.Series(late))
        traces.append(Trace(own, metadata=TraceMetadata(rank=rank)))
    return TraceSet(tuple(traces))


def cases() -> list[Case]:
    """Return the table's rows."""
    one = chain(1, 1, 1 << 30)
    return [
        Case("128 x 2000 compute", lambda: alike(chain(2000), 128), ring(128), "unaware", 6.1, 0.06),
        Case("128 x 2000 compute, skewed", lambda: skewed(chain(2000), 128), ring(128), "unaware", 6.1, 0.06),
        Case("128 x 2000, all-reduce every 10th", lambda: alike(chain(2000, 10), 128), ring(128), "unaware", 16.4, 0.2),
        Case(
            "128 x 2000, all-reduce every 10th, skewed",
            lambda: skewed(chain(2000, 10), 128),
            ring(128),
            "unaware",
            16.4,
            0.2,
        ),
        Case("1 GiB all-reduce, 1024 ranks, 4 chunks", lambda: alike(one, 1024), ring(1024, 4), "unaware", 13.8, 0.2),
        Case("1 GiB all-reduce, 1024 ranks, 4 chunks", lambda: alike(one, 1024), ring(1024, 4), "aware", 28.7, 2.0),
    ]


def seconds(function: Callable[[], object], runs: int) -> float:
    """Return the median CPU seconds of a call."""
    found = []
    for _ in range(runs):
        begin = time.process_time()
        function()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def loading(traces: TraceSet) -> float:
    """Return the CPU seconds of reading one file a rank."""
    with tempfile.TemporaryDirectory() as folder:
        write_set(traces, folder)
        return seconds(lambda: read_set(folder), 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", default="", help="only cases whose name holds this")
    args = parser.parse_args()
    for backend in ("unaware", "aware"):
        warm = replace(ring(4), topology=("FullyConnected",))
        simulate_astra(skewed(chain(20, 5), 4), warm, options=AstraOptions(backend=backend))
    print(f"{'case':44} {'backend':8} {'ranks':>6} {'CPU s':>8} {'ASTRA-sim':>10}    ratio  target  loading")
    for case in cases():
        if args.case not in case.name:
            continue
        traces = case.make()
        load = loading(traces)
        for fold in ("auto", "off"):
            options = AstraOptions(backend=case.backend, fold=fold)
            count = simulate_astra(traces, case.config, options=options).folded_classes
            if fold == "off" and count == 1:
                continue
            spent = seconds(lambda: simulate_astra(traces, case.config, options=options), args.runs)  # noqa: B023
            print(
                f"{case.name:44} {case.backend:8} {count:6} {spent:8.4f} {case.recorded_s:10.1f} "
                f"{case.recorded_s / spent:7.0f}x {case.target_s:7.2f} {load:8.3f}",
                flush=True,
            )
            if fold == "auto" and count == len(traces):
                break


if __name__ == "__main__":
    main()
