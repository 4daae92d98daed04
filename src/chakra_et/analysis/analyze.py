"""All analyses: the table of them, and running several over traces that are read once.

Shape letters: R ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from chakra_et.analysis import (
    breakdown,
    comms,
    critical_path,
    iterations,
    kernels,
    launches,
    memory,
    ops,
    overlap,
    phases,
    skew,
    timeline,
)
from chakra_et.analysis.options import Options
from chakra_et.analysis.result import Finding, Result
from chakra_et.analysis.run import Job, Measure, Progress, Source, make_job, measure_all
from chakra_et.errors import InputError
from chakra_et.units import format_ns

__all__ = ["ANALYSES", "Analyses", "Analysis", "analyze"]

_MOST = 3
# What these say of a matter is closer to its cause than what others say of it.
_CLOSEST = ("critical-path", "launches")


@dataclass(frozen=True, slots=True)
class Analysis:
    """One analysis.

    Attributes:
        name: As on the command line.
        question: What it answers.
        measure: What it keeps of a rank.
        combine: How it puts ranks together.
    """

    name: str
    question: str
    measure: Measure
    combine: Callable[[Mapping[int, Any], Job], Result]


def _analysis(module: Any, name: str, question: str) -> Analysis:
    return Analysis(name, question, module.measure, module.combine)


ANALYSES: tuple[Analysis, ...] = (
    _analysis(iterations, "iterations", "which steps there are, and how long each takes"),
    _analysis(breakdown, "breakdown", "where the device's time goes, to the ns, and why it idles"),
    _analysis(overlap, "overlap", "how much communication hides behind compute"),
    _analysis(comms, "comms", "how many, how large, how fast communications are"),
    _analysis(skew, "skew", "who comes late to communications, why, and what it costs"),
    _analysis(critical_path, "critical-path", "what bounds the step over all ranks, and what removing it would gain"),
    _analysis(kernels, "kernels", "time by kernel"),
    _analysis(ops, "ops", "time and work by operator and shapes, roofline and utilization"),
    _analysis(launches, "launches", "what launching costs, and how far the host runs ahead"),
    _analysis(memory, "memory", "allocated memory over time, its peak, and copies"),
    _analysis(phases, "phases", "forward, backward, optimizer; prefill, decode; layers"),
)
# Asked for by name only: a report draws it.
_DRAWN = _analysis(timeline, "timeline", "what runs when, in one iteration of all ranks")


@dataclass(frozen=True, slots=True, eq=False)
class Analyses:
    """The results of several analyses of one job.

    A result is reached by its name: ``analyses.breakdown``, ``analyses.critical_path``.

    Attributes:
        job: What is common to them.
        results: The results by name, in the order of `ANALYSES`.
    """

    job: Job
    results: Mapping[str, Result]

    def __getattr__(self, name: str) -> Result:
        found = self.results.get(name.replace("_", "-"))
        if found is None:
            raise AttributeError(f"expected one of {', '.join(self.results)}, got '{name}'")
        return found

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What all of them found, the costliest first: the three costliest of each analysis, each matter once.

        How long a step takes isn't among them: that is what all of it is about.
        """
        found: list[Finding] = []
        said = {"step"}
        for name in sorted(self.results, key=lambda name: name not in _CLOSEST):
            for finding in self.results[name].findings[:_MOST]:
                if finding.about not in said:
                    found.append(self._bounded(finding))
                    said |= {finding.about} - {""}
        return tuple(sorted(found, key=lambda finding: -finding.cost_ns))

    def _bounded(self, finding: Finding) -> Finding:
        """Return a finding whose cost is no more than what the critical path loses without what it costs it through."""
        path = self.results.get("critical-path")
        if not isinstance(path, critical_path.CriticalPath) or not finding.contributor:
            return finding
        kind, _, name = finding.contributor.partition(" ")
        gains = path.table.filter((pl.col("kind") == kind) & (pl.col("name") == name))["gain_ns"]
        gain = int(gains[0]) // max(path.steps, 1) if len(gains) else finding.cost_ns
        if 2 * gain >= finding.cost_ns:
            return finding
        so = f"gets no more than {format_ns(gain)} shorter without it" if gain else "isn't any shorter without it"
        return replace(finding, text=f"{finding.text}; but the critical path {so}", cost_ns=gain)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data: each result's, by name."""
        return {name: result.as_dict() for name, result in self.results.items()}


def analyze(
    source: Source,
    *,
    only: Iterable[str] | None = None,
    options: Options | None = None,
    jobs: int = 0,
    progress: Progress | None = None,
) -> Analyses:
    """Run analyses over all ranks.

    Args:
        source: Traces, or where they are: a file, a directory of ranks, a glob, several of them. Files are read a rank
            at a time, so that a set need not fit into memory.
        only: Names of analyses, and ``timeline``; all analyses if None.
        options: What to look at.
        jobs: Processes for files; 0: one a core if they are large, else 1.
        progress: Called with the stage, ranks done, ranks in all.

    Raises:
        InputError: No such analysis, nothing there, or an iteration that isn't there.
        FormatError: A file doesn't follow its format.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, start_ns=0, duration_ns=5, is_cpu_op=False, stream=7)
        >>> analyze(builder.build(), only=["breakdown"]).breakdown.table["compute_ns"].to_list()
        [5]
    """
    options = options or Options()
    chosen = ANALYSES if only is None else tuple(map(_named, only))
    measures = [one.measure for one in chosen]
    distinct = list(dict.fromkeys(measures))
    measured = measure_all(distinct, source, options, jobs=jobs, progress=progress)
    job = make_job(measured, options)
    results: dict[str, Result] = {}
    for one in chosen:
        place = distinct.index(one.measure)
        results[one.name] = one.combine({rank: measured[rank].parts[place] for rank in job.ranks}, job)
    return Analyses(job, results)


def _named(name: str) -> Analysis:
    for one in (*ANALYSES, _DRAWN):
        if one.name == name.replace("_", "-"):
            return one
    raise InputError(f"expected one of the analyses {', '.join(one.name for one in ANALYSES)}, got '{name}'")
