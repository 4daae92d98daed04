"""What `launches` says in words: notes and findings.

Shape letters: R ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from chakra_et.analysis.result import Finding
from chakra_et.units import format_name, format_ns, format_number_of, format_ranks, format_share

__all__ = ["find_words", "say_notes"]

# What takes a smaller share of a step isn't worth a sentence.
_NOTABLE = 0.01
_MANY = 0.2
_SHOWN = 3


def say_notes(counts: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return what can't be told, and what was guessed.

    Args:
        counts: Numbers of each rank, as `launches.measure` returns them.
    """
    notes = []
    hosts = [rank for rank, count in counts.items() if not count["device"]]
    if hosts:
        who = "no rank has a device" if len(hosts) == len(counts) else f"{format_ranks(hosts)}: no device"
        notes.append(f"{who}, so nothing is launched there")
    devices = [count for count in counts.values() if count["device"]]
    if devices and not any(count["linked"] for count in devices):
        notes.append("no activity's launch is known: the trace keeps no runtime calls, or was written without them")
    lonely = [rank for rank, count in counts.items() if count["device"] and not count["hosted"]]
    if lonely:
        notes.append(f"{format_ranks(lonely)}: no host, so what the device waits for isn't known")
    guessed = sum(count["guessed"] for count in devices)
    if guessed:
        notes.append(
            f"{format_number_of(guessed, 'call')} that took far longer than usual while the queue was long are taken "
            "to have waited for room in it"
        )
    if any(count["candidates"] for count in devices) and all(count["windows"] < 2 for count in devices):
        notes.append("one stretch alone: whether each iteration repeats the candidates for a graph can't be told")
    return notes


def find_words(
    table: pl.DataFrame, tables: Mapping[str, pl.DataFrame], counts: Mapping[int, Mapping[str, Any]], stretch: str
) -> tuple[Finding, ...]:
    """Say what launching costs, and what could be done about it.

    Args:
        table: The rows.
        tables: The further tables.
        counts: Numbers of each rank.
        stretch: What a stretch of time is called: step or profile.
    """
    steps = sum(count["windows"] for count in counts.values() if count["device"])
    span = int(table["span_ns"].sum()) if "stream" not in table.columns else 0
    if not steps or not span or any(key in table.columns for key in ("device", "stream", "call")):
        return ()
    whole = "a step" if stretch == "step" else f"the {stretch}"
    said = [
        *_host_bound(table, tables, steps, span, whole),
        *_capture(tables["capture"], counts, span // steps, whole),
        *_short(table, steps, whole),
        *_full(table, steps, span, whole),
        *_graphs(table, steps, whole),
    ]
    return tuple(sorted(said, key=lambda finding: -finding.cost_ns))


def _host_bound(
    table: pl.DataFrame, tables: Mapping[str, pl.DataFrame], steps: int, span: int, whole: str
) -> list[Finding]:
    late = int(table["host_bound_ns"].sum() or 0)
    if late < _NOTABLE * span:
        return []
    work = tables["host_work"].group_by("name").agg(pl.col("time_ns").sum()).sort("time_ns", descending=True)
    parts = [
        f"{'outside of any operator' if name is None else f'in {format_name(name)}'} ({format_share(time, late)})"
        for name, time in work.head(_SHOWN).iter_rows()
    ]
    spans = int(table["host_bound_spans"].sum() or 0)
    text = (
        f"the device waits for the host in {format_share(late, span)} of {whole}, "
        f"{format_number_of(spans // steps, 'time')}, {format_ns(late // steps)} in all; the host is then mostly "
        f"{', '.join(parts)}"
    )
    return [Finding(text, late // steps, "idle_host_bound_ns", "class host")]


def _capture(capture: pl.DataFrame, counts: Mapping[int, Mapping[str, Any]], span: int, whole: str) -> list[Finding]:
    """Say what graphs could gain on the rank where that is most."""
    most = capture.group_by("rank").agg(
        pl.col("ceiling_idle_ns", "ceiling_call_ns").sum(), pl.col("launches").max(), pl.len()
    ).sort("ceiling_idle_ns", "rank", descending=[True, False]).head(1)  # fmt: skip
    said = []
    for row in most.iter_rows(named=True):
        if row["ceiling_idle_ns"] < _NOTABLE * span:
            continue
        where = "each iteration repeats" if counts[row["rank"]]["windows"] > 1 else "no wait of the host interrupts"
        more = f" and {format_number_of(row['len'] - 1, 'shorter one')}" if row["len"] > 1 else ""
        which = f" on rank {row['rank']}" if len(counts) > 1 else ""
        text = (
            f"{where} a run of {row['launches']:,} launches{more}{which}: captured in a graph, this would save at "
            f"most {format_ns(row['ceiling_idle_ns'])} of {whole}'s idleness and {format_ns(row['ceiling_call_ns'])} "
            "of the host's calls"
        )
        said.append(Finding(text, row["ceiling_idle_ns"], contributor="class host"))
    return said


def _short(table: pl.DataFrame, steps: int, whole: str) -> list[Finding]:
    kernels, short, time, call, late = (
        int(table[name].sum() or 0)
        for name in ("kernels", "short_kernels", "short_time_ns", "short_call_ns", "host_bound_ns")
    )
    # Where the device doesn't wait for the host, launches cost it nothing.
    cost = min(call - time, late) // steps
    if short < _MANY * kernels or not short or cost <= 0:
        return []
    text = (
        f"{format_share(short, kernels)} of the kernels ({short // steps:,} in {whole}) take less time than their "
        f"launch calls: {format_ns(time // steps)} of work for {format_ns(call // steps)} of calls"
    )
    return [Finding(text, cost, contributor="class host")]


def _full(table: pl.DataFrame, steps: int, span: int, whole: str) -> list[Finding]:
    blocked, calls = (int(table[name].sum() or 0) for name in ("blocked_ns", "blocked_calls"))
    if blocked < _NOTABLE * span:
        return []
    return [
        Finding(
            f"the host waits {format_ns(blocked // steps)} of {whole} for room in the launch queue, in "
            f"{calls // steps:,} calls: it runs ahead of the device, and costs it nothing"
        )
    ]


def _graphs(table: pl.DataFrame, steps: int, whole: str) -> list[Finding]:
    launched, held, activities = (
        int(table[name].sum() or 0) for name in ("graph_launches", "graph_activities", "activities")
    )
    if not launched:
        return []
    each = f"{launched / steps:.3g} graph launches in {whole} start" if launched != 1 else "1 graph launch starts"
    return [Finding(f"{each} {format_share(held, activities)} of the activities, {held / launched:.4g} each")]
