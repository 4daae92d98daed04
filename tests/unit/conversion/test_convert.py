"""Profiles of all ranks become one trace set; what fails is told and takes nothing with it."""

import json

import pytest

from chakra_et.conversion import ConvertOptions, convert, convert_to
from chakra_et.errors import InputError, OutputError
from chakra_et.io import read, read_set
from chakra_et.testing import ProfileConfig, programs, run


@pytest.fixture(scope="module")
def done():
    return run(programs.training_step(ranks=4, iterations=1, layers=2))


@pytest.fixture
def folder(done, tmp_path):
    done.write(tmp_path, host=True, compress=False)
    return tmp_path


def strip(path, *keys):
    """Take top-level keys out of a profile."""
    profile = json.loads(path.read_text())
    for key in keys:
        profile.pop(key, None)
    path.write_text(json.dumps(profile))


def test_all_ranks_are_converted_and_matched(folder):
    result = convert(folder)
    assert result.traces.ranks == (0, 1, 2, 3)
    assert result.failed == result.quality.failed == ()
    assert [len(rank.sources) for rank in result.quality.ranks] == [2, 2, 2, 2]
    matching = result.quality.matching
    assert matching.complete == matching.collectives > 0
    assert [(group.name, group.ranks) for group in result.quality.groups] == [("0", (0, 1, 2, 3))]
    assert all("wait_ns" in trace.nodes.columns for trace in result.traces)
    assert result.traces.traces[0].metadata.sources == (
        {"file": "host.0.json", "kind": "execution trace"},
        {"file": "rank-0.json", "kind": "kineto"},
    )


