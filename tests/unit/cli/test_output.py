import json
import sys

from chakra_et.cli import _progress
from chakra_et.cli._output import print_json, print_line, print_table, print_wrote


def test_table_shows_markup_and_brackets_as_they_are(capsys):
    print_table("", ("name", "count"), [("aten::add[bold]x[/bold]", "1"), ("[pytorch|profiler]", "22")])
    out = capsys.readouterr().out
    assert "aten::add[bold]x[/bold]" in out
    assert "[pytorch|profiler]" in out


def test_piped_tables_have_no_padding(capsys):
    print_table("A title", ("name", "count"), [("a", "1"), ("bb", "22")])
    titled = capsys.readouterr().out
    print_table("", ("name", "count"), [("a", "1"), ("bb", "22")])
    plain = capsys.readouterr().out
    assert all(line == line.rstrip() for line in (titled + plain).splitlines())
    assert titled.startswith("A title\n\n name")
    assert plain.startswith(" name  count\n")


def test_table_tells_how_many_rows_were_left_out(capsys):
    print_table("Ranks", ("rank",), [(str(rank),) for rank in range(2000)], limit=3)
    out = capsys.readouterr().out
    assert "(1,997 more rows)" in out
    assert len(out.splitlines()) < 12


def test_table_is_100_columns_wide_without_a_terminal(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table("", ("severity", "message"), [("error", "word " * 60)], left=(0, 1))
    assert max(len(line.rstrip()) for line in capsys.readouterr().out.splitlines()) <= 100


def test_json_and_lines(capsys, tmp_path):
    print_json({"a": [1, None], "path": tmp_path})
    print_wrote([tmp_path / "x.et"], to_stderr=True)
    print_line("text")
    captured = capsys.readouterr()
    value, end = json.JSONDecoder().raw_decode(captured.out)
    assert value == {"a": [1, None], "path": str(tmp_path)}
    assert captured.out[end:].strip() == "text"
    assert captured.err == f"Wrote {tmp_path / 'x.et'}\n"


def test_no_progress_bar_without_a_terminal():
    with _progress.progress_bar() as report:
        assert report is None


class Terminal:
    """Stands for stderr on a terminal."""

    encoding = "utf-8"

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass


def test_progress_bar_appears_late_and_goes(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(_progress, "QUIET_S", 60.0)
    with _progress.progress_bar() as report:
        report("linking", 1, 4)
    assert terminal.text == ""


def test_progress_bar_shows_the_latest_state(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(_progress, "QUIET_S", 0.0)
    bar = _progress._LateBar()
    bar._timer.join()
    bar.update("linking", 1, 4)
    bar.close()
    assert "linking" in terminal.text
    assert "1/4" in terminal.text
