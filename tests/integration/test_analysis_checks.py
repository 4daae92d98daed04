"""Real jobs, looked at by hand: what their profiles say, worked out from the files or from what the models are.

Numbers that several things must agree on are preferred: a model's parameters, the shapes of a product, what the raw
events say of starts and ends.
"""

import functools
import gzip
import json
import tarfile
from itertools import pairwise

import polars as pl
import pytest

from chakra_et.analysis.analyze import analyze
from chakra_et.analysis.options import Options
from chakra_et.conversion import convert
from chakra_et.io import read_set
from chakra_et.specs import load_system
from tests.conftest import ROOT

TRACES = ROOT.parent / "shared" / "traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real profiles isn't there")

ASKED = ("iterations", "breakdown", "overlap", "comms", "skew", "kernels", "ops")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")
SIZES = ("span_ns", "busy_ns", "compute_ns", "communication_ns", "idle_ns")


@functools.cache
def traces(name):
    return convert(TRACES / name).traces


@functools.cache
def analyzed(name, *, system=None, **options):
    machine = None if system is None else load_system(system)
    return analyze(traces(name), only=ASKED, options=Options(system=machine, **options))


@functools.cache
def events(name):
    with gzip.open(TRACES / name) as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def only(table, *columns):
    assert table.height == 1
    return table.select(columns).row(0)


def texts(result):
    return [finding.text for finding in result.findings]


def raw_stretches(name):
    """Where each ProfilerStep begins on the device: the first start of what it launched; and the last end, in us."""
    calls = {event["args"]["correlation"]: event["ts"] for event in events(name)
             if event.get("cat") in RUNTIME and "correlation" in event.get("args", {})}  # fmt: skip
    work = [event for event in events(name) if event.get("cat") in DEVICE]
    steps = sorted(
        (event["ts"], event["dur"]) for event in events(name)
        if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    )  # fmt: skip
    own = [
        [event for event in work if begin <= calls.get(event["args"]["correlation"], -1) < begin + length]
        for begin, length in steps
    ]
    return [min(event["ts"] for event in each) for each in own] + [
        max(event["ts"] + event["dur"] for event in own[-1])
    ], [len(each) for each in own]


# ResNet-50, two A100, rank 0 ------------------------------------------------------------------------------------------

A100 = "kineto/nccl_2rank_a100.json.gz"


def test_a100_steps():
    table = analyzed(A100).iterations.table
    begins, counts = raw_stretches(A100)
    assert table.select("iteration", "chosen", "activities").rows() == [
        (4, False, counts[0]), (5, True, counts[1]), (6, False, counts[2]),
    ]  # fmt: skip
    spans = [(two - one) * 1000 for one, two in pairwise(begins)]
    assert table["span_ns"].to_list() == pytest.approx(spans, abs=1)
    assert texts(analyzed(A100).iterations) == ["a step takes 219.732 ms"]


def test_a100_waits_for_its_host():
    """Idle for 170 of 220 ms: launches end 168 ms after what ran before, added up over the raw gaps."""
    row = analyzed(A100).breakdown.table.row(0, named=True)
    assert (row["iteration"], row["span_ns"], row["idle_ns"]) == (5, 219_732_155, 170_003_229)
    begins, _ = raw_stretches(A100)
    low, high = begins[1], begins[2]
    calls = {event["args"]["correlation"]: event["ts"] + event["dur"] for event in events(A100)
             if event.get("cat") in RUNTIME and "correlation" in event.get("args", {})}  # fmt: skip
    late, free = 0.0, low
    for event in sorted((event for event in events(A100) if event.get("cat") in DEVICE), key=lambda one: one["ts"]):
        if low < event["ts"] <= high:
            late += max(min(event["ts"], calls[event["args"]["correlation"]]) - free, 0)
        free = max(free, event["ts"] + event["dur"])
    assert row["idle_host_bound_ns"] == pytest.approx(late * 1000, abs=1000)
    # What is left is the latency of a launch onto an idle device, about 2 us each.
    assert row["idle_launch_latency_ns"] + row["idle_unexplained_ns"] + row["idle_host_bound_ns"] == row["idle_ns"]
    assert texts(analyzed(A100).breakdown) == [
        "the device waits for the host to launch (host-bound): 76.5 % of the time, 168.083 ms of a rank's step at most"
    ]


