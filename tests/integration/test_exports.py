"""Converted profiles, sliced, repaired and exported: the bundled sample, and real sets where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakra_et.conversion import convert
from chakra_et.ir import TraceSet
from chakra_et.passes.reconstruct import reconstruct
from chakra_et.passes.repair import repair
from chakra_et.passes.select import iterations, select_iteration, select_time
from chakra_et.reports.perfetto import perfetto_chunks
from chakra_et.sim.astra_sim import export_astra_sim
from chakra_et.validation import validate
from tests.unit.reports.test_perfetto import Parsed
from tests.unit.sim.astra_check import Workload

SETS = ("sample", "gloo-coll4", "gloo-pipe4", "gloo-ddp2", "gloo-fsdp2", "megatron-tp8-a100")


@pytest.fixture(scope="module", params=SETS)
def traces(request: pytest.FixtureRequest, repository: Path, sample: Path) -> TraceSet:
    folder = sample if request.param == "sample" else repository.parent / "shared" / "traces" / request.param
    if not folder.is_dir():
        pytest.skip("the folder of real profiles is absent")
    return convert(folder).traces


def test_valid(traces: TraceSet) -> None:
    assert [finding for finding in validate(traces).findings if finding.severity == "error"] == []
    assert all(repair(trace)[1] == () for trace in traces)


def test_astra_sim_export_follows_every_rule(traces: TraceSet, tmp_path: Path) -> None:
    export_astra_sim(traces, tmp_path / "astra")
    workload = Workload(tmp_path / "astra")
    assert workload.ranks == len(traces)
    assert workload.count(5, 6, 7) > 0
    # Every rank finishes, within a tenth of the longest measured time: waits between ranks are simulated anew.
    measured = max(reconstruct(trace).makespan_ns for trace in traces) / 1000
    assert max(workload.run()) == pytest.approx(measured, rel=0.1)


def test_timeline_reads_back(traces: TraceSet) -> None:
    parsed = Parsed(b"".join(perfetto_chunks(traces)))
    assert len(parsed.processes) >= len(traces)
    shown = sum(map(len, parsed.tracks.values()))
    assert 0 < shown <= sum(map(len, traces))


def test_slices_rebuild(traces: TraceSet) -> None:
    trace = traces.traces[0]
    window = reconstruct(trace).window_ns
    parts = [select_time(trace, window // 3, 2 * window // 3)]
    parts += [select_iteration(trace, number) for number in iterations(trace)]
    for part in parts:
        rebuilt = reconstruct(part)
        assert rebuilt.start_error_all_ns.nodes > 0
        assert rebuilt.start_error_all_ns.max <= 1000
        assert rebuilt.unscheduled == 0
        assert rebuilt.makespan_ns == pytest.approx(rebuilt.window_ns, rel=1e-3)
