"""Which phase each node belongs to: forward, backward or optimizer of a training step.

A node's phase is that of the nearest enclosing operator or annotation that has one by its name. What no name tells is
filled in from weaker signs: the autograd thread, sequence numbers and modules, and the order inside a step.

Shape letters: N nodes, W windows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.view import RankView
from chakra_et.analysis.windows import locate
from chakra_et.ir import NodeType
from chakra_et.ir.call_stack import nearest

__all__ = [
    "BACKWARD",
    "FORWARD",
    "OPTIMIZER",
    "OTHER",
    "inherited",
    "modules_of",
    "of_activities",
    "phases_of",
    "trains",
]

Int = npt.NDArray[np.int64]

FORWARD, BACKWARD, OPTIMIZER, OTHER = 0, 1, 2, -1
_BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$|AccumulateGrad|(^|[^a-zA-Z])(backward|bwd)([^a-zA-Z]|$)"
_OPTIMIZER = r"^Optimizer\.|(^|[^a-zA-Z])(optimizer|zero_?grad|clip_grad\w*|optimizer_step)([^a-zA-Z]|$)"
_FORWARD = r"(^|[^a-zA-Z])(forward|fwd)([^a-zA-Z]|$)|(^|[^a-zA-Z])training_step$"
# An optimizer that no annotation names still calls these, mostly.
_UPDATES = r"^aten::(_foreach_|_fused_(adam|adamw|sgd|adagrad)_|_amp_)"
_AUTOGRAD = "autograd::engine::"


def phases_of(view: RankView) -> tuple[Int, int]:
    """Return the phase of each node, int64 [N] (`OTHER`: none is known), and how many host nodes' is guessed."""
    nodes = view.nodes
    host = nodes["is_cpu_op"].fill_null(False).to_numpy()
    own = np.where(host, _by_name(nodes["name"]), OTHER)
    phase = inherited(own, view.parent_rows)
    if not (phase >= 0).any():
        return phase, 0
    weak = np.where(phase < 0, _weak(view, host, own), OTHER)
    phase = np.where(phase < 0, inherited(weak, view.parent_rows), phase)
    guessed = _by_order(view, host, phase)
    return inherited(np.where(guessed, FORWARD, phase), view.parent_rows), int(guessed.sum())


def trains(phase: Int) -> bool:
    """True if anything computes or applies gradients."""
    return bool((phase == BACKWARD).any() or (phase == OPTIMIZER).any())


def inherited(own: Int, parent: Int) -> Int:
    """Return what each node has itself, or else the nearest of those above it, int64 [N]; negative: none.

    Args:
        own: int64 [N], negative where a node has nothing.
        parent: int64 [N]: position of the parent, -1 for none.
    """
    found: Int = np.append(own, -1)[nearest(parent, own >= 0)]
    return found


def of_activities(view: RankView, of_node: Int) -> Int:
    """Return what nodes have, int64 [N], for activities, int64 [A]: their own, else that of their runtime call.

    What an extension launches has no operator above it; its call has an annotation.
    """
    padded = np.append(of_node, -1)
    own = padded[view.activities["row"].to_numpy()]
    found: Int = np.where(own >= 0, own, padded[view.launches["call_row"].fill_null(-1).to_numpy()])
    return found


def _by_name(names: pl.Series) -> Int:
    """Return the phase that each name tells, int64 [N]; each distinct name is looked at once."""
    distinct = names.unique().drop_nulls().to_frame("name")
    backward, optimizer, forward = (pl.col("name").str.contains(p) for p in (_BACKWARD, _OPTIMIZER, _FORWARD))
    engine = pl.col("name").str.starts_with(_AUTOGRAD)
    coded = distinct.select(
        "name",
        phase=pl.when(engine)
        .then(BACKWARD)
        .when(backward & forward)  # one call for both passes tells nothing
        .then(OTHER)
        .when(backward)
        .then(BACKWARD)
        .when(optimizer)
        .then(OPTIMIZER)
        .when(forward)
        .then(FORWARD)
        .otherwise(OTHER)
        .cast(pl.Int64),
    ).filter(pl.col("phase") >= 0)
    joined = names.to_frame("name").join(coded, on="name", how="left", maintain_order="left")
    found: Int = joined["phase"].fill_null(OTHER).to_numpy()
    return found


