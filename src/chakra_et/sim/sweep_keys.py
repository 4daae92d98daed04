"""Keys that a sweep may vary: what they are called in its table, in which unit, and what they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from chakra_et.errors import InputError
from chakra_et.sim.collectives.table import forced_algorithms
from chakra_et.sim.compute import KINDS
from chakra_et.sim.options import SimulateOptions
from chakra_et.specs import Dimension, System
from chakra_et.specs.system import DTYPES, REST
from chakra_et.units import parse_bandwidth, parse_bytes, parse_flop_rate, parse_latency_ns

__all__ = ["Parameter", "changed_options", "find_parameter", "format_value", "parse_value", "value_of"]

Value = float | int | str | None

# Values are as in a system file: bare numbers are GB/s, bytes, FLOP/s, ns.
_TEXT, _FACTOR, _COUNT = "text", "factor", "count"
_UNITS: dict[str, tuple[str, str, float, Callable[[str], float]]] = {
    "bandwidth": ("GB/s", "_gb_per_s", 1e9, parse_bandwidth),
    "memory": ("GB", "_gb", 1e9, parse_bytes),
    "peak": ("TFLOP/s", "_tflop_per_s", 1e12, parse_flop_rate),
    "time": ("ns", "_ns", 1.0, parse_latency_ns),
}
_OF_DIMENSIONS = {"topology": _TEXT, "size": _COUNT, "bandwidth": "bandwidth", "latency": "time"}
_OF_DEVICES = {"memory": "memory", "memory_bandwidth": "bandwidth"}
_OPTIONS = {
    "comm": _TEXT,
    "compute": _TEXT,
    "resources": _TEXT,
    "sends": _TEXT,
    "algorithm": _TEXT,
    "dtype": _TEXT,
    "comm_scale": _FACTOR,
    "compute_scale": _FACTOR,
    "host_scale": _FACTOR,
    "overlap_slowdown": _FACTOR,
    "channels": _COUNT,
}
# Options with a part of their own after a dot: a type of collective, a kind of compute, a rank.
_PARTS = {"algorithm": "TYPE", "compute_scale": "KIND", "rank_delay": "RANK"}
_MOST_DIGITS = 1e15
_FIXED = ("iteration", "mirror_missing", "clock_offsets_ns", "fold", "from_device", "measured_system")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A key that a sweep varies.

    Attributes:
        key: As it is written.
        column: Its column in the table: the key, with the unit where there is one.
        unit: Unit of the column's values; empty for none.
        kind: What its values are: ``text``, ``factor``, ``count``, ``bandwidth``, ``memory``, ``peak`` or ``time``.
        of_system: True for a key of the system, False for an option or the system itself.
    """

    key: str
    column: str
    unit: str
    kind: str
    of_system: bool

    @property
    def numeric(self) -> bool:
        """True where values are numbers."""
        return self.kind != _TEXT


def find_parameter(key: str) -> Parameter:
    """Return what a key is.

    Raises:
        InputError: It is none that a sweep can vary. (Whether a system has the dimension is seen later.)

    Example:
        >>> find_parameter("scale_up.bandwidth").column, find_parameter("compute_scale.gemm").kind
        ('scale_up.bandwidth_gb_per_s', 'factor')
    """
    owner, dot, part = key.partition(".")
    kind: str | None = None
    of_system = bool(dot) and owner not in _PARTS
    if owner in _FIXED:
        raise InputError(f"{key}: expected a key that points may vary, got one that is the same in all; set it once")
    if key == "system":
        kind = _TEXT
    elif not dot:
        kind = _OPTIONS.get(key)
    elif not of_system:
        kind = "time" if owner == "rank_delay" else _OPTIONS[owner]
        _check_part(key, owner, part)
    elif owner == "device":
        kind = "peak" if part.removeprefix("peak.") in DTYPES and "." in part else _OF_DEVICES.get(part)
    else:
        kind = _OF_DIMENSIONS.get(part)
    if kind is None:
        options = ", ".join((*_OPTIONS, *(f"{name}.{part}" for name, part in _PARTS.items())))
        raise InputError(
            f"expected a key of the system (DIMENSION.{', .'.join(_OF_DIMENSIONS)}; device.{', .'.join(_OF_DEVICES)}, "
            f".peak.DTYPE), an option ({options}) or 'system', got '{key}'"
        )
    unit, suffix, *_ = _UNITS.get(kind, ("", ""))
    return Parameter(key, key + suffix, unit, kind, of_system)


def _check_part(key: str, owner: str, part: str) -> None:
    if owner == "compute_scale" and part not in (*KINDS, "*"):
        raise InputError(f"{key}: expected a kind of {', '.join(KINDS)} or *, got '{part}'; rename it")
    if owner == "rank_delay" and not (part.isascii() and part.isdigit() and len(part) < 10):
        raise InputError(f"{key}: expected a rank such as rank_delay.3, got '{part}'; name one")


