"""Costs that analyses tell are no more than what the critical path loses."""

import polars as pl
import pytest

from chakra_et.analysis.analyze import analyze
from chakra_et.analysis.options import Options
from chakra_et.errors import InputError
from chakra_et.ir import CommType, NodeType, TraceBuilder


def hidden_behind_the_host():
    """A communication that no compute hides, while the host is busy until the end: it costs nothing."""
    builder = TraceBuilder(rank=0)
    host = {"is_cpu_op": True, "tid": 1}
    first = builder.add("launch", NodeType.COMP_NODE, start_ns=0, duration_ns=10, **host)
    work = builder.add("work", NodeType.COMP_NODE, start_ns=10, duration_ns=1_000, ctrl_deps=[first], **host)
    builder.add(
        "ncclDevKernel_AllReduce_Sum_f32_RING", NodeType.COMM_COLL_NODE, start_ns=10, duration_ns=900,
        ctrl_deps=[first], is_cpu_op=False, stream=9, comm_type=int(CommType.ALL_REDUCE), comm_size=4, pg_name="0",
    )  # fmt: skip
    builder.add("gemm", NodeType.COMP_NODE, start_ns=1_010, duration_ns=5, ctrl_deps=[work], is_cpu_op=False, stream=7)
    return builder.build()


def test_an_exposed_communication_off_the_critical_path_costs_nothing():
    trace = hidden_behind_the_host()
    (alone,) = analyze(trace, only=["breakdown"]).breakdown.findings[:1]
    assert (alone.cost_ns, alone.contributor) == (900, "class communication")
    both = analyze(trace, only=["breakdown", "critical-path"])
    (said,) = [finding for finding in both.findings if finding.about == "exposed_communication_ns"]
    assert said.cost_ns == 0
    assert said.text == f"{alone.text}; but the critical path isn't any shorter without it"
    row = both.critical_path.table.filter((pl.col("kind") == "class") & (pl.col("name") == "communication"))
    assert row.select("path_ns", "total_ns", "gain_ns").rows() == [(0, 900, 0)]


def test_a_system_is_a_system():
    with pytest.raises(InputError, match="expected a System, got 'h100-dgx'; load_system reads presets and files"):
        Options(system="h100-dgx")
