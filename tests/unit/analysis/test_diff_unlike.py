"""Sets that share little: ids that mean nothing are refused, and other jobs are called so."""

import polars as pl
import pytest

from chakra_et.analysis.diff import diff
from chakra_et.errors import InputError
from tests.unit.analysis.test_diff import OPS, made

OTHER = [(f"custom::op{place}", f"[[{place}]]", [(f"custom_kernel{place}", 500)]) for place in range(9)]


def alone(ops):
    """Operators with their kernels, and nothing else."""
    trace = made(ops, sizes=(), wobble=3)
    return trace.with_nodes(trace.nodes.filter(pl.col("name") != "last"))


def test_ids_of_unrelated_sets_are_refused():
    with pytest.raises(InputError, match="got 2 of 41 before and 30 after; leave it out, or match by names"):
        diff(made(steps=1), made(OTHER, steps=1, sizes=(64,)), match="ids")


def test_ids_that_both_sets_use_for_other_things_match_nothing():
    """Kernels of operators and collectives have each other's ids."""
    trace = made()
    mixed = (pl.col("type") == 7) | pl.col("name").is_in(["reduce_kernel", "layer_norm_apply", "relu_kernel"])
    own = trace.nodes.filter(mixed)["id"].to_list()
    others = dict(zip(own, own[1:] + own[:1], strict=True))
    found = diff(trace, trace.with_nodes(trace.nodes.with_columns(pl.col("id").replace(others))), match="ids")
    comms = found.table.filter(pl.col("what") == "communication")
    assert set(comms["name"]) == {"all_reduce"}
    assert comms["after_name"].null_count() == comms.height
    assert found.communications["size_bytes"].drop_nulls().is_in([4096, 1024]).all()
    assert any("of the nodes before and" in note and "are in both sets" in note for note in found.notes)


def test_sets_of_different_jobs_are_told():
    found = diff(alone(OPS), alone(OTHER), match="names")
    assert found.warning.startswith("these look like different jobs: work of 0.0 % of the time before and 0.0 % after ")
    assert found.notes[0] == found.findings[0].text == found.warning
    assert found.findings[1].text.startswith(found.headline)
    assert found.as_dict()["notes"][0] == found.as_dict()["findings"][0]["text"] == found.warning


@pytest.mark.parametrize("match", ["names", "ids"])
def test_sets_of_one_job_are_not(match):
    assert diff(alone(OPS), alone(OPS), match=match).warning == ""
