"""Sweeps: every point is what `simulate` says, however the points are spread, and whatever happens on the way."""

import joblib
import polars as pl
import pytest
from joblib.parallel import ThreadingBackend

from chakra_et.errors import InputError, SimulationError
from chakra_et.ir import TraceSet
from chakra_et.sim import sweep_run
from chakra_et.sim.result import RankTimes, SimResult
from chakra_et.sim.simulate import Prepared, simulate
from chakra_et.sim.sweep import sweep
from chakra_et.sim.sweep_run import measure
from chakra_et.specs import with_overrides
from tests.unit.sim.jobs import grid, system

GRID = {"scale_up.size": "2,4,8", "scale_out.bandwidth": "5..40x2", "comm_scale": [1, 0.5]}


@pytest.fixture(scope="module")
def traces():
    return grid(2, 2, 2, layers=2)


@pytest.fixture(scope="module")
def swept(traces):
    return sweep(traces, system(), grid=GRID, jobs=1)


def test_every_point_is_what_simulate_says(traces, swept):
    assert swept.table.height == 3 * 4 * 2
    for row in swept.table.iter_rows(named=True):
        bandwidth = f"{row['scale_out.bandwidth_gb_per_s']}GB/s"
        machine = with_overrides(system(), {"scale_up.size": row["scale_up.size"], "scale_out.bandwidth": bandwidth})
        result = simulate(traces, machine, comm_scale=row["comm_scale"])
        assert row["finish_ns"] == result.finish_ns
        assert row["ranks"] == len(result.ranks) == 8
        assert row["folded_classes"] == result.folded_classes
        exposed = [rank.exposed_communication_ns for rank in result.ranks]
        assert row["exposed_communication_max_ns"] == max(exposed)
        assert row["exposed_communication_mean_ns"] == round(sum(exposed) / 8)
        assert row["compute_max_ns"] == max(rank.compute_ns for rank in result.ranks)
        largest = next(iter(result.bounds))
        assert row["bound_by"] == largest
        assert row["bound_share"] == result.bounds[largest] / sum(result.bounds.values())
        for resource, spent in result.bounds.items():
            assert row[f"critical_{resource}_ns"] == spent
        assert row["error"] is None


def test_speedups_refer_to_the_base(traces, swept):
    base = simulate(traces, system()).finish_ns
    assert swept.base["finish_ns"] == base
    assert swept.base["speedup"] == 1.0
    assert swept.base["scale_up.size"] == 4
    assert swept.table.select((base / pl.col("finish_ns")).alias("speedup")).equals(swept.table.select("speedup"))


def test_columns_and_kinds(swept):
    assert swept.table.columns[:13] == [
        "point", "scale_up.size", "scale_out.bandwidth_gb_per_s", "comm_scale", "finish_ns", "speedup",
        "compute_mean_ns", "compute_max_ns", "communication_mean_ns", "communication_max_ns",
        "exposed_communication_mean_ns", "exposed_communication_max_ns", "bound_by",
    ]  # fmt: skip
    assert swept.table["point"].to_list() == list(range(24))
    assert swept.table["scale_up.size"].dtype == pl.Int64
    assert swept.table.schema["error"] == pl.String
    data = swept.as_dict()
    assert len(data["points"]) == 24
    assert data["parameters"][1] == {
        "key": "scale_out.bandwidth", "column": "scale_out.bandwidth_gb_per_s", "unit": "GB/s",
    }  # fmt: skip
    assert data["failed"] == 0


class Lists(ThreadingBackend):
    """A backend that returns lists only, as Ray's does."""

    supports_return_generator = False


@pytest.mark.parametrize("backend", ["threading", "loky", "lists"])
def test_backends_agree(traces, swept, backend):
    joblib.register_parallel_backend("lists", Lists)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        assert sweep(traces, system(), grid=GRID).table.equals(swept.table)


def test_processes_agree(traces, swept, monkeypatch):
    assert sweep(traces, system(), grid=GRID, jobs=2).table.equals(swept.table)
    # As if it were a large sweep, so that processes are worth starting.
    monkeypatch.setattr(sweep_run, "_TRY_S", 0.0)
    monkeypatch.setattr(sweep_run, "_START_S", 0.0)
    monkeypatch.setattr("joblib.effective_n_jobs", lambda number: 2)
    assert sweep(traces, system(), grid=GRID).table.equals(swept.table)


def test_a_point_that_fails_takes_no_other_with_it(traces):
    result = sweep(traces, system(), grid={"scale_out.size": "1,2,rest", "scale_up.size": "4,8"}, jobs=1)
    errors = result.table.select("scale_out.size", "scale_up.size", pl.col("error").is_null()).rows()
    assert errors == [
        ("1", 4, False), ("1", 8, True), ("2", 4, True), ("2", 8, True), ("rest", 4, True), ("rest", 8, True),
    ]  # fmt: skip
    assert result.failed == 1
    (error,) = result.table["error"].drop_nulls()
    assert error == "system test: expected a job of 4 ranks at most, got 8; override scale_out.size"
    assert result.table.filter(pl.col("error").is_not_null())["finish_ns"].to_list() == [None]


