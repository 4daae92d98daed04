"""Captures before execution: programs for GPUs, recorded on a CPU, converted, validated and simulated."""

from __future__ import annotations

import functools
import json
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

torch = pytest.importorskip("torch")

from benchmarks.fake_capture import SCRIPT, SMALL, expected_collectives, found_collectives  # noqa: E402
from chakra_et import load_system, simulate  # noqa: E402
from chakra_et.capture.fake import record_fake  # noqa: E402
from chakra_et.conversion import convert  # noqa: E402
from chakra_et.ir import CommType, NodeType  # noqa: E402
from chakra_et.sim.mirror import mirror_ranks  # noqa: E402
from chakra_et.validation import validate  # noqa: E402
from tests.integration import fake_programs  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:DTensor random operators may not:UserWarning"),
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning"),
    pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler:UserWarning"),
]
SENDS, RECEIVES = int(NodeType.COMM_SEND_NODE), int(NodeType.COMM_RECV_NODE)


def llama():
    """The example, as its script runs."""
    before, sys.argv = sys.argv, [str(SCRIPT), *SMALL.arguments()]
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    finally:
        sys.argv = before


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """Capture and convert a program once: what was recorded, and the traces."""

    @functools.cache
    def capture(program, world_size=1, **options):
        folder = tmp_path_factory.mktemp(program.__name__)
        found = record_fake(program, folder, world_size=world_size, **dict(options))
        return found, convert([path for one in found for path in one.files if path.name.startswith("host")]).traces

    return capture


def communications(trace):
    """Return the communications of a trace in order."""
    return trace.nodes.filter(pl.col("type") >= SENDS)


def check(traces, mirrored_ranks):
    """Validate, mirror and simulate; return the simulation."""
    assert validate(traces).errors == 0
    whole, _ = mirror_ranks(traces)
    assert len(whole) == mirrored_ranks
    assert validate(whole).errors == 0
    result = simulate(whole, load_system("h100-dgx"), compute="roofline")
    assert result.finish_ns > 0
    return result


def test_a_single_process(captured):
    [found], traces = captured(fake_programs.single)
    trace = traces.trace(0)
    assert (trace.metadata.family, trace.metadata.rank, trace.metadata.world_size) == ("compiled", 0, 1)
    assert found.communications == 0
    assert not found.peers
    nodes = trace.nodes
    assert nodes["duration_ns"].sum() == 0
    assert nodes["start_ns"].null_count() == len(trace)
    # A linear layer's product in the forward pass, and one each for weight and input in the backward pass.
    products = nodes.filter(pl.col("name").is_in(["aten::addmm", "aten::mm"]))
    assert products["num_ops"].to_list()[0] == 2 * 32 * 64 * 256
    assert products.height == 5  # the first layer's input needs no gradient
    # As on a GPU, one kernel updates many tensors.
    assert nodes["name"].str.contains("_foreach_").any()
    assert not nodes["is_cpu_op"].any()
    assert any("made up" in text for text in found.warnings)
    check(traces, 1)


def test_the_window_begins_after_the_first_step(captured):
    _, waited = captured(fake_programs.single)
    _, whole = captured(fake_programs.single, wait=0)
    assert len(whole.trace(0)) > len(waited.trace(0))
    assert "aten::uniform_" in whole.trace(0).nodes["name"].to_list()
    assert "aten::uniform_" not in waited.trace(0).nodes["name"].to_list()
    [two], _ = captured(fake_programs.single, active=2)
    assert two.operators > 1.9 * (len(waited.trace(0)) - 5)


def test_a_program_that_ends_early_says_so(captured):
    [found], traces = captured(fake_programs.single, wait=5)
    assert any("after 3 of 6 optimizer steps" in text for text in found.warnings)
    assert len(traces.trace(0)) > 0


def test_on_a_cpu(captured):
    _, traces = captured(fake_programs.single, device="cpu")
    nodes = traces.trace(0).nodes
    assert nodes["is_cpu_op"].all()
    assert '"cpu"' in nodes.filter(pl.col("name") == "aten::addmm")["inputs"].struct.field("values")[0]


