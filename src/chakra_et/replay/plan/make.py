"""The planner: a trace in, a `Plan` out. Pure: neither torch nor processes.

Shape letters: N nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from chakra_et.errors import ReplayError
from chakra_et.io.attributes import attribute_values
from chakra_et.ir import Trace
from chakra_et.replay.communications.find import Communications, find_communications
from chakra_et.replay.plan.build import Builder
from chakra_et.replay.plan.calls import choose_calls
from chakra_et.replay.plan.rows import Window, host_rows, windows_of
from chakra_et.replay.plan.steps import Plan

__all__ = ["make_plan"]


def make_plan(
    trace: Trace,
    *,
    communications: Communications | None = None,
    rank: int | None = None,
    world_size: int = 0,
    iterations: Sequence[int] = (),
) -> Plan:
    """Plan the replay of one rank: everything that its trace recorded, in recorded order.

    Args:
        trace: Its trace.
        communications: Its communications, where the caller changed them (other ranks, other sizes); else as recorded.
        rank: Its global rank; else as the trace says.
        world_size: Ranks of the job; 0: as the trace says.
        iterations: Numbers of the iterations to replay (of a `ProfilerStep#k`: k); none: all.

    Raises:
        ReplayError: There is no such iteration, or nothing in it.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> tensor = {"values": '[[1,2,0,6,4,"cpu"]]', "shapes": "[[2,3]]", "types": '["Tensor(float)"]'}
        >>> call = {"op_schema": "aten::relu_(Tensor(a!) self) -> Tensor(a!)", "inputs": tensor, "outputs": tensor}
        >>> _ = builder.add("aten::relu_", NodeType.COMP_NODE, is_cpu_op=True, **call)
        >>> plan = make_plan(builder.build())
        >>> [(step.name, step.arguments, step.results) for step in plan.steps]
        [('aten::relu_', (Slot(index=0),), (None,))]
    """
    rank = rank if rank is not None else trace.rank or 0
    world_size = world_size or trace.metadata.world_size or 1
    if communications is None:
        communications = find_communications(trace, rank, world_size=world_size)
    rows = host_rows(trace)
    windows = _chosen(windows_of(trace, rows), iterations, rank)
    inside = [row for window in windows for row in range(*window.rows)]
    comm_rows = {call.row for call in communications.calls} | {one.row for one in communications.skipped}
    calls = choose_calls(trace, rows, inside, comm_rows)
    builder = Builder(trace, rows, communications, attribute_values(trace, "tensor_range"))
    for window in windows:
        builder.add(window, calls)
    plan = builder.finish(rank, world_size)
    if not plan.steps:
        raise ReplayError(
            f"rank {rank}: expected operators with a schema or communications to replay, got none; record the job with "
            "an ExecutionTraceObserver (`chakra capture`), and convert its execution trace along with the profile"
        )
    return replace(plan, job_step_ns=_job_step_ns(trace))


def _job_step_ns(trace: Trace) -> int | None:
    """Return what the manifest of the capture says of steps before the window: a recorded step is slowed down."""
    windows = [source["window"] for source in trace.metadata.sources if isinstance(source.get("window"), dict)]
    told = windows[-1].get("step_before_ns") if windows else None
    return int(told) if isinstance(told, int | float) and 0 < told < 2**62 else None


def _chosen(windows: Sequence[Window], wanted: Sequence[int], rank: int) -> list[Window]:
    by_number: Mapping[Any, Window] = {window.number: window for window in windows}
    for number in wanted:
        if number not in by_number:
            known = ", ".join(f"#{one}" for one in by_number if one is not None)
            raise ReplayError(
                f"rank {rank}: expected an iteration to replay, got {number}; there are: "
                f"{known or 'none (the trace has no ProfilerStep annotations)'}"
            )
    return [window for window in windows if not wanted or window.number in wanted]
