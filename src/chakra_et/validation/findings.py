"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from chakra_et.ir import Trace, TraceSet

__all__ = ["Check", "Finding", "Hits", "Rule", "Severity", "ValidationReport"]

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the table in `chakra_et.validation.rules`.

    Attributes:
        id: Name of the rule, such as ``edge-dangling``.
        severity: ``error`` (the trace is wrong), ``warning`` (it may mislead), ``info`` (good to know).
        meaning: What the rule expects, in a sentence.
        target: Program that the rule belongs to; empty for rules that hold for every trace.
    """

    id: str
    severity: Severity
    meaning: str
    target: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Where one check found a rule broken; texts are made only for those that are shown.

    Attributes:
        rule: Id of the rule.
        nodes: Node ids; None for a finding about a whole rank or set.
        text: Index into `nodes` -> ``expected X, got Y``, without the place.
    """

    rule: str
    nodes: Sequence[int | None]
    text: Callable[[int], str]


# A check of one rank: the trace, its rank and the set that it belongs to.
Check = Callable[[Trace, int, TraceSet], Iterator[Hits]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule at one place.

    Attributes:
        rule: Id of the rule.
        severity: ``error``, ``warning`` or ``info``.
        rank: Rank, or None for the whole set.
        node: Node id, or None.
        message: ``expected X, got Y - at PLACE``.
    """

    rule: str
    severity: Severity
    rank: int | None
    node: int | None
    message: str

    def as_dict(self) -> dict[str, object]:
        """Return the finding as plain data."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "rank": self.rank,
            "node": self.node,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The findings of a validation.

    Attributes:
        findings: Findings by rank and rule; of each rule and rank the first ones, then one that counts the rest.
        errors: Number of places where a rule of severity ``error`` is broken, shown or not.
        warnings: The same for ``warning``.
    """

    findings: tuple[Finding, ...]
    errors: int
    warnings: int

    def as_dict(self) -> dict[str, object]:
        """Return the content of ``chakra validate --json``."""
        findings = [finding.as_dict() for finding in self.findings]
        return {"findings": findings, "errors": self.errors, "warnings": self.warnings}


def one(rule: str, text: str, node: int | None = None) -> Hits:
    """Return a single hit."""
    return Hits(rule, (node,), lambda _: text)
