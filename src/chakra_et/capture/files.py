"""The files of a capture: names, compression, whole or not at all.

While a window is open, the execution trace grows in ``host.<rank>.partial.json``. It stays there, readable up to where
it broke off, if the process is killed; otherwise it becomes ``host.<rank>.json.gz``.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chakra_et.atomic import replace_file

__all__ = ["CaptureFiles", "compress", "is_complete", "write_manifest"]

_CHUNK = 1 << 20
_TAIL = 1 << 12
# JSON of profiles shrinks about as much at level 3 as at 9, in a fraction of the time.
_LEVEL = 3
_TRACE_NAME = re.compile(rb'("traceName"\s*:\s*")[^"]*(")')


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """Names of one rank's files.

    Attributes:
        folder: Where they are.
        rank: Global rank.
    """

    folder: Path
    rank: int

    @property
    def host(self) -> Path:
        """The execution trace."""
        return self.folder / f"host.{self.rank}.json.gz"

    @property
    def device(self) -> Path:
        """The Kineto profile."""
        return self.folder / f"device.{self.rank}.json.gz"

    @property
    def manifest(self) -> Path:
        """What was captured, and where."""
        return self.folder / f"manifest.{self.rank}.json"

    @property
    def partial_host(self) -> Path:
        """The execution trace while it grows."""
        return self.folder / f"host.{self.rank}.partial.json"

    @property
    def partial_device(self) -> Path:
        """The Kineto profile until it is compressed."""
        return self.folder / f"device.{self.rank}.partial.json"


def compress(source: Path, target: Path, *, anonymous: bool = False) -> None:
    """Compress a profile and remove the original; on an error the original stays.

    Args:
        source: JSON file.
        target: ``.json.gz`` file; replaced if it is there.
        anonymous: Leave out the path that Kineto writes at its end.

    Raises:
        OutputError: The target can't be written.
    """
    replace_file(target, _compressed(source, anonymous))
    source.unlink(missing_ok=True)


def _compressed(source: Path, anonymous: bool) -> Iterator[bytes]:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    size = source.stat().st_size
    with source.open("rb") as stream:
        while chunk := stream.read(min(_CHUNK, max(size - _TAIL - stream.tell(), 0)) or _TAIL):
            if anonymous and stream.tell() > size - _TAIL:
                chunk = _TRACE_NAME.sub(rb"\1\2", chunk + stream.read())
            yield packer.compress(chunk)
    yield packer.flush()


def is_complete(source: Path) -> bool:
    """Tell whether an execution trace was written to its end (a full disk cuts it off without a word)."""
    with source.open("rb") as stream:
        stream.seek(max(source.stat().st_size - _TAIL, 0))
        return b'"finish_ts"' in stream.read()


def write_manifest(path: Path, record: dict[str, Any]) -> None:
    """Write a manifest.

    Raises:
        OutputError: It can't be written.
    """
    replace_file(path, [json.dumps(record, indent=1).encode(), b"\n"])
