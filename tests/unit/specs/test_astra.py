"""ASTRA-sim's configuration files: read as ASTRA-sim reads them, written so that reading gives the same back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chakra_et.errors import FormatError, InputError, OutputError
from chakra_et.specs.astra import AstraConfig, read_astra_config, read_per_node_custom, write_astra_config
from tests.conftest import ROOT

ORACLE = ROOT.parent / "shared" / "oracle" / "astra-sim"
NETWORK = "topology: [ Ring, Switch ]\nnpus_count: [ 4, 8 ]\nbandwidth: [ 100.0, 25 ]\nlatency: [ 500, 1234.75 ]\n"
LISTS = {
    "all-reduce-implementation": ["ring", "direct3"],
    "all-gather-implementation": ["halvingDoubling", "doubleBinaryTree"],
    "reduce-scatter-implementation": ["oneRing", "oneDirect2"],
    "all-to-all-implementation": ["direct", "oneHalvingDoubling"],
}
PLAIN = AstraConfig(("Ring", "Switch"), (4, 8), (100.0, 25.0), (500.0, 1234.75))
FULL = replace(
    PLAIN,
    all_reduce=("ring", "direct3"),
    all_gather=("halvingDoubling", "doubleBinaryTree"),
    reduce_scatter=("oneRing", "oneDirect2"),
    all_to_all=("direct", "oneHalvingDoubling"),
    all_reduce_custom="algo",
    all_gather_custom="other/algo",
    reduce_scatter_custom="rs",
    all_to_all_custom="a2a",
    per_node_custom="pernode.yml",
    collective_optimization="localBWAware",
    endpoint_delay=7,
    active_chunks=2,
    splits=4,
    local_mem_bw=900.5,
    peak_perf=312.0,
    roofline=True,
    replay_only=True,
    track_local_mem=True,
    scheduling_policy="EXPLICIT",
    memory_type="PER_NODE_MEMORY_EXPANSION",
    remote_mem_latency=100,
    remote_mem_bw=50,
    num_nodes=2,
    num_npus_per_node=16,
    groups=((1, (3, 0, 2, 1)), (99, (31,))),
)


def read(place, *, network=NETWORK, system=None, memory=None, groups=None, **options):
    texts = {
        "network.yml": network,
        "system.json": json.dumps(LISTS if system is None else system) if not isinstance(system, str) else system,
        "memory.json": None if memory is None else json.dumps(memory),
        "comm_group.json": None if groups is None else json.dumps(groups),
    }
    paths = []
    for name, text in texts.items():
        paths.append(None if text is None else place / name)
        if text is not None:
            (place / name).write_text(text)
    return read_astra_config(*paths, **options)


def test_defaults(tmp_path):
    assert read(tmp_path, system={}) == PLAIN
    assert PLAIN.npus == 32


def test_everything(tmp_path):
    system = {
        **LISTS,
        "all-reduce-implementation-custom": ["algo"],
        "all-gather-implementation-custom": ["other/algo"],
        "reduce-scatter-implementation-custom": ["rs"],
        "all-to-all-implementation-custom": ["a2a"],
        "per-node-custom-implementation": "pernode.yml",
        "collective-optimization": "localBWAware",
        "endpoint-delay": 7.9,
        "active-chunks-per-dimension": 2,
        "preferred-dataset-splits": 4,
        "local-mem-bw": 900.5,
        "peak-perf": 312,
        "roofline-enabled": 1,
        "replay-only": 1,
        "track-local-mem": True,
        "local-mem-trace-filename": "mt",
        "trace-enabled": 1,
        "scheduling-policy": "EXPLICIT",
        "boost-mode": 0,
        "intra-dimension-scheduling": "FIFO",
        "model-shared-bus": 0,
        "nonsense": [],
    }
    memory = {
        "memory-type": "PER_NODE_MEMORY_EXPANSION",
        "remote-mem-latency": 100.7,
        "remote-mem-bw": 50.9,
        "num-nodes": 2,
        "num-npus-per-node": 16,
    }
    config = read(tmp_path, system=system, memory=memory, groups={"1": [3, 0, 2, 1], "99": [31]}, folder="x")
    assert config == FULL
    assert config.ignored == ("boost-mode", "intra-dimension-scheduling", "nonsense")
    assert config.folder == Path("x")
    assert config.resolve("algo") == Path("x/algo")
    assert config.resolve("/abs/algo") == Path("/abs/algo")


def test_paths_start_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read(tmp_path).resolve("algo") == tmp_path / "algo"
    assert PLAIN.resolve("algo") == Path("algo")


def test_numbers_that_yaml_takes_for_text(tmp_path):
    assert read(tmp_path, network=NETWORK.replace("500", "5e2")) == read(tmp_path)


def test_a_name_with_empty_in_it_means_no_groups(tmp_path):
    (tmp_path / "network.yml").write_text(NETWORK)
    (tmp_path / "system.json").write_text("{}")
    config = read_astra_config(tmp_path / "network.yml", tmp_path / "system.json", None, "empty")
    assert config.groups == ()


@pytest.mark.parametrize("config", [PLAIN, FULL], ids=["plain", "full"])
def test_written_files_give_the_same_back(config, tmp_path):
    paths = write_astra_config(config, tmp_path / "new")
    assert [path.name for path in paths] == ["network.yml", "system.json", "memory.json", "comm_group.json"][
        : 3 + bool(config.groups)
    ]
    assert read_astra_config(*paths) == config


def test_nothing_is_overwritten_unasked(tmp_path):
    (tmp_path / "memory.json").write_text("mine")
    with pytest.raises(OutputError, match=r"memory\.json: expected a new file, got an existing one"):
        write_astra_config(PLAIN, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["memory.json"]
    write_astra_config(PLAIN, tmp_path, force=True)
    assert json.loads((tmp_path / "memory.json").read_text()) == {"memory-type": "NO_MEMORY_EXPANSION"}


def test_what_cannot_be_read_back_is_not_written(tmp_path):
    with pytest.raises(InputError, match=r"network\.yml: bandwidth: expected 2 entries as in topology"):
        write_astra_config(replace(PLAIN, bandwidth=(1.0,)), tmp_path)
    with pytest.raises(InputError, match=r"comm_group\.json: 1: expected a list of ranks below 32, got \[32\]"):
        write_astra_config(replace(PLAIN, groups=((1, (32,)),)), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[ Ring, Switch ]", "Ring", "topology: expected a list of texts, got 'Ring'; write a list with one entry"),
        ("[ Ring, Switch ]", "[]", "topology: expected a list of Ring, FullyConnected, Switch, got []"),
        ("Switch", "Torus", "topology: expected a list of Ring, FullyConnected, Switch, got ['Ring', 'Torus']"),
        ("[ 4, 8 ]", "32", "npus_count: expected a list of numbers, got 32; write a list with one entry"),
        ("[ 4, 8 ]", "[ 4, 1 ]", "npus_count: expected integers of 2 or more, got [4, 1]"),
        ("[ 4, 8 ]", "[ 4, 2.5 ]", "npus_count: expected integers of 2 or more, got [4, 2.5]"),
        ("[ 4, 8 ]", "[ 4, 8, 2 ]", "npus_count: expected 2 entries as in topology, got [4, 8, 2]"),
        ("bandwidth: [ 100.0, 25 ]", "", "bandwidth: expected a list of numbers, got nothing"),
        ("25 ]", "fast ]", "bandwidth: expected a list of numbers, got [100.0, 'fast']"),
        ("25 ]", "0 ]", "bandwidth: expected numbers above 0, got [100.0, 0]"),
        ("25 ]", ".nan ]", "bandwidth: expected a list of numbers, got [100.0, nan]"),
        ("25 ]", "true ]", "bandwidth: expected a list of numbers, got [100.0, True]"),
        ("500", "-1", "latency: expected numbers of 0 or more, got [-1, 1234.75]"),
        (NETWORK, "[1, 2]", "expected keys with values, got [1, 2]"),
        (NETWORK, "", "expected keys with values, got null"),
        (NETWORK, "1: 2", "expected text as keys, got 1"),
        (NETWORK, "a: [", "expected YAML, got an error"),
    ],
)
def test_wrong_networks(before, after, message, tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path, network=NETWORK.replace(before, after))
    assert str(caught.value).startswith(f"{tmp_path / 'network.yml'}: {message}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"all-reduce-implementation": "ring"}, "all-reduce-implementation: expected a list of texts, got 'ring'"),
        (
            {"all-reduce-implementation": ["Ring"]},
            "all-reduce-implementation: expected a list of ring, direct, directN",
        ),
        ({"all-gather-implementation": ["direct0"]}, "all-gather-implementation: expected a list of ring"),
        ({"all-to-all-implementation": ["ring"] * 3}, "all-to-all-implementation: expected at most 2 entries"),
        ({"all-reduce-implementation-custom": []}, "all-reduce-implementation-custom: expected a list with one prefix"),
        ({"all-reduce-implementation-custom": "a"}, "all-reduce-implementation-custom: expected a list of texts"),
        ({"per-node-custom-implementation": ""}, "per-node-custom-implementation: expected the path of a YAML file"),
        ({"collective-optimization": "best"}, "collective-optimization: expected one of baseline, localBWAware"),
        ({"scheduling-policy": "RANDOM"}, "scheduling-policy: expected one of LIFO, FIFO, EXPLICIT, got 'RANDOM'"),
        ({"endpoint-delay": -1}, "endpoint-delay: expected an integer from 0 to 2147483647, got -1"),
        ({"endpoint-delay": "10"}, "endpoint-delay: expected an integer from 0 to 2147483647, got '10'"),
        ({"active-chunks-per-dimension": 0}, "active-chunks-per-dimension: expected an integer from 1"),
        ({"preferred-dataset-splits": 1e300}, "preferred-dataset-splits: expected an integer from 0"),
        ({"local-mem-bw": -1}, "local-mem-bw: expected a number of 0 or more, got -1"),
        ({"peak-perf": None}, "peak-perf: expected a number of 0 or more, got null"),
        ({"roofline-enabled": "yes"}, "roofline-enabled: expected 0 or 1, got 'yes'"),
        ({"model-shared-bus": 1}, "model-shared-bus: expected 0, got 1; a bus shared"),
        ('{"local-mem-bw": NaN}', "local-mem-bw: expected a number of 0 or more, got nan"),
        ("{", "expected JSON, got an error"),
        ("[" * 100_000, "expected JSON, got an error"),
    ],
)
def test_wrong_systems(values, message, tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path, system=values)
    assert str(caught.value).startswith(f"{tmp_path / 'system.json'}: {message}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"memory-type": "FAST"}, "memory-type: expected one of NO_MEMORY_EXPANSION, PER_NPU"),
        ({"memory-type": "MEMORY_POOL"}, "remote-mem-bw: expected an integer from 1 to 2147483647, got nothing"),
        ({"memory-type": "MEMORY_POOL", "remote-mem-bw": 0.5}, "remote-mem-bw: expected an integer from 1"),
        (
            {"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-bw": 1, "num-nodes": 2},
            "num-npus-per-node: expected an integer from 1 to 2147483647, got nothing",
        ),
    ],
)
def test_wrong_memories(values, message, tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path, memory=values)
    assert str(caught.value).startswith(f"{tmp_path / 'memory.json'}: {message}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"0": [1]}, "expected positive integers as group ids, got '0'"),
        ({"dp": [1]}, "expected positive integers as group ids, got 'dp'"),
        ({"01": [1]}, "expected positive integers as group ids, got '01'"),
        ({"1": []}, "1: expected a list of ranks below 32, got []"),
        ({"1": [32]}, "1: expected a list of ranks below 32, got [32]"),
        ({"1": [True]}, "1: expected a list of ranks below 32"),
        ({"1": [1, 1]}, "1: expected each rank once, got [1, 1]"),
        ([[0, 1]], "expected keys with values, got [[0, 1]]"),
    ],
)
def test_wrong_groups(values, message, tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path, groups=values)
    assert str(caught.value).startswith(f"{tmp_path / 'comm_group.json'}: {message}")


def test_a_value_too_large_to_print(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    with pytest.raises(InputError, match=r"topology: expected a list of texts, got \[\[\["):
        read(tmp_path, network="\n".join([*lines, "topology: *a19"]))


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match=r"network\.yml: expected a file, got nothing of that name"):
        read_astra_config(tmp_path / "network.yml", tmp_path / "system.json")
    with pytest.raises(InputError, match="expected a file, got a directory"):
        read_astra_config(tmp_path, tmp_path / "system.json")
    (tmp_path / "network.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="expected text in UTF-8, got other bytes at 0"):
        read_astra_config(tmp_path / "network.yml", tmp_path / "system.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- algo", "expected node ids with prefixes, got ['algo']"),
        ("x: algo", "expected node ids, got 'x'"),
        ("-1: algo", "expected node ids, got -1"),
        ("2: 3", "2: expected the prefix of traces, got 3"),
        ("2: [", "expected YAML, got an error"),
    ],
)
def test_wrong_custom_collectives(text, message, tmp_path):
    path = tmp_path / "pernode.yml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_per_node_custom(replace(PLAIN, per_node_custom="pernode.yml", folder=tmp_path))
    assert str(caught.value).startswith(f"{path}: {message}")


def test_no_custom_collectives():
    assert read_per_node_custom(PLAIN) == {}


@pytest.mark.skipif(not ORACLE.is_dir(), reason=f"{ORACLE} isn't there")
def test_every_recorded_case(tmp_path):
    folders = sorted(path.parent for path in ORACLE.glob("*/network.yml"))
    assert len(folders) >= 100
    for folder in folders:
        groups = folder / "comm_group.json"
        paths = [folder / "network.yml", folder / "system.json", folder / "memory.json"]
        config = read_astra_config(*paths, groups if groups.exists() else None, folder=folder)
        assert config.npus == json.loads((folder / "expected.json").read_text())["npus"], folder
        assert set(config.ignored) <= {"boost-mode"}
        assert read_astra_config(*write_astra_config(config, tmp_path / folder.name)) == config
        prefixes = {config.all_reduce_custom, *read_per_node_custom(config).values()} - {None}
        assert all(config.resolve(f"{prefix}.0.et").is_file() for prefix in prefixes)
