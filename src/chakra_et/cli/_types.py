"""Kinds of values on the command line, for argparse; a value that doesn't fit is a usage error."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from chakra_et.errors import InputError
from chakra_et.units import parse_ns

__all__ = ["input_path", "node_ids", "output_path", "seconds", "time_range", "whole_number"]


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` on."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise ArgumentTypeError(f"expected a whole number, {least} or more, got '{text}'")
        return number

    return parse


def input_path(text: str) -> str:
    """Return a path, glob or URL; an empty one would be the current folder."""
    if not text.strip():
        raise ArgumentTypeError(f"expected a path, got '{text}'; is a variable of the shell empty?")
    return text


def output_path(text: str) -> Path:
    """Return a path to write to; an empty one would be the current folder."""
    return Path(input_path(text))


def time_range(text: str) -> tuple[int | None, int | None]:
    """Return the ends of ``A:B`` in ns, None for one that is left out."""
    begin, colon, end = text.partition(":")
    try:
        begin_ns, end_ns = (parse_ns(part) if part.strip() else None for part in (begin, end))
    except InputError:
        begin_ns = end_ns = None
    if not colon or (begin_ns is None and end_ns is None):
        raise ArgumentTypeError(f"expected A:B such as 10ms:25ms, 10ms: or :25ms (ns, us, ms, s), got '{text}'")
    if begin_ns is not None and end_ns is not None and end_ns <= begin_ns:
        raise ArgumentTypeError(f"expected the end after the beginning, got '{text}'")
    return begin_ns, end_ns


def seconds(text: str) -> float:
    """Return a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ArgumentTypeError(f"expected seconds, 0 or more, got '{text}'")
    return number


def node_ids(text: str) -> list[int]:
    """Return the node ids of ``ID,ID``."""
    parts = [part.strip() for part in text.split(",")]
    # Digits alone, and not so many that int() refuses them.
    if not all(part.isascii() and part.isdecimal() and len(part) < 100 for part in parts):
        raise ArgumentTypeError(f"expected node ids such as 120,121, got '{text[:80]}'")
    return [int(part) for part in parts]
