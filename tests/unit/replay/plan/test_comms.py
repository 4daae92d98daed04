"""Communications alone: in order, with the time between them held, and nothing of what isn't wanted."""

import pytest

from chakra_et.errors import ReplayError
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder
from chakra_et.replay.communications.find import find_communications
from chakra_et.replay.plan.comms import CommFilter, calls_of, plan_communications, refuse_silence
from chakra_et.replay.plan.steps import Communicate, Delay, Plan, Wait

GROUPS = (ProcessGroup("0", (0, 1), 2), ProcessGroup("tp", (0, 1), 2))


def collective(builder: TraceBuilder, start: int, length: int, *, kind: CommType = CommType.ALL_REDUCE,
               group: str = "0", is_async: bool | None = False) -> int:  # fmt: skip
    return builder.add(
        "gloo:x", NodeType.COMM_COLL_NODE, comm_type=int(kind), comm_size=64, comm_dtype="float", pg_name=group,
        comm_async=is_async, start_ns=start, duration_ns=length, is_cpu_op=True, tid=1,
    )  # fmt: skip


def trace() -> Trace:
    """Return two iterations: 100 to 200 and 200 to 300 ns, a call at 20 (10 long) and 50 (20 long) in each."""
    builder = TraceBuilder(rank=0, world_size=2, process_groups=GROUPS)
    for number, begin in ((3, 100), (4, 200)):
        builder.add(f"ProfilerStep#{number}", NodeType.METADATA_NODE, start_ns=begin, span_ns=100, duration_ns=0,
                    is_cpu_op=True, tid=1)  # fmt: skip
        collective(builder, begin + 20, 10)
        collective(builder, begin + 50, 20, kind=CommType.BROADCAST, group="tp")
    return builder.build()


def planned(keep: CommFilter | None = None) -> Plan:
    return plan_communications(trace(), 0, keep=keep)


def shape(plan: Plan) -> list[tuple[str, int]]:
    return [(type(step).__name__, getattr(step, "duration_ns", 0)) for step in plan.steps]


def test_time_between_calls_is_held() -> None:
    plan = planned()
    one = [
        ("Delay", 20),
        ("Communicate", 10),
        ("Wait", 0),
        ("Delay", 20),
        ("Communicate", 20),
        ("Wait", 0),
        ("Delay", 30),
    ]
    assert shape(plan) == one * 2
    assert [(one.number, one.begin, one.end, one.duration_ns) for one in plan.iterations] == [
        (3, 0, 7, 100),
        (4, 7, 14, 100),
    ]


def test_an_iteration_takes_as_long_as_its_steps() -> None:
    builder = TraceBuilder(rank=0, world_size=2, process_groups=GROUPS)
    works = [collective(builder, 10 * number, 100, is_async=True) for number in range(3)]
    builder.add("host_idle", NodeType.COMP_NODE, ctrl_deps=[], sync_deps=works, start_ns=130, duration_ns=1,
                is_cpu_op=True, tid=1)  # fmt: skip
    plan = plan_communications(builder.build(), 0)
    assert [type(step) for step in plan.steps].count(Wait) == 3
    assert sum(step.duration_ns for step in plan.steps if not isinstance(step, Plan)) == plan.iterations[0].duration_ns


def test_a_wait_without_a_node_is_at_the_end_of_its_iteration() -> None:
    builder = TraceBuilder(rank=0, world_size=2, process_groups=GROUPS)
    collective(builder, 10, 5, is_async=True)
    collective(builder, 40, 5, is_async=False)
    steps = plan_communications(builder.build(), 0).steps
    kinds = [step for step in steps if not isinstance(step, Delay)]
    assert [step.number if isinstance(step, Wait) else step.call.number for step in kinds
            if isinstance(step, Wait | Communicate)] == [0, 1, 1, 0]  # fmt: skip


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (CommFilter(groups=("tp",)), ["broadcast_"] * 2),
        (CommFilter(kinds=("allreduce",)), ["allreduce_"] * 2),
        (CommFilter(iterations=(4, 9)), ["allreduce_", "broadcast_"]),
        (CommFilter(groups=("tp",), kinds=("allreduce",)), []),
    ],
)
def test_only_what_is_wanted_is_made(keep: CommFilter, expected: list[str]) -> None:
    plan = planned(keep)
    assert [call.kind for call in calls_of(plan)] == expected
    assert [one.number for one in plan.iterations] == ([4] if keep.iterations else [3, 4] if expected else [])


def test_a_trace_of_which_nothing_can_be_replayed_is_refused() -> None:
    builder = TraceBuilder(rank=0, world_size=2, process_groups=GROUPS)
    builder.add("ncclDevKernel", NodeType.COMM_COLL_NODE, pg_name="0", unknown_comm=True, start_ns=0, duration_ns=1)
    silent = find_communications(builder.build(), 0)
    with pytest.raises(
        ReplayError, match=r"^out/: node 0 \('ncclDevKernel'\): .*got none of 1: what it does is unknown"
    ):
        refuse_silence([silent], "out/")
    with pytest.raises(ReplayError, match=r"^out/: expected communications to replay, got none$"):
        refuse_silence([], "out/")
    refuse_silence([silent, find_communications(trace(), 0)], "out/")
