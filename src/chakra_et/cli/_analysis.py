"""Options of the verbs that analyze, and tables of analyses for people."""

from __future__ import annotations

import argparse
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chakra_et.cli._output import print_line, print_table, stdout_console
from chakra_et.cli._simulation import add_system, read_system
from chakra_et.cli._types import input_path, whole_number
from chakra_et.units import format_share

if TYPE_CHECKING:
    import polars as pl

    from chakra_et.analysis.options import Choice, Options
    from chakra_et.analysis.result import Coverage, Finding

__all__ = [
    "add_analysis",
    "add_choice",
    "analysis_options",
    "keys",
    "print_columns",
    "print_coverage",
    "print_findings",
    "print_notes",
]

# What users write for columns.
_ALIASES = {"pg": "pg_name", "group": "pg_name", "type": "comm_type", "size": "size_class_bytes", "dtype": "comm_dtype",
            "kernel": "name"}  # fmt: skip
# Of columns that hold words, and what stands between columns.
_NARROWEST = 12
_BETWEEN = 2


def add_analysis(parser: argparse.ArgumentParser) -> None:
    """Declare which part of the traces is looked at, and what is known of the machine."""
    add_choice(parser)
    add_system(parser, more=": for peaks, utilization and shares of links")
    parser.add_argument(
        "--ranks-per-server", type=whole_number(1), metavar="N", help="(default: the system's innermost dimension)"
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Declare which part of the traces is looked at."""
    parser.add_argument(
        "--iteration", type=_iterations, metavar="N,N|all|whole",
        help="iterations; all of them; or the whole profile as one stretch (default: all but the first and the last, "
        "where there are more than two)",
    )  # fmt: skip
    parser.add_argument(
        "--linked-only", action="store_true", help="leave out activities whose launch isn't in the profile"
    )
    parser.add_argument(
        "--kernel-classes", type=input_path, action="append", default=[], metavar="FILE",
        help="what kernels are called (TOML), before the built-in names; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=whole_number(0), default=0, metavar="N", help="processes (default: one a core for large files)"
    )


def keys(text: str) -> tuple[str, ...]:
    """Return the columns of ``KEY,KEY``."""
    words = [word.strip().replace("-", "_") for word in text.split(",") if word.strip()]
    if not words:
        raise ArgumentTypeError(f"expected columns such as rank,iteration, got '{text}'")
    return tuple(_ALIASES.get(word, word) for word in words)


def _iterations(text: str) -> Choice:
    if text in ("all", "whole"):
        return text  # type: ignore[return-value]
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"expected numbers such as 3,4, or all, or whole, got '{text}'") from None


def analysis_options(args: argparse.Namespace) -> Options:
    """Return what the command line asks for."""
    from chakra_et.analysis.options import Options
    from chakra_et.specs import load_kernel_classes

    return Options(
        iteration=args.iteration,
        by=getattr(args, "by", None),
        system=read_system(args),
        ranks_per_server=args.ranks_per_server,
        kernel_classes=load_kernel_classes(*args.kernel_classes),
        linked_only=args.linked_only,
    )


def print_columns(title: str, table: pl.DataFrame, columns: Sequence[str], *, limit: int | None) -> None:
    """Print some columns of a table; their names tell the units.

    Args:
        title: Heading.
        table: The rows.
        columns: Names of columns; those that the table lacks, or that hold nothing, are left out.
        limit: Most rows.
    """
    from chakra_et.reports.analysis_cells import cells, shown_columns, word_places

    shown = table.select(shown_columns(table, columns))
    if not shown.width:
        return
    headings, rows = cells(shown if limit is None else shown.head(limit))
    headings = [heading.replace(" ", "\n") for heading in headings]
    words = word_places(shown)
    kept, widths = _fitting(headings, rows, words)
    rows = [[_cut(row[place], widths.get(place)) for place in kept] for row in rows]
    print_table(title, [headings[place] for place in kept], rows, left=[kept.index(place) for place in words])
    hidden = [name for place, name in enumerate(shown.columns) if place not in kept]
    if hidden:
        print_line(f"(not enough width for {', '.join(hidden)}: --csv or --json)")
    if len(rows) < table.height:
        print_line(f"({table.height - len(rows):,} more rows: --limit, --csv or --json)\n")


def _fitting(
    headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int]
) -> tuple[list[int], dict[int, int]]:
    """Return which columns fit into a line, and how wide those that hold words may be."""
    natural = [
        max([*map(len, heading.split("\n")), *(len(row[place]) for row in rows)])
        for place, heading in enumerate(headings)
    ]
    least = [min(width, _NARROWEST) if place in words else width for place, width in enumerate(natural)]
    kept = list(range(len(headings)))
    room = (stdout_console().width or 80) - 1
    while len(kept) > 1 and sum(least[place] + _BETWEEN for place in kept) > room:
        # The last number goes first: columns stand in the order of their worth.
        numbers = [place for place in kept if place not in words] or kept
        kept.remove(numbers[-1])
    left = room - sum(least[place] + _BETWEEN for place in kept)
    widths = {place: least[place] for place in words if place in kept}
    while left > 0 and any(width < natural[place] for place, width in widths.items()):
        narrow = min((width, place) for place, width in widths.items() if width < natural[place])[1]
        widths[narrow] += 1
        left -= 1
    return kept, widths


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: max(width - 3, 1)] + "..."


def print_findings(findings: Sequence[Finding], *, limit: int) -> None:
    """Print what is worth knowing."""
    if findings:
        print_line("Findings (what something costs is a ceiling)")
        for place, finding in enumerate(findings[:limit]):
            print_line(f"  {place + 1}. {finding.text}")
        print_line("")


def print_coverage(coverage: Coverage) -> None:
    """Print how much of the device's time the numbers stand on."""
    parts = [f"{name} {format_share(value, 1)}" for name, value in coverage.as_dict().items() if value is not None]
    if parts:
        print_line(f"Of the device time: {', '.join(parts)} (modelled: of the computing kernels').")


def print_notes(notes: Sequence[str], *, limit: int | None = None) -> None:
    """Print what can't be told, and why."""
    shown = notes if limit is None else notes[:limit]
    for note in shown:
        print_line(f"Note: {note}")
    if len(shown) < len(notes):
        print_line(f"({len(notes) - len(shown):,} more notes: --json)")
