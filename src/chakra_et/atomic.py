"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from chakra_et.errors import OutputError

__all__ = ["replace_file"]


def replace_file(path: Path, chunks: Iterable[bytes], *, line: Callable[[BaseException], str] = str) -> Path:
    """Write chunks to a temporary file beside `path` and rename it.

    Args:
        path: Local path; its folder is made if it isn't there, and a file of that name is replaced.
        chunks: The content; an error raised by it passes through, and nothing is left behind.
        line: Says in one line what went wrong.

    Raises:
        OutputError: The file can't be written.

    Example:
        >>> replace_file(Path(tempfile.mkdtemp()) / "x", [b"a", b"b"]).read_bytes()
        b'ab'
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
        temporary = None
    except OSError as err:
        raise OutputError(f"{path}: expected a writable path, got an error: {line(err)}; choose another path") from err
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return path
