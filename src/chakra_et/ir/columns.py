"""The columns of a trace's node table: declared once, read by codecs, validator and the reference page.

Core columns are in every trace; the others are absent when no node has a value. ``wire`` names where a column lives in
a ``Node`` message: ``"field"`` (a field of its own) or the oneof kind of the attribute of that name.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

__all__ = ["ATTRIBUTE_COLUMNS", "COLUMNS", "CORE_COLUMNS", "IO_DTYPE", "SCHEMA", "Column", "empty_nodes"]

_IDS = pl.List(pl.UInt64)
IO_DTYPE = pl.Struct({"values": pl.String, "shapes": pl.String, "types": pl.String})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the node table.

    Attributes:
        name: Column name, and attribute name on the wire.
        dtype: Polars dtype.
        unit: Unit of the values; empty where there is none.
        meaning: One sentence for the reference page.
        wire: ``"field"``, or the attribute's oneof kind as the schema spells it (``int64``, ``uint64_list``, ...).
        core: True if every trace has the column.
    """

    name: str
    dtype: pl.DataType
    unit: str
    meaning: str
    wire: str
    core: bool = False


# The order is the order in which attributes are written.
COLUMNS: tuple[Column, ...] = (
    Column(
        "id", pl.UInt64(), "", "Node id, unique inside one rank; ascending in time in traces made here.", "field", True
    ),
    Column("name", pl.String(), "", "Operator, kernel or annotation name.", "field", True),
    Column("type", pl.UInt8(), "", "`NodeType` number.", "field", True),
    Column(
        "ctrl_deps", _IDS, "", "Ids that must end first: program order on a thread and launch order.", "field", True
    ),
    Column(
        "data_deps",
        _IDS,
        "",
        "Ids that must end first: tensor producers (foreign traces: the list as written).",
        "field",
        True,
    ),
    Column(
        "sync_deps",
        _IDS,
        "",
        "Ids that must end first: stream order, event waits, host waits, collective order.",
        "uint64_list",
        True,
    ),
    Column(
        "start_ns",
        pl.Int64(),
        "ns",
        "Recorded start, on the profile's clock; wire attribute `start_time_ns`.",
        "int64",
        True,
    ),
    Column("duration_ns", pl.Int64(), "ns", "Duration; never stretched in collected traces.", "int64", True),
    Column("is_cpu_op", pl.Boolean(), "", "True on the host, false on the device.", "bool", True),
    Column(
        "gap_kind",
        pl.String(),
        "",
        "Only on gap nodes: `launch_latency`, `host_idle`, `host_work` or `unexplained`.",
        "string",
    ),
    Column("parent", pl.Int64(), "", "Id of the enclosing operator or annotation in the call stack.", "int64"),
    Column(
        "segment",
        pl.Int64(),
        "",
        "0 or absent: the node is the operator's first segment; k: its k-th later one.",
        "int64",
    ),
    Column("tid", pl.Int64(), "", "Host thread; for a host communication, the worker thread.", "int64"),
    Column(
        "device",
        pl.Int64(),
        "",
        "Device index, where a profile has several; on memory events always, -1: the host's memory.",
        "int64",
    ),
    Column("stream", pl.Int64(), "", "Device stream.", "int64"),
    Column("correlation", pl.Int64(), "", "Profiler's correlation id of launch and activity.", "int64"),
    Column("rf_id", pl.Int64(), "", "Record function id of the operator.", "int64"),
    Column("seq_id", pl.Int64(), "", "Autograd sequence number.", "int64"),
    Column(
        "fw_parent", pl.Int64(), "", "Node id of the forward operator that a backward operator belongs to.", "int64"
    ),
    Column("fw_tid", pl.Int64(), "", "Thread of the forward operator.", "int64"),
    Column("op_schema", pl.String(), "", "Operator schema.", "string"),
    Column("module", pl.String(), "", "Path of the modules that the operator ran in, outermost first.", "string"),
    Column("comm_type", pl.Int64(), "", "`CommType` number of a collective.", "int64"),
    Column(
        "comm_size",
        pl.Int64(),
        "bytes",
        "All-gather: bytes contributed by each rank; all-reduce, reduce-scatter, all-to-all: bytes of the whole vector held by each rank; send and receive: bytes sent.",
        "int64",
    ),
    Column("comm_dtype", pl.String(), "", "Element type of a communication.", "string"),
    Column("pg_name", pl.String(), "", "Process group.", "string"),
    Column(
        "comm_seq",
        pl.Int64(),
        "",
        "Position of a collective in its process group, or of a send or receive among those of its peers and tag.",
        "int64",
    ),
    Column("comm_src", pl.Int64(), "", "Sending rank (global).", "int32"),
    Column("comm_dst", pl.Int64(), "", "Receiving rank (global).", "int32"),
    Column("comm_tag", pl.Int64(), "", "Tag of a send or receive.", "int32"),
    Column("comm_root", pl.Int64(), "", "Root rank (global) of a rooted collective.", "int64"),
    Column("comm_priority", pl.Int64(), "", "Priority of a communication.", "int32"),
    Column(
        "reduce_op",
        pl.String(),
        "",
        "What a reducing collective does: `sum`, `avg`, `product`, `min`, `max`, `band`, `bor`, `bxor`, `premul_sum`.",
        "string",
    ),
    Column(
        "comm_async",
        pl.Boolean(),
        "",
        "On a communication: true if its call returned before it was done, false if the call waited; null: unknown.",
        "bool",
    ),
    Column(
        "comm_id",
        pl.Int64(),
        "",
        "Number of a communication's call in its rank's capture, on the call, on the communication and on the waits for it (METADATA nodes `c10d::wait`).",
        "int64",
    ),
    Column(
        "in_split_sizes",
        pl.String(),
        "elements",
        "JSON list: elements sent to each rank by an uneven all-to-all.",
        "string",
    ),
    Column(
        "out_split_sizes",
        pl.String(),
        "elements",
        "JSON list: elements received from each rank by an uneven all-to-all.",
        "string",
    ),
    Column("unknown_comm", pl.Boolean(), "", "True on a communication kernel that could not be named.", "bool"),
    Column("wait_ns", pl.Int64(), "ns", "Part of a communication before its last participant arrived.", "int64"),
    Column("transfer_ns", pl.Int64(), "ns", "Part of a communication after its last participant arrived.", "int64"),
    Column("num_ops", pl.Int64(), "", "Arithmetic operations.", "int64"),
    Column(
        "tensor_size", pl.UInt64(), "bytes", "Bytes moved by a memory node, or touched by a compute node.", "uint64"
    ),
    Column(
        "copy_kind",
        pl.String(),
        "",
        "Kind of a device copy: `HtoD`, `DtoH`, `DtoD`, `PtoP`, `HtoH`, `memset`.",
        "string",
    ),
    Column(
        "span_ns",
        pl.Int64(),
        "ns",
        "Length of an annotation's range (METADATA nodes take no time themselves).",
        "int64",
    ),
    Column(
        "alloc_bytes",
        pl.Int64(),
        "bytes",
        "Only on memory events (METADATA nodes `[memory]`, without edges): bytes that an allocator gave; negative: took back.",
        "int64",
    ),
    Column("alloc_address", pl.Int64(), "", "Address of the block of a memory event.", "int64"),
    Column(
        "alloc_total_bytes",
        pl.Int64(),
        "bytes",
        "Bytes in use on the device of a memory event after it, by the allocator's own count.",
        "int64",
    ),
    Column(
        "alloc_reserved_bytes",
        pl.Int64(),
        "bytes",
        "Bytes that the allocator held on the device of a memory event after it, in use or not; 0 for the host's memory.",
        "int64",
    ),
    Column(
        "inferred", pl.Boolean(), "", "True if at least one of the node's sync edges was inferred, not read.", "bool"
    ),
    Column("inputs", IO_DTYPE, "", "Inputs: values, shapes and types, each a JSON list.", "field"),
    Column("outputs", IO_DTYPE, "", "Outputs: values, shapes and types, each a JSON list.", "field"),
    Column("input_strides", pl.String(), "elements", "JSON list: strides of the inputs.", "string"),
    Column("output_strides", pl.String(), "elements", "JSON list: strides of the outputs.", "string"),
    Column(
        "attr",
        pl.Binary(),
        "",
        "Everything else of the message, lossless and in order: raw fields of the `Node`.",
        "rest",
    ),
)

SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in COLUMNS}
CORE_COLUMNS: tuple[Column, ...] = tuple(column for column in COLUMNS if column.core)
ATTRIBUTE_COLUMNS: tuple[Column, ...] = tuple(column for column in COLUMNS if column.wire not in ("field", "rest"))


def empty_nodes() -> pl.DataFrame:
    """Return a node table with the core columns and no rows."""
    return pl.DataFrame(schema={column.name: column.dtype for column in CORE_COLUMNS})
