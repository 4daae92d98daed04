"""The columns of every table are documented in the class of the result."""

import dataclasses
import inspect
import re

import polars as pl
import pytest

from chakra_et.analysis.analyze import ANALYSES, analyze
from chakra_et.ir import CommType, ProcessGroup, TraceSet
from tests.unit.analysis.hand_made import Rank

NAMES = [*(one.name for one in ANALYSES), "timeline"]


def made(rank):
    trace = Rank(rank, groups=(ProcessGroup("0", (0, 1), 2, "data parallel"),))
    for number in range(3):
        begin = 100 * number
        trace.step(number, begin, begin + 90)
        op = trace.op("aten::mm", begin + 1, begin + 9)
        trace.call(number, begin + 2, begin + 4, parent=op)
        trace.kernel("gemm", begin + 10, begin + 30, correlation=number, parent=op)
        trace.copy(begin + 31, begin + 33, tensor_size=64)
        trace.collective(CommType.ALL_REDUCE, begin + 20, begin + 50, 64)
    return trace.build()


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_documented(name):
    result = analyze(TraceSet((made(0), made(1))), only=[name]).results[name]
    rows, _, attributes = inspect.getdoc(type(result)).partition("\n\nAttributes:\n")
    tables = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    for field, table in tables.items():
        if isinstance(table, pl.DataFrame):
            part = re.search(rf"^    {field}:.*?(?=^    \w+:|\Z)", attributes, re.MULTILINE | re.DOTALL)
            # Further tables may have the rows' columns again.
            words = set(re.findall(r"\w+", rows + (part.group() if part else "")))
            assert [column for column in table.columns if column not in words] == [], field