def _weak(view: RankView, host: npt.NDArray[np.bool_], own: Int) -> Int:
    """Return the phase that other signs tell, int64 [N]."""
    nodes = view.nodes
    updates = nodes["name"].str.contains(_UPDATES).fill_null(False).to_numpy()
    differentiated = view.trace.column("seq_id").is_not_null().to_numpy() & (view.trace.integers("seq_id") >= 0)
    modules = view.trace.column("module").is_not_null().to_numpy()
    weak = np.where(differentiated | modules, FORWARD, np.where(updates, OPTIMIZER, OTHER))
    tid = view.trace.integers("tid")
    # Autograd's own threads run nothing else; on a host without a device it runs on the caller's.
    engine, rest = np.unique(tid[host & (own == BACKWARD)]), np.unique(tid[host & (own != BACKWARD) & (own >= 0)])
    alone = np.setdiff1d(engine, np.append(rest, -1))
    weak = np.where(np.isin(tid, alone), BACKWARD, weak)
    return np.where(host, weak, OTHER)


def _by_order(view: RankView, host: npt.NDArray[np.bool_], phase: Int) -> npt.NDArray[np.bool_]:
    """Return which nodes without a sign lie between a step's first forward and first backward operator, bool [N]."""
    ranges = [(w.host_begin_ns, w.host_end_ns) for w in view.all_windows if w.host_begin_ns is not None]
    if not ranges:
        return np.zeros(len(phase), np.bool_)
    begins, ends = np.array(ranges, np.int64).T
    start, tid = view.start_ns, view.trace.integers("tid")
    window = locate(start, begins, ends)
    inside = host & (window >= 0)
    first = np.full((2, len(ranges)), np.iinfo(np.int64).max)
    for place, kind in enumerate((FORWARD, BACKWARD)):
        mine = inside & (phase == kind)
        np.minimum.at(first[place], window[mine], start[mine])
    forward, backward = first[0][window], first[1][window]
    both = (forward < backward) & (backward < np.iinfo(np.int64).max)
    operator = view.nodes["type"].fill_null(0).to_numpy() > NodeType.METADATA_NODE
    threads = np.unique(tid[host & (phase == FORWARD)])
    found: npt.NDArray[np.bool_] = (
        inside & operator & (phase < 0) & np.isin(tid, threads) & both & (start > forward) & (start < backward)
    )
    return found


def modules_of(view: RankView) -> tuple[Int, list[str]]:
    """Return the module path of each node as a code, int64 [N] (-1: none), and the paths.

    A backward operator runs in the module of the forward operator that it belongs to, which sequence numbers tell.
    """
    nodes = view.nodes
    if "module" not in nodes.columns:
        return np.full(nodes.height, -1, np.int64), []
    paths = nodes["module"].drop_nulls().unique(maintain_order=True)
    code = nodes["module"].replace_strict(paths, np.arange(len(paths)), default=-1, return_dtype=pl.Int64)
    own: Int = code.fill_null(-1).to_numpy().copy()
    seq = view.trace.integers("seq_id")
    backward = nodes["name"].str.starts_with(_AUTOGRAD).fill_null(False).to_numpy() & (seq >= 0) & (own < 0)
    forward = (own >= 0) & (seq >= 0)
    if backward.any() and forward.any():
        number, first = np.unique(seq[forward], return_index=True)
        slot = np.minimum(np.searchsorted(number, seq[backward]), len(number) - 1)
        known = number[slot] == seq[backward]
        own[backward] = np.where(known, own[forward][first][slot], -1)
    return inherited(own, view.parent_rows), paths.to_list()