def test_a100_communicates_its_gradients_once():
    """25,557,032 parameters of 4 bytes in five buckets, and the buffers of batch norm broadcast."""
    table = analyzed(A100).comms.table
    reduced = table.filter(comm_type="all_reduce")
    assert (reduced["count"].sum(), reduced["size_bytes"].sum()) == (5, 4 * 25_557_032)
    assert table.filter(comm_type="broadcast")["count"].sum() == 2
    assert table.select("pg_name", "axis", "group_size", "ranks", "lower_bound").unique().rows() == [
        ("0", "world", 2, 1, True)
    ]
    # Of two ranks: twice a half of the vector.
    assert (reduced["bus_bytes_per_s"] == reduced["algorithm_bytes_per_s"]).all()
    exposed, share = only(analyzed(A100).overlap.table, "exposed_communication_ns", "overlap_share")
    assert (exposed, round(share, 4)) == (10_539_609, 0.1431)
    assert analyzed(A100).skew.table.height == 0


def test_a100_kernels():
    table = analyzed(A100).kernels.table
    name, count, kind = table.select("name", "count", "kind").row(0)
    assert (name[:31], count, kind) == ("ncclKernel_AllReduce_RING_LL_Su", 5, "communication")
    # 53 batch norms forward and backward, and two more kernels.
    assert analyzed(A100).kernels.kinds.filter(kind="normalization")["count"].item() == 108
    assert "no operator's shapes were recorded" in analyzed(A100).ops.notes[-2]


# ResNet-18 in half precision, eight MI300X, rank 0 --------------------------------------------------------------------

MI300X = "kineto/resnet_8rank_mi300.json.gz"


def test_mi300x_steps():
    """968 activities of steps before run for the first 30 ms; each step launches 895 and takes 19 ms."""
    table = analyzed(MI300X, iteration="all").iterations.table
    begins, counts = raw_stretches(MI300X)
    assert counts == [895] * 3
    assert table["activities"].to_list() == counts
    spans = [(two - one) * 1000 for one, two in pairwise(begins)]
    assert table["span_ns"].to_list() == pytest.approx(spans, abs=500)
    # The host is faster: 16 to 17 ms.
    assert (table["host_span_ns"] < table["span_ns"]).all()


def test_mi300x_communicates():
    """11,689,512 parameters of 2 bytes in two buckets; three quarters of it nothing hides."""
    table = analyzed(MI300X).comms.table
    reduced = table.filter(comm_type="all_reduce")
    assert (reduced["count"].sum(), reduced["size_bytes"].sum()) == (2, 2 * 11_689_512)
    assert reduced["group_size"].unique().to_list() == [8]
    row = analyzed(MI300X).breakdown.table.row(0, named=True)
    assert tuple(row[name] for name in SIZES) == (18_982_928, 18_900_630, 6_354_816, 15_909_382, 82_298)
    assert texts(analyzed(MI300X).breakdown) == [
        "communication that no compute hides: 63.0 % of the time, 11.955 ms of a rank's step at most"
    ]
    name, count = analyzed(MI300X).kernels.table.select("name", "count").row(0)
    assert (name[:21], count) == ("ncclDevKernel_Generic", 4)


def test_mi300x_convolutions():
    """3 x 3, 512 to 512 channels, on ten images of 7 x 7: three times, and again as the backward pass recomputes."""
    table = analyzed(MI300X, system="mi300x-platform").ops.table
    row = table.filter(
        (pl.col("op") == "aten::miopen_convolution") & pl.col("shapes").str.starts_with("[[10,512,7,7],")
    )
    count, flop, time, share = only(row, "count", "flop_count", "total_ns", "peak_share")
    each = 2 * 10 * 7 * 7 * 512 * 512 * 9
    assert (count, flop) == (6, 6 * each)
    # In bf16, at 1,307.4 TFLOP/s.
    assert share == pytest.approx(6 * each / 1307.4e12 / (time / 1e9))
    assert only(row, "bound", "dtype") == ("compute", "bf16")


# A recommendation model in CUDA graphs, 16 A100, rank 0 ---------------------------------------------------------------

GRAPHS = "kineto/cuda_graph_16rank_a100.json.gz"


