"""The work of many calls at once, and of the operators that launched kernels."""

from __future__ import annotations

from dataclasses import astuple
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.op_work.arguments import parse_call
from chakra_et.analysis.op_work.table import formula_of
from chakra_et.analysis.op_work.work import NoModelError, OpWork
from chakra_et.ir import NodeType
from chakra_et.ir.arrays import without_negatives

Int = npt.NDArray[np.int64]

__all__ = ["nearest_modelled", "op_work", "work_of"]

_SCHEMA = {
    "flop_count": pl.Int64,
    "read_bytes": pl.Int64,
    "write_bytes": pl.Int64,
    "work_dtype": pl.String,
    "work_model": pl.String,
    "work_is_exact": pl.Boolean,
}
_NOTHING = (None,) * len(_SCHEMA)
_TEXTS = ("shapes", "types", "values", "out_shapes", "out_types", "strides")
_LARGEST = 2**62
# How many callers are tried.
_DEEPEST = 12

# A tensor in an execution trace's values: [number, storage, offset, elements, bytes an element, "device"].
_RECORD = r'\[\d+,\s*\d+,\s*\d+,\s*\d+,\s*\d+,\s*"[^"]*"\]'

# What a kernel's name tells of the element type of lists: template arguments of PyTorch's own kernels.
_LIST_KINDS = {
    r"BFloat16": "bf16",
    r"c10::Half|__half": "fp16",
    r"OpaqueType<2": "fp16",
    r"OpaqueType<4|<float|[ ,<(]float[,>]": "fp32",
    r"OpaqueType<8|<double|[ ,<(]double[,>]": "fp64",
    r"OpaqueType<1|<bool|unsigned char": "uint8",
    r"<long|[ ,<]long[,>]": "int64",
    r"<int[,>]": "int32",
}
# fp32 products on tensor cores: TF32, by how cuBLAS, CUTLASS and cuDNN name such kernels.
_TF32 = r"tf32|tfloat32|_s1688(gemm|fprop|dgrad|wgrad)|TF32"
_PRODUCTS = ("matmul", "convolution", "attention")


@lru_cache(maxsize=1 << 16)
def op_work(
    name: str,
    shapes: str | None,
    types: str | None,
    values: str | None,
    out_shapes: str | None = None,
    out_types: str | None = None,
    *,
    strides: str | None = None,
    list_kind: str | None = None,
) -> OpWork | None:
    """Return the FLOP and bytes of one call, from its recorded arguments.

    Args:
        name: Operator.
        shapes: JSON text of the inputs' shapes, as the node table's column `inputs` holds it.
        types: JSON text of the inputs' types.
        values: JSON text of the inputs' values: flags, sizes, axes; null where a profile has none.
        out_shapes: JSON text of the outputs' shapes; null: they follow from the inputs.
        out_types: JSON text of the outputs' types.
        strides: JSON text of the inputs' strides; null: no element is taken to be repeated.
        list_kind: Element type to take for tensors in lists, which profiles don't record (``bf16``).

    Returns:
        The work, or None where there is no formula for the operator, or its arguments don't tell.

    Example:
        >>> op_work("aten::mm", "[[64,32],[32,16]]", '["float","float"]', None)
        OpWork(flop_count=65536, read_bytes=10240, write_bytes=4096, dtype='fp32', model='matmul', is_exact=True)
    """
    formula = formula_of(name)
    if formula is None or not types:
        return None
    call = parse_call(name, (shapes, types, values), (out_shapes, out_types), strides=strides, list_kind=list_kind)
    try:
        work = formula(call)
    except (NoModelError, ZeroDivisionError, IndexError):  # arguments in a file need not make sense: a stride of 0
        return None
    # Sizes that no machine has come from a broken trace; they would overflow the columns.
    counts = (work.flop_count, work.read_bytes, work.write_bytes)
    return work if min(counts) >= 0 and max(counts) < _LARGEST else None


