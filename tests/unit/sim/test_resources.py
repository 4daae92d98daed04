import numpy as np
import pytest

from chakra_et.errors import InputError
from chakra_et.ir import NodeType, ProcessGroup, TraceBuilder, TraceSet
from chakra_et.sim.resources import choose_model
from chakra_et.sim.simulate import simulate
from chakra_et.sim.workload import make_workload
from tests.unit.sim.jobs import COLL, COMP, system


def job(build, family="synthesized", ranks=2):
    made = []
    for rank in range(ranks):
        group = ProcessGroup("w", tuple(range(ranks)), ranks)
        builder = TraceBuilder(rank=rank, family=family, process_groups=[group])
        build(builder)
        made.append(builder.build())
    return TraceSet(tuple(made))


def two_kernels(builder):
    builder.add("a", COMP, duration_ns=100)
    builder.add("b", COMP, duration_ns=50)
    builder.add("load", NodeType.MEM_LOAD_NODE, duration_ns=30)
    builder.add("store", NodeType.MEM_STORE_NODE, duration_ns=30)
    builder.add("op", COMP, is_cpu_op=True, duration_ns=70)


@pytest.mark.parametrize(
    ("family", "start", "model"),
    [
        ("collected", None, "streams"), ("synthesized", None, "engines"), ("compiled", 5, "engines"),
        ("", 5, "streams"), ("", None, "engines"),
    ],
)  # fmt: skip
def test_the_family_decides(family, start, model):
    traces = job(lambda builder: builder.add("a", COMP, start_ns=start), family)
    assert choose_model(make_workload(traces)) == model


def starts(traces, **options):
    return simulate(traces, **options).traces.traces[0].nodes["start_ns"].to_list()


def test_engines_hold_one_node_each():
    assert starts(job(two_kernels)) == [0, 100, 0, 30, 0]
    assert starts(job(two_kernels), resources="streams") == [0, 0, 0, 0, 0]


def test_a_rank_without_a_device_computes_on_its_host():
    def build(builder):
        builder.add("a", COMP, is_cpu_op=True, duration_ns=100)
        builder.add("b", COMP, is_cpu_op=True, duration_ns=50)

    assert starts(job(build)) == [0, 100]


def communicating(builder):
    for size in (40_000, 80_000):
        builder.add("r", COLL, pg_name="w", comm_type=6, comm_size=size)
    builder.add("gemm", COMP, duration_ns=3_000)


@pytest.mark.parametrize(
    ("options", "finish"),
    [
        # Half of each vector goes over a link of 100 bytes per ns, after 500 ns.
        ({"channels": 1}, [700, 1600, 3000]),
        ({"channels": 2}, [900, 1100, 3000]),
        ({"channels": 1, "overlap_slowdown": 2.0}, [700, 1600, 3800]),
        ({"channels": 1, "overlap_slowdown": np.inf}, [700, 1600, 4600]),
        ({"resources": "streams", "overlap_slowdown": 2.0}, [900, 1100, 3000]),
    ],
)
def test_channels_and_compute_beside_communication(options, finish):
    traces = job(communicating)
    result = simulate(traces, system(latency=500.0), **options)
    nodes = result.traces.traces[0].nodes
    assert (nodes["start_ns"] + nodes["duration_ns"]).to_list() == finish


def test_totals():
    result = simulate(job(communicating), system(latency=500.0))
    second = result.ranks[1]
    assert (second.rank, second.finish_ns, second.compute_ns) == (1, 3000, 3000)
    assert (second.communication_ns, second.exposed_communication_ns) == (1600, 0)
    assert result.groups[0].as_dict() == {
        "pg_name": "w", "description": "", "comm_type": "all_to_all", "size": 2, "count": 2, "bytes": 120_000,
        "transfer_ns": 2300, "wait_ns": 0,
    }  # fmt: skip
    assert result.bounds == {"compute": 3000}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"channels": 0}, "channels: expected 1 or more, got 0"),
        ({"overlap_slowdown": 0.5}, "overlap_slowdown: expected a factor of 1 or more, got 0.5"),
        ({"comm_scale": -1.0}, "comm_scale: expected a factor of 0 or more"),
        ({"rank_delay_ns": {0: -1}}, "rank_delay_ns: expected 0 ns or more"),
        ({"comm": "magic"}, "comm: expected one of auto, native, measured, calibrated, got 'magic'"),
        ({"iteration": "outer"}, "iteration: expected a number, inner or all"),
        ({"comm": "native"}, "communications (native): expected a system to run on, got none"),
    ],
)
def test_refusals(options, text):
    with pytest.raises(InputError) as info:
        simulate(job(two_kernels), **options)
    assert str(info.value).startswith(text)
