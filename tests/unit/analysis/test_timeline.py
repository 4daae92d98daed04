"""What runs when, on one clock."""

from chakra_et.analysis.options import Options
from chakra_et.analysis.timeline import timeline
from chakra_et.ir import CommType, ProcessGroup, TraceSet
from tests.unit.analysis.hand_made import Rank, stepped

KERNELS = ((1, 5, 9), (12, 15, 28), (21, 30, 35))
STEPS = ((0, 10), (10, 20), (20, 30))


def test_the_middle_one_of_the_chosen_iterations():
    trace = stepped(*STEPS, kernels=KERNELS, origin=500)
    columns = ("rank", "iteration", "stream", "begin_ns", "end_ns", "category", "kind", "name")
    assert timeline(trace).table.select(columns).rows() == [(0, 1, 7, 0, 13, "compute", "gemm", "gemm")]
    found = timeline(trace, options=Options(iteration=2)).table
    assert found.select("iteration", "begin_ns", "end_ns").rows() == [(2, 0, 5)]
    assert timeline(trace, options=Options(iteration="whole")).table.height == 3


def test_ranks_are_on_one_clock():
    """Rank 1's clock is 1,000 ahead, and its step begins 3 later than rank 0's."""
    traces = []
    for rank, (origin, begin) in enumerate(((0, 0), (1000, 3))):
        made = Rank(rank, groups=(ProcessGroup("0", (0, 1), 2),), origin=origin)
        made.kernel("gemm", begin, 10)
        made.collective(CommType.ALL_REDUCE, 10, 40, 64)
        traces.append(made.build())
    found = timeline(TraceSet(tuple(traces))).table
    assert found.select("rank", "stream", "begin_ns", "end_ns").rows() == [
        (0, 7, 0, 10), (0, 9, 10, 40), (1, 7, 3, 10), (1, 9, 10, 40),
    ]  # fmt: skip


def test_lanes_are_ranks_devices_and_streams():
    made = Rank()
    made.kernel("a", 0, 5)
    made.kernel("b", 5, 9, device=1)
    made.copy(2, 4, stream=8)
    plot = timeline(made.build()).plot()
    assert plot.layout["yaxis"]["ticktext"] == ["rank 0, stream 7", "stream 8", "device 1, stream 7"]
    assert {bars["name"] for bars in plot.data} == {"compute", "memory"}


def test_too_many_bars_are_merged_without_losing_time():
    """As short ones become one, what they say stays: how many, from when to when."""
    made = Rank()
    count = 12_500
    for place in range(count):
        made.kernel("short", 10 * place, 10 * place + 5)
    made.kernel("long and far away", 40 * count, 50 * count)
    plot = timeline(made.build(), options=Options(iteration="whole")).plot()
    (bars,) = plot.data
    assert len(bars["x"]) <= 12_000 * 6
    assert len(bars["x"]) == len(bars["y"]) == len(bars["text"])
    assert "neighbors closer than" in plot.layout["xaxis"]["title"]["text"]
    assert any(text.startswith("long and far away") for text in bars["text"])
    first = bars["text"][0]
    assert first.startswith("short<br>")
    assert "more" in first


def test_nothing_at_all():
    result = timeline(Rank().build())
    assert result.table.height == 0
    assert result.notes[-1] == "nothing that takes time"
    assert result.plot().data == ()
