"""Notes of our observer, as they are read from an execution trace."""

import json

import polars as pl
import pytest

from chakra_et.frontends.pytorch.comm_notes import COMM_NOTE, WAIT_NOTE, CommNote, take_notes


def table(*rows, threads=()):
    """(id, parent, name, input values) each; a dict is JSON in a string, as a record function's argument."""
    texts = [json.dumps([json.dumps(value)] if isinstance(value, dict) else value) for *_, value in rows]
    return pl.DataFrame(
        {
            "id": [row[0] for row in rows],
            "parent": [row[1] for row in rows],
            "name": [row[2] for row in rows],
            "tid": list(threads) or [1] * len(rows),
            "input_values": texts,
        }
    )


def test_notes_leave_and_waits_stay():
    nodes = table(
        (5, 1, "c10d::send", []), (6, 5, COMM_NOTE, {"id": 7, "pg": "tp"}), (8, 1, WAIT_NOTE, {"id": 7}),
        (9, 1, "aten::add", []),
    )  # fmt: skip
    rest, notes, waits = take_notes(nodes)
    assert rest["name"].to_list() == ["c10d::send", WAIT_NOTE, "aten::add"]
    assert notes == {5: CommNote(7, "tp")}
    assert waits == {8: 7}


def test_notes_belong_to_the_call_that_their_thread_entered_last():
    # A worker closed the call, in place of what it had opened, before the note was written.
    nodes = table(
        (1, 0, "c10d::allreduce_", []), (2, 1, COMM_NOTE, {"id": 0}), (3, 0, "gloo:all_reduce", []),
        (4, 3, "c10d::barrier", []), (5, 0, "c10d::send", []), (6, 3, COMM_NOTE, {"id": 1}),
        (7, 0, COMM_NOTE, {"id": 2}),
        threads=(1, 1, 1, 1, 2, 1, 3),
    )  # fmt: skip
    assert {call: note.id for call, note in take_notes(nodes)[1].items()} == {1: 0, 4: 1}


@pytest.mark.parametrize(
    ("name", "above", "values", "record", "expected"),
    [
        ("c10d::allreduce_", "main", [], {"reduce_op": "max"}, "max"),
        ("c10d::allreduce_", "_c10d_functional::all_reduce", ["x", "avg", "0"], {}, "avg"),
        ("c10d::_reduce_scatter_base_", "_c10d_functional::reduce_scatter_tensor", ["x", "sum", 2, "0"], {}, "sum"),
        ("c10d::allreduce_", "torch.distributed.ddp.reducer", [], {}, "sum"),
        ("c10d::allgather_", "main", [], {}, ""),
        ("c10d::allreduce_", "main", [], {"reduce_op": "unheard of"}, ""),
    ],
)
def test_what_is_reduced(name, above, values, record, expected):
    nodes = table((1, 0, above, values), (2, 1, name, []), (3, 2, COMM_NOTE, {"id": 0, **record}))
    assert take_notes(nodes)[1][2].reduce_op == expected


@pytest.mark.parametrize("value", [[], ['{"id": 1'], [5], ['{"id": "1"}'], ['{"id": -1}'], ["[1]"], [None]])
def test_damaged_notes_say_nothing(value):
    rest, notes, waits = take_notes(
        table((1, 0, "c10d::allreduce_", []), (2, 1, COMM_NOTE, value), (3, 0, WAIT_NOTE, value))
    )
    assert (rest.height, notes, waits) == (2, {}, {})
