"""Running a plan on one rank: a first pass that tries each call, passes to warm up, passes that are measured.

Shape letters: P passes, S steps, I iterations, C communications.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chakra_et.errors import MissingExtraError, ReplayError
from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.plan.filters import filtered
from chakra_et.replay.plan.steps import Communicate, Communicator, Plan, Recording

__all__ = ["RankResult", "run_rank"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RankResult:
    """What one rank did and measured; times in ns on its `time.perf_counter_ns`.

    Attributes:
        rank: Global rank.
        plan: What it did: the part of the plan that the options ask for.
        host_time: What paced the calls, as in `ReplayOptions`.
        starts, ends: int64 [P, S]: each step.
        iterations: int64 [P, I, 2]: start and end of each iteration.
        communications: int64 [P, C, 3]: number, start and end of each communication, as its communicator tells.
        skipped: Position of a step that can't be called here -> why: it was held as long as recorded.
        replaced: Position of a step that returned something else than recorded -> what: the steps after it got a
            tensor as recorded.
        peak_bytes: The most memory that torch had allocated on the device while it ran; 0 where it doesn't tell.
    """

    rank: int
    plan: Plan
    host_time: str
    starts: Int
    ends: Int
    iterations: Int
    communications: tuple[Int, ...] = ()
    skipped: dict[int, str] = field(default_factory=dict)
    replaced: dict[int, str] = field(default_factory=dict)
    peak_bytes: int = 0


def run_rank(
    plan: Plan,
    communicator: Communicator | None = None,
    options: ReplayOptions | None = None,
    record: Callable[[], Recording] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RankResult:
    """Replay one rank in this process.

    Args:
        plan: All that the trace recorded.
        communicator: Who communicates; None: a plan without communications, or one of operators alone.
        options: How to run it.
        record: Called before the first measured pass; what it returns is told of each iteration, and stopped in the
            end.
        progress: Called with how many steps were made, of how many of all passes: in the first pass once a second, then
            before each pass.

    Raises:
        MissingExtraError: Torch is not installed.
        ReplayError: Nothing of what is asked for is in the plan, or it communicates and nobody does it.

    Example:
        >>> from chakra_et.replay.plan.steps import Delay, Iteration
        >>> plan = Plan(0, 1, (Delay(0, "kernel", "", 0, 1000),), (Iteration(None, 0, 1),), (), ())
        >>> result = run_rank(plan, options=ReplayOptions(repeats=2))  # doctest: +SKIP
        >>> result.ends.shape  # doctest: +SKIP
        (2, 1)
    """
    options = options or ReplayOptions()
    wanted = filtered(plan, options)
    if not wanted.steps:
        kind = "communications" if options.only == "comm" else "operators"
        raise ReplayError(f"rank {plan.rank}: expected {kind} to replay, got none; the trace has none that can be")
    if communicator is None and any(isinstance(step, Communicate) for step in wanted.steps):
        raise ReplayError(
            f"rank {plan.rank}: expected somebody to make its communications, got nobody; start all ranks, or replay "
            "its operators alone (--only compute)"
        )
    try:
        from chakra_et.replay.backends.runner_ops import run_plan
    except ImportError as err:
        if err.name != "torch":
            raise
        raise MissingExtraError("replay needs torch; install it: pip install 'chakra-et[torch]'") from err
    return run_plan(wanted, communicator, options, record, progress)
