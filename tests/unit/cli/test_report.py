"""`chakra report`: what it prints and writes, and what it refuses."""

import json
import re
import shutil

import pytest

from chakra_et import cli
from chakra_et.testing import programs
from chakra_et.testing import run as run_program


def run(*words):
    """Run the command line, and return its exit code."""
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as stop:
        return stop.code


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """A folder of profiles of two ranks."""
    folder = tmp_path_factory.mktemp("profiles")
    done = run_program(programs.training_step(ranks=2, layers=2, iterations=4))
    for rank in range(2):
        (folder / f"host.{rank}.json").write_text(json.dumps(done.host_trace(rank)))
        (folder / f"device.{rank}.json").write_text(json.dumps(done.profile(rank)))
    return folder


@pytest.fixture(scope="module")
def traces(profiles):
    """The converted folder, with its quality report."""
    folder = profiles.with_name("et")
    assert run("convert", profiles, "-o", folder) == 0
    return folder


def figures_of(page):
    """Return the figures that a page holds, by name."""
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])["figures"]


def test_what_it_prints_and_writes(traces, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run("report", traces) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert lines[0] == "Findings (what something costs is a ceiling)"
    assert lines[1].startswith("  1. ")
    assert lines[-1] == "Wrote report.html"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<h1>Analysis of {traces}</h1>" in text
    assert "2 ranks; 2 of 4 iterations (number 1 to 2)." in text
    assert {"figure-breakdown", "figure-timeline", "figure-critical-path"} <= set(figures_of(tmp_path / "report.html"))


def test_quality_beside_the_traces_is_told(traces, tmp_path):
    assert run("report", traces, "-o", tmp_path / "all.html") == 0
    assert "How the traces were made" in (tmp_path / "all.html").read_text(encoding="utf-8")
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(traces / "trace.0.et", alone)
    assert run("report", alone, "-o", tmp_path / "one.html") == 0
    assert "How the traces were made" not in (tmp_path / "one.html").read_text(encoding="utf-8")
    for odd in ("no JSON", "[]", '{"ranks": 3}'):
        (alone / "quality.json").write_text(odd)
        assert run("report", alone, "-o", tmp_path / "one.html", "--force") == 0


def test_profiles_are_converted_in_memory(profiles, traces, tmp_path):
    assert run("report", profiles, "-o", tmp_path / "raw.html", "--title", "x") == 0
    assert run("report", traces, "-o", tmp_path / "et.html", "--title", "x") == 0
    assert figures_of(tmp_path / "raw.html") == figures_of(tmp_path / "et.html")
    assert "How the traces were made" in (tmp_path / "raw.html").read_text(encoding="utf-8")


def test_an_existing_file_stays(traces, tmp_path, capsys):
    page = tmp_path / "report.html"
    page.write_text("mine")
    assert run("report", traces, "-o", page) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "--force" in captured.err
    assert page.read_text() == "mine"
    assert run("report", traces, "-o", page, "--force", "--iteration", "2", "--system", "h100-dgx") == 0
    assert "2 ranks; 1 of 4 iterations (number 2)." in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--iteration", "9"], 1), (["--system", "h1000"], 1), (["--iteration", "soon"], 2), (["-o", ""], 2)],
)
def test_mistakes_leave_nothing_behind(traces, tmp_path, capsys, words, code):
    assert run("report", traces, "-o", tmp_path / "report.html", *words) == code
    assert list(tmp_path.iterdir()) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
