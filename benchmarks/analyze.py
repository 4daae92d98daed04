"""What analyses cost: `chakra analyze` as a user runs it, against HolisticTraceAnalysis (HTA), and at scale.

    python benchmarks/analyze.py [PART ...] [--traces FOLDER] [--hta PYTHON] [--runs N] [--ranks N] [--nodes N]

Parts (default: all but those that lack something, which say so):

    profile  every analysis of one profile of 109,000 events, from `.et` and from Parquet
    ranks    every analysis of 8 ranks, from `.et`
    hta      both profiles from raw JSON, converted in memory, against HTA loading them and doing its own subset
    path     the critical path over all ranks: nodes per CPU second, in memory and warm
    large    generated ranks as Parquet, more than memory should hold: CPU seconds, time, peak memory of all processes

FOLDER has the public profiles (`kineto/diff_control_a100.json.gz`, `megatron-tp8-a100/`); PYTHON is an interpreter of
an environment where HolisticTraceAnalysis is installed. CPU seconds are of processes of their own, start included, best
of the runs; a first run compiles the loops and isn't counted. Both sides of a ratio are measured here, in one run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from processes import measured

from chakra_et.conversion import convert
from chakra_et.io import write
from chakra_et.ir import Trace
from chakra_et.testing import make_profile_file

PROFILE = "kineto/diff_control_a100.json.gz"
RANKS = "megatron-tp8-a100"
CHAKRA = [sys.executable, "-m", "chakra_et.cli"]
NODES_PER_MEGABYTE = 5_500  # of a generated profile

# What HTA computes of what is computed here, the costly two on request. It takes the last step in, as `chakra` does.
HTA = """
import logging, sys, warnings
logging.disable(logging.CRITICAL); warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
names = sys.argv[2:]
trace = TraceAnalysis(trace_files=dict(enumerate(names)), include_last_profiler_step=True)
ranks = list(range(len(names)))
trace.get_temporal_breakdown(visualize=False)
trace.get_comm_comp_overlap(visualize=False)
trace.get_gpu_kernel_breakdown(visualize=False)
trace.get_idle_time_breakdown(ranks=ranks, visualize=False)
trace.get_queue_length_summary(ranks=ranks)
trace.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
trace.get_memory_bw_summary(ranks=ranks)
if "ops" in sys.argv[1]:
    import plotly.graph_objects
    plotly.graph_objects.Figure.show = lambda self, *args, **kwargs: None  # it draws whether asked to or not
    trace.get_aten_op_kernels_and_delay(ranks)
if "path" in sys.argv[1]:
    for rank in ranks:
        graph, found = trace.critical_path_analysis(rank, "", None)
        assert found
"""
HTA_RUNS = (
    ("", "HTA, load + its subset"),
    ("path", "HTA, these and the critical path"),
    ("path ops", "HTA, these and kernels by operator"),
)

# The first call compiles; the second is measured.
PATH = """
import sys, time
from chakra_et import load
from chakra_et.analysis.critical_path import critical_path
traces = load(sys.argv[1])
for _ in range(2):
    begin = time.process_time()
    critical_path(traces)
    seconds = time.process_time() - begin
print(sum(len(trace) for trace in traces), seconds)
"""


@dataclass(frozen=True)
class Setting:
    """What was asked for, and a folder to work in."""

    traces: Path
    hta: str | None
    runs: int
    ranks: int
    nodes: int
    folder: Path

    def profile(self) -> Path | None:
        """The profile of one rank, None where it isn't there."""
        return _present(self.traces / PROFILE)

    def rank_files(self) -> Path | None:
        """A folder with the profiles of 8 ranks, without their execution traces; None where they aren't there."""
        if _present(self.traces / RANKS) is None:
            return None
        links = self.folder / "profiles" / RANKS
        if not links.exists():
            links.mkdir(parents=True)
            for path in sorted((self.traces / RANKS).glob("*kineto*.json.gz")):
                (links / path.name).symlink_to(path.resolve())
        return links

    def converted(self, source: Path, *, to: str = "et") -> Path:
        """Return the folder of converted traces; a source is converted once."""
        out = self.folder / f"{source.name.split('.')[0]}-et"
        if not out.exists():
            measured([*CHAKRA, "convert", str(source), "-o", str(out)])
        if to == "et":
            return out
        other = out.with_name(f"{out.name}-{to}")
        if not other.exists():
            measured([*CHAKRA, "export", str(out), "--to", to, "-o", str(other)])
        return other


def _present(path: Path) -> Path | None:
    if path.exists():
        return path
    print(f"skipped: {path} isn't there; name the folder of profiles with --traces")
    return None


def analyze(source: Path) -> list[str]:
    """Return the command that runs every analysis."""
    return [*CHAKRA, "analyze", str(source), "--json"]


def best(command: Sequence[str], runs: int) -> tuple[float, float]:
    """Return CPU seconds and peak GB of the cheapest run of a command."""
    return min(measured(command) for _ in range(runs))


def line(what: str, seconds: float, peak: float, *, note: str = "") -> None:
    """Print one row."""
    print(f"{what:<58} {seconds:7.2f} CPU s {peak:6.2f} GB  {note}", flush=True)


