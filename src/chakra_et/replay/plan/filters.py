"""Parts of a plan: its communications alone, its operators alone, with or without the time between them."""

from __future__ import annotations

from dataclasses import replace

from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.plan.steps import Communicate, Plan, Step, View, Wait
from chakra_et.replay.plan.tables import with_lifetimes

__all__ = ["filtered"]


def filtered(plan: Plan, options: ReplayOptions) -> Plan:
    """Return the part of a plan that is wanted, recorded times of what is held in its steps' gaps.

    Args:
        plan: All that the trace recorded.
        options: What is wanted: `only`, `delays`, `host_time`.

    Example:
        >>> from chakra_et.replay.plan.steps import Delay, Iteration
        >>> steps = (Delay(0, "a", "", 1, 10), Wait(0, 2, 3))
        >>> plan = Plan(0, 1, steps, (Iteration(None, 0, 2),), (), ())
        >>> filtered(plan, ReplayOptions(only="comm")).steps
        (Wait(number=0, gap_ns=13, duration_ns=3),)
    """
    if options.only == "all" and options.host_time != "none":
        return plan
    steps: list[Step] = []
    iterations = []
    for iteration in plan.iterations:
        begin = len(steps)
        held = 0
        for step in plan.steps[iteration.begin : iteration.end]:
            gap, spent = _times(step, options)
            if not _wanted(step, options):
                held += gap + spent
            elif isinstance(step, View):
                steps.append(step)
            else:
                kept = replace(step, gap_ns=gap + held)
                # Tensors of operators that are left out: the communicator brings its own.
                if options.only == "comm" and isinstance(kept, Communicate):
                    kept = replace(kept, inputs=(), outputs=())
                steps.append(kept)
                held = 0
        tail = 0 if options.host_time == "none" or options.delays == "none" else iteration.tail_ns
        iterations.append(replace(iteration, begin=begin, end=len(steps), tail_ns=tail + held))
    # What is left is no whole step to be compared with the job's.
    before = plan.job_step_ns if options.only == "all" else None
    part = replace(plan, steps=tuple(steps), iterations=tuple(iterations), job_step_ns=before)
    return with_lifetimes(part)


def _wanted(step: Step, options: ReplayOptions) -> bool:
    if options.only == "comm":
        return isinstance(step, Communicate | Wait)
    return options.only == "all" or not isinstance(step, Communicate | Wait)


def _times(step: Step, options: ReplayOptions) -> tuple[int, int]:
    """Return the gap of a step to be held, and the time to be held if the step is left out."""
    if isinstance(step, View):
        return 0, 0
    host = step.gap_ns if options.host_time != "none" else 0
    if options.only == "comm":
        if options.delays == "none":
            return 0, 0
        return host, 0 if isinstance(step, Communicate | Wait) else step.duration_ns
    return host, 0