def test_cuda_graph_steps():
    """Steps 550 to 554: of the three in the middle, each begins where the one before ends."""
    table = analyzed(GRAPHS).iterations.table
    begins, _ = raw_stretches(GRAPHS)
    assert table["iteration"].to_list() == [550, 551, 552, 553, 554]
    assert table["chosen"].to_list() == [False, True, True, True, False]
    assert table["span_ns"].to_list() == [(two - one) * 1000 for one, two in pairwise(begins)]
    assert table.filter("chosen")["span_ns"].to_list() == [216_392_000, 216_331_000, 215_375_000]


def test_cuda_graph_times():
    """The device works for a third of the time; inside of a graph, no edge says what it waits for."""
    table = analyzed(GRAPHS).breakdown.table
    assert (table["busy_ns"] / table["span_ns"]).to_list() == pytest.approx([0.371, 0.342, 0.372], abs=0.001)
    assert (table["idle_unexplained_ns"] / table["idle_ns"]).min() > 0.94
    assert texts(analyzed(GRAPHS).breakdown)[0].startswith("the device is idle, and nothing in the trace says why: 60.")


def test_cuda_graph_communications():
    """15 a step, all in kernels of one name: the host's records tell which is which."""
    raw = sum("nccl" in event["name"] for event in events(GRAPHS) if event.get("cat") == "kernel")
    assert raw == 80
    counts = dict(analyzed(GRAPHS).comms.table.group_by("comm_type").agg(pl.col("count").sum()).iter_rows())
    assert counts == {"all_to_all": 27, "all_reduce": 6, "all_gather": 6, "reduce_scatter": 6}
    name, count = analyzed(GRAPHS).kernels.table.select("name", "count").row(0)
    assert (name[:28], count) == ("ncclKernel_SendRecv_RING_SIM", 45)
    # Gradients of the dense part: 1.8 GB a step in one all-reduce.
    largest = analyzed(GRAPHS).comms.table.sort("size_bytes", descending=True).row(0, named=True)
    assert (largest["comm_type"], largest["count"], largest["size_bytes"]) == ("all_reduce", 3, 3 * 1_791_693_584)
    assert largest["exposed_ns"] == largest["time_ns"]


def test_cuda_graph_copies_from_the_host_have_no_roofline():
    table = analyzed(GRAPHS, system="a100-dgx").ops.table
    copied = table.filter((pl.col("op") == "aten::copy_") & (pl.col("shapes") == "[[4096,2798],[4096,2798],[]]"))
    assert copied["bound"].to_list() == [None]


# One prefill of a model with experts, eight B200, rank 0 --------------------------------------------------------------

B200 = "kineto/eager_8rank_b200.json.gz"


def test_b200_is_one_prefill():
    row = analyzed(B200).iterations.table.row(0, named=True)
    assert (row["source"], row["kind"], row["context_requests"], row["context_tokens"]) == ("vllm", "prefill", 1, 888)
    assert row["activities"] == sum(event.get("cat") in DEVICE for event in events(B200)) == 929
    assert analyzed(B200).iterations.table.height == 1


def test_b200_communicates_twice_a_layer():
    """36 layers and the embedding: 73 all-reduces of 888 rows of bf16, 2,880 wide (padded to 3,072), none hidden."""
    table = analyzed(B200).comms.table
    count, size, axis, bandwidth = only(
        table.filter(comm_type="all_reduce"), "count", "size_bytes", "group_size", "bus_bytes_per_s"
    )
    assert (count, size) == (73, 2 * 888 * (37 * 2880 + 36 * 3072))
    # Symmetric memory names no group.
    assert (axis, bandwidth) == (None, None)
    assert only(analyzed(B200).overlap.table, "count", "overlap_ns") == (74, 0)


def test_b200_waits_for_its_host():
    """Launches return 70.7 of 84.5 ms after what ran before, added up over the raw gaps."""
    row = analyzed(B200).breakdown.table.row(0, named=True)
    assert (row["span_ns"], row["busy_ns"], row["memory_ns"]) == (84_487_178, 11_596_482, 802_844)
    assert texts(analyzed(B200).breakdown)[0].startswith("the device waits for the host to launch (host-bound): 83.7 %")


