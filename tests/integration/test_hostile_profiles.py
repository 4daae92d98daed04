"""Small damaged profiles, each of which once broke something: refused in one line, or converted exactly."""

from pathlib import Path

import pytest

from chakra_et.conversion import convert
from chakra_et.errors import ChakraError
from chakra_et.validation import validate

CASES = sorted((Path(__file__).parent / "hostile").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_refused_in_one_line_or_exact(path):
    refusal = None
    try:
        result = convert(path)
    except ChakraError as err:
        refusal = str(err)
    if refusal is not None:
        assert "\n" not in refusal
        assert str(path) in refusal
        return
    (rank,) = result.quality.ranks
    assert rank.device_nodes == rank.device_activities
    assert rank.start_error_ns["max"] <= 1000
    assert abs(rank.makespan_ns - rank.window_ns) <= max(1000, rank.window_ns // 1000)
    structure = [f for f in validate(result.traces).findings if f.rule.startswith(("edge", "id", "time"))]
    assert [f for f in structure if f.severity == "error"] == []


def test_there_are_cases():
    assert len(CASES) >= 20
