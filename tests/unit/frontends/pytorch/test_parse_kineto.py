"""Kineto profiles of every age become the same columns."""

import json

import pytest

from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.parse_kineto import ANNOTATION, OPERATOR, RUNTIME, parse_kineto
from chakra_et.ir import ProcessGroup
from tests.unit.frontends.pytorch.profiles import call, event, kernel, op, profile

OP = op("aten::mm", 10, 5, rf=3, ext=5)


def starts(found):
    return found.host["start_ns"].to_list(), found.host["duration_ns"].to_list()


def test_whole_microseconds():
    found = profile([op("a", 1694039968000000, 7), kernel("k", 1694039968000003, 2, 1)])
    assert starts(found) == ([1694039968000000000], [7000])
    assert found.activities["start_ns"].to_list() == [1694039968000003000]
    assert found.resolution_ns == 1000


def test_microseconds_with_decimals_are_exact():
    text = (
        '{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1795973882902932.087,"dur":0.001}]}'
    )
    found = parse_kineto("p", text.encode())
    assert starts(found) == ([1795973882902932087], [1])
    assert found.resolution_ns == 1


def test_base_time_is_added():
    found = profile([op("a", 5.5, 1), kernel("k", 6, 1, 1)], baseTimeNanoseconds=1767189312000000000)
    assert starts(found)[0] == [1767189312000005500]
    assert found.activities["start_ns"].to_list() == [1767189312000006000]
    assert profile([OP], baseTimeNanoseconds="123").host["start_ns"].to_list() == [10_123]
    assert profile([OP], baseTimeNanoseconds=None).host["start_ns"].to_list() == [10_000]


def test_numbers_as_strings():
    found = profile(
        [
            {"ph": "X", "cat": "cpu_op", "name": "a", "pid": "41", "tid": "42", "ts": "10.25", "dur": "3",
             "args": {"External id": "9", "Record function id": "8", "Sequence number": "7", "Fwd thread id": "1"}},
            {"ph": "X", "cat": "kernel", "name": "k", "pid": "2", "tid": "7", "ts": "11", "dur": "1",
             "args": {"device": "2", "stream": "7", "correlation": "77"}},
        ]
    )  # fmt: skip
    row = found.host.row(0, named=True)
    assert (row["pid"], row["tid"], row["start_ns"], row["duration_ns"]) == (41, 42, 10_250, 3000)
    assert (row["external_id"], row["rf_id"], row["seq_id"], row["fw_tid"]) == (9, 8, 7, 1)
    assert found.activities.select("device", "stream", "correlation").row(0) == (2, 7, 77)


def test_threads_that_no_int64_holds_stay_apart():
    found = profile([op("a", 1, 1, tid=140215923324672), op("b", 2, 1, tid=2**64 - 1), op("c", 3, 1, tid=2**64 - 2)])
    assert found.host["tid"].n_unique() == 3


def test_host_events_and_their_arguments():
    found = profile(
        [
            op("aten::mm", 10, 5, rf=3, ext=5, **{"Input Dims": [[2, 3], []], "Input type": ["float", "Scalar"],
               "Concrete Inputs": ["", "1"], "Input Strides": [[3, 1], []], "Sequence number": 12}),
            event("user_annotation", "ProfilerStep#3", 9, 20),
            call("cudaLaunchKernel", 11, 2, 44),
            event("python_function", "f.py(1): g", 9, 20),
            event("gpu_user_annotation", "x", 9, 20),
            event("Trace", "PyTorch Profiler (0)", 0, 100),
        ]
    )  # fmt: skip
    assert found.host["kind"].to_list() == [OPERATOR, ANNOTATION, RUNTIME]
    row = found.host.row(0, named=True)
    assert json.loads(row["dims"]) == [[2, 3], []]
    assert json.loads(row["types"]) == ["float", "Scalar"]
    assert json.loads(row["values"]) == ["", "1"]
    assert json.loads(row["strides"]) == [[3, 1], []]
    assert (row["rf_id"], row["seq_id"], row["correlation"]) == (3, 12, -1)
    assert found.host["correlation"].to_list() == [-1, -1, 44]
    assert found.host["rf_id"].to_list() == [3, 0, 0]
    assert found.counts["python_function"] == found.counts["gpu_user_annotation"] == 1


def test_categories_of_older_profiles():
    device = [event("Kernel", "k", 3, 1), event("Memcpy", "Memcpy HtoD", 4, 1), event("Memset", "Memset", 5, 1)]
    found = profile([event("Operator", "a", 1, 1), event("Runtime", "cudaLaunchKernel", 2, 1), *device])
    assert found.host["kind"].to_list() == [OPERATOR, RUNTIME]
    assert found.activities["kind"].to_list() == [0, 1, 2]


