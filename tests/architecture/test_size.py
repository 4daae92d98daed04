"""Files and functions stay small enough to be read in one go."""

import ast

import pytest

from tests.conftest import ROOT

FILE_LINES = 500
FUNCTION_LINES = 60
SOURCES = sorted(
    path
    for folder in ("src", "tests", "examples", "docs", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if "_proto" not in path.parts
)


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_file_fits(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= FILE_LINES
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]
    assert not long