def test_b200_products():
    """[888, 2880] by [2880, 640] for each of 36 layers, at 410 of 2,250 TFLOP/s."""
    table = analyzed(B200, system="b200-dgx").ops.table
    row = table.filter(op="aten::addmm", shapes="[[640],[888,2880],[2880,640],[],[]]")
    assert only(row, "count", "flop_count", "bound", "dtype") == (36, 36 * 2 * 888 * 2880 * 640, "compute", "bf16")
    rate, share = only(row, "flop_per_s", "peak_share")
    assert (round(rate / 1e12), share) == (410, pytest.approx(rate / 2.25e15))
    name, share, ops = analyzed(B200).kernels.table.select("name", "share", "ops").row(0)
    assert (name[:28], round(share, 3), ops) == ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32", 0.273, "vllm::moe_forward")


# One decode step in a HIP graph, one MI300X ---------------------------------------------------------------------------

DECODE = "vllm-decode-hipgraph/graph_execution.json.gz"


def test_decode_is_one_step_of_32_requests():
    row = analyzed(DECODE).iterations.table.row(0, named=True)
    assert (row["source"], row["kind"], row["generation_requests"], row["generation_tokens"]) == (
        "vllm", "decode", 32, 32,
    )  # fmt: skip
    assert (row["context_requests"], row["span_ns"], row["activities"]) == (0, 10_743_181, 434)


def test_decode_keeps_its_device_busy():
    """One launch of a graph runs for 10 ms; nothing is communicated."""
    row = analyzed(DECODE).breakdown.table.row(0, named=True)
    assert (row["busy_ns"], row["communication_ns"]) == (10_717_708, 0)
    assert analyzed(DECODE).comms.notes[-1] == "no communication in the chosen iterations"
    kinds = analyzed(DECODE).kernels.kinds
    assert kinds.select("kind", "count").row(0) == ("gemm", 121)
    assert kinds["share"][0] == pytest.approx(0.771, abs=0.001)
    # Two products of experts in each of 24 layers take two thirds of the time.
    experts = analyzed(DECODE).kernels.table.filter(pl.col("name").str.starts_with("_matmul_ogs"))
    assert (experts["count"].to_list(), round(experts["share"].sum(), 3)) == ([24, 24], 0.656)


def test_decode_reads_the_vocabulary():
    """[32, 2880] by [2880, 201088] in bf16: 1.17 GB, that take 221 us at 5.3 TB/s, of 277."""
    table = analyzed(DECODE, system="mi300x-platform").ops.table
    row = table.filter(op="aten::mm")
    assert only(row, "shapes", "flop_count") == ("[[32,2880],[2880,201088]]", 2 * 32 * 2880 * 201_088)
    read, write = only(row, "read_bytes", "write_bytes")
    assert (read, write) == (2 * (32 * 2880 + 2880 * 201_088), 2 * 32 * 201_088)
    bound, share, time = only(row, "bound", "peak_share", "total_ns")
    assert (bound, time) == ("memory", 276_678)
    assert share == pytest.approx((read + write) / 5.3e12 / 276_678e-9)


# DLRM, eight V100, all ranks ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory):
    """The analyses of all ranks, and the raw NCCL kernels of each by start: (start, duration), us."""
    folder = tmp_path_factory.mktemp("dlrm")
    for kind in ("kineto", "pytorch_et"):
        with tarfile.open(TRACES / f"dlrm-8xv100/dlrm_{kind}.tar.gz") as bundle:
            bundle.extractall(folder, filter="data")
    raw = {}
    for path in folder.rglob("*.pt.trace.json"):
        profile = json.loads(path.read_text())
        kernels = [event for event in profile["traceEvents"] if "ncclKernel" in event.get("name", "")]
        raw[profile["distributedInfo"]["rank"]] = sorted((event["ts"], event["dur"]) for event in kernels)
    return analyze(convert([folder]).traces, only=ASKED), raw


