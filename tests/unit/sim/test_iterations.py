import pytest

from chakra_et.errors import SimulationError
from chakra_et.ir import NodeType, TraceBuilder, TraceSet
from chakra_et.sim.iterations import cut_iterations
from chakra_et.sim.simulate import simulate
from tests.unit.sim.jobs import COLL, COMP


def job(steps=(3, 4, 5, 6), ranks=2, late=0, marks=True):
    """Steps of 100 ns times their number: an operator, its kernel, and an all-reduce."""
    made = []
    for rank in range(ranks):
        builder = TraceBuilder(rank=rank, family="collected")
        time, op, kernel = 1000 + late * rank, [], []
        for number in steps:
            if marks:
                builder.add(f"ProfilerStep#{number}", NodeType.METADATA_NODE, start_ns=time, span_ns=100 * number)
            op = [builder.add("op", COMP, is_cpu_op=True, tid=1, start_ns=time, duration_ns=100 * number, ctrl_deps=op)]
            builder.add("idle", COMP, is_cpu_op=True, tid=2, gap_kind="host_idle", start_ns=time, duration_ns=10**6)
            work = builder.add(
                "gemm", COMP, ctrl_deps=op, sync_deps=kernel, start_ns=time + 100 * number, duration_ns=20
            )
            reduce = {"pg_name": "w", "comm_type": 0, "comm_size": 64, "start_ns": time + 100 * number + 20}
            kernel = [builder.add("r", COLL, sync_deps=[work], ctrl_deps=op, duration_ns=30, **reduce)]
            time += 100 * number
        made.append(builder.build())
    return TraceSet(tuple(made), groups())


def groups():
    from chakra_et.ir import ProcessGroup

    return (ProcessGroup("w", (0, 1), 2),)


def test_the_inner_ones_each_on_its_own():
    result = simulate(job(), comm="measured")
    assert [(one.iteration, one.finish_ns) for one in result.iterations] == [(4, 450), (5, 550)]
    assert (result.mean_ns, result.spread_ns, result.iteration, result.finish_ns) == (500.0, 100, 4, 450)
    assert result.notes == ("iterations 4, 5 of 3, 4, 5, 6",)
    told = result.as_dict()
    assert [(one["iteration"], one["finish_ns"]) for one in told["iterations"]] == [(4, 450), (5, 550)]
    assert (told["mean_ns"], told["spread_ns"], told["iteration"]) == (500.0, 100, 4)
    # Idle time that leads out of the step is left out; the mark of the next one, which begins before the kernel, isn't.
    names = [trace.nodes["name"].to_list() for trace in result.traces]
    assert names == [["ProfilerStep#4", "op", "gemm", "r", "ProfilerStep#5"]] * 2


@pytest.mark.parametrize(
    ("steps", "wanted", "numbers"),
    [
        ((3, 4), "inner", [3, 4]), ((3,), "inner", [3]), ((3, 4, 5), "inner", [4]),
        ((3, 4, 5), 5, [5]), ((3, 4, 5), 0, [3]), ((3, 4, 5), "all", [None]),
    ],
)  # fmt: skip
def test_what_is_simulated(steps, wanted, numbers):
    parts, said = cut_iterations(job(steps), wanted)
    assert [number for number, _ in parts] == numbers
    assert bool(said) == (wanted != "all")


def test_all_at_once():
    result = simulate(job(), comm="measured", iteration="all")
    assert (result.finish_ns, result.iteration, result.iterations) == (10**6, None, ())


def test_ranks_begin_an_iteration_when_they_did():
    assert simulate(job(late=7), comm="measured", iteration=4).ranks[1].finish_ns == 457


def test_steps_that_not_all_ranks_have_dont_count():
    traces = TraceSet((job((3, 4, 5)).traces[0], job((4, 5, 6)).traces[1]), groups())
    assert [number for number, _ in cut_iterations(traces, "inner")[0]] == [4, 5]
    with pytest.raises(SimulationError, match=r"marked on every rank \(4, 5\), got 3"):
        cut_iterations(traces, 3)


def test_without_marks_the_whole_is_simulated_and_said():
    parts, said = cut_iterations(job(marks=False), "inner")
    assert [number for number, _ in parts] == [None]
    assert said == ("no iterations are marked on all ranks: everything that the traces hold is simulated at once",)
