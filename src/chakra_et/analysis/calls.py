"""The operator call behind each activity: its name, shapes and module path, and the work that its arguments tell.

Shape letters: N nodes, A activities.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.op_work import nearest_modelled
from chakra_et.ir import NodeType, Trace
from chakra_et.ir.arrays import without_negatives
from chakra_et.ir.call_stack import nearest

__all__ = ["calls_of"]

Int = npt.NDArray[np.int64]
# Annotations that name no part of the model: steps, communications, what profilers and serving engines mark.
_NO_MODULE = r"^(ProfilerStep#|nccl:|gloo:|execute_|\[memory\]|Optimizer\.|enumerate\(DataLoader\))"
_WORK = ("flop_count", "read_bytes", "write_bytes", "work_dtype", "work_model", "work_is_exact")


def calls_of(trace: Trace, rows: Int, operators: Int, parent: Int) -> pl.DataFrame:
    """Return the calls behind activities, [A].

    Args:
        trace: The trace.
        rows: int64 [A]: position of each activity.
        operators: int64 [A]: position of the operator that launched it (or that it is), -1 for none.
        parent: int64 [N]: position of each node's parent in the call stack, -1 for none.

    Returns:
        ``op_row``, ``op`` (name of that operator), ``module`` (path of the modules that it ran in, else the innermost
        annotation around it, that of the step left out); ``call_row`` (the operator whose arguments say what the
        activity did: the nearest caller with a FLOP or byte model, else the operator itself), ``shapes`` and ``types``
        of its inputs, and of the call ``flop_count``, ``read_bytes``, ``write_bytes``, ``work_dtype``, ``work_model``,
        ``work_is_exact``; null where it isn't known.
    """
    nodes = trace.nodes
    own = without_negatives(operators)
    work = nearest_modelled(nodes, rows, parent, itself=bool((operators == rows).any()))
    modelled = work["op_row"].fill_null(-1).to_numpy()
    call = without_negatives(np.where(modelled >= 0, modelled, operators))
    inputs = trace.column("inputs").gather(call).struct
    return pl.DataFrame(
        {
            "op_row": own,
            "op": nodes["name"].gather(own),
            "module": _modules(trace, operators, parent),
            "call_row": call,
            "shapes": inputs.field("shapes"),
            "types": inputs.field("types"),
        }
    ).hstack(work.select(_WORK))


def _modules(trace: Trace, operators: Int, parent: Int) -> pl.Series:
    """Return the module path of each operator, else the innermost annotation around it, [A]."""
    paths: pl.Series = trace.column("module").gather(without_negatives(operators))
    if not paths.null_count():
        return paths
    names = trace.nodes["name"]
    notes = trace.nodes["type"].fill_null(0).to_numpy() == NodeType.METADATA_NODE
    marks = np.flatnonzero(notes)
    notes[marks] = ~names.gather(marks).str.contains(_NO_MODULE).fill_null(True).to_numpy()
    above = np.append(nearest(parent, notes), -1)[operators]
    found: pl.Series = paths.zip_with(paths.is_not_null(), names.gather(without_negatives(above)))
    return found
