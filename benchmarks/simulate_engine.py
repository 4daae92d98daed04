"""CPU seconds of the engine, and of a point of a sweep, both warm.

    python benchmarks/simulate_engine.py

128 ranks of 2,000 compute nodes: in one chain each, or all ready at once on one compute engine. The same with a
collective of all ranks at every tenth node. 256 ranks of 130 nodes (all different) on one machine after the other, with
and without looking for ranks to fold.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import polars as pl

from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceMetadata, TraceSet
from chakra_et.sim import simulate as module
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.plan import run_plan
from chakra_et.sim.simulate import prepare
from chakra_et.specs import System, load_system


def make_job(ranks: int, nodes: int, *, chain: bool, every: int = 0) -> TraceSet:
    """Return ranks of compute nodes, with an all-reduce at every so many of them."""
    generator = np.random.default_rng(0)
    number = np.arange(nodes)
    collective = (number % every == every - 1) if every else np.zeros(nodes, np.bool_)
    world = (ProcessGroup("world", tuple(range(ranks)), ranks),)
    none = pl.Series([[]] * nodes, dtype=pl.List(pl.UInt64))
    before = pl.Series([[node - 1] if node and chain else [] for node in range(nodes)], dtype=pl.List(pl.UInt64))
    kinds = np.where(collective, NodeType.COMM_COLL_NODE, NodeType.COMP_NODE).astype(np.uint8)
    known = {
        "comm_type": np.full(nodes, CommType.ALL_REDUCE, np.int64),
        "comm_size": np.full(nodes, 1 << 20),
        "pg_name": ["world"] * nodes,
    }
    traces = []
    for rank in range(ranks):
        columns = {
            "id": number.astype(np.uint64), "name": ["node"] * nodes, "type": kinds, "ctrl_deps": none,
            "data_deps": before, "sync_deps": none, "start_ns": pl.Series([None] * nodes, dtype=pl.Int64),
            "duration_ns": generator.integers(1_000, 9_000, nodes), "is_cpu_op": [False] * nodes,
            **(known if every else {}),
        }  # fmt: skip
        traces.append(Trace(pl.DataFrame(columns), world, TraceMetadata(rank=rank, family="synthesized")))
    return TraceSet(tuple(traces))


def engine_seconds(job: TraceSet, system: System) -> tuple[float, float]:
    """Return the CPU seconds of the engine's run, and of a whole simulation, of the best of five."""
    engine: list[float] = []
    whole: list[float] = []

    def timed(*args: object) -> object:
        begin = time.process_time()
        outcome = run_plan(*args)  # type: ignore[arg-type]
        engine.append(time.process_time() - begin)
        return outcome

    module.run_plan = timed  # type: ignore[assignment]
    prepared = prepare(job)
    for _ in range(5):
        begin = time.process_time()
        prepared.run(system, SimulateOptions(fold="off"))
        whole.append(time.process_time() - begin)
    module.run_plan = run_plan
    return min(engine), min(whole)


def point_seconds(system: System, fold: str) -> float:
    """Return the CPU seconds of a point of a sweep over bandwidths."""
    prepared = prepare(make_job(256, 130, chain=True, every=10))
    options = SimulateOptions(fold=fold)  # type: ignore[arg-type]
    prepared.run(system, options)
    begin = time.process_time()
    for step in range(20):
        inner, outer = system.dimensions
        faster = replace(inner, bandwidth_bytes_per_s=inner.bandwidth_bytes_per_s * (1 + step / 10))
        prepared.run(replace(system, dimensions=(faster, outer)), options)
    return (time.process_time() - begin) / 20


def main() -> None:
    """Run and print."""
    system = load_system("h100-dgx")
    for chain, every, what in (
        (True, 0, "chains of compute"),
        (False, 0, "compute, ready at once"),
        (True, 10, "chains with collectives"),
    ):
        engine, whole = engine_seconds(make_job(128, 2_000, chain=chain, every=every), system)
        print(f"128 x 2,000 nodes, {what}: engine {engine:.4f} CPU s, with preparation and totals {whole:.4f} CPU s")
    for fold in ("auto", "off"):
        print(f"256 x 130 nodes, one point, fold {fold}: {point_seconds(system, fold):.4f} CPU s")


if __name__ == "__main__":
    main()
