"""An execution trace alone to a host-only trace: order, arguments and communications, but no times.

Operators keep their program order as a chain in the order of their starts, a thread after the other where nothing else
is known; tensor producers and consumers become data edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from chakra_et.frontends.pytorch.comm_notes import WAIT, WAIT_NOTE, CommNote
from chakra_et.frontends.pytorch.comm_records import CommRecord, parse_c10d, parse_records
from chakra_et.frontends.pytorch.communication import CommColumns, CommSource, describe
from chakra_et.frontends.pytorch.compiled import SYNC_NOTE, CompiledHeader, compiled_header, compiled_order
from chakra_et.frontends.pytorch.convert import RankFacts
from chakra_et.frontends.pytorch.extras import extra_attributes
from chakra_et.frontends.pytorch.join import host_rank
from chakra_et.frontends.pytorch.parse_et import HostTrace
from chakra_et.frontends.pytorch.tensors import operator_arguments, tensor_edges
from chakra_et.ir.columns import COLUMNS, SCHEMA
from chakra_et.ir.enums import NodeType
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace, TraceMetadata

__all__ = ["convert_host"]

_COMM = ("comm_type", "comm_size", "comm_dtype", "pg_name", "comm_src", "comm_dst", "comm_tag", "comm_root",
         "reduce_op", "comm_async", "comm_id", "in_split_sizes", "out_split_sizes", "unknown_comm")  # fmt: skip
# Operators of c10d that meet no other rank.
_SILENT_CALLS = (WAIT, "c10d::check_for_nan")

# What a wait of one stream for another is called in a trace.
SYNC = "stream_wait"


def convert_host(host: HostTrace, *, sources: tuple[dict[str, Any], ...]) -> tuple[Trace, RankFacts]:
    """Convert an execution trace that has no profile.

    Args:
        host: The execution trace.
        sources: Facts about the file, for the trace's metadata.
    """
    nodes = host.nodes.filter(~pl.col("name").str.starts_with("[pytorch|profiler|")).sort("id")
    count = nodes.height
    header = compiled_header(host)
    groups = {group.name: group for group in host.process_groups}
    rank = header.rank if header is not None else host_rank(host)
    described = _describe(nodes, rank, groups, host.notes)
    waits = {row: host.waits[node] for row, node in enumerate(nodes["id"].to_list()) if node in host.waits}
    extras = extra_attributes(nodes)
    frame = pl.DataFrame(
        {
            "id": pl.Series(np.arange(count, dtype=np.uint64)),
            "name": nodes["name"].replace([WAIT_NOTE, SYNC_NOTE], [WAIT, SYNC]),
            "type": _types(nodes, described),
            "data_deps": tensor_edges(nodes),
            "start_ns": pl.Series([None] * count, dtype=pl.Int64),
            "duration_ns": pl.Series(np.zeros(count, np.int64)),
            **_order(nodes, header, described, waits),
            **_callers(nodes),
            **operator_arguments(nodes),
            **({} if extras is None else {"attr": extras}),
            **_communications(count, described, waits),
        }
    )
    present = [c.name for c in COLUMNS if c.core or (c.name in frame.columns and frame[c.name].null_count() < count)]
    for columns in described.values():
        if columns.seen_group is not None:
            groups.setdefault(columns.seen_group.name, columns.seen_group)
    metadata = TraceMetadata(
        rank=rank,
        world_size=header.world_size if header is not None else None,
        family=header.family if header is not None else "collected",
        sources=sources,
    )
    facts = _facts(host, nodes, described, is_compiled=header is not None)
    return Trace(frame.select(present), tuple(groups.values()), metadata), facts


def _types(nodes: pl.DataFrame, described: dict[int, CommColumns]) -> pl.Series:
    label = (nodes["name"].str.starts_with("## ") | nodes["name"].str.starts_with("ProfilerStep#")).to_numpy()
    types = np.where(label, int(NodeType.METADATA_NODE), int(NodeType.COMP_NODE))
    for row, columns in described.items():
        types[row] = int(columns.type)
    return pl.Series(types, dtype=pl.UInt8)


def _order(
    nodes: pl.DataFrame, header: CompiledHeader | None, described: dict[int, CommColumns], waits: dict[int, int]
) -> dict[str, pl.Series]:
    """Return where nodes run, and what they follow there."""
    threads = nodes["tid"]
    if header is None:
        device = {row for row in described if nodes["name"][row] == "record_param_comms"}
        return {
            "ctrl_deps": _chain(threads.to_list()),
            "sync_deps": pl.Series([[]] * nodes.height, dtype=SCHEMA["sync_deps"]),
            "is_cpu_op": pl.Series([row not in device for row in range(nodes.height)], dtype=pl.Boolean),
            "tid": threads,
        }
    ctrl, sync = compiled_order(nodes, described, waits)
    on_host = header.device == "cpu"
    return {
        "ctrl_deps": pl.Series(ctrl, dtype=SCHEMA["ctrl_deps"]),
        "sync_deps": pl.Series(sync, dtype=SCHEMA["sync_deps"]),
        "is_cpu_op": pl.Series([on_host], dtype=pl.Boolean).new_from_index(0, nodes.height),
        **({"tid": threads} if on_host else {"stream": threads - 1}),
    }


def _callers(nodes: pl.DataFrame) -> dict[str, pl.Series]:
    """Return what connects operators with their callers and their forward operators."""
    place = {int(number): row for row, number in enumerate(nodes["id"].to_list())}
    parents = [place.get(int(parent)) for parent in nodes["parent"].to_list()]
    forwards = [place.get(int(forward)) for forward in nodes["fw_parent"].to_list()]
    return {
        "parent": pl.Series(parents, dtype=pl.Int64),
        "rf_id": nodes["rf_id"],
        "seq_id": nodes["seq_id"].replace(-1, None),
        "fw_parent": pl.Series(forwards, dtype=pl.Int64),
        "fw_tid": nodes["fw_tid"].replace(0, None),
    }


def _communications(count: int, described: dict[int, CommColumns], waits: dict[int, int]) -> dict[str, pl.Series]:
    columns = {
        name: pl.Series([getattr(described.get(row), name, None) for row in range(count)], dtype=SCHEMA[name])
        for name in _COMM
    }
    awaited = pl.Series([waits.get(row) for row in range(count)], dtype=pl.Int64)
    return {**columns, "comm_id": columns["comm_id"].fill_null(awaited)}


def _facts(host: HostTrace, nodes: pl.DataFrame, described: dict[int, CommColumns], *, is_compiled: bool) -> RankFacts:
    without = "host-only trace without times: no profile was given, so durations are 0"
    if is_compiled:
        without = "captured before execution: durations are 0; simulate it with a model of compute (roofline)"
    return RankFacts(
        host_ops=nodes.height,
        communications=len(described),
        unknown_communications=sum(bool(columns.unknown_comm) for columns in described.values()),
        warnings=(
            without,
            *(f"{host.path}: {repair}" for repair in host.repairs),
        ),
    )


def _chain(threads: list[int]) -> pl.Series:
    """Chain the operators of each thread; a thread's first operator follows what ran last before it."""
    last: dict[int, int] = {}
    lists: list[list[int]] = []
    for row, thread in enumerate(threads):
        before = last.get(thread, row - 1)
        lists.append([before] if before >= 0 else [])
        last[thread] = row
    return pl.Series(lists, dtype=SCHEMA["ctrl_deps"])


def _describe(
    nodes: pl.DataFrame, rank: int | None, groups: dict[str, ProcessGroup], notes: dict[int, CommNote]
) -> dict[int, CommColumns]:
    """Describe ``record_param_comms`` (waits aside), or ``c10d`` calls where there are no such records."""
    records: dict[int, CommRecord] = {
        row: record for row, record in parse_records(nodes).items() if record.name not in ("wait", "init", "coalesced")
    }
    if not records:
        calls = nodes.with_row_index("row").filter(pl.col("name").str.starts_with("c10d::"))
        for row in calls.iter_rows(named=True):
            if row["name"] not in _SILENT_CALLS:
                records[row["row"]] = parse_c10d(
                    row["name"],
                    dims="",
                    types="",
                    values="",
                    et_values=row["input_values"] or "",
                    et_types=row["input_types"] or "",
                )
    return {
        row: describe(
            CommSource(nodes["name"][row], {}, record, note=notes.get(nodes["id"][row])), rank=rank, groups=groups
        )
        for row, record in records.items()
    }
