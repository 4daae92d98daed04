"""What the critical path keeps of a rank: its graph without the trace, some 40 bytes a node.

Shape letters: N nodes of the trace, K kept nodes, E edges, A activities, C communications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.joint import cut_graph
from chakra_et.analysis.activities import real_nodes
from chakra_et.analysis.view import RankView
from chakra_et.ir import NodeType
from chakra_et.ir.communications import communications

__all__ = ["CLASSES", "Skeleton", "make_skeleton"]

Int = npt.NDArray[np.int64]
Word = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
Kind = TypeVar("Kind", bound=np.generic)

# What nodes are; gaps that nothing explains better follow by their own kinds.
CLASSES = ("late start", "compute", "communication", "memory", "host")
_FOREVER = np.iinfo(np.int64).max
_START, _COMPUTE, _COMMUNICATION, _MEMORY, _HOST = range(5)


@dataclass(frozen=True, slots=True, eq=False)
class Skeleton:
    """A rank's nodes in the chosen stretch, 1 .. K in the trace's order; node 0 is when the stretch begins.

    What runs when the stretch begins is kept from there on, what runs when it ends up to there.

    Attributes:
        rank: Global rank.
        iterations: Numbers of the iterations in the stretch; empty for the whole profile.
        apart: True if iterations between them were not asked for.
        begin_ns: First ns of the stretch, on the recorded clock.
        end_ns: The ns after its last one; None for the whole profile.
        indptr: int32 [K + 2], predecessor lists.
        preds: int32 [E].
        start_ns: int64 [K + 1], as recorded, from `begin_ns` on; -1 where it isn't recorded.
        duration_ns: int64 [K + 1].
        classes: Names of the classes.
        of_class: uint8 [K + 1].
        kinds: Names of the classes of kernels; the first one, empty, is no kernel's.
        of_kind: uint8 [K + 1].
        names: Names of nodes and operators.
        of_name: int32 [K + 1].
        of_op: int32 [K + 1]: name of the operator that a host node belongs to, or that launched an activity; -1 if
            unknown.
        groups: Process groups of communications.
        of_group: int16 [K + 1]; -1 for what is no communication.
        sinks: int32: nodes whose ends are the stretch's; empty for all.
        comms: [C] all communications of the trace, see `communications`, with ``slot`` (number of the node) and
            ``ready_slot`` (of the node that makes it ready); -1 outside.
        dangling: Number of dependencies on nodes that aren't there.
    """

    rank: int
    iterations: tuple[int, ...]
    apart: bool
    begin_ns: int
    end_ns: int | None
    indptr: Word
    preds: Word
    start_ns: Int
    duration_ns: Int
    classes: tuple[str, ...]
    of_class: npt.NDArray[np.uint8]
    kinds: tuple[str, ...]
    of_kind: npt.NDArray[np.uint8]
    names: tuple[str, ...]
    of_name: Word
    of_op: Word
    groups: tuple[str, ...]
    of_group: npt.NDArray[np.int16]
    sinks: Word
    comms: pl.DataFrame
    dangling: int

    def __len__(self) -> int:
        return len(self.duration_ns)


def make_skeleton(view: RankView) -> Skeleton:
    """Return what the critical path keeps of a rank."""
    begin, end = _stretch(view)
    keep, sinks = _kept(view, begin, end)
    rows = np.flatnonzero(keep)
    slot = np.full(len(keep), -1, np.int32)
    slot[rows] = np.arange(1, len(rows) + 1, dtype=np.int32)
    graph = view.graph
    indptr, preds = cut_graph(graph.indptr, graph.preds, slot, len(rows))
    start, duration = view.start_ns[rows], view.duration_ns[rows]
    until = start + duration
    if end is not None:
        start, until = np.maximum(start, begin), np.minimum(until, end)
    known = view.nodes["start_ns"].is_not_null().to_numpy()[rows] & (start <= until)
    comms = _comms(view, slot)
    classes, of_class = _classes(view)
    kinds, of_kind = _kinds(view)
    names, of_name, of_op = _names(view)
    groups, of_group = _groups(view, comms)
    chosen = [window.iteration for window in view.windows if window.iteration is not None]
    places = [place for place, window in enumerate(view.all_windows) if window in view.windows]
    return Skeleton(
        rank=view.rank,
        iterations=tuple(chosen),
        apart=len(places) > 0 and places[-1] - places[0] >= len(places),
        begin_ns=begin,
        end_ns=end,
        indptr=indptr,
        preds=preds,
        start_ns=_first(np.where(known, start - begin, -1), 0),
        duration_ns=_first(np.maximum(until - start, 0), 0),
        classes=classes,
        of_class=_first(of_class[rows], _START),
        kinds=kinds,
        of_kind=_first(of_kind[rows], 0),
        names=names,
        of_name=_first(of_name[rows], 0),
        of_op=_first(of_op[rows], -1),
        groups=groups,
        of_group=_first(of_group[rows], -1),
        sinks=slot[sinks],
        comms=comms,
        dangling=len(graph.dangling),
    )


def _first(values: npt.NDArray[Kind], value: int) -> npt.NDArray[Kind]:
    """Put a value for node 0 before those of the kept nodes."""
    return np.insert(values, 0, value)


def _stretch(view: RankView) -> tuple[int, int | None]:
    """Return begin and end of the chosen iterations; the profile's begin and None without any."""
    windows = [window for window in view.windows if window.iteration is not None]
    if windows:
        return windows[0].begin_ns, windows[-1].end_ns
    timed = view.nodes["start_ns"].is_not_null() & (view.nodes["type"] != int(NodeType.METADATA_NODE))
    first = view.nodes["start_ns"].filter(timed).min()
    return int(first) if isinstance(first, int) else 0, None


