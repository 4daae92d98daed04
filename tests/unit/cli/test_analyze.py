"""`chakra analyze`: what each analysis prints for people and for programs, of whatever it is given."""

import csv
import gzip
import io
import json
import shutil
import tarfile

import polars as pl
import pytest

from chakra_et import cli
from chakra_et.analysis.analyze import ANALYSES, analyze
from chakra_et.io import write
from chakra_et.ir import CommType, ProcessGroup
from chakra_et.testing import programs
from chakra_et.testing import run as run_program
from tests.conftest import ROOT
from tests.unit.analysis.hand_made import Rank

NAMES = [one.name for one in ANALYSES]
FOREIGN = ROOT.parent / "shared" / "traces" / "chakra-et"


def rank_of(rank):
    """Four steps of a kernel, an all-reduce and a copy."""
    made = Rank(rank, groups=(ProcessGroup("0", (0, 1), 2),), world_size=2)
    for number in range(4):
        at = 1_000_000 * number
        made.step(number, at, at + 900_000)
        made.call(number, at + 10, at + 5_010)
        made.kernel("void gemm<128, 256, at::native::some_very_long_name_of_a_template>", at + 9_000, at + 300_000,
                    correlation=number)  # fmt: skip
        made.call(100 + number, at + 6_000, at + 9_000)
        made.collective(
            CommType.ALL_REDUCE, at + 250_000 + 7_000 * rank, at + 700_000, 1 << 20, correlation=100 + number
        )
        made.call(200 + number, at + 12_000, at + 15_000)
        made.copy(at + 700_000, at + 750_000, tensor_size=4096, correlation=200 + number)
    return made.build()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two ranks, as traces."""
    folder = tmp_path_factory.mktemp("traces")
    for rank in range(2):
        write(rank_of(rank), folder / f"out.{rank}.et")
    return folder


@pytest.fixture
def chakra(capsys, monkeypatch):
    """Run the command line; return its exit code, stdout and stderr."""

    def run(*words, columns=100):
        monkeypatch.setenv("COLUMNS", str(columns))
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def strict(text):
    """Return JSON's value; NaN and infinity aren't JSON."""

    def refuse(word):
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


def test_one_screen(chakra, folder):
    code, out, err = chakra("analyze", folder)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    # From one step's first activity to the next one's.
    assert lines[0] == f"{folder}: 2 ranks; 2 iterations (1 to 2) of 4; a step takes 1.000 ms"
    assert "Findings (what something costs is a ceiling)" in lines
    assert any(line.startswith("  1. ") for line in lines)
    assert any(line.startswith("Of the device time: classified 100.0 %") for line in lines)
    assert lines[-1].startswith(f"More: chakra analyze {folder} iterations|breakdown|")
    assert len(lines) <= 40


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [60, 100])
def test_each_analysis_for_people(chakra, folder, name, columns):
    code, out, err = chakra("analyze", folder, name, columns=columns)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(name.capitalize())
    rule = next(line for line in lines if "\u2500" in line)
    assert len(rule) <= columns
    # A row of the table below the line, none broken in two.
    assert lines[lines.index(rule) + 1].strip()
    assert "NaN" not in out
    assert "None" not in out


@pytest.mark.parametrize("name", NAMES)
def test_each_analysis_as_json(chakra, folder, name):
    code, out, err = chakra("analyze", folder, name, "--json")
    assert (code, err) == (0, "")
    found = strict(out)
    assert list(found) == ["analysis", "parameters", "rows", "coverage", "notes", "findings"]
    assert found["analysis"] == name
    assert set(found["coverage"]) == {"classified", "linked", "modelled"}
    assert found["rows"] == analyze(str(folder), only=[name]).results[name].as_dict()["rows"]
    assert found["parameters"]["iteration"] is None


@pytest.mark.parametrize("name", NAMES)
def test_each_analysis_as_csv(chakra, folder, name):
    code, out, err = chakra("analyze", folder, name, "--csv")
    assert (code, err) == (0, "")
    table = analyze(str(folder), only=[name]).results[name].table
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == table.height > 0
    plain = table.select(column for column, dtype in table.schema.items() if dtype.is_integer() or dtype == pl.String)
    expected = [{key: "" if value is None else str(value) for key, value in row.items()} for row in plain.to_dicts()]
    assert [{key: row[key] for key in plain.columns} for row in rows] == expected


def test_breakdown_rows_carry_what_programs_need(chakra, folder):
    rows = strict(chakra("analyze", folder, "breakdown", "--json")[1])["rows"]
    assert [(row["rank"], row["iteration"]) for row in rows] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    for row in rows:
        assert {"span_ns", "busy_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "overlap_ns",
                "memory_ns", "idle_ns"} <= set(row)  # fmt: skip
        assert row["span_ns"] == 1_000_000
        assert row["compute_ns"] == 291_000
        assert row["span_ns"] == row["compute_ns"] + row["exposed_communication_ns"] + row["memory_ns"] + row["idle_ns"]
        assert row["idle_ns"] == sum(
            value for key, value in row.items() if key.startswith("idle_") and key != "idle_ns"
        )


def test_all_analyses_as_json(chakra, folder):
    found = strict(chakra("analyze", folder, "--json")[1])
    assert list(found) == ["analyses", "coverage", "findings"]
    assert list(found["analyses"]) == NAMES
    assert all(set(finding) == {"text", "cost_ns"} for finding in found["findings"])
    assert strict(chakra("analyze", folder, "all", "--json")[1]) == found


def test_all_tables(chakra, folder):
    code, out, _ = chakra("analyze", folder, "all")
    assert code == 0
    titles = [line.partition(",")[0].lower() for line in out.splitlines()]
    assert all(name in titles for name in NAMES)
    notes = [line for line in out.splitlines() if line.startswith("Note: ")]
    assert len(notes) == len(set(notes))


@pytest.mark.parametrize(
    ("name", "written", "columns"),
    [
        ("comms", "pg,type", ["pg_name", "comm_type"]),
        ("comms", "size,rank", ["size_class_bytes", "rank"]),
        ("comms", "pg-name , dtype", ["pg_name", "comm_dtype"]),
        ("overlap", "group", ["pg_name"]),
        ("kernels", "kernel,stream", ["name", "stream"]),
        ("breakdown", "rank", ["rank"]),
    ],
)
def test_rows_are_told_apart_by(chakra, folder, name, written, columns):
    code, out, _ = chakra("analyze", folder, name, "--by", written, "--json")
    assert code == 0
    found = strict(out)
    assert found["parameters"]["by"] == columns
    assert set(columns) <= set(found["rows"][0])
    rows = [tuple(row[column] for column in columns) for row in found["rows"]]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("choice", "numbers"), [("all", [0, 1, 2, 3]), ("whole", [None]), ("2", [2]), ("0,3", [0, 3]), ("3,99", [3])]
)
def test_iterations_are_chosen(chakra, folder, choice, numbers):
    code, out, _ = chakra("analyze", folder, "breakdown", "--iteration", choice, "--json")
    assert code == 0
    assert sorted({row["iteration"] for row in strict(out)["rows"]}, key=str) == numbers


def test_limit(chakra, folder):
    code, out, _ = chakra("analyze", folder, "breakdown", "--iteration", "all", "--limit", "3")
    assert code == 0
    assert "(5 more rows: --limit, --csv or --json)" in out


def test_a_system_gives_peaks(chakra, folder):
    rows = strict(chakra("analyze", folder, "comms", "--system", "h100-dgx", "--json")[1])["rows"]
    assert 0 < rows[0]["link_share"] < 1
    assert strict(chakra("analyze", folder, "comms", "--json")[1])["rows"][0].get("link_share") is None


def test_users_name_kernels(chakra, folder, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[[classes]]\nname = "solver"\nmeaning = "Solves."\npatterns = ["some_very_long_name"]\n')
    words = ("analyze", folder, "kernels", "--by", "kind", "--json")
    kinds = {row["kind"] for row in strict(chakra(*words, "--kernel-classes", file)[1])["rows"]}
    assert "solver" in kinds
    assert "solver" not in {row["kind"] for row in strict(chakra(*words)[1])["rows"]}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["breakdown", "--iteration", "7"], 1, "iteration: expected some of 0, 1, 2, 3, got 7"),
        (["breakdown", "--by", "colour"], 1, "by: expected one or more of rank, iteration, got 'colour'"),
        (["critical-path", "--by", "rank"], 1, "by: expected kind, as its rows always are, got rank"),
        (["breakdown", "--system", "h1000"], 1, "h1000"),
        (["breakdwn"], 2, "argument ANALYSIS: invalid choice: 'breakdwn'"),
        (["breakdown", "--iteration", "two"], 2, "expected numbers such as 3,4, or all, or whole, got 'two'"),
        (["breakdown", "--by", ","], 2, "argument --by: expected columns such as rank,iteration, got ','"),
        (["--by", "rank"], 2, "argument --by: expected one analysis whose rows it tells apart, got none"),
        (["all", "--by", "rank"], 2, "argument --by: expected one analysis whose rows it tells apart, got none"),
        (["--csv"], 2, "argument --csv: expected one analysis, got none; name it"),
        (["breakdown", "--csv", "--json"], 2, "argument --json: not allowed with argument --csv"),
        (["breakdown", "--limit", "0"], 2, "argument --limit"),
        (["breakdown", "--ranks-per-server", "0"], 2, "argument --ranks-per-server"),
        (["breakdown", "--kernel-classes", "nothing.toml"], 1, "nothing.toml"),
    ],
)
def test_mistakes_are_one_line(chakra, folder, words, code, said):
    got, out, err = chakra("analyze", folder, *words)
    assert (got, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    if code == 1:
        assert err.startswith("chakra: error: ")
        assert err.count("\n") == 1


def test_nothing_there(chakra, tmp_path):
    assert chakra("analyze", tmp_path / "nothing")[0] == 1
    code, _, err = chakra("analyze", tmp_path)
    assert code == 1
    assert err.count("\n") == 1
    (tmp_path / "broken.et").write_bytes(b"\xff" * 50)
    code, _, err = chakra("analyze", tmp_path / "broken.et")
    assert code == 1
    assert "broken.et" in err


@pytest.mark.parametrize("suffix", [".parquet", ".et.gz", ".json", ".json.gz"])
def test_formats(chakra, folder, tmp_path, suffix):
    for rank in range(2):
        write(rank_of(rank), tmp_path / f"out.{rank}{suffix}")
    expected = strict(chakra("analyze", folder, "breakdown", "--json")[1])
    found = strict(chakra("analyze", tmp_path, "breakdown", "--json")[1])
    assert found["rows"] == expected["rows"]
    single = strict(chakra("analyze", tmp_path / f"out.1{suffix}", "breakdown", "--json")[1])
    assert single["rows"] == expected["rows"][2:]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """A folder of profiles of two ranks."""
    folder = tmp_path_factory.mktemp("profiles")
    done = run_program(programs.training_step(ranks=2, layers=2))
    for rank in range(2):
        (folder / f"host.{rank}.json").write_text(json.dumps(done.host_trace(rank)))
        (folder / f"device.{rank}.json").write_text(json.dumps(done.profile(rank)))
    return folder


def test_a_folder_of_profiles_is_converted_in_memory(chakra, profiles, tmp_path):
    assert chakra("convert", profiles, "-o", tmp_path / "et")[0] == 0
    before = sorted(profiles.iterdir())
    code, out, err = chakra("analyze", profiles, "breakdown", "--json")
    assert (code, err) == (0, "")
    assert strict(out)["rows"] == strict(chakra("analyze", tmp_path / "et", "breakdown", "--json")[1])["rows"]
    assert sorted(profiles.iterdir()) == before


def test_a_single_profile_and_one_that_is_broken(chakra, profiles, tmp_path):
    packed = tmp_path / "kineto.json.gz"
    packed.write_bytes(gzip.compress((profiles / "device.1.json").read_bytes()))
    code, out, _ = chakra("analyze", packed, "kernels", "--json")
    assert code == 0
    assert strict(out)["rows"]
    shutil.copy(profiles / "device.0.json", tmp_path / "device.0.json")
    (tmp_path / "device.1.json").write_text('{"traceEvents": [{"ph": "X", "name": 5')
    packed.unlink()
    code, out, err = chakra("analyze", tmp_path, "kernels", "--json")
    assert code == 0
    assert "Left out" in err
    assert "device.1.json" in err
    assert strict(out)["rows"]


@pytest.mark.skipif(not FOREIGN.is_dir(), reason="the folder of real traces isn't there")
@pytest.mark.parametrize("archive", ["resnet_et", "resnet_json"])
def test_traces_that_others_wrote(chakra, tmp_path, archive):
    with tarfile.open(FOREIGN / f"{archive}.tar.gz") as bundle:
        bundle.extractall(tmp_path, filter="data")
    file = next(path for path in sorted(tmp_path.rglob("*")) if path.is_file())
    code, out, _ = chakra("analyze", file, "--json")
    assert code == 0
    assert list(strict(out)["analyses"]) == NAMES
