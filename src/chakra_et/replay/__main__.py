"""Replay a job under any launcher: one process a rank, as the environment says (RANK, WORLD_SIZE, MASTER_ADDR).

Example:
  torchrun --nproc-per-node 8 -m chakra_et.replay out/ --backend nccl --only comm
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from chakra_et.cli._profiles import add_source, read_all
from chakra_et.errors import ChakraError, ReplayError
from chakra_et.replay.job.arguments import add_options, job_options, launch_options
from chakra_et.replay.job.plan import plan_job
from chakra_et.replay.job.rank import Task, run_task
from chakra_et.replay.job.summary import ReplaySummary, summarize_replay
from chakra_et.units import format_bytes, format_ns

__all__ = ["main"]

_FINDINGS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run this process's rank, and return the exit code.

    Args:
        argv: Arguments without the program name; the process's own if None.
    """
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m chakra_et.replay", description=summary, epilog=rest.strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_source(parser)
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    args = parser.parse_args(argv)
    try:
        return _run(args, os.environ)
    except argparse.ArgumentTypeError as err:
        parser.error(str(err))
    except ChakraError as err:
        sys.stderr.write(f"chakra: error: {' '.join(str(err).split())}\n")
        return 1


def _run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    place, count = (_number(environment, name) for name in ("RANK", "WORLD_SIZE"))
    # Its neighbors convert at the same time.
    job = plan_job(read_all(args.input, jobs=1), job_options(args), place=args.input)
    if job.world_size != count:
        fewer = f"; for fewer ranks: --world-size {count}" if count < job.world_size else ""
        raise ReplayError(
            f"{args.input}: expected {job.world_size} processes, one a rank, got {count} (WORLD_SIZE){fewer}"
        )
    options = launch_options(args)
    local = int(environment.get("LOCAL_RANK", "0") or 0)
    active = tuple(rank for rank, plan in enumerate(job.plans) if plan.steps)
    task = Task(
        plan=job.plans[place],
        place=place,
        count=count,
        active=active,
        groups=job.groups,
        replay=options.replay,
        connect=replace(options.connect, device=local),
        record=options.record,
        gather=True,
    )
    reports = run_task(task)
    if not reports:
        return 0
    found = summarize_replay(job, reports)
    print(json.dumps(found.as_dict(), indent=2) if args.json else _text(found))
    return _FINDINGS if found.wrong else 0


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise ReplayError(
            f"{name}: expected a number in the environment, got '{text}'; start this with torchrun or another "
            "launcher, or use `chakra replay`, which starts all ranks of one machine itself"
        )
    return int(text)


def _text(found: ReplaySummary) -> str:
    lines = [one.headline for one in found.accuracies]
    lines += [
        f"{speed.kind.strip('_')} of group '{speed.group}' ({speed.members} ranks, {format_bytes(speed.size_bytes)}): "
        f"{speed.count:,} times, latency p50 {format_ns(speed.latency_p50_ns)}, p99 {format_ns(speed.latency_p99_ns)}, "
        f"bus bandwidth {format_bytes(speed.bus_bytes_per_s)}/s"
        for speed in found.speeds
    ]
    if found.checked:
        lines.append(f"checked {found.checked:,} results of communications: {len(found.wrong):,} wrong")
    return "\n".join(
        [*lines, *(f"wrong: {text}" for text in found.wrong[:16]), *(f"note: {note}" for note in found.notes)]
    )


if __name__ == "__main__":
    sys.exit(main())
