"""Say where the time of a job goes: steps, communication, stragglers, critical path, kernels, memory.

Example:
  chakra analyze out/                                   one screen: the step, its breakdown, the top findings
  chakra analyze out/ comms --system a100-dgx           one analysis, with shares of the links' peaks
  chakra analyze out/ breakdown --iteration all --csv   its whole table
  chakra analyze out/ kernels --by rank,kind --json
  chakra analyze kineto.json.gz                         a profile, converted in memory
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from chakra_et.cli._analysis import (
    add_analysis,
    analysis_options,
    keys,
    print_columns,
    print_coverage,
    print_findings,
    print_notes,
)
from chakra_et.cli._output import print_json, print_line
from chakra_et.cli._profiles import add_source, read_source
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._types import whole_number

if TYPE_CHECKING:
    from chakra_et.analysis.analyze import Analyses
    from chakra_et.analysis.result import Result

ALL = "all"
NAMES = ("iterations", "breakdown", "overlap", "comms", "skew", "critical-path", "kernels", "ops", "launches",
         "memory", "phases")  # fmt: skip
ROWS = 20
FINDINGS = 10
NOTES = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_source(parser)
    parser.add_argument(
        "analysis", nargs="?", choices=(ALL, *NAMES), metavar="ANALYSIS",
        help=f"{', '.join(NAMES)}; all: each table (default: one screen)",
    )  # fmt: skip
    parser.add_argument(
        "--by", type=keys, metavar="KEY,KEY", help="what rows are told apart by, such as rank,iteration"
    )
    add_analysis(parser)
    parser.add_argument("--limit", type=whole_number(1), default=ROWS, metavar="N", help="rows (default: %(default)s)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON, all rows")
    output.add_argument("--csv", action="store_true", help="print the table as CSV, all rows")


def run(args: argparse.Namespace) -> int:
    """Analyze, and print."""
    one = args.analysis not in (None, ALL)
    if args.by and not one:
        args.usage_error("argument --by: expected one analysis whose rows it tells apart, got none")
    if args.csv and not one:
        args.usage_error("argument --csv: expected one analysis, got none; name it")
    from chakra_et.analysis.analyze import analyze

    options = analysis_options(args)
    with progress_bar() as report:
        source, _ = read_source(args.input, jobs=args.jobs, progress=report)
        only = [args.analysis] if one else None
        found = analyze(source, only=only, options=options, jobs=args.jobs, progress=report)
    if args.json:
        print_json(next(iter(found.results.values())).as_dict() if one else _all_json(found))
    elif args.csv:
        sys.stdout.write(_flat(next(iter(found.results.values()))).write_csv())
    elif args.analysis is None:
        _print_screen(args.input, found)
    else:
        for result in found.results.values():
            _print_result(result, limit=args.limit)
        print_coverage(found.job.coverage)
        print_notes(list(dict.fromkeys(note for result in found.results.values() for note in result.notes)))
    return 0


def _all_json(found: Analyses) -> dict[str, Any]:
    return {
        "analyses": found.as_dict(),
        "coverage": found.job.coverage.as_dict(),
        "findings": [finding.as_dict() for finding in found.findings],
    }


def _flat(result: Result) -> Any:
    import polars as pl

    nested = [name for name, dtype in result.table.schema.items() if dtype.is_nested()]
    return result.table.with_columns(pl.col(nested).list.eval(pl.element().cast(pl.String)).list.join(";"))


def _print_result(result: Result, *, limit: int) -> None:
    from chakra_et.reports.analysis_cells import COLUMNS

    title = f"{result.name}, by {', '.join(result.parameters['by'])}" if result.parameters.get("by") else result.name
    if result.table.height:
        print_columns(title.capitalize(), result.table, COLUMNS[result.name], limit=limit)
    print_findings(result.findings, limit=FINDINGS)


def _print_screen(name: str, found: Analyses) -> None:
    """Print one screen: the step, where its time goes, what to look at."""
    import polars as pl

    from chakra_et.reports.analysis_cells import SCREEN
    from chakra_et.units import format_number_of

    ranks = format_number_of(len(found.job.ranks), "rank")
    breakdown = found.results["breakdown"].table
    print_line(f"{name}: {ranks}; {_steps(found)}\n")
    times = [column for column in breakdown.columns if column.endswith("_ns")]
    mean = breakdown.group_by("rank", maintain_order=True).agg(
        (pl.col(times).sum() / pl.col("iterations").sum()).round().cast(pl.Int64)
    )
    if mean.height > 1:
        every = mean.select(pl.lit("all").alias("rank"), pl.col(times).mean().round().cast(pl.Int64))
        mean = pl.concat([mean.with_columns(pl.col("rank").cast(pl.String)).head(ROWS), every])
    print_columns("Where a step's time goes, mean of each rank", mean, SCREEN, limit=None)
    print_findings(found.findings, limit=FINDINGS)
    print_coverage(found.job.coverage)
    notes = list(dict.fromkeys(note for result in found.results.values() for note in result.notes))
    print_notes(notes, limit=NOTES)
    print_line(f"More: chakra analyze {name} {'|'.join(NAMES)}; chakra report {name} -o report.html")


def _steps(found: Analyses) -> str:
    from chakra_et.units import format_ns, format_number_of

    table = found.results["breakdown"].table
    if not table.height:
        return "nothing that takes time"
    spans = table["span_ns"]
    low, high = format_ns(int(spans.min())), format_ns(int(spans.max()))  # type: ignore[arg-type]
    span = f"{format_ns(float(spans.mean()))}" + (f" ({low} to {high})" if low != high else "")  # type: ignore[arg-type]
    numbers = table["iteration"].drop_nulls().unique().sort().to_list()
    if not numbers:
        return f"the whole profile, {span}"
    some = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
    everything = found.results["iterations"].table["iteration"].n_unique()
    return f"{format_number_of(len(numbers), 'iteration')} ({some}) of {everything}; a step takes {span}"
