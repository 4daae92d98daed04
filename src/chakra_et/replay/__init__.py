"""Running a trace again without its model: a pure planner, a check across ranks, and runners behind backends.

Each name is loaded when it is first used: a plan needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chakra_et.replay.comparison import Accuracy, accuracy
    from chakra_et.replay.job.launch import LaunchOptions, launch
    from chakra_et.replay.job.plan import Job, JobOptions, plan_job
    from chakra_et.replay.job.summary import ReplaySummary, summarize_replay
    from chakra_et.replay.options import ConnectOptions, ReplayOptions
    from chakra_et.replay.plan.comms import CommFilter
    from chakra_et.replay.plan.make import make_plan
    from chakra_et.replay.plan.steps import Plan
    from chakra_et.replay.plan.tables import peak_bytes
    from chakra_et.replay.run import RankResult, run_rank

_MODULES: dict[str, tuple[str, ...]] = {
    "comparison": ("Accuracy", "accuracy"),
    "job.launch": ("LaunchOptions", "launch"),
    "job.plan": ("Job", "JobOptions", "plan_job"),
    "job.summary": ("ReplaySummary", "summarize_replay"),
    "options": ("ConnectOptions", "ReplayOptions"),
    "plan.comms": ("CommFilter",),
    "plan.make": ("make_plan",),
    "plan.steps": ("Plan",),
    "plan.tables": ("peak_bytes",),
    "run": ("RankResult", "run_rank"),
}

__all__ = [
    "Accuracy",
    "CommFilter",
    "ConnectOptions",
    "Job",
    "JobOptions",
    "LaunchOptions",
    "Plan",
    "RankResult",
    "ReplayOptions",
    "ReplaySummary",
    "accuracy",
    "launch",
    "make_plan",
    "peak_bytes",
    "plan_job",
    "run_rank",
    "summarize_replay",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(import_module(f"chakra_et.replay.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'chakra_et.replay' has no attribute '{name}'")
