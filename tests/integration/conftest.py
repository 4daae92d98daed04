"""The bundled sample, converted once, and helpers to run the command line."""

import contextlib
import io
import json
from dataclasses import dataclass

import pytest

from chakra_et.cli import main


@dataclass(frozen=True)
class Run:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def run_chakra(*arguments):
    """Run ``chakra`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
    return Run(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def chakra():
    return run_chakra


@pytest.fixture(scope="session")
def converted(tmp_path_factory, sample):
    """The folder of the converted sample."""
    out = tmp_path_factory.mktemp("converted") / "out"
    run = run_chakra("convert", sample, "-o", out)
    assert run.code == 0, run.err
    return out
