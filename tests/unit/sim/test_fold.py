from dataclasses import replace

import numpy as np
import pytest

from chakra_et.ir import ProcessGroup, TraceBuilder, TraceSet
from chakra_et.sim.simulate import simulate
from tests.unit.sim.jobs import COLL, COMP, grid, plain, system

GRIDS = [
    ({}, 2),
    ({"tp": 4, "pp": 2, "dp": 4}, 2),
    ({"tp": 4, "pp": 1, "dp": 4, "shared": True}, 1),
    ({"tp": 4, "pp": 3, "dp": 2, "skew": 500}, 3),
    ({"tp": 4, "pp": 2, "dp": 4, "uneven": 700}, 4),
    ({"tp": 1, "pp": 4, "dp": 4, "skew": 100}, 4),
]


@pytest.mark.parametrize("topology", ["switch", "fully_connected", "ring"])
@pytest.mark.parametrize(("shape", "classes"), GRIDS, ids=lambda value: str(value))
def test_folded_and_unfolded_agree_exactly(shape, classes, topology):
    traces, machine = grid(**shape), system(topology=topology)
    whole, folded = simulate(traces, machine, fold="off"), simulate(traces, machine)
    assert plain(folded) == plain(whole)
    assert folded.bounds == whole.bounds
    assert whole.folded_classes == len(traces)
    # Small groups that share a ring or a full mesh with others load its links in ways of their own.
    assert folded.folded_classes in (classes, len(traces)) if shape.get("tp", 2) < 4 else classes


@pytest.mark.parametrize("options", [{"resources": "streams"}, {"channels": 2}, {"overlap_slowdown": 1.5}])
def test_folded_and_unfolded_agree_under_all_models(options):
    traces = grid(tp=4, pp=2, dp=4, skew=300)
    folded = simulate(traces, system(out=2.0), **options)
    assert plain(folded) == plain(simulate(traces, system(out=2.0), fold="off", **options))
    assert folded.folded_classes == 2


def test_measured_transfers_fold_too():
    traces = grid(tp=2, pp=2, dp=4)
    traces = traces.map(
        lambda trace: trace.with_nodes(trace.nodes.with_columns(duration_ns=trace.nodes["duration_ns"] + 5))
    )
    folded = simulate(traces, comm="measured")
    assert plain(folded) == plain(simulate(traces, comm="measured", fold="off"))
    assert folded.folded_classes == 2


def test_a_late_rank_is_unlike_the_others():
    traces, late = grid(tp=4, pp=2, dp=4), {5: 10_000}
    folded = simulate(traces, system(), rank_delay_ns=late)
    assert plain(folded) == plain(simulate(traces, system(), rank_delay_ns=late, fold="off"))
    assert 2 < folded.folded_classes < len(traces)


def test_ranks_that_share_their_nodes_share_the_simulated_ones():
    traces = grid(tp=4, pp=1, dp=4, shared=True)
    result = simulate(traces, system()).traces
    assert len({id(trace.nodes) for trace in result}) == 1
    assert [trace.rank for trace in result] == list(range(16))
    assert result.traces[9].process_groups == traces.traces[9].process_groups


def test_roots_are_unlike_the_others():
    made = []
    for rank in range(8):
        first = rank // 4 * 4
        group = ProcessGroup("tp", tuple(range(first, first + 4)), 4)
        builder = TraceBuilder(rank=rank, process_groups=[group])
        work = builder.add("gemm", COMP, duration_ns=1000)
        builder.add("b", COLL, pg_name="tp", comm_type=5, comm_size=4096, comm_root=first + 1, data_deps=[work])
        made.append(builder.build())
    traces = TraceSet(tuple(made))
    folded, whole = simulate(traces, system()), simulate(traces, system(), fold="off")
    assert plain(folded) == plain(whole)
    assert folded.folded_classes in (2, 8)
    assert simulate(traces, comm="measured").folded_classes == 2


def test_recorded_traces_are_not_folded():
    traces = grid().map(lambda trace: replace(trace, metadata=replace(trace.metadata, family="collected")))
    assert simulate(traces, system()).folded_classes == 8


def test_the_order_in_which_ranks_are_numbered_doesnt_matter():
    """Exchanging servers, and ranks inside them, keeps the topology."""
    traces, machine = grid(tp=4, pp=2, dp=4, skew=300, uneven=200), system()
    place = np.arange(32).reshape(8, 4)[[3, 0, 7, 1, 6, 2, 5, 4]][:, [2, 0, 3, 1]].ravel()
    moved = {int(old): int(new) for new, old in enumerate(place)}

    def move(trace):
        groups = [replace(g, ranks=tuple(moved[rank] for rank in g.ranks)) for g in trace.process_groups]
        columns = [trace.column(name).replace_strict(moved, default=None) for name in ("comm_src", "comm_dst")]
        new = trace.with_nodes(trace.nodes.with_columns(columns))
        return replace(new, process_groups=tuple(groups), metadata=replace(trace.metadata, rank=moved[trace.rank]))

    other = TraceSet(tuple(sorted(map(move, traces), key=lambda trace: trace.rank)))
    for fold in ("auto", "off"):
        before, after = simulate(traces, machine, fold=fold), simulate(other, machine, fold=fold)
        for rank in range(32):
            assert plain(before)[0][rank] == plain(after)[0][moved[rank]], fold
