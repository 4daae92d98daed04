"""What analyses read off one rank: links, communications, pieces, facts."""

import polars as pl

from chakra_et.analysis.options import Options
from chakra_et.analysis.view import RankView
from chakra_et.ir import CommType, NodeType
from chakra_et.specs import load_kernel_classes
from tests.unit.analysis.hand_made import Rank

ALL = Options(iteration="all")


def two_steps():
    """Two steps; a collective crosses their boundary at 20, and a kernel hides part of it."""
    rank = Rank()
    rank.step(0, 0, 10)
    rank.step(1, 10, 20)
    for number, begin in ((1, 1), (2, 2), (3, 11), (4, 12)):
        rank.call(number, begin, begin + 1)
    rank.kernel("gemm", 5, 12, correlation=1)
    rank.collective(CommType.ALL_REDUCE, 10, 26, 64, correlation=2)
    rank.kernel("gemm", 20, 23, correlation=3)
    rank.collective(CommType.ALL_GATHER, 24, 30, 32, correlation=4, pg_name="1")
    return rank


def test_communications_and_their_iterations():
    found = RankView(two_steps().build(), 0, ALL).communications
    columns = ("kind", "start_ns", "end_ns", "ready_ns", "comm_size", "pg_name", "iteration", "window")
    assert found.select(columns).rows() == [
        ("all_reduce", 10, 26, 10, 64, "0", 0, 0),
        ("all_gather", 24, 30, 24, 32, "1", 1, 1),
    ]


def test_pieces_end_where_stretches_do():
    view = RankView(two_steps().build(), 0, ALL)
    assert view.communication_pieces(("iteration",)).rows() == [(0, True, 10, 2), (1, False, 6, 3), (1, True, 4, 0)]


def test_pieces_of_each_group_are_its_own():
    """The second collective overlaps the first one, but not one of its own group."""
    pieces = RankView(two_steps().build(), 0, ALL).communication_pieces(("iteration", "pg_name", "comm_type"))
    assert pieces.drop("begins").rows() == [
        (0, "0", "all_reduce", 10, 2),
        (1, "0", "all_reduce", 6, 3),
        (1, "1", "all_gather", 6, 0),
    ]


def test_pieces_outside_of_the_chosen_stretches_are_nobodys():
    view = RankView(two_steps().build(), 0, Options(iteration=1))
    assert view.communication_pieces(("iteration",)).rows() == [(1, False, 6, 3), (1, True, 4, 0)]


def test_a_communication_of_no_length_is_in_its_stretch():
    rank = Rank()
    rank.kernel("gemm", 5, 12)
    rank.collective(CommType.BARRIER, 5, 5, 0)
    rank.collective(CommType.BARRIER, 8, 8, 0)
    pieces = RankView(rank.build(), 0, ALL).communication_pieces(("iteration",))
    assert pieces.rows() == [(None, True, 0, 0), (None, True, 0, 0)]


def test_a_kernel_that_only_its_name_tells_is_a_communication_of_unknown_type():
    """Its times stay integers, beside those of named ones: a float can't hold them."""
    rank = Rank(origin=1_790_000_000_000_000_001)
    rank.kernel("cross_device_reduce_1stage", 3, 6, tensor_size=40)
    rank.collective(CommType.ALL_REDUCE, 10, 16, 64)
    found = RankView(rank.build(), 0).communications
    assert found["kind"].to_list() == ["unknown", "all_reduce"]
    assert found["ready_ns"].to_list() == found["start_ns"].to_list() == [rank.origin + 3, rank.origin + 10]
    assert found["comm_size"].to_list() == [40, 64]
    assert found["type"].to_list() == [None, 7]


def test_a_named_communication_without_a_type_is_unknown():
    rank = Rank()
    rank.add("ncclGeneric", NodeType.COMM_COLL_NODE, 0, 5, is_cpu_op=False, stream=9, unknown_comm=True)
    found = RankView(rank.build(), 0).communications
    assert found.select("kind", "type").rows() == [("unknown", 7)]


def test_sends_and_receives():
    rank = Rank()
    rank.message(NodeType.COMM_SEND_NODE, 0, 5, 8, (0, 1))
    rank.message(NodeType.COMM_RECV_NODE, 6, 9, 8, (1, 0))
    assert RankView(rank.build(), 0).communications["kind"].to_list() == ["send", "recv"]


def test_the_hosts_part_of_a_communication_of_the_device_is_none_itself():
    rank = Rank()
    rank.collective(CommType.ALL_REDUCE, 0, 5, 64, is_cpu_op=True, tid=1)
    rank.collective(CommType.ALL_REDUCE, 8, 12, 64)
    rank.kernel("gemm", 12, 14)
    assert RankView(rank.build(), 0).communications["start_ns"].to_list() == [8]


def test_communications_of_the_host_beside_a_device():
    """Such as gloo's on a job with devices: if the device has none, these are what there is."""
    rank = Rank()
    rank.collective(CommType.ALL_REDUCE, 0, 5, 64, is_cpu_op=True, tid=1)
    rank.kernel("gemm", 12, 14)
    assert RankView(rank.build(), 0).communications["start_ns"].to_list() == [0]


