"""Points of a sweep: as people write them, and as simulations take them.

A point gives values to keys. Keys are those of a system (``scale_up.bandwidth``, ``device.peak.bf16``; see
`chakra_et.specs.with_overrides`), options of simulations (``comm_scale``, ``compute_scale.gemm``, ``algorithm``), or
``system`` itself. What a point doesn't name stays as in the base.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from chakra_et.errors import ChakraError, InputError
from chakra_et.io import read_bytes
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.sweep_keys import Parameter, changed_options, find_parameter, parse_value, value_of
from chakra_et.specs import System, load_system, with_overrides

__all__ = ["Base", "Point", "grid_points", "parse_point", "parse_values", "read_points", "resolve_points"]

MOST_POINTS = 1_000_000

_NUMBER = r"\d+(?:\.\d+)?"
_UNIT = r"[A-Za-z/]*"
_SINGLE = re.compile(rf"({_NUMBER})({_UNIT})", re.ASCII)
_RANGE = re.compile(rf"({_NUMBER})({_UNIT}?)\.\.({_NUMBER})({_UNIT}?)([x+])({_NUMBER})({_UNIT})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Base:
    """What is simulated where a point says nothing else.

    Attributes:
        system: The machine; None without one.
        options: How to simulate.
        overrides: Changes of the machine, as in `with_overrides`; of each machine, where points name several.
    """

    system: System | None = None
    options: SimulateOptions = field(default_factory=SimulateOptions)
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> System | None:
        """The machine with its changes."""
        return None if self.system is None else with_overrides(self.system, self.overrides)


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation of a sweep.

    Attributes:
        system: The machine; None without one.
        options: How to simulate.
        values: Value of each swept key, in the unit of its column; also of keys that the point itself doesn't name.
    """

    system: System | None
    options: SimulateOptions
    values: tuple[float | int | str | None, ...]


def parse_values(key: str, text: str) -> tuple[str, ...]:
    """Return the values of ``--grid KEY=VALUES``.

    Args:
        key: What is swept.
        text: Values and ranges with commas between. ``A..BxF`` multiplies by F, ``A..B+S`` adds S; B is always the last
            value. A unit at the end counts for all before it that have none.

    Raises:
        InputError: The text is no such list, or a value isn't what the key takes.

    Example:
        >>> parse_values("scale_up.bandwidth", "150..3600x2")
        ('150', '300', '600', '1200', '2400', '3600')
        >>> parse_values("scale_out.bandwidth", "12.5,25..75+25GB/s")
        ('12.5GB/s', '25GB/s', '50GB/s', '75GB/s')
    """
    parameter = find_parameter(key)
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(f"{key}: expected values such as 4,8,16 or 4..64x2, got '{text}'; remove the empty one")
    if parameter.numeric:
        items = [_item(key, part) for part in parts]
        unit = items[-1][1]
        parts = [value + (own or unit) if bare else value for values, own, bare in items for value in values]
    for part in parts:
        parse_value(parameter, part)
    return tuple(dict.fromkeys(parts))


def _item(key: str, text: str) -> tuple[list[str], str, bool]:
    """Return the numbers of a value or range, their unit, and whether they are numbers at all."""
    single = _SINGLE.fullmatch(text)
    if single is not None:
        return [single[1]], single[2], True
    match = _RANGE.fullmatch(text)
    if match is None:
        if ".." in text:
            raise InputError(f"{key}: expected a range such as 150..3600x2 or 10..50+10, got '{text}'; write it so")
        return [text], "", False
    units = list(filter(None, (match[2], match[4], match[7])))
    if len(set(units)) > 1:
        raise InputError(f"{key}: expected one unit in a range, got '{text}'; write it once, at the end")
    first, last, step = (Decimal(match[place]) for place in (1, 3, 6))
    return _range(key, text, first, last, match[5], step), units[0] if units else "", True


def _range(key: str, text: str, first: Decimal, last: Decimal, kind: str, step: Decimal) -> list[str]:
    grows = step > 1 and first > 0 if kind == "x" else step > 0
    if not (grows and first <= last):
        wanted = (
            "a factor above 1, and the smaller end first" if kind == "x" else "a step above 0, the smaller end first"
        )
        raise InputError(f"{key}: expected {wanted}, got '{text}'; such as 150..3600x2 or 10..50+10")
    count = math.log(last / first) / math.log(step) if kind == "x" else (last - first) / step
    if count > MOST_POINTS:
        raise InputError(f"{key}: expected {MOST_POINTS:,} values at most, got more: '{text}'; take larger steps")
    values = []
    while first < last:
        values.append(first)
        first = first * step if kind == "x" else first + step
    return [f"{value.normalize():f}" for value in (*values, last)]


