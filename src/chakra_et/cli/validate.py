"""Check traces against the rules of the format or of a target.

Example:
  chakra validate out/
  chakra validate out/ --target astra-sim
  chakra validate theirs.et --json

Exit code 3 when there are errors; warnings alone are good.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chakra_et.cli._output import print_json, print_line, print_table
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.units import format_number_of

if TYPE_CHECKING:
    from chakra_et.validation import ValidationReport

ROWS = 50
FINDINGS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    parser.add_argument("--target", choices=("astra-sim",), help="also check what this program needs")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Validate and print the findings."""
    from chakra_et.validation import validate

    report = validate(read_traces(args), target=args.target)
    if args.json:
        print_json(report.as_dict())
    else:
        print_findings(report)
    return FINDINGS if report.errors else 0


def print_findings(report: ValidationReport) -> None:
    """Print findings as a table, and their number."""
    if report.findings:
        rows = [
            (
                finding.severity,
                finding.rule,
                "-" if finding.rank is None else str(finding.rank),
                "-" if finding.node is None else str(finding.node),
                finding.message,
            )
            for finding in report.findings
        ]
        print_table("", ("severity", "rule", "rank", "node", "message"), rows, left=(0, 1, 4), limit=ROWS)
    print_line(f"{format_number_of(report.errors, 'error')}, {format_number_of(report.warnings, 'warning')}")