def unlinked():
    rank = Rank()
    rank.call(2, 20, 21)
    rank.kernel("gemm", 5, 12, correlation=1)
    rank.collective(CommType.ALL_REDUCE, 8, 15, 64, correlation=1)
    rank.kernel("gemm", 25, 28, correlation=2)
    return rank.build()


def test_activities_launched_before_the_profile_count():
    view = RankView(unlinked(), 0)
    assert view.activities["linked"].to_list() == [False, False, True]
    assert (view.facts.unlinked, view.facts.activities) == (2, 3)
    assert (view.facts.device_ns, view.facts.linked_ns) == (17, 3)


def test_linked_only_leaves_them_out_of_communications_too():
    view = RankView(unlinked(), 0, Options(linked_only=True))
    assert view.activities["start_ns"].to_list() == [25]
    assert view.launches["call_start_ns"].to_list() == [20]
    assert view.communications.height == 0
    assert [(one.begin_ns, one.end_ns) for one in view.windows] == [(25, 28)]
    assert not any("launched outside" in note for note in view.facts.notes)


def test_without_runtime_calls_operators_are_the_launchers():
    rank = Rank()
    op = rank.op("aten::mm", 0, 4)
    rank.kernel("gemm", 5, 12, parent=op)
    rank.kernel("gemm", 12, 15)
    view = RankView(rank.build(), 0)
    assert view.activities["linked"].to_list() == [True, False]
    assert view.issued_ns.tolist() == [0, 12]


def test_nothing_is_linked():
    """As on profiles without any host event: linked only, there is nothing left."""
    rank = Rank()
    rank.kernel("gemm", 5, 12, correlation=1)
    trace = rank.build()
    assert RankView(trace, 0).windows[0].end_ns == 12
    view = RankView(trace, 0, Options(linked_only=True))
    assert (view.windows, view.activities.height, view.facts.device_ns) == ((), 0, 0)


def test_when_the_host_issued_an_activity():
    """Its call's start, else its operator's, else its own; never after its own start."""
    rank = Rank()
    op = rank.op("aten::mm", 2, 4)
    rank.call(1, 3, 4, parent=op)
    rank.kernel("by call", 10, 11, correlation=1, parent=op)
    rank.kernel("by operator", 11, 12, correlation=8, parent=op)
    rank.kernel("by itself", 12, 13, correlation=9)
    rank.kernel("before its operator", 1, 2, correlation=10, parent=op)
    assert RankView(rank.build(), 0).issued_ns.tolist() == [1, 3, 2, 12]


def test_operators_behind_activities():
    rank = Rank()
    mark = rank.mark("my range", 0, 50)
    op = rank.op("aten::mm", 2, 4, module="Model/Linear", inputs={"values": "[]", "shapes": "[[2,3],[3,4]]",
                                                                  "types": '["float","float"]'})  # fmt: skip
    rank.kernel("a", 10, 11, parent=op)
    rank.kernel("b", 11, 12, parent=mark)
    rank.kernel("c", 12, 13)
    calls = RankView(rank.build(), 0).calls
    assert calls.select("op", "module", "shapes").rows() == [
        ("aten::mm", "Model/Linear", "[[2,3],[3,4]]"),
        (None, None, None),
        (None, None, None),
    ]
    # 2 x 3 by 3 x 4: 24 multiply-adds.
    assert calls["flop_count"].to_list() == [48, None, None]


def test_facts_count_times_in_the_chosen_stretches():
    rank = two_steps()
    rank.kernel("qqq", 26, 28)
    facts = RankView(rank.build(), 3, ALL).facts
    assert (facts.rank, facts.has_device, len(facts.windows)) == (3, True, 2)
    # gemm 7 + 3, qqq 2, collectives 16 + 6
    assert (facts.device_ns, facts.classified_ns, facts.linked_ns, facts.compute_ns) == (34, 32, 32, 12)
    facts = RankView(rank.build(), 3, Options(iteration=0)).facts
    assert (facts.device_ns, facts.compute_ns) == (23, 7)


def test_a_trace_without_times_says_so():
    timed, untimed, nothing = Rank(), Rank(), Rank()
    timed.op("aten::mm", 0, 5)
    untimed.op("aten::mm", 0, 0)
    told = [
        any("no times" in note for note in RankView(one.build(), 0).facts.notes) for one in (timed, untimed, nothing)
    ]
    assert told == [False, True, False]


def test_own_kernel_classes(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[[classes]]\nname = "communication"\npatterns = ["^qqq$"]')
    rank = Rank()
    rank.kernel("qqq", 0, 5)
    view = RankView(rank.build(), 0, Options(kernel_classes=load_kernel_classes(path)))
    assert view.activities["category"].cast(pl.String).to_list() == ["communication"]
    assert view.communications["kind"].to_list() == ["unknown"]
