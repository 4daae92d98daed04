"""What `chakra_et.capture` says of a job, beside the profiles of each rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from chakra_et.errors import InputError
from chakra_et.io import read_bytes
from chakra_et.ir.process_group import MOST_RANKS, groups_from_records
from chakra_et.ir.trace import Trace

__all__ = ["add_manifest"]

_FACTS = ("host", "devices", "versions", "backend", "window", "warnings")


def add_manifest(trace: Trace, path: str | None) -> Trace:
    """Add what a manifest tells: process groups that no call used, versions, devices.

    Args:
        trace: The trace of the manifest's rank.
        path: The manifest, or None.

    Returns:
        The trace; as it was, if there is no manifest or nothing can be read from it.
    """
    record = _read(path) if path is not None else {}
    if not record:
        return trace
    known = {group.name for group in trace.process_groups}
    more = tuple(group for group in groups_from_records(record.get("process_groups")) if group.name not in known)
    told = {"file": str(path).replace("\\", "/").rpartition("/")[2], "kind": "manifest"}
    told |= {name: record[name] for name in _FACTS if record.get(name)}
    metadata = replace(trace.metadata, sources=(*trace.metadata.sources, told))
    rank, size = (_count(record.get(name)) for name in ("rank", "world_size"))
    metadata = replace(
        metadata,
        rank=rank if metadata.rank is None else metadata.rank,
        world_size=size if metadata.world_size is None else metadata.world_size,
    )
    return replace(trace, process_groups=(*trace.process_groups, *more), metadata=metadata)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value <= MOST_RANKS else None


def _read(path: str) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(read_bytes(path))
    except (msgspec.DecodeError, InputError):
        return {}
    return record if isinstance(record, dict) else {}
