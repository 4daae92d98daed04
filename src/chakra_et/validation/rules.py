"""The table of rules, and `validate`, which runs their checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from chakra_et.errors import InputError
from chakra_et.ir import Trace, TraceSet
from chakra_et.units import format_name
from chakra_et.validation import communication, structure, timing
from chakra_et.validation.astra_sim import check_astra_rank, check_astra_set
from chakra_et.validation.findings import Check, Finding, Hits, Rule, ValidationReport
from chakra_et.validation.matching import RankHits, check_matching

__all__ = ["RULES", "TARGETS", "validate"]

_ASTRA = "astra-sim"
# Findings of one rule shown for one rank; the rest is counted.
_MOST = 20

_TABLE = (
    Rule("id-unique", "error", "No two nodes of a rank have the same id."),
    Rule("type-invalid", "error", "Every node has a type of the schema."),
    Rule("edge-dangling", "error", "Every dependency is a node of the same rank."),
    Rule("edge-self", "error", "No node depends on itself."),
    Rule("edge-cycle", "error", "The graph of all dependencies has no cycle."),
    Rule("attr-kind", "warning", "Attributes that hold whole numbers are written as an integer or bool kind."),
    Rule("time-negative", "error", "Starts and durations are not negative."),
    Rule("time-order", "warning", "No node starts more than 1 us before a dependency ends."),
    Rule("rebuild-error", "warning", "Rebuilt from edges and durations, every node starts within 1 us of its record."),
    Rule("group-unknown", "warning", "Communications name process groups that the trace describes."),
    Rule("group-member", "error", "A rank communicates in groups that it is a member of."),
    Rule("comm-type", "error", "Collectives have a comm_type of the schema."),
    Rule("comm-size", "error", "Sizes of communications are not negative."),
    Rule("comm-size-unknown", "warning", "Communications other than barriers have a size."),
    Rule("comm-peer", "error", "Sends and receives name a rank of the job, and not their own, as the other one."),
    Rule("comm-peer-unknown", "warning", "Sends and receives name the other rank."),
    Rule("comm-cpu", "warning", "On a rank with a device, communications are on the device."),
    Rule("comm-unknown", "warning", "Communication kernels are known by type."),
    Rule("match-missing-rank", "warning", "There is a trace of every rank."),
    Rule("match-type", "error", "A collective has the same type on all ranks."),
    Rule("match-size", "error", "A collective has the same size on all ranks, and a message on both."),
    Rule("match-order", "error", "All ranks issue the collectives of a group in the same order."),
    Rule("match-unpaired", "warning", "Collectives have all members, sends have receives."),
    Rule("astra-rank", "error", "There are 2 or more ranks, numbered from 0, one trace each.", _ASTRA),
    Rule("astra-root", "error", "Some node has no dependencies.", _ASTRA),
    Rule("astra-type", "error", "There are no METADATA and no INVALID nodes.", _ASTRA),
    Rule("astra-comm-cpu", "error", "Communications have is_cpu_op false.", _ASTRA),
    Rule("astra-collective", "error", "Collectives are of a kind that ASTRA-sim simulates or replays.", _ASTRA),
    Rule("astra-size", "error", "Collectives have 1 byte or more, all-gathers one for each split.", _ASTRA),
    Rule("astra-peer", "error", "Sends and receives have a peer, a tag and 1 byte or more.", _ASTRA),
    Rule("astra-message", "error", "For each tag, pair of ranks and size there are as many sends as receives.", _ASTRA),
    Rule(
        "astra-order", "error", "Types, sizes and order of a group's collectives are the same on all members.", _ASTRA
    ),
    Rule(
        "astra-group", "error", "Groups have numbers as names, 2 or more ranks, and every issuer as a member.", _ASTRA
    ),
    Rule("astra-id-order", "warning", "Ids ascend in time, since ASTRA-sim takes them as priorities.", _ASTRA),
    Rule("astra-cpu-op", "warning", "There are no host operators, or ASTRA-sim prints no statistics.", _ASTRA),
    Rule(
        "astra-roofline",
        "info",
        "Compute nodes have num_ops and tensor_size, for runs with the roofline model.",
        _ASTRA,
    ),
)
RULES: dict[str, Rule] = {rule.id: rule for rule in _TABLE}

_CHECKS: tuple[Check, ...] = (
    structure.check_ids,
    structure.check_types,
    structure.check_edges,
    structure.check_attributes,
    timing.check_signs,
    timing.check_order,
    timing.check_rebuild,
    communication.check_groups,
    communication.check_communications,
    communication.check_host,
)
SetCheck = Callable[[TraceSet], Iterator[RankHits]]
# Target -> checks of one rank, checks of the set.
TARGETS: dict[str, tuple[tuple[Check, ...], tuple[SetCheck, ...]]] = {
    _ASTRA: ((check_astra_rank,), (check_astra_set,)),
}


def validate(trace_set: TraceSet | Trace, *, target: str | None = None) -> ValidationReport:
    """Check a trace set against the rules that hold everywhere, and those of a target.

    Args:
        trace_set: The traces, or the trace of one rank alone.
        target: A key of `TARGETS`, or None.

    Raises:
        InputError: The target is unknown.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> node = builder.add("a", NodeType.COMP_NODE, ctrl_deps=[7])
        >>> validate(TraceSet((builder.build(),))).findings[0].message
        "expected ctrl_deps that are nodes, got 7 - at rank 0: node 0 ('a')"
    """
    if target is not None and target not in TARGETS:
        raise InputError(f"expected a target out of {', '.join(TARGETS)}, got '{target}'")
    if isinstance(trace_set, Trace):
        trace_set = TraceSet((trace_set,))
    rank_checks, set_checks = TARGETS[target] if target is not None else ((), ())
    report = _Report(trace_set)
    for rank, trace in zip(trace_set.ranks, trace_set, strict=True):
        for check in (*_CHECKS, *rank_checks):
            for hits in check(trace, rank, trace_set):
                report.add(rank, hits)
    for set_check in (check_matching, *set_checks):
        for where, hits in set_check(trace_set):
            report.add(where, hits)
    return report.finish()


class _Report:
    """Collects hits: the first ones of each rule and rank as findings, the rest as numbers."""

    def __init__(self, trace_set: TraceSet) -> None:
        self._traces = dict(zip(trace_set.ranks, trace_set, strict=True))
        self._found: defaultdict[tuple[int | None, str], list[Finding]] = defaultdict(list)
        self._count: defaultdict[tuple[int | None, str], int] = defaultdict(int)

    def add(self, rank: int | None, hits: Hits) -> None:
        key = (rank, hits.rule)
        room = max(0, _MOST - len(self._found[key]))
        for index, node in enumerate(hits.nodes[:room]):
            message = f"{hits.text(index)} - at {self._place(rank, node)}"
            self._found[key].append(Finding(hits.rule, RULES[hits.rule].severity, rank, node, message))
        self._count[key] += len(hits.nodes)

    def _place(self, rank: int | None, node: int | None) -> str:
        trace = self._traces.get(rank) if rank is not None else None
        if node is None or trace is None:
            return "the trace set" if rank is None else f"rank {rank}"
        return f"rank {rank}: node {node} ('{_name(trace, node)}')"

    def finish(self) -> ValidationReport:
        places = list(RULES)
        findings: list[Finding] = []
        totals: defaultdict[str, int] = defaultdict(int)
        ordered = sorted(self._count, key=lambda key: (key[0] is None, key[0] or 0, places.index(key[1])))
        for rank, rule in ordered:
            severity, found, count = RULES[rule].severity, self._found[rank, rule], self._count[rank, rule]
            totals[severity] += count
            findings.extend(found)
            if count > len(found):
                text = (
                    f"expected none, got {count} in all, {count - len(found)} not shown - at {self._place(rank, None)}"
                )
                findings.append(Finding(rule, severity, rank, None, text))
        return ValidationReport(tuple(findings), totals["error"], totals["warning"])


def _name(trace: Trace, node: int) -> str:
    position = trace.nodes["id"].index_of(node)
    return "" if position is None else format_name(str(trace.nodes["name"][position] or ""))
