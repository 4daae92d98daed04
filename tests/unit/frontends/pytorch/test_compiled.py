"""Captures made before execution: their header, and the order on streams."""

import json

import polars as pl
import pytest

from chakra_et.frontends.pytorch.communication import CommColumns
from chakra_et.frontends.pytorch.compiled import SYNC_NOTE, compiled_header, compiled_order
from chakra_et.frontends.pytorch.convert_host import convert_host
from chakra_et.frontends.pytorch.parse_et import HostTrace, parse_et
from chakra_et.ir.enums import NodeType


def host(header):
    return HostTrace("host.json", "1.1.1", pl.DataFrame(), (), (), header)


def order(*rows, described=None, waits=None):
    """Return both kinds of dependencies of nodes given as (stream, name, awaited node id)."""
    frame = pl.DataFrame(
        {
            "id": [10 + row for row in range(len(rows))],
            "tid": [row[0] for row in rows],
            "name": [row[1] for row in rows],
            "input_values": [json.dumps([json.dumps({"after": row[2]})]) if len(row) > 2 else "[]" for row in rows],
        }
    )
    return compiled_order(frame, described or {}, waits or {})


def collective(number, group="0", *, is_async=True):
    return CommColumns(comm_id=number, pg_name=group, comm_async=is_async)


def test_only_captures_of_ours_have_a_header():
    header = compiled_header(host({"chakra": {"family": "compiled", "rank": 3, "world_size": 8, "device": "cuda"}}))
    assert (header.family, header.rank, header.world_size, header.device) == ("compiled", 3, 8, "cuda")
    strange = compiled_header(host({"chakra": {"family": "compiled", "rank": "3", "world_size": -1}}))
    assert (strange.rank, strange.world_size) == (None, None)
    for other in ({}, {"chakra": None}, {"chakra": {"family": "collected"}}, {"chakra": ["compiled"]}):
        assert compiled_header(host(other)) is None


def test_calls_follow_each_other_on_their_stream():
    ctrl, sync = order((1, "a"), (2, "b"), (1, "c"), (2, "d"))
    assert ctrl == [[], [], [0], [1]]
    assert sync == [[]] * 4


def test_asynchronous_communications_leave_their_stream_until_they_are_waited_for():
    ctrl, sync = order((1, "a"), (1, "comm"), (1, "b"), (1, "wait"), described={1: collective(7)}, waits={3: 7})
    assert ctrl == [[], [0], [0], [2]]
    assert sync == [[], [], [], [1]]


def test_blocking_communications_stay_on_their_stream():
    ctrl, sync = order((1, "a"), (1, "comm"), (1, "b"), described={1: collective(7, is_async=False)})
    assert ctrl == [[], [0], [1]]
    assert sync == [[]] * 3


def test_communications_of_a_group_follow_each_other_and_messages_do_not():
    described = {0: collective(1), 1: collective(2, "1"), 2: collective(3)}
    assert order((1, "x"), (1, "y"), (2, "z"), described=described)[1] == [[], [], [0]]
    messages = {row: CommColumns(type=NodeType.COMM_SEND_NODE, comm_id=row, pg_name="0") for row in range(3)}
    assert order((1, "x"), (1, "y"), (2, "z"), described=messages)[1] == [[]] * 3


def test_streams_wait_for_each_other():
    ctrl, sync = order((1, "a"), (2, SYNC_NOTE, 10), (2, "b"), (1, SYNC_NOTE, 12), (1, SYNC_NOTE, 99), (1, "c"))
    assert ctrl == [[], [], [1], [0], [3], [4]]
    assert sync == [[], [0], [], [2], [], []]


@pytest.mark.parametrize(("device", "on_host"), [("cuda", False), ("cpu", True)])
def test_the_header_goes_into_the_trace(device, on_host):
    node = {"id": 5, "name": "aten::relu", "ctrl_deps": 0, "inputs": {"values": [], "shapes": [], "types": []},
            "outputs": {"values": [], "shapes": [], "types": []},
            "attrs": [{"name": "tid", "type": "uint64", "value": 3}]}  # fmt: skip
    record = {"family": "compiled", "rank": 2, "world_size": 64, "device": device}
    text = json.dumps({"schema": "1.1.1-chakra.0.0.4", "chakra": record, "nodes": [node]})
    trace, _ = convert_host(parse_et("host.json", text.encode()), sources=())
    metadata = trace.metadata
    assert (metadata.family, metadata.rank, metadata.world_size) == ("compiled", 2, 64)
    assert trace.nodes["is_cpu_op"].to_list() == [on_host]
    assert trace.column("tid" if on_host else "stream").to_list() == [3 if on_host else 2]
