"""What `chakra replay` prints: the plan, and what the replay measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakra_et.cli._output import print_line, print_table
from chakra_et.units import format_bytes, format_count, format_ns, format_ranks

if TYPE_CHECKING:
    from chakra_et.replay.job.summary import JobSummary, ReplaySummary

__all__ = ["print_plan", "print_replay"]

ROWS = 16


def print_plan(summary: JobSummary) -> None:
    """Print what a replay would do."""
    count = len(summary.ranks)
    recorded = f"; recorded on {summary.recorded_world_size}" if count != summary.recorded_world_size else ""
    print_line(f"A replay on {count} {'ranks' if count != 1 else 'rank'}{recorded}.")
    columns = ("rank", "iterations", "operators", "different\nones", "communi-\ncations", "bytes\ngiven", "tensors",
               "peak\nmemory", "held as\ndelays")  # fmt: skip
    rows = [
        (
            str(rank.rank), format_count(rank.iterations), format_count(rank.operators),
            format_count(rank.distinct_operators), format_count(rank.communications),
            format_bytes(rank.communication_bytes), format_count(rank.tensors), format_bytes(rank.peak_bytes),
            format_count(rank.delays),
        )
        for rank in summary.ranks
    ]  # fmt: skip
    print_table("Ranks", columns, rows, left=(), limit=ROWS)
    if summary.groups:
        groups = [
            (group.name, format_ranks(group.ranks), format_count(group.size), format_count(count), format_bytes(size))
            for group, count, size in summary.groups
        ]
        print_table("Process groups", ("group", "ranks", "size", "count", "bytes"), groups, left=(0, 1), limit=ROWS)
    if summary.not_replayed:
        missing = [
            (one.name, one.reason, format_count(one.count), f"{one.rank}: {one.node}") for one in summary.not_replayed
        ]
        print_table("Can't be replayed", ("name", "why", "count", "rank: node"), missing, left=(0, 1), limit=ROWS)
    if summary.assumed_reduce_ops:
        print_line(f"Note: {format_count(summary.assumed_reduce_ops)} communications don't tell what they reduce with: "
                   "a sum is taken")  # fmt: skip
    if summary.assumed_waits:
        print_line(f"Note: of {format_count(summary.assumed_waits)} communications the trace doesn't tell where they "
                   "are waited for")  # fmt: skip


def print_replay(summary: ReplaySummary) -> None:
    """Print what a replay measured."""
    for one in summary.accuracies[:ROWS]:
        print_line(one.headline[:1].upper() + one.headline[1:])
    if len(summary.accuracies) > ROWS:
        print_line(f"({len(summary.accuracies) - ROWS} more ranks)")
    _print_speeds(summary)
    _print_operators(summary)
    if summary.checked or summary.unchecked:
        wrong = f"{len(summary.wrong):,} wrong" if summary.wrong else "all as they must be"
        more = f"; {summary.unchecked:,} can't be checked" if summary.unchecked else ""
        print_line(f"Checked {summary.checked:,} results of communications: {wrong}{more}")
    for text in summary.wrong[:ROWS]:
        print_line(f"Wrong: {text}")
    for note in summary.notes:
        print_line(f"Note: {note}")


def _print_speeds(summary: ReplaySummary) -> None:
    if not summary.speeds:
        return
    columns = ("kind, group", "ranks", "size", "count", "latency\np50", "\np95", "\np99", "bus\nbandwidth",
               "recorded\np50")  # fmt: skip
    rows = [
        (
            f"{speed.kind.strip('_')} {speed.group}", str(speed.members), format_bytes(speed.size_bytes),
            format_count(speed.count), format_ns(speed.latency_p50_ns), format_ns(speed.latency_p95_ns),
            format_ns(speed.latency_p99_ns), _rate(speed.bus_bytes_per_s),
            format_ns(speed.recorded_p50_ns) if speed.recorded_p50_ns else "-",
        )
        for speed in summary.speeds
    ]  # fmt: skip
    print_table("Communications", columns, rows, limit=ROWS)


def _print_operators(summary: ReplaySummary) -> None:
    if not summary.accuracies or not summary.accuracies[0].by_operator:
        return
    one = summary.accuracies[0]
    columns = ("operator", "count", "recorded", "replayed", "p50", "p95", "p99")
    rows = [
        (row.name, format_count(row.count), format_ns(row.recorded_ns), format_ns(row.replayed_ns),
         format_ns(row.p50_ns), format_ns(row.p95_ns), format_ns(row.p99_ns))
        for row in one.by_operator
    ]  # fmt: skip
    print_table(f"Operators of rank {one.rank}, a pass", columns, rows, limit=ROWS)
    held = [
        (left.name, what, left.reason, format_count(left.count), format_ns(left.recorded_ns))
        for what, part in (("held", one.skipped), ("replaced", one.replaced))
        for left in part
    ]
    if held:
        title = f"Not as recorded on rank {one.rank}"
        print_table(title, ("name", "", "why", "count", "recorded"), held, left=(0, 1, 2), limit=ROWS)


def _rate(bytes_per_s: float) -> str:
    return f"{format_bytes(bytes_per_s)}/s" if bytes_per_s else "-"
