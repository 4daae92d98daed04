"""One rank's files become one trace."""

import json

import polars as pl
import pytest

from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.convert import convert_rank
from chakra_et.frontends.pytorch.convert_host import convert_host
from chakra_et.ir import CommType, NodeType, build_graph
from chakra_et.passes.reconstruct import reconstruct
from chakra_et.testing import ProfileConfig, ProgramBuilder, programs
from tests.unit.frontends.pytorch.converted import convert_program
from tests.unit.frontends.pytorch.profiles import call, event, host_trace, kernel, node, op, profile


def convert(*events, host=None, **header):
    trace, facts = convert_rank(profile(list(events), **header), host, sources=())
    graph = build_graph(trace)
    assert len(graph.dangling) == len(graph.self_edges) == 0
    assert reconstruct(trace).unscheduled == 0
    return trace, facts


def rows(trace, *columns):
    return trace.nodes.select(columns).rows()


LAUNCH = [
    event("user_annotation", "ProfilerStep#0", 0, 100),
    op("aten::mm", 10, 20, rf=3, ext=3, **{"Input Dims": [[2, 3]], "Input type": ["float"], "Concrete Inputs": [""]}),
    call("cudaLaunchKernel", 15, 5, 44),
    kernel("gemm", 24, 30, 44),
]


# Name, type, kind of gap, start, duration, on the host?
NODES = [
    ("host_idle", 4, "host_idle", 0, 10_000, True),
    ("ProfilerStep#0", 1, None, 0, 0, True),
    ("aten::mm", 4, None, 10_000, 5_000, True),
    ("cudaLaunchKernel", 4, None, 15_000, 5_000, True),
    ("aten::mm", 4, None, 20_000, 10_000, True),
    ("launch_latency", 4, "launch_latency", 20_000, 4_000, False),
    ("gemm", 4, None, 24_000, 30_000, False),
    ("host_idle", 4, "host_idle", 30_000, 70_000, True),
]


def test_nodes_of_a_launch():
    trace, facts = convert(*LAUNCH)
    meta = int(NodeType.METADATA_NODE)
    assert rows(trace, "name", "type", "gap_kind", "start_ns", "duration_ns", "is_cpu_op") == NODES
    assert (facts.device_activities, facts.linkable, facts.linked) == (1, 1, 1)
    assert facts.window_ns == 100_000
    step = trace.nodes.filter(pl.col("type") == meta).row(0, named=True)
    assert step["span_ns"] == 100_000
    device = trace.nodes.filter(pl.col("name") == "gemm").row(0, named=True)
    assert (device["stream"], device["correlation"]) == (7, 44)
    assert trace.nodes["name"][int(device["parent"])] == "aten::mm"
    assert reconstruct(trace).start_error_all_ns.max == 0


def test_segments_name_their_operator():
    trace, _ = convert(*LAUNCH)
    first, second = trace.nodes.filter(pl.col("name") == "aten::mm").rows(named=True)
    assert (first["segment"], second["segment"]) == (None, 1)
    assert second["parent"] == first["id"]
    assert first["rf_id"] == 3
    assert second["rf_id"] is None
    assert json.loads(first["inputs"]["shapes"]) == [[2, 3]]
    assert second["inputs"] is None


def test_a_kernel_may_start_before_its_call_returns():
    trace, facts = convert(
        op("aten::mm", 0, 50), call("cudaLaunchKernel", 10, 30, 1), kernel("gemm", 25, 10, 1), op("b", 60, 5)
    )
    assert facts.linked == 1
    rebuilt = reconstruct(trace)
    assert rebuilt.start_error_all_ns.max == 0
    calls = trace.nodes.filter(pl.col("name") == "cudaLaunchKernel")
    assert calls["duration_ns"].to_list() == [15_000, 15_000]


def test_activities_without_a_launch_are_nodes_and_counted():
    trace, facts = convert(op("a", 0, 5), kernel("old", 50, 10, 999), kernel("next", 70, 5, -1))
    assert (facts.device_activities, facts.linkable, facts.linked) == (2, 0, 0)
    assert any("2 activities have no launch call" in warning for warning in facts.warnings)
    assert trace.nodes.filter(pl.col("name") == "unexplained").height >= 1
    assert reconstruct(trace).start_error_ns.max == 0


