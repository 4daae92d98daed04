"""Each verb on the bundled sample: what it prints, writes and returns."""

import gzip
import json
import shutil

import pytest

RANK_KEYS = {
    "rank",
    "sources",
    "device_activities",
    "device_nodes",
    "linkable",
    "linked",
    "host_ops_matched",
    "host_ops",
    "communications",
    "unknown_communications",
    "start_error_ns",
    "makespan_ns",
    "window_ns",
    "gap_ns",
    "inferred_edges",
    "memory_events",
    "dropped",
    "warnings",
}
MATCHING_KEYS = {"findings", "collectives", "complete", "mismatched", "sends", "receives", "paired"}


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_convert_writes_a_trace_a_rank_and_the_report(converted):
    assert files_below(converted) == ["quality.json", "trace.0.et", "trace.1.et"]


def test_convert_prints_tables_and_paths(chakra, sample, tmp_path):
    run = chakra("convert", sample, "-o", tmp_path / "out")
    assert run.code == 0
    assert run.err == ""
    for name in ("trace.0.et", "trace.1.et", "quality.json"):
        assert f"Wrote {tmp_path / 'out' / name}\n" in run.out
    for heading in ("What is in the traces", "Rebuilt from edges and durations alone", "Across ranks, "):
        assert heading in run.out
    tables, _, _ = run.out.partition("Wrote ")
    assert max(len(line.rstrip()) for line in tables.splitlines() if not line.startswith(("warning", "dropped"))) <= 100


def test_convert_json_is_the_quality_report(chakra, sample, tmp_path, converted):
    run = chakra("convert", sample, "-o", tmp_path / "out", "--json")
    assert run.code == 0
    report = run.json
    assert report == json.loads((tmp_path / "out" / "quality.json").read_text())
    assert set(report) == {"ranks", "groups", "matching", "failed"}
    assert set(report["matching"]) == MATCHING_KEYS
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    for rank in report["ranks"]:
        assert set(rank) == RANK_KEYS
        assert set(rank["start_error_ns"]) == {"p50", "p99", "max"}
    assert "Wrote" in run.err


def test_convert_report_holds_for_the_sample(converted):
    report = json.loads((converted / "quality.json").read_text())
    matching = report["matching"]
    assert report["failed"] == []
    assert matching["collectives"] > 0
    assert matching["mismatched"] == 0
    assert matching["complete"] == matching["collectives"]
    for rank in report["ranks"]:
        assert rank["device_activities"] == rank["device_nodes"] == 0
        assert rank["unknown_communications"] == 0
        assert rank["communications"] > 0
        assert rank["host_ops_matched"] > 0.99 * rank["host_ops"]
        assert abs(rank["makespan_ns"] / rank["window_ns"] - 1) < 0.001


def test_convert_overwrites_only_with_force(chakra, sample, tmp_path):
    out = tmp_path / "out"
    assert chakra("convert", sample, "-o", out).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    refused = chakra("convert", sample, "-o", out)
    assert refused.code == 1
    assert "--force" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert chakra("convert", sample, "-o", out, "--force").code == 0


def test_convert_with_force_leaves_no_rank_of_an_earlier_run(chakra, sample, tmp_path):
    out = tmp_path / "out"
    assert chakra("convert", sample, "-o", out).code == 0
    run = chakra("convert", sample / "device.1.json.gz", "-o", out, "--force")
    assert f"Removed {out / 'trace.0.et'}\n" in run.out
    assert files_below(out) == ["quality.json", "trace.1.et"]


def test_convert_one_rank_by_name(chakra, sample, tmp_path):
    host, device = sample / "host.1.json.gz", sample / "device.1.json.gz"
    run = chakra("convert", "--host", host, "--device", device, "-o", tmp_path / "out", "--json")
    assert run.code == 0, run.err
    assert [rank["rank"] for rank in run.json["ranks"]] == [1]
    assert files_below(tmp_path / "out") == ["quality.json", "trace.1.et"]


