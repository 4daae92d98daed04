"""The work of many calls, and of the operators behind kernels."""

import json

import numpy as np
import polars as pl

from chakra_et.analysis.op_work import nearest_modelled, op_work, work_of
from chakra_et.ir import NodeType
from chakra_et.ir.columns import IO_DTYPE

COLUMNS = ["flop_count", "read_bytes", "write_bytes", "work_dtype", "work_model", "work_is_exact"]
MM = ("[[64,32],[32,16]]", '["float","float"]')


def calls(rows, **more):
    frame = pl.DataFrame(rows, schema=["name", "shapes", "types", "values"], orient="row")
    return frame.with_columns(**{name: pl.Series(values) for name, values in more.items()})


def test_rows_keep_their_order_and_unknown_ones_are_null():
    rows = [("aten::mm", *MM, None), ("aten::view", *MM, None), ("aten::mm", *MM, None), ("x", None, None, None)]
    found = work_of(calls(rows))
    assert found.columns == COLUMNS
    one = op_work("aten::mm", *MM, None)
    assert found["flop_count"].to_list() == [one.flop_count, None, one.flop_count, None]
    assert found["work_dtype"].to_list() == ["fp32", None, "fp32", None]
    assert work_of(calls(rows).clear()).height == 0


def test_numbers_of_tensors_do_not_make_calls_different_but_for_repeated_ones():
    shapes, types = "[[8],[8]]", '["Tensor(float)","Tensor(float)"]'
    values = [
        json.dumps([[number, number, 0, 8, 4, "cuda:0"], [other, other, 0, 8, 4, "cuda:0"]])
        for number, other in ((1, 2), (3, 4), (5, 5))
    ]
    found = work_of(calls([("aten::mul", shapes, types, value) for value in values]))
    assert found["read_bytes"].to_list() == [64, 64, 32]


def test_kernels_tell_tf32_and_the_type_of_lists():
    cat = ("aten::cat", "[[[4],[4]],[]]", '["TensorList","Scalar"]', None)
    rows = [("aten::mm", *MM, None), ("aten::mm", *MM, None), cat, cat]
    kernels = [
        "cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align4",
        "ampere_sgemm_128x64_nn",
        "void CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>",
        None,
    ]
    found = work_of(calls(rows, kernel=kernels))
    assert found["work_dtype"].to_list() == ["tf32", "fp32", None, None]
    assert found["read_bytes"].to_list()[2:] == [16, None]


def nodes(rows):
    """A node table of (id, name, parent, type, shapes, types)."""
    return pl.DataFrame(
        {
            "id": pl.Series([row[0] for row in rows], dtype=pl.UInt64),
            "name": [row[1] for row in rows],
            "parent": pl.Series([row[2] for row in rows], dtype=pl.Int64),
            "type": pl.Series([row[3].value for row in rows], dtype=pl.UInt8),
            "inputs": pl.Series(
                [row[4] and {"values": "", "shapes": row[4], "types": row[5]} for row in rows], dtype=IO_DTYPE
            ),
        }
    )


def modelled(table, rows, **options):
    """The work behind some rows of a table."""
    ids = table["id"].to_list()
    parent = np.array([ids.index(caller) if caller in ids else -1 for caller in table["parent"]], np.int64)
    return nearest_modelled(table, np.array(rows, np.int64), parent, **options)


COMPUTE, NOTE = NodeType.COMP_NODE, NodeType.METADATA_NODE


def test_the_nearest_caller_with_a_model_counts():
    table = nodes(
        [
            (10, "aten::linear", None, COMPUTE, "[[8,32],[16,32]]", '["float","float"]'),
            (11, "aten::mm", 10, COMPUTE, *MM),
            (12, "a note", 11, NOTE, None, None),
            (13, "a wrapper", 12, COMPUTE, None, None),
            (20, "first kernel", 13, COMPUTE, None, None),
            (21, "second kernel", 11, COMPUTE, None, None),
            (22, "kernel without a caller", None, COMPUTE, None, None),
            (23, "kernel of a note named like an operator", 24, COMPUTE, None, None),
            (24, "aten::mm", None, NOTE, *MM),
        ]
    )
    found = modelled(table, [4, 5, 6, 7])
    assert found["row"].to_list() == [4, 5, 6, 7]
    assert found["op_row"].to_list() == [1, 1, None, None]
    assert found["flop_count"].to_list() == [65536, 65536, None, None]
    assert found.columns == ["row", "op_row", *COLUMNS]


def test_one_kernel_of_an_operator_speaks_for_all():
    table = nodes(
        [
            (1, "aten::mm", None, COMPUTE, *MM),
            (2, "sm80_xmma_gemm_f32f32_tf32f32_f32_nn", 1, COMPUTE, None, None),
            (3, "splitKreduce_kernel", 1, COMPUTE, None, None),
        ]
    )
    assert modelled(table, [1, 2])["work_dtype"].to_list() == ["tf32", "tf32"]


def test_traces_without_arguments_or_callers_give_nulls():
    table = nodes([(1, "kernel", None, COMPUTE, None, None)])
    for bare in (table.drop("inputs"), table):
        assert modelled(bare, [0])["op_row"].to_list() == [None]
    assert modelled(table, []).height == 0


def test_callers_in_a_circle_end():
    table = nodes(
        [(1, "a", 2, COMPUTE, None, None), (2, "b", 1, COMPUTE, None, None), (3, "k", 1, COMPUTE, None, None)]
    )
    assert modelled(table, [2])["op_row"].to_list() == [None]


def test_operators_account_for_themselves_where_asked():
    linear = (1, "aten::linear", None, COMPUTE, "[[8,32],[16,32]]", MM[1])
    table = nodes([linear, (2, "aten::mm", 1, COMPUTE, *MM)])
    assert modelled(table, [1], itself=True)["op_row"].to_list() == [1]
    assert modelled(table, [1])["op_row"].to_list() == [0]
