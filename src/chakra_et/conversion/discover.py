"""Find profiles, tell host from device files, and pair them by rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chakra_et.errors import InputError
from chakra_et.io import list_paths, read_head
from chakra_et.ir.process_group import MOST_RANKS

__all__ = ["Source", "discover", "kind_of"]

_HEAD_BYTES = 1 << 16
_NAMED = re.compile(r"(?:rank|worker|host|device|kineto|trace|profile|et|eg)s?[-_. ]?(\d+)", re.IGNORECASE)
_ANY = re.compile(r"(?:^|[-_. ])(\d{1,6})(?=[-_. ]|$)")
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')


@dataclass(frozen=True, slots=True)
class Source:
    """The files of one rank.

    Attributes:
        host: Execution trace, or None.
        device: Kineto profile, or None.
        rank: Rank as far as the files' heads and names tell, or None.
    """

    host: str | None
    device: str | None
    rank: int | None

    @property
    def name(self) -> str:
        """The files, for messages."""
        return " + ".join(path for path in (self.device, self.host) if path)


def kind_of(head: bytes) -> str | None:
    """Tell from a file's first bytes whether it is a ``host`` or a ``device`` file, or neither (None)."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if b'"traceEvents"' in text or b'"schemaVersion"' in text or b'"deviceProperties"' in text:
        return "device"
    if re.match(rb'\{\s*"schema"\s*:', text) or (b'"nodes"' in text and b'"schema"' in text):
        return "host"
    return "device" if re.match(rb'\[\s*\{[^{}]*"ph"\s*:', text) else None


def discover(inputs: Sequence[str | Path]) -> list[Source]:
    """Find the files that inputs stand for, and pair them by rank.

    Args:
        inputs: Files, directories (searched through), globs or URLs.

    Raises:
        InputError: Nothing there, or a named file that is neither an execution trace nor a Kineto profile.
    """
    hosts: list[tuple[int | None, str]] = []
    devices: list[tuple[int | None, str]] = []
    for entry in inputs:
        path = Path(str(entry))
        inside = path.is_dir()
        names = _walk(path) if inside else list_paths(entry, [(".json", ".json.gz")])
        found = False
        for name in names:
            head = read_head(name, _HEAD_BYTES)
            kind = kind_of(head)
            if kind is not None:
                found = True
                (hosts if kind == "host" else devices).append((_rank_of(name, head), name))
            elif not inside:
                raise InputError(
                    f"{name}: expected a PyTorch execution trace or a Kineto profile (JSON), got {head[:24]!r}; "
                    "is it the right file?"
                )
        if not found:
            raise InputError(f"{entry}: expected profiles (.json, .json.gz) in the directory, got none; check the path")
    return _pair(hosts, devices)


def _walk(folder: Path) -> list[str]:
    return sorted(
        str(path) for path in folder.rglob("*") if path.is_file() and path.name.endswith((".json", ".json.gz"))
    )


def _rank_of(name: str, head: bytes) -> int | None:
    inside = _DISTRIBUTED.search(head)
    if inside and int(inside.group(1)) < MOST_RANKS:
        return int(inside.group(1))
    stem = re.sub(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$", "", Path(name).name)
    named = _NAMED.findall(stem) or _ANY.findall(stem)
    if not named and (folder := re.fullmatch(r"(?:rank|worker)?[-_]?(\d+)", Path(name).parent.name)):
        return int(folder.group(1))
    return int(named[0]) if named else None


def _pair(hosts: list[tuple[int | None, str]], devices: list[tuple[int | None, str]]) -> list[Source]:
    if len(hosts) == 1 and len(devices) == 1:
        (host_rank, host), (rank, device) = hosts[0], devices[0]
        return [Source(host, device, rank if rank is not None else host_rank)]
    waiting: dict[int | None, list[str]] = {}
    for rank, name in hosts:
        waiting.setdefault(rank, []).append(name)
    pairs = []
    for rank, name in devices:
        mates = waiting.get(rank, []) if rank is not None else []
        pairs.append(Source(mates.pop(0) if mates else None, name, rank))
    pairs += [Source(name, None, rank) for rank, names in waiting.items() for name in names]
    return sorted(pairs, key=lambda source: (source.rank is None, source.rank or 0, source.name))
