"""A replay that is recorded again makes the calls of the first recording, in order, with the same tensors."""

from collections import Counter

import pytest

import chakra_et as chakra
from chakra_et.replay.options import ReplayOptions
from chakra_et.replay.plan.make import make_plan
from chakra_et.replay.plan.steps import OpCall, View
from chakra_et.replay.plan.tables import slots_in
from chakra_et.replay.run import run_rank

from .jobs import JOBS


def calls_of(plan):
    """Return name and tensors of each call; views that no recorded call made appear as `aten::as_strided`."""
    return [
        (step.name, *((plan.tensors[slot].shape, plan.tensors[slot].dtype) for slot in slots_in(step.arguments)))
        for step in plan.steps
        if isinstance(step, OpCall) and step.name != "aten::as_strided"
    ]


@pytest.fixture(scope="module", params=sorted(JOBS))
def again(request, recorded, tmp_path_factory):
    """A job's plan, the plan of its replay's recording, and what the replay measured."""
    from chakra_et.capture.torch import record

    plan = make_plan(recorded(request.param))
    out = tmp_path_factory.mktemp("again")
    options = ReplayOptions(only="compute", host_time="none", repeats=1)
    result = run_rank(plan, None, options, lambda: record(out, active=1))
    return plan, make_plan(chakra.convert(out).traces.traces[0]), result


def test_calls_are_the_same(again):
    plan, second, _ = again
    assert calls_of(second) == calls_of(plan)


def test_nothing_is_skipped(again):
    plan, _, result = again
    assert result.skipped == {}
    assert result.replaced == {}
    assert len(result.ends[0]) == len(plan.steps)
    assert (result.ends >= result.starts).all()


def test_views_are_all_that_is_added(again):
    plan, second, _ = again
    names = [Counter(step.name for step in one.steps if isinstance(step, OpCall)) for one in (plan, second)]
    added = names[1] - names[0]
    views = sum(isinstance(step, View) for step in plan.steps)
    assert set(added) <= {"aten::as_strided"}
    assert added["aten::as_strided"] <= views
