"""What a comparison keeps of a rank: its work as sequences in the order of its program, small enough for whole sets.

Shape letters: N nodes, A activities, I items, K kinds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.activities import real_nodes
from chakra_et.analysis.view import RankView
from chakra_et.analysis.windows import locate
from chakra_et.ir.arrays import without_negatives

__all__ = ["CALL", "ITEM", "Part", "measure"]

Int = npt.NDArray[np.int64]

# What tells calls apart, and then what they ran.
CALL: tuple[str, ...] = ("what", "op", "shapes", "types", "pg_name")
ITEM: tuple[str, ...] = (*CALL, "name", "kind")
_MARKS = ("tid", "stream", "correlation")
_TIMES = {"window": pl.Int64, "name": pl.String, "count": pl.Int64, "total_ns": pl.Int64}


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank.

    Attributes:
        kinds: [K] distinct kinds of items, the columns of `ITEM`: ``what`` (``op``, or ``communication``), ``op`` (the
            operator that launched, null if unknown; the type of a communication), ``shapes`` and ``types`` of its
            inputs (of a communication: its bytes and element type), ``pg_name``, ``name`` (of the kernel), ``kind``
            (its class).
        items: [I] activities and communications in the chosen stretches, in the order of ``window``, thread and launch,
            communications first; on a rank without a device, operators with all their segments: ``window``, ``call``
            (number of the operator call, ascending), ``of_kind``, ``id`` of the node, ``duration_ns``.
        launches: Runtime calls that launched them: ``window``, ``name``, ``count``, ``total_ns``.
        host: The host's own work otherwise, alike; empty on a rank without a device, where it is in `items`.
        nodes: Nodes that are work, neither gaps nor annotations: ``id``, ``of_name``, ``mark`` (a hash of what a copy
            shares and another run hardly does: name, thread, stream, correlation), ``lane`` (thread; below 0: stream),
            ``start_ns``, ``duration_ns``.
        names: Their names.
        ids: uint64 [N]: all nodes.
        sources: Files that the trace was made from.
    """

    kinds: pl.DataFrame
    items: pl.DataFrame
    launches: pl.DataFrame
    host: pl.DataFrame
    nodes: pl.DataFrame
    names: pl.Series
    ids: npt.NDArray[np.uint64]
    sources: tuple[str, ...]


def measure(view: RankView) -> Part:
    """Return what a comparison keeps of a rank."""
    told = view.communications.filter(
        pl.col("window").is_not_null() & (pl.lit(view.has_device) | pl.col("type").is_not_null())
    )
    items = pl.concat([_communications(told), _operators(view, told)], how="diagonal_relaxed")
    first = pl.col("issued_ns").min()
    items = items.sort(
        "window", "what", first.over("window", "what", "lane"), "lane", first.over("window", "what", "own"), "own",
        "issued_ns", "start_ns",
    )  # fmt: skip
    kinds = items.select(ITEM).unique(maintain_order=True).with_row_index("of_kind")
    items = items.with_columns(call=pl.struct("window", "what", "own").rle_id().cast(pl.Int64))
    if not view.has_device:
        # Segments of an operator are one piece of work.
        items = items.group_by("call", maintain_order=True).agg(
            pl.exclude("duration_ns").first(), pl.col("duration_ns").sum()
        )
    items = items.join(kinds, on=list(ITEM), how="left", nulls_equal=True, maintain_order="left").select(
        "window", "call", pl.col("of_kind").cast(pl.Int64), view.nodes["id"].gather(items["row"]), "duration_ns"
    )
    nodes, names = _nodes(view)
    return Part(
        kinds=kinds.drop("of_kind"),
        items=items,
        launches=_launches(view),
        host=_host(view, told),
        nodes=nodes,
        names=names,
        ids=view.nodes["id"].to_numpy(),
        sources=tuple(str(one.get("file")) for one in view.trace.metadata.sources),
    )


def _communications(told: pl.DataFrame) -> pl.DataFrame:
    """Return communications as items; each is a call of its own."""
    return told.select(
        "window", "name", "row", "start_ns", "pg_name", "kind",
        what=pl.lit("communication"), op="kind", shapes=pl.col("comm_size").cast(pl.String), types="comm_dtype",
        own="row", lane=pl.lit(0, pl.Int64), issued_ns="start_ns",
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )  # fmt: skip


