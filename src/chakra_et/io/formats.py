"""The table of formats, and reading and writing through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chakra_et.errors import InputError, OutputError
from chakra_et.io._files import Source, list_paths, read_bytes, refuse_existing, refuse_no_folder
from chakra_et.io.et import parse_et, read_et, write_et
from chakra_et.io.json import parse_json, read_json, write_json
from chakra_et.io.parquet import parse_parquet, read_parquet, write_parquet
from chakra_et.ir.trace import Trace
from chakra_et.ir.trace_set import TraceSet

__all__ = ["FORMATS", "Format", "format_of", "read", "read_set", "write", "write_set"]


class _Writer(Protocol):
    def __call__(self, trace: Trace, path: Source, *, force: bool = False) -> Path: ...


@dataclass(frozen=True, slots=True)
class Format:
    """One file format.

    Attributes:
        name: What users call it.
        suffixes: File name endings.
        meaning: One sentence.
        starts: Returns True if a file's (decompressed) first bytes look like it.
        parse: Content and path -> trace.
        read: Path or URL -> trace.
        write: Trace and path -> the path.
    """

    name: str
    suffixes: tuple[str, ...]
    meaning: str
    starts: Callable[[bytes], bool]
    parse: Callable[[bytes, str], Trace]
    read: Callable[[Source], Trace]
    write: _Writer


# In the order in which a directory is searched and content is tried; `.et` has no magic number and comes last for
# content.
FORMATS: tuple[Format, ...] = (
    Format(
        "et",
        (".et", ".et.gz"),
        "Length-delimited protobuf, plain or gzip.",
        lambda _: True,
        parse_et,
        read_et,
        write_et,
    ),
    Format(
        "parquet",
        (".parquet",),
        "The node table as columns, metadata beside it.",
        lambda data: data[:4] == b"PAR1",
        parse_parquet,
        read_parquet,
        write_parquet,
    ),
    Format(
        "json",
        (".json", ".json.gz"),
        "Protobuf JSON, plain or gzip; the `workload_graph` dialect is read too.",
        lambda data: data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{",
        parse_json,
        read_json,
        write_json,
    ),
)


def _by_suffix(path: str) -> Format | None:
    return next((entry for entry in FORMATS if path.endswith(entry.suffixes)), None)


def _by_content(data: bytes) -> Format:
    head = data[:4096]
    return next(entry for entry in (*FORMATS[1:], FORMATS[0]) if entry.starts(head))


def format_of(name: str) -> Format:
    """Return a format by name.

    Raises:
        OutputError: There is none of that name.

    Example:
        >>> format_of("et").suffixes
        ('.et', '.et.gz')
    """
    for entry in FORMATS:
        if entry.name == name:
            return entry
    raise OutputError(f"expected one of the formats {', '.join(entry.name for entry in FORMATS)}, got '{name}'")


def read(path: Source) -> Trace:
    """Read the trace of one rank; its format is found by suffix, then by content.

    Args:
        path: Path or URL, plain or gzip.

    Raises:
        InputError: The file can't be read.
        FormatError: Its bytes don't follow the format.

    Example:
        >>> import tempfile
        >>> from chakra_et.ir import TraceBuilder
        >>> path = write(TraceBuilder(rank=1).build(), f"{tempfile.mkdtemp()}/trace.1.et")
        >>> read(path).rank
        1
    """
    data = read_bytes(path)
    return (_by_suffix(str(path)) or _by_content(data)).parse(data, str(path))


def read_set(source: Source | Iterable[Source]) -> TraceSet:
    """Read the traces of a job.

    Args:
        source: A file, a directory of ranks, a glob, a URL of any of these, or several of them. In a directory, `.et`
            files are taken if there are any, else `.parquet`, else `.json`.

    Raises:
        InputError: Nothing there, or two files of one rank.
        FormatError: A file doesn't follow its format.

    Example:
        >>> import tempfile
        >>> from chakra_et.ir import TraceBuilder
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_set(TraceSet((TraceBuilder(rank=0).build(), TraceBuilder(rank=1).build())), folder)
        >>> read_set(folder).ranks
        (0, 1)
    """
    sources = [source] if isinstance(source, str | Path) else list(source)
    groups = [entry.suffixes for entry in FORMATS]
    paths = [path for entry in sources for path in list_paths(entry, groups)]
    if not paths:
        raise InputError("expected at least one path, got none; name a file, a directory or a glob")
    traces: list[Trace] = []
    owner: dict[int, str] = {}
    for path in paths:
        trace = read(path)
        if trace.rank is not None:
            if trace.rank in owner:
                raise InputError(
                    f"{path}: rank {trace.rank}: expected one file a rank, got {owner[trace.rank]} before; "
                    "name one of them"
                )
            owner[trace.rank] = path
        traces.append(trace)
    ranked = sorted((trace for trace in traces if trace.rank is not None), key=lambda trace: trace.rank or 0)
    return TraceSet((*ranked, *(trace for trace in traces if trace.rank is None)))


def write(trace: Trace, path: Source, *, force: bool = False, format: str | None = None) -> Path:
    """Write the trace of one rank.

    Args:
        trace: The trace.
        path: Local path; its suffix says the format (and ``.gz``: compressed).
        force: True to overwrite.
        format: Name of a format, for a path whose suffix says nothing.

    Raises:
        OutputError: Unknown format, existing file, or a path that can't be written.
        TraceError: A value doesn't fit its kind on the wire.
    """
    found = format_of(format) if format is not None else _by_suffix(str(path))
    if found is None:
        suffixes = ", ".join(suffix for entry in FORMATS for suffix in entry.suffixes)
        raise OutputError(
            f"{path}: expected a name that ends in one of {suffixes}, got another; rename it or name a format"
        )
    return found.write(trace, path, force=force)


def write_set(
    trace_set: TraceSet, folder: Source, *, prefix: str = "trace", format: str = "et", force: bool = False
) -> list[Path]:
    """Write the traces of a job as ``<folder>/<prefix>.<rank>.<suffix>``.

    Args:
        trace_set: The traces.
        folder: Local folder; made if it isn't there.
        prefix: Start of the file names.
        format: Name of a format.
        force: True to overwrite.

    Returns:
        The paths, in rank order.

    Raises:
        OutputError: Unknown format, existing files (then none is written), or a folder that can't be written.
        TraceError: A value doesn't fit its kind on the wire.
    """
    found = format_of(format)
    target = Path(folder)
    refuse_no_folder(target)
    paths = [target / f"{prefix}.{rank}{found.suffixes[0]}" for rank in trace_set.ranks]
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise OutputError(f"{target}: expected a folder, got an error: {err}; choose another path") from err
    for path in paths:
        refuse_existing(path, force=force)
    return [found.write(trace, path, force=force) for trace, path in zip(trace_set, paths, strict=True)]
