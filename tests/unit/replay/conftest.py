"""Traces of small jobs, recorded once."""

import pytest

from .jobs import JOBS, record_steps


@pytest.fixture(scope="session")
def torch():
    """Torch, on one thread."""
    module = pytest.importorskip("torch")
    module.set_num_threads(1)
    module.manual_seed(0)
    return module


@pytest.fixture(scope="session")
def recorded(torch, tmp_path_factory):
    """A function that returns the trace of a job by name, and records it when it is first asked for."""
    known = {}

    def trace_of(name):
        if name not in known:
            known[name] = record_steps(torch, JOBS[name](torch), tmp_path_factory.mktemp(name))
        return known[name]

    return trace_of
