import io
import sys

import pytest

from chakra_et.cli._first_run import ANY, ASTRA, NATIVE, announce_compilation, is_compiled


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


def test_each_simulator_has_loops_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "astra_1").mkdir()
    (tmp_path / "astra_1" / "engine.run-451.py311.nbi").touch()
    assert is_compiled(ANY)
    assert is_compiled(ASTRA)
    assert not is_compiled(NATIVE)
