"""Profiles are found, told apart by content, and paired by rank."""

import gzip
import json
from pathlib import Path

import pytest

from chakra_et.conversion.discover import Source, discover, kind_of
from chakra_et.errors import InputError

HOST = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}
DEVICE = {"schemaVersion": 1, "traceEvents": []}


@pytest.fixture
def folder(tmp_path):
    """Write files given by name; a number is the rank in a profile, None leaves it out."""

    def write(**files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content == "host":
                content = HOST
            elif isinstance(content, int):
                content = DEVICE | {"distributedInfo": {"backend": "nccl", "rank": content, "world_size": 8}}
            elif content is None:
                content = DEVICE
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return tmp_path

    return lambda files: write(**files)


def pairs(found, root):
    def short(path):
        return str(Path(path).relative_to(root)) if path else None

    return [(short(source.host), short(source.device), source.rank) for source in found.sources]


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b'{"schemaVersion": 1, "deviceProperties": []', "device"),
        (b'\xef\xbb\xbf\n{\n  "traceEvents": [', "device"),
        (b'[{"ph": "X", "cat": "cpu_op"', "device"),
        (b'[ {"name": "a", "ph" : "M"', "device"),
        (b'{"schema": "1.0.1", "pid": 3', "host"),
        (b'{\n  "schema": "1.1.1", "nodes": [', "host"),
        (b'{"pid": 1, "nodes": [], "schema": "1.0.1"', "host"),
        (b"[1, 2]", None),
        (b'{"other": 1}', None),
        (b"", None),
        (b"\x1f\x8b", None),
    ],
)
def test_kinds_are_told_by_content(head, kind):
    assert kind_of(head) == kind


def test_pairs_by_number_in_the_name(folder):
    root = folder(
        {
            "host.1.json.gz": "host",
            "device.1.json.gz": None,
            "device.0.json": None,
            "host.0.json": "host",
            "notes.txt": b"x",
        }
    )
    assert pairs(discover([root]), root) == [
        ("host.0.json", "device.0.json", 0),
        ("host.1.json.gz", "device.1.json.gz", 1),
    ]


def test_the_rank_in_the_file_is_believed_before_the_name(folder):
    root = folder(
        {"host.2.json": "host", "host.3.json": "host", "step_12.1694128201545.pt.trace.json": 3, "run_7.json": 2}
    )
    assert pairs(discover([root]), root) == [
        ("host.2.json", "run_7.json", 2),
        ("host.3.json", "step_12.1694128201545.pt.trace.json", 3),
    ]


def test_folders_of_the_same_names(folder):
    """`chakra/rank-N.json.gz` beside `torch_profile/rank-N.json.gz`."""
    kinds = {"chakra": "host", "torch_profile": None}
    root = folder({f"{place}/rank-{rank}.json.gz": kind for place, kind in kinds.items() for rank in (0, 1, 10)})
    assert pairs(discover([root]), root) == [
        (f"chakra/rank-{rank}.json.gz", f"torch_profile/rank-{rank}.json.gz", rank) for rank in (0, 1, 10)
    ]


def test_folders_by_kind(folder):
    root = folder({"host/0.json": "host", "host/1.json": "host", "device/0.json": None, "device/1.json": None})
    assert pairs(discover([root]), root) == [("host/0.json", "device/0.json", 0), ("host/1.json", "device/1.json", 1)]
    assert pairs(discover([root / "host", root / "device"]), root) == pairs(discover([root]), root)


@pytest.mark.parametrize(
    ("host", "device"),
    [("chakra/rank-{}.json.gz", "torch_profile/rank-{}.json.gz"), ("host/rank-{}.json", "device/rank-{}.json"),
     ("host_{}.json", "device_{}.json")],
    ids=["Megatron-LM and Megatron-Bridge", "NeMo", "older NeMo"],
)  # fmt: skip
def test_layouts_that_frameworks_write(folder, host, device):
    ranks = (0, 1, 10)
    root = folder({host.format(r): "host" for r in ranks} | {device.format(r): r for r in ranks} | {"notes.txt": b"x"})
    found = discover([root])
    assert pairs(found, root) == [(host.format(rank), device.format(rank), rank) for rank in ranks]
    assert found.left_out == []


def test_manifests_go_with_their_ranks(folder):
    files = {f"host.{r}.json.gz": "host" for r in (0, 1)} | {"device.1.json.gz": 1}
    root = folder({**files, "manifest.0.json": {"chakra_capture": 1}, "manifest.1.json": {"chakra_capture": 1}})
    found = discover([root])
    assert [Path(source.manifest).name for source in found.sources] == ["manifest.0.json", "manifest.1.json"]
    assert found.left_out == []
    assert discover([root / "host.0.json.gz"]).sources[0].manifest is None
    with pytest.raises(InputError, match="got the manifest of a capture; name its folder"):
        discover([root / "manifest.0.json"])


