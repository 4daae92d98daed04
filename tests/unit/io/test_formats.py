"""The table of formats, and reading and writing files and folders through it."""

import pytest

from chakra_et.errors import InputError, OutputError, TraceError
from chakra_et.io import FORMATS, read, read_set, write, write_set
from chakra_et.ir import NodeType, TraceBuilder, TraceSet

NAMES = [entry.name for entry in FORMATS]


def trace(rank=0, name="op"):
    builder = TraceBuilder(rank=rank)
    builder.add(name, NodeType.COMP_NODE, duration_ns=5, data_deps=[3])
    return builder.build()


@pytest.mark.parametrize("suffix", [suffix for entry in FORMATS for suffix in entry.suffixes])
def test_the_suffix_says_the_format(suffix, tmp_path):
    path = write(trace(), tmp_path / f"trace.0{suffix}")
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == suffix.endswith(".gz")
    assert read(path).nodes.equals(trace().nodes)


@pytest.mark.parametrize("name", NAMES)
def test_else_the_content_does(name, tmp_path):
    path = write(trace(), tmp_path / "anything", format=name)
    assert read(path).nodes.equals(trace().nodes)


@pytest.mark.parametrize("entry", FORMATS, ids=NAMES)
def test_each_format_has_its_own_functions(entry, tmp_path):
    path = entry.write(trace(), tmp_path / f"x{entry.suffixes[0]}")
    assert entry.read(path).nodes.equals(trace().nodes)
    assert entry.parse(path.read_bytes(), "x").nodes.equals(trace().nodes)


def test_unknown_names(tmp_path):
    with pytest.raises(OutputError, match="name that ends in one of"):
        write(trace(), tmp_path / "trace.txt")
    with pytest.raises(OutputError, match="expected one of the formats et, parquet, json, got 'xml'"):
        write(trace(), tmp_path / "trace.txt", format="xml")


def test_existing_files_are_kept(tmp_path):
    path = write(trace(), tmp_path / "trace.0.et")
    with pytest.raises(OutputError, match="--force"):
        write(trace(name="new"), path)
    assert read(path).nodes["name"].to_list() == ["op"]
    write(trace(name="new"), path, force=True)
    assert read(path).nodes["name"].to_list() == ["new"]


@pytest.mark.parametrize("name", NAMES)
def test_a_set_in_rank_order(name, tmp_path):
    ranks = [0, 2, 10]
    paths = write_set(TraceSet(tuple(map(trace, ranks))), tmp_path / "out", prefix="t", format=name)
    assert [path.name.split(".")[:2] for path in paths] == [["t", str(rank)] for rank in ranks]
    for source in (tmp_path / "out", str(tmp_path / "out" / "t.*"), reversed(paths)):
        assert read_set(source).ranks == (0, 2, 10)
    assert read_set(paths[1]).ranks == (2,)


def test_no_file_of_a_set_is_written_if_one_exists(tmp_path):
    write(trace(1), tmp_path / "trace.1.et")
    with pytest.raises(OutputError, match=r"trace\.1\.et"):
        write_set(TraceSet((trace(0), trace(1))), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.1.et"]
    assert len(write_set(TraceSet((trace(0), trace(1))), tmp_path, force=True)) == 2


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OutputError, match="expected a folder"):
        write_set(TraceSet((trace(0),)), tmp_path / "file")


def test_two_files_of_one_rank(tmp_path):
    write(trace(3), tmp_path / "a.et")
    write(trace(3), tmp_path / "b.et")
    with pytest.raises(InputError, match=r"b\.et: rank 3: expected one file a rank, got .*a\.et before"):
        read_set(tmp_path)


def test_the_file_name_says_the_rank_if_the_metadata_does_not(tmp_path):
    path = write(trace(None), tmp_path / "job.7.et")
    assert read(path).rank == 7
    assert read(write(trace(None), tmp_path / "job.et")).rank is None
    assert read(write(trace(4), tmp_path / "job.9.et")).rank == 4


def test_traces_without_a_rank_come_last_in_a_set(tmp_path):
    write(trace(None, "nameless"), tmp_path / "a.et")
    write(trace(0), tmp_path / "b.et")
    assert [entry.nodes["name"].item() for entry in read_set(tmp_path)] == ["op", "nameless"]


def test_no_paths():
    with pytest.raises(InputError, match="got none"):
        read_set([])


def test_a_value_that_does_not_fit_leaves_no_file(tmp_path):
    builder = TraceBuilder(rank=0)
    builder.add("x", NodeType.COMM_SEND_NODE, comm_dst=2**40)
    with pytest.raises(TraceError):
        write(builder.build(), tmp_path / "trace.0.et")
    assert list(tmp_path.iterdir()) == []
