"""``chakra diff``: what it prints, and its exit codes."""

import json

import pytest

from chakra_et.cli import main
from chakra_et.io import write_set
from chakra_et.ir import TraceSet
from tests.unit.analysis.hand_made import Rank, stepped


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Four steps of two kernels each, and the same with the second one 25 us longer."""
    found = []
    for name, more in (("before", 0), ("after", 25_000)):
        steps = [(place * 200_000, place * 200_000 + 1000) for place in range(4)]
        kernels = []
        for begin, _ in steps:
            kernels += [(begin + 10, begin + 100, begin + 50_000), (begin + 20, begin + 60_000, begin + 90_000 + more)]
        trace = stepped(*steps, kernels=tuple(kernels))
        folder = tmp_path_factory.mktemp("sets") / name
        write_set(TraceSet((trace,)), folder)
        found.append(str(folder))
    return found


def test_one_screen(folders, capsys):
    assert main(["diff", *folders]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    out = "\n".join([first, *rest])
    assert "1 rank; 2 iterations -> 2 iterations; matched by ids" in out
    assert "Step 200.000 us -> 200.000 us, +0.0 %: compute +25.000 us, idle -25.000 us" in out
    line = next(line for line in out.splitlines() if line.strip().startswith("kernel"))
    assert line.split()[:2] == ["kernel", "gemm"]
    assert "+25.000 us" in line
    assert "Node by node: 16 in both; 12 start and take the same, to the ns" in out
    assert "Makespan: 689.990 us -> 714.990 us" in out
    assert max(map(len, rest)) <= 120


def test_a_warning_comes_before_the_headline(folders, capsys, tmp_path):
    other = Rank()
    other.kernel("ncclDevKernel_AllReduce", 0, 700_000)
    write_set(TraceSet((other.build(),)), tmp_path / "other")
    assert main(["diff", folders[0], str(tmp_path / "other"), "--match", "names"]) == 0
    out = capsys.readouterr().out
    assert out.count("these look like different jobs") == 1
    assert out.index("Warning: these look like different jobs: work of 0.0 % ") < out.index("Step 200.000 us -> ")


def test_json_is_the_result(folders, capsys):
    assert main(["diff", *folders, "--json", "--match", "names"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["analysis"] == "diff"
    assert data["matched_by"] == "names"
    assert {"what": "kernel", "name": "gemm", "change_ns": 25_000}.items() <= data["rows"][1].items()
    assert data["rows"][0]["what"] == "step"


def test_csv_is_the_table(folders, capsys):
    assert main(["diff", *folders, "--csv", "--by", "rank"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("rank,what,match,name,after_name")
    assert rows[0].startswith("0,step,same,step")


def test_fail_above(folders, capsys, tmp_path):
    slow = stepped(
        *[(place * 300_000, place * 300_000 + 1000) for place in range(4)],
        kernels=tuple((place * 300_000 + 10, place * 300_000 + 100, place * 300_000 + 90_000) for place in range(4)),
    )
    write_set(TraceSet((slow,)), tmp_path / "slow")
    argv = ["diff", folders[0], str(tmp_path / "slow"), "--match", "names", "--limit", "2"]
    assert main([*argv, "--fail-above", "50"]) == 0
    assert main([*argv, "--fail-above", "49.9%"]) == 3
    assert "A step takes 50.0 % longer, more than 49.9 %." in capsys.readouterr().err
    assert main(["diff", str(tmp_path / "slow"), folders[0], "--fail-above", "0"]) == 0


def test_a_wrong_iteration_is_named(folders, capsys):
    assert main(["diff", *folders, "--iteration", "7"]) == 1
    assert "expected some of 0, 1, 2, 3, got 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more", [["--fail-above", "-1"], ["--fail-above", "much"], ["--match", "best"], ["--limit", "0"], []]
)
def test_usage(folders, more, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["diff", *(folders if more else folders[:1]), *more])
    assert stop.value.code == 2
    capsys.readouterr()