def test_tensor_dependencies_reach_through_views_and_writes_in_place(captured):
    _, traces = captured(fake_programs.single)
    nodes = traces.trace(0).nodes
    ids = dict(nodes.select("name", "id").rows())
    # The optimizer's kernels return nothing: what follows depends on what they wrote. The first moment is divided by
    # the root of the second, to which a small number was added in place.
    last = nodes.filter(pl.col("name") == "aten::_foreach_addcdiv_").row(0, named=True)
    assert {ids["aten::_foreach_lerp_"], ids["aten::_foreach_add_"]} <= set(last["data_deps"])
    # A weight's gradient is made transposed, and read through a view.
    products = nodes.filter(pl.col("name") == "aten::mm")["id"].to_list()
    assert set(products) & {one for deps in nodes.filter(pl.col("name") == "aten::t")["data_deps"] for one in deps}


def test_fsdp_and_tensor_parallel(captured):
    [found], traces = captured(llama, SMALL.world_size)
    trace = traces.trace(0)
    assert found_collectives(trace) == expected_collectives(SMALL)
    assert found.communications == expected_collectives(SMALL).total()
    groups = {group.description: group.ranks for group in trace.process_groups}
    assert groups["mesh_tp"] == (0, 1)
    assert groups["mesh_dp"] == (0, 2, 4, 6)
    # Whatever a communication brings is used by somebody, whom its tensor leads to.
    used = {one for deps in trace.nodes["data_deps"] for one in deps}
    assert set(communications(trace)["id"]) <= used
    check(traces, 8)


def test_fsdp_gathers_on_streams_of_its_own_that_compute_waits_for(captured):
    _, traces = captured(llama, SMALL.world_size)
    trace = traces.trace(0)
    groups = {group.description: group.name for group in trace.process_groups}
    gathers = trace.nodes.filter(
        (pl.col("pg_name") == groups["mesh_dp"]) & (pl.col("comm_type") == int(CommType.ALL_GATHER))
    )
    assert 0 not in gathers["stream"].to_list()
    waits = trace.nodes.filter(pl.col("name") == "stream_wait")
    awaited = {one for deps in waits["sync_deps"] for one in deps}
    assert set(gathers["id"]) & awaited
    # In the backward pass a layer's parameters come while the one after it computes.
    assert simulate(mirror_ranks(traces)[0], load_system("h100-dgx"), compute="roofline").finish_ns < sum(
        simulate(mirror_ranks(traces)[0], load_system("h100-dgx"), compute=how, comm=much).finish_ns
        for how, much in (("roofline", "measured"), ("measured", "native"))
    )


def test_reduce_operators_and_dtypes_of_communications(captured):
    _, traces = captured(llama, SMALL.world_size)
    found = communications(traces.trace(0))
    scatters = found.filter(pl.col("comm_type") == int(CommType.REDUCE_SCATTER))
    assert set(scatters["comm_dtype"]) == {"float", "c10::BFloat16"}
    assert set(scatters["reduce_op"]) == {"sum", "avg"}
    assert found.filter(pl.col("comm_type") == int(CommType.ALL_GATHER))["reduce_op"].null_count() > 0


def test_ddp_reduces_buckets_while_it_computes(captured):
    _, traces = captured(fake_programs.ddp, 8)
    nodes = communications(traces.trace(0))
    parameters = 8 * 3 * 9 + 8 + 8 + 8 + 10 * 8 * 64 + 10
    kinds = nodes.select("comm_type", "reduce_op", "comm_size").rows()
    assert (int(CommType.ALL_REDUCE), "sum", parameters * 4) in kinds
    assert (int(CommType.ALL_REDUCE), "avg", 4) in kinds  # the loss, after the step before
    assert (
        sum(kind == int(CommType.BROADCAST) for kind, _, _ in kinds) == 2
    )  # statistics of the batch norm, and its count
    bucket = nodes.filter(pl.col("comm_size") == parameters * 4).row(0, named=True)
    assert bucket["comm_async"]
    all_nodes = traces.trace(0).nodes
    wait = all_nodes.filter((pl.col("name") == "c10d::wait") & (pl.col("comm_id") == bucket["comm_id"]))
    assert wait["sync_deps"].to_list() == [[bucket["id"]]]
    check(traces, 8)


