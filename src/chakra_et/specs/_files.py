"""Small text files: read whole, written whole or not at all (`io` has its own; it is closed to this part)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chakra_et.atomic import replace_file
from chakra_et.errors import FormatError, InputError, OutputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["first_line", "parse_toml", "read_text", "write_texts"]

_MOST_BYTES = 16 << 20  # far above any description of a system; a trace given by mistake is not read


def first_line(err: BaseException) -> str:
    """Return an error's text on one line."""
    return " ".join(str(err).split()) or type(err).__name__


def read_text(path: str | Path) -> str:
    """Read a small text file.

    Args:
        path: Local path.

    Raises:
        InputError: Nothing there, no regular file, no permission.
        FormatError: It isn't text in UTF-8, or is too large.

    Example:
        >>> import tempfile, pathlib
        >>> target = pathlib.Path(tempfile.mkdtemp()) / "x.toml"
        >>> _ = target.write_text("a = 1")
        >>> read_text(target)
        'a = 1'
    """
    try:
        file = Path(path)
        if file.exists() and not file.is_file():
            what = "a directory" if file.is_dir() else "something else"
            raise InputError(f"{path}: expected a file, got {what}; name a file")
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError as err:
        raise InputError(f"{path}: expected a file, got nothing of that name; check the path") from err
    except PermissionError as err:
        raise InputError(f"{path}: expected a readable file, got no permission; change its mode or its owner") from err
    except (OSError, ValueError) as err:  # ValueError: a null byte in the path
        raise InputError(f"{path}: expected a readable file, got an error: {first_line(err)}; check the path") from err
    if len(data) > _MOST_BYTES:
        raise FormatError(f"{path}: expected a small text file, got more than 16 MiB; check the path")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise FormatError(f"{path}: expected text in UTF-8, got other bytes at {err.start}; check the path") from err


def parse_toml(text: str, place: str) -> dict[str, Any]:
    """Return what a TOML file holds.

    Args:
        text: Its text.
        place: The file, for messages.

    Raises:
        FormatError: It isn't TOML.

    Example:
        >>> parse_toml("a = 1", "x.toml")
        {'a': 1}
    """
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as err:
        raise FormatError(f"{place}: expected TOML, got an error: {first_line(err)}; check the file") from err
    return table


def write_texts(texts: Mapping[Path, str], *, force: bool) -> list[Path]:
    """Write text files, each whole or not at all; none if one of them can't be replaced.

    Args:
        texts: Path -> content; folders are made.
        force: True to overwrite.

    Raises:
        OutputError: A file exists and `force` is False, or one can't be written.
    """
    for path in texts:
        if path.is_dir():
            raise OutputError(f"{path}: expected a file name, got a directory; choose another path")
        if not force and path.exists():
            raise OutputError(f"{path}: expected a new file, got an existing one; choose another path or use --force")
    return [replace_file(path, [text.encode()], line=first_line) for path, text in texts.items()]