def work_of(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the work of each call; calls that look alike are worked out once.

    Args:
        calls: A row a call: `name`, `shapes`, `types`, `values`, and where known `out_shapes`, `out_types`, `strides`
            (texts as in `op_work`) and `kernel`: the name of a kernel that the call launched, which tells the element
            type of lists and whether an fp32 product ran as TF32.

    Returns:
        A row a call, in the same order: `flop_count`, `read_bytes`, `write_bytes` (int64), `work_dtype`,
        `work_model` (strings), `work_is_exact` (boolean); null where there is no model.

    Example:
        >>> calls = pl.DataFrame({"name": ["aten::mm"], "shapes": ["[[2,3],[3,4]]"], "types": ['["float","float"]'],
        ...     "values": [None]})
        >>> work_of(calls)["flop_count"].to_list()
        [48]
    """
    kernels = calls["kernel"] if "kernel" in calls.columns else _nulls("kernel", calls.height)
    return _worked(calls, pl.DataFrame([_list_kind(kernels), kernels.str.contains(_TF32).alias("tf32")]))


def _worked(calls: pl.DataFrame, hints: pl.DataFrame) -> pl.DataFrame:
    """Return the work of each call; `hints` tells what its kernels do: `list_kind` and `tf32`."""
    texts = [calls[text].cast(pl.String) if text in calls.columns else _nulls(text, calls.height) for text in _TEXTS]
    known = pl.DataFrame([calls["name"], *texts]).hstack(hints).with_columns(_without_identities(pl.col("values")))
    key = ["name", *_TEXTS, "list_kind"]
    distinct = known.select(key).unique(maintain_order=True)
    works = [op_work(*row[:6], strides=row[6], list_kind=row[7]) for row in distinct.iter_rows()]
    table = pl.DataFrame([astuple(work) if work else _NOTHING for work in works], schema=_SCHEMA, orient="row")
    joined = known.join(distinct.hstack(table), on=key, how="left", nulls_equal=True, maintain_order="left")
    is_product = pl.any_horizontal(pl.col("work_model").str.starts_with(product) for product in _PRODUCTS)
    is_tf32 = pl.col("tf32").fill_null(False) & (pl.col("work_dtype") == "fp32") & is_product
    return joined.select(
        *(name for name in _SCHEMA if name != "work_dtype"),
        pl.when(is_tf32).then(pl.lit("tf32")).otherwise("work_dtype").alias("work_dtype"),
    ).select(*_SCHEMA)


def _nulls(name: str, count: int) -> pl.Series:
    nothing: pl.Series = pl.Series(name, [None], dtype=pl.String).new_from_index(0, count)
    return nothing


def nearest_modelled(nodes: pl.DataFrame, rows: Int, parent: Int, *, itself: bool = False) -> pl.DataFrame:
    """Find the operator that accounts for each device activity, and its work.

    The operator that launched a kernel often has no shapes, or no formula (a wrapper, a node of autograd); what calls
    it may. From the launching operator outwards the nearest one with a model is taken; annotations are passed over.
    Several activities may have one operator: its work belongs to all of them together, and counts once.

    Args:
        nodes: A trace's node table.
        rows: int64 [A]: positions of the activities.
        parent: int64 [N]: position of each node's parent in the call stack, -1 for none.
        itself: True where activities are operators themselves, which are tried first.

    Returns:
        A row an activity, in the same order: `row`, `op_row` (position of the operator, null if none has a model) and
        the columns of `work_of`.
    """
    found = np.full(len(rows), -1, np.int64)
    works: list[pl.DataFrame] = []
    if "inputs" in nodes.columns and len(rows):
        at = rows if itself else parent[rows]
        hints = _hints(nodes["name"].gather(rows))
        tried = modelled = np.empty(0, np.int64)
        for _ in range(_DEEPEST):
            if not (at >= 0).any():
                break
            # Another activity may have asked the same operator before.
            fresh = np.where(np.isin(at, tried), -1, at)
            tried = np.union1d(tried, fresh[fresh >= 0])
            work = _work_at(nodes, fresh, hints)
            if work.height:
                works.append(work)
                modelled = np.union1d(modelled, work["op_row"].to_numpy())
            # Who has found an operator is done, the others ask its caller.
            settled = np.isin(at, modelled)
            found[settled] = at[settled]
            at = np.where(settled | (at < 0), -1, parent[at])
    table = pl.DataFrame(
        {"row": rows, "op_row": without_negatives(found)}, schema={"row": pl.Int64, "op_row": pl.Int64}
    )
    known = pl.concat(works) if works else pl.DataFrame(schema={"op_row": pl.Int64, **_SCHEMA})
    return table.join(known, on="op_row", how="left", maintain_order="left")


def _hints(kernels: pl.Series) -> pl.DataFrame:
    """Return what each activity's name tells of its operator, [A]; each distinct name is looked at once."""
    distinct = kernels.unique()
    told = pl.DataFrame([distinct.alias("kernel"), _list_kind(distinct), distinct.str.contains(_TF32).alias("tf32")])
    table = kernels.alias("kernel").to_frame().join(told, on="kernel", how="left", maintain_order="left")
    return table.select("list_kind", "tf32")


def _work_at(nodes: pl.DataFrame, at: Int, hints: pl.DataFrame) -> pl.DataFrame:
    """Return the work of the operators at some positions, those that have a model: `op_row` and `work_of`'s columns.

    Args:
        nodes: The node table.
        at: int64 [A]: the operator that each activity asks, -1 for none.
        hints: What each activity tells, [A].
    """
    operators = np.unique(at[at >= 0])
    operators = operators[nodes["type"].fill_null(0).to_numpy()[operators] > NodeType.METADATA_NODE]
    names = nodes["name"].gather(operators).to_list()
    operators = operators[np.array([formula_of(name or "") is not None for name in names], np.bool_)]
    if not len(operators):
        return pl.DataFrame(schema={"op_row": pl.Int64, **_SCHEMA})
    told = hints.with_columns(op_row=pl.Series(at)).filter(pl.Series(np.isin(at, operators)))
    # One of an operator's kernels may tell what the others don't.
    told = told.group_by("op_row").agg(pl.col("list_kind").drop_nulls().first(), pl.col("tf32").any()).sort("op_row")
    work = _worked(_arguments(nodes, operators), told.select("list_kind", "tf32"))
    return told.select("op_row").hstack(work).filter(pl.col("flop_count").is_not_null())


def _arguments(nodes: pl.DataFrame, operators: Int) -> pl.DataFrame:
    """Return the names and arguments of the operators at some positions."""
    inputs = nodes["inputs"].gather(operators).struct
    columns = [nodes["name"].gather(operators)]
    columns += [inputs.field(text).alias(text) for text in ("shapes", "types", "values")]
    if "outputs" in nodes.columns:
        outputs = nodes["outputs"].gather(operators).struct
        columns += [outputs.field(text).alias(f"out_{text}") for text in ("shapes", "types")]
    if "input_strides" in nodes.columns:
        columns.append(nodes["input_strides"].gather(operators).alias("strides"))
    return pl.DataFrame(columns)


def _list_kind(kernels: pl.Series) -> pl.Series:
    """Return the element type of lists that kernels' names tell, null where they don't."""
    found = pl.lit(None, pl.String)
    for pattern, kind in reversed(_LIST_KINDS.items()):
        found = pl.when(pl.col("kernel").str.contains(pattern)).then(pl.lit(kind)).otherwise(found)
    return kernels.alias("kernel").to_frame().select(found.alias("list_kind")).to_series()


def _without_identities(values: pl.Expr) -> pl.Expr:
    """Blank tensors' numbers, so that equal calls look alike; but not where a call names one tensor twice."""
    records = values.str.extract_all(_RECORD)
    is_repeated = records.list.n_unique() < records.list.len()
    return pl.when(is_repeated).then(values).otherwise(values.str.replace_all(_RECORD, '""')).alias("values")
