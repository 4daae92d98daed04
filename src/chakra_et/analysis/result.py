"""What an analysis returns: a table, what it covers, what it can't tell, and a picture.

A result is a value: `Result.table` holds numbers, `Result.plot` turns them into plain plotly JSON, and nothing is
computed after it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

__all__ = ["Coverage", "Finding", "Plot", "Result"]

_MIME = "application/vnd.plotly.v1+json"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing, in words.

    Attributes:
        text: A sentence with its numbers.
        cost_ns: What it costs a step at most, ns: a ceiling, for ranking; 0 where it has no price.
        about: What it is about, where several analyses say something of the same: one of them is enough.
        contributor: Kind and name of the contributor to the critical path that it costs the time through, such as
            ``class communication``: more than the step loses without that can't be gained.
    """

    text: str
    cost_ns: int = 0
    about: str = ""
    contributor: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"text": self.text, "cost_ns": self.cost_ns}


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture as plain plotly JSON; notebooks draw it, and `plotly.graph_objects.Figure(plot.as_dict())` takes it.

    Attributes:
        data: Traces.
        layout: Layout.
    """

    data: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return `data` and `layout` in one dict."""
        return {"data": list(self.data), "layout": dict(self.layout)}

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {_MIME: self.as_dict()}


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the device's time the numbers stand on: sums over the chosen activities, shares 0 to 1.

    Attributes:
        classified: Share whose kernels have a class; None without device time.
        linked: Share whose launch is known; None without device time.
        modelled: Share of the computing kernels' time whose operators have a FLOP or byte model; None without any.
    """

    classified: float | None = None
    linked: float | None = None
    modelled: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        """Return plain data."""
        return {"classified": self.classified, "linked": self.linked, "modelled": self.modelled}


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What an analysis found; each analysis documents the columns of its table.

    Attributes:
        name: Name of the analysis, as on the command line.
        parameters: What was asked.
        table: The rows.
        coverage: How much of the device's time they stand on.
        notes: What can't be told, and why; what was guessed.
        findings: What is worth knowing, the costliest first.
    """

    name: str
    parameters: dict[str, Any]
    table: pl.DataFrame
    coverage: Coverage
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data: what ``chakra analyze --json`` prints."""
        return {
            "analysis": self.name,
            "parameters": self.parameters,
            "rows": self.table.to_dicts(),
            "coverage": self.coverage.as_dict(),
            "notes": list(self.notes),
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def plot(self) -> Plot:
        """Return a picture of the table."""
        raise NotImplementedError
