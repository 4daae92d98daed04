"""Bytes from paths and to paths: gzip, remote URLs, globs, and writing that leaves nothing half-written."""

from __future__ import annotations

import glob as globbing
import gzip
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from chakra_et.atomic import replace_file
from chakra_et.errors import InputError, MissingExtraError, OutputError

__all__ = [
    "Source",
    "gzip_chunks",
    "is_remote",
    "list_paths",
    "read_bytes",
    "read_head",
    "refuse_existing",
    "refuse_no_folder",
    "write_atomic",
]

Source = str | Path

_GZIP = b"\x1f\x8b"
_GZIP_BLOCK = 1 << 16  # compressed bytes that hold the first ones of any stream
_MOST_HINTS = 3


def is_remote(path: Source) -> bool:
    """Return True for a URL that fsspec opens, such as ``s3://bucket/trace.0.et``."""
    return "://" in str(path)


def _remote(path: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path inside it."""
    import fsspec

    try:
        system, inner = fsspec.core.url_to_fs(path)
    except ImportError as err:
        raise MissingExtraError(f"{path}: expected the package that opens this URL, got none; {err}") from err
    except Exception as err:  # every protocol raises errors of its own
        raise InputError(f"{path}: expected a URL that fsspec knows, got an error: {_line(err)}; check it") from err
    return system, inner


def _line(err: BaseException) -> str:
    return " ".join(str(err).split()) or type(err).__name__


def _read_remote(path: str, size: int | None) -> bytes:
    system, inner = _remote(path)
    try:
        data: bytes = system.cat_file(inner, end=size)
    except FileNotFoundError as err:
        raise InputError(f"{path}: expected a file, got nothing of that name; check the URL") from err
    except Exception as err:  # as above
        raise InputError(f"{path}: expected a readable file, got an error: {_line(err)}; check the URL") from err
    return data


def _read_local(path: str, size: int | None) -> bytes:
    try:
        # Before it is opened: opening a pipe waits for its other end, and reading a device may never end.
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InputError(
                f"{path}: expected a regular file, got a {_file_kind(mode)}; write what comes out of it to a file first"
            )
        with open(path, "rb") as stream:
            return stream.read(-1 if size is None else size)
    except FileNotFoundError as err:
        raise InputError(f"{path}: expected a file, got nothing of that name; check the path") from err
    except IsADirectoryError as err:
        raise InputError(f"{path}: expected a file, got a directory; name a file in it") from err
    except PermissionError as err:
        raise InputError(f"{path}: expected a readable file, got no permission; change its mode or its owner") from err
    except (OSError, ValueError) as err:  # ValueError: a null byte in the path
        raise InputError(f"{path}: expected a readable file, got an error: {_line(err)}; check the path") from err


def _file_kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def _read(path: str, size: int | None = None) -> bytes:
    return _read_remote(path, size) if is_remote(path) else _read_local(path, size)


def read_head(path: Source, size: int) -> bytes:
    """Read the first bytes of a file, local or remote, decompressed if it is gzip, without reading the rest.

    Args:
        path: Path or URL.
        size: Bytes wanted; fewer come from a smaller file.

    Raises:
        InputError: As in `read_bytes`; a gzip stream is only checked as far as it is read.
        MissingExtraError: The URL needs a package that isn't installed.
    """
    name = str(path)
    data = _read(name, max(size, _GZIP_BLOCK))
    if data[:2] != _GZIP:
        return data[:size]
    try:
        return zlib.decompressobj(31).decompress(data, size)
    except zlib.error as err:
        raise InputError(
            f"{name}: expected a gzip stream, got a damaged one ({_line(err)}); copy the file again"
        ) from err


def read_bytes(path: Source) -> bytes:
    """Read a whole file, local or remote, decompressed if it is gzip (found by its first two bytes).

    Args:
        path: Path or URL.

    Raises:
        InputError: Nothing there, a directory, a pipe or device, no permission, an empty file, or a damaged gzip
            stream.
        MissingExtraError: The URL needs a package that isn't installed.

    Example:
        >>> import tempfile, pathlib
        >>> target = pathlib.Path(tempfile.mkdtemp()) / "x"
        >>> _ = target.write_bytes(b"abc")
        >>> read_bytes(target)
        b'abc'
    """
    name = str(path)
    data = _read(name)
    if data[:2] == _GZIP:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as err:
            raise InputError(
                f"{name}: expected a whole gzip stream, got a damaged or truncated one ({_line(err)}); "
                "copy the file again"
            ) from err
    if not data:
        raise InputError(f"{name}: expected data, got an empty file; copy or make it again")
    return data


def gzip_chunks(chunks: Iterable[bytes], *, level: int = 6) -> Iterator[bytes]:
    """Compress chunks into one gzip stream; the same bytes give the same stream (no time, no name in it)."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    for chunk in chunks:
        packed = packer.compress(chunk)
        if packed:
            yield packed
    yield packer.flush()


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise if writing `path` would overwrite something.

    Raises:
        OutputError: It exists and `force` is False, or it is a directory.
    """
    if path.is_dir():
        raise OutputError(f"{path}: expected a file name, got a directory; choose another path")
    if not force and path.exists():
        raise OutputError(f"{path}: expected a new file, got an existing one; choose another path or use --force")


def refuse_no_folder(path: Path) -> None:
    """Raise if `path` can't be a folder to write files to.

    Raises:
        OutputError: It, or what would hold it, is a file, or doesn't let itself be written to.
    """
    nearest = next((part for part in (path, *path.parents) if part.exists()), None)
    if nearest is None:
        return
    if not nearest.is_dir():
        raise OutputError(f"{nearest}: expected a folder, got a file; choose another path")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(
            f"{nearest}: expected a folder that can be written to, got no permission; choose another path"
        )


def write_atomic(path: Source, chunks: Iterable[bytes], *, force: bool = False) -> Path:
    """Write chunks to a temporary file beside `path` and rename it: whole or not at all.

    Args:
        path: Local path; its folder is made if it isn't there.
        chunks: The content; an error raised by it passes through, and nothing is left behind.
        force: True to overwrite.

    Raises:
        OutputError: The file exists and `force` is False, or it can't be written.

    Example:
        >>> import tempfile, pathlib
        >>> write_atomic(pathlib.Path(tempfile.mkdtemp()) / "x", [b"a", b"b"]).read_bytes()
        b'ab'
    """
    if is_remote(path):
        raise OutputError(f"{path}: expected a local path, got a URL; write to a local folder and copy it")
    target = Path(path)
    refuse_existing(target, force=force)
    return replace_file(target, chunks, line=_line)


def _has_magic(text: str) -> bool:
    return globbing.has_magic(text)


def list_paths(source: Source, suffix_groups: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the files that a path, directory, glob or URL stands for, sorted.

    Args:
        source: A file, a directory (its files whose suffix is of the first group that has any), or a glob.
        suffix_groups: Groups of suffixes, in order of preference.

    Raises:
        InputError: Nothing there.
    """
    name = str(source)
    groups = list(suffix_groups)
    if is_remote(name):
        return _list_remote(name, groups)
    path = Path(name)
    if path.is_dir():
        return _of_directory(name, [str(entry) for entry in path.iterdir() if entry.is_file()], groups)
    if not path.exists() and _has_magic(name):
        found = sorted(entry for entry in globbing.glob(name, recursive=True) if Path(entry).is_file())
        if not found:
            raise InputError(f"{name}: expected files, got none that match; check the pattern")
        return found
    return [name]


def _list_remote(name: str, groups: list[tuple[str, ...]]) -> list[str]:
    system, inner = _remote(name)
    try:
        if _has_magic(inner):
            found = sorted(system.unstrip_protocol(entry) for entry in system.glob(inner))
            if not found:
                raise InputError(f"{name}: expected files, got none that match; check the pattern")
            return found
        if system.isdir(inner):
            entries = [system.unstrip_protocol(entry) for entry in system.ls(inner, detail=False)]
            return _of_directory(name, entries, groups)
    except InputError:
        raise
    except Exception as err:  # every protocol raises errors of its own
        raise InputError(f"{name}: expected a readable URL, got an error: {_line(err)}; check it") from err
    return [name]


def _hint(name: str, groups: list[tuple[str, ...]]) -> str:
    """Return advice: where a directory's own directories hold what it lacks itself, which."""
    suffixes = tuple(suffix for group in groups for suffix in group)
    inside = () if is_remote(name) else Path(name).glob("*/*")
    found = sorted({str(entry.parent) for entry in inside if entry.name.endswith(suffixes)})
    if not found:
        return "check the path"
    more = ", ..." if len(found) > _MOST_HINTS else ""
    return f"there are some in {', '.join(found[:_MOST_HINTS])}{more}: name a directory that holds them itself"


def _of_directory(name: str, entries: list[str], groups: list[tuple[str, ...]]) -> list[str]:
    for suffixes in groups:
        found = sorted(entry for entry in entries if entry.endswith(suffixes))
        if found:
            return found
    wanted = ", ".join(suffix for group in groups for suffix in group)
    raise InputError(f"{name}: expected a directory with traces ({wanted}), got none in it; {_hint(name, groups)}")
