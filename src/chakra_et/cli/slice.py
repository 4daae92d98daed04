"""Cut out an iteration, a stretch of time, or nodes and their causes.

Edges into the part that was cut away become gaps, so that the rest still rebuilds to its own
timeline.

Example:
  chakra slice out/ --iteration 3 -o step3/
  chakra slice out/ --time 10ms:25ms -o window/
  chakra slice out/trace.0.et --ids 120,121 -o cone/
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from chakra_et.cli._output import print_wrote
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.errors import InputError
from chakra_et.units import parse_ns

if TYPE_CHECKING:
    from chakra_et.ir import Trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    part = parser.add_mutually_exclusive_group(required=True)
    part.add_argument("--iteration", type=int, metavar="N", help="training step N: ProfilerStep#N, else the N-th")
    part.add_argument(
        "--time", type=_time_range, metavar="A:B", help="from A to B after the first node, such as 10ms:25ms"
    )
    part.add_argument("--ids", type=_node_ids, metavar="ID,ID", help="these nodes and all that they depend on")
    parser.add_argument("-o", "--out", type=Path, default=Path("slice"), help="folder (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the way")


def run(args: argparse.Namespace) -> int:
    """Select and write."""
    from chakra_et.io import write_set

    written = write_set(read_traces(args).map(_selection(args)), args.out, force=args.force)
    print_wrote(written)
    return 0


def _selection(args: argparse.Namespace) -> Callable[[Trace], Trace]:
    from chakra_et.passes.select import select_ids, select_iteration, select_time

    if args.iteration is not None:
        return lambda trace: select_iteration(trace, args.iteration)
    if args.time is not None:
        begin_ns, end_ns = args.time
        return lambda trace: select_time(trace, begin_ns, end_ns)
    return lambda trace: select_ids(trace, args.ids)


def _time_range(text: str) -> tuple[int, int]:
    begin, _, end = text.partition(":")
    try:
        begin_ns, end_ns = parse_ns(begin), parse_ns(end)
    except InputError:
        raise argparse.ArgumentTypeError(f"expected A:B such as 10ms:25ms, got '{text}'") from None
    if end_ns <= begin_ns:
        raise argparse.ArgumentTypeError(f"expected the end after the beginning, got '{text}'")
    return begin_ns, end_ns


def _node_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"expected node ids such as 120,121, got '{text}'")
    return [int(part) for part in parts]
