"""Memory: how much was in use when, what was alive at the peak, and how fast memory is copied.

Shape letters: R ranks, P points of a timeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.expressions import union_ns
from chakra_et.analysis.memory_copies import bandwidth_over_time, find_copies, measure_copies
from chakra_et.analysis.memory_peak import (
    AT_PEAK,
    ITERATIONS,
    Peak,
    blocks_at,
    find_peak,
    iteration_at,
    makers_at,
    measure_iterations,
    phase_at,
)
from chakra_et.analysis.memory_plot import plot_memory
from chakra_et.analysis.memory_use import Usage, find_usage
from chakra_et.analysis.memory_words import find_words, say_notes
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.phase_of import phases_of
from chakra_et.analysis.result import Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView
from chakra_et.ir.arrays import without_negatives

__all__ = ["Memory", "combine", "measure", "memory"]

Int = npt.NDArray[np.int64]
_KEYS = ("rank", "device")
_COPIED = {f"{kind.lower()}_bytes": kind for kind in ("HtoD", "DtoH", "DtoD", "PtoP", "memset")}
_PEAK: dict[str, type[pl.DataType]] = {
    "source": pl.String, "events": pl.Int64, "peak_bytes": pl.Int64, "peak_ns": pl.Int64, "peak_iteration": pl.Int64,
    "peak_phase": pl.String, "peak_op": pl.String, "peak_top_op": pl.String, "peak_module": pl.String,
    "begin_bytes": pl.Int64, "end_bytes": pl.Int64, "allocations": pl.Int64, "allocated_bytes": pl.Int64,
    "freed_bytes": pl.Int64, "peak_reserved_bytes": pl.Int64, "reserved_at_peak_bytes": pl.Int64,
    "unused_at_peak_bytes": pl.Int64, "growth_bytes": pl.Int64,
}  # fmt: skip
_TIMELINE: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "device": pl.Int64, "time_ns": pl.Int64, "node": pl.UInt64, "in_use_bytes": pl.Int64,
    "reserved_bytes": pl.Int64,
}  # fmt: skip
_BUCKETS = 500
_SUMS = ("events", "allocations", "allocated_bytes", "freed_bytes", "copies", "copied_bytes", "copy_ns", *_COPIED)


@dataclass(frozen=True, slots=True, eq=False)
class Memory(Result):
    """Memory in use, and copies of memory.

    In use is what allocators gave and did not take back: from the profile's memory events (``profile_memory``), exact;
    else from the tensors of an execution trace, each storage from its first to its last use: a lower bound. That is
    told of the whole profile, unless iterations were asked for by number: then peaks are those of their ranges on the
    host. Copies are those that start in the chosen stretches of the device's time, as everywhere.

    Columns of `table`, a row a rank and device (with fewer keys in `by`: peaks are those of the row that has the
    highest, counts are added up): ``rank``, ``device`` (-1: the host's memory, of which only shows what was allocated
    while the profiler ran), ``source`` (``events``, ``tensors``; null: nothing tells what was in use, and the next
    columns are null), ``events`` (changes that were seen), ``peak_bytes``, ``peak_ns`` (when that was reached, on the
    host's clock; null without times), ``peak_iteration`` and ``peak_phase`` (``forward``, ``backward``,
    ``optimizer``) that the host was in, ``peak_op`` (innermost operator that allocated then, else annotation; of
    tensors, the outermost that returned it), ``peak_top_op`` (the outermost operator around it), ``peak_module``,
    ``begin_bytes`` and ``end_bytes`` (in use before the first and after the last event; events only),
    ``allocations``, ``allocated_bytes``, ``freed_bytes`` (sums; the last of events only), ``peak_reserved_bytes`` (most
    that the allocator held), ``reserved_at_peak_bytes`` and ``unused_at_peak_bytes`` (held, and not in use, at the
    peak: fragmentation and cache), ``growth_bytes`` (by which an iteration's end has more in use than the last one's,
    mean; events only), ``copies`` (copies and sets), ``copied_bytes``, ``copy_ns`` (in which any runs), and bytes by
    kind: ``htod_bytes``, ``dtoh_bytes``, ``dtod_bytes``, ``ptop_bytes``, ``memset_bytes``.

    Attributes:
        timeline: What was in use, thinned out for pictures: ``rank``, ``device``, ``time_ns`` (null without times),
            ``node`` (that changed it; null: the state before), ``in_use_bytes``, ``reserved_bytes`` (null: not told),
            each from then on. Long ones keep first, lowest, highest and last of each of 500 stretches of time: the
            peak is in it.
        at_peak: What was in use at the peak, the largest first; sizes add up to ``peak_bytes``: ``rank``, ``device``,
            ``size_bytes``, ``blocks`` (1, more where small ones are put together, null: unknown), ``origin``
            (``seen``: allocated in the profile; ``before``: earlier, but freed or used in it; ``unseen``: all else that
            the allocator had given), ``op`` (innermost operator that allocated it, else annotation), ``top_op``,
            ``module``, ``node`` (of the operator), ``address``, ``alloc_ns``, ``free_ns``, ``lifetime_ns`` (null: not
            all of it shows).
        iterations: A row a rank, device and iteration of the host: ``begin_bytes``, ``end_bytes``, ``peak_bytes``,
            ``peak_ns``, ``allocated_bytes``, ``freed_bytes``.
        copies: A row a rank, device, kind and memory of the chosen stretches: ``iterations`` (stretches), and as
            `measure_copies` tells: ``copies``, ``bytes``, ``without_bytes``, ``time_ns``, ``duration_ns``,
            ``bandwidth_bytes_per_s``, ``bandwidth_p10_bytes_per_s``, ``bandwidth_p50_bytes_per_s``,
            ``bandwidth_p90_bytes_per_s``.
        bandwidth: A row a rank, device, kind and change: ``time_ns``, ``bandwidth_bytes_per_s`` of all copies that
            run from then on, each at its own mean rate (HolisticTraceAnalysis' memory bandwidth).
    """

    timeline: pl.DataFrame
    at_peak: pl.DataFrame
    iterations: pl.DataFrame
    copies: pl.DataFrame
    bandwidth: pl.DataFrame

    def plot(self) -> Plot:
        """Return memory in use over time, a step line a rank and device; without any, the bytes of the copies."""
        return plot_memory(self.timeline, self.copies)


def memory(source: Source, *, options: Options | None = None) -> Memory:
    """Tell how much memory was in use when, what was alive at the peak, and how fast memory is copied.

    Args:
        source: Traces, or where they are.
        options: Which iterations; ``by`` takes ``rank`` and ``device``.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> for time, size in ((0, 512), (5, 256), (9, -512)):
        ...     event = {"start_ns": time, "is_cpu_op": True, "device": 0, "alloc_bytes": size}
        ...     _ = builder.add("[memory]", NodeType.METADATA_NODE, **event)
        >>> memory(builder.build()).table.select("peak_bytes", "peak_ns").row(0)
        (768, 5)
    """
    return run_one(measure, combine, source, options)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank: the tables of `Memory`, and whether nothing but the order of its operators is known."""

    table: pl.DataFrame
    timeline: pl.DataFrame
    at_peak: pl.DataFrame
    iterations: pl.DataFrame
    copies: pl.DataFrame
    bandwidth: pl.DataFrame
    timed: bool


def measure(view: RankView) -> Part:
    """Measure one rank."""
    usages = find_usage(view)
    phase = phases_of(view)[0] if usages else np.empty(0, np.int64)
    asked = view.options.iteration
    numbered = asked is not None and not isinstance(asked, str)
    stretches = [
        (window.host_begin_ns, window.host_end_ns)
        for window in (view.windows if numbered else ())
        if window.host_begin_ns is not None and window.host_end_ns is not None
    ]
    rows, blocks, iterations, timelines = [], [], [], []
    for usage in usages:
        peak = find_peak(usage, stretches)
        per_iteration = measure_iterations(usage, view.all_windows, view.rank)
        rows.append(_row(view, usage, peak, phase) | {"growth_bytes": _growth(usage, per_iteration["end_bytes"])})
        blocks.append(blocks_at(view, usage, peak))
        iterations.append(per_iteration)
        timelines.append(_thinned(view, usage))
    found = find_copies(view, [usage.device for usage in usages if usage.device >= 0])
    rank = pl.lit(view.rank, pl.Int64).alias("rank")
    copies = measure_copies(found).select(rank, pl.lit(len(view.windows), pl.Int64).alias("iterations"), pl.all())
    return Part(
        table=_table(view, pl.DataFrame(rows, schema={"device": pl.Int64, **_PEAK}), found),
        timeline=pl.concat([pl.DataFrame(schema=_TIMELINE), *timelines]),
        at_peak=pl.concat([pl.DataFrame(schema=AT_PEAK), *blocks]),
        iterations=pl.concat([pl.DataFrame(schema=ITERATIONS), *iterations]),
        copies=copies.select("rank", "device", "kind", "memory", pl.exclude("rank", "device", "kind", "memory")),
        bandwidth=bandwidth_over_time(found).select(rank, pl.all()),
        timed=all(usage.timed for usage in usages),
    )


def _row(view: RankView, usage: Usage, peak: Peak, phase: Int) -> dict[str, int | str | None]:
    inner, outer = makers_at(view, usage, peak)
    names, module = view.nodes["name"], view.trace.column("module")
    held = int(usage.reserved[peak.point])
    return {
        "device": usage.device,
        "source": usage.source,
        "events": len(usage.time) - 1,
        "peak_bytes": peak.size_bytes,
        "peak_ns": peak.time if usage.timed else None,
        "peak_iteration": iteration_at(view.all_windows, peak.time) if usage.timed else None,
        "peak_phase": phase_at(phase, int(usage.row[peak.point])),
        "peak_op": names[inner] if inner >= 0 else None,
        "peak_top_op": names[outer] if outer >= 0 else None,
        "peak_module": next((module[row] for row in (inner, outer) if row >= 0 and module[row]), None),
        "begin_bytes": int(usage.in_use[0]) if usage.source == "events" else None,
        "end_bytes": int(usage.in_use[-1]) if usage.source == "events" else None,
        "allocations": usage.allocations,
        "allocated_bytes": usage.allocated_bytes,
        "freed_bytes": usage.freed_bytes,
        "peak_reserved_bytes": int(usage.reserved.max()) if held >= 0 else None,
        "reserved_at_peak_bytes": held if held >= 0 else None,
        "unused_at_peak_bytes": held - peak.size_bytes if held >= 0 else None,
    }


def _growth(usage: Usage, ends: pl.Series) -> int | None:
    """Return by how much an iteration's end has more in use than the last one's, mean; None with fewer than two."""
    if usage.source != "events" or len(ends) < 2:
        return None
    return int(ends[-1] - ends[0]) // (len(ends) - 1)


def _thinned(view: RankView, usage: Usage) -> pl.DataFrame:
    """Return rows of `_TIMELINE`: first, lowest, highest and last point of each stretch of time."""
    count = len(usage.time)
    points = np.arange(count)
    if count > 4 * _BUCKETS:
        span = int(usage.time[-1] - usage.time[0]) + 1
        bucket = (usage.time - usage.time[0]) / span * _BUCKETS
        table = pl.DataFrame({"bucket": bucket.astype(np.int64), "point": points, "in_use": usage.in_use})
        chosen = [pl.col("point").first(), pl.col("point").last()]
        chosen += [pl.col("point").get(edge) for edge in (pl.col("in_use").arg_min(), pl.col("in_use").arg_max())]
        picked = table.group_by("bucket").agg(value.alias(str(place)) for place, value in enumerate(chosen))
        points = np.unique(picked.drop("bucket").to_numpy())
    return pl.DataFrame(
        {
            "rank": pl.Series([view.rank], dtype=pl.Int64).new_from_index(0, len(points)),
            "device": pl.Series([usage.device], dtype=pl.Int64).new_from_index(0, len(points)),
            "time_ns": usage.time[points] if usage.timed else None,
            "node": view.nodes["id"].gather(without_negatives(usage.row[points])),
            "in_use_bytes": usage.in_use[points],
            "reserved_bytes": without_negatives(usage.reserved[points]),
        },
        schema=_TIMELINE,
    )


def _table(view: RankView, peaks: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Put peaks and copies of each device in one row; a rank of which nothing is known has one too."""
    moved = copies.group_by("device").agg(
        copies=pl.len().cast(pl.Int64),
        copied_bytes=pl.col("bytes").sum(),
        copy_ns=union_ns(),
        **{name: pl.col("bytes").filter(pl.col("kind") == kind).sum() for name, kind in _COPIED.items()},
    )
    known = {*peaks["device"].to_list(), *moved["device"].to_list()} or {0 if view.has_device else -1}
    devices = pl.DataFrame(
        {"device": sorted(known, key=lambda device: (device < 0, device))}, schema={"device": pl.Int64}
    )
    table = devices.join(peaks, on="device", how="left", maintain_order="left")
    table = table.join(moved, on="device", how="left", maintain_order="left")
    counts = [name for name in moved.columns if name != "device"]
    return table.select(pl.lit(view.rank, pl.Int64).alias("rank"), pl.exclude(counts), pl.col(counts).fill_null(0))


def combine(parts: Mapping[int, Part], job: Job) -> Memory:
    """Put the ranks together."""
    keys = check_keys(job.options, _KEYS, _KEYS)
    tables = {
        name: pl.concat([getattr(parts[rank], name) for rank in job.ranks])
        for name in ("table", "timeline", "at_peak", "iterations", "copies", "bandwidth")
    }
    table = tables.pop("table")
    untimed = [rank for rank in job.ranks if not parts[rank].timed]
    notes = say_notes(table, tables["copies"], tables["at_peak"], untimed)
    spans = [w.end_ns - w.begin_ns for facts in job.facts.values() for w in facts.windows]
    step = sum(spans) // len(spans) if spans else 0
    findings = find_words(table, tables["at_peak"], tables["iterations"], tables["copies"], step, job.per_stretch)
    if set(keys) != set(_KEYS):
        table = _merged(table, keys)
    parameters = job.options.as_dict() | {"by": list(keys)}
    return Memory("memory", parameters, table, job.coverage, (*job.notes, *notes), findings, **tables)


def _merged(table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Let the row with the highest peak stand for all with equal keys; counts are added up."""
    highest = table.sort("peak_bytes", descending=True, nulls_last=True, maintain_order=True)
    rest = [name for name in table.columns if name not in _KEYS]
    columns = [pl.col(name).sum() if name in _SUMS else pl.col(name).first() for name in rest]
    return highest.group_by(keys).agg(columns).sort(keys)