def _kept(view: RankView, begin: int, end: int | None) -> tuple[Bool, Int]:
    """Return which nodes are kept, bool [N], and the rows whose ends are the stretch's; no rows for all.

    The first activity after the stretch stays as a node without time: what it waited for belongs to the stretch.
    """
    graph = view.graph
    linked = np.diff(graph.indptr) > 0
    linked[graph.preds] = True
    keep: Bool = linked | (view.nodes["type"].fill_null(0).to_numpy() != NodeType.METADATA_NODE)
    if end is None:
        return keep, np.empty(0, np.int64)
    start = view.start_ns
    until = start + view.duration_ns
    keep &= (start < end) & ((until > begin) | (start >= begin))
    activities = view.activities
    begins = activities["start_ns"].to_numpy()
    # Host ranges don't begin with an activity; the first one behind is then the first after the stretch.
    after = end if view.has_device else int(begins[begins >= end].min(initial=_FOREVER))
    # The latest first: what the first one after the stretch waited for bounds the stretch, whatever else ends with it.
    rows = activities["row"].to_numpy()[((begins >= begin) & (begins < end)) | (begins == after)][::-1]
    keep[rows] = True
    return keep, rows


def _comms(view: RankView, slot: Word) -> pl.DataFrame:
    """Return all communications of the trace, small."""
    table = communications(view.trace, view.rank, ("unknown_comm", "wait_ns", "transfer_ns"))
    return table.drop("id", "name", "row", "ready_row").with_columns(
        pl.Series("slot", slot[table["row"].to_numpy()].astype(np.int64)),
        pl.Series("ready_slot", slot[table["ready_row"].to_numpy()].astype(np.int64)),
        pl.lit(view.trace.metadata.family == "collected").alias("collected"),
    )


def _classes(view: RankView) -> tuple[tuple[str, ...], npt.NDArray[np.uint8]]:
    """Return the classes and that of each node, uint8 [N]."""
    nodes, activities = view.nodes, view.activities
    types = nodes["type"].fill_null(0).to_numpy()
    host = nodes["is_cpu_op"].fill_null(False).to_numpy()
    found = np.where(host, _HOST, _COMPUTE).astype(np.uint8)
    # Categories of activities stand in the order of the classes.
    found[activities["row"].to_numpy()] = activities["category"].to_physical().to_numpy().astype(np.uint8) + _COMPUTE
    if not view.has_device:
        # What only calls a communication is the host's.
        found[found == _COMMUNICATION] = _HOST
    found[types >= NodeType.COMM_SEND_NODE] = _COMMUNICATION
    if "gap_kind" not in nodes.columns:
        return CLASSES, found
    gaps = nodes["gap_kind"]
    # A thread that pauses between its own nodes runs what no profiler saw, or is being woken.
    own = (gaps == "host_work") | ((gaps == "host_idle") & (nodes["sync_deps"].list.len() == 0))
    gaps = gaps.set(own.fill_null(False), None)
    kinds = gaps.drop_nulls().unique(maintain_order=True).to_list()[: 255 - len(CLASSES)]
    codes = _codes(gaps, kinds)
    return (*CLASSES, *kinds), np.where(codes >= 0, codes + len(CLASSES), found).astype(np.uint8)


def _kinds(view: RankView) -> tuple[tuple[str, ...], npt.NDArray[np.uint8]]:
    """Return the classes of kernels and that of each node, uint8 [N]; on a rank without a device, nothing is one."""
    found = np.zeros(len(view.trace), np.uint8)
    if not view.has_device:
        return ("",), found
    kind = view.activities["kind"]
    kinds = kind.unique(maintain_order=True).to_list()[:254]
    found[view.activities["row"].to_numpy()] = _codes(kind, kinds) + 1
    return ("", *kinds), found


def _names(view: RankView) -> tuple[tuple[str, ...], Word, Word]:
    """Return names, that of each node and that of its operator, int32 [N]; a runtime call is its caller's."""
    nodes = view.nodes
    column = nodes["name"].fill_null("")
    names = column.unique(maintain_order=True).to_list()
    of_name = _codes(column, names)
    host = real_nodes(view.trace) & nodes["is_cpu_op"].fill_null(False).to_numpy()
    of_op = np.where(host, of_name, -1).astype(np.int32)
    called = host & view.trace.column("correlation").is_not_null().to_numpy()
    above = view.parent_rows
    of_op[called] = np.where(above[called] >= 0, of_name[above[called]], -1) if len(of_name) else -1
    if view.has_device:
        ops = view.op_rows
        of_op[view.activities["row"].to_numpy()] = np.where(ops >= 0, of_name[ops], -1)
    return tuple(names), of_name, of_op


def _groups(view: RankView, comms: pl.DataFrame) -> tuple[tuple[str, ...], npt.NDArray[np.int16]]:
    """Return process groups and that of each node, int16 [N]; point to point without one goes by that name."""
    found = np.full(len(view.trace), -1, np.int16)
    types = view.nodes["type"].fill_null(0).to_numpy()
    rows = np.flatnonzero(types >= NodeType.COMM_SEND_NODE)
    sent = comms["type"] != int(NodeType.COMM_COLL_NODE)
    used = comms.select(
        pl.when(sent & pl.col("pg_name").is_null()).then(pl.lit("point to point")).otherwise("pg_name").fill_null("")
    ).to_series()
    groups = used.unique(maintain_order=True).to_list()[: (1 << 15) - 1]
    found[rows] = _codes(used, groups)
    return tuple(groups), found


def _codes(column: pl.Series, known: Sequence[str]) -> Word:
    """Return the place of each value among the known ones, int32; -1 where it isn't there."""
    codes: Word = column.cast(pl.Enum(known), strict=False).to_physical().cast(pl.Int32).fill_null(-1).to_numpy()
    return codes
