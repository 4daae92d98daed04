"""Rebuild the schedule from edges and durations alone.

The result is compared with the recorded start times, which are used for nothing else. With --against,
it is compared with the profile itself: device activities are found again by correlation and name.

Example:
  chakra reconstruct out/
  chakra reconstruct out/trace.0.et --against kineto.json.gz --json
"""

from __future__ import annotations

import argparse

from chakra_et.cli._traces import add_input


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    parser.add_argument("--against", metavar="PROFILE", help="compare with this Kineto profile, of one rank")
    parser.add_argument("--json", action="store_true", help="print the errors as JSON")


def run(args: argparse.Namespace) -> int:
    """Rebuild and compare."""
    raise NotImplementedError(args)
