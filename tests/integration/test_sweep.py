"""`chakra sweep`: what it prints, writes and returns; interrupted, it goes on where it stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

import chakra_et as chakra_api
from tests.unit.sim.jobs import grid

GRID = (
    "--grid",
    "scale_up.size=2,4",
    "--grid",
    "scale_out.bandwidth=12.5..100x2",
    "--grid",
    "scale_up.bandwidth=150,450GB/s",
)
FILES = ["points.jsonl", "sweep.csv", "sweep.html", "sweep.json", "sweep.parquet"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A folder with the traces of 8 ranks."""
    folder = tmp_path_factory.mktemp("traces") / "et"
    chakra_api.save(grid(2, 2, 2, layers=2), folder)
    return folder


@pytest.fixture(scope="module")
def swept(traces, chakra, tmp_path_factory):
    """What a sweep prints, and its folder."""
    out = tmp_path_factory.mktemp("swept") / "sweep"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        return chakra("sweep", traces, "--system", "h100-dgx", *GRID, "-o", out), out


def test_table_and_paths(swept):
    run, out = swept
    assert (run.code, run.err) == (0, "")
    assert sorted(path.name for path in out.iterdir()) == FILES
    for name in ("sweep.parquet", "sweep.csv", "sweep.html"):
        assert f"Wrote {out / name}\n" in run.out
    lines = run.out.splitlines()
    assert max(map(len, lines[:-3])) <= 100
    for word in ("base", "fastest", "slowest"):
        assert sum(line.strip().startswith(word) for line in lines) == 1
    assert any(line.startswith("16 points, all 8 ranks in each, in ") for line in lines)


def test_rows_are_what_simulate_says(chakra, traces, swept):
    table = pl.read_parquet(swept[1] / "sweep.parquet")
    assert table.height == 16
    row = table.row(11, named=True)
    values = (
        f"{row['scale_up.size']}",
        f"{row['scale_up.bandwidth_gb_per_s']}",
        f"{row['scale_out.bandwidth_gb_per_s']}GB/s",
    )
    sets = [
        f"{key}={value}"
        for key, value in zip(("scale_up.size", "scale_up.bandwidth", "scale_out.bandwidth"), values, strict=True)
    ]
    run = chakra(
        "simulate", traces, "--system", "h100-dgx", "--json", *(word for text in sets for word in ("--set", text))
    )
    assert run.json["finish_ns"] == row["finish_ns"]
    assert next(iter(run.json["bounds"])) == row["bound_by"]


def test_json(chakra, traces, swept):
    run = chakra("sweep", traces, "--system", "h100-dgx", *GRID, "-o", swept[1], "--json")
    assert run.code == 0
    assert set(run.json) == {"points", "parameters", "base", "failed", "reused", "notes", "seconds"}
    assert run.json["reused"] == len(run.json["points"]) == 16
    assert run.json["points"] == pl.read_parquet(swept[1] / "sweep.parquet").to_dicts()
    assert run.err.count("Wrote ") == 3


def test_dry_run_writes_nothing(chakra, traces, tmp_path):
    run = chakra("sweep", traces, "--system", "h100-dgx", *GRID, "-o", tmp_path / "out", "--dry-run")
    assert run.code == 0
    assert "16 points" in run.out
    assert not (tmp_path / "out").exists()
    run = chakra("sweep", traces, "--system", "h100-dgx", *GRID, "--dry-run", "--json")
    assert run.json["points"][0] == {
        "scale_up.size": 2, "scale_out.bandwidth_gb_per_s": 12.5, "scale_up.bandwidth_gb_per_s": 150.0,
    }  # fmt: skip
    assert len(run.json["points"]) == 16


def test_points_from_a_file_and_from_options(chakra, traces, tmp_path):
    file = tmp_path / "points.csv"
    file.write_text("scale_up.size,algorithm\n2,tree\n4,\n")
    words = ["--points", file, "--point", "scale_up.size=1,comm_scale=2", "--set", "scale_up.latency=1us"]
    run = chakra("sweep", traces, "--system", "h100-dgx", *words, "-o", tmp_path / "out", "--json")
    assert run.code == 0
    points = [(row["scale_up.size"], row["algorithm"], row["comm_scale"]) for row in run.json["points"]]
    assert points == [(1, "auto", 2.0), (2, "tree", 1.0), (4, "auto", 1.0)]


def test_systems(chakra, traces, tmp_path):
    run = chakra("sweep", traces, "--grid", "system=h100-dgx,b200-dgx", "-o", tmp_path / "out", "--json")
    assert run.code == 0
    assert [row["system"] for row in run.json["points"]] == ["h100-dgx", "b200-dgx"]
    assert run.json["base"]["system"] == "h100-dgx"


