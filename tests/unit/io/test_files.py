"""Bytes in and out: gzip, URLs, globs, atomic writing."""

import gzip
import os
import socket

import fsspec
import pytest

from chakra_et.errors import InputError, MissingExtraError, OutputError
from chakra_et.io import list_paths, read_bytes, read_head, write_atomic
from chakra_et.io._files import gzip_chunks

GROUPS = [(".et", ".et.gz"), (".json",)]


def test_gzip_is_found_by_content(tmp_path):
    path = tmp_path / "anything.bin"
    path.write_bytes(gzip.compress(b"abc" * 1000))
    assert read_bytes(path) == b"abc" * 1000
    assert read_head(path, 5) == b"abcab"


def test_the_head_of_a_plain_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abcdef")
    assert read_head(path, 4) == b"abcd"
    assert read_head(path, 99) == b"abcdef"


def test_the_head_of_a_damaged_gzip(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\x1f\x8b" + b"nonsense" * 4)
    with pytest.raises(InputError, match="expected a gzip stream, got a damaged one"):
        read_head(path, 4)


def test_compressing_is_reproducible():
    chunks = [b"x" * 100_000, b"y", b""]
    packed = b"".join(gzip_chunks(chunks))
    assert packed == b"".join(gzip_chunks(chunks))
    assert gzip.decompress(packed) == b"".join(chunks)


@pytest.fixture
def remote():
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/trace.0.et", b"zero")
    system.pipe("/bucket/trace.1.et", gzip.compress(b"one"))
    system.pipe("/bucket/notes.txt", b"no")
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


def test_remote_files(remote):
    assert read_bytes(f"{remote}/trace.0.et") == b"zero"
    assert read_bytes(f"{remote}/trace.1.et") == b"one"
    assert read_head(f"{remote}/trace.0.et", 2) == b"ze"


@pytest.mark.parametrize("what", ["", "/*.et"])
def test_remote_listing(remote, what):
    names = list_paths(remote + what, GROUPS)
    assert [name.rsplit("/", 1)[1] for name in names] == ["trace.0.et", "trace.1.et"]
    assert read_bytes(names[0]) == b"zero"


@pytest.mark.parametrize("url", ["memory://bucket/nothing.et", "no-such-protocol://x/y.et"])
def test_remote_errors(url):
    with pytest.raises(InputError) as caught:
        read_bytes(url)
    assert str(caught.value).startswith(f"{url}: expected ")


def test_remote_glob_without_a_match(remote):
    with pytest.raises(InputError, match="got none that match"):
        list_paths(f"{remote}/*.json", GROUPS)


def test_a_protocol_that_needs_a_package(monkeypatch):
    def missing(*args, **kwargs):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(MissingExtraError, match="Install s3fs"):
        read_bytes("s3://bucket/trace.0.et")


def test_a_directory_lists_the_first_group_that_it_has(tmp_path):
    for name in ("b.1.json", "quality.json", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert list_paths(tmp_path, GROUPS) == [str(tmp_path / "b.1.json"), str(tmp_path / "quality.json")]
    for name in ("b.1.et.gz", "b.0.et"):
        (tmp_path / name).write_bytes(b"x")
    assert list_paths(tmp_path, GROUPS) == [str(tmp_path / "b.0.et"), str(tmp_path / "b.1.et.gz")]


def test_a_directory_without_traces(tmp_path):
    with pytest.raises(InputError, match=r"expected a directory with traces \(\.et, \.et\.gz, \.json\)"):
        list_paths(tmp_path, GROUPS)


def test_a_directory_whose_directories_have_traces(tmp_path):
    for run in "abcd":
        (tmp_path / run).mkdir()
        (tmp_path / run / "trace.0.et").touch()
    with pytest.raises(InputError, match=r"there are some in .*/a, .*/b, .*/c, \.\.\.: name a directory"):
        list_paths(tmp_path, GROUPS)


@pytest.fixture
def special(tmp_path, request):
    path = str(tmp_path / "x")
    if request.param == "device":
        yield "/dev/zero"
    elif request.param == "pipe":
        os.mkfifo(path)
        yield path
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            yield path


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs devices and pipes")
@pytest.mark.parametrize("special", ["device", "pipe", "socket"], indirect=True)
def test_what_is_no_regular_file(special, request):
    kind = request.node.callspec.params["special"]
    for read in (read_bytes, lambda path: read_head(path, 10)):
        with pytest.raises(InputError, match=f"expected a regular file, got a {kind}"):
            read(special)


def test_a_glob(tmp_path):
    for rank in (10, 2):
        (tmp_path / f"t.{rank}.et").write_bytes(b"x")
    assert [name.rsplit(".", 2)[1] for name in list_paths(tmp_path / "t.*.et", GROUPS)] == ["10", "2"]
    with pytest.raises(InputError, match="got none that match"):
        list_paths(tmp_path / "q*.et", GROUPS)


def test_a_name_with_brackets_is_no_glob_if_it_exists(tmp_path):
    path = tmp_path / "t[0].et"
    path.write_bytes(b"x")
    assert list_paths(path, GROUPS) == [str(path)]


def test_writing_makes_folders_and_refuses_to_overwrite(tmp_path):
    path = tmp_path / "deep" / "er" / "x"
    assert write_atomic(path, [b"a"]) == path
    with pytest.raises(OutputError, match="got an existing one; choose another path or use --force"):
        write_atomic(path, [b"b"])
    assert path.read_bytes() == b"a"
    write_atomic(path, [b"b"], force=True)
    assert path.read_bytes() == b"b"
    assert [entry.name for entry in path.parent.iterdir()] == ["x"]


def test_a_failure_midway_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def chunks():
        yield b"new"
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_atomic(path, chunks(), force=True)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("what", ["directory", "file as folder", "url"])
def test_paths_that_cannot_be_written(what, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    path = {"directory": tmp_path, "file as folder": tmp_path / "file" / "x", "url": "memory://bucket/x"}[what]
    with pytest.raises(OutputError):
        write_atomic(path, [b"a"], force=True)