def parse_value(parameter: Parameter, value: str | System) -> float | str:
    """Return a value in its base unit, checked as far as that goes without the system.

    Raises:
        InputError: It isn't what the key takes; the text names the key.

    Example:
        >>> parse_value(find_parameter("scale_up.latency"), "2us")
        2000.0
    """
    if isinstance(value, System):
        if parameter.key != "system":
            raise InputError(f"{parameter.key}: expected a value, got a system; use the key 'system' for it")
        return value.name
    try:
        if parameter.kind == _TEXT:
            return value
        if parameter.kind == _COUNT:
            return value if value == REST and parameter.of_system else _whole(value)
        if parameter.kind == _FACTOR:
            return _factor(value)
        return _UNITS[parameter.kind][3](value)
    except InputError as err:
        raise InputError(f"{parameter.key}: {err}") from err


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0):
        raise InputError(f"expected a whole number, 1 or more, got '{text}'")
    return int(text)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if not factor >= 0:
        raise InputError(f"expected a factor of 0 or more, got '{text}'")
    return factor


def changed_options(options: SimulateOptions, texts: Mapping[str, str]) -> SimulateOptions:
    """Return options with those of a point.

    Args:
        options: The base's.
        texts: Value by key; a part (``compute_scale.gemm``) is changed after the whole (``compute_scale``).

    Raises:
        InputError: A value isn't what its option takes.
        SimulationError: There is no such algorithm or type of collective.

    Example:
        >>> changed_options(SimulateOptions(compute_scale=2.0), {"compute_scale.gemm": "0.5"}).compute_scale
        {'*': 2.0, 'gemm': 0.5}
    """
    changes: dict[str, Any] = {}
    for key in sorted(texts, key=lambda key: "." in key):
        owner, dot, part = key.partition(".")
        value: Any = parse_value(find_parameter(key), texts[key])
        if not dot:
            changes[key] = value
        elif owner == "rank_delay":
            before = changes.get("rank_delay_ns", options.rank_delay_ns)
            changes["rank_delay_ns"] = {**before, int(part): round(value)}
        else:
            before = changes.get(owner, getattr(options, owner))
            changes[owner] = {**(before if isinstance(before, Mapping) else _parts(owner, before)), part: value}
    made = replace(options, **changes)
    forced_algorithms(made.algorithm)
    if made.dtype not in DTYPES:
        raise InputError(f"dtype: expected one of {', '.join(DTYPES)}, got '{made.dtype}'")
    return made


def _parts(owner: str, value: Any) -> dict[str, Any]:
    """Return what one value for all says, as values of parts."""
    if owner == "compute_scale":
        return {"*": value}
    return {kind.name.lower(): name for kind, name in forced_algorithms(value).items()}


def value_of(parameter: Parameter, system: System | None, options: SimulateOptions) -> Value:
    """Return what a key is in a simulation, in the unit of its column; None where there is no such thing.

    Example:
        >>> from chakra_et.specs import load_system
        >>> value_of(find_parameter("scale_up.bandwidth"), load_system("h100-dgx"), SimulateOptions())
        450.0
    """
    owner, _, part = parameter.key.partition(".")
    if parameter.key == "system":
        return system.name if system is not None else None
    if not parameter.of_system:
        return _option_value(options, owner, part)
    found: Any = None
    if system is not None and owner == "device":
        device = system.device
        found = {"memory": device.memory_bytes, "memory_bandwidth": device.memory_bytes_per_s}.get(part)
        if parameter.kind == "peak":
            found = dict(device.peak_flop_per_s).get(part.removeprefix("peak."))
    elif system is not None:
        dimension = next((one for one in system.dimensions if one.name == owner), None)
        found = _dimension_value(dimension, part) if dimension is not None else None
    if found is None or parameter.kind not in _UNITS:
        return cast(Value, found)
    value: float = found / _UNITS[parameter.kind][2]
    return value


def _dimension_value(dimension: Dimension, part: str) -> Value:
    values: dict[str, Value] = {
        "topology": dimension.topology,
        "size": REST if dimension.size is None else dimension.size,
        "bandwidth": dimension.bandwidth_bytes_per_s,
        "latency": dimension.latency_ns,
    }
    return values[part]


def _option_value(options: SimulateOptions, owner: str, part: str) -> Value:
    if owner == "rank_delay":
        return float(options.rank_delay_ns.get(int(part), 0))
    value: Any = getattr(options, owner)
    if not isinstance(value, Mapping):
        return cast(Value, _parts(owner, value).get(part, "auto") if part and owner == "algorithm" else value)
    # Where parts have values of their own, none of them is the whole's.
    rest = value.get("*", 1.0) if owner == "compute_scale" else "auto"
    return cast(Value, value.get(part, rest) if part else None)


def format_value(value: Value) -> str:
    """Return a value as people read it.

    Example:
        >>> [format_value(value) for value in (12.5, 450.0, 1_000_000.0, 1 / 3, "rest", None)]
        ['12.5', '450', '1000000', '0.333333', 'rest', '-']
    """
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < _MOST_DIGITS else f"{value:g}"
