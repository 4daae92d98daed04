"""Find profiles, tell host from device files, and pair them by rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chakra_et.errors import InputError
from chakra_et.io import list_paths, read_head
from chakra_et.ir.process_group import MOST_RANKS

__all__ = ["HEAD_BYTES", "Discovery", "Source", "discover", "kind_of", "rank_of"]

HEAD_BYTES = 1 << 16
_NAMED = re.compile(
    r"(?<![a-z])(?:rank|worker|host|device|manifest|kineto|trace|profile|et|eg)s?[-_. ]?(\d+)", re.IGNORECASE
)
_LAST = re.compile(r"(?:^|[-_. ])(\d{1,5})$")
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)(?![\d.eE])')


@dataclass(frozen=True, slots=True)
class Source:
    """The files of one rank.

    Attributes:
        host: Execution trace, or None.
        device: Kineto profile, or None.
        rank: Rank as far as the profile's head and name tell (the execution trace's, if there is no profile), or None.
        host_rank: Rank as far as the execution trace's name tells, or None.
        manifest: What `chakra_et.capture` wrote beside them, or None.
    """

    host: str | None
    device: str | None
    rank: int | None
    host_rank: int | None = None
    manifest: str | None = None

    @property
    def name(self) -> str:
        """The files, for messages."""
        return " + ".join(path for path in (self.device, self.host) if path)


def kind_of(head: bytes) -> str | None:
    """Tell from a file's first bytes whether it is a ``host``, a ``device`` or a ``manifest`` file, or none (None)."""
    if head[257:262] == b"ustar":
        return None
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if b'"chakraExport"' in text[:256]:
        return None
    if re.match(rb'\{\s*"chakra_capture"\s*:', text):
        return "manifest"
    if b'"traceEvents"' in text or b'"schemaVersion"' in text or b'"deviceProperties"' in text:
        return "device"
    if re.match(rb'\{\s*"schema"\s*:', text) or (b'"nodes"' in text and b'"schema"' in text):
        return "host"
    return "device" if re.match(rb'\[\s*\{[^{}]*"ph"\s*:', text) else None


@dataclass(frozen=True, slots=True)
class Discovery:
    """What inputs stand for.

    Attributes:
        sources: Files to convert, by rank.
        damaged: (file, why) of files in directories that can't be read.
        left_out: Files in directories that are no profiles.
    """

    sources: list[Source]
    damaged: list[tuple[str, str]]
    left_out: list[str]


def discover(inputs: Sequence[str | Path]) -> Discovery:
    """Find the files that inputs stand for, and pair them by rank.

    Args:
        inputs: Files, directories (searched through), globs or URLs.

    Raises:
        InputError: Nothing there, or a named file that is neither an execution trace nor a Kineto profile.
    """
    found: dict[str, list[tuple[int | None, str]]] = {"host": [], "device": [], "manifest": []}
    damaged: list[tuple[str, str]] = []
    left_out: list[str] = []
    for entry in inputs:
        if not str(entry):
            raise InputError("expected a file, a directory, a glob or a URL, got an empty name")
        inside = Path(str(entry)).is_dir()
        for name in _walk(Path(str(entry))) if inside else list_paths(entry, [(".json", ".json.gz")]):
            try:
                kind, rank = _look(name)
            except InputError as err:
                if not inside:
                    raise
                damaged.append((name, str(err)))
                continue
            if kind is not None and (inside or kind != "manifest"):
                found[kind].append((rank, name))
            elif inside:
                left_out.append(name)
            else:
                raise InputError(_refusal(name))
        if inside and not (found["host"] or found["device"] or damaged):
            raise InputError(f"{entry}: expected profiles (.json, .json.gz) in the directory, got none; check the path")
    manifests = dict(found["manifest"])
    sources = [replace(source, manifest=manifests.get(source.rank)) for source in _pair(found["host"], found["device"])]
    return Discovery(sources, damaged, left_out)


def _look(name: str) -> tuple[str | None, int | None]:
    """Return kind and rank of a file from its head and its name."""
    head = read_head(name, HEAD_BYTES)
    if not head.strip():
        raise InputError(f"{name}: expected a profile, got an empty or cut off file; copy it again")
    return kind_of(head), rank_of(name, head)


def _refusal(name: str) -> str:
    head = read_head(name, HEAD_BYTES)
    wanted = f"{name}: expected a PyTorch execution trace or a Kineto profile (JSON), got"
    if head[257:262] == b"ustar":
        return f"{wanted} a tar archive; unpack it first"
    if b'"chakraExport"' in head[:256]:
        return f"{wanted} a timeline that chakra exported; convert the profile that its trace was made from"
    if kind_of(head) == "manifest":
        return f"{wanted} the manifest of a capture; name its folder, or the profiles beside it"
    return f"{wanted} {head[:24]!r}; is it the right file?"


def _walk(folder: Path) -> list[str]:
    return sorted(
        str(path) for path in folder.rglob("*") if path.is_file() and path.name.endswith((".json", ".json.gz"))
    )


def rank_of(name: str, head: bytes) -> int | None:
    """Return the rank that a file's head tells, else the one that its name does, else None."""
    inside = _DISTRIBUTED.search(head)
    if inside and int(inside.group(1)) < MOST_RANKS:
        return int(inside.group(1))
    stem = re.sub(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$", "", Path(name).name)
    named = _NAMED.findall(stem) or _LAST.findall(stem)
    if not named and (folder := re.fullmatch(r"(?:rank|worker)?[-_]?(\d+)", Path(name).parent.name)):
        return int(folder.group(1))
    return int(named[0]) if named else None


def _pair(hosts: list[tuple[int | None, str]], devices: list[tuple[int | None, str]]) -> list[Source]:
    if len(hosts) == 1 and len(devices) == 1:
        (host_rank, host), (rank, device) = hosts[0], devices[0]
        return [Source(host, device, rank if rank is not None else host_rank, host_rank)]
    waiting: dict[int | None, list[str]] = {}
    for rank, name in hosts:
        waiting.setdefault(rank, []).append(name)
    pairs = []
    for rank, name in devices:
        mates = waiting.get(rank, []) if rank is not None else []
        pairs.append(Source(mates.pop(0) if mates else None, name, rank))
    pairs += [Source(name, None, rank) for rank, names in waiting.items() for name in names]
    return sorted(pairs, key=lambda source: (source.rank is None, source.rank or 0, source.name))