@pytest.mark.parametrize("name", ["host.0.json.gz", "device.0.json.gz"])
def test_convert_half_a_pair(chakra, sample, tmp_path, name):
    run = chakra("convert", sample / name, "-o", tmp_path / "out")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "out") == ["quality.json", "trace.0.et"]


@pytest.mark.parametrize("detail", ["launch", "device"])
def test_convert_detail_makes_fewer_nodes(chakra, sample, tmp_path, converted, detail):
    out = tmp_path / "out"
    assert chakra("convert", sample, "-o", out, "--detail", detail).code == 0
    fewer = sum(rank["nodes"] for rank in chakra("info", out, "--json").json["ranks"])
    full = sum(rank["nodes"] for rank in chakra("info", converted, "--json").json["ranks"])
    assert 0 < fewer < full


def test_info_summary(chakra, converted):
    run = chakra("info", converted)
    assert run.code == 0
    for text in ("Traces", "Iterations (ProfilerStep): 2, 3\n", "Process groups", "Communications, all ranks"):
        assert text in run.out
    assert max(len(line.rstrip()) for line in run.out.splitlines()) <= 100


def test_info_json(chakra, converted):
    summary = chakra("info", converted, "--json").json
    assert summary["world_size"] == 2
    assert [rank["rank"] for rank in summary["ranks"]] == [0, 1]
    for rank in summary["ranks"]:
        assert sum(rank["types"].values()) == rank["nodes"]
        assert rank["iterations"] == [2, 3]
        assert rank["gap_total_ns"]["host_idle"] > 0
        assert rank["process_groups"][0]["ranks"] == [0, 1]
        assert {entry["kind"] for entry in rank["communications"]} >= {"all_reduce"}


def test_info_lists_nodes(chakra, converted):
    trace = converted / "trace.0.et"
    nodes = chakra("info", trace, "--nodes", 5, "--type", "COMM_COLL_NODE", "--json").json["nodes"]
    assert 0 < len(nodes) <= 5
    assert {node["type"] for node in nodes} == {"COMM_COLL_NODE"}
    assert all(node["comm_size"] > 0 and node["pg_name"] for node in nodes)
    named = chakra("info", trace, "--name", "aten::*mm*", "--json").json["nodes"]
    assert named
    assert all(node["name"].startswith("aten::") and "mm" in node["name"] for node in named)
    table = chakra("info", trace, "--name", "aten::*mm*")
    assert "aten::addmm" in table.out
    assert {node["type"] for node in chakra("info", trace, "--type", "comm_coll", "--json").json["nodes"]} == {
        "COMM_COLL_NODE"
    }
    assert "\n1 node; " in chakra("info", trace, "--nodes", 1).out
    assert "No node fits." in chakra("info", trace, "--name", "nothing*").out


def test_validate_converted_sample_has_no_errors(chakra, converted):
    run = chakra("validate", converted, "--json")
    assert run.code == 0, run.out
    report = run.json
    assert set(report) == {"findings", "errors", "warnings"}
    assert report["errors"] == 0
    assert " warnings" in chakra("validate", converted).out


def test_validate_findings_are_exit_code_3(chakra, tmp_path):
    trace = broken_trace(tmp_path)
    run = chakra("validate", trace, "--json")
    assert run.code == 3
    assert run.json["errors"] > 0
    for finding in run.json["findings"]:
        assert set(finding) == {"rule", "severity", "rank", "node", "message"}
    table = chakra("validate", trace)
    assert table.code == 3
    assert f"{run.json['errors']} errors" in table.out


def broken_trace(folder):
    """Write a trace with a dangling edge and a cycle."""
    from chakra_et.io import write
    from chakra_et.ir import NodeType, TraceBuilder

    builder = TraceBuilder(rank=0, world_size=1)
    builder.add("a", NodeType.COMP_NODE, duration_ns=5, ctrl_deps=[1])
    builder.add("b", NodeType.COMP_NODE, duration_ns=5, ctrl_deps=[0, 77])
    path = folder / "broken.0.et"
    write(builder.build(), path)
    return path


