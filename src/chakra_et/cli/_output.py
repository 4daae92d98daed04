"""What the subcommands print: tables for people, JSON for programs, and where a file went."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 100


def stdout_console() -> Console:
    """Return a console on stdout; without a terminal it is 100 columns wide, so that logs stay readable."""
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdigit() else None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(width=width, highlight=False, soft_wrap=False)


def print_json(value: Any) -> None:
    """Print plain data as JSON, one value and nothing else on stdout."""
    import msgspec

    # Ten times as fast as the standard library where a table has thousands of rows.
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    sys.stdout.write(text.decode() + "\n")


def print_line(text: str, *, to_stderr: bool = False) -> None:
    """Print a line, to stderr when stdout belongs to a program."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.write(text + "\n")


def print_wrote(paths: Iterable[Path], *, to_stderr: bool = False) -> None:
    """Say which files were written, one a line."""
    for path in paths:
        print_line(f"Wrote {path}", to_stderr=to_stderr)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Sequence[int] = (0,),
    limit: int | None = None,
) -> None:
    """Print a table.

    Args:
        title: Heading above the table; if empty, the table begins with its columns.
        columns: Headings; a newline in one breaks it.
        rows: Cells as text.
        left: Positions of columns that hold words (aligned left); the others hold numbers.
        limit: Most rows to show; a line tells how many were left out.
    """
    shown = rows if limit is None else rows[:limit]
    console = stdout_console()
    with console.capture() as captured:
        console.print(_table(title, columns, shown, left))
    lines = captured.get().splitlines()
    # The box has an empty line on top, which only a title needs; rich pads every line to the table's width.
    for line in lines[not title :]:
        print_line(line if console.is_terminal else line.rstrip())
    if len(shown) < len(rows):
        console.print(f"({len(rows) - len(shown):,} more rows)", style="dim")


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    vertical: Literal["top", "bottom"] = "bottom" if any("\n" in heading for heading in columns) else "top"
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for position, heading in enumerate(columns):
        words = position in left
        table.add_column(
            heading,
            justify="left" if words else "right",
            no_wrap=not words,
            overflow="fold" if words else "ellipsis",
            vertical=vertical,
        )
    for row in rows:
        # Text, not str: node names hold brackets, which rich would take for markup.
        table.add_row(*(Text(cell) for cell in row))
    return table
