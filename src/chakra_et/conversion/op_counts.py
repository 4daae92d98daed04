"""Operations and bytes of the nodes of a trace that was captured before execution: all that its times can come from."""

from __future__ import annotations

import re

import polars as pl

from chakra_et.analysis.op_work import work_of
from chakra_et.ir import NodeType, Trace

__all__ = ["with_op_counts"]

# Memory that is given and not touched.
_EMPTY = re.compile(r"aten::(new_)?empty")
# All results are views (`Tensor(a)`, no `!`), or there are none, and no argument is written: nothing moves.
_VIEW = re.compile(r"^[^!]*-> (?:\(?Tensor\([^!)]*\)[^!]*|\(\))$")
# A tensor among values: [number, storage, offset, elements, bytes an element, "device"].
_RECORD = re.compile(r'\[(\d+),\s*\d+,\s*\d+,\s*(\d+),\s*(\d+),\s*"')
# FSDP's copy of shards (its first argument) into their place in the gathered parameters.
_COPY_IN = "fsdp::all_gather_copy_in"


def with_op_counts(trace: Trace) -> Trace:
    """Fill `num_ops` (FLOP) and `tensor_size` (bytes that must move) of compute nodes that have neither.

    Counts are those of `chakra_et.analysis.op_work`; operators without a formula count no operations, and the bytes of
    their tensors, each once. Views and empty memory count nothing.

    Args:
        trace: A trace with operators' arguments.

    Example:
        >>> from chakra_et.ir import TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> arguments = {"values": '["",""]', "shapes": "[[2,3],[3,4]]", "types": '["Tensor(float)","Tensor(float)"]'}
        >>> _ = builder.add("aten::mm", NodeType.COMP_NODE, inputs=arguments)
        >>> with_op_counts(builder.build()).nodes.select("num_ops", "tensor_size").row(0)
        (48, 104)
    """
    nodes = trace.nodes
    open_ = (nodes["type"] == int(NodeType.COMP_NODE)) & trace.column("num_ops").is_null()
    open_ &= trace.column("tensor_size").is_null() & trace.column("inputs").is_not_null()
    rows = open_.arg_true()
    if not len(rows):
        return trace
    calls = _calls(trace, rows)
    work = work_of(calls)
    moved = (work["read_bytes"] + work["write_bytes"]).to_list()
    others = calls.select("name", "schema", "values", "out_values").iter_rows()
    touched = [_unmodelled_bytes(*call) if known is None else known for call, known in zip(others, moved, strict=True)]
    counts = pl.DataFrame(
        {
            "row": rows.cast(pl.UInt32),
            "ops": work["flop_count"].fill_null(0),
            "bytes": pl.Series(touched, dtype=pl.Int64),
        }
    ).filter((pl.col("ops") > 0) | (pl.col("bytes") > 0))
    every = pl.DataFrame({"row": pl.int_range(nodes.height, dtype=pl.UInt32, eager=True)})
    placed = every.join(counts, on="row", how="left", maintain_order="left")
    filled = (("num_ops", placed["ops"]), ("tensor_size", placed["bytes"].cast(pl.UInt64)))
    return trace.with_columns(
        pl.select(pl.coalesce(trace.column(name), found).alias(name)).to_series() for name, found in filled
    )


def _calls(trace: Trace, rows: pl.Series) -> pl.DataFrame:
    inputs, outputs = (trace.column(side).gather(rows).struct for side in ("inputs", "outputs"))
    return pl.DataFrame(
        {
            "name": trace.nodes["name"].gather(rows),
            "schema": trace.column("op_schema").gather(rows).fill_null(""),
            **{text: inputs.field(text) for text in ("shapes", "types", "values")},
            "out_shapes": outputs.field("shapes"),
            "out_types": outputs.field("types"),
            "out_values": outputs.field("values"),
            "strides": trace.column("input_strides").gather(rows),
        }
    )


def _unmodelled_bytes(name: str, schema: str, inputs: str | None, outputs: str | None) -> int:
    """Return the bytes of the tensors of an operator without a formula, none for one that touches nothing."""
    if _EMPTY.match(name) or _VIEW.match(schema):
        return 0
    if name == _COPY_IN:
        shards = (inputs or "").partition("]],")[0]
        return 2 * _tensor_bytes(shards + "]")
    return _tensor_bytes(inputs or "") + _tensor_bytes(outputs or "")


def _tensor_bytes(values: str) -> int:
    """Return the bytes of the distinct tensors in a text of values."""
    return sum({number: int(count) * int(item) for number, count, item in _RECORD.findall(values)}.values())
