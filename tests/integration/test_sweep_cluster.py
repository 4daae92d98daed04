"""A sweep on a cluster: joblib's backends carry it there. Dask is in the extra `cluster`."""

import joblib
import pytest

from chakra_et.sim.sweep import sweep
from tests.unit.sim.jobs import grid, system

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'chakra-et[cluster]'")

GRID = {"scale_up.size": "2,4,8", "scale_out.bandwidth": "5..40x2", "comm_scale": [1, 0.5]}


@pytest.mark.filterwarnings("default")  # Dask's own
def test_a_local_dask_cluster_agrees(tmp_path):
    traces = grid(2, 2, 2, layers=2)
    alone = sweep(traces, system(), grid=GRID, jobs=1)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        with joblib.parallel_config(backend="dask"):
            result = sweep(traces, system(), grid=GRID, out=tmp_path)
        tasks = client.run(lambda dask_worker: dask_worker.state.executed_count)
    assert result.table.equals(alone.table)
    assert all(count > 0 for count in tasks.values())
    # What is done is kept here, whoever did it.
    assert sweep(traces, system(), grid=GRID, out=tmp_path).reused == alone.table.height
