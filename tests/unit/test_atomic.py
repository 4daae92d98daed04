"""A file is written whole or not at all."""

import pytest

from chakra_et.atomic import replace_file
from chakra_et.errors import OutputError


def test_replaces_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "new" / "x"
    for content in ([b"a", b"b"], [b"c"]):
        assert replace_file(path, content) == path
        assert path.read_bytes() == b"".join(content)
    assert list(path.parent.iterdir()) == [path]


def test_an_error_on_the_way_keeps_the_old_file(tmp_path):
    path = replace_file(tmp_path / "x", [b"old"])

    def broken():
        yield b"new"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        replace_file(path, broken())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_says_why_it_cannot(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="expected a writable path, got an error: FAILED; choose another path"):
        replace_file(tmp_path / "file" / "x", [b""], line=lambda err: "FAILED")