def test_folders_by_rank(folder):
    root = folder(
        {f"rank_{rank}/{name}.json": kind for rank in (0, 1) for name, kind in (("et", "host"), ("kineto", None))}
    )
    assert pairs(discover([root]), root) == [
        ("rank_0/et.json", "rank_0/kineto.json", 0),
        ("rank_1/et.json", "rank_1/kineto.json", 1),
    ]


@pytest.mark.parametrize(
    ("host", "device", "rank"),
    [
        ("megatron_et_3.json.gz", "megatron_kineto_3.json.gz", 3),
        ("dlrm_eg_2.json", "worker2_step_12.1694128201554.pt.trace.json", 2),
        ("pytorch_et_5.json", "kineto_trace_5.json", 5),
        ("et-rank7.json", "trace_rank7.json", 7),
        ("rank-4.et.json", "rank-4.json", 4),
    ],
)
def test_names_in_the_wild(folder, host, device, rank):
    root = folder({host: "host", device: None, "host.99.json": "host", "device.98.json": None})
    assert (host, device, rank) in pairs(discover([root]), root)


def test_one_of_each_is_a_pair_whatever_the_names(folder):
    root = folder({"a.json": "host", "b.json": None})
    assert pairs(discover([root]), root) == [("a.json", "b.json", None)]
    assert pairs(discover([root / "a.json", root / "b.json"]), root) == [("a.json", "b.json", None)]


def test_what_has_no_mate_stands_alone(folder):
    root = folder({"device.0.json": None, "host.5.json": "host", "device.1.json": None, "host.1.json": "host"})
    assert pairs(discover([root]), root) == [
        (None, "device.0.json", 0),
        ("host.1.json", "device.1.json", 1),
        ("host.5.json", None, 5),
    ]


def test_files_without_numbers_come_last(folder):
    root = folder({"b.json": None, "a.json": None, "device.3.json": None})
    assert pairs(discover([root]), root) == [(None, "device.3.json", 3), (None, "a.json", None), (None, "b.json", None)]


def test_other_json_in_a_folder_is_left_alone(folder):
    root = folder({"quality.json": {"ranks": []}, "device.0.json": None, ".hidden": b"", "x/config.json": {}})
    found = discover([root])
    assert pairs(found, root) == [(None, "device.0.json", 0)]
    assert [Path(name).name for name in found.left_out] == ["quality.json", "config.json"]


def test_damaged_files_of_a_folder_are_told(folder):
    root = folder({"device.0.json": None, "device.1.json": b""})
    (root / "device.2.json.gz").write_bytes(gzip.compress(b"x" * 999)[:10])
    found = discover([root])
    assert pairs(found, root) == [(None, "device.0.json", 0)]
    assert [Path(name).name for name, _ in found.damaged] == ["device.1.json", "device.2.json.gz"]
    assert all("empty or cut off" in why for _, why in found.damaged)


def test_archives_and_own_timelines_are_no_profiles(folder):
    archive = b"a.json".ljust(257, b"\0") + b"ustar\x00" + b'{"traceEvents": ['
    timeline = b'{"schemaVersion":1,"chakraExport":"perfetto","traceEvents":['
    root = folder({"all.json": archive, "timeline.json": timeline})
    for name, word in (("all.json", "tar archive"), ("timeline.json", "timeline that chakra exported")):
        with pytest.raises(InputError, match=word):
            discover([root / name])


def test_a_named_file_must_be_a_profile(folder):
    root = folder({"config.json": {"a": 1}})
    with pytest.raises(InputError, match=r"config\.json: expected a PyTorch execution trace or a Kineto profile"):
        discover([root / "config.json"])


def test_an_empty_folder_is_refused(folder):
    root = folder({"quality.json": {"ranks": []}})
    with pytest.raises(InputError, match=r"expected profiles \(\.json, \.json\.gz\) in the directory, got none"):
        discover([root])


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        discover([tmp_path / "nowhere.json"])


def test_globs(folder):
    root = folder({"device.0.json": None, "device.1.json": None, "host.1.json": "host"})
    assert pairs(discover([str(root / "device.*.json")]), root) == [
        (None, "device.0.json", 0),
        (None, "device.1.json", 1),
    ]


def test_sources_name_their_files():
    assert Source("h.json", "d.json", 0).name == "d.json + h.json"
    assert Source(None, "d.json", 0).name == "d.json"
