"""Operators of an execution trace and of a profile find each other."""

import json
from dataclasses import replace

import pytest

from chakra_et.errors import MismatchError
from chakra_et.frontends.pytorch.join import host_rank, join_hosts, refuse_other_rank
from chakra_et.frontends.pytorch.parse_et import parse_et
from chakra_et.frontends.pytorch.parse_kineto import parse_kineto
from chakra_et.frontends.pytorch.timeline import build_timeline
from chakra_et.testing import ProfileConfig, programs, run
from tests.unit.frontends.pytorch.profiles import host_trace, node, op, profile

NAMES = ["aten::linear", "aten::t", "aten::addmm", "aten::gelu", "aten::linear", "aten::t", "aten::addmm", "aten::relu"]


def joined(nodes, events, **header):
    found = profile(events, **header)
    timeline = build_timeline(found.host, resolution_ns=found.resolution_ns)
    host = host_trace(nodes)
    refuse_other_rank(host, found, timeline, (None, None))
    join = join_hosts(host, found, timeline)
    pairs = [
        (timeline.frame["name"][event], host.nodes["name"][row], int(host.nodes["rf_id"][row]), event)
        for event, row in enumerate(join.node.tolist())
        if row >= 0
    ]
    return join, pairs


def test_by_record_function_id():
    nodes = [node(10 + i, name, rf=100 + i) for i, name in enumerate(NAMES)]
    events = [op(name, 10 * i, 5, rf=100 + i, ext=7) for i, name in enumerate(NAMES)]
    join, pairs = joined(nodes, events)
    assert (join.method, join.matched, join.operators) == ("rf_id", 8, 8)
    assert [(name, rf) for name, _, rf, _ in pairs] == [(name, 100 + i) for i, name in enumerate(NAMES)]


def test_equal_ids_of_other_names_are_no_pair():
    nodes = [node(10 + i, name, rf=100 + i) for i, name in enumerate(NAMES)]
    events = [op("aten::other" if i == 3 else name, 10 * i, 5, rf=100 + i) for i, name in enumerate(NAMES)]
    join, pairs = joined(nodes, events)
    assert join.matched == 7
    assert all(one == other for one, other, _, _ in pairs)


@pytest.mark.parametrize("offset", [0, 2, 7, -3, 900])
def test_by_external_id_at_an_offset_found_by_voting(offset):
    names = [f"aten::op{i % 5}" for i in range(40)] + ["aten::rare"]
    nodes = [node(10 + i, name, rf=1000 + i) for i, name in enumerate(names)]
    events = [op(name, 10 * i, 5, ext=1000 + i + offset) for i, name in enumerate(names)]
    join, pairs = joined(nodes, events)
    assert join.method == f"external_id = rf_id {offset:+d}"
    assert join.matched == 41
    assert [rf for _, _, rf, _ in pairs] == list(range(1000, 1041))


def test_by_name_and_order_without_ids():
    nodes = [node(10 + i, name) for i, name in enumerate(NAMES)]
    events = [op(name, 10 * i, 5) for i, name in enumerate(NAMES)]
    join, pairs = joined(nodes, events)
    assert (join.method, join.matched) == ("order", 8)
    assert [event for *_, event in pairs] == list(range(8))


def test_an_offset_that_drifts_gives_way_to_the_order():
    """PyTorch 2.3 numbers what its profile shows; behind each operator that it hides, the offset is another."""
    names = [f"aten::op{i % 5}" for i in range(100)]
    nodes = [node(10 + i, name, rf=1000 + i) for i, name in enumerate(names)]
    events = [op(name, 10 * i, 5, ext=1000 + i - (1 if i < 70 else 2)) for i, name in enumerate(names)]
    join, pairs = joined(nodes, events)
    assert (join.method, join.matched) == ("order", 100)
    assert [rf - 1000 for _, _, rf, _ in pairs] == [event for *_, event in pairs] == list(range(100))


def test_order_is_that_of_starts_not_of_completion():
    nodes = [node(12, "aten::mm"), node(11, "aten::linear"), node(10, "aten::mm")]
    events = [op("aten::mm", 0, 5), op("aten::linear", 10, 20), op("aten::mm", 12, 5)]
    found = profile(events)
    timeline = build_timeline(found.host, resolution_ns=1000)
    host = host_trace(nodes)
    rows = join_hosts(host, found, timeline).node
    assert host.nodes["id"].gather(rows).to_list() == [10, 11, 12]


def test_one_step_is_found_among_many():
    step = [f"aten::op{i}" for i in range(12)]
    nodes = [node(10 + i, name) for i, name in enumerate(step)]
    events = [op(name, 1000 * turn + 10 * i, 5) for turn in range(4) for i, name in enumerate(["aten::warmup", *step])]
    join, pairs = joined(nodes, events)
    assert (join.method, join.matched, join.operators) == ("sequence", 12, 12)
    assert [event for *_, event in pairs] == list(range(1, 13))


def test_the_profilers_own_nodes_dont_count():
    nodes = [node(1, "[pytorch|profiler|execution_trace|process]"), node(2, "## process_group:init ##")]
    nodes += [node(9, "gloo:all_reduce"), *(node(10 + i, name, rf=100 + i) for i, name in enumerate(NAMES))]
    join, _ = joined(nodes, [op(name, 10 * i, 5, rf=100 + i) for i, name in enumerate(NAMES)])
    assert join.operators == 8


