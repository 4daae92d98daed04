"""Sweep a job of 256 ranks, 130 nodes each, over a grid of 210 points: `chakra sweep` as a user runs it.

The process is timed from its start to its end: loading Python, reading 256 files, preparing, simulating on all cores,
writing the table and the picture. Two jobs: one in which all ranks do the same (folded), and one in which each rank
computes for a different time, so that all 256 are simulated in every point.

The ratio is to `simulate`, which prepares the job for each point: its time for some of the points here, warm, in one
process, times 210. Every point is then simulated again without folding, and must agree with its row in the time, the
communication that is exposed (mean and most over the ranks), and the number of ranks.

    python benchmarks/sweep.py [--samples 4] [--no-verify]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from chakra_et import TraceSet, load_system, save
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder
from chakra_et.sim.simulate import prepare, simulate
from chakra_et.specs import with_overrides

TP, DP, LAYERS = 8, 32, 16
WORLD, NODES = TP * DP, 130
GRID = {
    "scale_up.size": "4,8,16,32,64,128,256",
    "scale_up.bandwidth": "150..3600x2",
    "scale_out.bandwidth": "12.5,25,50,100,200GB/s",
}
FIGURE_S = 60.0


def make_rank(rank: int, *, jitter: bool) -> Trace:
    """Return the trace of a rank: layers with tensor parallel all-reduces, gradients reduced over data parallel ranks.

    Args:
        rank: Global rank; tensor parallel neighbors follow one another.
        jitter: True for durations that differ from rank to rank.
    """
    tensor, data = rank % TP, rank // TP
    groups = [
        ProcessGroup("tp", tuple(range(data * TP, data * TP + TP)), TP, "tensor"),
        ProcessGroup("dp", tuple(range(tensor, WORLD, TP)), DP, "data"),
    ]
    builder = TraceBuilder(rank=rank, world_size=WORLD, process_groups=groups)
    slower = 97 * rank if jitter else 0
    reduce = {"pg_name": "tp", "comm_type": int(CommType.ALL_REDUCE), "comm_size": 32 << 20}
    last: list[int] = []
    for layer in range(2 * LAYERS):
        gemm = builder.add(f"gemm {layer}", NodeType.COMP_NODE, duration_ns=400_000 + slower, data_deps=last)
        gelu = builder.add(f"gelu {layer}", NodeType.COMP_NODE, duration_ns=60_000, data_deps=[gemm])
        last = [builder.add(f"reduce {layer}", NodeType.COMM_COLL_NODE, data_deps=[gelu], **reduce)]
        # Forward, the next layer's weights are gathered; backward, gradients are reduced; both beside the compute.
        kind, size = (CommType.ALL_GATHER, 1 << 20) if layer < LAYERS else (CommType.REDUCE_SCATTER, 32 << 20)
        weights = {"pg_name": "dp", "comm_type": int(kind), "comm_size": size}
        builder.add(f"weights {layer}", NodeType.COMM_COLL_NODE, data_deps=[gemm], **weights)
    norm = builder.add("norm", NodeType.COMM_COLL_NODE, data_deps=last, pg_name="dp", comm_type=0, comm_size=4)
    builder.add("adam", NodeType.COMP_NODE, duration_ns=500_000 + slower, data_deps=[norm])
    return builder.build()


def make_job(*, jitter: bool) -> TraceSet:
    """Return the traces of all ranks."""
    traces = TraceSet(tuple(make_rank(rank, jitter=jitter) for rank in range(WORLD)))
    if {len(trace) for trace in traces} != {NODES}:
        raise SystemExit(f"expected {NODES} nodes a rank, got {len(traces.traces[0])}")
    return traces


def timed_sweep(folder: Path, jobs: int) -> tuple[dict, float, float]:
    """Run the command; return its JSON, and wall clock and CPU time, s."""
    words = [sys.executable, "-m", "chakra_et.cli", "sweep", str(folder / "et"), "--system", "h100-dgx", "--json"]
    words += ["-o", str(folder / "out"), "--jobs", str(jobs), "--force"]
    for key, values in GRID.items():
        words += ["--grid", f"{key}={values}"]
    before, begin = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - begin, getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), wall, cpu


def system_of(row: dict) -> object:
    """Return the system of a point."""
    values = {
        "scale_up.size": row["scale_up.size"],
        "scale_up.bandwidth": f"{row['scale_up.bandwidth_gb_per_s']}GB/s",
        "scale_out.bandwidth": f"{row['scale_out.bandwidth_gb_per_s']}GB/s",
    }
    return with_overrides(load_system("h100-dgx"), values)


def verify(traces: TraceSet, rows: list[dict]) -> int:
    """Simulate every point again, all ranks of it, and return how many rows agree."""
    prepared = prepare(traces, fold="off")
    agree = 0
    for row in rows:
        result = prepared.run(system_of(row))
        exposed = [rank.exposed_communication_ns for rank in result.ranks]
        found = (result.finish_ns, round(sum(exposed) / WORLD), max(exposed), [rank.rank for rank in result.ranks])
        kept = (row["finish_ns"], row["exposed_communication_mean_ns"], row["exposed_communication_max_ns"])
        agree += found == (*kept, list(range(row["ranks"])))
    return agree


def run_job(name: str, *, jitter: bool, samples: int, check: bool) -> None:
    """Time one job, and print."""
    traces = make_job(jitter=jitter)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save(traces, folder / "et")
        timed_sweep(folder, 1)  # compiles what isn't yet
        made, wall, cpu = timed_sweep(folder, 0)
        _, wall_one, _ = timed_sweep(folder, 1)
        _, wall_two, _ = timed_sweep(folder, 2)
    rows = made["points"]
    chosen = rows[:: max(1, len(rows) // samples)][:samples]
    begin = time.perf_counter()
    for row in chosen:
        simulate(traces, system_of(row))
    alone = (time.perf_counter() - begin) / len(chosen) * len(rows)
    print(f"{name}: {len(rows)} points, {WORLD} ranks of {NODES} nodes, {rows[0]['folded_classes']} simulated")
    print(f"  chakra sweep              {wall:6.1f} s ({cpu:.1f} CPU s)")
    print(f"  figure                    {FIGURE_S:6.1f} s; ratio {FIGURE_S / wall:.1f}")
    print(f"  --jobs 1, --jobs 2        {wall_one:6.1f} s, {wall_two:.1f} s")
    print(f"  simulate for each point   {alone:6.1f} s; ratio {alone / wall:.1f}")
    complete = sum(row["ranks"] == WORLD and row["error"] is None for row in rows)
    print(f"  points that cover all ranks {complete} of {len(rows)}")
    if check:
        print(f"  rows that agree with all ranks simulated again: {verify(traces, rows)} of {len(rows)}")


def main() -> None:
    """Run the benchmark and print its ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4, help="points for the ratio")
    parser.add_argument("--no-verify", action="store_true", help="don't simulate every point again")
    args = parser.parse_args()
    run_job("all ranks do the same", jitter=False, samples=args.samples, check=not args.no_verify)
    run_job("each rank differs", jitter=True, samples=args.samples, check=not args.no_verify)


if __name__ == "__main__":
    main()