def test_dlrm_arrivals(dlrm):
    """Rank 7 begins all but one of the exchanges last; the clocks are those of one server."""
    result, raw = dlrm
    meetings = result.skew.meetings
    assert meetings.height == 8
    for number, row in enumerate(meetings.sort("first_ns").iter_rows(named=True)):
        starts = {rank: kernels[number][0] for rank, kernels in raw.items()}
        last = sorted(starts.values())
        assert row["skew_ns"] == (last[-1] - last[0]) * 1000
        assert row["cost_ns"] == (last[-1] - last[-2]) * 1000
        assert row["last_rank"] == min(rank for rank, start in starts.items() if start == last[-1])
    late = result.skew.table.filter(pl.col("last_count") > 0)
    assert late.select("rank", "last_count", "cost_ns").rows() == [(4, 1, 14_000), (5, 2, 101_000), (7, 5, 1_309_000)]
    assert result.skew.clocks["offset_ns"].to_list() == [0] * 8
    assert texts(result.skew)[0].startswith(
        "rank 7 arrives last in 80.0 % of all_to_all of group 0; costs the others 1.300"
    )


def test_dlrm_transfers(dlrm):
    """The shortest of a meeting's kernels is that of the rank that waited for nobody."""
    result, raw = dlrm
    table = result.comms.table.filter(comm_type="all_to_all").sort("size_class_bytes")
    assert table["count"].to_list() == [1, 1, 1, 2]
    shortest = [min(kernels[number][1] for kernels in raw.values()) for number in range(8)]
    # By size: the second, third and fourth exchange; the first and sixth have 24,576 bytes.
    assert table["transfer_mean_ns"].to_list()[:3] == [shortest[number] * 1000 for number in (1, 2, 3)]
    assert table["transfer_mean_ns"][3] == (shortest[0] + shortest[5]) * 500
    assert table["size_bytes"].to_list() == [192, 1536, 13_568, 2 * 24_576]
    assert not result.comms.table["lower_bound"].any()
    # Nearly all of it is waiting.
    assert texts(result.comms)[0].startswith("99.5 % of the time in all_to_all of group 0 of 16.0 KiB and more")


def test_dlrm_exchanges_unevenly(dlrm):
    """In the fourth exchange each rank sends 96 to 1,664 numbers of 4 bytes to each; rank 3 gets 8 x 1,664 of them."""
    table = dlrm[0].comms.imbalance
    parts = [96, 224, 288, 1664, 592, 96, 192, 240]
    assert table["received_bytes"].to_list() == [8 * 4 * part for part in parts]
    assert table["sent_bytes"].to_list() == [4 * sum(parts)] * 8
    assert table["received_share"].max() == 1664 * 8 / sum(parts)
    assert "rank 3 receives 3.92 times the mean in uneven all-to-alls of group 0" in texts(dlrm[0].comms)


def test_dlrm_breakdown(dlrm):
    """Communications of a rank don't overlap: what they take is their sum."""
    result, raw = dlrm
    table = result.breakdown.table
    assert table["communication_ns"].to_list() == [
        1000 * sum(length for _, length in raw[rank]) for rank in range(8)
    ]  # fmt: skip
    assert (table["idle_host_bound_ns"] / table["idle_ns"]).min() > 0.9
    assert result.overlap.table["count"].to_list() == [8] * 8


# Everything -----------------------------------------------------------------------------------------------------------

PROFILES = sorted(
    str(path.relative_to(TRACES))
    for pattern in ("kineto/*.json.gz", "vllm-*/*.json.gz", "*/*_kineto.json.gz", "*/*_et.json.gz",
                    "pytorch-et-versions/*.json.gz", "megatron-*/*_kineto_0.json.gz")
    for path in TRACES.glob(pattern)
)  # fmt: skip
FOLDERS = ["gloo-coll4", "gloo-ddp2", "gloo-fsdp2", "gloo-pipe4", "megatron-tp8-a100", "simple-add-a100"]


def check_all(source):
    """All analyses of all iterations say what they find in plain numbers, and what they can't tell in words."""
    result = analyze(source, options=Options(iteration="all", system=load_system("h100-dgx")))
    json.dumps(result.as_dict(), allow_nan=False)
    for one in result.results.values():
        json.dumps(one.plot().as_dict(), allow_nan=False)
        assert one.table.height or one.notes


@pytest.mark.parametrize("name", PROFILES + FOLDERS)
def test_every_analysis_of_every_profile(name):
    check_all(traces(name))


def test_every_analysis_of_what_others_converted(tmp_path):
    with tarfile.open(TRACES / "chakra-et" / "resnet_et.tar.gz") as bundle:
        bundle.extractall(tmp_path, filter="data")
    (path,) = tmp_path.rglob("*.et")
    check_all(read_set(path))
