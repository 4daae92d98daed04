"""Which part of the traces is simulated: training steps, each on its own, or everything at once."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir import TraceSet
from chakra_et.ir.cut import iterations, select_iteration

__all__ = ["cut_iterations"]


def cut_iterations(
    traces: TraceSet, wanted: int | str
) -> tuple[tuple[tuple[int | None, TraceSet], ...], tuple[str, ...]]:
    """Cut the traces into what is simulated.

    Steps are those that the profiler marked on every rank (`ProfilerStep#k`). A step is what the host does in its
    range, and what it launches then, whenever that runs. Traces without marks are one step, or nobody knows: they are
    simulated as a whole.

    Args:
        traces: The traces.
        wanted: ``inner`` for all steps, but not the first and the last where there are more than two: profilers disturb
            these. The number of a step, or its place from 0. ``all`` for no cuts.

    Returns:
        The parts with the step's number (None for a whole), and what to say about them.

    Raises:
        SimulationError: There is no such step.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1000)
        >>> parts, said = cut_iterations(TraceSet((builder.build(),)), "inner")
        >>> [number for number, _ in parts], said
        ([None], ())
    """
    if wanted == "all":
        return ((None, traces),), ()
    # Marks have a length; traces that nobody collected have none.
    marks = {
        id(trace.nodes): iterations(trace) if "span_ns" in trace.nodes.columns else {}
        for trace in {id(trace.nodes): trace for trace in traces}.values()
    }
    known = [marks[id(trace.nodes)] for trace in traces]
    common = [number for number in (known[0] if known else {}) if all(number in steps for steps in known)]
    if isinstance(wanted, int):
        chosen = [_one(common, wanted)]
    elif not common:
        marked = any(trace.metadata.family == "collected" for trace in traces)
        said = "no iterations are marked on all ranks: everything that the traces hold is simulated at once"
        return ((None, traces),), (said,) if marked else ()
    else:
        chosen = common[1:-1] if len(common) > 2 else common
    parts = tuple((number, _cut(traces, number)) for number in chosen)
    listed = ", ".join(map(str, chosen))
    return parts, (f"iteration{'s' * (len(chosen) > 1)} {listed} of {', '.join(map(str, common))}",)


def _cut(traces: TraceSet, number: int) -> TraceSet:
    """Keep one step of each rank; ranks that share a node table share the new one."""
    known: dict[int, pl.DataFrame] = {}
    parts = []
    for trace in traces:
        nodes = known.get(id(trace.nodes))
        if nodes is None:
            nodes = known[id(trace.nodes)] = select_iteration(trace, number).nodes
        parts.append(trace.with_nodes(nodes))
    return replace(traces, traces=tuple(parts))


def _one(common: list[int], wanted: int) -> int:
    if wanted in common:
        return wanted
    if 0 <= wanted < len(common):
        return common[wanted]
    there = ", ".join(map(str, common)) or "none"
    raise SimulationError(
        f"expected an iteration that is marked on every rank ({there}), got {wanted}; or simulate all at once"
    )