def grid_points(grid: Mapping[str, str | Iterable[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of values; the last key's values change fastest.

    Args:
        grid: For each key its values, or a text as `parse_values` takes it.

    Raises:
        InputError: A text or a value isn't what its key takes, or there are too many combinations.

    Example:
        >>> grid_points({"scale_up.size": "4,8", "comm_scale": [0.5, 1]})[1:3]
        [{'scale_up.size': '4', 'comm_scale': 1}, {'scale_up.size': '8', 'comm_scale': 0.5}]
    """
    lists = {
        key: parse_values(key, values) if isinstance(values, str) else list(values) for key, values in grid.items()
    }
    empty = [key for key, values in lists.items() if not values]
    if empty:
        raise InputError(f"{empty[0]}: expected one value or more, got none; add some")
    if math.prod(map(len, lists.values())) > MOST_POINTS:
        raise InputError(f"expected {MOST_POINTS:,} points at most, got a grid of more; leave out some values")
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())] if lists else []


def parse_point(text: str) -> dict[str, str]:
    """Return the point that ``KEY=VALUE,KEY=VALUE`` says.

    Raises:
        InputError: The text says something else.

    Example:
        >>> parse_point("scale_up.size=72, scale_up.bandwidth=900GB/s")
        {'scale_up.size': '72', 'scale_up.bandwidth': '900GB/s'}
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not (equals and key and value):
            raise InputError(f"point: expected KEY=VALUE,KEY=VALUE such as scale_up.size=72, got '{text}'")
        if key in found:
            raise InputError(f"point: expected each key once, got {key} twice in '{text}'; remove one")
        found[key] = value
    return found


def read_points(path: str | Path) -> list[dict[str, str]]:
    r"""Read a CSV file of points: columns are keys, an empty cell means as in the base.

    Raises:
        InputError: The file can't be read, or has no points, or a row is longer or shorter than the header.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "points.csv"
        >>> _ = file.write_text("scale_up.size,comm_scale\n4,\n8,0.5\n")
        >>> read_points(file)
        [{'scale_up.size': '4'}, {'scale_up.size': '8', 'comm_scale': '0.5'}]
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), skipinitialspace=True) if row]
    except (UnicodeDecodeError, csv.Error) as err:
        raise InputError(f"{path}: expected a CSV file in UTF-8, got an error: {err}; check the file") from err
    if len(rows) < 2:
        raise InputError(f"{path}: expected a line of keys and lines of values, got {len(rows)} in all; add points")
    keys = [key.strip() for key in rows[0]]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"{path}: expected each key once, got '{twice}' twice; remove a column")
    points = []
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(keys):
            raise InputError(f"{path}: row {number}: expected {len(keys)} values, got {len(row)}; check the commas")
        points.append({key: cell.strip() for key, cell in zip(keys, row, strict=True) if cell.strip()})
    return points


def resolve_points(
    points: Sequence[Mapping[str, Any]], base: Base
) -> tuple[tuple[Parameter, ...], Point, tuple[Point, ...]]:
    """Check all points, and return what each of them simulates.

    Args:
        points: Values by key.
        base: What is simulated where a point says nothing.

    Returns:
        The swept keys; the base as a point; the points, each one once.

    Raises:
        InputError: A key isn't known, or a value isn't what its key takes; the text names it.

    Example:
        >>> from chakra_et.specs import load_system
        >>> _, base, points = resolve_points([{"scale_up.size": 4}, {"comm_scale": 2}], Base(load_system("h100-dgx")))
        >>> base.values, [point.values for point in points]
        ((8, 1.0), [(4, 1.0), (8, 2.0)])
    """
    if not points:
        raise InputError("expected points to simulate, got none; add a grid, or points")
    if len(points) > MOST_POINTS:
        raise InputError(f"expected {MOST_POINTS:,} points at most, got {len(points):,}; leave out some")
    parameters = tuple(find_parameter(key) for key in dict.fromkeys(key for point in points for key in point))
    machines: dict[str, System] = {}
    found: dict[str, Point] = {}
    for values in points:
        point = _resolve(values, base, parameters, machines)
        found.setdefault(repr(point), point)
    first = next(iter(found.values()))
    machine = base.machine if base.system is not None or not machines else first.system
    own = tuple(value_of(parameter, machine, base.options) for parameter in parameters)
    return parameters, Point(machine, base.options, own), tuple(found.values())


def _resolve(
    values: Mapping[str, Any], base: Base, parameters: Sequence[Parameter], machines: dict[str, System]
) -> Point:
    """Return what a point simulates."""
    known = {parameter.key: parameter for parameter in parameters}
    texts = {key: value if isinstance(value, System) else str(value) for key, value in values.items()}
    for key, text in texts.items():
        parse_value(known[key], text)
    named = texts.pop("system", None)
    system = base.system if named is None else _machine(named, machines)
    overrides = {key: str(text) for key, text in texts.items() if known[key].of_system}
    if system is None and (overrides or base.overrides):
        key = next(iter({**overrides, **base.overrides}))
        raise InputError(f"{key}: expected a system to change, got none; name one")
    try:
        if system is not None:
            system = with_overrides(system, {**base.overrides, **overrides})
        options = changed_options(base.options, {key: str(text) for key, text in texts.items() if key not in overrides})
    except ChakraError as err:
        written = ", ".join(f"{key}={_name(value)}" for key, value in values.items())
        raise InputError(f"point {written}: {err}") from err
    own = [value_of(parameter, system, options) for parameter in parameters]
    if named is not None:
        own[[parameter.key for parameter in parameters].index("system")] = _name(named)
    return Point(system, options, tuple(own))


def _name(value: Any) -> str:
    return value.name if isinstance(value, System) else str(value)


def _machine(named: System | str, machines: dict[str, System]) -> System:
    """Return a machine that a point names; files are read once."""
    if isinstance(named, System):
        machines.setdefault(repr(named), named)
        return named
    if named not in machines:
        machines[named] = load_system(named)
    return machines[named]
