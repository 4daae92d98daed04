"""Tensor producers and consumers, and operator arguments, from an execution trace's texts.

Shape letters: N nodes, K tensor records, E edges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.json_scan import tensor_records
from chakra_et.frontends.pytorch.storage_edges import storage_writers
from chakra_et.ir.arrays import list_series, sorted_unique, string_bytes
from chakra_et.ir.columns import IO_DTYPE

__all__ = ["filled", "io_struct", "operator_arguments", "producers", "tensor_edges"]

Int = npt.NDArray[np.int64]


def producers(inputs: pl.Series, outputs: pl.Series, start: Int, end: Int) -> tuple[Int, Int]:
    """Pair each operator with the operators that last wrote its input tensors before it began.

    Args:
        inputs: JSON texts of input values, [N].
        outputs: JSON texts of output values, [N].
        start: int64 [N]: when each operator began (any clock).
        end: int64 [N]: when each ended, on the same clock.

    Returns:
        Producer and consumer rows, int64 [E] each, without repeats.
    """
    read_row, read = tensor_records(*reversed(string_bytes(inputs)))
    wrote_row, wrote = tensor_records(*reversed(string_bytes(outputs)))
    read_tensor, wrote_tensor = read[:, 0], wrote[:, 0]
    if not len(read_row) or not len(wrote_row):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # The last write of a tensor that ended by the read's start: sort writes and reads together, writes first among
    # equals.
    tensor = np.concatenate([wrote_tensor, read_tensor])
    time = np.concatenate([end[wrote_row], start[read_row]])
    is_read = np.repeat([0, 1], [len(wrote_row), len(read_row)])
    order = np.lexsort((is_read, time, tensor))
    latest = np.maximum.accumulate(np.where(is_read[order] == 0, np.arange(len(order)), -1))
    slot = np.empty(len(order), np.int64)
    slot[order] = np.where(latest >= 0, order[np.maximum(latest, 0)], -1)
    slot = slot[len(wrote_row) :]
    good = (slot >= 0) & (wrote_tensor[np.maximum(slot, 0)] == read_tensor)
    producer = wrote_row[np.maximum(slot, 0)]
    good &= (producer != read_row) & (end[producer] <= start[read_row])
    pairs = np.unique(np.stack([producer[good], read_row[good]], axis=1), axis=0)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def tensor_edges(nodes: pl.DataFrame) -> pl.Series:
    """Return the producers of each node of an execution trace sorted by id, as lists of row numbers.

    These are the operators that last returned its tensors, and those that last wrote what the tensors hold.

    A node's start is its row; it has ended when the last of its descendants has: rows count up by start, so that is
    the row of its last descendant.
    """
    count = nodes.height
    row_of = {int(number): row for row, number in enumerate(nodes["id"].to_list())}
    last = np.arange(count, dtype=np.int64)
    parents = [row_of.get(int(parent), -1) for parent in nodes["parent"].to_list()]
    for row in range(count - 1, -1, -1):
        parent = parents[row]
        if parent >= 0 and parent < row:
            last[parent] = max(last[parent], last[row])
    by_tensor = producers(nodes["input_values"], nodes["output_values"], np.arange(count) * 2, last * 2 + 1)
    by_storage = storage_writers(nodes, last)
    before, after = (np.concatenate(ends) for ends in zip(by_tensor, by_storage, strict=True))
    keep = before < after
    keys = sorted_unique(after[keep] * count + before[keep])
    rows = keys // max(count, 1)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return list_series("data_deps", offsets, (keys - rows * count).astype(np.uint64))


def operator_arguments(nodes: pl.DataFrame) -> dict[str, pl.Series]:
    """Return schema, inputs, outputs and strides of an execution trace's nodes as columns."""
    return {
        "op_schema": filled(nodes["op_schema"], 0),
        "inputs": io_struct(nodes["input_values"], nodes["input_shapes"], nodes["input_types"]),
        "outputs": io_struct(nodes["output_values"], nodes["output_shapes"], nodes["output_types"]),
        "input_strides": filled(nodes["input_strides"]),
        "output_strides": filled(nodes["output_strides"]),
    }


def filled(texts: pl.Series, shortest: int = 2) -> pl.Series:
    """Turn texts no longer than `shortest` bytes (``[]``) into null."""
    return pl.select(pl.when(texts.str.len_bytes() > shortest).then(texts)).to_series()


def io_struct(values: pl.Series, shapes: pl.Series, types: pl.Series) -> pl.Series:
    """Pack arguments; null where there are none."""
    frame = pl.DataFrame({"values": values, "shapes": shapes, "types": types}, schema_overrides=IO_DTYPE.to_schema())
    some = pl.any_horizontal((pl.col(name).str.len_bytes() > 2).fill_null(False) for name in frame.columns)
    return frame.select(pl.when(some).then(pl.struct(pl.all().fill_null("")))).to_series()
