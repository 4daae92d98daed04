"""System files: TOML, read strictly; presets are such files in the package, and overrides are keys of such files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from chakra_et.errors import InputError
from chakra_et.specs._fields import MOST_INTEGER, Fields
from chakra_et.specs._files import parse_toml, read_text, write_texts
from chakra_et.specs.system import DTYPES, REST, TOPOLOGIES, Device, Dimension, System
from chakra_et.units import format_exactly, parse_bandwidth, parse_bytes, parse_flop_rate, parse_latency_ns

__all__ = ["list_systems", "load_system", "with_overrides", "write_system"]

T = TypeVar("T")

_PRESETS = resources.files("chakra_et.specs") / "presets" / "systems"
_DIMENSION_KEYS = ("topology", "size", "bandwidth", "latency")
_DEVICE_KEYS = ("memory", "memory_bandwidth", *(f"peak.{dtype}" for dtype in DTYPES))


def list_systems() -> tuple[str, ...]:
    """Return the names of the presets.

    Example:
        >>> list_systems()[:3]
        ('a100-dgx', 'b200-dgx', 'ethernet')
    """
    files = [entry.name for entry in _PRESETS.iterdir() if entry.name.endswith(".toml")]
    return tuple(sorted(name.removesuffix(".toml") for name in files))


def load_system(name_or_path: str | Path) -> System:
    """Return a preset, or what a system file says.

    Args:
        name_or_path: Name of a preset, else the path of a TOML file; a `Path` is always a path.

    Raises:
        InputError: There is neither, or a key or value isn't known.
        FormatError: The file isn't TOML.

    Example:
        >>> system = load_system("h100-dgx")
        >>> system.device.name, system.dimensions[0].bandwidth_bytes_per_s
        ('H100 SXM5 80GB', 450000000000.0)
    """
    name = str(name_or_path)
    if isinstance(name_or_path, str) and name in list_systems():
        return _read((_PRESETS / f"{name}.toml").read_text(encoding="utf-8"), name)
    if not Path(name).exists() and not name.endswith(".toml"):
        raise InputError(
            f"{name}: expected the name of a system or the path of a system file, got neither; "
            f"systems are {', '.join(list_systems())}"
        )
    return _read(read_text(name), name)


def write_system(system: System, path: str | Path, *, force: bool = False) -> Path:
    """Write a system file; reading it gives an equal system.

    Args:
        system: The system.
        path: Where to write; its folder is made if it isn't there.
        force: True to overwrite.

    Raises:
        OutputError: The file exists and `force` is False, or it can't be written.

    Example:
        >>> import tempfile
        >>> system = load_system("h100-dgx")
        >>> load_system(write_system(system, tempfile.mkdtemp() + "/mine.toml")) == system
        True
    """
    return write_texts({Path(path): _render(_table(system))}, force=force)[0]


def with_overrides(system: System, overrides: Mapping[str, str]) -> System:
    """Return a system with some of its values replaced, written as in a system file.

    Args:
        system: The system.
        overrides: Key -> value: ``DIMENSION.topology``, ``.size`` (a number or ``rest``), ``.bandwidth``, ``.latency``;
            ``device.memory``, ``device.memory_bandwidth``, ``device.peak.DTYPE``.

    Raises:
        InputError: A key isn't one of the system's, or a value isn't what its key takes.

    Example:
        >>> system = with_overrides(load_system("h100-dgx"), {"scale_up.size": "72", "scale_up.bandwidth": "900GB/s"})
        >>> system.sizes(144)
        (72, 2)
    """
    table = _table(system)
    places = {entry["name"]: entry for entry in table["dimensions"]} | {"device": table["device"]}
    keys = [f"{dimension.name}.{key}" for dimension in system.dimensions for key in _DIMENSION_KEYS]
    keys += [f"device.{key}" for key in _DEVICE_KEYS]
    for key, value in overrides.items():
        if key not in keys:
            raise InputError(f"system {system.name}: expected one of {', '.join(keys)}, got '{key}'")
        owner, _, rest = key.partition(".")
        inner, _, dtype = rest.partition(".")
        if dtype:
            places[owner].setdefault(inner, {})[dtype] = str(value)
        else:
            places[owner][inner] = _count(str(value)) if inner == "size" else str(value)
    return _parse(table, f"system {system.name}")


def _count(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(MOST_INTEGER)) else text


def _read(text: str, place: str) -> System:
    return _parse(parse_toml(text, place), place)


def _parse(table: dict[str, Any], place: str) -> System:
    fields = Fields(place, table)
    entries = fields.value("dimensions")
    if not isinstance(entries, list):
        raise fields.error("dimensions", "a list of tables", "write [[dimensions]] before each")
    values = (
        fields.text("name"),
        fields.text("description", ""),
        _device(place, fields.value("device") if "device" in fields else {}),
        tuple(_dimension(place, index, entry) for index, entry in enumerate(entries)),
    )
    _refuse_rest(fields, ("name", "description", "device", "dimensions"))
    return _made(place, System, *values)


def _device(place: str, table: object) -> Device:
    fields = Fields(f"{place}: device", table)
    peaks = Fields(f"{place}: device.peak", fields.value("peak") if "peak" in fields else {})
    values = (
        fields.text("name"),
        _quantity(fields, "memory", parse_bytes) if "memory" in fields else None,
        _quantity(fields, "memory_bandwidth", parse_bandwidth) if "memory_bandwidth" in fields else None,
        tuple((dtype, _quantity(peaks, dtype, parse_flop_rate)) for dtype in peaks.rest()),
    )
    _refuse_rest(fields, ("name", "memory", "memory_bandwidth", "peak"))
    return _made(place, Device, *values)


def _dimension(place: str, index: int, table: object) -> Dimension:
    fields = Fields(f"{place}: dimensions[{index}]", table)
    size = fields.value("size")
    if size != REST and (not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MOST_INTEGER):
        raise fields.error("size", f"a number of 1 or more, or '{REST}'", "check the value")
    values = (
        fields.text("name"),
        fields.text("topology", choices=TOPOLOGIES),
        size if isinstance(size, int) else None,
        _quantity(fields, "bandwidth", parse_bandwidth),
        _quantity(fields, "latency", parse_latency_ns),
    )
    _refuse_rest(fields, ("name", *_DIMENSION_KEYS))
    return _made(place, Dimension, *values)


def _quantity(fields: Fields, key: str, parse: Callable[[str], T]) -> T:
    """Take a quantity, written as text with a unit or as a plain number."""
    value = fields.value(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise fields.error(key, "a text with a number and a unit", "check the value")
    try:
        return parse(str(value))
    except InputError as err:
        raise InputError(f"{fields.place}: {key}: {err}") from err


def _refuse_rest(fields: Fields, keys: tuple[str, ...]) -> None:
    for key in fields.rest():
        raise InputError(f"{fields.place}: expected only the keys {', '.join(keys)}, got '{key}'; remove it")


def _made(place: str, kind: Callable[..., T], *values: object) -> T:
    """Return an object whose class checks its values, its error with the place before it."""
    try:
        return kind(*values)
    except InputError as err:
        raise InputError(f"{place}: {err}") from err


def _table(system: System) -> dict[str, Any]:
    """Return a system as the content of its file."""
    device: dict[str, Any] = {"name": system.device.name}
    if system.device.memory_bytes is not None:
        device["memory"] = format_exactly(system.device.memory_bytes, "GB")
    if system.device.memory_bytes_per_s is not None:
        device["memory_bandwidth"] = format_exactly(system.device.memory_bytes_per_s, "GB/s")
    if system.device.peak_flop_per_s:
        device["peak"] = {dtype: format_exactly(peak, "TFLOP/s") for dtype, peak in system.device.peak_flop_per_s}
    dimensions = [
        {
            "name": dimension.name,
            "topology": dimension.topology,
            "size": REST if dimension.size is None else dimension.size,
            "bandwidth": format_exactly(dimension.bandwidth_bytes_per_s, "GB/s"),
            "latency": format_exactly(dimension.latency_ns, "ns"),
        }
        for dimension in system.dimensions
    ]
    return {"name": system.name, "description": system.description, "device": device, "dimensions": dimensions}


def _render(table: dict[str, Any]) -> str:
    """Return the file of a system's content."""
    device = dict(table["device"])
    peaks = device.pop("peak", None)
    blocks = [
        _block({"name": table["name"], "description": table["description"]}),
        "[device]\n" + _block(device),
        *(["[device.peak]\n" + _block(peaks)] if peaks else []),
        *("[[dimensions]]\n" + _block(entry) for entry in table["dimensions"]),
    ]
    return "\n".join(blocks)


def _block(entries: dict[str, Any]) -> str:
    # A JSON string is a TOML basic string, but for the one control character that JSON leaves as it is.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in entries.items()]
    return "".join(lines).replace("\x7f", "\\u007f")
