"""The folder of a sweep: nothing is lost, nothing is done twice, and no other sweep is overwritten."""

import multiprocessing

import polars as pl
import pytest

from chakra_et.errors import OutputError
from chakra_et.ir import Trace, TraceSet
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.sweep_log import open_log, point_key, trace_digest
from chakra_et.sim.sweep_points import Point
from chakra_et.specs import load_system
from tests.unit.sim.jobs import grid

ROWS = {"a": {"finish_ns": 1, "notes": ["x é \u2028"]}, "b": {"finish_ns": 2.5}, "c": {"finish_ns": None}}


def fill(folder, rows, keys="abc"):
    with open_log(folder, "digest", list(keys), force=False) as log:
        log.add(rows)


def reopen(folder, keys="abc", *, digest="digest", force=False):
    with open_log(folder, digest, list(keys), force=force) as log:
        return log.rows


def test_rows_come_back(tmp_path):
    fill(tmp_path / "s", {"a": ROWS["a"]})
    fill(tmp_path / "s", {"b": ROWS["b"], "c": ROWS["c"]})
    assert reopen(tmp_path / "s") == ROWS


@pytest.mark.parametrize("cut", [1, 2, 20, 40])
def test_a_line_that_was_cut_off_counts_for_nothing(tmp_path, cut):
    fill(tmp_path, ROWS)
    path = tmp_path / "points.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    rows = {key: row for key, row in ROWS.items() if key != "c"}
    assert reopen(tmp_path) == rows
    fill(tmp_path, {"c": ROWS["c"]})
    assert reopen(tmp_path) == ROWS
    assert path.read_bytes() == whole


def test_damaged_lines_are_done_again(tmp_path):
    fill(tmp_path, ROWS)
    path = tmp_path / "points.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0].replace("1", "3", 1), "[]", "null", '{"point": 1}', "\x00", *lines[1:]]) + "\n")
    assert reopen(tmp_path) == {key: ROWS[key] for key in "bc"}


def test_what_failed_is_tried_again(tmp_path):
    fill(tmp_path, {"a": {"error": "no memory"}, "b": ROWS["b"]})
    assert reopen(tmp_path) == {"b": ROWS["b"]}


def test_points_can_be_added_but_not_taken_away(tmp_path):
    fill(tmp_path, ROWS)
    assert reopen(tmp_path, "dcab") == ROWS
    with pytest.raises(OutputError, match="expected no other sweep, got one of other points"):
        reopen(tmp_path, "abc")


@pytest.mark.parametrize("head", ['{"version": "0.0", "format": 1, "points": []}', '{"format": 2, "points": []}'])
def test_other_versions_are_other_sweeps(tmp_path, head):
    fill(tmp_path, ROWS)
    (tmp_path / "sweep.json").write_text(head)
    with pytest.raises(OutputError, match="expected no other sweep, got one that version"):
        reopen(tmp_path)


def test_other_traces_are_another_sweep(tmp_path):
    fill(tmp_path, ROWS)
    with pytest.raises(OutputError, match="one of other traces; choose another folder or use --force"):
        reopen(tmp_path, digest="other")
    assert reopen(tmp_path) == ROWS


def test_force_begins_anew(tmp_path):
    fill(tmp_path, ROWS)
    for name in ("sweep.csv", "sweep.html", "mine.txt"):
        (tmp_path / name).write_text("x")
    with open_log(tmp_path, "other", list("xyz"), force=True) as log:
        assert log.rows == {}
        log.add({"x": ROWS["a"]})
    assert reopen(tmp_path, "xyz", digest="other") == {"x": ROWS["a"]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "points.jsonl", "sweep.json"]


def test_where_nothing_was_done_nothing_is_left(tmp_path):
    assert reopen(tmp_path / "new") == {}
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ZeroDivisionError), open_log(tmp_path, "digest", ["a"], force=False):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    # A process that was killed before its first point is done leaves no sweep either.
    (tmp_path / "sweep.json").write_text('{"format": 1, "traces": "other", "points": ["z"]}')
    (tmp_path / "points.jsonl").write_text("cut off")
    fill(tmp_path, ROWS)
    assert reopen(tmp_path) == ROWS


@pytest.mark.parametrize("name", ["sweep.csv", "sweep.html", "sweep.parquet", "points.jsonl"])
def test_files_of_others_stay(tmp_path, name):
    (tmp_path / name).write_text("x")
    with pytest.raises(OutputError, match="expected a new file, got an existing one"):
        reopen(tmp_path)
    assert (tmp_path / name).read_text() == "x"


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\x00"])
def test_a_head_that_is_none(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(OutputError, match="expected what a sweep wrote, got something else"):
        reopen(tmp_path)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(OutputError, match="expected a folder, got a file"):
        reopen(tmp_path / "x")


def try_to_open(folder, said):
    try:
        reopen(folder)
    except OutputError as err:
        said.put(str(err))
    else:
        said.put("opened")


def test_one_process_at_a_time(tmp_path):
    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    with open_log(tmp_path, "digest", ["a"], force=False):
        other = context.Process(target=try_to_open, args=(tmp_path, said))
        other.start()
        assert "expected no other sweep at work in it, got one" in said.get(timeout=60)
        other.join()


def test_without_a_folder_rows_stay_in_memory():
    with open_log(None, "digest", ["a"], force=False) as log:
        log.add({"a": ROWS["a"]})
        assert log.rows == {"a": ROWS["a"]}


def test_digest_follows_content():
    one = grid(2, 1, 2, layers=1)
    assert trace_digest(one) == trace_digest(grid(2, 1, 2, layers=1))
    assert trace_digest(one) != trace_digest(grid(2, 1, 2, layers=1, skew=1, uneven=True))
    assert trace_digest(one) != trace_digest(TraceSet(one.traces[:3]))
    longer = [Trace(t.nodes.with_columns(pl.col("duration_ns") + 1), t.process_groups, t.metadata) for t in one]
    assert trace_digest(one) != trace_digest(TraceSet(tuple(longer)))
    backward = [Trace(t.nodes.reverse(), t.process_groups, t.metadata) for t in one]
    assert trace_digest(one) != trace_digest(TraceSet(tuple(backward)))


def test_keys_follow_system_and_options_but_not_the_order_of_mappings():
    dgx = load_system("h100-dgx")
    scales = {"gemm": 2.0, "*": 1.0}
    other = dict(reversed(scales.items()))
    first = Point(dgx, SimulateOptions(compute_scale=scales), ())
    assert point_key("x", first) == point_key("x", Point(dgx, SimulateOptions(compute_scale=other), (1,)))
    keys = {
        point_key("x", first),
        point_key("y", first),
        point_key("x", Point(None, first.options, ())),
        point_key("x", Point(load_system("b200-dgx"), first.options, ())),
        point_key("x", Point(dgx, SimulateOptions(), ())),
    }
    assert len(keys) == 5
