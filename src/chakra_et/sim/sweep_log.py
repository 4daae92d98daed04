"""The folder of a sweep: what is done is there, whatever happens to the process, and isn't done again.

``sweep.json`` says which sweep it is. ``points.jsonl`` grows by one line a point, each with a checksum: a line that a
crash cut off counts for nothing. A point is known by a hash of all that its result depends on: the traces, the machine,
the options, and the version of this package.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from chakra_et.errors import OutputError
from chakra_et.io import refuse_existing, refuse_no_folder, write_atomic
from chakra_et.ir import TraceSet
from chakra_et.sim.sweep_points import Point

__all__ = ["OUTPUTS", "SweepLog", "open_log", "point_key", "trace_digest"]

# What a sweep writes beside its log.
OUTPUTS = ("sweep.parquet", "sweep.csv", "sweep.html")

_HEAD, _LOG = "sweep.json", "points.jsonl"
_FORMAT = 1

Row = dict[str, Any]
_NO_ROW: Row = {"error": ""}


def trace_digest(traces: TraceSet) -> str:
    """Return a hash of all that traces hold; node tables that ranks share are read once.

    It is the same in each process with one version of Polars.

    Example:
        >>> len(trace_digest(TraceSet(())))
        32
    """
    found = hashlib.blake2b(digest_size=16)
    known: dict[int, bytes] = {}
    for trace in traces:
        part = known.get(id(trace.nodes))
        if part is None:
            rows = trace.nodes.hash_rows(seed=1).to_numpy()
            part = known[id(trace.nodes)] = hashlib.blake2b(rows.tobytes(), digest_size=16).digest()
        found.update(part)
        found.update(repr((trace.nodes.columns, trace.metadata, trace.process_groups)).encode())
    found.update(repr(traces.process_groups).encode())
    return found.hexdigest()


def point_key(digest: str, point: Point) -> str:
    """Return the hash of all that a point's result depends on.

    Args:
        digest: From `trace_digest`.
        point: The point.

    Example:
        >>> from chakra_et.sim.options import SimulateOptions
        >>> one, other = (Point(None, SimulateOptions(comm_scale=scale), ()) for scale in (1, 2))
        >>> point_key("", one) == point_key("", one), point_key("", one) == point_key("", other)
        (True, False)
    """
    options = {entry.name: getattr(point.options, entry.name) for entry in fields(point.options)}
    ordered = {name: sorted(value.items()) if isinstance(value, Mapping) else value for name, value in options.items()}
    text = repr((digest, _version(), point.system, ordered))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class SweepLog:
    """Rows of points, by key; with a file, they outlive the process."""

    def __init__(self, stream: IO[bytes] | None = None, rows: Mapping[str, Row] | None = None) -> None:
        self._stream = stream
        self.rows: dict[str, Row] = dict(rows or {})

    def add(self, rows: Mapping[str, Row]) -> None:
        """Keep rows of points that are done."""
        self.rows.update(rows)
        if self._stream is not None and rows:
            self._stream.write(b"".join(_line(key, row) for key, row in rows.items()))
            self._stream.flush()
            os.fsync(self._stream.fileno())


@contextmanager
def open_log(folder: Path | None, digest: str, keys: Sequence[str], *, force: bool) -> Iterator[SweepLog]:
    """Yield the log of a sweep, with what is done already.

    Args:
        folder: Where it is; None to keep rows in memory only.
        digest: Hash of the traces.
        keys: The points. Those of an earlier sweep in the folder must be among them.
        force: True to begin anew, whatever the folder holds.

    Raises:
        OutputError: The folder holds another sweep, or results that aren't this one's; or another process sweeps there.
    """
    if folder is None:
        yield SweepLog()
        return
    refuse_no_folder(folder)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    head, log = folder / _HEAD, folder / _LOG
    with _alone(folder):
        before = None if force else _read_head(head)
        rows = _read_rows(log) if before is not None and log.exists() else {}
        if before is not None and (rows or any((folder / name).exists() for name in OUTPUTS)):
            _refuse_other(folder, before, digest, keys)
        else:
            _begin_anew(folder, force=force, own=before is not None)
        said = {"format": _FORMAT, "version": _version(), "traces": digest, "points": list(keys)}
        # Without what a crash cut off.
        write_atomic(log, (_line(key, row) for key, row in rows.items()), force=True)
        write_atomic(head, [json.dumps(said, indent=1).encode(), b"\n"], force=True)
        # What failed is tried again: it may have lacked memory.
        kept = {key: rows[key] for key in keys if "error" not in rows.get(key, _NO_ROW)}
        try:
            with log.open("ab") as stream:
                yield SweepLog(stream, kept)
        finally:
            if not log.stat().st_size:
                _remove(head, log, folder if made else None)


def _remove(head: Path, log: Path, folder: Path | None) -> None:
    """Leave nothing behind where nothing was done."""
    head.unlink()
    log.unlink()
    if folder is not None:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder against other processes; when this one ends, however it ends, it lets go."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as err:
                raise OutputError(f"{folder}: expected no other sweep at work in it, got one; wait for it") from err
        yield
    finally:
        os.close(handle)


def _version() -> str:
    from chakra_et import __version__

    return __version__


def _begin_anew(folder: Path, *, force: bool, own: bool) -> None:
    """Remove what is in the way, if it is an earlier sweep's (`own`), or if it may go."""
    for name in OUTPUTS if own else (*OUTPUTS, _LOG):
        refuse_existing(folder / name, force=force)
        with suppress(FileNotFoundError):
            (folder / name).unlink()


def _refuse_other(folder: Path, before: dict[str, Any], digest: str, keys: Sequence[str]) -> None:
    strange = None
    if before.get("version") != _version() or before.get("format") != _FORMAT:
        strange = f"one that version {before.get('version')} made"
    elif before.get("traces") != digest:
        strange = "one of other traces"
    elif not set(before.get("points", ())) <= set(keys):
        strange = "one of other points (points can be added to a sweep, but not taken away or changed)"
    if strange is not None:
        raise OutputError(f"{folder}: expected no other sweep, got {strange}; choose another folder or use --force")


def _read_head(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("points"), list):
        raise OutputError(
            f"{path}: expected what a sweep wrote, got something else; choose another folder or use --force"
        )
    return found


def _line(key: str, row: Row) -> bytes:
    body = json.dumps([key, row])
    return f'{{"check": "{zlib.crc32(body.encode()):08x}", "point": {body}}}\n'.encode()


def _read_rows(path: Path) -> dict[str, Row]:
    """Return the rows whose lines are whole."""
    rows: dict[str, Row] = {}
    for line in path.read_bytes().splitlines(keepends=True):
        with suppress(ValueError, KeyError, TypeError):
            key, row = json.loads(line)["point"]
            if line == _line(key, row):
                rows[key] = row
    return rows
