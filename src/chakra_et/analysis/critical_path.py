"""The critical path over all ranks, and how long a step would take if something took no time.

All ranks' graphs are joined where they communicate, and scheduled as one. From the last end, the path follows what was
waited for; at a communication it goes on with the rank that came last, so that nobody waits on it. What something costs
is found by scheduling everything anew without it: waits shrink or grow, and other paths come up. A gain is a ceiling.

Shape letters: R ranks, N nodes of all ranks, T nodes in all, P nodes of the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.charts import layout, time_unit
from chakra_et.analysis.joint import Joint, join
from chakra_et.analysis.names import short_name
from chakra_et.analysis.options import Options, check_fixed
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.skeleton import Skeleton, make_skeleton
from chakra_et.analysis.view import RankView
from chakra_et.ir.arrays import without_negatives
from chakra_et.units import format_name, format_ns, format_number_of, format_share

__all__ = ["CriticalPath", "combine", "critical_path", "measure"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# How many contributors of each kind are looked at, those with the most time on the path.
_MOST = {"class": 16, "group": 6, "kernel class": 8, "kernel": 8, "op": 8, "rank": 4, "host of rank": 4}
_OUTSIDE = "outside"
# Classes that are not a rank's own doing.
_NOT_OWN = ("communication", "late start")
# Classes that people ask for, on the path or not.
_ASKED_FOR = ("compute", "communication", "memory", "host")
_WORDS = {
    "compute": "compute", "communication": "communication", "memory": "copies", "host": "the host's work",
    "launch_latency": "launch latency", "host_idle": "idle time of host threads",
    "unexplained": "time that nothing explains", "late start": "the late start of ranks",
    _OUTSIDE: "waiting for ranks or iterations that aren't looked at",
}  # fmt: skip
_SCHEMA = {"kind": pl.String, "name": pl.String, "path_ns": pl.Int64, "path_share": pl.Float64, "total_ns": pl.Int64,
           "finish_ns": pl.Int64, "gain_ns": pl.Int64, "gain_share": pl.Float64}  # fmt: skip
_LEAST_SHARE = 0.01

# Colors that no class of activities has.
_PATH_COLOR, _GAIN_COLOR = "#4D4D4D", "#A05195"
_LEAST_DRAWN = 0.002


@dataclass(frozen=True, slots=True, eq=False)
class CriticalPath(Result):
    """What bounds the chosen stretch, over all ranks.

    Columns of `table`, a row a contributor that is on the path, the largest of each ``kind`` first, and the classes
    compute, communication, memory and host if they take any time: ``kind``
    (``class``: compute, communication, memory, host, and gaps that nothing explains better; ``group``: communications
    of a process group; ``kernel class``; ``kernel``; ``op``: the host's own time in an operator, and the activities
    that it launched; ``rank``: all that a rank does itself, its communications excepted; ``host of rank``), ``name``,
    ``path_ns`` (its time on the path), ``path_share`` (of `finish_ns`), ``total_ns`` (its time on all ranks, added up;
    of communications what they take after the last has come), ``finish_ns`` (how long everything would take if it took
    no time, everything scheduled anew), ``gain_ns`` (how much less that is: at most so much can be gained),
    ``gain_share``.

    Attributes:
        finish_ns: From the first rank's begin of the stretch to the last one's end of it.
        steps: How many iterations that is.
        hops: How often the path goes from one rank to another.
        start_error_ns: Largest distance of a start of the joint schedule from the recorded one; None where nothing is
            recorded. 0 for converted traces.
        origin_ns: Where the stretch begins, on the lowest rank's recorded clock.
        path: The path in time order, a row for each run of nodes of one rank, class and process group: ``rank`` (null
            outside), ``begin_ns``, ``end_ns`` (from the stretch's begin on), ``class``, ``name`` (of the longest one),
            ``group``, ``nodes`` (how many).
    """

    finish_ns: int
    steps: int
    hops: int
    start_error_ns: int | None
    origin_ns: int
    path: pl.DataFrame

    def plot(self) -> Plot:
        """Return bars: time of each class on the path, beside what could be gained at most."""
        table = self.table.filter(pl.col("kind") == "class")
        seen = pl.max_horizontal("path_share", "gain_share") >= _LEAST_DRAWN
        table = table.filter(seen) if table.select(seen.any()).item() else table
        steps = max(self.steps, 1)
        size, unit = time_unit(self.finish_ns / steps)
        names = [name.replace("_", " ") for name in table["name"]]
        bars = []
        for title, column, color in (
            ("on the critical path", "path", _PATH_COLOR),
            ("gained at most without it", "gain", _GAIN_COLOR),
        ):
            bars.append(
                {
                    "type": "bar", "orientation": "h", "name": title, "y": names,
                    "x": [round(value / steps / size, 6) for value in table[f"{column}_ns"]],
                    "customdata": table[f"{column}_share"].to_list(), "marker": {"color": color},
                    "hovertemplate": f"%{{y}}<br>{title}: %{{x:.4g}} {unit} (%{{customdata:.1%}})<extra></extra>",
                }
            )  # fmt: skip
        what = "a step" if self.steps > 1 else "the step"
        shape = layout(x=f"time of {what}, {unit}", barmode="group", bargap=0.25)
        shape["yaxis"] |= {"autorange": "reversed", "type": "category"}
        return Plot(tuple(bars), shape)


def critical_path(source: Source, *, options: Options | None = None) -> CriticalPath:
    """Find what bounds the chosen iterations over all ranks, and what each of it costs at most.

    What runs when the stretch begins is kept from there on: the lead that the host had then stays as it was. Threads
    and streams keep their order.

    Args:
        source: Traces, or where they are.
        options: Which iterations; ``by`` takes ``kind`` only.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> long = builder.add("gemm", NodeType.COMP_NODE, start_ns=0, duration_ns=5, is_cpu_op=False, stream=7)
        >>> short = builder.add("copy", NodeType.COMP_NODE, start_ns=0, duration_ns=3, is_cpu_op=False, stream=8)
        >>> last = builder.add(
        ...     "add", NodeType.COMP_NODE, start_ns=5, duration_ns=1, sync_deps=[long, short], is_cpu_op=False, stream=7
        ... )
        >>> found = critical_path(builder.build())
        >>> found.table.filter(kind="kernel").select("name", "path_ns", "gain_ns").rows()
        [('gemm', 5, 2), ('add', 1, 1)]
    """
    return run_one(measure, combine, source, options)


def measure(view: RankView) -> Skeleton:
    """Return what is kept of one rank."""
    return make_skeleton(view)


def combine(parts: Mapping[int, Skeleton], job: Job) -> CriticalPath:
    """Join the ranks, follow the path, and schedule anew without each contributor."""
    check_fixed(job.options, ("kind",))
    ranks = [parts[rank] for rank in sorted(parts)]
    joint = join(ranks, job.groups)
    path = _path(joint, ranks)
    table = _table(joint, ranks, path)
    steps = max((len(part.iterations) for part in ranks), default=0)
    error, notes = _notes(joint, ranks)
    rank = path.filter(pl.col("rank").is_not_null())["rank"]
    return CriticalPath(
        name="critical-path",
        parameters=job.options.as_dict(),
        table=table,
        coverage=job.coverage,
        notes=(*job.notes, *notes),
        findings=_findings(table, joint.finish_ns, steps),
        finish_ns=joint.finish_ns,
        steps=max(steps, 1),
        hops=int((rank != rank.shift()).sum()),
        start_error_ns=error,
        origin_ns=joint.origin_ns,
        path=_runs(path),
    )


def _path(joint: Joint, parts: Sequence[Skeleton]) -> pl.DataFrame:
    """Return the nodes of the path that take time, [P]."""
    nodes = joint.path()
    nodes = nodes[joint.duration_ns[nodes] > 0]
    place = np.searchsorted(joint.offsets, nodes, side="right") - 1
    found = []
    for index in np.unique(place).tolist():
        at = np.flatnonzero(place == index)
        columns = {"at": at, "end_ns": joint.end_ns[nodes[at]], "ns": joint.duration_ns[nodes[at]]}
        if index >= len(parts):
            found.append(pl.DataFrame(columns).with_columns(pl.lit(_OUTSIDE).alias("class")))
            continue
        part, rows = parts[index], nodes[at] - joint.offsets[index]
        kind = _words(part.kinds, part.of_kind[rows]).replace("", None)
        name = _words(part.names, part.of_name[rows])
        table = pl.DataFrame(columns).with_columns(
            pl.lit(part.rank, pl.Int64).alias("rank"),
            _words(part.classes, part.of_class[rows]).alias("class"),
            kind.alias("kernel class"),
            name.alias("name"),
            pl.when(kind.is_not_null()).then(name).alias("kernel"),
            _words(part.names, part.of_op[rows]).alias("op"),
            _words(part.groups, part.of_group[rows]).alias("group"),
        )
        # The first node is nobody's: it stands for the begin of the rank's stretch.
        found.append(table.with_columns(pl.when(pl.Series(rows > 0)).then("name").alias("name")))
    schema = {"at": pl.Int64, "end_ns": pl.Int64, "ns": pl.Int64, "rank": pl.Int64, "class": pl.String,
              "kernel class": pl.String, "name": pl.String, "kernel": pl.String, "op": pl.String,
              "group": pl.String}  # fmt: skip
    return pl.concat([pl.DataFrame(schema=schema), *found], how="diagonal").sort("at")


def _words(known: Sequence[str], codes: npt.NDArray[np.integer]) -> pl.Series:
    """Return the words that codes stand for; null for negative codes."""
    return pl.Series(known, dtype=pl.String).gather(without_negatives(codes.astype(np.int64)))


def _runs(path: pl.DataFrame) -> pl.DataFrame:
    """Return the path with neighbors of one rank, class and group in one row."""
    run = pl.struct("rank", "class", "group").rle_id()
    return path.group_by(run.alias("run"), maintain_order=True).agg(
        pl.col("rank").first(),
        begin_ns=(pl.col("end_ns") - pl.col("ns")).first(),
        end_ns=pl.col("end_ns").last(),
        **{"class": pl.col("class").first()},
        name=pl.col("name").sort_by("ns", descending=True, maintain_order=True).first(),
        group=pl.col("group").first(),
        nodes=pl.len(),
    ).drop("run")  # fmt: skip


def _table(joint: Joint, parts: Sequence[Skeleton], path: pl.DataFrame) -> pl.DataFrame:
    """Return what contributors cost."""
    nothing, buffer = np.zeros(len(joint.order), np.bool_), np.empty(len(joint.order), np.int64)
    own = ~pl.col("class").is_in(_NOT_OWN)
    several = pl.lit(len(parts) > 1)
    path = path.with_columns(
        pl.when(own & several).then("rank").cast(pl.String).alias("rank"),
        pl.when((pl.col("class") == "host") & several).then("rank").cast(pl.String).alias("host of rank"),
    )
    rows, finish = [], joint.finish_ns
    for kind, most in _MOST.items():
        times = path.group_by(kind, maintain_order=True).agg(pl.col("ns").sum()).drop_nulls(kind)
        ranked = times.sort("ns", descending=True, maintain_order=True).head(most).rows()
        if kind == "class" and finish:
            on_path = {name for name, _ in ranked}
            known = {word for part in parts for word in part.classes}
            ranked += [(name, 0) for name in _ASKED_FOR if name in known - on_path]
        for name, time in ranked:
            nothing[:] = False
            total = 0
            for place, chosen in _chosen(kind, name, parts):
                low, high = joint.offsets[place : place + 2].tolist()
                nothing[low:high] = chosen
                total += int(joint.duration_ns[low:high][chosen].sum())
            if name == _OUTSIDE and kind == "class":
                nothing[joint.outside :] = True
                total += int(joint.duration_ns[joint.outside :].sum())
            if not (time or total):
                continue
            end = joint.finish_without(nothing, buffer)
            rows.append((kind, name, time, time / finish, total, end, finish - end, (finish - end) / finish))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _chosen(kind: str, name: str, parts: Sequence[Skeleton]) -> Iterator[tuple[int, Bool]]:
    """Return a contributor's nodes, bool, by place of the rank."""
    for place, part in enumerate(parts):
        if kind == "host of rank" and str(part.rank) == name:
            yield place, _coded(part.of_class, part.classes, ("host",))
        elif kind == "rank" and str(part.rank) == name:
            yield place, ~_coded(part.of_class, part.classes, _NOT_OWN)
        elif kind == "class":
            yield place, _coded(part.of_class, part.classes, (name,))
        elif kind == "group":
            yield place, _coded(part.of_group, part.groups, (name,))
        elif kind == "kernel class":
            yield place, _coded(part.of_kind, part.kinds, (name,))
        elif kind == "kernel":
            yield place, _coded(part.of_name, part.names, (name,)) & (part.of_kind > 0)
        elif kind == "op":
            yield place, _coded(part.of_op, part.names, (name,))


def _coded(codes: npt.NDArray[np.integer], known: Sequence[str], wanted: Sequence[str]) -> Bool:
    """Return where codes stand for one of the wanted words."""
    found = [code for code, word in enumerate(known) if word in wanted]
    chosen: Bool = np.asarray(codes == found[0]) if len(found) == 1 else np.isin(codes, found)
    return chosen


def _findings(table: pl.DataFrame, finish: int, steps: int) -> tuple[Finding, ...]:
    """Say what costs most, a ceiling each."""
    whole = "the step" if steps == 1 else "a step" if steps else "the profile"
    count = max(steps, 1)
    found: dict[int, Finding] = {}
    for kind, name, time, _, _, end, gain, share in table.sort("gain_ns", descending=True, maintain_order=True).rows():
        # One that gains the same as another is mostly the same thing.
        if share < _LEAST_SHARE or name == _OUTSIDE or gain in found:
            continue
        text = (
            f"{_noun(kind, name)} bounds {format_share(time, finish)} of {whole}; without it {whole} would take "
            f"{format_ns(end / count)} instead of {format_ns(finish / count)}, "
            f"at most {format_share(gain, finish)} less"
        )
        found[gain] = Finding(text, gain // count, f"{kind} {name}")
    return tuple(found.values())[:8]


def _noun(kind: str, name: str) -> str:
    short = format_name(short_name(name) if kind == "kernel" else name)
    return {
        "class": _WORDS.get(name, name),
        "group": f"communication of group {short}",
        "kernel class": f"work in kernels of class {name}",
        "kernel": f"kernel {short}",
        "op": f"operator {short}",
        "rank": f"the own work of rank {name}",
        "host of rank": f"the host of rank {name}",
    }[kind]


def _notes(joint: Joint, parts: Sequence[Skeleton]) -> tuple[int | None, list[str]]:
    """Return the largest error of a start, and what limits the result."""
    error, nodes, wrong = 0, 0, 0
    for place, part in enumerate(parts):
        known = part.start_ns >= 0
        known[0] = False
        recorded = part.start_ns[known] + (part.begin_ns + joint.shift_ns[place])
        away = np.abs(joint.start_ns(place)[known] - recorded)
        error, nodes, wrong = max(error, int(away.max(initial=0))), nodes + len(away), wrong + int((away > 0).sum())
    notes = []
    if wrong:
        notes.append(
            f"scheduled from dependencies and durations alone, {wrong:,} of {nodes:,} nodes start up to "
            f"{format_ns(error)} away from when they were recorded to start"
        )
    elif nodes:
        notes.append(f"scheduled from dependencies and durations alone, all {nodes:,} nodes start as recorded")
    dangling = sum(part.dangling for part in parts)
    if dangling:
        notes.append(f"{format_number_of(dangling, 'edge')} from nodes that aren't there: left out")
    if joint.cut_edges:
        cut = format_number_of(joint.cut_edges, "edge")
        notes.append(f"the graph has cycles: {cut} that would close them left out; repair the trace first")
    if joint.unknown:
        notes.append(f"{format_number_of(joint.unknown, 'communication')} with unknown partners: they wait for nobody")
    if joint.lacking:
        notes.append(
            f"{format_number_of(joint.lacking, 'communication')} with ranks that aren't in the set: waiting for them "
            "counts as transfer unless an earlier matching told it apart"
        )
    if any(part.apart for part in parts):
        notes.append("the chosen iterations are apart: what lies between them is on the path as well")
    if len({part.iterations for part in parts}) > 1:
        notes.append("ranks mark different iterations: each takes part with its own")
    return (error if nodes else None), notes
