"""Record a PyTorch job, without a change of its code.

Runs the command with a start-up hook in each of its processes: over a window of steps, counted at
the optimizer, PyTorch's two profilers record every rank, together with the process groups. Outside
the window the job runs as always, and nothing that fails in the capture stops it.

Example:
  chakra capture -o out/ -- torchrun --nproc-per-node 4 train.py    the 13th step, after 10 and 2 to warm up
  chakra capture -o out/ --seconds 2 --after 30 -- python serve.py  a job without an optimizer
  chakra capture --fake --world-size 64 -o out/ train.py            no GPU, no job: what it would do
  chakra convert out/ -o traces/                                    then
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakra_et.cli._capture_fake import FAKE_ONLY, add_fake_arguments, run_fake
from chakra_et.cli._captures import make_room
from chakra_et.cli._output import print_json, print_line, print_table
from chakra_et.cli._types import output_path, seconds, whole_number
from chakra_et.errors import InputError

if TYPE_CHECKING:
    from chakra_et.capture.options import CaptureOptions

# Enough for allocators and autotuners to settle.
_WAIT = 10
_PATIENCE_S = 30.0
# Options that say nothing of a job that doesn't run, and their defaults.
_RUNNING_ONLY = {
    "warmup": 2, "seconds": 0.0, "after": 0.0, "stacks": False, "memory": False, "index_ranges": False,
    "anonymous": False,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    # What follows a script is the script's, also if it begins like an option of ours.
    parser.allow_abbrev = False
    parser.add_argument("-o", "--out", type=output_path, default="chakra-capture", help="folder (default: %(default)s)")
    parser.add_argument(
        "--wait", type=whole_number(0), metavar="N", help="steps before the window (default: 10; with --fake: 1)"
    )
    parser.add_argument(
        "--warmup",
        type=whole_number(0),
        default=_RUNNING_ONLY["warmup"],
        metavar="N",
        help="steps to warm up in (default: %(default)s; not with --fake)",
    )
    parser.add_argument(
        "--active", type=whole_number(1), default=1, metavar="N", help="steps to record (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=0.0, metavar="S", help="record this long instead of counting steps"
    )
    parser.add_argument(
        "--after",
        type=seconds,
        default=0.0,
        metavar="S",
        help="with --seconds: begin so long after PyTorch is loaded",
    )
    parser.add_argument("--ranks", type=_ranks, default=(), metavar="R,R", help="ranks to capture, such as 0,8-15")
    parser.add_argument("--stacks", action="store_true", help="record Python stacks and modules (slower)")
    parser.add_argument("--memory", action="store_true", help="record allocations and frees")
    parser.add_argument(
        "--index-ranges", action="store_true", help="record the range of integer tensors, for replay (slower)"
    )
    parser.add_argument("--anonymous", action="store_true", help="write host names as hashes, and no paths")
    parser.add_argument("--force", action="store_true", help="remove an earlier capture from the folder")
    parser.add_argument(
        "--json", action="store_true", help="print the manifests as JSON; the job's own output goes to stderr"
    )
    add_fake_arguments(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the job, with its arguments")


def run(args: argparse.Namespace) -> int:
    """Run the job, and say what was captured of it."""
    from chakra_et.capture.options import CaptureOptions

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        args.usage_error("expected a command to capture: chakra capture -o out/ -- torchrun ... train.py")
    unfit = _unfit(args, FAKE_ONLY if not args.fake else _RUNNING_ONLY)
    if unfit:
        args.usage_error(f"{unfit}: expected {'no --fake' if args.fake else '--fake'} beside it")
    if args.after and not args.seconds:
        args.usage_error("--after: expected --seconds beside it; steps before the window are counted by --wait")
    if args.fake:
        return run_fake(args, command)
    options = CaptureOptions(
        out=os.path.abspath(args.out), wait=_WAIT if args.wait is None else args.wait, warmup=args.warmup,
        active=args.active, ranks=args.ranks, stacks=args.stacks, memory=args.memory,
        index_ranges=args.index_ranges, anonymous=args.anonymous, after_seconds=args.after, seconds=args.seconds,
    )  # fmt: skip
    make_room(args.out, force=args.force)
    code = _run_job(command, options, to_stderr=args.json)
    return _report(args.out, code, as_json=args.json, steps=not args.seconds)


def _unfit(args: argparse.Namespace, defaults: Mapping[str, object]) -> str:
    """Return the options of a list that were given, as the user writes them."""
    given = [name for name, default in defaults.items() if getattr(args, name) != default]
    return ", ".join("--" + name.replace("_", "-") for name in given)


def _ranks(text: str) -> tuple[int, ...]:
    """Return the ranks of ``0,8-15``."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or len(low) > 8 or len(high) > 8:
            raise argparse.ArgumentTypeError(f"expected ranks such as 0,8-15, got '{text}'")
        found.extend(range(int(low), int(high or low) + 1))
    return tuple(sorted(set(found)))


