"""Several analyses at once: by name, and what they find together."""

import pytest

from chakra_et.analysis.analyze import ANALYSES, Analyses, analyze
from chakra_et.analysis.result import Coverage, Finding, Result
from chakra_et.errors import InputError
from chakra_et.ir import CommType
from tests.unit.analysis.hand_made import Rank


def found(**findings):
    """Return analyses that found something."""
    results = {}
    for name, said in findings.items():
        name = name.replace("_", "-")
        results[name] = Result(name, {}, None, Coverage(), (), tuple(Finding(*one) for one in said))
    return Analyses(None, results).findings


def test_the_costliest_is_first():
    said = found(breakdown=[("a", 5), ("b", 1)], comms=[("c", 3)], memory=[("d", 0)])
    assert [finding.text for finding in said] == ["a", "c", "b", "d"]


def test_three_of_each_analysis():
    said = found(breakdown=[(name, 9) for name in "abcdef"], comms=[("c", 10)])
    assert [finding.text for finding in said] == ["c", "a", "b", "c"]


def test_each_matter_once_from_who_knows_its_cause():
    said = found(
        iterations=[("a step takes long", 0, "step")],
        breakdown=[("idle", 7, "idle"), ("exposed", 6, "exposed")],
        overlap=[("hidden", 0, "exposed")],
        comms=[("waits", 4, "waiting"), ("waits, too", 3, "waiting")],
        critical_path=[("gemm bounds", 2, "kernel gemm")],
        kernels=[("gemm takes", 5, "kernel gemm")],
        launches=[("idle, and why", 6, "idle")],
    )
    assert [finding.text for finding in said] == ["idle, and why", "exposed", "waits", "gemm bounds"]


def test_real_findings_name_each_matter_once():
    made = Rank()
    made.kernel("gemm", 0, 50)
    made.collective(CommType.ALL_REDUCE, 50, 100, 64)
    said = analyze(made.build()).findings
    assert sum("gemm" in finding.text and "kernel gemm" in finding.about for finding in said) == 1
    assert sum("communication that no compute hides" in finding.text for finding in said) == 1
    assert not any("of the communication" in finding.text for finding in said)


def test_by_name():
    trace = Rank()
    trace.kernel("gemm", 0, 5)
    several = analyze(trace.build(), only=["critical_path", "timeline"])
    assert list(several.results) == ["critical-path", "timeline"]
    assert several.critical_path is several.results["critical-path"]
    with pytest.raises(AttributeError, match="expected one of critical-path, timeline, got 'breakdown'"):
        _ = several.breakdown
    with pytest.raises(InputError, match=r"expected one of the analyses iterations, breakdown, .*, got 'breakdwn'"):
        analyze(trace.build(), only=["breakdwn"])


def test_all_of_them_by_default():
    every = analyze(Rank().build())
    assert list(every.results) == [one.name for one in ANALYSES]
    assert list(every.as_dict()) == list(every.results)
