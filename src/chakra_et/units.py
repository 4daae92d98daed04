"""Quantities, names and lists as people write them. Inside the package, numbers carry their unit in their name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from chakra_et.errors import InputError

__all__ = [
    "format_bytes",
    "format_count",
    "format_exactly",
    "format_list",
    "format_name",
    "format_ns",
    "format_number_of",
    "format_ranks",
    "format_share",
    "parse_bandwidth",
    "parse_bytes",
    "parse_flop_rate",
    "parse_latency_ns",
    "parse_ns",
]

_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(ns|us|ms|s)?\s*")

_MOST_DIGITS = 350  # decimals of the smallest float, as short as it can be written

# The base unit comes first in each table. A capital B is bytes, a small one bits.
_BYTES = {
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(("", "k", "M", "G", "T"))},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), start=1)},
}
_BANDWIDTH = {
    **{f"{unit}/s": factor for unit, factor in _BYTES.items()},
    **{f"{prefix}b/s": 125 * 1000**power for power, prefix in enumerate(("k", "M", "G", "T"))},
}
_FLOP_RATE = {f"{prefix}FLOP/s": 1000**power for power, prefix in enumerate(("", "k", "M", "G", "T", "P"))}
_QUANTITY = re.compile(r"\s*(\d{1,30})(?:\.(\d{1,400}))?\s*([A-Za-z/]*)\s*", re.ASCII)


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


def format_name(name: str, most: int = 60) -> str:
    """Return a name for a sentence: those of kernels can be thousands of characters long.

    Example:
        >>> format_name("ampere_sgemm_128x64_nn", most=10)
        'ampere_...'
    """
    return name if len(name) <= most else f"{name[: most - 3]}..."


def format_list(values: Iterable[object], most: int = 8) -> str:
    """Return values as text, the first `most` of them.

    Example:
        >>> format_list(range(5), most=3)
        '0, 1, 2 and 2 more'
    """
    items = [str(value) for value in values]
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def format_ranks(ranks: Iterable[int]) -> str:
    """Return which ranks are meant, the first of them.

    Example:
        >>> format_ranks([3]), format_ranks([0, 2])
        ('rank 3', 'ranks 0, 2')
    """
    ranks = list(ranks)
    return f"rank{'s' * (len(ranks) != 1)} {format_list(ranks)}"


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


def parse_latency_ns(text: str) -> float:
    """Return a time in ns that isn't negative and may have a fraction.

    Args:
        text: A number with ``ns``, ``us``, ``ms`` or ``s``; without a unit it is ns.

    Raises:
        InputError: The text is no such time.

    Example:
        >>> parse_latency_ns("2.7us"), parse_latency_ns("936.25")
        (2700.0, 936.25)
    """
    top, bottom = _quantity(text, _NS, "ns", "a time such as 600ns or 2.7us")
    return top / bottom


def parse_bytes(text: str) -> int:
    """Return a size in bytes.

    Args:
        text: A number with ``B``, ``kB``, ``MB``, ``GB``, ``TB`` (powers of 1000), ``KiB``, ``MiB``, ``GiB`` or ``TiB``
            (powers of 1024); without a unit it is bytes.

    Raises:
        InputError: The text is no size.

    Example:
        >>> parse_bytes("80GB"), parse_bytes("1.5 KiB")
        (80000000000, 1536)
    """
    top, bottom = _quantity(text, _BYTES, "B", "a size such as 80GB or 16GiB")
    return _rounded(top, bottom)


def parse_bandwidth(text: str) -> float:
    """Return a bandwidth in bytes a second.

    Args:
        text: A number with a unit of size and ``/s`` (``GB/s``, ``GiB/s``, ``TB/s``), or with one in bits (``Gb/s``);
            without a unit it is GB/s.

    Raises:
        InputError: The text is no bandwidth.

    Example:
        >>> parse_bandwidth("400Gb/s"), parse_bandwidth("3.35TB/s"), parse_bandwidth("450")
        (50000000000.0, 3350000000000.0, 450000000000.0)
    """
    top, bottom = _quantity(text, _BANDWIDTH, "GB/s", "a bandwidth such as 450GB/s, 50GiB/s or 400Gb/s")
    return top / bottom


def parse_flop_rate(text: str) -> float:
    """Return a rate of arithmetic in FLOP/s.

    Args:
        text: A number with ``FLOP/s`` and one of the prefixes ``k``, ``M``, ``G``, ``T``, ``P``; without a unit it is
            FLOP/s. Integer operations count as FLOP too.

    Raises:
        InputError: The text is no such rate.

    Example:
        >>> parse_flop_rate("989.4TFLOP/s")
        989400000000000.0
    """
    top, bottom = _quantity(text, _FLOP_RATE, "FLOP/s", "a rate such as 989TFLOP/s or 2.5PFLOP/s")
    return top / bottom


def _quantity(text: str, units: dict[str, int], default: str, expected: str) -> tuple[int, int]:
    """Return a text's value as two integers to divide, so that 0.1GB/s is 1e8 and not its neighbor."""
    match = _QUANTITY.fullmatch(text)
    factor = units.get(match[3] or default) if match else None
    if match is None or factor is None:
        raise InputError(f"expected {expected}, got '{text}'; units are {', '.join(units)}")
    decimals = match[2] or ""
    return int(match[1] + decimals) * factor, 10 ** len(decimals)


def _rounded(top: int, bottom: int) -> int:
    return (2 * top + bottom) // (2 * bottom)


def format_exactly(value: float, unit: str) -> str:
    """Return a quantity in a unit, with as many digits as it takes to parse the same value back.

    Args:
        value: The value in the base unit (bytes, bytes a second, FLOP/s, ns); not negative.
        unit: Unit that the parsers here know.

    Example:
        >>> format_exactly(50e9, "GB/s"), format_exactly(2700.0, "us")
        ('50GB/s', '2.7us')
    """
    table = next(table for table in (_BYTES, _BANDWIDTH, _FLOP_RATE, _NS) if unit in table)
    base = next(iter(table))
    for name, most in ((unit, 20), (base, _MOST_DIGITS)):
        for digits in range(most):
            text = f"{value / table[name]:.{digits}f}{name}"
            top, bottom = _quantity(text, table, base, unit)
            if (_rounded(top, bottom) if isinstance(value, int) else top / bottom) == value:
                return text
    return f"{value}{base}"
