"""Make valid traces of ones that others wrote.

Afterwards ids are unique, every edge leads to another node, the graph is acyclic (of a cycle, the
least certain edge goes), every node has a type, and a host call is not taken for the communication
that it started: on a rank with a device, a communication marked as a CPU node becomes compute where
the device communicates, and loses the mark where it doesn't. Nothing else is touched. Changes are
counted by rule, and the first ones listed; --json lists all of them.

Example:
  chakra repair theirs.et -o fixed/
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from chakra_et.cli._output import print_json, print_line, print_table, print_wrote
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.cli._types import output_path
from chakra_et.units import format_count, format_number_of

ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    parser.add_argument("-o", "--out", type=output_path, default="repaired", help="folder (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the way")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")


def run(args: argparse.Namespace) -> int:
    """Repair, write, and print the changes."""
    from chakra_et.io import refuse_no_folder, write_set
    from chakra_et.ir import TraceSet
    from chakra_et.passes.repair import repair

    refuse_no_folder(args.out)
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
        _print_changes(changes)
    print_line(format_number_of(len(changes), "change"), to_stderr=args.json)
    print_wrote(written, to_stderr=args.json)
    return 0


def _print_changes(changes: list[dict[str, Any]]) -> None:
    counts = Counter((change["rule"], change["rank"]) for change in changes)
    by_rule = [(rule, str(rank), format_count(count)) for (rule, rank), count in counts.most_common()]
    print_table("Changes by rule", ("rule", "rank", "changes"), by_rule, limit=ROWS)
    columns = tuple(changes[0])
    rows = [tuple("-" if value is None else str(value) for value in change.values()) for change in changes[:ROWS]]
    print_table("Changes" if len(changes) <= ROWS else "The first changes", columns, rows, left=(1, 3, 4, 5))
