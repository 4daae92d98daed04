"""Where a device's time goes: an exact partition of each iteration, and what the device waited for while it was idle.

Shape letters: A activities, W windows, I idle stretches, N nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.causes import COMMUNICATION, HOST_BOUND, LAUNCH_LATENCY, OTHER_STREAM, UNEXPLAINED
from chakra_et._jit.partition import partition
from chakra_et.analysis.charts import COLORS, stacked_bars
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView
from chakra_et.units import format_ns, format_share

__all__ = ["IDLE", "Breakdown", "breakdown", "combine", "measure"]

Int = npt.NDArray[np.int64]

IDLE: tuple[str, ...] = (
    "idle_host_bound_ns",
    "idle_launch_latency_ns",
    "idle_other_stream_ns",
    "idle_communication_ns",
    "idle_unexplained_ns",
)
_CAUSES = (HOST_BOUND, LAUNCH_LATENCY, OTHER_STREAM, COMMUNICATION, UNEXPLAINED)
# What a stretch is, by the kinds that run in it: compute 1, communication 2, memory 4.
_PARTS: dict[str, tuple[int, ...]] = {
    "compute_ns": (1, 3, 5, 7),
    "communication_ns": (2, 3, 6, 7),
    "exposed_communication_ns": (2, 6),
    "overlap_ns": (3, 7),
    "memory_ns": (4,),
    "covered_memory_ns": (5, 6, 7),
}
_KEYS = ("rank", "iteration")
_WORDS = {
    "exposed_communication_ns": "communication that no compute hides",
    "idle_host_bound_ns": "the device waits for the host to launch (host-bound)",
    "idle_launch_latency_ns": "launch latency",
    "idle_other_stream_ns": "the device waits for another stream or event",
    "idle_communication_ns": "the device idles for a communication",
    "idle_unexplained_ns": "the device is idle, and nothing in the trace says why",
    "memory_ns": "copies and sets that nothing hides",
}
# Where no rank has a device.
_HOST_WORDS = {
    "exposed_communication_ns": "communication that no operator hides",
    "idle_host_bound_ns": "the host is idle between operators",
    "idle_communication_ns": "the host idles for a communication",
    "idle_unexplained_ns": "the host is idle, and nothing in the trace says why",
}
# As HolisticTraceAnalysis has it by default.
_SHORT_NS = 30_000

# What the critical path says something of, too.
_SAME = {"idle_unexplained_ns": "class unexplained", "idle_launch_latency_ns": "class launch_latency"}
# What of the critical path each is a part of.
_CONTRIBUTORS = {
    "exposed_communication_ns": "class communication",
    "idle_communication_ns": "class communication",
    "idle_host_bound_ns": "class host",
    "memory_ns": "class memory",
}


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown(Result):
    """An exact partition of the device's time.

    Columns of `table`, a row a rank and iteration (or what `by` says; then times are added up):
    ``rank``, ``iteration`` (null: the whole profile), ``iterations`` (how many the row stands for), ``span_ns`` (wall
    time of the stretch), ``busy_ns`` (anything runs), ``compute_ns`` (a computing kernel runs), ``communication_ns``
    (a communication runs), ``exposed_communication_ns`` (a communication and no computing kernel), ``overlap_ns``
    (both), ``memory_ns`` (only copies and sets), ``covered_memory_ns`` (copies and sets beside either), ``idle_ns``
    (nothing runs), and the causes of idleness: ``idle_host_bound_ns`` (the host came late: it worked, waited or
    slept), ``idle_launch_latency_ns`` (launched, with nothing to wait for), ``idle_other_stream_ns`` (another stream's
    activity had just ended that it waited for), ``idle_communication_ns`` (the same of a communication, or the host
    waited in one), ``idle_unexplained_ns``.

    span = compute + exposed_communication + memory + idle; communication = exposed_communication + overlap; idle is the
    sum of its causes: all of them to the ns.

    Attributes:
        streams: A row a rank, iteration, device and stream: ``activities``, ``busy_ns`` and the gaps between neighbors
            on the stream, as HolisticTraceAnalysis tells them apart: ``host_wait_ns`` (the launch call began after the
            activity before had ended), ``kernel_wait_ns`` (else, shorter than 30 us), ``other_wait_ns``.
    """

    streams: pl.DataFrame

    def plot(self) -> Plot:
        """Return a stacked bar a rank: the mean iteration's parts."""
        parts = {
            "compute": pl.col("compute_ns") - pl.col("overlap_ns"),
            "overlapped": pl.col("overlap_ns"),
            "exposed communication": pl.col("exposed_communication_ns"),
            "memory": pl.col("memory_ns"),
            **{name.removesuffix("_ns").replace("idle_", "idle: ").replace("_", " "): pl.col(name) for name in IDLE},
        }
        table = self.table
        if "rank" not in table.columns:
            table = table.with_columns(rank=pl.lit("all"))
        mean = table.group_by("rank", maintain_order=True).agg(
            (expression.sum() / pl.col("iterations").sum()).alias(name) for name, expression in parts.items()
        )
        return stacked_bars(mean, "rank", list(parts), colors=COLORS, title="time of an iteration")


