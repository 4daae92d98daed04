"""Real profiles of many versions, vendors and sizes, read from a folder beside the checkout.

What is expected comes from the files themselves, read plainly with `json`, or from what is known of the run.
"""

import functools
import gzip
import json
import re
import tarfile
from collections import Counter, defaultdict

import polars as pl
import pytest

from chakra_et.conversion import convert
from chakra_et.errors import InputError, MismatchError
from chakra_et.frontends.pytorch.convert import convert_rank
from chakra_et.frontends.pytorch.parse_et import parse_et
from chakra_et.frontends.pytorch.parse_kineto import parse_kineto
from chakra_et.ir import CommType, NodeType, build_graph
from chakra_et.passes.reconstruct import reconstruct
from tests.conftest import ROOT

TRACES = ROOT.parent / "shared" / "traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real profiles isn't there")

PROFILES = sorted(
    str(path.relative_to(TRACES))
    for pattern in ("kineto/*.json.gz", "vllm-*/*.json.gz", "*/*_kineto.json.gz", "megatron-*/*_kineto_0.json.gz")
    for path in TRACES.glob(pattern)
)
HOST_CATEGORIES = {"cpu_op", "Operator", "user_annotation", "cuda_runtime", "cuda_driver", "Runtime", "mtia_runtime"}
RUNTIME_CATEGORIES = {"cuda_runtime", "cuda_driver", "Runtime"}
DEVICE_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
COLL, SEND, RECV = (int(NodeType[f"COMM_{name}_NODE"]) for name in ("COLL", "SEND", "RECV"))
BYTES = {"Float": 4, "Long": 8, "Half": 2, "BFloat16": 2, "Int": 4}
NO_PROFILE = "host-only trace without times"


def load(name):
    with gzip.open(TRACES / name) as file:
        return json.load(file)


def events_of(name):
    profile = load(name)
    events = profile["traceEvents"] if isinstance(profile, dict) else profile
    return [event for event in events if event.get("ph") == "X"]


def check_graph(trace):
    """Ids are unique, every edge leads to a node, nothing waits for itself."""
    assert trace.nodes["id"].n_unique() == len(trace)
    graph = build_graph(trace)
    assert len(graph.dangling) == len(graph.self_edges) == 0
    assert reconstruct(trace).unscheduled == 0


def check_rank(facts):
    """The figures of a rank with times."""
    assert facts.device_nodes == facts.device_activities
    assert facts.linked == facts.linkable
    assert facts.start_error_ns["max"] <= 1000
    assert abs(facts.makespan_ns / facts.window_ns - 1) <= 0.001


@functools.cache
def converted(folder):
    return convert(TRACES / folder)


@pytest.fixture(scope="module")
def extracted(tmp_path_factory):
    @functools.cache
    def extract(archive):
        target = tmp_path_factory.mktemp("extracted")
        with tarfile.open(TRACES / archive) as bundle:
            bundle.extractall(target, filter="data")
        return target

    return extract


def communications(trace):
    return trace.nodes.filter(pl.col("type").is_in([COLL, SEND, RECV])).sort("start_ns", "id")


# One profile ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_convert_completely(name):
    events = events_of(name)
    activities = [event for event in events if event.get("cat") in DEVICE_CATEGORIES]
    launched = {event["args"].get("correlation") for event in events if event.get("cat") in RUNTIME_CATEGORIES}
    result = convert(device=TRACES / name)
    (trace,), (facts,) = result.traces, result.quality.ranks
    check_graph(trace)
    check_rank(facts)
    assert facts.device_activities == len(activities)
    assert facts.linkable == sum(event["args"].get("correlation", -1) in launched for event in activities)
    assert sorted(trace.nodes.filter(~pl.col("is_cpu_op"), trace.column("gap_kind").is_null())["name"]) == sorted(
        event["name"] for event in activities
    )
    shown = [event for event in events if event.get("cat") in HOST_CATEGORIES | DEVICE_CATEGORIES]
    begin = min(float(event["ts"]) for event in shown)
    end = max(float(event["ts"]) + float(event.get("dur", 0)) for event in shown)
    assert facts.window_ns == pytest.approx(1000 * (end - begin), abs=2000)


