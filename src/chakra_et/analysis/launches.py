"""What launching costs the host, how far it runs ahead of its device, and where the device waits for it.

Shape letters: A activities, N nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from chakra_et.analysis.charts import KIND_COLORS, layout, time_unit
from chakra_et.analysis.launch_calls import launched_activities, runtime_calls
from chakra_et.analysis.launch_capture import CAPTURE, GRAPHS, find_capture, find_graphs
from chakra_et.analysis.launch_idle import HOST_WORK, SPANS, find_host_bound
from chakra_et.analysis.launch_queue import QUEUE, thinned
from chakra_et.analysis.launch_rows import SHORT, add_up, facts_of, queue_of, short_of
from chakra_et.analysis.launch_words import find_words, say_notes
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.result import Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView

__all__ = ["Launches", "combine", "launches", "measure"]

_KEYS = ("rank", "iteration", "device", "stream", "call")
_DEFAULT = ("rank", "iteration")
_LONGEST = 100
_LINES, _POINTS = 8, 500


@dataclass(frozen=True, slots=True, eq=False)
class Launches(Result):
    """Launches: runtime calls that make a device do something, and the activities that they launch.

    An activity counts where it starts, a call with the first activity that it launched, a stretch of idleness with the
    activity that ends it. An activity whose call isn't in the profile counts in ``activities`` and ``unlinked`` alone.

    Columns of `table`, a row a rank and iteration (``by`` takes ``device``, ``stream`` and ``call`` too: the call's
    name), null where nothing is known: the keys, ``span_ns`` (the device's stretch), ``activities``, ``unlinked``,
    ``calls``.

    Cost: ``call_ns`` (time of the calls, added up, with what they waited in it) and its ``call_mean_ns``,
    ``call_p50_ns``, ``call_p90_ns``, ``call_max_ns``; ``blocked_calls`` and ``blocked_ns`` (of that, waiting for room
    in the queue: the trace says so, or the call took far longer than usual (3 times and 10 us more) while 896 launches
    and more were queued on the stream); ``copy_wait_ns`` (of that, waiting for the call's own copy from or to the
    host).

    Delay: ``delay_mean_ns``, ``delay_p50_ns``, ``delay_p90_ns``, ``delay_max_ns`` (from the call's start to the
    activity's, queueing included); ``after_call_min_ns``, ``after_call_mean_ns``, ``after_call_p50_ns``,
    ``after_call_p90_ns``, ``after_call_max_ns`` (from the call's end; negative where the activity starts before its
    call returns: ``within_call`` of them); ``latency_count``, ``latency_mean_ns``, ``latency_p50_ns``,
    ``latency_p90_ns``, ``latency_max_ns`` (the true latency: from the call's start to that of kernels whose stream was
    idle, and that waited for nothing else; who starts behind a gap that the trace leaves unexplained doesn't count).

    Queue: how many activities are launched (from their calls' start) and not started: ``queue_max``, ``queue_mean``
    (over time), ``queue_empty_ns`` and ``queue_empty_share`` (the device has nothing to go on with). Several streams
    count together unless ``by`` tells them apart.

    Host-bound: ``host_bound_spans`` and ``host_bound_ns`` (the device idles since the host comes late; the same as
    `breakdown` tells as ``idle_host_bound_ns``).

    Short kernels: ``kernels`` (launched by a call of their own), ``short_kernels`` (that take less time than the call
    did, waits apart), ``short_share``, ``short_time_ns`` and ``short_call_ns`` (theirs and their calls', added up).

    Graphs: ``graph_launches``, ``graph_activities``, ``graph_share`` (of all activities), ``graph_call_ns``,
    ``graph_device_ns`` (added up).

    Attributes:
        queue: The queue of each stream over time: ``rank``, ``iteration``, ``device``, ``stream``, ``time_ns``,
            ``length`` (from then on; at one moment, first with what is launched then).
        spans: The longest 100 host-bound stretches of each rank: ``rank``, ``iteration``, ``begin_ns``, ``end_ns`` (on
            the recorded clock), ``idle_ns`` (nothing runs), ``host_bound_ns`` (of that), ``device``, ``stream``,
            ``name`` and ``call`` of the activity that ends it, ``after`` (the host had waited for the device in this
            call, and began when that was done), ``host_name`` and ``host_name_ns`` (operator or call that took most of
            it, callees apart), ``outside_ns`` (outside of any: Python, or asleep), ``module`` (of that operator, or of
            the nearest above it that has one).
        host_work: What hosts do while devices wait for them, over all stretches: ``rank``, ``iteration``, ``name``
            (null: outside of any operator or call), ``spans``, ``time_ns``.
        short: Kernels that are shorter than their calls: ``rank``, ``name``, ``kind``, ``launches`` (of the name),
            ``short_launches``, ``time_ns`` and ``call_ns`` (theirs and their calls', of the short ones),
            ``excess_ns``.
        capture: Candidates for a graph: runs of launches on one stream without a host's wait, a copy to the host or a
            graph launch in between, in every chosen iteration with the same names, for which the device waits:
            ``rank``, ``device``, ``stream``, ``launches`` (of one run), ``names`` (different ones), ``runs`` (in all
            iterations), ``iterations``, ``first`` and ``last`` activity, and of an iteration ``device_ns`` and
            ``call_ns`` (added up), ``ceiling_call_ns`` (the host's time that graphs save at most: all calls but one
            graph launch a run) and ``ceiling_idle_ns`` (the device's host-bound idleness inside: what a step gains at
            most).
        graphs: A row a graph launch: ``rank``, ``iteration``, ``call``, ``call_start_ns``, ``call_ns``, ``device``,
            ``stream``, ``activities``, ``kernels``, ``delay_ns`` (from the call's start to the first activity's),
            ``device_ns`` (added up), ``span_ns`` (from the first start to the last end).
    """

    queue: pl.DataFrame
    spans: pl.DataFrame
    host_work: pl.DataFrame
    short: pl.DataFrame
    capture: pl.DataFrame
    graphs: pl.DataFrame

    def plot(self) -> Plot:
        """Return the queues of the busiest streams over time, thinned out to the longest of each moment.

        The longest and the shortest one on average are drawn, the others wait in the legend.
        """
        keys = ["rank", "device", "stream"]
        busy = self.queue.group_by(keys).len().sort("len", *keys, descending=[True, False, False, False]).head(_LINES)
        origin = self.queue.group_by("rank").agg(pl.col("time_ns").min())
        first = dict(origin.iter_rows())
        longest = max((int(self.queue["time_ns"].max() or 0) - start for start in first.values()), default=0)  # type: ignore[arg-type]
        size, unit = time_unit(longest)
        several = busy["device"].n_unique() > 1
        data: list[dict[str, Any]] = []
        means: list[float] = []
        for place, (rank, device, stream) in enumerate(busy.select(keys).sort(keys).iter_rows()):
            own = (pl.col("rank") == rank) & (pl.col("device") == device) & (pl.col("stream") == stream)
            points = thinned(self.queue.filter(own).sort("time_ns", maintain_order=True), _POINTS)
            name = f"rank {rank}, " + (f"device {device}, " if several else "") + f"stream {stream}"
            means.append(float(points["length"].mean() or 0))  # type: ignore[arg-type]
            data.append(
                {
                    "type": "scatter", "mode": "lines", "name": name,
                    "x": [(time - first[rank]) / size for time in points["time_ns"]], "y": points["length"].to_list(),
                    "line": {"shape": "hv", "width": 1, "color": KIND_COLORS[place % len(KIND_COLORS)]},
                    "hovertemplate": f"{name}<br>%{{x:.4g}} {unit}: %{{y}} queued<extra></extra>",
                }
            )  # fmt: skip
        for mean, line in zip(means, data, strict=True):
            # All of them would hide one another.
            line["visible"] = True if mean in (max(means), min(means)) else "legendonly"
        return Plot(tuple(data), layout(x=f"time, {unit}", y="launched and not started"))


def launches(source: Source, *, options: Options | None = None) -> Launches:
    """Measure launches, and what the device waits for its host.

    Args:
        source: Traces, or where they are.
        options: Which iterations; ``by`` takes ``rank``, ``iteration``, ``device``, ``stream`` and ``call``.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> call = builder.add("cudaLaunchKernel", NodeType.COMP_NODE, start_ns=0, duration_ns=4, is_cpu_op=True,
        ...     correlation=1)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, start_ns=9, duration_ns=5, stream=7, correlation=1,
        ...     ctrl_deps=[call])
        >>> launches(builder.build()).table.select("calls", "call_ns", "latency_p50_ns", "after_call_p50_ns").row(0)
        (1, 4, 9, 5)
    """
    return run_one(measure, combine, source, options)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank: its rows (or facts to add up with other ranks'), tables, and what notes need.

    Attributes:
        rows: What `add_up` returns where ranks are told apart, else what `facts_of` returns.
        tables: The further tables by name, with their ranks.
        counts: Numbers for notes.
    """

    rows: pl.DataFrame
    tables: Mapping[str, pl.DataFrame]
    counts: Mapping[str, Any]


_SCHEMAS: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    "queue": QUEUE, "spans": SPANS, "host_work": HOST_WORK, "short": SHORT, "capture": CAPTURE, "graphs": GRAPHS,
}  # fmt: skip


def measure(view: RankView) -> Part:
    """Measure one rank's launches."""
    keys = check_keys(view.options, _KEYS, _DEFAULT)
    table = launched_activities(view) if view.has_device else launched_activities(view).clear()
    hosted = bool(view.has_device and view.nodes["is_cpu_op"].any())
    host = find_host_bound(view, table) if hosted else None
    facts = facts_of(view, table, host.spans if host else None, keys)
    late = np.zeros(table.height, np.int64)
    tables: dict[str, pl.DataFrame] = {}
    if host is not None:
        ended = host.spans.filter(pl.col("follower") >= 0)
        late[ended["follower"].to_numpy()] = ended["host_bound_ns"].to_numpy()
        longest = host.spans.sort("host_bound_ns", descending=True, maintain_order=True).head(_LONGEST)
        tables = {"spans": longest.drop("window", "follower"), "host_work": host.work}
    calls = runtime_calls(view)
    tables |= {
        "queue": queue_of(view, table),
        "short": short_of(facts),
        "capture": find_capture(view, table, calls, late),
        "graphs": find_graphs(view, table, calls),
    }
    rank = pl.lit(view.rank, pl.Int64).alias("rank")
    tables = {name: frame.select(rank, *list(_SCHEMAS[name])[1:]) for name, frame in tables.items()}
    inside = table.filter(pl.col("window").is_not_null())
    counts = {
        "device": view.has_device,
        "hosted": hosted,
        "linked": inside["call_row"].null_count() < inside.height,
        "guessed": int(inside["guessed"].sum()),
        "windows": len(view.windows),
        "candidates": tables["capture"].height,
    }
    return Part(add_up(facts, keys) if "rank" in keys else facts, tables, counts)


def combine(parts: Mapping[int, Part], job: Job) -> Launches:
    """Put the ranks together."""
    keys = check_keys(job.options, _KEYS, _DEFAULT)
    rows = pl.concat([parts[rank].rows for rank in job.ranks], how="diagonal_relaxed")
    table = rows if "rank" in keys else add_up(rows, keys)
    tables = {
        name: pl.concat(
            [pl.DataFrame(schema=schema), *(part.tables[name] for part in parts.values() if name in part.tables)]
        )
        for name, schema in _SCHEMAS.items()
    }
    parameters = job.options.as_dict() | {"by": list(keys)}
    counts = {rank: parts[rank].counts for rank in job.ranks}
    notes = (*job.notes, *say_notes(counts))
    words = find_words(table, tables, counts, job.stretch)
    return Launches("launches", parameters, table, job.coverage, notes, words, **tables)
