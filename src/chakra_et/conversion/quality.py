"""The quality report: what went in, what came out, and how right it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chakra_et.frontends.pytorch.convert import RankFacts
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace
from chakra_et.passes.match_comms import Matching
from chakra_et.passes.reconstruct import Reconstruction, reconstruct

__all__ = ["Failure", "Quality", "RankQuality", "measure_rank"]

_EXACT_NS = 1000


@dataclass(frozen=True, slots=True)
class RankQuality:
    """Quality of one rank's trace.

    Attributes:
        rank: Global rank.
        sources: Files that it was made from.
        device_activities: Device activities in the profile.
        device_nodes: Device nodes in the trace.
        linkable: Activities with any runtime event of the same correlation id.
        linked: Activities with a launcher.
        host_ops_matched: Operators of the execution trace that the profile has too; 0 without one of the two.
        host_ops: Operators of the execution trace (of the profile, if there is no execution trace).
        communications: Communication nodes.
        unknown_communications: Those that could not be named.
        start_error_ns: Error of the rebuilt schedule's start times on device nodes, or on all nodes where there are
            none: p50, p99, max.
        makespan_ns: Length of the rebuilt schedule.
        window_ns: Length of the measured window.
        gap_ns: Time in gap nodes on the rebuilt schedule's critical path, by kind.
        inferred_edges: Edges that were inferred, not read.
        memory_events: Allocations and frees in the profile, each a node outside the graph.
        dropped: What was left out.
        warnings: What was guessed or repaired.
    """

    rank: int
    sources: tuple[str, ...]
    device_activities: int
    device_nodes: int
    linkable: int
    linked: int
    host_ops_matched: int
    host_ops: int
    communications: int
    unknown_communications: int
    start_error_ns: dict[str, int]
    makespan_ns: int
    window_ns: int
    gap_ns: dict[str, int]
    inferred_edges: int
    memory_events: int
    dropped: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank that could not be converted.

    Attributes:
        source: Its files.
        error: Why, in one line.
    """

    source: str
    error: str


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of a conversion.

    Attributes:
        ranks: One entry a rank.
        groups: Process groups of all ranks.
        matching: What matching across ranks found.
        failed: What could not be converted.
    """

    ranks: tuple[RankQuality, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    matching: Matching = field(default_factory=Matching)
    failed: tuple[Failure, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the content of ``quality.json``."""
        return {
            "ranks": [rank.as_dict() for rank in self.ranks],
            "groups": [group.as_dict() for group in self.groups],
            "matching": self.matching.as_dict(),
            "failed": [{"source": failure.source, "error": failure.error} for failure in self.failed],
        }


def measure_rank(trace: Trace, facts: RankFacts, *, rank: int, sources: tuple[str, ...]) -> RankQuality:
    """Rebuild a trace's schedule and compare it with what was recorded."""
    rebuilt = reconstruct(trace)
    on_device = ~trace.column("is_cpu_op").fill_null(False) & trace.column("gap_kind").is_null()
    typed = (trace.nodes["type"] > 1) & trace.nodes["start_ns"].is_not_null()
    error = rebuilt.start_error_ns if rebuilt.start_error_ns.nodes else rebuilt.start_error_all_ns
    return RankQuality(
        rank=rank,
        sources=sources,
        device_activities=facts.device_activities,
        device_nodes=int((on_device & typed).sum()),
        linkable=facts.linkable,
        linked=facts.linked,
        host_ops_matched=facts.host_ops_matched,
        host_ops=facts.host_ops,
        communications=facts.communications,
        unknown_communications=facts.unknown_communications,
        start_error_ns=error.as_dict(),
        makespan_ns=rebuilt.makespan_ns,
        window_ns=facts.window_ns,
        gap_ns=rebuilt.gap_ns,
        inferred_edges=facts.inferred_edges,
        memory_events=facts.memory_events,
        dropped=facts.dropped,
        warnings=(*facts.warnings, *_doubts(rebuilt)),
    )


def _doubts(rebuilt: Reconstruction) -> list[str]:
    """Return what speaks against the trace, in words."""
    words = []
    error = max(rebuilt.start_error_ns.max, rebuilt.start_error_all_ns.max)
    if error > _EXACT_NS:
        words.append(
            f"the rebuilt schedule is off by up to {error} ns: the trace does not hold all that the profile shows"
        )
    if rebuilt.unscheduled:
        words.append(f"{rebuilt.unscheduled} nodes are on or behind a cycle")
    return words
