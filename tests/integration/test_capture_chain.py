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


WORLD, HALF, LATE = "world", "half", "late"
# Of a step: kind, group, bytes, what is reduced, root.
COLLECTIVES = [
    ("ALL_REDUCE", WORLD, 4096, "max", None),
    ("ALL_REDUCE", HALF, 4096, "sum", None),
    *[("ALL_REDUCE", WORLD, 16384, "sum", None)] * 3,
    ("BROADCAST", WORLD, 512, None, 2),
    ("BROADCAST", HALF, 128, None, "second"),
    ("REDUCE", WORLD, 512, "product", 1),
    ("ALL_GATHER", WORLD, 256, None, None),
    ("GATHER", WORLD, 64, None, 3),
    ("SCATTER", WORLD, 64, None, 0),
    ("ALL_TO_ALL", WORLD, 128, None, None),
    ("ALL_TO_ALL", WORLD, 80, None, None),
    ("ALL_TO_ALL", WORLD, 128, None, None),
    ("BARRIER", WORLD, 0, None, None),
    ("ALL_GATHER", WORLD, 8, None, None),
    ("ALL_GATHER", WORLD, "pickled", None, None),
    ("ALL_REDUCE", LATE, 32, "sum", None),
]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return chakra.convert(capture_job("collectives", 4, tmp_path_factory.mktemp("collectives"), 1))


def test_every_collective(everything):
    assert everything.quality.matching.findings == ()
    for rank, trace in zip(everything.traces.ranks, everything.traces, strict=True):
        groups = {group.name: group.ranks for group in trace.process_groups}
        members = {WORLD: (0, 1, 2, 3), HALF: (rank // 2 * 2, rank // 2 * 2 + 1), LATE: (0, 2, 3)}
        rows = trace.nodes.filter(pl.col("type") == NodeType.COMM_COLL_NODE).sort("comm_id")
        found = [
            (CommType(kind).name, groups[group], size, op, root)
            for kind, group, size, op, root in rows.select(
                "comm_type", "pg_name", "comm_size", "reduce_op", "comm_root"
            ).iter_rows()
        ]
        expected = [
            (kind, members[group], size, op, members[HALF][1] if root == "second" else root)
            for kind, group, size, op, root in COLLECTIVES
            if rank in members[group]
        ]
        pickled = [place for place, row in enumerate(expected) if row[2] == "pickled"]
        assert all(found[place][2] > 0 for place in pickled)
        expected = [found[place] if place in pickled else row for place, row in enumerate(expected)]
        assert found == expected


def test_every_message(everything):
    for rank, trace in zip(everything.traces.ranks, everything.traces, strict=True):
        after, before = (rank + 1) % 4, (rank - 1) % 4
        rows = trace.nodes.filter(pl.col("type").is_in([NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE]))
        rows = rows.sort("comm_id").select("type", "comm_src", "comm_dst", "comm_tag", "comm_size")
        send, receive = int(NodeType.COMM_SEND_NODE), int(NodeType.COMM_RECV_NODE)
        assert rows.rows() == [
            (send, rank, after, 7, 400), (receive, before, rank, 7, 400),
            (send, rank, after, 0, 800), (receive, before, rank, 0, 800),
        ]  # fmt: skip


def test_every_wait(everything):
    for trace in everything.traces:
        communications = trace.nodes.filter(pl.col("type") >= NodeType.COMM_SEND_NODE)
        waits = trace.nodes.filter(pl.col("name") == "c10d::wait")
        assert sorted(waits["comm_id"]) == sorted(communications["comm_id"])
        # The three asynchronous ones are waited for in reverse.
        async_ids = communications.filter("comm_async").sort("comm_id")["comm_id"].to_list()
        assert waits.filter(pl.col("comm_id").is_in(async_ids)).sort("id")["comm_id"].to_list()[:3] == async_ids[2::-1]
