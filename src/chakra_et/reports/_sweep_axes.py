"""How a sweep is drawn: which key goes where.

Shape letters: X values along x, Y values along y, F maps beside one another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chakra_et.sim.sweep_keys import format_value
from chakra_et.sim.sweep_result import SweepResult

__all__ = ["Axis", "Plan", "make_plan", "unit_of_times"]

_MOST_MAPS = 12
_LEAST_FILLED = 0.5

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Axis:
    """A swept key with several values.

    Attributes:
        key: The key.
        column: Its column.
        unit: Unit of its values.
        values: Different values, in order.
        numeric: True if they are numbers.
    """

    key: str
    column: str
    unit: str
    values: tuple[Any, ...]
    numeric: bool

    @property
    def title(self) -> str:
        """The key with its unit."""
        return f"{self.key}, {self.unit}" if self.unit else self.key

    def label(self, value: Any) -> str:
        """Return a value as it stands on the axis."""
        return format_value(value)

    def named(self, value: Any) -> str:
        """Return a value with key and unit."""
        return f"{self.key} = {self.label(value)}" + (f" {self.unit}" if self.unit else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which key goes where.

    Attributes:
        across: Key along x; None for a bar a point.
        up: Key along y of heat maps; None for lines.
        beside: Key with a map for each value, side by side; None if there is no third one.
        chosen: Keys whose values the reader chooses.
    """

    across: Axis | None = None
    up: Axis | None = None
    beside: Axis | None = None
    chosen: tuple[Axis, ...] = ()


def make_plan(result: SweepResult) -> Plan:
    """Decide how a sweep is drawn.

    Heat maps need a grid, or most of one. Their axes are the keys with most values, those with numbers first.
    """
    axes = _axes(result)
    if len(axes) == 1 and axes[0].numeric:
        return Plan(axes[0])
    cells = math.prod(len(axis.values) for axis in axes)
    if len(axes) < 2 or len(result.table) < _LEAST_FILLED * cells:
        return Plan()
    order = sorted(axes, key=lambda axis: (not axis.numeric, -len(axis.values)))
    across, up, *others = order
    fitting = [axis for axis in others if len(axis.values) <= _MOST_MAPS]
    beside = max(fitting, key=lambda axis: len(axis.values), default=None)
    return Plan(across, up, beside, tuple(axis for axis in axes if axis in others and axis is not beside))


def _axes(result: SweepResult) -> list[Axis]:
    found = []
    for one in result.parameters:
        values = result.table[one.column].unique(maintain_order=True).to_list()
        if len(values) > 1:
            numeric = all(_number(value) is not None for value in values)
            found.append(Axis(one.key, one.column, one.unit, tuple(_sorted(values)), numeric))
    return found


def _sorted(values: Sequence[Any]) -> list[Any]:
    """Return numbers by size, also those that are text, before words in their order."""

    def place(value: Any) -> float:
        number = _number(value)
        return math.inf if number is None else number

    return sorted(values, key=place)


def _number(value: Any) -> float | None:
    """Return a value as a number that can be drawn."""
    try:
        return float(value) if math.isfinite(float(value)) else None
    except (TypeError, ValueError):
        return None


def unit_of_times(longest_ns: float) -> tuple[str, float]:
    """Return the unit in which times are drawn, and its ns."""
    return next(
        ((unit, factor) for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)) if longest_ns >= factor),
        ("ns", 1.0),
    )
