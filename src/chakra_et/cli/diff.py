"""Say what changed from one trace set to another: the step, operators, kernels, communications, launches.

Times are those of a step: means over the chosen iterations and the ranks. What belongs together is found by node ids
in copies (simulated, replayed, edited), else by operator, shapes, kernel and position. A change is beyond noise if it
is larger than what steps vary by among themselves.

Example:
  chakra diff before/ after/                      one screen: the step, what got slower and faster, what is new
  chakra diff out/ simulated/                     measured against simulated, node by node
  chakra diff before/ after/ --fail-above 5       for CI: exit code 3 if a step takes over 5 % longer
  chakra diff before/ after/ --csv > changes.csv  all rows
"""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from chakra_et.cli._analysis import add_choice, keys
from chakra_et.cli._diff_screen import print_screen
from chakra_et.cli._output import print_json, print_line
from chakra_et.cli._profiles import add_source, read_source
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._types import whole_number

if TYPE_CHECKING:
    from chakra_et.analysis.diff import Diff
    from chakra_et.analysis.options import Options

ROWS = 5
FINDINGS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_source(parser, "before", "BEFORE")
    add_source(parser, "after", "AFTER")
    parser.add_argument("--by", type=keys, metavar="rank", help="tell ranks apart")
    parser.add_argument(
        "--match", choices=("auto", "ids", "names"), default="auto",
        help="ids: nodes of equal ids are the same; names: by operator, shapes, kernel and position (default: ids in "
        "copies, such as simulated traces, else names)",
    )  # fmt: skip
    add_choice(parser)
    parser.add_argument(
        "--fail-above", type=_percent, metavar="PERCENT", help="exit code 3 if a step takes longer by more than that"
    )
    parser.add_argument(
        "--limit", type=whole_number(1), default=ROWS, metavar="N", help="rows of a table (default: %(default)s)"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON, all rows")
    output.add_argument("--csv", action="store_true", help="print the table as CSV, all rows")


def _percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"expected percent such as 5, 0 or more, got '{text}'")
    return value


def run(args: argparse.Namespace) -> int:
    """Compare, and print."""
    from chakra_et.analysis.diff import diff

    options = _options(args)
    with progress_bar() as report:
        before, after = (read_source(name, jobs=args.jobs, progress=report)[0] for name in (args.before, args.after))
        found = diff(before, after, options=options, match=args.match, jobs=args.jobs, progress=report)
    if args.json:
        print_json(found.as_dict())
    elif args.csv:
        sys.stdout.write(found.table.write_csv())
    else:
        print_screen(found, args.before, args.after, limit=args.limit)
    return _verdict(args, found)


def _options(args: argparse.Namespace) -> Options:
    from chakra_et.analysis.options import Options
    from chakra_et.specs import load_kernel_classes

    return Options(
        iteration=args.iteration,
        by=args.by,
        kernel_classes=load_kernel_classes(*args.kernel_classes),
        linked_only=args.linked_only,
    )


def _verdict(args: argparse.Namespace, found: Diff) -> int:
    """Return the exit code, and say why it isn't 0."""
    slower = found.slowdown
    if args.fail_above is None or slower is None or 100 * slower <= args.fail_above:
        return 0
    print_line(f"A step takes {100 * slower:.1f} % longer, more than {args.fail_above:g} %.", to_stderr=True)
    return FINDINGS
