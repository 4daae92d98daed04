"""Stretches of device time: one an iteration, meeting, and which of them are looked at."""

import numpy as np
import polars as pl
import pytest

from chakra_et.analysis.options import Options
from chakra_et.analysis.view import RankView
from chakra_et.analysis.windows import Window, choose, locate, tile, whole
from chakra_et.errors import InputError
from tests.unit.analysis.hand_made import Rank, stepped

FOUR = tuple(Window(number, f"step {number}", 10 * number, 10 * number + 10) for number in range(1, 5))


def tiled(steps, activities):
    """Windows (iteration, begin, end) of steps (begin, end) and activities (issued, start, end)."""
    table = pl.DataFrame(
        [(number, f"step {number}", *step) for number, step in enumerate(steps)],
        schema=["iteration", "label", "begin_ns", "end_ns"], orient="row",
    )  # fmt: skip
    activities = sorted(activities, key=lambda one: one[1:])
    found = tile(
        table,
        pl.DataFrame([one[1:] for one in activities], schema=["start_ns", "end_ns"], orient="row"),
        np.array([one[0] for one in activities], np.int64),
    )
    return [(window.iteration, window.begin_ns, window.end_ns) for window in found]


def numbers(windows):
    return [window.iteration for window in windows]


def test_stretches_meet_where_the_next_step_begins_on_the_device():
    activities = [(1, 5, 9), (3, 9, 25), (11, 25, 30), (14, 31, 33), (22, 40, 44)]
    assert tiled([(0, 10), (10, 20), (20, 30)], activities) == [(0, 5, 25), (1, 25, 40), (2, 40, 44)]


def test_the_last_stretch_ends_with_its_last_activity():
    """What ends last need not begin last; what was launched after the steps belongs to none."""
    assert tiled([(0, 10)], [(1, 5, 50), (2, 9, 12), (15, 60, 70)]) == [(0, 5, 50)]


def test_what_is_launched_between_two_steps_is_in_the_first_ones_stretch():
    assert tiled([(0, 10), (20, 30)], [(1, 5, 9), (15, 16, 18), (21, 25, 30)]) == [(0, 5, 25), (1, 25, 30)]


def test_a_step_without_activities_has_no_stretch():
    assert tiled([(0, 10), (10, 20), (20, 30)], [(1, 5, 9), (22, 25, 30)]) == [(0, 5, 25), (2, 25, 30)]


def test_streams_that_run_apart_leave_no_hole():
    """A step of which the next one's first activity runs ahead: what is left still meets."""
    activities = [(1, 0, 4), (11, 10, 14), (21, 8, 12), (31, 20, 24)]
    assert tiled([(0, 10), (10, 20), (20, 30), (30, 40)], activities) == [(0, 0, 10), (2, 10, 20), (3, 20, 24)]


def test_no_steps_and_no_activities():
    assert tiled([], [(1, 5, 9)]) == []
    assert whole(pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})) == ()


def test_the_whole_profile():
    table = pl.DataFrame({"start_ns": [3, 5], "end_ns": [40, 9]})
    assert whole(table) == (Window(None, "whole profile", 3, 40),)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, [2, 3]),
        ("all", [1, 2, 3, 4]),
        ("whole", [1, 2, 3, 4]),  # `RankView` has made one of them by then.
        (3, [3]),
        ((4, 1), [1, 4]),
        ((4, 99), [4]),
    ],
)
def test_choices(choice, expected):
    assert numbers(choose(FOUR, choice)) == expected


def test_first_and_last_stay_where_there_are_no_more_than_two():
    assert numbers(choose(FOUR[:2], None)) == [1, 2]
    assert numbers(choose(FOUR[:1], None)) == [1]
    assert choose((), None) == ()


def test_an_iteration_that_is_not_there():
    with pytest.raises(InputError, match=r"^iteration: expected some of 1, 2, 3, 4, got 7, 9; take 'whole' for"):
        choose(FOUR, (9, 7))
    with pytest.raises(InputError, match="expected some of none: the profile shows no iterations, got 0"):
        choose((Window(None, "whole profile", 0, 5),), 0)
    with pytest.raises(InputError, match="expected some of"):
        choose(FOUR, ())


