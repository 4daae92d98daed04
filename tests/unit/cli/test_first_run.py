import io
import sys

import pytest

from chakra_et.cli._first_run import announce_compilation, is_compiled


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_says_that_it_compiles_while_the_cache_is_empty(cache, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    announce_compilation()
    assert "compiling" in sys.stderr.getvalue()
    (cache / "part").mkdir()
    (cache / "part" / "loop.nbi").touch()
    monkeypatch.setattr(sys, "stderr", Terminal())
    announce_compilation()
    assert sys.stderr.getvalue() == ""
    assert is_compiled()


def test_says_nothing_where_nobody_reads(cache, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    announce_compilation()
    assert sys.stderr.getvalue() == ""