def run_profile(setting: Setting) -> None:
    """Every analysis of one profile, from two formats."""
    source = setting.profile()
    if source is None:
        return
    for to in ("et", "parquet"):
        traces = setting.converted(source, to=to)
        measured(analyze(traces))
        line(f"{source.name.split('.')[0]}, all analyses, from {to}", *best(analyze(traces), setting.runs))


def run_ranks(setting: Setting) -> None:
    """Every analysis of 8 ranks."""
    source = setting.rank_files()
    if source is None:
        return
    traces = setting.converted(source)
    measured(analyze(traces))
    line(f"{RANKS}, 8 ranks, all analyses, from et", *best(analyze(traces), setting.runs))


def run_hta(setting: Setting) -> None:
    """From raw JSON, converted in memory, against HTA loading it and doing its own subset."""
    if setting.hta is None:
        print("skipped: the comparison needs --hta PYTHON, with HolisticTraceAnalysis installed there")
        return
    for source in (setting.profile(), setting.rank_files()):
        if source is None:
            continue
        name = source.name.split(".")[0]
        command = [*analyze(source), "--jobs", "1"]
        measured(command)
        ours, peak = best(command, setting.runs)
        line(f"{name}, all analyses, from raw JSON", ours, peak)
        files = [str(path) for path in (sorted(source.iterdir()) if source.is_dir() else [source])]
        for words, what in HTA_RUNS:
            command = [setting.hta, "-c", HTA, words, *files]
            try:
                seconds, peak = best(command, setting.runs)
            except SystemExit as err:
                print(f"skipped: {what} of {name} fails: {str(err).rsplit(':', 1)[-1].strip()}")
                continue
            line(f"{name}, {what}", seconds, peak, note=f"{seconds / ours:.1f} x ours")


def run_path(setting: Setting) -> None:
    """Nodes per CPU second of the critical path."""
    for source in (setting.profile(), setting.rank_files()):
        if source is None:
            continue
        command = [sys.executable, "-c", PATH, str(setting.converted(source))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"skipped: critical path of {source.name}: {done.stderr.strip().splitlines()[-1]}")
            continue
        nodes, seconds = done.stdout.split()
        rate = int(nodes) / float(seconds) / 1e3
        what = f"{source.name.split('.')[0]}, critical path of {int(nodes):,} nodes"
        print(f"{what:<58} {float(seconds):7.2f} CPU s {rate:8.0f} thousand nodes per CPU second")


def make_ranks(folder: Path, ranks: int, nodes: int) -> int:
    """Write ranks that do the same a microsecond apart, as Parquet; return their size on disk, bytes."""
    source = folder / "generated.json.gz"
    make_profile_file(source, megabytes=nodes / NODES_PER_MEGABYTE)
    (one,) = convert(device=source).traces
    groups = tuple(replace(group, ranks=tuple(range(ranks)), size=ranks) for group in one.process_groups)
    size = 0
    for rank in range(ranks):
        shifted = one.nodes.with_columns(pl.col("start_ns") + 1_000 * rank)
        facts = replace(one.metadata, rank=rank, world_size=ranks)
        path = write(Trace(shifted, groups, facts), folder / f"trace.{rank}.parquet")
        size += path.stat().st_size
    source.unlink()
    print(f"generated {ranks} ranks of {len(one):,} nodes: {size / 1e9:.2f} GB of Parquet")
    return size


def run_large(setting: Setting) -> None:
    """A set larger than memory should hold."""
    folder = setting.folder / "large"
    folder.mkdir()
    make_ranks(folder, setting.ranks, setting.nodes)
    begin = time.perf_counter()
    seconds, peak = measured_tree(analyze(folder))
    elapsed = time.perf_counter() - begin
    line(f"{setting.ranks} generated ranks, all analyses", seconds, peak, note=f"of all processes; {elapsed:.1f} s")


def measured_tree(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return CPU seconds and peak memory in GB of its processes together, a shared page once."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, sum(map(_proportional_kb, _tree(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    done.set()
    watcher.join()
    if status:
        raise SystemExit(f"{' '.join(command)}: failed with status {status}")
    return usage.ru_utime + usage.ru_stime, peak / 1e6


def _tree(pid: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(each for child in children for each in _tree(child))]


def _proportional_kb(pid: int) -> int:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) for row in rows if row.startswith("Pss:")), 0)


PARTS: dict[str, Callable[[Setting], None]] = {
    "profile": run_profile,
    "ranks": run_ranks,
    "hta": run_hta,
    "path": run_path,
    "large": run_large,
}


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage="%(prog)s [PART ...] [options]"
    )
    shared = Path(__file__).resolve().parents[2] / "shared" / "traces"
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    parser.add_argument("--traces", type=Path, default=shared)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=64, help="of the generated set")
    parser.add_argument("--nodes", type=int, default=200_000, help="of each generated rank, about")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"expected parts among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(args.traces, args.hta, args.runs, args.ranks, args.nodes, Path(folder))
        for part in args.parts or PARTS:
            PARTS[part](setting)


if __name__ == "__main__":
    main()
