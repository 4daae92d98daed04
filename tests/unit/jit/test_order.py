import numpy as np

from chakra_et._jit.order import issue_order, ordered_by_edges


def lists(*preds):
    indptr = np.zeros(len(preds) + 1, np.int64)
    np.cumsum([len(each) for each in preds], out=indptr[1:])
    return indptr, np.array([pred for each in preds for pred in each], np.int64)


def test_issue_order_is_the_traces_unless_edges_lead_back():
    assert issue_order(*lists([], [0], [], [1, 2])).tolist() == [0, 1, 2, 3]
    assert issue_order(*lists([3], [], [0], [1])).tolist() == [2, 0, 3, 1]
    # Of what may run, the lowest goes first; what never may comes last.
    assert issue_order(*lists([2], [], [], [4], [3])).tolist() == [2, 0, 1, 5, 5]


def test_edges_may_leave_nothing_to_choose():
    #  0 -> 1 -> 2 on resource 0, through a node without one; 4 and 5 on resource 1 don't wait for one another
    indptr, preds = lists([], [0], [3], [1], [], [])
    resource = np.array([0, 0, 0, -1, 1, 1])
    assert ordered_by_edges(indptr, preds, resource, 3).tolist() == [False, False, True]
    indptr, preds = lists([], [0], [1], [2], [], [4])
    assert ordered_by_edges(indptr, preds, np.array([0, 0, -1, 0, 1, 1]), 2).tolist() == [True, True]
    indptr, preds = lists([], [0], [0], [1, 2])
    assert ordered_by_edges(indptr, preds, np.array([0, 0, 0, 0]), 1).tolist() == [False]