def test_device_events_alone():
    trace, facts = convert(kernel("a", 10, 5, 1), kernel("b", 20, 5, 2), kernel("c", 12, 5, 3, stream=9))
    assert facts.device_activities == 3
    assert facts.host_ops == 0
    assert reconstruct(trace).makespan_ns == facts.window_ns == 15_000


def test_copies_have_types_and_bytes():
    copies = [
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 64),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 32),
        ("gpu_memset", "Memset (Device)", 16),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 8),
    ]
    events = []
    for number, (category, name, size) in enumerate(copies):
        events.append(call("cudaMemcpyAsync", 20 * number, 5, number))
        events.append(event(category, name, 20 * number + 8, 4, tid=7, correlation=number, bytes=size))
    trace, _ = convert(*events)
    device = trace.nodes.filter(pl.col("copy_kind").is_not_null())
    assert device.select("type", "copy_kind", "tensor_size").rows() == [
        (int(NodeType.MEM_LOAD_NODE), "HtoD", 64),
        (int(NodeType.MEM_STORE_NODE), "DtoH", 32),
        (int(NodeType.COMP_NODE), "memset", 16),
        (int(NodeType.COMP_NODE), "DtoD", 8),
    ]


def test_several_devices_are_told_apart():
    events = [call("cudaLaunchKernel", 0, 5, 1), call("cudaLaunchKernel", 10, 5, 2)]
    trace, _ = convert(*events, kernel("a", 8, 50, 1, device=0), kernel("b", 20, 50, 2, device=1))
    assert trace.nodes.filter(pl.col("name").is_in(["a", "b"])).select("name", "device").rows() == [("a", 0), ("b", 1)]
    assert reconstruct(trace).start_error_ns.max == 0
    alone, _ = convert(*events, kernel("a", 8, 50, 1, device=3))
    assert "device" not in alone.nodes.columns


def test_unnamed_communication_kernels_are_marked():
    trace, facts = convert(call("cudaLaunchKernel", 0, 5, 1), kernel("ncclDevKernel_Generic", 8, 50, 1))
    (row,) = trace.nodes.filter(pl.col("unknown_comm").fill_null(False)).rows(named=True)
    assert row["type"] == int(NodeType.COMM_COLL_NODE)
    assert (facts.communications, facts.unknown_communications) == (1, 1)


def test_ranges_of_annotations_on_streams_are_no_activities():
    trace, facts = convert(*LAUNCH, event("gpu_user_annotation", "ProfilerStep#0", 20, 40, tid=7))
    assert facts.device_activities == 1
    assert "ProfilerStep#0" not in trace.nodes.filter(~pl.col("is_cpu_op"))["name"].to_list()
    assert facts.dropped == ("1 'gpu_user_annotation' records (annotation ranges, no activities)",)


def test_overlapping_and_negative_times():
    kernels = [call("cudaLaunchKernel", 30, 5, 1), kernel("k", 40, 30, 1), kernel("l", 50, 30, -1)]
    trace, facts = convert(op("a", -20, 30), op("sticks out", 5, 10), *kernels)
    assert any("stuck out" in warning for warning in facts.warnings)
    assert any("overlap the one before" in warning for warning in facts.warnings)
    assert trace.nodes["start_ns"].min() == 0
    assert facts.window_ns == 100_000
    assert reconstruct(trace).start_error_ns.max == 0


def test_instant_events_at_one_time_make_no_cycle():
    events = [op(f"aten::op{i}", 10, 0, tid=i % 3 + 1) for i in range(12)]
    trace, _ = convert(
        *events, call("cudaLaunchKernel", 10, 0, 1), kernel("k", 10, 0, 1), call("cudaStreamSynchronize", 10, 0, 2)
    )
    assert reconstruct(trace).makespan_ns == 0


def test_nothing_recorded_is_refused():
    with pytest.raises(FormatError, match="expected host operators or device activities, got no events"):
        convert({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {}})


# Host communications --------------------------------------------------------------------------------------------------