def test_nothing_of_a_graph_launch_is_lost():
    result = convert(device=TRACES / "vllm-decode-hipgraph" / "graph_execution.json.gz")
    (trace,), (facts,) = result.traces, result.quality.ranks
    assert facts.linked == facts.linkable == facts.device_activities == 434
    device = trace.nodes.filter(~pl.col("is_cpu_op"), trace.column("gap_kind").is_null())
    of_one_launch = device["correlation"].value_counts(sort=True)["count"][0]
    assert of_one_launch > 400
    host = trace.nodes.filter(pl.col("is_cpu_op"))["id"]
    assert device.filter(pl.col("ctrl_deps").list.set_intersection(host.implode()).list.len() > 0).height > 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [("mtia_inference", "another accelerator"), ("cpu_only_rank34_of_300", "no device activity")],
)
def test_profiles_without_devices_say_why(name, reason):
    result = convert(device=TRACES / "kineto" / f"{name}.json.gz")
    (trace,), (facts,) = result.traces, result.quality.ranks
    assert any("host-only trace" in warning and reason in warning for warning in facts.warnings)
    assert facts.device_nodes == 0
    assert len(trace) > 0
    check_graph(trace)
    assert name != "cpu_only_rank34_of_300" or trace.rank == 34


# Execution traces -----------------------------------------------------------------------------------------------------

VERSIONS = {
    "1.0.2_comms.tgz": "1.0.2",
    "1.0.3_resnet.json.gz": "1.0.3",
    "1.1.0_hf_gpt2.json.tar.gz": "1.1.0",
    "1.1.0_resnet_2gpu.json.gz": "1.1.0",
    "1.1.1_pt2_triton.json.tar.gz": "1.1.1",
    "1.1.1_resnet.json.tar.gz": "1.1.1",
}


@pytest.mark.parametrize("name", list(VERSIONS))
def test_execution_traces_alone(name, extracted):
    path = TRACES / "pytorch-et-versions" / name
    if not name.endswith(".json.gz"):
        folder = extracted(f"pytorch-et-versions/{name}")
        (path,) = (file for file in folder.rglob("*.json") if not file.name.startswith("._"))
    raw = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    assert raw["schema"].split("-")[0] == VERSIONS[name]
    result = convert(path)
    (trace,), (facts,) = result.traces, result.quality.ranks
    kept = [node for node in raw["nodes"] if not node["name"].startswith("[pytorch|profiler|")]
    assert len(trace) == facts.host_ops == len(kept)
    assert Counter(trace.nodes["name"]) == Counter(node["name"] for node in kept)
    records = [node for node in kept if node["name"] == "record_param_comms"]
    named = [next(v for v in node["inputs"]["values"] if isinstance(v, str)) for node in records]
    assert facts.communications == sum(kind != "wait" for kind in named)
    assert facts.unknown_communications == 0
    assert any(NO_PROFILE in warning for warning in facts.warnings)
    check_graph(trace)
    kinds = {"allreduce": CommType.ALL_REDUCE, "broadcast": CommType.BROADCAST, "all_gather": CommType.ALL_GATHER}
    assert Counter(communications(trace)["comm_type"] if records else []) == Counter(
        int(kinds[kind]) for kind in named if kind != "wait"
    )


def test_rank_of_an_execution_trace():
    result = convert(TRACES / "pytorch-et-versions" / "1.1.0_resnet_2gpu.json.gz")
    # Its broadcasts name the root, 0; its all-reduces name the rank.
    assert result.traces.ranks == (1,)


# Host and device of one rank ------------------------------------------------------------------------------------------