def test_memory_that_runs_out_is_a_row(traces, monkeypatch):
    def run(self, machine, options, **_):
        raise MemoryError

    monkeypatch.setattr(Prepared, "run", run)
    result = sweep(traces, system(), grid={"comm_scale": [1, 2]}, jobs=1)
    assert result.failed == 2
    assert result.base["error"].startswith("expected to fit in memory, did not")
    assert result.table["speedup"].to_list() == [None, None]


def test_a_base_that_fails_leaves_the_points(traces):
    result = sweep(traces, system(), overrides={"scale_out.size": "1"}, grid={"scale_up.size": "2,8"}, jobs=1)
    assert "got 8; override scale_out.size" in result.base["error"]
    assert result.table["error"].is_null().to_list() == [False, True]
    assert result.table["speedup"].to_list() == [None, None]


def test_results_cover_all_ranks():
    times = tuple(RankTimes(rank, 9, 5, 4, 3) for rank in (0, 1))
    assert measure(SimResult(lambda: None, times, (), 2), (0, 1))["ranks"] == 2
    with pytest.raises(SimulationError, match="expected the times of 3 ranks, got those of 2"):
        measure(SimResult(lambda: None, times, (), 2), (0, 1, 2))
    with pytest.raises(SimulationError, match="expected the times of 2 ranks, got those of 1"):
        measure(SimResult(lambda: None, (times[0], RankTimes(1, -1, 0, 0, 0)), (), 2), (0, 1))


def test_several_iterations_are_averaged():
    parts = tuple(
        SimResult(lambda: None, (RankTimes(0, finish, 5, 4, exposed),), (), 1, bounds={"compute": finish, "host": 30})
        for finish, exposed in ((10, 1), (20, 2), (60, 6))
    )
    row = measure(SimResult(lambda: None, parts[1].ranks, (), 1, iterations=parts), (0,))
    assert (row["finish_ns"], row["spread_ns"], row["iterations"]) == (30, 50, 3)
    assert row["exposed_communication_mean_ns"] == 3
    assert list(row["bounds"].items()) == [("compute", 30), ("host", 30)]


def test_traces_that_cannot_be_simulated_are_an_error(traces, tmp_path):
    with pytest.raises(SimulationError, match="rank 7"):
        sweep(TraceSet(traces.traces[:-1]), system(), grid={"comm_scale": [1, 2]}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_ranks_can_be_mirrored():
    whole = grid(2, 1, 4, layers=2)
    result = sweep(TraceSet(whole.traces[:4]), system(), grid={"comm_scale": [1, 2]}, mirror_missing=True, jobs=1)
    assert result.table["ranks"].to_list() == [8, 8]
    assert result.table["finish_ns"][0] == simulate(whole, system()).finish_ns
    assert result.notes


def test_without_a_system_communications_are_measured(traces):
    result = sweep(traces, grid={"compute_scale": [1, 2]}, jobs=1)
    assert result.table["finish_ns"].to_list() == [
        simulate(traces, compute_scale=scale).finish_ns for scale in (1.0, 2.0)
    ]
    with pytest.raises(InputError, match="calibrated: expected the system that was measured, got none"):
        sweep(traces, points=[{"system": system(), "comm": "calibrated"}])


def test_progress_ends_with_all(traces):
    said = []
    sweep(traces, system(), grid=GRID, jobs=1, progress=lambda *state: said.append(state))
    # The base is one of the points.
    assert (said[0], said[-1]) == (("sweep", 0, 24), ("sweep", 24, 24))


class Stop(Exception):
    pass


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_sweep_goes_on(traces, swept, tmp_path, monkeypatch, jobs):
    ran = []
    run = Prepared.run

    def stopping(self, machine, options, **more):
        if len(ran) == 9:
            raise Stop
        ran.append(machine)
        return run(self, machine, options, **more)

    monkeypatch.setattr(Prepared, "run", stopping)
    monkeypatch.setattr(sweep_run, "_SAVE_S", -1.0)
    with pytest.raises(Stop):
        sweep(traces, system(), grid=GRID, out=tmp_path, jobs=1)
    assert not (tmp_path / "sweep.csv").exists()
    monkeypatch.setattr(Prepared, "run", run)
    result = sweep(traces, system(), grid=GRID, out=tmp_path, jobs=jobs)
    assert result.reused == 9
    assert result.table.equals(swept.table)
    assert pl.read_parquet(tmp_path / "sweep.parquet").equals(swept.table)
    again = pl.read_csv(tmp_path / "sweep.csv", schema=swept.table.schema)
    assert again.equals(swept.table)
    monkeypatch.delattr(Prepared, "run")
    result = sweep(traces, system(), grid=GRID, out=tmp_path)
    assert (result.reused, result.table.equals(swept.table)) == (24, True)


def test_a_sweep_can_grow(traces, tmp_path):
    sweep(traces, system(), grid={"comm_scale": [1, 2]}, out=tmp_path, jobs=1)
    result = sweep(traces, system(), grid={"comm_scale": [0.5, 1, 2, 3]}, out=tmp_path, jobs=1)
    assert result.reused == 2
    assert result.table.equals(sweep(traces, system(), grid={"comm_scale": [0.5, 1, 2, 3]}).table)
