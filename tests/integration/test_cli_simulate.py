"""`chakra simulate`: what it prints, writes and returns, and how it refuses."""

import os

import pytest

from chakra_et.io import read_set, write_set
from tests.unit.sim.astra.jobs import collective, each

ASTRA_SIM = os.environ.get("CHAKRA_ASTRA_SIM")


@pytest.fixture(scope="module")
def exported(converted, chakra, tmp_path_factory):
    """The sample as ASTRA-sim's input."""
    folder = tmp_path_factory.mktemp("exported") / "astra"
    assert chakra("export", converted, "--to", "astra-sim", "-o", folder).code == 0
    return folder


def machine(folder):
    names = {"network": "network.yml", "system": "system.json", "memory": "memory.json", "groups": "comm_group.json"}
    return [word for option, name in names.items() for word in (f"--{option}", folder / name)]


def test_measured_rebuilds_each_step(converted, chakra):
    found = chakra("simulate", converted, "--comm", "measured", "--json").json
    assert found["measured_ns"] == found["finish_ns"]
    assert [one["finish_ns"] for one in found["iterations"]] == [one["measured_ns"] for one in found["iterations"]]
    assert found["mean_ns"] == sum(one["finish_ns"] for one in found["iterations"]) / 2
    for rank in found["ranks"]:
        assert rank["finish_ns"] == rank["measured_finish_ns"]
        assert 0 <= rank["exposed_communication_ns"] <= rank["communication_ns"] <= rank["finish_ns"]
    assert found["groups"][0]["comm_type"] == "all_reduce"
    assert found["folded_classes"] == 2
    text = chakra("simulate", converted, "--comm", "measured").out
    assert "Step time: " in text
    assert "simulated / recorded: 1.0000." in text
    assert max(map(len, text.splitlines()[:20])) <= 120


def test_a_machine_and_changes_of_it(converted, chakra):
    slow, fast = (
        chakra("simulate", converted, "--system", "ethernet", "--set", f"scale_up.bandwidth={value}", "--json").json
        for value in ("0.001GB/s", "100GB/s")
    )
    assert fast["finish_ns"] < slow["finish_ns"]
    assert "scale_up" in slow["bounds"]


def test_scales_and_delays(converted, chakra):
    plain, scaled, late = (
        chakra("simulate", converted, "--comm", "measured", "--iteration", "all", "--json", *more).json
        for more in ((), ("--scale", "comm=3", "--scale", "*=1.5"), ("--delay", "1=30ms"))
    )
    assert scaled["finish_ns"] > plain["finish_ns"]
    assert late["ranks"][1]["start_ns"] == plain["ranks"][1]["start_ns"] + 30_000_000
    assert late["finish_ns"] > plain["finish_ns"]


def test_simulated_traces_are_written(converted, chakra, tmp_path):
    run = chakra("simulate", converted, "--comm", "measured", "--iteration", "all", "-o", tmp_path / "sim")
    assert run.out.count("Wrote ") == 2
    for before, after in zip(read_set(str(converted)), read_set(str(tmp_path / "sim")), strict=True):
        assert before.nodes["id"].equals(after.nodes["id"])
        assert before.nodes["duration_ns"].equals(after.nodes["duration_ns"])
    assert chakra("simulate", converted, "--comm", "measured", "-o", tmp_path / "sim").code == 1


def test_prefix_or_folder_is_the_same_to_astra_sims_rules(exported, chakra):
    by_prefix = chakra("simulate", exported / "trace", *machine(exported), "--nodes", "--json").json
    by_folder = chakra("simulate", exported, *machine(exported), "--nodes", "--json").json
    assert by_prefix == by_folder
    rank = by_prefix["ranks"][1]
    assert rank["exposed_communication_ns"] == rank["finish_ns"] - rank["compute_ns"]
    assert max(node["end_ns"] for node in rank["nodes"]) == rank["finish_ns"]
    aware = chakra("simulate", exported, *machine(exported), "--backend", "aware", "--json").json
    assert aware["finish_ns"] >= by_prefix["finish_ns"] - 1000


def test_who_waits_for_whom(chakra, tmp_path):
    whole = each(2, lambda builder, rank: collective(builder, "all_reduce", 4096 + rank))
    write_set(whole, tmp_path / "two")
    run = chakra("simulate", tmp_path / "two", "--system", "h100-dgx")
    assert (run.code, run.out) == (1, "")
    assert run.err.startswith("chakra: error: ")
    assert "4,096 bytes" in run.err
    assert "4,097 bytes" in run.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--set", "scale_up.size=4"], "expected a system to change, got none"),
        (["--memory", "m.json"], "--memory: expected --network beside it"),
        (["--network", "n.yml"], "expected ASTRA-sim's system file beside it"),
        (["--network", "n.yml", "--system", "s.json", "--scale", "comm=2"], "expected no --set, --comm"),
        (["--comm", "native"], "expected a system to run on, got none"),
        (["--system", "h100"], "h100"),
        (["--iteration", "99", "--comm", "measured"], "expected an iteration that is marked on every rank"),
        (["--engine", "astra-sim"], "expected --astra-binary beside it"),
        (["--engine", "astra-sim", "--astra-binary", "/nowhere/x"], "/nowhere/x: expected ASTRA-sim's program"),
    ],
)
def test_refusals(converted, chakra, more, words):
    run = chakra("simulate", converted, *more)
    assert (run.code, run.out) == (1, "")
    assert words in run.err
    assert run.err.startswith("chakra: error: ")


@pytest.mark.parametrize("word", ["--scale=gemm", "--scale=gemm=-1", "--delay=x=2ms", "--set=a", "--iteration=-3"])
def test_usage(converted, chakra, word):
    assert chakra("simulate", converted, word).code == 2


@pytest.mark.skipif(not ASTRA_SIM, reason="CHAKRA_ASTRA_SIM doesn't name ASTRA-sim's program")
def test_hand_off(converted, exported, chakra, tmp_path):
    run = chakra(
        "simulate", exported, *machine(exported), "--engine", "astra-sim", "--astra-binary", ASTRA_SIM,
        "-o", tmp_path / "run", "--nodes", "--json",
    )  # fmt: skip
    assert run.code == 0, run.err
    assert run.json["equal"]
    own = chakra("simulate", exported, *machine(exported), "--json").json
    assert run.json["finish_ns"] == own["finish_ns"]
    again = chakra("simulate", converted, "--engine", "astra-sim", "--astra-binary", ASTRA_SIM, "-o", tmp_path / "x")
    assert "Both say the same." in again.out