def test_points_that_fail_are_findings(chakra, traces, tmp_path):
    words = ["--system", "h100-dgx", "--set", "scale_up.size=4", "--grid", "scale_out.size=1,2"]
    run = chakra("sweep", traces, *words, "-o", tmp_path / "out")
    assert run.code == 3
    assert "1 point can't be simulated: system h100-dgx: expected a job of 4 ranks at most, got 8" in run.out
    table = pl.read_csv(tmp_path / "out" / "sweep.csv")
    assert table["error"].is_null().to_list() == [False, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--grid", "scale_up.sise=4"], "got 'scale_up.sise'"),
        (["--grid", "scale_up.size=four"], "scale_up.size: expected a whole number, 1 or more, got 'four'"),
        (["--grid", "scale_in.size=4"], "point scale_in.size=4: system h100-dgx: expected one of scale_up.topology"),
        (["--grid", "comm_scale=1", "--grid", "comm_scale=2"], "--grid: expected each key once, got comm_scale twice"),
        (["--point", "comm_scale"], "point: expected KEY=VALUE,KEY=VALUE"),
        (["--points", "nothing.csv"], "nothing.csv: expected a file, got nothing of that name"),
        ([], "expected points to simulate, got none; add --grid, --point or --points"),
    ],
)
def test_mistakes_are_one_line(chakra, traces, tmp_path, words, said):
    run = chakra("sweep", traces, "--system", "h100-dgx", *words, "-o", tmp_path / "out")
    assert run.code == 1
    assert said in run.err
    assert run.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_another_sweep_stays(chakra, traces, swept, tmp_path):
    out = tmp_path / "sweep"
    shutil.copytree(swept[1], out)
    words = ["sweep", traces, "--system", "h100-dgx", "--grid", "comm_scale=1,2", "-o", out]
    run = chakra(*words)
    assert run.code == 1
    assert f"{out}: expected no other sweep, got one of other points" in run.err
    assert (out / "sweep.csv").read_bytes() == (swept[1] / "sweep.csv").read_bytes()
    assert chakra(*words, "--force").code == 0
    assert pl.read_csv(out / "sweep.csv").height == 2


def slow_sweep(traces, out, jobs):
    """Start a sweep in a process group of its own, with points that take a while."""
    code = (
        "import signal, sys, time\n"
        # Background jobs of a shell inherit that it is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from chakra_et.cli import main\n"
        "from chakra_et.sim import sweep_run, simulate\n"
        "run = simulate.Prepared.run\n"
        "def slow(*args, **kwargs):\n"
        "    time.sleep(0.3)\n"
        "    return run(*args, **kwargs)\n"
        "simulate.Prepared.run = slow\n"
        "sweep_run._SAVE_S = sweep_run._BATCH_S = 0.0\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = ["sweep", traces, "--system", "h100-dgx", *GRID, "-o", out, "--jobs", str(jobs)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], **pipes, start_new_session=True)


def wait_for_rows(out, count):
    """Wait until some points are done."""
    log, deadline = out / "points.jsonl", time.monotonic() + 120
    while time.monotonic() < deadline:
        if log.exists() and log.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError("no point was done in time")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize(("jobs", "number"), [(1, "SIGINT"), (2, "SIGINT"), (1, "SIGKILL")])
def test_stopped_it_goes_on(chakra, traces, swept, tmp_path, jobs, number):
    out = tmp_path / "out"
    process = slow_sweep(traces, out, jobs)
    wait_for_rows(out, 3)
    os.killpg(process.pid, getattr(signal, number))
    _, err = process.communicate(timeout=60)
    assert not (out / "sweep.csv").exists()
    if number == "SIGINT":
        assert process.returncode == 130
        assert err.strip() == f"stopped; the same command goes on with what is done in {out}"
    run = chakra("sweep", traces, "--system", "h100-dgx", *GRID, "-o", out, "--json")
    assert run.code == 0
    assert 2 <= run.json["reused"] < 16
    assert pl.read_parquet(out / "sweep.parquet").equals(pl.read_parquet(swept[1] / "sweep.parquet"))


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium, to open the page")
def test_the_page_draws_without_errors(swept, tmp_path):
    words = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=20000",
    ]
    words += ["--enable-logging=stderr", "--v=0", "--dump-dom", (swept[1] / "sweep.html").as_uri()]
    done = subprocess.run(["chromium", *words], capture_output=True, text=True, timeout=120, check=False)
    assert 'data-drawn="yes"' in done.stdout
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    assert done.stdout.count("scale_up.size") > 4
    assert json.loads(done.stdout.split('id="figures">')[1].split("</script>")[0])["texts"]