def breakdown(source: Source, *, options: Options | None = None) -> Breakdown:
    """Partition the device's time of each rank and iteration.

    Args:
        source: Traces, or where they are.
        options: Which iterations; ``by`` takes ``rank`` and ``iteration``.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, start_ns=0, duration_ns=5, is_cpu_op=False, stream=7)
        >>> breakdown(builder.build()).table["busy_ns"].to_list()
        [5]
    """
    return run_one(measure, combine, source, options)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank: its rows, and those of its streams."""

    table: pl.DataFrame
    streams: pl.DataFrame


def measure(view: RankView) -> Part:
    """Partition one rank's time."""
    activities = view.activities
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    kind = activities["category"].to_physical().cast(pl.Int8).to_numpy()
    ends = np.argsort(end, kind="stable")
    until = partition(start, end, kind, ends, np.stack(view.window_bounds, axis=1).reshape(-1))
    rows = []
    for window, times, causes in zip(view.windows, until[1::2] - until[::2], _causes(view), strict=True):
        rows.append(
            {
                "rank": view.rank,
                "iteration": window.iteration,
                "iterations": 1,
                "span_ns": window.end_ns - window.begin_ns,
                "busy_ns": int(times[1:].sum()),
                **{name: int(times[list(masks)].sum()) for name, masks in _PARTS.items()},
                "idle_ns": int(times[0]),
                **{name: int(causes[cause]) for name, cause in zip(IDLE, _CAUSES, strict=True)},
            }
        )
    names = ("rank", "iteration", "iterations", "span_ns", "busy_ns", *_PARTS, "idle_ns", *IDLE)
    return Part(pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64)), _streams(view))


def _causes(view: RankView) -> Int:
    """Return the idle time of each window by cause, int64 [W, 5]."""
    found = np.zeros((len(view.windows), len(_CAUSES)), np.int64)
    steps = view.idle.steps
    np.add.at(found, (view.idle.window[steps[:, 0]], steps[:, 2]), steps[:, 3])
    return found


def _streams(view: RankView) -> pl.DataFrame:
    """Return the gaps between neighbors of each stream."""
    lane = ("window", "device", "stream")
    before = pl.col("end_ns").cum_max().shift().over(lane)
    gap = (pl.col("start_ns") - pl.col("before_ns")).clip(0)
    late = (pl.col("call_start_ns") > pl.col("before_ns")).fill_null(False)
    short = gap < _SHORT_NS
    table = pl.concat([view.activities, view.launches], how="horizontal").filter(pl.col("window").is_not_null())
    found = (
        table.with_columns(before_ns=before)
        .group_by(lane, maintain_order=True)
        .agg(
            activities=pl.len(),
            busy_ns=(pl.col("end_ns") - pl.max_horizontal("start_ns", "before_ns")).clip(0).sum(),
            host_wait_ns=gap.filter(late).sum(),
            kernel_wait_ns=gap.filter(~late & short).sum(),
            other_wait_ns=gap.filter(~late & ~short).sum(),
        )
    )
    return found.select(
        pl.lit(view.rank, pl.Int64).alias("rank"), view.iterations.gather(found["window"]), "device", "stream",
        "activities", "busy_ns", "host_wait_ns", "kernel_wait_ns", "other_wait_ns",
    )  # fmt: skip


def combine(parts: Mapping[int, Part], job: Job) -> Breakdown:
    """Put the ranks together."""
    keys = check_keys(job.options, _KEYS, _KEYS)
    table = pl.concat([parts[rank].table for rank in job.ranks])
    if keys != _KEYS:
        sums = [name for name in table.columns if name not in _KEYS]
        table = table.group_by(keys, maintain_order=True).agg(pl.col(sums).sum())
    streams = pl.concat([parts[rank].streams for rank in job.ranks])
    parameters = job.options.as_dict() | {"by": list(keys)}
    return Breakdown("breakdown", parameters, table, job.coverage, job.notes, _findings(table, job), streams)


def _findings(table: pl.DataFrame, job: Job) -> tuple[Finding, ...]:
    """Say what takes most of the time that isn't compute."""
    span = int(table["span_ns"].sum())
    if not span:
        return ()
    said = []
    for name, text in (_WORDS if job.has_device else _HOST_WORDS).items():
        time = int(table[name].sum())
        if time * 20 >= span:
            each = time // job.rank_steps
            said.append(
                Finding(
                    f"{text}: {format_share(time, span)} of the time, {format_ns(each)} of a rank's {job.stretch} at "
                    "most",
                    each,
                    _SAME.get(name, name),
                    _CONTRIBUTORS.get(name, ""),
                )
            )
    return tuple(sorted(said, key=lambda finding: -finding.cost_ns))
