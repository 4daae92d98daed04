"""Order of the nodes of a capture that was made before execution (`chakra_et.capture.fake`).

Such an execution trace says so at its top (``"chakra": {"family": "compiled", ...}``). What it calls a thread is a
stream of the device (plus 1). Calls follow each other on their stream; communications that are asynchronous leave it,
and ``## chakra:wait ##`` comes back to them; ``## chakra:sync ##`` says that a stream waits for what another had been
given until some moment. Communications of one process group follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from chakra_et.frontends.pytorch.communication import CommColumns
from chakra_et.frontends.pytorch.parse_et import HostTrace
from chakra_et.ir.enums import NodeType

__all__ = ["SYNC_NOTE", "CompiledHeader", "compiled_header", "compiled_order"]

SYNC_NOTE = "## chakra:sync ##"


@dataclass(frozen=True, slots=True)
class CompiledHeader:
    """What an execution trace says of itself.

    Attributes:
        family: How it came about.
        rank: Global rank, or None.
        world_size: Ranks of the job, or None.
        device: Type of the device that it is of.
    """

    family: str
    rank: int | None
    world_size: int | None
    device: str


def compiled_header(host: HostTrace) -> CompiledHeader | None:
    """Return what an execution trace says of itself; None for those of PyTorch's own observer."""
    record = host.header.get("chakra")
    if not isinstance(record, dict) or record.get("family") != "compiled":
        return None
    return CompiledHeader("compiled", _whole(record, "rank"), _whole(record, "world_size"), str(record.get("device")))


def _whole(record: Mapping[str, Any], name: str) -> int | None:
    value = record.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def compiled_order(
    nodes: pl.DataFrame, described: Mapping[int, CommColumns], waits: Mapping[int, int]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return `ctrl_deps` and `sync_deps` of each node, as rows.

    Args:
        nodes: `HostTrace.nodes`.
        described: Communications by row.
        waits: Number of the awaited communication, by row.
    """
    rows = {int(number): row for row, number in enumerate(nodes["id"].to_list())}
    numbered = {columns.comm_id: row for row, columns in described.items()}
    last: dict[int, int] = {}
    of_group: dict[str | None, int] = {}
    ctrl: list[list[int]] = []
    sync: list[list[int]] = []
    for row, (stream, name, text) in enumerate(nodes.select("tid", "name", "input_values").iter_rows()):
        ctrl.append([last[stream]] if stream in last else [])
        awaited: list[int] = []
        columns = described.get(row)
        if columns is not None and columns.type == NodeType.COMM_COLL_NODE:
            if columns.pg_name in of_group:
                awaited.append(of_group[columns.pg_name])
            of_group[columns.pg_name] = row
        elif row in waits:
            awaited.append(numbered.get(waits[row], row))
        elif name == SYNC_NOTE:
            awaited.append(rows.get(_after(text), row))
        sync.append(sorted({one for one in awaited if one < row} - set(ctrl[row])))
        if columns is None or columns.comm_async is False:
            last[stream] = row
    return ctrl, sync


def _after(text: str) -> int:
    try:
        values = msgspec.json.decode(text)
        record = msgspec.json.decode(values[0])
        return int(record["after"])
    except (msgspec.DecodeError, IndexError, TypeError, KeyError, ValueError):
        return -1
