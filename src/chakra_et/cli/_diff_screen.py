"""A comparison on one screen: the step, what got slower and faster, what came and went, nodes, what can't be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakra_et.cli._analysis import print_notes
from chakra_et.cli._output import print_line, print_table
from chakra_et.units import format_count, format_ns, format_number_of

if TYPE_CHECKING:
    import polars as pl

    from chakra_et.analysis.diff import Diff

__all__ = ["print_screen"]

# Rows of tables that matter less.
_FEW = 3
_NAME = 48
_NOTES = 6
# Causes of idleness below this share of the step are left out.
_LEAST = 0.01
_SURE = "beyond\nnoise"


def print_screen(found: Diff, before: str, after: str, *, limit: int) -> None:
    """Print a comparison for people.

    Args:
        found: The comparison.
        before: What the first set is called.
        after: What the second one is called.
        limit: Most rows of a table.
    """
    import polars as pl

    counts = " -> ".join(_iterations(found, side) for side in ("before", "after"))
    ranks = format_number_of(len(found.parameters["ranks"]), "rank")
    print_line(f"{before} -> {after}: {ranks}; {counts}; matched by {found.matched_by}\n")
    if found.warning:
        print_line(f"Warning: {found.warning}.\n")
    print_line(f"{found.headline[0].upper()}{found.headline[1:]}\n")
    _print_steps(found)
    unnamed = (pl.col("what") == "kernel") & pl.col("op").is_null()
    work = found.table.filter(pl.col("what").is_in(["op", "communication"]) | unnamed)
    host = found.table.filter(pl.col("what").is_in(["launch", "host"]) & (pl.col("change_ns") != 0))
    both = ~pl.col("match").is_in(["added", "removed"])
    few = min(limit, _FEW)
    _print_changes("Slower", work.filter(both & (pl.col("change_ns") > 0)), limit=limit)
    _print_changes("Faster", work.filter(both & (pl.col("change_ns") < 0)).reverse(), limit=limit)
    _print_alone("Only after", work.filter(pl.col("match") == "added"), "after", limit=few)
    _print_alone("Only before", work.filter(pl.col("match") == "removed").reverse(), "before", limit=few)
    _print_changes("On the host", host.sort(pl.col("change_ns").abs(), descending=True), limit=few)
    _print_nodes(found, limit=limit)
    # The others are in the tables.
    for finding in found.findings:
        if not finding.cost_ns and finding.about != "step" and finding.text != found.warning:
            print_line(f"{finding.text[0].upper()}{finding.text[1:]}.")
    print_notes([note for note in found.notes if note != found.warning], limit=_NOTES)


def _iterations(found: Diff, side: str) -> str:
    import polars as pl

    numbers = found.iterations.filter(pl.col("side") == side)["iteration"]
    if not len(numbers):
        return "nothing that takes time"
    count = numbers.drop_nulls().n_unique()
    return format_number_of(count, "iteration") if count else "the whole profile"


def _print_steps(found: Diff) -> None:
    """Print the step and its parts, by rank if that was asked for."""
    table = found.steps
    label = ["rank"] if "rank" in table.columns else []
    rows, least = [], 0.0
    for row in table.iter_rows(named=True):
        part, longer = str(row["part"]).replace("_", " "), max(row["before_ns"], row["after_ns"])
        if part == "step":
            least = _LEAST * longer
        cause = part.removeprefix("idle ")
        if not longer or (cause != part and longer < least):
            continue
        inset = "" if part == "step" else "  " if cause == part else "    "
        rows.append((*(str(row[name]) for name in label), inset + cause, *_times(row), *_sure(row, table)))
    columns = [*label, "part", "before", "after", "change", "times", *_sure_heading(table)]
    if rows:
        print_table("", columns, rows, left=(len(label), *_last(columns)))


def _print_changes(title: str, table: pl.DataFrame, *, limit: int) -> None:
    """Print rows that both sides have."""
    label = ["rank"] if "rank" in table.columns else []
    rows = [
        (*(str(row[name]) for name in label), _what(row), _name(row), *_times(row), _calls(row), *_sure(row, table))
        for row in table.head(limit).iter_rows(named=True)
    ]
    columns = [*label, "what", "name", "before", "after", "change", "times", "calls", *_sure_heading(table)]
    _print_head(title, table, columns, rows, left=(len(label), len(label) + 1, *_last(columns)))


def _print_alone(title: str, table: pl.DataFrame, side: str, *, limit: int) -> None:
    """Print rows that one side has."""
    label = ["rank"] if "rank" in table.columns else []
    rows = [
        (
            *(str(row[name]) for name in label),
            _what(row),
            _name(row),
            format_ns(row[f"{side}_ns"]),
            f"{row[f'{side}_count']:,.4g}",
        )
        for row in table.head(limit).iter_rows(named=True)
    ]
    _print_head(title, table, [*label, "what", "name", "time", "calls"], rows, left=(len(label), len(label) + 1))


def _print_head(
    title: str, table: pl.DataFrame, columns: list[str], rows: list[tuple[str, ...]], *, left: tuple[int, ...]
) -> None:
    """Print the first rows of a table, and what the others come to."""
    if not rows:
        return
    print_table(title, columns, rows, left=left)
    if table.height > len(rows):
        rest = int(table["change_ns"][len(rows) :].sum())
        print_line(f"({table.height - len(rows):,} more, {_signed(rest)}: --limit, --csv or --json)\n")


def _name(row: dict[str, Any]) -> str:
    from chakra_et.analysis.diff_words import label, short

    before, after = label(row), label(row, after=True)
    if row["match"] == "renamed":
        return f"{short(before, _NAME)} -> {short(after, _NAME)}"
    if row["match"] != "shapes":
        return short(before, _NAME)
    # The same name need not be said twice.
    shapes = after.removeprefix(str(row["name"])).strip() if after != before else "other types"
    return f"{short(before, _NAME)} -> {short(shapes, _NAME)}"


def _times(row: dict[str, Any]) -> tuple[str, str, str, str]:
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}" if row["ratio"] < 100 else f"{row['ratio']:,.0f}"
    return format_ns(row["before_ns"]), format_ns(row["after_ns"]), _signed(row["change_ns"]), ratio


def _signed(value_ns: int) -> str:
    from chakra_et.analysis.diff_words import signed

    return signed(value_ns)


def _calls(row: dict[str, Any]) -> str:
    before, after = (f"{row[name]:,.4g}" for name in ("before_count", "after_count"))
    return before if before == after else f"{before} -> {after}"


def _what(row: dict[str, Any]) -> str:
    return "comm" if row["what"] == "communication" else str(row["what"])


def _sure_heading(table: pl.DataFrame) -> list[str]:
    """Return the heading of the column that tells noise, if anything does."""
    return [_SURE] if table["significant"].null_count() < table.height else []


def _sure(row: dict[str, Any], table: pl.DataFrame) -> list[str]:
    return ["yes" if row["significant"] else "no"] if _sure_heading(table) else []


def _last(columns: list[str]) -> list[int]:
    return [len(columns) - 1] if columns[-1] == _SURE else []


def _print_nodes(found: Diff, *, limit: int) -> None:
    """Print how far the nodes of two copies lie apart."""
    timing = found.timing
    if timing is None:
        return
    lost = {"before": timing.before_only, "after": timing.after_only}
    told = "".join(f"; {count:,} only {word}" for word, count in lost.items() if count)
    print_line(f"Node by node: {timing.nodes:,} in both{told}; {timing.equal:,} start and take the same, to the ns")
    errors = {
        "p50": timing.start_error_p50_ns,
        "p90": timing.start_error_p90_ns,
        "p99": timing.start_error_p99_ns,
        "max": timing.start_error_max_ns,
    }
    print_line(f"Starts differ by: {', '.join(f'{name} {format_ns(error)}' for name, error in errors.items())}")
    print_line(f"Makespan: {format_ns(timing.before_makespan_ns)} -> {format_ns(timing.after_makespan_ns)}\n")
    changed = found.nodes.filter((found.nodes["duration_change_ns"] != 0) | (found.nodes["start_change_ns"] != 0))
    rows = [
        (
            str(row["rank"]),
            str(row["id"]),
            row["name"] if len(row["name"]) <= _NAME else row["name"][: _NAME - 3] + "...",
            format_ns(row["before_duration_ns"]),
            format_ns(row["after_duration_ns"]),
            _signed(row["duration_change_ns"]),
            _signed(row["start_change_ns"]),
        )
        for row in changed.head(limit).iter_rows(named=True)
    ]
    if rows:
        columns = ("rank", "id", "name", "before", "after", "change", "start")
        print_table(f"Nodes that changed most, of {format_count(changed.height)}", columns, rows, left=(2,))
