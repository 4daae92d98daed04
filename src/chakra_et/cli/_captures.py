"""Folders that a capture goes into."""

from __future__ import annotations

from pathlib import Path

from chakra_et.errors import OutputError

__all__ = ["make_room"]

_NAMES = ("host.*.json*", "device.*.json*", "manifest.*.json")


def make_room(folder: Path, *, force: bool) -> None:
    """Take an earlier capture out of a folder, or refuse to mix with it; make the folder if it is missing.

    Raises:
        OutputError: There is an earlier capture, or the folder can't be written to.
    """
    earlier = sorted(path for pattern in _NAMES for path in folder.glob(pattern))
    if earlier and not force:
        raise OutputError(f"{earlier[0]}: expected no earlier capture in the folder; name another, or add --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in earlier:
            path.unlink()
    except OSError as err:
        raise OutputError(f"{folder}: expected a folder to write to, got an error: {err.strerror}") from err