def gloo(*, is_async):
    concrete = ["", "", "", "", str(is_async), "-1"]
    arguments = {"Input Dims": [[[256]], [], []], "Input type": ["TensorList", "", ""], "Concrete Inputs": concrete}
    worker = event("user_annotation", "gloo:all_reduce", 60, 300, tid=9, **{"Record function id": 12, "External id": 12,
                   "Input Dims": [[256]], "Input type": ["float"]})  # fmt: skip
    return [op("aten::mm", 0, 30, rf=10), op("c10d::allreduce_", 40, 10, rf=11, **arguments), worker,
            op("aten::add", 400, 20, rf=13)]  # fmt: skip


@pytest.mark.parametrize("is_async", [True, False])
def test_ranges_of_workers_are_communications(is_async):
    trace, facts = convert(*gloo(is_async=is_async), distributedInfo={"rank": 0, "world_size": 2})
    (row,) = trace.nodes.filter(pl.col("type") == int(NodeType.COMM_COLL_NODE)).rows(named=True)
    assert (row["comm_type"], row["comm_size"], row["is_cpu_op"], row["tid"]) == (
        int(CommType.ALL_REDUCE),
        1024,
        True,
        9,
    )
    assert row["comm_dtype"] == "float"
    names = trace.nodes["name"]
    assert names[int(row["parent"])] == "c10d::allreduce_"
    # The caller's next operator comes after the communication; the pause between is its wait.
    waiting = trace.nodes.filter(pl.col("sync_deps").list.contains(row["id"]))
    assert waiting["tid"].to_list() == [1]
    assert bool(trace.column("inferred").fill_null(False).any()) is is_async
    factor = pl.when(pl.col("id") == row["id"]).then(10).otherwise(1)
    slower = trace.with_nodes(trace.nodes.with_columns(duration_ns=pl.col("duration_ns") * factor))
    assert reconstruct(slower).makespan_ns == facts.window_ns + 9 * 300_000
    assert reconstruct(trace).start_error_all_ns.max == 0
    assert any("host-only trace" in warning for warning in facts.warnings)


# With an execution trace ----------------------------------------------------------------------------------------------


def test_arguments_come_from_the_execution_trace():
    host = host_trace(
        [node(5, "aten::mm", rf=3, op_schema="aten::mm(Tensor a)", fw_parent=0,
              inputs={"values": [[1, 2, 0, 6, 4, "cuda:0"]], "shapes": [[2, 3]], "types": ["Tensor(float)"]},
              outputs={"values": [[3, 4, 0, 6, 4, "cuda:0"]], "shapes": [[2, 3]], "types": ["Tensor(float)"]})]
    )  # fmt: skip
    trace, facts = convert(*LAUNCH, host=host)
    row = trace.nodes.filter(pl.col("name") == "aten::mm").row(0, named=True)
    assert row["op_schema"] == "aten::mm(Tensor a)"
    assert json.loads(row["inputs"]["types"]) == ["Tensor(float)"]
    assert json.loads(row["outputs"]["values"]) == [[3, 4, 0, 6, 4, "cuda:0"]]
    assert (facts.host_ops, facts.host_ops_matched) == (1, 1)
    assert facts.details["join"] == "rf_id"


def test_a_generated_pair_has_data_edges_and_forward_parents():
    trace, facts = convert_program(programs.training_step(), host=True)
    assert facts.host_ops_matched == facts.host_ops
    assert trace.nodes["data_deps"].list.len().sum() > 20
    names = dict(rows(trace, "id", "name"))
    backward = trace.nodes.filter(pl.col("name") == "AddmmBackward0", pl.col("fw_parent").is_not_null())
    assert all(names[parent] == "aten::addmm" for parent in backward["fw_parent"])
    assert reconstruct(trace).start_error_all_ns.max == 0


def test_groups_and_ranks_are_those_of_the_files():
    builder = ProgramBuilder("groups", ranks=4)
    pairs = [builder.group([0, 2]), builder.group([1, 3])]
    for rank in range(4):
        main = builder.rank(rank).thread()
        main.wait(main.collective("allreduce", 1024, stream=20, group=pairs[rank % 2], dtype="Float"))
        main.device_synchronize()
    for show in (ProfileConfig(), ProfileConfig(kernel_comm_args=False)):
        trace, _ = convert_program(builder.build(), rank=3, host=True, show=show)
        (row,) = trace.nodes.filter(pl.col("type") == int(NodeType.COMM_COLL_NODE)).rows(named=True)
        assert trace.rank == 3
        assert {group.name: group.ranks for group in trace.process_groups}[row["pg_name"]] == (1, 3)
        assert row["comm_size"] == 4096


