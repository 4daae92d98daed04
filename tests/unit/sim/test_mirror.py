from dataclasses import replace

import pytest

from chakra_et.errors import SimulationError
from chakra_et.ir import ProcessGroup, TraceBuilder, TraceSet
from chakra_et.sim.mirror import mirror_ranks
from chakra_et.sim.simulate import simulate
from tests.unit.sim.jobs import COLL, COMP, grid, plain, system


def kept(traces, ranks):
    return TraceSet(tuple(trace for trace in traces if trace.rank in ranks))


def test_one_rank_of_a_grid_stands_for_all():
    traces = grid(tp=4, pp=1, dp=4)
    mirrored, said = mirror_ranks(kept(traces, [6]))
    assert [trace.process_groups for trace in mirrored] == [trace.process_groups for trace in traces]
    assert said == ("15 ranks from 0 to 15 are copies of rank 6",)
    result = simulate(kept(traces, [6]), system(), mirror_missing=True)
    assert plain(result) == plain(simulate(traces, system()))
    assert result.notes == said


def test_one_rank_of_each_stage_stands_for_all():
    traces = grid(tp=2, pp=2, dp=2, skew=500)
    result = simulate(kept(traces, [0, 4]), system(), mirror_missing=True)
    assert plain(result) == plain(simulate(traces, system()))


def test_groups_of_one_original_say_nothing_of_another():
    traces = grid(tp=2, pp=2, dp=2, skew=500)
    few = kept(traces, [0, 4])
    whole = TraceSet(few.traces, tuple(group for trace in few for group in trace.process_groups))
    assert (
        mirror_ranks(whole)[1]
        == mirror_ranks(few)[1]
        == ("ranks 1 to 3 are copies of rank 0", "ranks 5 to 7 are copies of rank 4")
    )


def test_copies_of_a_recording_are_folded():
    traces = grid(tp=4, pp=1, dp=2).map(
        lambda trace: replace(trace, metadata=replace(trace.metadata, family="collected"))
    )
    one = kept(traces, [0])
    folded = simulate(one, system(), mirror_missing=True)
    assert folded.folded_classes == 1
    assert plain(folded) == plain(simulate(one, system(), mirror_missing=True, fold="off"))


def test_copies_share_the_nodes_and_roots_move_along():
    builder = TraceBuilder(rank=0, world_size=4, process_groups=[ProcessGroup("tp", (0, 1), 2)])
    builder.add("gemm", COMP, duration_ns=5)
    mirrored, _ = mirror_ranks(TraceSet((builder.build(),)))
    assert len({id(trace.nodes) for trace in mirrored}) == 1
    builder.add("b", COLL, pg_name="tp", comm_type=5, comm_root=1, comm_size=8)
    mirrored, _ = mirror_ranks(TraceSet((builder.build(),)))
    assert [trace.nodes["comm_root"].to_list() for trace in mirrored] == [[None, 1], [None, 1], [None, 3], [None, 3]]


@pytest.mark.parametrize(
    ("ranks", "world", "text"),
    [((0, 1, 3), 8, "expected evenly spaced ranks to mirror, got 0, 1, 3"), ((0, 1, 2), 8, "got one that is cut off")],
)
def test_what_cant_be_mirrored(ranks, world, text):
    builder = TraceBuilder(rank=0, world_size=world, process_groups=[ProcessGroup("g", ranks, 3)])
    builder.add("r", COLL, pg_name="g", comm_type=0, comm_size=8)
    with pytest.raises(SimulationError, match=text):
        mirror_ranks(TraceSet((builder.build(),)))


def test_a_complete_job_stays_as_it_is():
    traces = grid()
    mirrored, said = mirror_ranks(traces)
    assert [a.nodes is b.nodes for a, b in zip(traces, mirrored, strict=True)] == [True] * 8
    assert said == ()
