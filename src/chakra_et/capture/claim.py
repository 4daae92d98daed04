"""One process to a rank's files: two that take themselves for the same rank would write into each other's."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

__all__ = ["Claim"]


class Claim:
    """Holds the place of a rank in a folder, until `release` or the process's end.

    Args:
        folder: Folder of the capture.
        rank: Global rank.

    Raises:
        RuntimeError: Another process holds it, or an earlier window of this one that is still being written.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> Claim(folder, 0).release()
        >>> list(folder.iterdir())
        []
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._path = folder / f".rank.{rank}.lock"
        self._file: int | None = None
        # Another one may take the file away between the two calls: what is held then is a name that nobody else finds.
        while self._file is None:
            file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as err:
                os.close(file)
                raise RuntimeError(
                    f"expected one process to write rank {rank} into {folder}, found another at it; set RANK and "
                    "WORLD_SIZE for each process"
                ) from err
            except OSError:
                # File systems without locks: nobody is kept out.
                os.close(file)
                return
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(file), os.stat(self._path)):
                    self._file = file
            if self._file is None:
                os.close(file)

    def release(self) -> None:
        """Give the place back."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def leave_to_parent(self) -> None:
        """In a forked child: hold nothing that the parent holds."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
