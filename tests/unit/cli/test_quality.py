import pytest

from chakra_et.cli._quality import print_quality

WINDOW = "1 'Trace' records (the profiler's window)"
FRAMES = "12 'python_function' records (Python frames)"
COUNTS = ("device_activities", "device_nodes", "linked", "linkable", "host_ops_matched", "host_ops")
COUNTS += ("communications", "unknown_communications", "inferred_edges", "makespan_ns", "window_ns")
MATCHING = dict.fromkeys(("collectives", "complete", "mismatched", "sends", "receives", "paired"), 0) | {"findings": []}


def quality(*dropped):
    ranks = [
        {
            **dict.fromkeys(COUNTS, 0),
            "rank": rank,
            "sources": ["host.json", "device.json"],
            "start_error_ns": dict.fromkeys(("p50", "p99", "max"), 0),
            "gap_ns": {},
            "dropped": list(dropped),
            "warnings": ["clocks jump"],
        }
        for rank in range(2)
    ]
    return {"ranks": ranks, "groups": [], "matching": MATCHING, "failed": []}


@pytest.mark.parametrize(("dropped", "kinds"), [((WINDOW,), "0"), ((FRAMES, WINDOW), "1"), ((), "0")])
def test_dropped_kinds_are_counted_without_the_profilers_own_window(capsys, dropped, kinds):
    print_quality(quality(*dropped))
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[: lines.index("Rebuilt from edges and durations alone")]]
    assert [row[-2:] for row in rows if row and row[0] in ("0", "1")] == [[kinds, "1"]] * 2
    assert any("kinds" in row for row in rows)
    assert not any("Trace" in line for line in lines if line.startswith("dropped"))


def test_ranks_share_a_line(capsys):
    print_quality(quality(FRAMES))
    notes = capsys.readouterr().out.splitlines()[-2:]
    assert notes == ["warning: clocks jump (rank 0, 1)", f"dropped: {FRAMES} (rank 0, 1)"]


def test_findings_are_told_for_more_than_one_rank(capsys):
    report = quality()
    findings = [f"collective {k} of group 0: expected ranks [0, 1], got [0]" for k in range(12)]
    report["matching"] = MATCHING | {"collectives": 12, "findings": findings}
    print_quality(report)
    out = capsys.readouterr().out
    assert "0 of 12 collectives complete" in out
    assert [line for line in out.splitlines() if line.startswith("finding: ")] == [
        f"finding: {f}" for f in findings[:10]
    ]
    assert "and 2 more findings in quality.json" in out
    report["ranks"] = report["ranks"][:1]
    print_quality(report)
    assert "collective" not in capsys.readouterr().out
