import numpy as np
import pytest

from chakra_et.ir import ProcessGroup, TraceBuilder, TraceSet
from chakra_et.passes.match_comms import match_comms
from chakra_et.sim.scene import Scene
from chakra_et.sim.simulate import simulate
from tests.unit.sim.jobs import COLL, COMP, RECV, SEND

WORLD = ProcessGroup("w", (0, 1, 2), 3)


def ranks(count=3):
    return [TraceBuilder(rank=rank, process_groups=[WORLD], family="collected") for rank in range(count)]


def job(made):
    return TraceSet(tuple(builder.build() for builder in made))


def reduce(builder, start, duration, **columns):
    columns = {"pg_name": "w", "comm_type": 0, "comm_size": 64} | columns
    return builder.add("r", COLL, start_ns=start, duration_ns=duration, **columns)


def staggered(offsets=(0, 0, 0)):
    """Ranks that arrive at 100, 250, 180 and leave at 300, 310, 300."""
    made = ranks()
    for builder, offset, arrival, end in zip(made, offsets, (100, 250, 180), (300, 310, 300), strict=True):
        work = builder.add("work", COMP, start_ns=50 + offset, duration_ns=arrival - 50)
        node = reduce(builder, arrival + offset, end - arrival, sync_deps=[work])
        builder.add("more", COMP, start_ns=end + offset, duration_ns=5, sync_deps=[node])
    return job(made)


def cast(traces, offsets=None):
    return Scene(traces, offsets, None).cast(None, {}, fold=False)


def test_durations_are_split_at_the_last_arrival():
    found = cast(staggered()).measured
    assert (found.own_ns.tolist(), found.waits.tolist()) == ([50, 60, 50], [True] * 3)
    assert found.transfer_ns.tolist() == [53]


def test_identity_and_what_ifs():
    result = simulate(staggered(), comm="measured")
    assert [rank.finish_ns for rank in result.ranks] == [255, 265, 255]
    assert result.groups[0].as_dict() == {
        "pg_name": "w", "description": "", "comm_type": "all_reduce", "size": 3, "count": 1, "bytes": 64,
        "transfer_ns": 60, "wait_ns": 220,
    }  # fmt: skip
    slow = simulate(staggered(), comm="measured", comm_scale=2)
    assert [rank.finish_ns for rank in slow.ranks] == [305, 325, 305]
    late = simulate(staggered(), comm="measured", rank_delay_ns={0: 1000})
    assert [rank.finish_ns for rank in late.ranks] == [1105, 1115, 1105]


def test_clocks_are_told_or_come_from_the_split():
    shifted = staggered(offsets=(0, 7_000_000, -3_000_000))
    told = {1: -7_000_000, 2: 3_000_000}
    assert cast(shifted, told).begin.tolist() == [0, 0, 0]
    matched, matching = match_comms(shifted)
    found = cast(matched)
    assert found.offsets.tolist() == [matching.clock_offsets_ns[rank] for rank in range(3)]
    assert found.measured.own_ns.tolist() == [
        trace.nodes["transfer_ns"].drop_nulls().item() for trace in matched
    ]  # fmt: skip
    # Without either, clocks are taken as they are.
    assert cast(shifted).begin.tolist() == [3_000_000, 10_000_000, 0]


def test_without_starts_the_split_counts_and_without_that_the_shortest():
    made = ranks()
    for builder, duration, transfer in zip(made, (90, 70, 50), (40, 50, None), strict=True):
        reduce(builder, None, duration, comm_seq=0, transfer_ns=transfer)
    assert cast(job(made)).measured.own_ns.tolist() == [40, 50, 50]


def messages(send, receive, *, host=False, call=None):
    """A message from rank 0 to rank 1: (start, duration) of both nodes."""
    made = ranks(2)
    where = {"comm_src": 0, "comm_dst": 1, "comm_size": 8, "is_cpu_op": host}
    parent = made[0].add("c10d::send", COMP, is_cpu_op=True, start_ns=call, duration_ns=1) if call is not None else None
    extra = {"parent": parent, "ctrl_deps": [parent]} if parent is not None else {}
    made[0].add("s", SEND, start_ns=send[0], duration_ns=send[1], **where, **extra)
    made[1].add("r", RECV, start_ns=receive[0], duration_ns=receive[1], **where)
    return job(made)


