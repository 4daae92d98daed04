"""What there is to say about memory in use and copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from chakra_et.analysis.result import Finding
from chakra_et.units import format_bytes, format_name, format_ns, format_ranks, format_share

__all__ = ["find_words", "say_notes"]

# Shares below these aren't worth a line.
_UNUSED_SHARE, _SPREAD_SHARE, _MAKER_SHARE = 0.1, 0.1, 0.05
_STEADY = 3
_WORTHWHILE = 1000


def say_notes(
    table: pl.DataFrame, copies: pl.DataFrame, at_peak: pl.DataFrame, untimed: Sequence[int]
) -> tuple[str, ...]:
    """Say what can't be told, and what was guessed.

    Args:
        table: `Memory.table`, a row a rank and device.
        copies: `Memory.copies`.
        at_peak: `Memory.at_peak`.
        untimed: Ranks whose operators have an order but no times.
    """
    known = table.group_by("rank", maintain_order=True).agg(pl.col("source").drop_nulls().first())
    silent = known.filter(pl.col("source").is_null())["rank"].to_list()
    guessed = known.filter(pl.col("source") == "tensors")["rank"].to_list()
    notes = []
    if silent:
        notes.append(
            f"{format_ranks(silent)}: neither memory events nor tensors, so memory in use can't be told; profile with "
            "profile_memory=True"
        )
    if guessed:
        notes.append(
            f"{format_ranks(guessed)}: no memory events (profile_memory was off): each storage is taken to live from "
            "its first to its last use in the execution trace; what is in use is a lower bound"
        )
    if untimed:
        notes.append(f"{format_ranks(untimed)}: no times, so peaks have a place in the order of operators, and no time")
    if ((table["device"] < 0) & (table["source"] == "events")).any():
        notes.append("of the host's memory only shows what was allocated while the profiler ran")
    notes += _copy_notes(copies)
    sums = at_peak.group_by("rank", "device").agg(pl.col("size_bytes").sum())
    more = sums.join(table.select("rank", "device", "peak_bytes"), on=["rank", "device"])
    off = more.filter(pl.col("size_bytes") != pl.col("peak_bytes"))["rank"].unique().sort().to_list()
    if off:
        notes.append(
            f"{format_ranks(off)}: events of memory are missing: blocks at the peak add up to more than was in use"
        )
    return tuple(notes)


def _copy_notes(copies: pl.DataFrame) -> Iterator[str]:
    lost = int(copies["without_bytes"].sum())
    if lost:
        yield f"{lost:,} of {int(copies['copies'].sum()):,} copies don't tell their size: they count, without bytes"
    between = copies.filter(pl.col("kind").is_in(["HtoD", "DtoH"]))
    vague = int(between.filter(pl.col("memory").is_null())["copies"].sum())
    if vague:
        yield f"{vague:,} copies between host and device don't tell whether the host's side was pinned"


def find_words(
    table: pl.DataFrame, at_peak: pl.DataFrame, iterations: pl.DataFrame, copies: pl.DataFrame, step_ns: int, per: str
) -> tuple[Finding, ...]:
    """Say what is worth knowing, the costliest first.

    Args:
        table: `Memory.table`, a row a rank and device.
        at_peak: `Memory.at_peak`.
        iterations: `Memory.iterations`.
        copies: `Memory.copies`.
        step_ns: Length of an iteration: what costs less than a thousandth of it isn't worth a line.
        per: What costs are told of: ``a step``, or ``in the profile``.
    """
    known = table.filter(pl.col("peak_bytes").is_not_null())
    devices = known.filter(pl.col("device") >= 0)
    exact = devices.filter(pl.col("source") == "events")
    found = [
        *_peak(devices if devices.height else known, at_peak),
        *_spread(devices),
        *_unused(devices),
        *_growing(iterations.join(exact, on=["rank", "device"], how="semi", maintain_order="left")),
        *_pageable(copies, step_ns, per),
    ]
    return tuple(sorted(found, key=lambda finding: -finding.cost_ns))


def _peak(table: pl.DataFrame, at_peak: pl.DataFrame) -> Iterator[Finding]:
    """Say where the highest peak is, and who made most of it."""
    if not table.height:
        return
    top = table.sort("peak_bytes", descending=True, maintain_order=True).row(0, named=True)
    if not top["peak_bytes"]:
        return
    where = f"device {top['device']}" if top["device"] >= 0 else "the host"
    text = f"rank {top['rank']} has {format_bytes(top['peak_bytes'])} in use on {where} at the peak"
    text += f" of iteration {top['peak_iteration']}" if top["peak_iteration"] is not None else ""
    text += f", in the {top['peak_phase']} phase" if top["peak_phase"] is not None else ""
    text += f", in {format_name(top['peak_op'])}" if top["peak_op"] is not None else ""
    text += f" ({top['peak_module']})" if top["peak_module"] is not None else ""
    if top["source"] == "tensors":
        text += ", at least"
    mine = at_peak.filter(pl.col("rank") == top["rank"], pl.col("device") == top["device"])
    seen = mine.filter(pl.col("origin") == "seen")
    older = top["peak_bytes"] - int(seen["size_bytes"].sum())
    if older > 0:
        text += f"; {format_bytes(older)} of it was there before"
    makers = seen.drop_nulls("op").group_by("op").agg(pl.col("size_bytes").sum(), pl.col("blocks").sum())
    if makers.height:
        name, size, blocks = makers.sort("size_bytes", "op", descending=[True, False]).row(0)
        if size >= _MAKER_SHARE * top["peak_bytes"]:
            text += f"; of the largest blocks, {format_bytes(size)} in {blocks} are from {format_name(name)}"
    yield Finding(text)


def _spread(table: pl.DataFrame) -> Iterator[Finding]:
    if table["rank"].n_unique() < 2:
        return
    ordered = table.sort("peak_bytes", "rank")
    low, high = ordered.row(0, named=True), ordered.row(-1, named=True)
    if high["peak_bytes"] - low["peak_bytes"] > _SPREAD_SHARE * high["peak_bytes"]:
        yield Finding(
            f"peaks differ between ranks: {format_bytes(low['peak_bytes'])} on rank {low['rank']}, "
            f"{format_bytes(high['peak_bytes'])} on rank {high['rank']}"
        )


def _unused(table: pl.DataFrame) -> Iterator[Finding]:
    held = table.filter(pl.col("reserved_at_peak_bytes") > 0).sort("unused_at_peak_bytes", "rank", descending=True)
    if not held.height:
        return
    row = held.row(0, named=True)
    unused, reserved = row["unused_at_peak_bytes"], row["reserved_at_peak_bytes"]
    if unused > _UNUSED_SHARE * reserved:
        yield Finding(
            f"rank {row['rank']}: at the peak, the allocator of device {row['device']} holds {format_bytes(reserved)}, "
            f"of which {format_bytes(unused)} ({format_share(unused, reserved)}) is not in use: cache, or fragmented"
        )


def _growing(iterations: pl.DataFrame) -> Iterator[Finding]:
    """Say whose memory grew with every iteration."""
    change = pl.col("end_bytes").diff()
    grown = (
        iterations.group_by("rank", "device", maintain_order=True)
        .agg(least=change.min(), mean=change.mean(), steps=pl.len())
        .filter(pl.col("steps") >= _STEADY, pl.col("least") > 0)
        .sort("mean", descending=True, maintain_order=True)
    )
    if grown.height:
        rank, device, least, mean, steps = grown.row(0)
        yield Finding(
            f"memory in use grows with each of {steps} iterations on {grown['rank'].n_unique()} ranks: by "
            f"{format_bytes(mean)} on rank {rank}, device {device} ({format_bytes(least)} at least); is something kept?"
        )


def _pageable(copies: pl.DataFrame, step_ns: int, per: str) -> Iterator[Finding]:
    """Say what copies from and to pageable memory cost, and how much faster pinned ones go."""
    slow = copies.filter(pl.col("memory") == "pageable")
    if not slow.height:
        return
    step = pl.col("time_ns") // pl.col("iterations").clip(1)
    each = slow.group_by("rank").agg(step.sum()).sort("time_ns", "rank", descending=True)
    rank, cost = each.row(0)
    if cost * _WORTHWHILE < step_ns:
        return
    mine = slow.filter(pl.col("rank") == rank)
    size, count, spent = (int(mine[name].sum()) for name in ("bytes", "copies", "duration_ns"))
    text = f"{count} copies through pageable memory on rank {rank}: {format_bytes(size)}, {format_ns(cost)} {per}"
    pinned = copies.filter(pl.col("memory") == "pinned", pl.col("rank") == rank, pl.col("kind").is_in(mine["kind"]))
    fast = int(pinned["duration_ns"].sum())
    if fast and spent and size:
        rates = (size * 1e9 / spent, int(pinned["bytes"].sum()) * 1e9 / fast)
        text += f", at {format_bytes(rates[0])}/s (pinned: {format_bytes(rates[1])}/s)"
    yield Finding(f"{text}; the host waits for all but small ones", cost)
