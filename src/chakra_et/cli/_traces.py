"""Reading the trace sets that subcommands work on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chakra_et.cli._types import input_path

if TYPE_CHECKING:
    from chakra_et.ir import TraceSet


def add_input(parser: argparse.ArgumentParser) -> None:
    """Declare the traces to read."""
    parser.add_argument("input", type=input_path, metavar="TRACES", help="trace file, directory of ranks, glob or URL")


def read_traces(args: argparse.Namespace) -> TraceSet:
    """Read the traces that the command line names."""
    from chakra_et.io import read_set

    return read_set(args.input)