def test_activities_and_their_arguments():
    nccl = {
        "Collective name": "allreduce", "In msg nelems": 512, "Out msg nelems": 512, "Group size": 2, "dtype": "Float",
        "In split size": "[]", "Out split size": "[]", "Process Group Name": "0", "Process Group Description": "dp",
        "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    found = profile([kernel("ncclDevKernel_AllReduce", 5, 2, 9, stream=20, device=3, **nccl),
                     event("gpu_memcpy", "Memcpy DtoH", 8, 1, pid=3, tid=7, bytes=64, kind="DtoH")])  # fmt: skip
    row = found.activities.row(0, named=True)
    expected = {"device": 3, "stream": 20, "correlation": 9, "in_elements": 512, "out_elements": 512, "group_size": 2}
    assert {name: row[name] for name in expected} == expected
    assert (row["collective"], row["dtype"], row["pg_name"], row["pg_desc"]) == ("allreduce", "Float", "0", "dp")
    assert json.loads(row["pg_ranks"]) == [0, 1]
    # Without arguments, the track tells device and stream.
    copy = found.activities.row(1, named=True)
    assert (copy["device"], copy["stream"], copy["bytes"], copy["copy"]) == (3, 7, 64, "DtoH")
    assert (copy["correlation"], copy["collective"], copy["src_rank"]) == (-1, None, -1)


def test_negative_streams_and_durations():
    found = profile([kernel("k", 5, -2, 9, stream=-1)])
    assert found.activities.select("stream", "duration_ns").row(0) == (-1, 0)
    assert found.repairs == ()


def test_times_below_zero_are_moved():
    found = profile([kernel("k", 5, 2, 9), op("a", -3, 1)])
    assert found.host["start_ns"].to_list() == [0]
    assert found.activities["start_ns"].to_list() == [8000]
    assert found.repairs == ("times begin below zero; they were moved to begin at zero",)
    assert profile([op("a", -3, 1)], baseTimeNanoseconds=10_000).host["start_ns"].to_list() == [7000]


@pytest.mark.parametrize(
    ("info", "rank", "world"),
    [
        ({"rank": 3, "world_size": 8}, 3, 8),
        ({"rank": "3", "world_size": "8"}, 3, 8),
        ({"backend": "nccl", "rank": 0}, 0, None),
        ({}, None, None),
        ({"rank": "x", "world_size": None}, None, None),
        ({"rank": True}, None, None),
        ("nccl", None, None),
        (None, None, None),
    ],
)
def test_ranks(info, rank, world):
    found = profile([OP], distributedInfo=info)
    assert (found.rank, found.world_size) == (rank, world)


GROUP = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        ([GROUP], (ProcessGroup("0", (0, 1), 2, "default_pg", "cuda:nccl"),)),
        (json.dumps([GROUP]), (ProcessGroup("0", (0, 1), 2, "default_pg", "cuda:nccl"),)),
        (str([GROUP]), (ProcessGroup("0", (0, 1), 2, "default_pg", "cuda:nccl"),)),
        ("broken [", ()),
        ([1, None], ()),
        (None, ()),
        ({}, ()),
    ],
)
def test_process_groups(config, groups):
    assert profile([OP], distributedInfo={"rank": 0, "pg_config": config}).process_groups == groups


def test_wait_records():
    wait = {"stream": 7, "device": 0, "correlation": 12, "cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 20,
            "wait_on_cuda_event_record_corr_id": 11, "wait_on_cuda_event_id": 3}  # fmt: skip
    found = profile([event("cuda_sync", "Stream Wait Event", 3, 1, **wait),
                     event("cuda_sync", "Context Sync", 4, 1, stream=4294967295, correlation=13)])  # fmt: skip
    assert found.syncs["sync_kind"].to_list() == ["Stream Wait Event", "Context Sync"]
    assert found.syncs["stream"].to_list() == [7, -1]
    assert found.syncs["wait_on_stream"].to_list() == [20, -1]
    assert found.syncs["wait_on_record"].to_list() == [11, -1]
    assert found.syncs["correlation"].to_list() == [12, 13]


def test_arrows_from_forward_to_backward():
    arrows = [{"ph": ph, "cat": "fwdbwd", "name": "fwdbwd", "id": 4, "pid": 1, "tid": tid, "ts": ts}
              for ph, tid, ts in (("s", 1, 10), ("f", 2, 30))]  # fmt: skip
    found = profile(
        [OP, *arrows, {"ph": "s", "cat": "ac2g", "id": 9, "pid": 1, "tid": 1, "ts": 11}], baseTimeNanoseconds=1
    )
    assert found.flows.rows() == [(4, True, 1, 1, 10_001), (4, False, 1, 2, 30_001)]


def test_module_frames():
    found = profile([OP, event("python_function", "nn.Module: Linear_3", 9, 9), event("python_function", "x.py", 1, 1)])
    assert found.frames.select("name", "start_ns").rows() == [("nn.Module: Linear_3", 9000)]


def test_records_that_cant_be_read_are_counted():
    text = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}, {"name": 5}, {}]}'
    found = parse_kineto("p", text)
    assert found.host.height == 1
    assert found.repairs == ("2 of 3 records could not be read and were dropped",)


@pytest.mark.parametrize("text", [b'{"traceEvents": []}', b"[]", b'{"traceEvents": [{}]}', b'{"traceEvents": [3]}'])
def test_nothing_recorded_is_refused(text):
    with pytest.raises(FormatError, match="p: expected trace events, got none"):
        parse_kineto("p", text)


def test_metadata_alone_is_a_profile_without_events():
    found = profile([{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}])
    assert (found.host.height, found.activities.height) == (0, 0)


def test_truncated_profiles_say_so():
    text = json.dumps({"traceEvents": [OP, OP]})[:-10]
    found = parse_kineto("p", text.encode())
    assert found.host.height == 1
    assert "truncated" in found.repairs[0]