def test_a_send_that_was_over_before_its_receive_waits_for_nobody():
    eager = messages((0, 5_000), (20_000, 1_000))
    assert cast(eager).measured.waits.tolist() == [False, True]
    late = simulate(eager, comm="measured", rank_delay_ns={1: 50_000})
    assert [rank.finish_ns for rank in late.ranks] == [5_000, 71_000]
    late = simulate(eager, comm="measured", rank_delay_ns={0: 50_000})
    assert [rank.finish_ns for rank in late.ranks] == [55_000, 51_000]


def test_a_send_that_waited_waits():
    waited = messages((0, 25_000), (20_000, 5_500))
    assert cast(waited).measured.own_ns.tolist() == [5_000, 5_500]
    late = simulate(waited, comm="measured", rank_delay_ns={1: 50_000})
    assert [rank.finish_ns for rank in late.ranks] == [75_000, 75_500]
    assert simulate(waited, comm="measured", sends="eager").ranks[0].finish_ns == 5_000


def test_a_host_send_is_ready_at_its_call():
    """c10d opens the range of a send after it has handed the data over: a receive may be over by then."""
    traces = messages((9_000, 2_000), (3_000, 4_000), host=True, call=1_000)
    found = cast(traces).measured
    assert found.arrival.tolist() == [0, 2]
    result = simulate(traces, comm="measured")
    assert [rank.finish_ns for rank in result.ranks] == [4_000, 6_000]


@pytest.mark.parametrize(("kind", "root"), [(5, 1), (4, 1)])
def test_what_comes_from_a_root_may_wait_for_nobody_else(kind, root):
    made = ranks()
    for builder, start, end in zip(made, (0, 10_000, 90_000), (30_000, 25_000, 95_000), strict=True):
        reduce(builder, start, end - start, comm_type=kind, comm_root=root)
    traces = job(made)
    assert cast(traces).measured.waits.tolist() == [True, False, True]
    assert [rank.finish_ns for rank in simulate(traces, comm="measured").ranks] == [30_000, 25_000, 95_000]
    late = simulate(traces, comm="measured", rank_delay_ns={2: 500_000})
    assert [rank.finish_ns for rank in late.ranks] == [30_000, 25_000, 595_000]
    late = simulate(traces, comm="measured", rank_delay_ns={1: 500_000})
    assert [rank.finish_ns for rank in late.ranks] == [530_000, 525_000, 515_000]


def test_who_only_gives_to_a_root_may_go_on():
    made = ranks()
    for builder, start, end in zip(made, (0, 10_000, 90_000), (12_000, 99_000, 95_000), strict=True):
        reduce(builder, start, end - start, comm_type=3, comm_root=1)
    traces = job(made)
    assert cast(traces).measured.waits.tolist() == [False, True, False]
    late = simulate(traces, comm="measured", rank_delay_ns={2: 500_000})
    assert [rank.finish_ns for rank in late.ranks] == [12_000, 599_000, 595_000]


def test_an_all_reduce_waits_whatever_the_clocks_say():
    made = ranks()
    for builder, start, end in zip(made, (0, 10_000, 90_000), (12_000, 99_000, 95_000), strict=True):
        reduce(builder, start, end - start)
    found = cast(job(made)).measured
    assert found.waits.all()
    assert found.own_ns.tolist() == [0, 9_000, 5_000]


def test_results_can_be_simulated_again():
    once = simulate(staggered(), comm="measured", comm_scale=3)
    again = simulate(once.traces, comm="measured")
    assert again.finish_ns == once.finish_ns
    columns = once.traces.traces[0].nodes.select("start_ns", "duration_ns", "wait_ns", "transfer_ns").rows()
    assert columns == [(0, 50, None, None), (50, 300, 150, 150), (350, 5, None, None)]
    assert np.array_equal(once.traces.traces[0].integers("start_ns"), again.traces.traces[0].integers("start_ns"))
