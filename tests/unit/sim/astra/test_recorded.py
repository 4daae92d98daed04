"""Recorded runs of ASTRA-sim itself, where they are: every rank's ticks, and every recorded node's, as integers."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from chakra_et.errors import SimulationError
from chakra_et.io import read
from chakra_et.ir import TraceSet
from chakra_et.sim.astra import AstraOptions, simulate_astra
from chakra_et.specs import read_astra_config
from tests.conftest import ROOT

FOLDER = ROOT.parent / "shared" / "oracle" / "astra-sim"
CASES = sorted(path.parent for path in FOLDER.glob("*/expected.json"))
pytestmark = pytest.mark.skipif(not CASES, reason="no recorded ASTRA-sim runs beside the repository")

# Recorded failures that work here, and when they end.
BETTER = {
    "fail_cpu_recv_last": 21_531,
    "fail_delay0_t0": 42_720,
    "fail_invalid_child": 6_000,
    "fail_metadata": 43_000,
    "group_singleton_hang": 0,
}
# The others give an error that names the cause.
CAUSES = {
    "fail_barrier": "got barrier",
    "fail_cpu_comm": "expected a collective on the device",
    "fail_cycle": "waits for it in a cycle of dependencies",
    "fail_dbt_nonpow2": "expected a power of two of ranks for doubleBinaryTree, got 6",
    "fail_empty": "expected nodes, got a trace without any",
    "fail_group_missing": "expected group 7 in the group file",
    "fail_hd_nonpow2": "expected a power of two of ranks for halvingDoubling, got 6",
    "fail_missing_parent": "expected its dependency 77 in the trace",
    "fail_multidim_aware": "expected a network of one dimension",
    "fail_order_mismatch": "must issue the same collectives in one order",
    "fail_reduce": "got reduce",
    "fail_roofline_noops": "expected num_ops and tensor_size",
}


def job(case, ranks):
    shared = case / "workload.et"
    if shared.exists():
        trace = read(shared)
        found = [trace] * ranks
    else:
        found = [read(case / f"workload.{rank}.et") for rank in range(ranks)]
    return TraceSet(tuple(replace(t, metadata=replace(t.metadata, rank=rank)) for rank, t in enumerate(found)))


def options_of(expected, backend, **more):
    given = dict(argument.lstrip("-").split("=") for argument in expected["extra_args"])
    return AstraOptions(
        backend=backend.removeprefix("congestion_"),
        queues_per_dim=int(given.get("num-queues-per-dim", 1)),
        injection_scale=float(given.get("injection-scale", 1)),
        rendezvous=given.get("rendezvous-protocol") == "true",
        **more,
    )


def run(case, backend, **more):
    expected = json.loads((case / "expected.json").read_text())
    groups = case / "comm_group.json"
    config = read_astra_config(
        case / "network.yml",
        case / "system.json",
        case / "memory.json",
        groups if groups.exists() else None,
        folder=case,
    )
    return simulate_astra(job(case, config.npus), config, options=options_of(expected, backend, **more))


def differences(case, backend, result):
    recorded = json.loads((case / "expected.json").read_text())["results"][backend]
    wrong = []
    for rank in result.ranks:
        want = recorded["ranks"].get(str(rank.rank), recorded["ranks"].get("*"))
        got = (rank.finish_ns, rank.exposed_communication_ns)
        if want is not None and got != (want["finished_cycles"], want["exposed_comm_cycles"]):
            wrong.append((rank.rank, got, want))
    for trace in result.traces:
        ticks = recorded.get("node_ticks", {})
        want = ticks.get(str(trace.rank), ticks.get("*", {}))
        ids, start = trace.nodes["id"].to_list(), trace.nodes["start_ns"].to_list()
        end = (trace.nodes["start_ns"] + trace.nodes["duration_ns"]).to_list()
        got = {str(node): [begin, last] for node, begin, last in zip(ids, start, end, strict=True)}
        wrong += [(trace.rank, node, got[node], pair) for node, pair in want.items() if got[node] != pair]
    return wrong


RUNS = [
    pytest.param(case, backend, id=f"{case.name}-{backend}")
    for case in CASES
    for backend in json.loads((case / "expected.json").read_text())["results"]
]


@pytest.mark.parametrize(("case", "backend"), RUNS)
def test_ticks(case, backend):
    if case.name in CAUSES:
        with pytest.raises(SimulationError) as caught:
            run(case, backend)
        assert CAUSES[case.name] in str(caught.value)
        return
    result = run(case, backend)
    if case.name in BETTER:
        assert result.finish_ns == BETTER[case.name]
        return
    assert differences(case, backend, result) == []


@pytest.mark.parametrize(("case", "backend"), RUNS)
def test_short_cuts_change_nothing(case, backend):
    if case.name in CAUSES or case.name in BETTER:
        pytest.skip("recorded as a failure")
    assert differences(case, backend, run(case, backend, fold="off", solve=False)) == []


def test_the_same_source_runs_uncompiled():
    case = FOLDER / "ar_2db_ring_localBWAware"
    command = [sys.executable, "-m", "chakra_et.cli", "simulate", str(case / "workload"), "--fold", "off", "--json"]
    for option, name in (("network", "network.yml"), ("system", "system.json"), ("memory", "memory.json")):
        command += [f"--{option}", str(case / name)]
    done = subprocess.run(
        command, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=True
    )
    recorded = json.loads((case / "expected.json").read_text())["results"]["congestion_unaware"]["ranks"]
    assert {rank["finish_ns"] for rank in json.loads(done.stdout)["ranks"]} == {
        entry["finished_cycles"] for entry in recorded.values()
    }
