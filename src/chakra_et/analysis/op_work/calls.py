"""The work of many calls at once, and of the operators that launched kernels."""

from __future__ import annotations

from dataclasses import astuple

import polars as pl

from chakra_et.analysis.op_work.arguments import parse_call
from chakra_et.analysis.op_work.table import formula_of
from chakra_et.analysis.op_work.work import NoModelError, OpWork
from chakra_et.ir import NodeType

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
_TF32 = r"tf32|_s1688(gemm|fprop|dgrad|wgrad)|TF32"
_PRODUCTS = ("matmul", "convolution", "attention")


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
    known = calls.select(
        pl.col("name"),
        *(
            pl.col(text).cast(pl.String) if text in calls.columns else pl.lit(None, pl.String).alias(text)
            for text in _TEXTS
        ),
        (_list_kind(pl.col("kernel")) if "kernel" in calls.columns else pl.lit(None, pl.String)).alias("list_kind"),
        (pl.col("kernel").str.contains(_TF32) if "kernel" in calls.columns else pl.lit(None, pl.Boolean)).alias("tf32"),
    ).with_columns(_without_identities(pl.col("values")))
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


def nearest_modelled(nodes: pl.DataFrame, rows: pl.Series, *, itself: bool = False, depth: int = 12) -> pl.DataFrame:
    """Find the operator that accounts for each device activity, and its work.

    The operator that launched a kernel often has no shapes, or no formula (a wrapper, a node of autograd); what calls
    it may. From the launching operator outwards the nearest one with a model is taken; annotations are passed over.
    Several activities may have one operator: its work belongs to all of them together, and counts once.

    Args:
        nodes: A trace's node table.
        rows: Positions of the activities, int64.
        itself: True where activities are operators themselves, which are tried first.
        depth: How many callers to try.

    Returns:
        A row an activity, in the same order: `row`, `op_row` (position of the operator, null if none has a model) and
        the columns of `work_of`.
    """
    schema = {"row": pl.Int64, "op_row": pl.Int64, **_SCHEMA}
    if "parent" not in nodes.columns or "inputs" not in nodes.columns or not len(rows):
        empty = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name != "row"]
        return pl.DataFrame({"row": rows.cast(pl.Int64)}).with_columns(empty)
    places = nodes.select(pl.col("id").cast(pl.Int64), pl.int_range(pl.len(), dtype=pl.Int64).alias("op_row"))
    kernels = nodes["name"].gather(rows)
    first = nodes["id"].cast(pl.Int64) if itself else nodes["parent"]
    open_ = pl.DataFrame({"row": rows.cast(pl.Int64), "parent": first.gather(rows), "kernel": kernels})
    found: list[pl.DataFrame] = []
    for _ in range(depth):
        open_ = open_.drop_nulls("parent").join(places, left_on="parent", right_on="id", how="inner")
        if not open_.height:
            break
        # One of an operator's kernels may tell what the others don't.
        open_ = open_.with_columns(pl.col("kernel").unique().str.join(" ").over("op_row"))
        work = work_of(_calls(nodes, open_))
        here = open_.select("row", "op_row").hstack(work)
        found.append(here.filter(pl.col("flop_count").is_not_null()))
        open_ = open_.filter(work["flop_count"].is_null()).select(
            "row",
            "kernel",
            pl.col("op_row").map_batches(lambda own: nodes["parent"].gather(own), pl.Int64).alias("parent"),
        )
    table = pl.concat(found) if found else pl.DataFrame(schema=schema)
    wanted = pl.DataFrame({"row": rows.cast(pl.Int64)})
    return wanted.join(table, on="row", how="left", maintain_order="left").select(*schema)


def _calls(nodes: pl.DataFrame, open_: pl.DataFrame) -> pl.DataFrame:
    """Return the calls at `op_row`, with the kernel that each activity is; annotations have no name."""
    at = open_["op_row"]
    inputs = nodes["inputs"].gather(at).struct
    frame = pl.DataFrame(
        {
            "name": nodes["name"].gather(at),
            **{text: inputs.field(text) for text in ("shapes", "types", "values")},
            "kernel": open_["kernel"],
        }
    )
    if "outputs" in nodes.columns:
        outputs = nodes["outputs"].gather(at).struct
        frame = frame.with_columns(out_shapes=outputs.field("shapes"), out_types=outputs.field("types"))
    if "input_strides" in nodes.columns:
        frame = frame.with_columns(strides=nodes["input_strides"].gather(at))
    is_operator = nodes["type"].gather(at) != NodeType.METADATA_NODE.value
    return frame.with_columns(pl.when(is_operator).then("name").otherwise(pl.lit("")).alias("name"))


def _list_kind(kernel: pl.Expr) -> pl.Expr:
    found = pl.lit(None, pl.String)
    for pattern, kind in reversed(_LIST_KINDS.items()):
        found = pl.when(kernel.str.contains(pattern)).then(pl.lit(kind)).otherwise(found)
    return found


def _without_identities(values: pl.Expr) -> pl.Expr:
    """Blank tensors' numbers, so that equal calls look alike; but not where a call names one tensor twice."""
    records = values.str.extract_all(_RECORD)
    is_repeated = records.list.n_unique() < records.list.len()
    return pl.when(is_repeated).then(values).otherwise(values.str.replace_all(_RECORD, '""')).alias("values")