def test_matched_pair_of_two_a100():
    host = TRACES / "pytorch-et-versions" / "1.0.3_resnet.json.gz"
    device = TRACES / "kineto" / "nccl_2rank_a100.json.gz"
    result = convert(host=host, device=device)
    (trace,), (facts,) = result.traces, result.quality.ranks
    check_graph(trace)
    check_rank(facts)
    assert facts.host_ops_matched == 14_388
    assert trace.nodes["rf_id"].drop_nulls().n_unique() >= 14_388
    found = communications(trace)
    assert Counter(found["comm_type"]) == {int(CommType.ALL_REDUCE): 15, int(CommType.BROADCAST): 6}
    assert set(found["comm_root"].drop_nulls()) == {0}
    # Three accounts of every size: the kernel's arguments, the host's tensors, and the trace.
    events = [event for event in events_of("kineto/nccl_2rank_a100.json.gz") if event["cat"] == "kernel"]
    kernels = sorted((event for event in events if "Collective name" in event["args"]), key=lambda event: event["ts"])
    by_rf_id = {}
    for node in load("pytorch-et-versions/1.0.3_resnet.json.gz")["nodes"]:
        if node["name"] == "record_param_comms" and node["inputs"]["types"][0].startswith("GenericList[Tensor"):
            number = next(attr["value"] for attr in node["attrs"] if attr["name"] == "rf_id")
            by_rf_id[number] = sum(tensor[3] * tensor[4] for tensor in node["inputs"]["values"][0])
    rf_ids = dict(trace.nodes.select("id", "rf_id").rows())
    on_device = [event["args"]["In msg nelems"] * BYTES[event["args"]["dtype"]] for event in kernels]
    on_host = [by_rf_id[rf_ids[parent]] for parent in found["parent"]]
    assert len(on_device) == 21
    assert on_device == on_host == found["comm_size"].to_list()
    assert found["comm_dtype"].to_list() == [event["args"]["dtype"] for event in kernels]
    assert [(group.name, group.ranks) for group in trace.process_groups] == [("0", (0, 1))]


@pytest.mark.parametrize("name", ["linear-rtx2080ti/linear", "simple-add-a100/simple_add"])
def test_older_pairs_are_joined(name):
    result = convert(host=TRACES / f"{name}_et.json.gz", device=TRACES / f"{name}_kineto.json.gz")
    (trace,), (facts,) = result.traces, result.quality.ranks
    check_graph(trace)
    check_rank(facts)
    assert facts.host_ops_matched == facts.host_ops
    assert trace.nodes["op_schema"].null_count() < len(trace)


def test_another_run_is_refused():
    folder = TRACES / "resnet-rtx2080ti"
    with pytest.raises(InputError, match=r"expected the host side of the same run .* got another run's") as error:
        convert(host=folder / "resnet_et.json.gz", device=folder / "resnet_kineto.json.gz")
    assert "\n" not in str(error.value)


def test_another_rank_is_refused():
    folder = TRACES / "megatron-tp8-a100"
    with pytest.raises(InputError, match=r"expected the execution trace of rank 0.* got rank 1's"):
        convert(host=folder / "megatron_et_1.json.gz", device=folder / "megatron_kineto_0.json.gz")


def test_refusals_are_mismatches():
    folder = TRACES / "megatron-tp8-a100"
    profile = parse_kineto("p", gzip.decompress((folder / "megatron_kineto_3.json.gz").read_bytes()))
    host = parse_et("h", gzip.decompress((folder / "megatron_et_2.json.gz").read_bytes()))
    with pytest.raises(MismatchError):
        convert_rank(profile, host, sources=())


# All ranks ------------------------------------------------------------------------------------------------------------

