"""What analyses run on: traces, which are read a rank at a time, or profiles, which are converted in memory first."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chakra_et.cli._output import print_line
from chakra_et.cli._types import input_path

if TYPE_CHECKING:
    from chakra_et.analysis.run import Progress
    from chakra_et.conversion import Quality
    from chakra_et.ir import TraceSet

__all__ = ["add_source", "read_all", "read_source"]

_TRACES = (".et", ".et.gz", ".parquet")


def add_source(parser: argparse.ArgumentParser, name: str = "input", metavar: str = "TRACES") -> None:
    """Declare what to analyze."""
    parser.add_argument(
        name, type=input_path, metavar=metavar,
        help="traces: file, directory of ranks, glob or URL; or profiles, which are converted in memory",
    )  # fmt: skip


def read_source(
    name: str, *, jobs: int = 0, progress: Progress | None = None
) -> tuple[list[str] | TraceSet, Quality | None]:
    """Return the paths of traces, or the traces converted from profiles and how good they are."""
    from chakra_et.conversion.discover import HEAD_BYTES, kind_of
    from chakra_et.io import FORMATS, list_paths, read_head

    paths = list_paths(name, [entry.suffixes for entry in FORMATS])
    if paths[0].endswith(_TRACES) or kind_of(read_head(paths[0], HEAD_BYTES)) is None:
        return paths, None
    from chakra_et.conversion import ConvertOptions, convert

    result = convert(name, options=ConvertOptions(jobs=jobs), progress=progress)
    for failure in result.failed:
        print_line(f"Left out {failure.source}: {failure.error}", to_stderr=True)
    return result.traces, result.quality


def read_all(name: str, *, jobs: int = 0, progress: Progress | None = None) -> TraceSet:
    """Return the traces of all ranks, converted if they are profiles."""
    from chakra_et.io import read_set

    traces, _ = read_source(name, jobs=jobs, progress=progress)
    return read_set(traces) if isinstance(traces, list) else traces