def test_a_pipeline_gives_a_trace_a_stage(captured):
    found, traces = captured(fake_programs.pipeline, 8)
    assert [one.rank for one in found] == list(traces.ranks) == [0, 1, 2, 3]
    pairs = Counter()
    for trace in traces:
        sent = communications(trace).filter(pl.col("type") == SENDS)
        pairs.update(sent.select("comm_src", "comm_dst", "comm_size").rows())
        received = communications(trace).filter(pl.col("type") == RECEIVES)
        assert received["comm_dst"].to_list() == [trace.rank] * received.height
    size = 4 * fake_programs.WIDTH * 4
    assert pairs == {
        (one, other, size): fake_programs.MICROBATCHES
        for one, other in ((0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0))
    }
    check(traces, 8)


def test_experts_get_rows_by_a_model_of_routing(captured):
    [found], traces = captured(fake_programs.experts, 4)
    exchanges = communications(traces.trace(0))
    assert exchanges["comm_type"].to_list() == [int(CommType.ALL_TO_ALL)] * 4
    rows = 64 * 2 // 4 * fake_programs.WIDTH
    assert [json.loads(text) for text in exchanges["in_split_sizes"].to_list()[1:]] == [[rows] * 4] * 3
    assert any("balanced" in text for text in found.warnings)
    check(traces, 4)


def test_uneven_routing_is_the_same_on_both_ends(captured):
    found, traces = captured(fake_programs.experts, 4, routing="zipf")
    assert [one.rank for one in found] == [0, 1, 2, 3]
    sent, received = (
        [json.loads(communications(trace)[f"{side}_split_sizes"][1]) for trace in traces] for side in ("in", "out")
    )
    assert [list(column) for column in zip(*sent, strict=True)] == received
    assert sent[0][0] > 2 * sent[0][3] > 0
    check(traces, 4)


def test_streams_order_what_was_called_on_them(captured):
    _, traces = captured(fake_programs.streams)
    nodes = traces.trace(0).nodes
    clone = nodes.filter(pl.col("name") == "aten::clone").row(0, named=True)
    product = nodes.filter((pl.col("name") == "aten::mul") & (pl.col("stream") == 0)).row(0, named=True)
    forward = nodes.filter(pl.col("name") == "aten::addmm").row(0, named=True)
    assert clone["stream"] == 1
    assert forward["stream"] == 0
    waits = nodes.filter(pl.col("name") == "stream_wait").select("id", "stream", "sync_deps").rows()
    assert [stream for _, stream, _ in waits] == [1, 0]
    assert waits[1][2] == [clone["id"]]
    assert forward["id"] < waits[1][0] < product["id"]
    # The copy doesn't wait for the product, nor the product for the copy.
    assert forward["id"] not in clone["ctrl_deps"]
    assert clone["id"] not in forward["ctrl_deps"]


def test_named_ranks(captured):
    found, traces = captured(llama, SMALL.world_size, ranks=(3, 6))
    assert [one.rank for one in found] == list(traces.ranks) == [3, 6]
    groups = {group.description: group.ranks for group in traces.trace(3).process_groups}
    assert groups["mesh_tp"] == (2, 3)
    assert groups["mesh_dp"] == (1, 3, 5, 7)
    mine, expected = found_collectives(traces.trace(3)), expected_collectives(SMALL)
    assert sorted((kind, size, count) for (_, kind, size), count in mine.items()) == sorted(
        (kind, size, count) for (_, kind, size), count in expected.items()
    )


def test_groups_that_are_gone_at_the_end_and_captures_of_the_programs_own(captured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, traces = captured(fake_programs.recorded_twice, 2)
    assert [one.rank for one in found] == [0, 1]
    assert [group.description for group in traces.trace(1).process_groups if group.ranks == (0, 1)][-1] == "both"
    assert "chakra_et.capture.torch.record: left out, this is a capture already" in found[0].warnings
    assert list(tmp_path.iterdir()) == []


def test_a_script_in_a_process_of_its_own(tmp_path):
    script = Path(fake_programs.__file__)
    call = "import sys; from chakra_et.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", call, "capture", "--fake", "--world-size", "8", "-o", str(tmp_path / "out"), "--json",
         "--", "torchrun", "--nproc-per-node", "8", str(script), "ddp"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [rank] = json.loads(done.stdout)
    assert rank["communications"] == 4
    assert rank["num_ops"] > 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"host.0.json.gz", "manifest.0.json", "trace.0.et", "quality.json"} <= names