def _operators(view: RankView, told: pl.DataFrame) -> pl.DataFrame:
    """Return the other activities as items; calls are the operators that launched them."""
    activities, calls = view.activities, view.calls
    operator = view.op_rows
    if not view.has_device:
        operator = _first_segments(view)[operator]
    own = np.where(operator >= 0, operator, -1 - activities["row"].to_numpy())
    table = activities.select("window", "name", "kind", "row", "start_ns", "end_ns").with_columns(
        calls.select("op", "shapes", "types"),
        own=pl.Series(own),
        lane=_lanes(view),
        issued_ns=pl.Series(view.issued_ns),
    )
    return table.filter(pl.col("window").is_not_null()).join(told.select("row"), on="row", how="anti").with_columns(
        what=pl.lit("op"), duration_ns=pl.col("end_ns") - pl.col("start_ns")
    ).drop("end_ns")  # fmt: skip


def _first_segments(view: RankView) -> Int:
    """Return the row of the first segment of each node's operator, int64 [N]: the parent of the later ones."""
    later = view.trace.integers("segment", 0) > 0
    return np.where(later & (view.parent_rows >= 0), view.parent_rows, np.arange(len(view.trace)))


def _lanes(view: RankView) -> pl.Series:
    """Return the thread that launched each activity, [A]; its stream, below 0, where that isn't known."""
    threads, operator = view.trace.column("tid"), view.op_rows
    stream = -1 - view.activities["stream"].cast(pl.Int64)
    caller = threads.gather(without_negatives(operator)).cast(pl.Int64)
    called = view.launches["call_tid"].cast(pl.Int64)
    return pl.select(pl.coalesce(called, caller, stream).alias("lane")).to_series()


def _launches(view: RankView) -> pl.DataFrame:
    """Return how many runtime calls launched the chosen activities, and how long they took."""
    if not view.has_device:
        return pl.DataFrame(schema=_TIMES)
    calls = view.launches.with_columns(view.activities["window"]).filter(
        pl.col("window").is_not_null() & pl.col("call_row").is_not_null()
    )
    calls = calls.unique("call_row", maintain_order=True)
    name = view.nodes["name"].gather(calls["call_row"]).fill_null("")
    return _counted(
        calls.select("window", name, pl.lit(True).alias("whole"), ns=pl.col("call_end_ns") - pl.col("call_start_ns"))
    )


def _host(view: RankView, told: pl.DataFrame) -> pl.DataFrame:
    """Return the host's own work in the chosen stretches that launches nothing and is no communication."""
    if not view.has_device:
        return pl.DataFrame(schema=_TIMES)
    nodes = view.nodes
    taken = real_nodes(view.trace) & nodes["is_cpu_op"].fill_null(False).to_numpy()
    if "correlation" in nodes.columns:
        launching = nodes["correlation"].gather(view.activities["row"]).drop_nulls().unique()
        taken &= ~nodes["correlation"].is_in(launching.implode()).fill_null(False).to_numpy()
    taken[told["row"].to_numpy()] = False
    rows = np.flatnonzero(taken)
    begins, ends = np.array([window.host_range_ns for window in view.windows], np.int64).reshape(-1, 2).T
    window = locate(view.start_ns[rows], begins, ends)
    if len(begins) == 1 and view.windows[0].iteration is None:
        # The whole profile: the host's work before the first activity and after the last one, too.
        window[:] = 0
    segment = view.trace.column("segment").gather(rows).fill_null(0)
    table = pl.DataFrame(
        {
            "window": window,
            "name": nodes["name"].gather(rows).fill_null(""),
            "whole": segment == 0,
            "ns": view.duration_ns[rows],
        }
    )
    return _counted(table.filter(pl.col("window") >= 0))


def _counted(table: pl.DataFrame) -> pl.DataFrame:
    found = table.group_by("window", "name", maintain_order=True).agg(
        count=pl.col("whole").sum().cast(pl.Int64), total_ns=pl.col("ns").sum()
    )
    return found.select(pl.col(name).cast(dtype) for name, dtype in _TIMES.items())


def _nodes(view: RankView) -> tuple[pl.DataFrame, pl.Series]:
    """Return the nodes that are work, and their names."""
    rows = np.flatnonzero(real_nodes(view.trace))
    name = view.nodes["name"].gather(rows).fill_null("")
    names = name.unique(maintain_order=True)
    place = [view.trace.column(key).gather(rows).cast(pl.Int64) for key in ("tid", "stream")]
    lanes = pl.select(pl.coalesce(-1 - place[1], place[0], pl.lit(0))).to_series()
    marks = pl.DataFrame([name, *(view.trace.column(key).gather(rows) for key in _MARKS)]).hash_rows()
    codes = name.cast(pl.Enum(names)).to_physical().cast(pl.Int32)
    table = pl.DataFrame(
        {
            "id": view.nodes["id"].gather(rows),
            "of_name": codes,
            "mark": marks,
            "lane": lanes,
            "start_ns": view.start_ns[rows],
            "duration_ns": view.duration_ns[rows],
        }
    )
    return table, names