def test_repair_makes_it_valid_and_lists_changes(chakra, tmp_path):
    trace = broken_trace(tmp_path)
    run = chakra("repair", trace, "-o", tmp_path / "fixed", "--json")
    assert run.code == 0, run.err
    changes = run.json["changes"]
    assert {change["rank"] for change in changes} == {0}
    assert len(changes) >= 2
    assert chakra("validate", tmp_path / "fixed").code == 0
    table = chakra("repair", trace, "-o", tmp_path / "table").out
    assert table.index("Changes by rule") < table.index("edge-dangling") < table.index("\nChanges\n")
    again = chakra("repair", tmp_path / "fixed", "-o", tmp_path / "again")
    assert again.code == 0
    assert "0 changes" in again.out


def test_reconstruct(chakra, converted):
    run = chakra("reconstruct", converted, "--json")
    assert run.code == 0
    for rank in run.json["ranks"]:
        assert rank["unscheduled"] == 0
        assert rank["start_error_all_ns"]["max"] <= 1000
        assert abs(rank["makespan_ns"] / rank["window_ns"] - 1) < 0.001
    assert "Rebuilt from edges and durations alone" in chakra("reconstruct", converted).out


def test_reconstruct_against_the_profile(chakra, converted, sample):
    run = chakra("reconstruct", converted, "--against", sample / "device.1.json.gz", "--json")
    assert run.code == 0, run.err
    result = run.json
    assert result["rank"] == 1
    assert result["matched_by"] == "ids"
    assert result["compared"] > 0.9 * result["recorded"]
    assert result["makespan_ns"] == result["profile_ns"]
    assert result["start_error_ns"]["max"] <= 1000
    assert "Against" in chakra("reconstruct", converted, "--against", sample / "device.1.json.gz").out


def without_ids(profile, path):
    """Write a profile without what its events are found again by."""
    text = gzip.decompress(profile.read_bytes()).decode()
    path.write_text(text.replace('"Record function id"', '"x"').replace('"correlation"', '"y"'))
    return path


def test_reconstruct_against_a_profile_without_ids(chakra, converted, sample, tmp_path):
    profile = without_ids(sample / "device.1.json.gz", tmp_path / "plain.json")
    run = chakra("reconstruct", converted, "--against", profile, "--json")
    assert run.code == 0, run.err
    result = run.json
    assert result["matched_by"] == "names"
    assert result["compared"] > 0.9 * result["recorded"]
    assert result["start_error_ns"]["max"] <= 1000
    assert "no ids to compare by" in chakra("reconstruct", converted, "--against", profile).out


def test_reconstruct_against_what_shares_no_name(chakra, converted, tmp_path):
    event = {"ph": "X", "cat": "cpu_op", "name": "mine", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}}
    (tmp_path / "other.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    run = chakra("reconstruct", converted / "trace.0.et", "--against", tmp_path / "other.json")
    assert run.code == 1
    assert "no ids to compare by" in run.err


def test_reconstruct_says_why_makespans_differ(chakra, converted, sample, tmp_path):
    profile = json.loads(gzip.decompress((sample / "device.0.json.gz").read_bytes()))
    step = next(event for event in profile["traceEvents"] if event.get("name") == "ProfilerStep#3")
    step["dur"] += 5_000_000
    (tmp_path / "longer.json").write_text(json.dumps(profile))
    run = chakra("reconstruct", converted, "--against", tmp_path / "longer.json")
    assert "The makespans differ by 5.0" in run.out
    assert " s: the profile's counts all of its events" in run.out


def test_reconstruct_against_another_ranks_profile_is_refused(chakra, converted, sample, tmp_path):
    one = tmp_path / "trace.0.et"
    shutil.copy(converted / "trace.0.et", one)
    run = chakra("reconstruct", one, "--against", sample / "device.1.json.gz")
    assert run.code == 1
    assert len(run.err.splitlines()) == 1


@pytest.mark.parametrize("target", ["perfetto", "json", "parquet", "dot", "graphml", "astra-sim"])
def test_export(chakra, converted, tmp_path, target):
    out = tmp_path / ("timeline.json.gz" if target == "perfetto" else "out")
    run = chakra("export", converted, "--to", target, "-o", out)
    assert run.code == 0, run.err
    wrote = [line.removeprefix("Wrote ") for line in run.out.splitlines() if line.startswith("Wrote ")]
    assert wrote
    assert all((tmp_path / path).is_file() for path in wrote)
    refused = chakra("export", converted, "--to", target, "-o", out)
    assert refused.code == 1
    assert "--force" in refused.err
    assert chakra("export", converted, "--to", target, "-o", out, "--force").code == 0


def test_exported_timeline_is_trace_event_json(chakra, converted, tmp_path):
    out = tmp_path / "timeline.json.gz"
    assert chakra("export", converted, "--to", "perfetto", "-o", out).code == 0
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) > 1000


