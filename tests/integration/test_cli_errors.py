"""Bad input: one line on stderr, exit code 1, no traceback, nothing half-written, other ranks unharmed."""

import gzip
import random
import shutil
import subprocess
import sys

import pytest


def refused(run, *words):
    assert run.code == 1, run.out
    lines = run.err.splitlines()
    assert len(lines) == 1, run.err
    assert lines[0].startswith("chakra: error: ")
    for word in words:
        assert str(word) in lines[0]
    return lines[0]


def make_bad(kind, path):
    """Write a bad input and return its path."""
    if kind == "missing":
        return path
    if kind == "folder":
        path.mkdir()
        return path
    contents = {
        "nothing": b"",
        "random": random.Random(7).randbytes(4000),
        "not-gzip": b"\x1f\x8b" + b"\x00" * 50,
        "cut-gzip": gzip.compress(random.Random(7).randbytes(4000))[:900],
        "other-json": b'{"a": [1, 2, 3]}',
        "text": b"hello\n" * 100,
        "no-json": b'{"traceEvents": [{{{{',
        "no-utf8": b'{"traceEvents": [{"ph": "X", "name": "\xff\xfe", "cat": 5}]}',
        "long-varint": b"\xff" * 9 + b"\x01",
    }
    path.write_bytes(contents[kind])
    return path


BAD = ("missing", "folder", "nothing", "random", "not-gzip", "cut-gzip", "other-json", "text", "no-json", "long-varint")


@pytest.mark.parametrize("kind", BAD)
def test_convert_refuses(chakra, tmp_path, kind):
    path = make_bad(kind, tmp_path / "bad")
    refused(chakra("convert", path, "-o", tmp_path / "out"), "bad")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.et*"))


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("verb", ["info", "validate", "reconstruct", "repair", "export", "slice"])
def test_traces_are_refused(chakra, tmp_path, monkeypatch, verb, kind):
    monkeypatch.chdir(tmp_path)
    path = make_bad(kind, tmp_path / "bad.0.et")
    extra = {"export": ("--to", "perfetto"), "slice": ("--ids", "1")}.get(verb, ())
    refused(chakra(verb, path, *extra), "bad.0.et")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ([] if kind == "missing" else ["bad.0.et"])


def test_swapped_files(chakra, sample, tmp_path):
    host, device = sample / "host.0.json.gz", sample / "device.0.json.gz"
    run = chakra("convert", "--host", device, "--device", host, "-o", tmp_path / "out")
    refused(run, "device.0.json.gz: expected a PyTorch execution trace, got a Kineto profile; name it with --device")


def test_pair_of_two_ranks(chakra, sample, tmp_path):
    host, device = sample / "host.0.json.gz", sample / "device.1.json.gz"
    run = chakra("convert", "--host", host, "--device", device, "-o", tmp_path / "out")
    # Ranks run the same program, so their operators match: names and processes tell them apart.
    refused(run, "host.0.json.gz", "expected the execution trace of rank 1", "got rank 0's")
    assert not (tmp_path / "out").exists()


def test_a_rank_that_fails_leaves_the_others(chakra, sample, tmp_path):
    profiles = tmp_path / "profiles"
    shutil.copytree(sample, profiles)
    whole = (profiles / "device.1.json.gz").read_bytes()
    (profiles / "device.1.json.gz").write_bytes(whole[: len(whole) // 2])
    run = chakra("convert", profiles, "-o", tmp_path / "out")
    assert run.code == 1
    assert (tmp_path / "out" / "trace.0.et").is_file()
    assert "Wrote" in run.out
    assert run.err.splitlines()
    assert all(line.startswith("chakra: error: ") for line in run.err.splitlines())
    assert "device.1.json.gz" in run.err


def test_report_lists_the_failures(chakra, sample, tmp_path):
    profiles = tmp_path / "profiles"
    shutil.copytree(sample, profiles)
    (profiles / "device.1.json.gz").write_bytes(b'{"schemaVersion": 1, "traceEvents": [{{{{')
    run = chakra("convert", profiles, "-o", tmp_path / "out", "--json")
    assert run.code == 1
    assert [set(failure) for failure in run.json["failed"]] == [{"source", "error"}] * len(run.json["failed"])
    assert any("device.1.json.gz" in failure["source"] + failure["error"] for failure in run.json["failed"])


def test_output_that_is_in_the_way(chakra, sample, tmp_path):
    (tmp_path / "out").write_text("a file")
    refused(chakra("convert", sample, "-o", tmp_path / "out"), "out")
    assert (tmp_path / "out").read_text() == "a file"


def test_unknown_rank_range_and_ids(chakra, converted, tmp_path):
    refused(chakra("slice", converted, "--iteration", "999", "-o", tmp_path / "a"), "999")
    refused(chakra("slice", converted / "trace.0.et", "--ids", "99999999", "-o", tmp_path / "b"), "99999999")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["convert", "repair", "slice"])
def test_a_file_as_folder_is_refused_before_the_work(chakra, converted, sample, tmp_path, verb):
    (tmp_path / "file").touch()
    source = sample if verb == "convert" else converted
    extra = ("--iteration", "2") if verb == "slice" else ()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        refused(chakra(verb, source, *extra, "-o", out), tmp_path / "file", "expected a folder, got a file")


def test_ids_that_no_node_can_have(chakra, converted, tmp_path):
    run = chakra("slice", converted / "trace.0.et", "--ids", "7,99999999999999999999999999", "-o", tmp_path / "a")
    refused(run, "99999999999999999999999999", "which no node has")


def test_ids_are_a_ranks_own(chakra, converted, tmp_path):
    refused(chakra("slice", converted, "--ids", "40", "-o", tmp_path / "a"), "ranks 0, 1; add --rank")
    refused(chakra("slice", converted, "--ids", "40", "--rank", "9", "-o", tmp_path / "a"), "got 9")


def test_times_are_told_as_people_write_them(chakra, converted, tmp_path):
    line = refused(chakra("slice", converted, "--time", "99s:", "-o", tmp_path / "a"))
    assert line.endswith(" ms after the first one), got 99.000 s to the end")


def test_a_folder_of_folders_is_told(chakra, converted):
    refused(chakra("info", converted.parent), f"there are some in {converted}: name")


def test_a_report_is_no_trace(chakra, converted):
    refused(chakra("info", converted / "quality.json"), "got a quality report")


def test_no_traceback_from_the_installed_command(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "chakra_et.cli", "convert", str(tmp_path / "nowhere")], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("chakra: error: ")
