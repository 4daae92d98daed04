"""Real jobs on gloo from capture to simulation: captured, converted, matched, validated, simulated."""

import polars as pl
import pytest

pytest.importorskip("torch")

import chakra_et as chakra
from chakra_et.ir import CommType, NodeType
from tests.integration.processes import capture_job

# Ranks; per rank and step: collectives, sends, receives.
JOBS = {
    "ddp": (2, {CommType.ALL_REDUCE: 2}),
    "fsdp": (4, {CommType.ALL_GATHER: 5, CommType.REDUCE_SCATTER: 3}),
    "tp": (2, {CommType.ALL_REDUCE: 12}),
    "pipeline": (4, {}),
    "moe": (4, {CommType.ALL_TO_ALL: 9, CommType.ALL_REDUCE: 2}),
}
STEPS = 2


@pytest.fixture(scope="module", params=sorted(JOBS))
def job(request, tmp_path_factory):
    """A job's name, and its conversion."""
    out = capture_job(request.param, JOBS[request.param][0], tmp_path_factory.mktemp(request.param), STEPS)
    return request.param, chakra.convert(out)


def test_every_rank_converts_exactly(job):
    name, result = job
    assert not result.failed
    assert result.traces.ranks == tuple(range(JOBS[name][0]))
    for quality in result.quality.ranks:
        assert quality.host_ops_matched == quality.host_ops
        assert quality.unknown_communications == 0
        assert quality.start_error_ns["max"] <= 1000
    assert [found.message for found in chakra.validate(result.traces).findings] == []


def test_every_communication_is_there_and_meets(job):
    name, result = job
    size, counts = JOBS[name]
    matching = result.quality.matching
    assert (matching.mismatched, matching.findings) == (0, ())
    assert matching.complete == matching.collectives == STEPS * sum(counts.values())
    if name == "pipeline":
        # Of 4 micro-batches, each goes over each of 3 boundaries and comes back.
        assert matching.sends == matching.receives == matching.paired == STEPS * 4 * 2 * (size - 1)
    for trace in result.traces:
        found = trace.column("comm_type").drop_nulls().value_counts()
        assert {CommType(kind): count for kind, count in found.rows()} == {k: STEPS * n for k, n in counts.items()}


def test_what_the_observer_noted_is_there(job):
    name, result = job
    for trace in result.traces:
        nodes = trace.nodes
        communications = nodes.filter(pl.col("type") >= NodeType.COMM_SEND_NODE)
        assert communications["comm_id"].to_list() != []
        assert communications["comm_id"].sort().to_list() == list(range(communications.height))
        assert communications["pg_name"].null_count() == 0
        calls = nodes.filter(pl.col("name").str.starts_with("c10d::"), pl.col("op_schema").is_not_null())
        assert sorted(calls["comm_id"]) == list(range(communications.height))
        waits = set(nodes.filter(pl.col("name") == "c10d::wait")["comm_id"])
        # DDP's reducer waits inside of itself.
        assert waits == (set() if name == "ddp" else set(range(communications.height)))
        assert "## chakra:comm ##" not in nodes["name"]


def test_who_waits_is_read_not_guessed(job):
    name, result = job
    for trace in result.traces:
        nodes = trace.nodes
        threads = nodes.filter(pl.col("name").str.starts_with("c10d::"))["tid"].unique()
        edges = nodes.select("id", "tid", "sync_deps").explode("sync_deps")
        awaited = edges.filter(pl.col("tid").is_in(threads.implode()))["sync_deps"].drop_nulls()
        ranges = nodes.filter(pl.col("type") >= NodeType.COMM_SEND_NODE)
        assert ranges["id"].is_in(awaited.implode()).mean() >= (0 if name == "ddp" else 1)
    if name != "ddp":
        warnings = [warning for quality in result.quality.ranks for warning in quality.warnings]
        assert not any("nothing was seen to wait for" in warning for warning in warnings)


def test_what_is_reduced(job):
    name, result = job
    expected = {"ddp": {"sum"}, "fsdp": {"avg"}, "tp": {"sum"}, "pipeline": set(), "moe": {"sum"}}[name]
    for trace in result.traces:
        told = trace.column("reduce_op").drop_nulls().to_list()
        assert set(told) == expected


def test_tokens_that_leave_arrive(job):
    name, result = job
    if name != "moe":
        pytest.skip("only experts exchange unevenly")
    parts = []
    for trace in result.traces:
        uneven = trace.nodes.filter(pl.col("in_split_sizes").is_not_null())
        decoded = [pl.col(f"{side}_split_sizes").str.json_decode(pl.List(pl.Int64)) for side in ("in", "out")]
        parts.append(uneven.sort("comm_seq").select("comm_seq", *decoded))
    # There and back in 2 layers, and as many ways of gradients but that of the input.
    assert parts[0].height == STEPS * (4 + 3)
    for sender, sent in enumerate(parts):
        for receiver, received in enumerate(parts):
            out = sent["in_split_sizes"].list.get(receiver).to_list()
            assert out == received["out_split_sizes"].list.get(sender).to_list()
            assert all(elements % 64 == 0 for elements in out)


def test_the_simulation_with_measured_communications_takes_as_long(job):
    _, result = job
    simulated = chakra.simulate(result.traces, comm="measured")
    for step in simulated.iterations or (simulated,):
        assert step.finish_ns == pytest.approx(step.measured_ns, rel=0.01)