@pytest.mark.parametrize("target", ["json", "parquet"])
def test_exported_traces_read_back(chakra, converted, tmp_path, target):
    assert chakra("export", converted, "--to", target, "-o", tmp_path / "out").code == 0
    back = chakra("info", tmp_path / "out", "--json").json
    assert back == chakra("info", converted, "--json").json


@pytest.mark.parametrize(
    "part",
    [("--iteration", "1"), ("--time", "1ms:5ms"), ("--time", "100ms:"), ("--time", ":9ms")],
    ids=["iteration", "time", "from", "to"],
)
def test_slice(chakra, converted, tmp_path, part):
    run = chakra("slice", converted, *part, "-o", tmp_path / "part")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "part") == ["trace.0.et", "trace.1.et"]
    whole = chakra("info", converted, "--json").json["ranks"]
    for cut, full in zip(chakra("info", tmp_path / "part", "--json").json["ranks"], whole, strict=True):
        assert 0 < cut["nodes"] < full["nodes"]
    assert chakra("validate", tmp_path / "part").code == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_slice_of_one_rank(chakra, converted, tmp_path, rank):
    run = chakra("slice", converted, "--ids", "40,41", "--rank", rank, "-o", tmp_path / "part")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "part") == [f"trace.{rank}.et"]
    assert chakra("validate", tmp_path / "part").code == 0


def test_open_ends_of_time_are_the_traces_own(chakra, converted, tmp_path):
    for name, part in (("all", "0:"), ("front", ":50ms"), ("back", "50ms:")):
        assert chakra("slice", converted, "--time", part, "-o", tmp_path / name).code == 0
    counts = {
        name: chakra("info", tmp_path / name, "--nodes", 10**6, "--name", "aten::*", "--json").json["nodes"]
        for name in ("all", "front", "back")
    }
    assert len(counts["front"]) + len(counts["back"]) == len(counts["all"])


def test_demo(chakra, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = chakra("demo")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "chakra-demo") == [
        *(f"gpu-profiles/{side}.{rank}.json" for side in ("device", "host") for rank in (0, 1)),
        "gpu-timeline.json.gz",
        *(f"gpu-traces/{name}" for name in ("quality.json", "trace.0.et", "trace.1.et")),
        *(f"profiles/{side}.{rank}.json.gz" for side in ("device", "host") for rank in (0, 1)),
        "timeline.json.gz",
        *(f"traces/{name}" for name in ("quality.json", "trace.0.et", "trace.1.et")),
    ]
    assert run.out.count("0 errors, 0 warnings") == 2
    assert "ui.perfetto.dev" in run.out
    report = json.loads((tmp_path / "chakra-demo" / "gpu-traces" / "quality.json").read_text())
    for rank in report["ranks"]:
        assert rank["device_activities"] == rank["device_nodes"] == rank["linked"] > 0
    assert report["matching"]["complete"] == report["matching"]["collectives"] > 0
    assert chakra("demo").code == 1
    assert chakra("demo", "--force").code == 0


def test_demo_shows_what_its_commands_print(chakra, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = chakra("demo").out
    for command in (line.removeprefix("$ chakra ") for line in shown.splitlines() if line.startswith("$ chakra ")):
        again = chakra(*command.split(), *(("--force",) if "-o" in command.split() else ()))
        assert again.code == 0
        assert again.out.strip("\n") in shown
