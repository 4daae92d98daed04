"""The options of a replay on the command line, of `chakra replay` and of `python -m chakra_et.replay` alike.

Declaring them loads nothing heavy: `chakra --help` shows every verb.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from chakra_et.replay.communications.call import KINDS

if TYPE_CHECKING:
    from chakra_et.replay.job.launch import LaunchOptions
    from chakra_et.replay.job.plan import JobOptions

__all__ = ["add_options", "job_options", "launch_options"]

_TYPES = tuple(dict.fromkeys(kind.strip("_") for kind in KINDS))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--backend", choices=("gloo", "nccl"), default="gloo",
        help="who communicates: gloo on CPUs, nccl on GPUs (RCCL answers to nccl, too; default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--only", choices=("comm", "compute"), help="communications alone, or operators alone")
    parser.add_argument(
        "--delays", choices=("measured", "none"), default="measured",
        help="with --only comm: hold the recorded time between communications, or not (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--host-time", choices=("measured", "gaps", "none"), default="measured",
        help="pace calls as recorded, hold the pauses between them, or let them follow each other as fast as they can "
             "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--warmup", type=_number(0), default=1, metavar="N", help="passes before those measured")
    parser.add_argument("--repeats", type=_number(1), default=3, metavar="N", help="passes measured (default: 3)")
    parser.add_argument(
        "--iterations", type=_span, metavar="A-B", help="recorded iterations to replay, such as 3 or 2-4"
    )
    parser.add_argument(
        "--group", action="append", default=[], metavar="NAME", help="only communications of a group; may be repeated"
    )
    parser.add_argument(
        "--type", choices=_TYPES, action="append", default=[], metavar="KIND",
        help="only communications of a kind, such as allreduce or send; may be repeated",
    )  # fmt: skip
    parser.add_argument("--world-size", type=_number(1), default=0, metavar="N", help="ranks, at most as recorded")
    parser.add_argument(
        "--sizes", choices=("keep", "scale"), default="keep",
        help="with --world-size: keep what each rank gives, or scale it so that the whole stays (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--seed", type=_number(0), default=0, metavar="N", help="of all random numbers (default: 0)")
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="SECONDS",
        help="longest time that a rank may wait for others (default: 60)",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true",
        help="with --only comm: check what arrives, element by element (exit code 3: something is wrong)",
    )  # fmt: skip
    parser.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE",
        help="Python module that registers custom operators; may be repeated",
    )  # fmt: skip
    parser.add_argument("--profile", type=_folder, metavar="DIR", help="record the replay, as `chakra capture` does")


def job_options(args: argparse.Namespace) -> JobOptions:
    """Return what of the job is replayed.

    Raises:
        ArgumentTypeError: Options that don't go together.
    """
    from chakra_et.replay.job.plan import JobOptions
    from chakra_et.replay.plan.comms import CommFilter

    if args.check and args.only != "comm":
        raise ArgumentTypeError("--check: expected --only comm beside it: operators overwrite what tells what is right")
    if args.delays == "none" and args.only != "comm":
        raise ArgumentTypeError("--delays none: expected --only comm beside it; operators are paced by --host-time")
    if args.sizes == "scale" and not args.world_size:
        raise ArgumentTypeError("--sizes scale: expected --world-size beside it: as many ranks as recorded keep theirs")
    if args.only == "compute" and (args.group or args.type):
        raise ArgumentTypeError("--group, --type: expected communications, got --only compute")
    kinds = tuple(args.type)
    return JobOptions(
        only=args.only or "all",
        keep=CommFilter(tuple(args.group), kinds, args.iterations),
        world_size=args.world_size,
        sizes=args.sizes,
    )


def launch_options(args: argparse.Namespace) -> LaunchOptions:
    """Return how it is run."""
    from chakra_et.replay.job.launch import LaunchOptions
    from chakra_et.replay.options import ConnectOptions, ReplayOptions

    replay = ReplayOptions(
        only=args.only or "all",
        delays=args.delays,
        host_time=args.host_time,
        device="cpu" if args.backend == "gloo" else "cuda",
        warmup=args.warmup,
        repeats=args.repeats,
        seed=args.seed,
        modules=tuple(args.modules),
    )
    connect = ConnectOptions(backend=args.backend, timeout_s=args.timeout, check=args.check, seed=args.seed)
    return LaunchOptions(replay, connect, args.profile)


def _number(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else least - 1
        if number < least:
            raise ArgumentTypeError(f"expected a whole number, {least} or more, got '{text}'")
        return number

    return parse


def _span(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    parts = (first, last if dash else first)
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts) or int(parts[1]) < int(first):
        raise ArgumentTypeError(f"expected iterations such as 3 or 2-4, got '{text}'")
    return int(first), int(parts[1])


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    # Less than ranks need to find each other ends them inside PyTorch, some without a word.
    if not 1 <= number < 1e6:
        raise ArgumentTypeError(f"expected seconds, at least 1, got '{text}'")
    return number


def _folder(text: str) -> Path:
    if not text.strip():
        raise ArgumentTypeError("expected a folder, got an empty name")
    return Path(text).absolute()
