"""Make valid traces of ones that others wrote.

Removes dangling, self and cyclic edges (of a cycle, the least certain edge goes), renumbers duplicate
ids, and sets missing types. Every change is listed, and nothing else is touched.

Example:
  chakra repair theirs.et -o fixed/
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chakra_et.cli._output import print_json, print_line, print_table, print_wrote
from chakra_et.cli._traces import add_input, read_traces

ROWS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    parser.add_argument("-o", "--out", type=Path, default=Path("repaired"), help="folder (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the way")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")


def run(args: argparse.Namespace) -> int:
    """Repair, write, and print the changes."""
    from chakra_et.io import write_set
    from chakra_et.ir import TraceSet
    from chakra_et.passes.repair import repair

    traces = read_traces(args)
    repaired, changes = [], []
    for rank, trace in zip(traces.ranks, traces, strict=True):
        fixed, made = repair(trace)
        repaired.append(fixed)
        changes += [{"rank": rank, **change.as_dict()} for change in made]
    written = write_set(TraceSet(tuple(repaired), traces.process_groups), args.out, force=args.force)
    if args.json:
        print_json({"changes": changes})
    elif changes:
        columns = tuple(changes[0])
        rows = [tuple("-" if value is None else str(value) for value in change.values()) for change in changes]
        print_table("Changes", columns, rows, left=(1, 3, 4, 5), limit=ROWS)
    print_line(f"{len(changes):,} changes", to_stderr=args.json)
    print_wrote(written, to_stderr=args.json)
    return 0