def _run_job(command: list[str], options: CaptureOptions, *, to_stderr: bool) -> int:
    """Run the job and return its exit code; a signal that ends us ends it first."""
    from chakra_et.capture import startup_folder

    paths = [str(startup_folder()), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    environment = {**os.environ, **options.to_environment(), "PYTHONPATH": os.pathsep.join(paths)}
    try:
        job = subprocess.Popen(command, env=environment, stdout=sys.stderr if to_stderr else None)
    except FileNotFoundError as err:
        raise InputError(f"{command[0]}: expected a command to run, found none of that name") from err
    except OSError as err:
        raise InputError(f"{command[0]}: expected a command to run, got an error: {err.strerror}") from err
    try:
        return job.wait()
    except BaseException:
        # Ctrl-C reaches the job by itself; it is given time to end its files.
        if job.poll() is None:
            job.terminate()
            try:
                job.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                job.kill()
        raise


def _report(folder: Path, code: int, *, as_json: bool, steps: bool) -> int:
    import json

    manifests = [json.loads(path.read_text()) for path in sorted(folder.glob("manifest.*.json"))]
    manifests.sort(key=lambda record: record["rank"])
    partial = sorted(folder.glob("*.partial.json"))
    if as_json:
        print_json({"exit_code": code, "ranks": manifests, "partial": [path.name for path in partial]})
    elif manifests:
        columns = ["steps", "mean step", "before", "overhead", "pause"] if steps else ["length"]
        print_table("Captured", ["rank", *columns, "ended by", "files"],
                    [_row(record, folder, steps) for record in manifests], left=(len(columns) + 1,))  # fmt: skip
        print_line(f"Wrote {folder}; next: chakra convert {folder} -o traces/")
    if code:
        print_line(f"chakra: the job ended with exit code {code}", to_stderr=True)
    for path in partial:
        print_line(f"{path}: the process was killed in the window, or its files could not be finished; "
                   "`chakra convert` reads what is there", to_stderr=True)  # fmt: skip
    if not manifests and not partial:
        print_line(f"chakra: error: nothing was captured: {_reason(steps)}", to_stderr=True)
    return code or (0 if manifests or partial else 1)


def _reason(steps: bool) -> str:
    if steps:
        return "the window opens after --wait steps of an optimizer; lower it, or use --seconds where there is none"
    return "PyTorch wasn't loaded, or the job ended before the window opened; lower --after"


def _row(record: dict[str, Any], folder: Path, steps: bool) -> list[str]:
    from chakra_et.units import format_bytes, format_ns

    window = record["window"]
    spans, before = window["step_ns"], window["step_before_ns"]
    mean = sum(spans) / max(len(spans), 1)
    size = sum((folder / name).stat().st_size for name in record["files"])
    cells = [format_ns(round(mean))]
    if steps:
        against = [format_ns(round(before)), f"{mean / before - 1:+.0%}"] if before else ["-", "-"]
        cells = [str(len(spans)), *cells, *against, format_ns(window["pause_ns"])]
    return [str(record["rank"]), *cells, window["ended_by"], format_bytes(size)]
