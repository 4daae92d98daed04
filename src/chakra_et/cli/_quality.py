"""The quality report of a conversion as tables: what is in the traces, and whether they are right."""

from __future__ import annotations

import re
from typing import Any

from chakra_et.cli._output import print_line, print_table
from chakra_et.units import format_count, format_ns, format_share

ROWS = 32
FINDINGS = 10
GAP_KINDS = ("launch_latency", "host_idle", "host_work", "unexplained")
# The profiler's record of its own window is left out of every trace: the report says so, tables need not.
_WINDOW = re.compile(r"\d+ 'Trace' records? ")


def print_quality(quality: dict[str, Any]) -> None:
    """Print a quality report (the content of ``quality.json``)."""
    ranks = quality["ranks"]
    if not ranks:
        return
    _print_content(ranks)
    _print_timing(ranks)
    _print_gaps(ranks)
    if len(ranks) > 1:
        _print_matching(quality["matching"], len(quality["groups"]))
    for text in _notes(ranks):
        print_line(text)


def _print_content(ranks: list[dict[str, Any]]) -> None:
    columns = [
        "rank",
        "activities\nin / out",
        "linked",
        "host ops\nmatched",
        "communications\ntyped",
        "inferred\nedges",
    ]
    columns += ["kinds\ndropped", "warnings"]
    rows = [
        (
            str(rank["rank"]),
            f"{rank['device_activities']:,} / {rank['device_nodes']:,}",
            format_share(rank["linked"], rank["linkable"]),
            format_share(rank["host_ops_matched"], rank["host_ops"]) if len(rank["sources"]) > 1 else "-",
            f"{rank['communications'] - rank['unknown_communications']:,} of {rank['communications']:,}",
            format_count(rank["inferred_edges"]),
            format_count(len(_dropped(rank))),
            format_count(len(rank["warnings"])),
        )
        for rank in ranks
    ]
    print_table("What is in the traces", columns, rows, left=(), limit=ROWS)


def _print_timing(ranks: list[dict[str, Any]]) -> None:
    columns = ["rank", "start error\np50", "\np99", "\nmax", "makespan", "measured\nwindow", "ratio"]
    rows = []
    for rank in ranks:
        error, makespan, window = rank["start_error_ns"], rank["makespan_ns"], rank["window_ns"]
        cells = [str(rank["rank"]), *(format_ns(error[key]) for key in ("p50", "p99", "max"))]
        rows.append([*cells, format_ns(makespan), format_ns(window), f"{makespan / window:.4f}" if window else "-"])
    print_table("Rebuilt from edges and durations alone", columns, rows, left=(), limit=ROWS)


def _print_gaps(ranks: list[dict[str, Any]]) -> None:
    kinds = [kind for kind in GAP_KINDS if any(rank["gap_ns"].get(kind) for rank in ranks)]
    columns = ["rank", *(kind.replace("_", " ") for kind in kinds)]
    rows = [
        [str(rank["rank"]), *(format_share(rank["gap_ns"].get(kind, 0), rank["makespan_ns"]) for kind in kinds)]
        for rank in ranks
    ]
    if kinds:
        print_table("Share of the makespan in gaps", columns, rows, left=(), limit=ROWS)


def _print_matching(matching: dict[str, Any], groups: int) -> None:
    parts = []
    if matching["collectives"]:
        complete = f"{matching['complete']:,} of {matching['collectives']:,} collectives complete"
        parts.append(f"{complete}, {matching['mismatched']:,} mismatched")
    if matching["sends"] or matching["receives"]:
        parts.append(f"{matching['sends']:,} sends, {matching['receives']:,} receives, {matching['paired']:,} paired")
    if parts:
        print_line(f"Across ranks, {groups} process group{'s' * (groups != 1)}: {'; '.join(parts)}.")
    for text in matching["findings"][:FINDINGS]:
        print_line(f"finding: {text}")
    if len(matching["findings"]) > FINDINGS:
        print_line(f"and {len(matching['findings']) - FINDINGS:,} more findings in quality.json")


def _notes(ranks: list[dict[str, Any]]) -> list[str]:
    """Return warnings and dropped things, one line each, with the ranks that share it."""
    by_text: dict[str, list[str]] = {}
    for rank in ranks:
        for prefix, entries in (("warning", rank["warnings"]), ("dropped", _dropped(rank))):
            for entry in entries:
                by_text.setdefault(f"{prefix}: {entry}", []).append(str(rank["rank"]))
    return [f"{text} (rank {', '.join(_short(where))})" for text, where in by_text.items()]


def _dropped(rank: dict[str, Any]) -> list[str]:
    """Return what was left out of a rank's trace, one entry a kind, but for the profiler's own window."""
    return [entry for entry in rank["dropped"] if not _WINDOW.match(entry)]


def _short(ranks: list[str], limit: int = 8) -> list[str]:
    return ranks if len(ranks) <= limit else [*ranks[:limit], f"and {len(ranks) - limit} more"]
