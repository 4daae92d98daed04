"""Who called whom."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.ir import NodeType, TraceBuilder
from chakra_et.ir.call_stack import nearest, parent_rows


def stack(*calls):
    """A trace of nodes with these ids and parents."""
    builder = TraceBuilder()
    for number, parent in calls:
        builder.add("n", NodeType.COMP_NODE, id=number, **({} if parent is None else {"parent": parent}))
    return builder.build()


def test_parents_are_told_by_position():
    trace = stack((70, None), (30, 70), (10, 99))
    assert parent_rows(trace).tolist() == [-1, 0, -1]
    assert parent_rows(trace, "fw_parent").tolist() == [-1, -1, -1]
    assert parent_rows(stack()).tolist() == []


def test_a_circle_of_callers_has_no_end():
    assert nearest(np.array([1, 0, 1]), np.array([False, False, False])).tolist() == [-1, -1, -1]
    assert nearest(np.array([1, 0, 1]), np.array([True, False, False])).tolist() == [0, 0, 0]


@given(st.lists(st.tuples(st.integers(-1, 30), st.booleans()), max_size=30))
@settings(deadline=None)
def test_the_nearest_is_the_first_on_the_way_up(nodes):
    parent = np.array([min(above, place - 1) for place, (above, _) in enumerate(nodes)], np.int64)
    wanted = np.array([flag for _, flag in nodes], np.bool_)
    for place, found in enumerate(nearest(parent, wanted).tolist()):
        while place >= 0 and not wanted[place]:
            place = parent[place]
        assert found == place