@pytest.mark.parametrize("word", ["first", "", "1"])
def test_a_word_that_means_nothing(word):
    with pytest.raises(InputError, match=f"^iteration: expected a number, 'all' or 'whole', got '{word}'"):
        Options(iteration=word)


def view_of(choice, trace=None):
    trace = trace or stepped((0, 10), (10, 20), (20, 30), kernels=((1, 5, 9), (12, 15, 28), (21, 30, 35)))
    return RankView(trace, 4, Options(iteration=choice))


def test_the_rank_says_which_iterations_it_has():
    with pytest.raises(InputError, match=r"^rank 4: iteration: expected some of 0, 1, 2, got 8"):
        _ = view_of(8).windows


def test_windows_of_a_rank():
    assert numbers(view_of(None).windows) == [1]
    assert numbers(view_of(None).all_windows) == [0, 1, 2]
    only = view_of((0, 2)).windows
    assert [(window.begin_ns, window.end_ns) for window in only] == [(5, 15), (30, 35)]
    assert [(window.host_begin_ns, window.host_end_ns) for window in only] == [(0, 10), (20, 30)]
    assert view_of("whole").windows == (Window(None, "whole profile", 5, 35),)


def test_what_was_launched_before_the_profile_is_in_no_step():
    """A device that runs behind: what the steps launched comes after what is left from before."""
    made = Rank()
    for number in range(3):
        made.step(number, 10 * number, 10 * number + 10)
        made.call(number, 10 * number + 1, 10 * number + 2)
        made.kernel("gemm", 10 * number + 25, 10 * number + 35, correlation=number)
    for begin in (0, 10, 20):
        made.kernel("gemm", begin, begin + 5, correlation=90 + begin)
    view = view_of("all", made.build())
    assert [(window.begin_ns, window.end_ns) for window in view.windows] == [(25, 35), (35, 45), (45, 55)]
    assert view.activities["window"].to_list() == [None, None, None, 0, 1, 2]
    assert view_of("whole", made.build()).windows[0].begin_ns == 0


def test_without_markers_the_whole_profile_is_one_stretch():
    trace = stepped(kernels=((1, 5, 9), (12, 15, 28)))
    assert view_of(None, trace).windows == (Window(None, "whole profile", 5, 28),)
    assert view_of("all", trace).windows == (Window(None, "whole profile", 5, 28),)
    with pytest.raises(InputError, match="the profile shows no iterations"):
        _ = view_of(0, trace).windows


def test_without_a_device_the_steps_are_the_hosts():
    rank = Rank()
    for number in range(3):
        rank.step(number, 10 * number, 10 * number + 10)
        rank.op("aten::mm", 10 * number + 2, 10 * number + 7)
    windows = view_of("all", rank.build()).windows
    assert [(window.iteration, window.begin_ns, window.end_ns) for window in windows] == [
        (0, 0, 10), (1, 10, 20), (2, 20, 30),
    ]  # fmt: skip


def test_an_activity_belongs_to_the_stretch_in_which_it_starts():
    """Those in stretches that weren't chosen, and between them, to none."""
    kernels = ((1, 5, 9), (2, 9, 16), (12, 15, 28), (21, 30, 35), (22, 35, 35))
    trace = stepped((0, 10), (10, 20), (20, 30), kernels=kernels)
    assert view_of("all", trace).activities["window"].to_list() == [0, 0, 1, 2, 2]
    assert view_of((0, 2), trace).activities["window"].to_list() == [0, 0, None, 1, 1]
    assert view_of(1, trace).activities["window"].to_list() == [None, None, 0, None, None]


def test_moments_lie_in_stretches_or_outside():
    begins, ends = np.array([10, 30]), np.array([20, 40])
    assert locate(np.array([9, 10, 19, 20, 35, 40]), begins, ends).tolist() == [-1, 0, 0, -1, 1, -1]
    assert locate(np.array([5]), begins[:0], ends[:0]).tolist() == [-1]


def test_the_host_range_is_the_own_one_where_nothing_marks_it():
    assert Window(1, "step 1", 10, 20, 4, 15).host_range_ns == (4, 15)
    assert Window(None, "whole profile", 10, 20).host_range_ns == (10, 20)