def test_matching_can_be_left_out(folder):
    result = convert(folder, options=ConvertOptions(match=False))
    assert result.quality.matching.collectives == 0
    assert "wait_ns" not in result.traces.traces[0].nodes.columns
    assert [group.name for group in result.quality.groups] == ["0"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_processes_change_nothing(folder, jobs):
    one, other = convert(folder), convert(folder, options=ConvertOptions(jobs=jobs))
    for left, right in zip(one.traces, other.traces, strict=True):
        assert left.nodes.equals(right.nodes)
    assert one.quality == other.quality


def test_explicit_files_are_one_rank(folder):
    result = convert(host=folder / "host.2.json", device=folder / "rank-2.json")
    assert result.traces.ranks == (2,)
    assert result.quality.ranks[0].host_ops_matched == result.quality.ranks[0].host_ops
    assert convert(device=folder / "rank-3.json").traces.ranks == (3,)
    assert convert(host=folder / "host.1.json").traces.ranks == (1,)


def test_files_in_the_wrong_place_are_told(folder):
    with pytest.raises(
        InputError, match=r"host\.1\.json: expected a Kineto profile, got a PyTorch .*; name it with --host"
    ):
        convert(device=folder / "host.1.json")
    with pytest.raises(InputError, match=r"rank-1\.json: expected a PyTorch execution trace, .* name it with --device"):
        convert(host=folder / "rank-1.json")


def test_nothing_to_convert():
    with pytest.raises(InputError, match="expected profiles to convert, got none"):
        convert()


def test_a_rank_that_fails_takes_no_other_with_it(folder):
    (folder / "rank-1.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    (folder / "rank-3.json").write_text('{"traceEvents": [broken')
    result = convert(folder)
    assert result.traces.ranks == (0, 2)
    assert len(result.failed) == 2
    assert {failure.source.split(" + ")[0].rsplit("/", 1)[1] for failure in result.failed} == {
        "rank-1.json",
        "rank-3.json",
    }
    assert all("expected" in failure.error and "\n" not in failure.error for failure in result.failed)
    assert result.quality.as_dict()["failed"] == [
        {"source": failure.source, "error": failure.error} for failure in result.failed
    ]
    matching = result.quality.matching
    assert (matching.complete, matching.mismatched) == (0, 0)
    assert matching.findings == (
        f"ranks [1, 3] of group 0 are not in the set: {matching.collectives} collectives lack them",
    )


def test_when_all_fail_the_first_reason_is_raised(folder):
    for rank in range(4):
        (folder / f"rank-{rank}.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(InputError, match=r"rank-0\.json: expected trace events"):
        convert(folder)


def test_a_second_profile_of_a_rank_is_a_failure(folder):
    (folder / "again.json").write_text((folder / "rank-0.json").read_text())
    result = convert(folder)
    assert result.traces.ranks == (0, 1, 2, 3)
    (failure,) = result.failed
    assert "expected one profile a rank, got a second one of rank 0" in failure.error


def test_ranks_come_from_names_where_the_files_dont_tell(folder):
    for rank in range(4):
        strip(folder / f"rank-{rank}.json", "distributedInfo")
        (folder / f"host.{rank}.json").unlink()
    result = convert(folder)
    assert result.traces.ranks == (0, 1, 2, 3)
    notes = [rank.warnings[-1] for rank in result.quality.ranks]
    assert notes == [f"the profile doesn't tell its rank; took {rank} (the file's name)" for rank in range(4)]


def test_a_rank_that_the_groups_dont_hold_is_not_taken_from_the_name(done, tmp_path):
    profile = done.profile(0)
    profile["distributedInfo"]["rank"] = 1.5
    path = tmp_path / "rank-7.json"
    path.write_text(json.dumps(profile))
    result = convert(device=path)
    assert result.traces.ranks == (0,)
    assert "the profile doesn't tell its rank; took 0 (the next free one)" in result.quality.ranks[0].warnings
    path.rename(tmp_path / "rank-2.json")
    assert convert(device=tmp_path / "rank-2.json").traces.ranks == (2,)


def test_without_any_number_the_next_free_rank_is_taken(folder):
    for rank, name in enumerate(("delta", "alpha", "charlie")):
        strip(folder / f"rank-{rank}.json", "distributedInfo")
        (folder / f"rank-{rank}.json").rename(folder / f"{name}.json")
    for rank in range(4):
        (folder / f"host.{rank}.json").unlink()
    result = convert(folder)
    assert result.traces.ranks == (0, 1, 2, 3)
    by_rank = {rank.rank: rank.sources[0].rsplit("/", 1)[1] for rank in result.quality.ranks}
    assert by_rank == {0: "alpha.json", 1: "charlie.json", 2: "delta.json", 3: "rank-3.json"}


def test_progress_is_told(folder):
    steps = []
    convert(folder, progress=lambda step, done, total: steps.append((step, done, total)))
    assert steps[-1] == ("converting", 4, 4)
    assert [done for _, done, _ in steps] == [1, 2, 3, 4]


# Writing --------------------------------------------------------------------------------------------------------------


def test_traces_and_report_are_written(folder, tmp_path):
    out = tmp_path / "made" / "out"
    result = convert_to(folder, out)
    assert sorted(path.name for path in out.iterdir()) == ["quality.json", *(f"trace.{rank}.et" for rank in range(4))]
    report = json.loads((out / "quality.json").read_text())
    assert report == json.loads(json.dumps(result.quality.as_dict()))
    assert set(report) == {"ranks", "groups", "matching", "failed"}
    assert set(report["ranks"][0]) == {
        "rank", "sources", "device_activities", "device_nodes", "linkable", "linked", "host_ops_matched", "host_ops",
        "communications", "unknown_communications", "start_error_ns", "makespan_ns", "window_ns", "gap_ns",
        "inferred_edges", "memory_events", "dropped", "warnings",
    }  # fmt: skip
    counts = {"collectives", "complete", "mismatched", "sends", "receives", "paired"}
    assert set(report["matching"]) == counts | {"findings"}
    back = read_set([out])
    assert back.ranks == (0, 1, 2, 3)
    assert [len(trace) for trace in back] == [len(trace) for trace in result.traces]


def test_nothing_is_overwritten_without_force(folder, tmp_path):
    out = tmp_path / "out"
    convert_to(folder, out)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    with pytest.raises(OutputError, match=r"quality\.json"):
        convert_to(folder, out)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    convert_to(folder, out, force=True)


def test_a_trace_in_the_way_stops_before_anything_is_written(folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "trace.3.et").write_bytes(b"precious")
    with pytest.raises(OutputError, match=r"trace\.3\.et"):
        convert_to(folder, out)
    assert [path.name for path in out.iterdir()] == ["trace.3.et"]
    assert (out / "trace.3.et").read_bytes() == b"precious"


@pytest.mark.parametrize("way", ["trace", "folder"])
def test_what_is_in_the_way_is_found_before_the_work(folder, tmp_path, way):
    out = tmp_path / "out"
    if way == "folder":
        out.touch()
    else:
        out.mkdir()
        (out / "trace.7.et").touch()
    steps = []
    with pytest.raises(OutputError, match="got a file" if way == "folder" else r"trace\.7\.et"):
        convert_to(folder, out, progress=lambda *step: steps.append(step))
    assert steps == []


def test_ranks_of_an_earlier_run_are_removed_with_force(folder, tmp_path):
    out = tmp_path / "out"
    convert_to(folder, out)
    (out / "notes.et").touch()
    result = convert_to(folder / "rank-2.json", out, force=True)
    assert [path.name for path in result.removed] == ["trace.0.et", "trace.1.et", "trace.3.et"]
    assert sorted(path.name for path in out.iterdir()) == ["notes.et", "quality.json", "trace.2.et"]


@pytest.mark.parametrize("detail", ["op", "launch", "device"])
def test_details_survive_the_file(folder, tmp_path, detail):
    result = convert_to(folder, tmp_path / detail, options=ConvertOptions(detail=detail))
    trace = read(tmp_path / detail / "trace.1.et")
    assert trace.nodes.select("id", "name", "duration_ns").equals(
        result.traces.trace(1).nodes.select("id", "name", "duration_ns")
    )
    assert trace.rank == 1


def test_a_profile_without_a_clock_base_and_one_with_are_alike(done, tmp_path):
    for base in (True, False):
        run(done.program, show=ProfileConfig(base_time=base)).write(tmp_path / str(base))
    one, other = (convert(tmp_path / str(base)).traces.trace(0).nodes for base in (True, False))
    assert one.drop("start_ns").equals(other.drop("start_ns"))
    assert (one["start_ns"] - other["start_ns"]).n_unique() == 1
