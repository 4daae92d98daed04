"""Replay a job without its model: its operators and communications, in recorded order, on this machine.

Communications are made on their process groups, with their sizes, one process a rank. Before any
process starts, all ranks are checked: what would not meet, or wait for ever, is an error. Under
another launcher: torchrun ... -m chakra_et.replay TRACES (the same options).

Example:
  chakra replay out/ --dry-run                             what would be replayed, and what can't be
  chakra replay out/ --nproc 2                             operators and communications, on gloo
  chakra replay out/ --only comm --check                   communications alone; what arrives is checked
  chakra replay out/ --only comm --delays none             ... as fast as they can
  chakra replay out/ --only comm --world-size 2            ... on fewer ranks
  chakra replay out/ --profile replayed/                   recorded again; then: chakra diff out/ replayed/
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chakra_et.cli._captures import make_room
from chakra_et.cli._output import print_json, print_wrote
from chakra_et.cli._profiles import add_source, read_all
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._types import output_path, whole_number

if TYPE_CHECKING:
    from pathlib import Path

    from chakra_et.replay.job.plan import Job

FINDINGS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from chakra_et.replay.job.arguments import add_options

    add_source(parser)
    parser.add_argument("--nproc", type=whole_number(1), metavar="N", help="processes: as many as there are ranks")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, and start nothing")
    add_options(parser)
    parser.add_argument("-o", "--out", type=output_path, metavar="DIR", help="folder for the report (replay.json)")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the way")
    parser.add_argument("--json", action="store_true", help="print the plan or the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Plan, check, run and print."""
    from chakra_et.io import refuse_existing, refuse_no_folder
    from chakra_et.replay.job.arguments import job_options

    if args.out is not None:
        refuse_no_folder(args.out)
        refuse_existing(args.out / "replay.json", force=args.force)
    if args.profile is not None and not args.dry_run:
        make_room(args.profile, force=args.force)
    try:
        options = job_options(args)
    except argparse.ArgumentTypeError as err:
        args.usage_error(str(err))
    with progress_bar() as progress:
        from chakra_et.replay.job.plan import plan_job

        job = plan_job(read_all(args.input, progress=progress), options, place=args.input, progress=progress)
    if args.nproc is not None and args.nproc != job.world_size:
        fewer = f"; for fewer ranks: --world-size {args.nproc}" if args.nproc < job.world_size else ""
        args.usage_error(f"--nproc: expected {job.world_size}, a process a rank, got {args.nproc}{fewer}")
    return _show_plan(args, job) if args.dry_run else _replay(args, job)


def _show_plan(args: argparse.Namespace, job: Job) -> int:
    from chakra_et.cli._replay import print_plan
    from chakra_et.replay.job.summary import summarize_job

    summary = summarize_job(job)
    if args.json:
        print_json(summary.as_dict())
    else:
        print_plan(summary)
    print_wrote(_write(args, summary.as_dict()), to_stderr=args.json)
    return 0


def _replay(args: argparse.Namespace, job: Job) -> int:
    from chakra_et.cli._replay import print_replay
    from chakra_et.replay.job.arguments import launch_options
    from chakra_et.replay.job.launch import launch
    from chakra_et.replay.job.summary import summarize_replay

    with progress_bar() as progress:
        reports = launch(job, launch_options(args), progress=progress)
    summary = summarize_replay(job, reports)
    if args.json:
        print_json(summary.as_dict())
    else:
        print_replay(summary)
    print_wrote(_write(args, summary.as_dict()), to_stderr=args.json)
    if args.profile is not None:
        print_wrote(sorted(args.profile.glob("*.json*")), to_stderr=args.json)
    return FINDINGS if summary.wrong else 0


def _write(args: argparse.Namespace, report: dict[str, object]) -> list[Path]:
    import msgspec

    from chakra_et.io import write_atomic

    if args.out is None:
        return []
    text = msgspec.json.format(msgspec.json.encode(report), indent=2)
    return [write_atomic(args.out / "replay.json", [text], force=args.force)]
