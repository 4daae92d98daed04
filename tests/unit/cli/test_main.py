import argparse
import subprocess
import sys

import pytest

import chakra_et
from chakra_et import cli
from chakra_et.errors import FormatError

VERBS = [name for name, _ in cli.COMMANDS]


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([verb, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"chakra {verb}" in out.partition("Example:")[2]


@pytest.mark.parametrize("verb", VERBS)
def test_modules_look_alike(verb):
    module = dict(cli.COMMANDS)[verb]
    assert module.__name__ == f"chakra_et.cli.{verb}"
    assert callable(module.add_arguments)
    assert callable(module.run)


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"chakra {chakra_et.__version__}\n"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nothing"],
        ["convert"],
        ["export", "x", "--to", "pdf"],
        ["export", "x"],
        ["slice", "x"],
        ["slice", "x", "--time", "5:1"],
        ["slice", "x", "--time", "soon"],
        ["slice", "x", "--ids", "1,b"],
        ["slice", "x", "--ids", "1", "--iteration", "2"],
        ["info", "x", "--type", "COMM"],
        ["convert", "x", "--detail", "all"],
    ],
)
def test_wrong_usage_is_exit_code_2(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error: " in captured.err


def run_raising(error, monkeypatch):
    def run(args):
        raise error

    parser = argparse.ArgumentParser()
    parser.set_defaults(run=run)
    monkeypatch.setattr(cli, "build_parser", lambda: parser)
    return cli.main([])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FormatError("a.et: expected a trace,\n got nothing"), "chakra: error: a.et: expected a trace, got nothing\n"),
        (PermissionError(13, "Permission denied", "out"), "chakra: error: out: Permission denied\n"),
        (OSError("disk on fire"), "chakra: error: disk on fire\n"),
    ],
)
def test_a_user_error_is_one_line(error, text, monkeypatch, capsys):
    assert run_raising(error, monkeypatch) == 1
    captured = capsys.readouterr()
    assert captured.err == text
    assert captured.out == ""


def test_ctrl_c_is_quiet(monkeypatch, capsys):
    assert run_raising(KeyboardInterrupt(), monkeypatch) == 130
    assert capsys.readouterr().err == "\n"


def test_a_bug_is_no_user_error(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        run_raising(ZeroDivisionError(), monkeypatch)


def test_a_reader_that_goes_away_is_quiet():
    program = (
        "import sys; from chakra_et import cli; from chakra_et.cli import info\n"
        "def run(args):\n"
        "    for _ in range(100000): print('line')\n"
        "    return 0\n"
        "info.run = run\n"
        "sys.exit(cli.main(['info', 'x']))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert errors == b""


def test_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "chakra_et.cli", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: chakra ")