# What each iteration of the run did on each rank: type, bytes, element type, group (ranks by name).
COLLECTIVES = [
    (CommType.ALL_REDUCE, 4 * 1024, "float", "world"),
    (CommType.ALL_REDUCE, 2 * 2048, "c10::BFloat16", "world"),
    (CommType.ALL_REDUCE, 4 * 65_536, "float", "world"),
    (CommType.ALL_REDUCE, 4 * 65_536, "float", "world"),
    (CommType.ALL_REDUCE, 4 * 65_536, "float", "world"),
    (CommType.ALL_REDUCE, 4 * 512, "float", "tp"),
    (CommType.ALL_REDUCE, 4 * 256, "float", "dp"),
    (CommType.BROADCAST, 4 * 128, "float", "world"),
    (CommType.REDUCE, 4 * 128, "float", "world"),
    (CommType.ALL_GATHER, 4 * 64, "float", "world"),
    (CommType.ALL_GATHER, 4 * 64, "float", "world"),
    (CommType.REDUCE_SCATTER, 4 * 128, "float", "world"),
    (CommType.GATHER, 4 * 16, "float", "world"),
    (CommType.SCATTER, 4 * 16, "float", "world"),
    (CommType.ALL_TO_ALL, 4 * 32, "float", "world"),
    (CommType.ALL_TO_ALL, 4 * 32, "float", "world"),
    (CommType.BARRIER, 0, None, "world"),
]


def members(trace):
    return {group.name: group.ranks for group in trace.process_groups}


