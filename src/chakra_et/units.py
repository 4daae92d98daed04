"""Quantities as people write them: times, sizes, shares. Inside the package, numbers carry their unit in their name."""

from __future__ import annotations

import re

from chakra_et.errors import InputError

__all__ = ["format_bytes", "format_count", "format_ns", "format_number_of", "format_share", "parse_ns"]

_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(ns|us|ms|s)?\s*")


def format_ns(value_ns: float | None) -> str:
    """Return a time with a fitting unit.

    Args:
        value_ns: Time in ns; None gives a dash.

    Example:
        >>> format_ns(1_234_567)
        '1.235 ms'
    """
    if value_ns is None:
        return "-"
    for unit in ("s", "ms", "us"):
        if abs(value_ns) >= _NS[unit]:
            return f"{value_ns / _NS[unit]:.3f} {unit}"
    return f"{value_ns:.0f} ns"


def format_bytes(size_bytes: float | None) -> str:
    """Return a size with a fitting unit (powers of 1024).

    Args:
        size_bytes: Size in bytes; None gives a dash.

    Example:
        >>> format_bytes(1_572_864)
        '1.5 MiB'
    """
    if size_bytes is None:
        return "-"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def format_count(value: int | None) -> str:
    """Return an integer with thousands separated.

    Example:
        >>> format_count(14388)
        '14,388'
    """
    return "-" if value is None else f"{value:,}"


def format_number_of(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural where that is due.

    Example:
        >>> format_number_of(1, "error"), format_number_of(2000, "error")
        ('1 error', '2,000 errors')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def format_share(part: float, whole: float) -> str:
    """Return `part` / `whole` in percent; a dash if there is no whole.

    Example:
        >>> format_share(1, 3)
        '33.3 %'
    """
    return f"{100 * part / whole:.1f} %" if whole else "-"


def parse_ns(text: str) -> int:
    """Return a time in ns.

    Args:
        text: A number with ``ns``, ``us``, ``ms`` or ``s``; without a unit it is ns.

    Raises:
        InputError: The text is no time.

    Example:
        >>> parse_ns("1.5ms")
        1500000
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(f"expected a time such as 12ms or 1500us, got '{text}'")
    return round(float(match[1]) * _NS[match[2] or "ns"])