# An execution trace alone ---------------------------------------------------------------------------------------------


def test_an_execution_trace_alone_keeps_order_and_data():
    tensor = [1, 2, 0, 6, 4, "cpu"]
    host = host_trace(
        [
            node(1, "[pytorch|profiler|execution_trace|process]"),
            node(4, "aten::b", rf=2, inputs={"values": [tensor]}, parent=2),
            node(3, "aten::a", rf=1, outputs={"values": [tensor]}, parent=2),
            node(5, "other thread", tid=2, rf=3, parent=2),
            node(6, "aten::c", rf=4, parent=2),
            node(2, "## forward ##"),
        ]
    )
    trace, facts = convert_host(host, sources=({"file": "h.json"},))
    assert rows(trace, "name", "ctrl_deps", "data_deps") == [
        ("## forward ##", [], []),
        ("aten::a", [0], []),
        ("aten::b", [1], [1]),
        ("other thread", [2], []),
        ("aten::c", [2], []),
    ]
    assert trace.nodes["type"].to_list() == [1, 4, 4, 4, 4]
    assert trace.nodes["parent"].to_list() == [None, 0, 0, 0, 0]
    assert trace.nodes["start_ns"].null_count() == 5
    assert trace.metadata.sources == ({"file": "h.json"},)
    assert facts.host_ops == 5
    assert facts.warnings[0].startswith("host-only trace without times")


def test_communications_of_an_execution_trace_alone():
    tensor = [[1, 2, 0, 4, 4, "cuda:0"]]
    kinds = ["GenericList[Tensor(float)]", "Int", "Tuple[String,String]", "Int", "String"]
    kinds += ["GenericList[]", "GenericList[]", "Int", "Int", "Int"]
    values = [tensor, 7, ["0", "dp"], 1, "allreduce", [], [], 0, 1, 2]
    waited = [7, ["0", "dp"], 1, "wait", [], [], 0, 1, 2]
    host = host_trace(
        [
            node(2, "c10d::allreduce_"),
            node(3, "record_param_comms", inputs={"values": values, "types": kinds}),
            node(4, "record_param_comms", inputs={"values": waited, "types": kinds[1:]}),
        ]
    )
    trace, facts = convert_host(host, sources=())
    assert facts.communications == 1
    row = trace.nodes.row(1, named=True)
    assert (row["type"], row["comm_type"], row["comm_size"], row["pg_name"]) == (7, 0, 16, "0")
    assert row["is_cpu_op"] is False
    assert trace.rank == 1
    assert trace.process_groups[0].ranks == (0, 1)


def test_c10d_calls_stand_in_for_records():
    tensors, kinds = [[1, 2, 0, 4, 2, "cpu"]], ["GenericList[Tensor(c10::Half)]"]
    host = host_trace(
        [
            node(2, "c10d::allreduce_", inputs={"values": [tensors, "<Object>"], "types": kinds}),
            node(3, "c10d::send", inputs={"values": [tensors, "<Object>", 3, 9], "types": kinds}),
        ]
    )
    trace, facts = convert_host(host, sources=())
    assert facts.communications == 2
    assert rows(trace, "type", "comm_type", "comm_size", "comm_dtype", "comm_dst", "comm_tag") == [
        (7, 0, 8, "c10::Half", None, None),
        (5, None, 8, "c10::Half", 3, 9),
    ]
    assert trace.nodes["is_cpu_op"].to_list() == [True, True]


def test_calls_that_coalesce_stand_in_and_those_that_meet_nobody_do_not():
    tensor, kind = [1, 2, 0, 4, 4, "cpu"], "GenericList[Tensor(float)]"
    call = {"values": [[tensor, tensor], [tensor], "<Object>"], "types": [kind, kind, "Object"]}
    host = host_trace(
        [
            node(2, "c10d::allgather_into_tensor_coalesced_", inputs=call),
            node(3, "c10d::check_for_nan", inputs={"values": [tensor], "types": ["Tensor(float)"]}),
            node(4, "c10d::wait"),
        ]
    )
    trace, facts = convert_host(host, sources=())
    assert facts.communications == 1
    assert rows(trace, "type", "comm_type", "comm_size") == [(7, 2, 16), (4, None, None), (4, None, None)]
