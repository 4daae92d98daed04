"""Cut out an iteration, a stretch of time, or nodes and their causes.

Edges into the part that was cut away become gaps, so that the rest still rebuilds to its own
timeline. `chakra info` lists the iterations that there are.

Example:
  chakra slice out/ --iteration 3 -o step3/
  chakra slice out/ --time 10ms:25ms -o window/
  chakra slice out/ --rank 0 --ids 120,121 -o cone/
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from chakra_et.cli._output import print_wrote
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.cli._types import node_ids, output_path, time_range, whole_number
from chakra_et.errors import InputError

if TYPE_CHECKING:
    from chakra_et.ir import Trace, TraceSet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    part = parser.add_mutually_exclusive_group(required=True)
    part.add_argument("--iteration", type=int, metavar="N", help="training step N: ProfilerStep#N, else the N-th")
    part.add_argument(
        "--time",
        type=time_range,
        metavar="A:B",
        help="from A to B after the first node, such as 10ms:25ms; units: ns (default), us, ms, s; "
        "10ms: is to the end, :25ms from the start",
    )
    part.add_argument(
        "--ids", type=node_ids, metavar="ID,ID", help="these nodes of one rank and all that they depend on"
    )
    parser.add_argument("--rank", type=whole_number(0), metavar="R", help="only this rank (default: all)")
    parser.add_argument("-o", "--out", type=output_path, default="slice", help="folder (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the way")


def run(args: argparse.Namespace) -> int:
    """Select and write."""
    from chakra_et.io import refuse_no_folder, write_set

    refuse_no_folder(args.out)
    traces = read_traces(args)
    if args.rank is not None:
        traces = _one_rank(traces, args.rank)
    elif args.ids is not None and len(traces) > 1:
        ranks = ", ".join(map(str, traces.ranks))
        raise InputError(f"{args.input}: expected one rank, since each has its own ids, got ranks {ranks}; add --rank")
    print_wrote(write_set(traces.map(_selection(args)), args.out, force=args.force))
    return 0


def _one_rank(traces: TraceSet, rank: int) -> TraceSet:
    trace = traces.trace(rank)
    # A trace that doesn't tell its rank has it from its place in the set, which is lost here.
    return replace(traces, traces=(replace(trace, metadata=replace(trace.metadata, rank=rank)),))


def _selection(args: argparse.Namespace) -> Callable[[Trace], Trace]:
    from chakra_et.passes.select import select_ids, select_iteration, select_time

    if args.iteration is not None:
        return lambda trace: select_iteration(trace, args.iteration)
    if args.time is not None:
        begin_ns, end_ns = args.time
        return lambda trace: select_time(trace, begin_ns, end_ns)
    return lambda trace: select_ids(trace, args.ids)