def test_another_run_is_refused_with_the_counts():
    nodes = [node(10 + i, f"aten::host{i}", rf=100 + i) for i in range(20)]
    events = [op(f"aten::device{i}", 10 * i, 5, rf=100 + i) for i in range(30)]
    message = r"h\.json: expected the host side of the same run as p\.json, got another run's: .* only 0 operators are"
    with pytest.raises(MismatchError, match=message) as error:
        joined(nodes, events)
    assert "of 20 in the one and 30 in the other" in str(error.value)


def test_one_may_cover_more_than_the_other():
    nodes = [node(10 + i, f"aten::op{i % 7}", rf=100 + i) for i in range(60)]
    events = [op(f"aten::op{i % 7}", 10 * i, 5, rf=100 + i) for i in range(20, 40)]
    join, _ = joined(nodes, events)
    assert (join.matched, join.operators) == (20, 60)


# Whose files they are -------------------------------------------------------------------------------------------------

TENSOR = [[1, 2, 0, 4, 4, "cuda:0"]]
KINDS = ["GenericList[Tensor(float)]", "Int", "Tuple[String,String]", "Int", "String", "GenericList[]", "GenericList[]",
         "Int", "Int", "Int"]  # fmt: skip
OLD_KINDS = [*KINDS[:2], "Int", *KINDS[3:7], "Int"]


def record(number, name, rank, group="0", start=0, stride=1, size=8):
    values = [TENSOR, number, [group, ""], rank, name, [], [], start, stride, size]
    return node(number, "record_param_comms", rf=number, inputs={"values": values, "types": KINDS})


def old_record(number, name, rank, size):
    values = [TENSOR, number, 93825133356096, rank, name, [], [], size]
    return node(number, "record_param_comms", rf=number, inputs={"values": values, "types": OLD_KINDS})


def rank_of(*nodes):
    return host_rank(host_trace([node(1, "aten::x"), *nodes]))


def test_collectives_tell_the_rank():
    assert rank_of(record(5, "allreduce", 3), record(6, "wait", 0)) == 3
    assert rank_of() is None


def test_sends_receives_and_roots_dont():
    assert rank_of(record(5, "send", 1), record(6, "recv", 1)) is None
    assert rank_of(record(5, "broadcast", 0), record(6, "allreduce", 3)) == 3


def test_ranks_of_a_subgroup_are_translated():
    # Rank 1 of the group that holds 4, 6, 8: global rank 6.
    assert rank_of(record(5, "allreduce", 1, group="2", start=4, stride=2, size=3)) == 6
    assert rank_of(record(5, "allreduce", 6), record(6, "allreduce", 1, group="2", start=4, stride=2, size=3)) == 6
    groups = json.dumps([{"pg_name": "2", "ranks": [4, 7, 9], "group_size": 3}])
    init = node(2, "## process_group:init ##", inputs={"values": [groups]})
    assert rank_of(init, record(5, "allreduce", 1, group="2", start=4, stride=-1, size=3)) == 7


def test_without_members_the_biggest_group_is_the_job():
    assert rank_of(old_record(5, "allreduce", 3, 8), old_record(6, "allreduce", 0, 1)) == 3
    assert rank_of(old_record(5, "allreduce", 3, 8), old_record(6, "allreduce", 1, 8)) is None


def test_another_rank_is_refused():
    nodes = [record(5, "allreduce", 3)]
    events = [op("record_param_comms", 0, 5, rf=5)]
    with pytest.raises(MismatchError, match=r"h\.json: expected the execution trace of rank 2, .* got rank 3's"):
        joined(nodes, events, distributedInfo={"rank": 2})
    assert joined(nodes, events, distributedInfo={"rank": 3})[0].matched == 1
    assert joined(nodes, events)[0].matched == 1


@pytest.mark.parametrize(
    ("names", "pid", "refused"),
    [((0, 1), 4, True), ((0, 1), 1, False), ((0, 1), None, False), ((0, 0), 4, False), ((None, 1), 4, False)],
)
def test_names_and_processes_tell_ranks_apart(names, pid, refused):
    found = profile([op("aten::mm", 0, 5, rf=5)])
    timeline = build_timeline(found.host, resolution_ns=found.resolution_ns)
    host = host_trace([node(5, "aten::mm", rf=5)])
    host = replace(host, header={**host.header, "pid": pid})
    assert timeline.pids.tolist() == [1]
    if refused:
        with pytest.raises(MismatchError, match=r"expected the execution trace of rank 1, .* got rank 0's"):
            refuse_other_rank(host, found, timeline, names)
    else:
        refuse_other_rank(host, found, timeline, names)


@pytest.mark.parametrize("name", list(programs.PROGRAMS))
@pytest.mark.parametrize("ids", [True, False])
def test_every_operator_of_a_generated_pair_is_joined(name, ids):
    done = run(programs.PROGRAMS[name](ranks=2), show=ProfileConfig(record_function_ids=ids))
    found = parse_kineto("p", json.dumps(done.profile(1)).encode())
    host = parse_et("h", json.dumps(done.host_trace(1)).encode())
    timeline = build_timeline(found.host, resolution_ns=1)
    join = join_hosts(host, found, timeline)
    assert join.matched == join.operators > 20
    assert join.method == ("rf_id" if ids else "external_id = rf_id +2")
    events = timeline.frame["name"].gather(join.node.nonzero()[0]).to_list()
    assert len(events) == len(join.node)
    for event, row in enumerate(join.node.tolist()):
        assert row < 0 or timeline.frame["name"][event] == host.nodes["name"][row]
