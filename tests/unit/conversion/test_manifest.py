"""What a manifest adds to a trace."""

import json

from chakra_et.conversion.manifest import add_manifest
from chakra_et.ir import ProcessGroup, Trace
from chakra_et.ir.columns import empty_nodes

TRACE = Trace(empty_nodes(), (ProcessGroup("0", (0, 1), 2, "seen"),))


def write(tmp_path, **record):
    path = tmp_path / "manifest.1.json"
    path.write_text(json.dumps({"chakra_capture": 1, **record}))
    return str(path)


def test_groups_rank_and_versions(tmp_path):
    groups = [
        {"pg_name": "0", "pg_desc": "other", "ranks": [0, 1], "group_size": 2},
        {"pg_name": "1", "pg_desc": "tp", "ranks": [1], "group_size": 1},
    ]
    path = write(tmp_path, rank=1, world_size=2, process_groups=groups, versions={"torch": "2.13.0"}, host="a", x=1)
    trace = add_manifest(TRACE, path)
    assert [(group.name, group.description, group.ranks) for group in trace.process_groups] == [
        ("0", "seen", (0, 1)), ("1", "tp", (1,)),
    ]  # fmt: skip
    assert (trace.metadata.rank, trace.metadata.world_size) == (1, 2)
    assert trace.metadata.sources == (
        {"file": "manifest.1.json", "kind": "manifest", "host": "a", "versions": {"torch": "2.13.0"}},
    )


def test_what_the_profile_tells_stays(tmp_path):
    from dataclasses import replace

    known = replace(TRACE, metadata=replace(TRACE.metadata, rank=3, world_size=8))
    found = add_manifest(known, write(tmp_path, rank=1, world_size=2))
    assert (found.metadata.rank, found.metadata.world_size) == (3, 8)


def test_nothing_readable_changes_nothing(tmp_path):
    assert add_manifest(TRACE, None) is TRACE
    for text in ("", "[1]", '{"chakra_capture": 1, "rank"'):
        path = tmp_path / "manifest.0.json"
        path.write_text(text)
        assert add_manifest(TRACE, str(path)) is TRACE
    assert add_manifest(TRACE, write(tmp_path, rank="1", world_size=-5)).metadata.rank is None