def test_gloo_collectives_are_those_of_the_run():
    result = converted("gloo-coll4")
    assert result.failed == ()
    for rank, trace in zip(result.traces.ranks, result.traces, strict=True):
        tp, dp = ((0, 1), (2, 3))[rank // 2], ((0, 2), (1, 3))[rank % 2]
        groups = {"world": (0, 1, 2, 3), "tp": tp, "dp": dp}
        known = members(trace)
        found = communications(trace).filter(pl.col("type") == COLL)
        told = [
            (CommType(kind), size, dtype, known[group])
            for kind, size, dtype, group in found.select("comm_type", "comm_size", "comm_dtype", "pg_name").rows()
        ]
        expected = [(kind, size, dtype, groups[group]) for kind, size, dtype, group in COLLECTIVES]
        assert told == expected * 2
        rooted = found.filter(pl.col("comm_root").is_not_null())
        assert Counter(rooted["comm_type"]) == dict.fromkeys(
            map(int, (CommType.BROADCAST, CommType.REDUCE, CommType.GATHER, CommType.SCATTER)), 2
        )
        assert set(rooted["comm_root"]) == {0}
        sequence = found.group_by("pg_name").agg("comm_seq").rows()
        assert {known[name]: sorted(numbers) for name, numbers in sequence} == {
            (0, 1, 2, 3): list(range(30)),
            tp: [0, 1],
            dp: [0, 1],
        }


def test_gloo_rings_of_sends_and_receives():
    result = converted("gloo-coll4")
    for rank, trace in zip(result.traces.ranks, result.traces, strict=True):
        after, before = (rank + 1) % 4, (rank - 1) % 4
        found = communications(trace).filter(pl.col("type") != COLL)
        told = Counter(found.select("type", "comm_src", "comm_dst", "comm_tag", "comm_size", "comm_dtype").rows())
        assert told == {
            (SEND, rank, after, 7, 400, "float"): 2,
            (RECV, before, rank, 7, 400, "float"): 2,
            (SEND, rank, after, 0, 800, "float"): 2,
            (RECV, before, rank, 0, 800, "float"): 2,
        }


def test_gloo_communications_all_match():
    matching = converted("gloo-coll4").quality.matching
    # 15 on the world and one on each of four groups, in each of two iterations.
    assert (matching.collectives, matching.complete, matching.mismatched) == (38, 38, 0)
    assert (matching.sends, matching.receives, matching.paired) == (16, 16, 16)
    assert matching.findings == ()


@pytest.mark.parametrize("folder", ["gloo-coll4", "gloo-pipe4", "gloo-ddp2", "gloo-fsdp2"])
def test_gloo_sets_are_whole_and_share_a_clock(folder):
    result = converted(folder)
    assert result.failed == ()
    for trace, facts in zip(result.traces, result.quality.ranks, strict=True):
        check_graph(trace)
        check_rank(facts)
        assert facts.host_ops_matched == facts.host_ops
        assert facts.unknown_communications == 0
        found = communications(trace)
        assert found["comm_size"].null_count() == found["pg_name"].null_count() == 0
        assert found["is_cpu_op"].all()
        assert (found["wait_ns"] + found["transfer_ns"] == found["duration_ns"]).all()
    matching = result.quality.matching
    assert matching.complete == matching.collectives
    assert matching.paired == matching.sends == matching.receives
    assert matching.findings == ()
    # The ranks ran on one machine.
    assert set((matching.clock_offsets_ns or {}).values()) == {0}


def test_gloo_pipeline_peers_and_tags():
    result = converted("gloo-pipe4")
    told = Counter()
    for trace in result.traces:
        sends = communications(trace).filter(pl.col("type") == SEND)
        told += Counter(sends.select("comm_src", "comm_dst", "comm_tag", "comm_size").rows())
    up = {(rank, rank + 1, batch, 4096): 3 for rank in range(3) for batch in range(4)}
    down = {(rank + 1, rank, 100 + batch, 4096): 3 for rank in range(3) for batch in range(4)}
    assert told == up | down


def records_of(raw, kinds):
    """Bytes of the input tensors of the communications in an execution trace of schema 1.0.1, by kind."""
    found = defaultdict(list)
    for node in sorted(raw["nodes"], key=lambda node: node["id"]):
        if node["name"] != "record_param_comms" or "Tensor" not in node["input_types"][0]:
            continue
        name = next(value for value in node["inputs"] if isinstance(value, str))
        tensors = node["inputs"][0] if isinstance(node["inputs"][0][0], list) else [node["inputs"][0]]
        if name in kinds and node["inputs"][-1] != 1:
            found[kinds[name]].append(sum(tensor[3] * tensor[4] for tensor in tensors))
    return dict(found)


def by_kind(found):
    sizes = defaultdict(list)
    for kind, size in found.select("comm_type", "comm_size").rows():
        sizes[CommType(kind)].append(size)
    return dict(sizes)


def test_megatron_on_eight_ranks():
    result = converted("megatron-tp8-a100")
    assert result.failed == ()
    assert result.traces.ranks == tuple(range(8))
    for rank, trace, facts in zip(range(8), result.traces, result.quality.ranks, strict=True):
        assert {re.search(r"(\d)\.json", source).group(1) for source in facts.sources} == {str(rank)}
        check_graph(trace)
        check_rank(facts)
        assert (facts.device_activities, facts.communications, facts.unknown_communications) == (777, 84, 0)
        assert facts.host_ops_matched == facts.host_ops == 5_422
        told = by_kind(communications(trace))
        raw = load(f"megatron-tp8-a100/megatron_et_{rank}.json.gz")
        assert told == records_of(raw, {"allreduce": CommType.ALL_REDUCE})
        assert len(told[CommType.ALL_REDUCE]) == 84
        assert members(trace)[communications(trace)["pg_name"][0]] == tuple(range(8))
    matching = result.quality.matching
    assert (matching.collectives, matching.complete, matching.mismatched) == (84, 84, 0)
    assert matching.findings == ()


def test_dlrm_on_eight_ranks(extracted):
    folders = [extracted(f"dlrm-8xv100/dlrm_{kind}.tar.gz") for kind in ("kineto", "pytorch_et")]
    result = convert(folders)
    assert result.failed == ()
    assert result.traces.ranks == tuple(range(8))
    hosts = {int(path.stem[-1]): json.loads(path.read_bytes()) for path in folders[1].rglob("dlrm_eg_*.json")}
    kinds = {"all_to_all": CommType.ALL_TO_ALL, "all_to_allv": CommType.ALL_TO_ALL, "allreduce": CommType.ALL_REDUCE}
    for rank, trace, facts in zip(range(8), result.traces, result.quality.ranks, strict=True):
        check_graph(trace)
        check_rank(facts)
        assert (facts.communications, facts.unknown_communications) == (8, 0)
        assert facts.host_ops_matched == facts.host_ops == 1_672
        assert by_kind(communications(trace)) == records_of(hosts[rank], kinds)
        assert members(trace)[communications(trace)["pg_name"][0]] == tuple(range(8))
    matching = result.quality.matching
    assert (matching.collectives, matching.complete, matching.mismatched) == (8, 8, 0)
