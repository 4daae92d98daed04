"""Every rule has a trace that breaks it, and the message says where and how."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from chakra_et.errors import InputError
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceSet
from chakra_et.ir.arrays import list_series
from chakra_et.ir.columns import empty_nodes
from chakra_et.validation import RULES, Finding, validate

COMP, COLL, SEND, RECV = NodeType.COMP_NODE, NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE
WORLD = ProcessGroup("1", (0, 1), 2)
REDUCE = {"type": COLL, "comm_type": CommType.ALL_REDUCE, "comm_size": 64, "pg_name": "1"}
GATHER = {"type": COLL, "comm_type": CommType.ALL_GATHER, "comm_size": 64, "pg_name": "1"}
TO_1 = {"type": SEND, "comm_dst": 1, "comm_size": 8, "comm_tag": 3}
FROM_0 = {"type": RECV, "comm_src": 0, "comm_size": 8, "comm_tag": 3}


def rank(number: int, *nodes: dict[str, object], groups: tuple[ProcessGroup, ...] = (WORLD,), world: int = 2) -> Trace:
    builder = TraceBuilder(rank=number, world_size=world, process_groups=groups)
    clock = 0
    for node in nodes:
        values = {"name": "n", "type": COMP, "duration_ns": 10, **node}
        if "start_ns" not in values:
            values["start_ns"] = clock
        clock += 10
        builder.add(str(values.pop("name")), NodeType(int(str(int(values.pop("type"))))), **values)  # type: ignore[call-overload]
    return builder.build()


def pair(first: list[dict[str, object]], second: list[dict[str, object]]) -> TraceSet:
    """Two ranks; nodes without dependencies but the first hang on the one before, so that they rebuild."""

    def chain(nodes: list[dict[str, object]]) -> list[dict[str, object]]:
        return [{"sync_deps": [index - 1] if index else [], **node} for index, node in enumerate(nodes)]

    return TraceSet((rank(0, *chain(first)), rank(1, *chain(second))))


def alone(*nodes: dict[str, object], **options: object) -> TraceSet:
    return TraceSet((rank(0, *nodes, world=1, **options),))  # type: ignore[arg-type]


def attribute(name: str, field: bytes) -> bytes:
    record = b"\x0a" + bytes([len(name)]) + name.encode() + field
    return b"\x52" + bytes([len(record)]) + record


# Rule -> a set that breaks it, and a part of the message.
BROKEN: dict[str, tuple[Callable[[], TraceSet], str]] = {
    "id-unique": (
        lambda: alone({"id": 3}, {"id": 3}),
        "expected unique ids, got 3 more than once - at rank 0: node 3 ('n')",
    ),
    "type-invalid": (lambda: alone({"type": NodeType.INVALID_NODE}), "expected a node type from 1 to 7, got 0"),
    "edge-dangling": (lambda: alone({"sync_deps": [9]}), "expected sync_deps that are nodes, got 9"),
    "edge-self": (lambda: alone({"data_deps": [0]}), "expected data_deps on other nodes, got 0"),
    "edge-cycle": (
        lambda: alone({"ctrl_deps": [2]}, {"data_deps": [0]}, {"sync_deps": [1]}),
        "got the cycle 0 ('n') -> 1 ('n') -> 2 ('n') -> 0",
    ),
    "attr-kind": (
        lambda: alone({"attr": attribute("comm_size", b"\xea\x01\x0264")}),
        "expected attribute 'comm_size' of an integer or bool kind, got string",
    ),
    "time-negative": (lambda: alone({"duration_ns": -4}), "expected duration_ns >= 0, got -4"),
    "time-order": (
        lambda: alone({"duration_ns": 5000, "start_ns": 0}, {"start_ns": 100, "sync_deps": [0]}),
        "expected a start after node 0 ends, got one 4900 ns before",
    ),
    "rebuild-error": (
        lambda: alone({"start_ns": 50}, {"start_ns": 5000, "sync_deps": [0]}),
        "expected a rebuilt start at 4950 ns as recorded, got 10 ns",
    ),
    "group-unknown": (
        lambda: alone({**REDUCE, "pg_name": "dp"}),
        "expected a process group of the trace (1), got 'dp'",
    ),
    "group-member": (
        lambda: alone({**REDUCE, "pg_name": "2"}, groups=(ProcessGroup("2", (4, 5), 2),)),
        "expected a group that rank 0 is a member of, got '2' of the ranks 4, 5",
    ),
    "comm-type": (lambda: alone({**REDUCE, "comm_type": None}), "expected a comm_type from 0 to 9, got none"),
    "comm-size": (lambda: alone({**REDUCE, "comm_size": -1}), "expected comm_size in bytes, 0 or more, got -1"),
    "comm-size-unknown": (lambda: alone({**REDUCE, "comm_size": None}), "expected comm_size in bytes, got none"),
    "comm-peer": (lambda: pair([{**TO_1, "comm_dst": 0}], []), "expected comm_dst to be another of 2 ranks, got 0"),
    "comm-peer-unknown": (lambda: pair([{**TO_1, "comm_dst": None}], []), "expected comm_dst, got none"),
    "comm-cpu": (lambda: alone({**REDUCE, "is_cpu_op": True}, {}), "expected communications on the device"),
    "comm-unknown": (lambda: alone({"type": COLL, "unknown_comm": True}), "expected a known communication, got 'n'"),
    "match-missing-rank": (
        lambda: alone(REDUCE),
        "expected a trace of each of 2 ranks, got none of 1 - at the trace set",
    ),
    "match-type": (
        lambda: pair([REDUCE, GATHER], [REDUCE, REDUCE]),
        "expected comm_type 2 as on rank 0, got 0, in collective 1 of group '1' - at rank 1: node 1",
    ),
    "match-size": (
        lambda: pair([REDUCE], [{**REDUCE, "comm_size": 60}]),
        "expected comm_size 64 as on rank 0, got 60, in collective 0 of group '1'",
    ),
    "match-order": (
        lambda: pair([REDUCE, GATHER], [GATHER, REDUCE]),
        "expected the order of rank 0 in group '1', got another one - at rank 1",
    ),
    "match-unpaired": (
        lambda: pair([TO_1, TO_1], [FROM_0]),
        "expected a receive on rank 1 with tag 3 and number 1, got none - at rank 0: node 1",
    ),
    "astra-rank": (lambda: alone({}), "expected traces of 2 or more ranks, numbered from 0 without holes, got 0"),
    "astra-root": (lambda: TraceSet((Trace(empty_nodes()),)), "expected a node without dependencies, got none"),
    "astra-type": (lambda: alone({"type": NodeType.METADATA_NODE}), "got METADATA_NODE"),
    "astra-comm-cpu": (lambda: alone({**REDUCE, "is_cpu_op": True}), "expected is_cpu_op false on a communication"),
    "astra-collective": (lambda: alone({**REDUCE, "comm_type": CommType.BARRIER}), "REDUCE_SCATTER, got BARRIER"),
    "astra-size": (lambda: alone({**GATHER, "comm_size": 3}), "expected comm_size of at least 4 bytes, got 3"),
    "astra-peer": (
        lambda: pair([{**TO_1, "comm_tag": None}], []),
        "expected comm_tag to be a number below 500000000, got none",
    ),
    "astra-message": (
        lambda: pair([TO_1], [{**FROM_0, "comm_size": 4}]),
        "expected as many sends as receives of 8 bytes from rank 0 to rank 1 with tag 3, got 1 and 0",
    ),
    "astra-order": (
        lambda: pair([REDUCE, GATHER], [GATHER, REDUCE]),
        "expected the types, sizes and order of rank 0 (2 collectives) in group '1', got 2 others - at rank 1",
    ),
    "astra-group": (
        lambda: alone({**REDUCE, "pg_name": "dp"}, groups=(ProcessGroup("dp", (0, 1), 2),)),
        "expected a number as pg_name, got 'dp'",
    ),
    "astra-id-order": (lambda: alone({"start_ns": 50}, {"start_ns": 10}), "got 1 nodes that start before a lower id"),
    "astra-cpu-op": (lambda: alone({"is_cpu_op": True}), "expected no host operators if statistics are wanted, got 1"),
    "astra-roofline": (lambda: alone({}), "expected num_ops and tensor_size on compute nodes"),
}


def test_every_rule_has_a_counterexample() -> None:
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_broken_rule_is_found(rule: str) -> None:
    make, text = BROKEN[rule]
    report = validate(make(), target=RULES[rule].target or None)
    found = [finding for finding in report.findings if finding.rule == rule]
    assert any(text in finding.message for finding in found), [finding.message for finding in report.findings]
    assert {finding.severity for finding in found} == {RULES[rule].severity}
    assert all(" - at " in finding.message for finding in found)


def test_a_good_set_has_no_findings() -> None:
    nodes = [{}, REDUCE, GATHER, REDUCE]
    report = validate(pair([*nodes, TO_1], [*nodes, FROM_0]), target="astra-sim")
    assert [finding.rule for finding in report.findings] == ["astra-roofline", "astra-roofline"]
    assert (report.errors, report.warnings) == (0, 0)


@pytest.mark.parametrize(
    ("make", "rule", "text"),
    [
        (
            lambda: pair([REDUCE], []),
            "match-unpaired",
            "expected collective 0 of group '1' as on other ranks, got none",
        ),
        (lambda: pair([], [FROM_0]), "match-unpaired", "expected a send on rank 0 with tag 3 and number 0"),
        (
            lambda: pair([TO_1], [{**FROM_0, "comm_size": 9}]),
            "match-size",
            "expected comm_size 8 as sent by rank 0, got 9",
        ),
        (
            lambda: pair([{**TO_1, "comm_src": 1}], [FROM_0]),
            "comm-peer",
            "expected comm_src to be the own rank 0, got 1",
        ),
        (
            lambda: pair([{**REDUCE, "comm_seq": 2}, {**REDUCE, "comm_seq": 1}], []),
            "match-order",
            "expected ascending comm_seq in group '1', got 1 after a later one",
        ),
        (lambda: alone({"start_ns": -3}), "time-negative", "expected start_ns >= 0, got -3"),
        (lambda: alone({"attr": attribute("stream", b"\x19" + bytes(8))}), "attr-kind", "got double"),
    ],
)
def test_other_ways_to_break_rules(make: Callable[[], TraceSet], rule: str, text: str) -> None:
    assert any(f.rule == rule and text in f.message for f in validate(make()).findings)


def test_sizes_of_different_kinds_of_collectives_are_not_compared() -> None:
    report = validate(pair([REDUCE], [{**GATHER, "comm_size": 8}]))
    assert {finding.rule for finding in report.findings} == {"match-type"}


def test_uneven_all_to_all_is_fine() -> None:
    swap = {"type": COLL, "comm_type": CommType.ALL_TO_ALL, "pg_name": "1"}
    assert validate(pair([{**swap, "comm_size": 5}], [{**swap, "comm_size": 7}])).findings == ()


def test_integers_of_any_kind_are_fine() -> None:
    whole = alone({"attr": attribute("comm_size", b"\x38\x05")}, groups=())
    assert validate(whole).findings == ()


def test_many_findings_are_counted() -> None:
    report = validate(alone(*[{"data_deps": [99]} for _ in range(50)]))
    found = [finding for finding in report.findings if finding.rule == "edge-dangling"]
    assert len(found) == 21
    assert found[-1].as_dict() == {
        "rule": "edge-dangling",
        "severity": "error",
        "rank": 0,
        "node": None,
        "message": "expected none, got 50 in all, 30 not shown - at rank 0",
    }
    assert report.errors == 50
    assert set(report.as_dict()) == {"findings", "errors", "warnings"}


def test_unknown_target() -> None:
    with pytest.raises(InputError, match="expected a target out of astra-sim, got 'gem5'"):
        validate(alone({}), target="gem5")


def test_one_trace_is_a_set_of_one() -> None:
    whole = alone({"data_deps": [99]})
    assert validate(whole.traces[0]) == validate(whole)
    assert validate(whole.traces[0]).errors == 1


def test_empty_set_and_empty_trace() -> None:
    assert validate(TraceSet(())).findings == ()
    assert validate(TraceSet((Trace(empty_nodes()),))).findings == ()


def test_a_finding_is_a_value() -> None:
    assert Finding("a", "info", None, None, "m") == Finding("a", "info", None, None, "m")


def test_time_grows_linearly() -> None:
    def check(count: int) -> float:
        node = np.arange(count, dtype=np.uint64)
        offsets = np.arange(count + 1, dtype=np.int64)
        none = list_series("data_deps", np.zeros(count + 1, np.int64), np.empty(0, np.uint64))
        table = pl.DataFrame(
            [
                pl.Series("id", node),
                pl.Series("name", ["x"] * count),
                pl.Series("type", np.full(count, 7, np.uint8)),
                list_series("ctrl_deps", offsets, (node + 1) % count),
                none,
                none.alias("sync_deps"),
                pl.Series("start_ns", np.arange(count, dtype=np.int64)),
                pl.Series("duration_ns", np.full(count, -1, np.int64)),
                pl.Series("is_cpu_op", [False] * count),
                pl.Series("comm_type", np.full(count, 77, np.int64)),
            ]
        )
        begin = time.process_time()
        validate(TraceSet((Trace(table),)), target="astra-sim")
        return time.process_time() - begin

    check(100)
    assert check(100_000) < 60 * max(check(6_250), 0.02)
